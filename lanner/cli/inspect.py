"""`lanner inspect`: what lies somewhere, and what is wrong with it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanner.cli.console import Json, people, print_json, print_table
from lanner.cli.convert import pairs

if TYPE_CHECKING:
    from lanner.data.formats import Description

Option = typer.Option


def inspect(
    path: Annotated[str, typer.Argument(help="Folder or file, local or any fsspec URI.")],
    format: Annotated[str | None, Option("--from", help="Its format [default: guessed from the names].")] = None,
    schema: Annotated[str | None, Option(help="Schema of the rows [default: carried along, or derived].")] = None,
    read: Annotated[list[str] | None, Option(help="Option of the format, NAME=VALUE; may be repeated.")] = None,
    rows: Annotated[int, Option(min=0, help="Rows of each split to read.")] = 1 << 20,
    full: Annotated[bool, Option("--full", help="Read and check every row.")] = False,
    json: Json = False,
) -> None:
    """Describe a dataset in any format: rows, columns, ranges, and what is wrong (then the exit code is 1).

    Example: lanner inspect criteo_binary --full
    """
    from lanner.data.formats import describe

    found = describe(path, format, schema, pairs(read), None if full else rows)
    if json:
        print_json(asdict(found))
    else:
        _show(found)
    if found.problems:
        raise typer.Exit(1)


def _show(found: Description) -> None:
    splits = ", ".join(f"{split} {'?' if count is None else f'{count:,}'}" for split, count in found.rows.items())
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.details.items())
    people.print(": ".join(filter(None, [found.title, "; ".join(filter(None, [splits, said]))])), markup=False)
    if found.columns:
        read = sum(found.read.values())
        heads = ["column", "role", "table", "ids a row", "distinct", "least", "largest", "mean"]
        print_table(f"{found.path} ({read:,} rows read)", heads, [_row(column) for column in found.columns])
    if found.skipped:
        people.print(f"{found.skipped:,} damaged records left out")
    for problem in found.problems:
        people.print(f"wrong: {problem}", style="bold red", markup=False)


def _row(column: Any) -> list[Any]:
    low, high = column.least_ids, column.most_ids
    ids = None if low is None else str(low) if low == high else f"{low} to {high}"
    unknown = "many" if column.role == "feature" and column.distinct is None else None
    distinct = unknown if column.distinct is None else column.distinct
    ends = column.minimum, column.maximum
    return [column.name, column.role, column.table_rows, ids, distinct, *ends, column.mean]
