"""`lanner plan`: where tables go, and what memory and time that takes, before anything is allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lanner.cli.console import Json, people, print_json, print_table, usage
from lanner.errors import ConfigError

if TYPE_CHECKING:
    from lanner.embedding.planner import Estimate
    from lanner.embedding.sharding import Placement, Plan
    from lanner.schema import Schema

_HEAD = """\
# Where each table lies; the kinds are data, table, row, column and two-level. To see what an edited plan takes:
#   lanner plan RECIPE data=DATASET --check THIS_FILE
# Beside version, world_size, kind and ranks all is what was predicted when the file was written; nothing reads it.
"""


def plan(
    recipe: Annotated[str, typer.Argument(help="Recipe file (YAML).")],
    changes: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Recipe keys to set.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes over all nodes; default: 1.")] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines with equal shares of the processes.")] = 1,
    memory: Annotated[
        str | None, typer.Option(help="Of each process, such as 8GiB; default: what is free here.")
    ] = None,
    bandwidth: Annotated[str | None, typer.Option(help="Of its memory, such as 20GB/s; default: measured.")] = None,
    compute: Annotated[str | None, typer.Option(help="Float32 operations a second: 100G; default: measured.")] = None,
    link: Annotated[str | None, typer.Option(help="Between processes of a node; default: measured.")] = None,
    node_link: Annotated[str | None, typer.Option(help="Between nodes; default: a share of 10 Gb/s Ethernet.")] = None,
    rows: Annotated[list[str] | None, typer.Option(metavar="TABLE=N", help="Expected rows of a dynamic table.")] = None,
    hotness: Annotated[list[str] | None, typer.Option(metavar="FEATURE=N", help="Mean ids of a ragged bag.")] = None,
    check: Annotated[str | None, typer.Option(help="Estimate this plan instead of making one.")] = None,
    out: Annotated[str | None, typer.Option(help="Write the plan here (YAML, any URI).")] = None,
    json: Json = False,
) -> None:
    """Place a recipe's tables on processes, and predict memory and time of each; nothing is allocated.

    data= names a dataset or a schema file. The recipe's batch_size is that of all processes together. Ends with an
    error (exit code 1) when no plan fits, or the checked one does not.

    Example: lanner plan recipe.yaml data=criteo/ --processes 8 --nodes 2 --memory 60GiB --out plan.yaml
    """
    from lanner import storage
    from lanner.embedding.planner import Devices, estimate, require_fits
    from lanner.embedding.planner import plan as make
    from lanner.embedding.sharding import Plan
    from lanner.quantities import parse_amount
    from lanner.train.recipe import load
    from lanner.train.workload import workload

    rates = {"memory": memory, "bandwidth": bandwidth, "compute": compute, "link": link, "node_link": node_link}
    with usage():
        given = {k: parse_amount(v, f"--{k}".replace("_", "-")) for k, v in rates.items() if v is not None}
        expected, bags = _numbers("--rows", rows), _numbers("--hotness", hotness)
    settings = load(recipe, changes or ())
    schema, samples = _data(settings.data)
    needs = workload(settings, schema, bags, {name: int(value) for name, value in expected.items()}, samples)
    edited = None if check is None else Plan.load(check)
    count = processes or (edited.world_size if edited else 1)
    devices = Devices.here(count, nodes, **given)
    found = make(needs, devices) if edited is None else estimate(needs, edited, devices)
    if json:
        print_json(found.to_json())
    _show(found)
    if out:
        storage.write_text(out, _HEAD + found.annotated().to_yaml())
        people.print(f"wrote {out}", markup=False)
    require_fits(needs, found.plan, [devices.memory] * count)


def _data(data: str | None) -> tuple[Schema, int | None]:
    """The schema, and how many rows there are to train on where it is that of a dataset."""
    from lanner.data import Dataset
    from lanner.schema import Schema

    if data is None:
        raise ConfigError("the recipe names no data: give data=DATASET or data=SCHEMA.yaml")
    if data.endswith((".yaml", ".yml")):
        return Schema.load(data), None
    dataset = Dataset.open(data)
    return dataset.schema, len(dataset.train or ())


def _numbers(option: str, texts: list[str] | None) -> dict[str, float]:
    found = {}
    for text in texts or ():
        name, _, number = text.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise ConfigError(f"{option} {text!r}: expected NAME=NUMBER")
    return found


def _show(found: Estimate) -> None:
    from lanner.embedding.planner.costs import PHASES
    from lanner.embedding.planner.memory import PARTS
    from lanner.quantities import bytes_text

    report = found.to_json()
    devices = report["devices"]
    sizes = [
        [d["rank"], *(bytes_text(d["bytes"][k]) for k in (*PARTS, "total")), bytes_text(d["free"])] for d in devices
    ]
    print_table("memory of each process", ["rank", *PARTS, "total", "free"], sizes)
    times = [[d["rank"], *(_milliseconds(d["seconds"][k]) for k in PHASES)] for d in devices]
    print_table("milliseconds of a step", ["rank", *PHASES], times)
    rows = [
        [
            table["name"],
            table["kind"],
            _ranks(found.plan.tables[table["name"]], found.plan),
            f"{table['rows']:,}" + (" dynamic" if table["dynamic"] else ""),
            f"{table['dim']} {table['dtype']}",
            bytes_text(max(table["bytes"])),
            _milliseconds(table["seconds"]),
            table["why"],
        ]
        for table in report["tables"]
    ]
    print_table("tables", ["table", "kind", "ranks", "rows", "dim", "bytes a rank", "ms", "why"], rows)
    people.print(
        f"{report['batch_size']:,} samples a step in {_milliseconds(report['step_seconds'])} ms: "
        f"{report['samples_per_second']:,.0f} samples/s",
        markup=False,
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _ranks(placement: Placement, plan: Plan) -> str:
    """The ranks of a placement: "all", "0-3", or for two levels "0-3 | 4-7"."""
    if len(placement.used) in (0, plan.world_size) and placement.kind != "two-level":
        return "all" if plan.world_size > 1 else "0"
    return " | ".join(
        _span(group) for group in (placement.groups if placement.kind == "two-level" else [placement.used])
    )


def _span(ranks: tuple[int, ...]) -> str:
    consecutive = len(ranks) > 1 and ranks == tuple(range(ranks[0], ranks[0] + len(ranks)))
    return f"{ranks[0]}-{ranks[-1]}" if consecutive else ",".join(map(str, ranks))
