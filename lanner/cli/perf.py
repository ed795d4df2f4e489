"""`lanner perf`: load a server and say where the time goes."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lanner.cli.console import Json, people, print_json, usage
from lanner.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from lanner.perf import Level, Report, Settings
    from lanner.perf.tables import Cell


def perf(
    name: Annotated[str, typer.Argument(help="Name of the served model.")],
    url: Annotated[str, typer.Option(help="HOST:PORT of the server.")] = "127.0.0.1:8001",
    protocol: Annotated[Literal["grpc", "http"], typer.Option(help="Protocol spoken at that port.")] = "grpc",
    batch: Annotated[int, typer.Option(min=1, help="Rows in each request.")] = 1,
    concurrency: Annotated[
        str | None,
        typer.Option(help="Closed loop: requests under way. N, N,N, FIRST:LAST (doubling), FIRST:LAST:STEP or :xF."),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Open loop: requests a second, in the same forms; latency from planned time.")
    ] = None,
    poisson: Annotated[bool, typer.Option("--poisson", help="Random gaps between the sends of an open loop.")] = False,
    duration: Annotated[float, typer.Option(help="Seconds measured at each level.")] = 5.0,
    warmup: Annotated[float, typer.Option(help="Seconds before each measurement.")] = 1.0,
    timeout: Annotated[float, typer.Option(help="Seconds after which a request has failed.")] = 30.0,
    form: Annotated[Literal["encoded", "raw"], typer.Option(help="Form of the requests.")] = "encoded",
    data: Annotated[str | None, typer.Option(help="Take rows from this split, e.g. dataset/test.")] = None,
    skew: Annotated[float, typer.Option(help="Power-law exponent of random ids; 0 is uniform.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed makes the same requests.")] = 0,
    model_version: Annotated[str, typer.Option(help="Version of the model; default: the server's choice.")] = "",
    random_range: Annotated[
        list[str] | None,
        typer.Option("--range", help="Without a schema: LOW:HIGH or INPUT=LOW:HIGH of random integers."),
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Without a schema: INPUT=D,D for inputs with open dimensions.")
    ] = None,
    latency_limit: Annotated[
        float | None, typer.Option(help="Report the highest throughput with p99 within so many ms.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Directory for perf.csv, .json, .png and .html.")] = None,
    json: Json = False,
) -> None:
    """Load a Triton / KServe v2 server and show throughput, latency percentiles and where the time goes.

    Ctrl-C ends the run and reports what was measured so far.

    Example: lanner perf ctr --url 127.0.0.1:8001 --batch 64 --concurrency 1:32 --latency-limit 10 --out perf/
    """
    try:
        from lanner.perf import Settings, report, run
    except ImportError as error:
        raise MissingExtraError("lanner perf", "perf") from error
    options: dict[str, object] = {
        "name": name, "url": url, "protocol": protocol, "version": model_version, "batch": batch, "poisson": poisson,
        "duration": duration, "warmup": warmup, "timeout": timeout, "form": form, "data": data, "skew": skew,
        "seed": seed, "latency_limit": latency_limit,
    }  # fmt: skip
    with usage():
        inputs = {"shapes": _shapes(shape or []), **_ranges(random_range or [])}
        settings = Settings.parse({**options, **_loop(concurrency, rate), **inputs})
    stop = _Stop()
    result = run(settings, stop.asked, lambda level: _progress(level, settings))
    _show(result)
    if out:
        for path in report.write(result, out):
            people.print(f"wrote {path}", markup=False)
    if json:
        print_json(report.to_json(result))
    if result.interrupted:
        raise typer.Exit(130)


class _Stop:
    """The first Ctrl-C asks the run to end; the second one ends the program."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGINT, self._note)

    def asked(self) -> bool:
        return self._asked

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _loop(concurrency: str | None, rate: str | None) -> dict[str, object]:
    from lanner.perf import parse_levels

    if concurrency is not None and rate is not None:
        raise ConfigError("give --concurrency (closed loop) or --rate (open loop), not both")
    if rate is not None:
        return {"rates": parse_levels(rate, "--rate")}
    return {"concurrency": parse_levels("1" if concurrency is None else concurrency, "--concurrency")}


def _ranges(texts: list[str]) -> dict[str, object]:
    """`--range` options: the bounds of all inputs, and of single ones."""
    values: dict[str, object] = {}
    ranges: dict[str, tuple[int, int]] = {}
    for text in texts:
        name, _, bounds = text.rpartition("=")
        try:
            low, high = (int(bound) for bound in bounds.split(":"))
        except ValueError as error:
            raise ConfigError(f"--range {text!r}: expected LOW:HIGH or INPUT=LOW:HIGH") from error
        if name:
            ranges[name] = (low, high)
        else:
            values |= {"low": low, "high": high}
    return {**values, "ranges": ranges}


def _shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        try:
            shapes[name] = tuple(int(size) for size in sizes.split(","))
        except ValueError as error:
            raise ConfigError(f"--shape {text!r}: expected INPUT=D,D") from error
    return shapes


def _progress(level: Level, settings: Settings) -> None:
    from lanner.perf.tables import text

    kind = "rate" if settings.rates else "concurrency"
    p99 = f", p99 {text(level.latency.p99)} ms" if level.latency else ""
    people.print(f"{kind} {level.load:g}: {level.rows_per_s:,.0f} rows/s{p99}, {level.errors} errors", markup=False)


def _show(report: Report) -> None:
    from lanner.perf.tables import latency_table, notes, parts_table

    settings = report.settings
    title = f"{settings.name} at {settings.url}: {settings.protocol}, {settings.batch} rows a request"
    _table(f"{title}; latency in ms", *latency_table(report))
    _table("where the mean latency goes (ms), rows per execution, the client's share of a core", *parts_table(report))
    for note in notes(report):
        people.print(note, markup=False)


FRAME = 2
"""Blanks around the columns of a table."""


def _table(title: str, titles: list[str], rows: list[list[Cell]]) -> None:
    """A table without frames, in parts where the terminal is too narrow: a figure cut short would be a wrong one."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from lanner.perf.tables import fitted, text

    for part, (headings, body) in enumerate(fitted(titles, rows, people.width - FRAME)):
        first = title if part == 0 else None
        table = Table(title=first, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=0)
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for cells in body:
            table.add_row(*map(text, cells))
        people.print(table)
