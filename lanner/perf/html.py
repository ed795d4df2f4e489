"""The report as one HTML page that needs nothing else: figure inside, tables, notes, settings."""

from __future__ import annotations

import base64

from lanner import webpage
from lanner.perf.results import Report
from lanner.perf.tables import PARTS, Cell, latency_table, notes, parts_table, text


def page(report: Report, png: bytes) -> str:
    """The page; `png` is its figure."""
    settings = report.settings
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
        f'<img alt="Latency against throughput, and its parts" src="data:image/png;base64,{image}">',
        webpage.heading("Throughput and latency"),
        _table(*latency_table(report)),
        webpage.heading("Where the mean latency goes (ms per request)"),
        _table(*parts_table(report)),
        webpage.paragraph(f"In order: {', '.join(PARTS.values())}; rows in each execution; client's share of a core."),
        webpage.heading("Notes") if notes(report) else "",
        webpage.items(notes(report)),
        webpage.heading("Settings"),
        webpage.facts(facts),
    ]
    return webpage.page(f"Load test of {settings.name}", parts)


def _table(titles: list[str], rows: list[list[Cell]]) -> str:
    return webpage.table(titles, [[text(cell) for cell in cells] for cells in rows])
