"""The report as one HTML page that needs nothing else: figure inside, tables, notes, settings."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape

from lanner.perf.results import Report
from lanner.perf.tables import PARTS, Cell, latency_table, notes, parts_table, text

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; }
th { background: #f4f6f8; } th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; } img { max-width: 100%; } .settings td { text-align: left; }
"""


def page(report: Report, png: bytes) -> str:
    """The page; `png` is its figure."""
    settings = report.settings
    title = f"Load test of {settings.name}"
    facts = {
        "server": report.server or "not stated",
        **{key: value for key, value in report.model.items() if value},
        **settings.model_dump(mode="json", exclude_defaults=True),
        "started": report.started,
        "distinct requests": report.distinct_requests,
        "bytes a request": report.request_bytes,
    }
    image = base64.b64encode(png).decode()
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<img alt="Latency against throughput, and its parts" src="data:image/png;base64,{image}">',
        "<h2>Throughput and latency</h2>",
        _table(*latency_table(report)),
        "<h2>Where the mean latency goes (ms per request)</h2>",
        _table(*parts_table(report)),
        f"<p>In order: {escape(', '.join(PARTS.values()))}; rows in each execution; client's share of a core.</p>",
        "<h2>Notes</h2>" if notes(report) else "",
        _list(notes(report)),
        "<h2>Settings</h2>",
        _facts(facts),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(part for part in parts if part) + "\n</body></html>\n"
    )


def _table(titles: list[str], rows: list[list[Cell]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(text(cell))}</td>" for cell in cells) + "</tr>" for cells in rows)
    return f'<div class="scroll"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'


def _list(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{lines}</ul>" if lines else ""


def _facts(facts: dict[str, object]) -> str:
    lines = "".join(f"<tr><td>{escape(key)}</td><td>{escape(str(value))}</td></tr>" for key, value in facts.items())
    return f'<table class="settings">{lines}</table>'
