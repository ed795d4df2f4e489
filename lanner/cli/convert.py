"""`lanner convert`: rows from one format to another."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lanner.cli.console import Json, people, print_json

Option = typer.Option


def convert(
    source: Annotated[str, typer.Argument(help="Folder or file to read, local or any fsspec URI.")],
    out: Annotated[str, typer.Argument(help="Folder to write, local or any fsspec URI.")],
    to: Annotated[str, Option("--to", help="Format to write.")] = "lanner",
    from_: Annotated[str | None, Option("--from", help="Format to read [default: guessed from the names].")] = None,
    schema: Annotated[str | None, Option(help="Schema of the rows [default: carried along, or derived].")] = None,
    read: Annotated[list[str] | None, Option(help="Option of the format read, NAME=VALUE; may be repeated.")] = None,
    write: Annotated[list[str] | None, Option(help="Option of the format written; may be repeated.")] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace what the folder holds.")] = False,
    json: Json = False,
) -> None:
    """Convert rows between a Lanner dataset, Parquet, Arrow, and the formats of HugeCTR, NVIDIA, MLPerf and Facebook.

    Example: lanner convert criteo_binary criteo --from nvidia-binary --to lanner
    """
    from lanner.data.formats import convert as run

    done = run(
        source, out, to, from_, schema, read=pairs(read), write=pairs(write), overwrite=overwrite, quiet=json
    )  # fmt: skip
    if json:
        print_json(asdict(done))
        return
    for record in done.damaged:
        people.print(record, markup=False)
    parts = ", ".join(f"{name} {count:,}" for name, count in done.rows.items())
    skipped = f", {done.skipped:,} damaged records left out" if done.skipped else ""
    ways = f"{done.read_as} to {done.written_as}"
    people.print(f"{ways}: {sum(done.rows.values()):,} rows ({parts}){skipped} in {done.seconds:.1f} s → {done.out}")


def pairs(given: list[str] | None) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping; anything else is wrong usage."""
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
        found[name] = value
    return found
