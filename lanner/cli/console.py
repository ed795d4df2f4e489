"""What the commands share: JSON on standard output, tables and notes for people on standard error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from lanner.errors import ConfigError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to standard output.")]
Memory = Annotated[
    str | None, typer.Option(help="Most that static tables may take, such as 8GiB; others live on disk.")
]
BackingDirectory = Annotated[
    str | None,
    typer.Option("--backing", help="Where tables that exceed --memory live; default: a temporary directory."),
]

people = Console(stderr=True, highlight=False)
if not people.is_terminal:
    people.width = 10_000  # lines in files stay whole


@contextmanager
def usage() -> Iterator[None]:
    """Around checks of option values alone: what they find is wrong usage (exit code 2), not a failure."""
    try:
        yield
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error


def print_json(value: Any) -> None:
    """Print `value` as JSON; NaN and infinity are refused, so callers give None for what is undefined."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def print_table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Print a table for people; numbers are right-aligned.

    A terminal too narrow for it gets it without frames; what still does not fit breaks lines, in the last column first.
    """
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        last = len(columns) > 1 and index == len(columns) - 1
        table.add_column(column, justify="right" if numeric else "left", no_wrap=not last)
    for row in rows:
        table.add_row(*(_text(cell) for cell in row))
    unlimited = people.options.update(max_width=10_000)
    if Measurement.get(people, unlimited, table).maximum > people.width:
        table.box, table.padding = box.SIMPLE_HEAD, (0, 0)
    if Measurement.get(people, unlimited, table).minimum > people.width:
        for cells in table.columns:
            cells.no_wrap, cells.overflow = False, "fold"
    people.print(table)


def print_unknown_keys(prefix: str, found: dict[str, Any]) -> None:
    """Say how often an evaluation met keys without a row in a dynamic table, where it did."""
    counts = {name: count for name, count in found.get("unknown_keys", {}).items() if count}
    if counts:
        shown = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        people.print(f"{prefix}keys without a row, read as the default: {shown}", markup=False)


def _text(cell: Any) -> str:
    if isinstance(cell, bool) or cell is None:
        return "-" if cell is None else str(cell)
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
