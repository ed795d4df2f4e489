"""`lanner report`: what a dataset holds, as a page and as JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from lanner.cli.console import Json, people, print_json


def report(
    dataset: Annotated[str, typer.Argument(help="Dataset directory, local or any fsspec URI.")],
    out: Annotated[
        str | None, typer.Option(help="Directory for prep-report.html [default: the dataset's own].")
    ] = None,
    json: Json = False,
) -> None:
    """Make the report that prep leaves beside a dataset: warnings, rows, labels, columns, drift.

    Example: lanner report criteo --json
    """
    from lanner import manifest as manifests
    from lanner import storage
    from lanner.prep.report import make_report, write_report
    from lanner.prep.report.findings import findings
    from lanner.schema import Schema

    manifest = manifests.read(dataset, "dataset")
    manifests.verify(dataset, manifest)
    schema = Schema.load(storage.join(dataset, "schema.yaml"))
    made = make_report(dataset, schema, manifest.files, manifest.info)
    if json:
        print_json(made.to_dict())
        return
    for found in findings(made):
        people.print(f"warning: {found.column} {found.text}".replace("  ", " "), markup=False)
    people.print(f"→ {write_report(made, dataset if out is None else out)}", markup=False)
