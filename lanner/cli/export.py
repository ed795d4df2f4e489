"""`lanner export`: a checkpoint becomes a version in a model repository."""

from __future__ import annotations

from typing import Annotated

import typer

from lanner.cli.console import Json, people, print_json


def export(
    source: Annotated[str, typer.Argument(metavar="RUN", help="Run directory (its best checkpoint) or checkpoint.")],
    repository: Annotated[str, typer.Option(help="Model repository; made when it does not exist.")],
    name: Annotated[str, typer.Option(help="Name of the model in the repository.")],
    version: Annotated[int | None, typer.Option(help="Version number; default: the next free one.")] = None,
    json: Json = False,
) -> None:
    """Write a model into a repository that `lanner serve` reads (Triton layout).

    Scores of the exported files are compared with the model's before the version appears. Settings in an existing
    config.pbtxt are kept; only its inputs, output and schema are brought up to date.

    Example: lanner export runs/criteo --repository repository --name ctr
    """
    from lanner.export import export as run

    path = run(source, repository, name, version)
    if json:
        print_json({"path": path, "name": name, "version": int(path.rpartition("/")[2])})
    else:
        people.print(f"exported {path}", markup=False)
        people.print(
            f"a running server takes it when restarted, or, with --model-control explicit, when asked to load {name!r}",
            markup=False,
        )
