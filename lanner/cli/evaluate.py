"""`lanner evaluate`."""

from __future__ import annotations

from typing import Annotated

import typer

from lanner.cli.console import BackingDirectory, Json, Memory, people, print_json, print_table, print_unknown_keys


def evaluate(
    run: Annotated[str, typer.Argument(help="Run directory (its best checkpoint, else its last) or checkpoint.")],
    split: Annotated[str, typer.Argument(help="Directory of a split, such as criteo/test.")],
    predictions: Annotated[str | None, typer.Option(help="Write every prediction to this Parquet file.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows at a time; changes no result.")] = 4096,
    device: Annotated[str, typer.Option(help="Where the model runs: cpu, cuda or cuda:N.")] = "cpu",
    memory: Memory = None,
    backing: BackingDirectory = None,
    json: Json = False,
) -> None:
    """Evaluate a trained model on every row of a split: AUC, log-loss, normalised entropy, calibration.

    Example: lanner evaluate runs/first criteo/test --predictions scores.parquet
    """
    from lanner.train.evaluation import evaluate_checkpoint
    from lanner.train.joining import is_first
    from lanner.train.verdict import EXPLANATIONS

    embedding = {"memory": memory, "backing": backing}
    result = evaluate_checkpoint(run, split, batch_size, predictions, device=device, embedding=embedding)
    if not is_first():
        return
    if json:
        print_json(result)
    names = ["auc", "log_loss", "normalized_entropy", "calibration", "rows"]
    print_table(split, names, [[result.get(name) for name in names]])
    for reason in dict.fromkeys(value for key, value in result.items() if key.endswith(("_reason", "_note"))):
        people.print(reason, markup=False)
    print_unknown_keys("", result)
    if not result["healthy"]:
        people.print(f"warning: {EXPLANATIONS[result['verdict']]}", style="bold yellow", markup=False)
