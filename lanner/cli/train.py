"""`lanner train`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lanner.cli.console import Json, people, print_json, print_table, print_unknown_keys


def train(
    recipe: Annotated[str, typer.Argument(help="Recipe file (YAML).")],
    changes: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Recipe keys to set.")] = None,
    json: Json = False,
) -> None:
    """Train a model as a recipe says, and evaluate it on the dataset's test rows.

    Any recipe key can be set after it: data and out name the dataset and the run directory, model.dim=16 a
    hyperparameter, resume=true goes on from the last checkpoint. Ctrl-C writes a checkpoint and ends with 130.

    Several processes train together: torchrun --nproc-per-node 2 -m lanner train RECIPE ...

    Example: lanner train examples/recipes/dlrm_criteo.yaml data=criteo/ out=runs/first model.dim=16
    """
    from lanner.train.joining import is_first
    from lanner.train.recipe import load
    from lanner.train.run import train as run

    settings = load(recipe, changes or ())
    if settings.out is None and is_first():
        people.print("warning: no out=RUN is given, so the trained model will not be kept", style="bold yellow")
    try:
        result = run(settings)
    except KeyboardInterrupt:
        if settings.out and is_first():
            people.print(f"stopped; the last step is kept in {settings.out}: go on with resume=true", markup=False)
        raise
    if not is_first():
        return
    if json:
        print_json(result)
    _report(result)


def _report(result: dict[str, Any]) -> None:
    from lanner.train.verdict import EXPLANATIONS

    names = ["auc", "log_loss", "normalized_entropy", "calibration", "rows"]
    found = {name: result[name] for name in ("train", "valid", "test") if result[name]}
    print_table("result", ["rows of", *names], [[name, *(row.get(n) for n in names)] for name, row in found.items()])
    for name, row in found.items():
        for reason in dict.fromkeys(value for key, value in row.items() if key.endswith(("_reason", "_note"))):
            people.print(f"{name}: {reason}", markup=False)
        print_unknown_keys(f"{name}: ", row)
    _report_tables("dynamic tables", result.get("dynamic_tables", {}))
    _report_tables("tables on disk", result.get("tables_on_disk", {}))
    if result["samples_per_second"]:
        people.print(f"{result['samples_per_second']:,.0f} samples/s")
    if not result["healthy"]:
        people.print(f"warning: {EXPLANATIONS[result['verdict']]}", style="bold yellow", markup=False)


def _report_tables(title: str, tables: dict[str, dict[str, int]]) -> None:
    """Numbers of tables, without the columns that are 0 for all of them."""
    if tables:
        names = [name for name in next(iter(tables.values())) if any(numbers[name] for numbers in tables.values())]
        print_table(title, ["table", *names], [[t, *(row[n] for n in names)] for t, row in tables.items()])
