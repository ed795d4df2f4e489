"""`lanner synth`."""

from __future__ import annotations

from typing import Annotated

import typer

from lanner.cli.console import Json, print_json, print_table


def synth(
    rows: Annotated[int, typer.Option(help="Number of lines.", min=0)],
    out: Annotated[str, typer.Option(help="File to write, on any file system; gzip-compressed when it ends in .gz.")],
    seed: Annotated[int, typer.Option(help="Same seed, same logs.", min=0)] = 0,
    dense: Annotated[int, typer.Option(help="Numeric columns.", min=0)] = 13,
    sparse: Annotated[int, typer.Option(help="Categorical columns.", min=0)] = 26,
    cardinality: Annotated[int, typer.Option(help="Most distinct values of a categorical column.", min=1)] = 2_000,
    click_rate: Annotated[float, typer.Option(help="Expected share of clicks.")] = 0.25,
    missing: Annotated[float, typer.Option(help="Average share of empty cells, 0 to 0.5.")] = 0.1,
    json: Json = False,
) -> None:
    """Write Criteo-like click logs of any size with a planted, learnable signal.

    The best AUC and log-loss that any model can reach on them are printed and written to OUT.json.

    Example: lanner synth --rows 1000000 --out logs.tsv.gz --seed 7
    """
    from lanner.data.synthetic import write_logs

    summary = write_logs(
        out,
        rows,
        quiet=json,
        seed=seed,
        dense=dense,
        sparse=sparse,
        cardinality=cardinality,
        click_rate=click_rate,
        missing=missing,
    )
    if json:
        print_json(summary.as_dict())
        return
    auc, loss = summary.best.auc, summary.best.log_loss
    print_table(
        f"{out}",
        ["rows", "bytes", "click rate", "best AUC", "best log-loss", "seconds"],
        [[summary.rows, summary.bytes, summary.click_rate, auc, loss, summary.seconds]],
    )
