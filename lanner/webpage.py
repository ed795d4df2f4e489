"""Reports as one HTML page that needs nothing else: style, tables and lists; everything is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; }
th { background: #f4f6f8; } th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; } img, svg { max-width: 100%; } .settings td { text-align: left; }
"""


class Markup(str):
    """Text that is HTML already and goes into the page as it is."""


def page(title: str, parts: Iterable[str], style: str = "") -> str:
    """The page: `title` as its heading, then the `parts`, which are HTML; empty ones are left out."""
    body = "\n".join(part for part in (heading(title, 1), *parts) if part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str) -> str:
    return f"<p>{html(text)}</p>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls sideways where it is wide."""
    head = "".join(f"<th>{html(title)}</th>" for title in titles)
    body = "\n".join("<tr>" + "".join(f"<td>{html(cell)}</td>" for cell in cells) + "</tr>" for cells in rows)
    return f'<div class="scroll"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'


def items(texts: Iterable[str]) -> str:
    """A list; nothing where there is no item."""
    lines = "".join(f"<li>{html(text)}</li>" for text in texts)
    return f"<ul>{lines}</ul>" if lines else ""


def facts(values: Mapping[str, object]) -> str:
    """A table of names and values."""
    lines = "".join(f"<tr><td>{escape(key)}</td><td>{html(str(value))}</td></tr>" for key, value in values.items())
    return f'<table class="settings">{lines}</table>'


def html(text: str) -> str:
    """`text` escaped, unless it is `Markup`."""
    return text if isinstance(text, Markup) else escape(text)
