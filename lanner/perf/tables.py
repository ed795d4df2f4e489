"""The figures of a run as rows and columns, for the terminal, CSV and HTML alike."""

from __future__ import annotations

from lanner.perf.results import Level, Report

PARTS = {
    "wait": "client wait",
    "send": "client send",
    "network": "network + front end",
    "queue": "server queue",
    "compute_input": "compute input",
    "compute_infer": "compute infer",
    "compute_output": "compute output",
    "receive": "client receive",
}
"""The parts of the mean latency, in the order in which a request passes them."""

BACKLOG = 0.05
"""An open loop's latency that grows by more than this share of the window is a backlog: about 8 % too many requests."""

ANSWERED = 0.8
"""Where a smaller share of an open loop's requests gets a good answer, the rate was not achieved."""

Cell = float | int | None

LOAD_TITLES = {"concurrency": "conc", "rate": "rate"}


def row(level: Level, report: Report) -> dict[str, Cell]:
    """All figures of one level; latencies in milliseconds, None for what is not known."""
    latency, parts = level.latency, level.breakdown
    return {
        report.load_name: level.load,
        "batch": report.settings.batch,
        "requests": level.requests,
        "errors": level.errors,
        "unanswered": level.unanswered,
        "rows_per_s": level.rows_per_s,
        "requests_per_s": level.requests_per_s,
        **{f"{name}_ms": getattr(latency, name, None) for name in ("mean", "p50", "p90", "p95", "p99", "max")},
        **{f"{part}_ms": getattr(parts, part, None) for part in PARTS},
        "rows_per_execution": level.rows_per_execution,
        "client_cpu": level.client_cpu,
        "spread": level.spread,
        "seconds": level.seconds,
    }


def latency_table(report: Report) -> tuple[list[str], list[list[Cell]]]:
    """Throughput and percentiles (ms), a row for each level."""
    names = ["rows_per_s", "requests_per_s", "requests", "errors", "unanswered"]
    names += [f"{name}_ms" for name in ("mean", "p50", "p90", "p95", "p99", "max")]
    titles = ["rows/s", "req/s", "good", "failed", "lost", "mean", "p50", "p90", "p95", "p99", "max"]
    return [LOAD_TITLES[report.load_name], *titles], _select(report, names)


def parts_table(report: Report) -> tuple[list[str], list[list[Cell]]]:
    """The parts of the mean latency, a row for each level."""
    names = [*(f"{part}_ms" for part in PARTS), "rows_per_execution", "client_cpu"]
    titles = ["wait", "send", "net", "queue", "input", "infer", "output", "recv", "rows/ex", "CPU"]
    return [LOAD_TITLES[report.load_name], *titles], _select(report, names)


def fitted(titles: list[str], rows: list[list[Cell]], width: int) -> list[tuple[list[str], list[list[Cell]]]]:
    """A table as one or more whose columns, with a blank between them, take at most `width` characters.

    Each begins with the first column, so that rows can be told apart.
    """
    widths = [max(map(len, (titles[at], *(text(cells[at]) for cells in rows)))) for at in range(len(titles))]
    groups, taken = [[0]], widths[0]
    for at in range(1, len(titles)):
        if taken + 1 + widths[at] > width and len(groups[-1]) > 1:
            groups.append([0])
            taken = widths[0]
        groups[-1].append(at)
        taken += 1 + widths[at]
    return [([titles[at] for at in group], [[cells[at] for at in group] for cells in rows]) for group in groups]


def text(cell: Cell) -> str:
    """A figure for people: milliseconds to a hundredth, large numbers whole."""
    if cell is None:
        return "-"
    if isinstance(cell, int) or cell >= 100 or cell == int(cell):
        return f"{cell:,.0f}"
    return f"{cell:.1f}" if cell >= 10 else f"{cell:.2f}"


def _select(report: Report, names: list[str]) -> list[list[Cell]]:
    rows = [row(level, report) for level in report.levels]
    return [[level[report.load_name], *(level[name] for name in names)] for level in rows]


def notes(report: Report) -> list[str]:
    """What a reader of the figures must know, one sentence each."""
    found = []
    if report.interrupted:
        found.append("interrupted: the last level is shorter than asked for, and later ones are missing")
    for level in report.levels:
        place = f"{report.load_name} {level.load:g}"
        found += [f"{place}: {count:,} x {error}" for error, count in list(level.error_texts.items())[:3]]
        if report.settings.rates and _behind(level, report.settings.duration):
            found.append(
                f"{place}: the server cannot keep up with {level.load:,g} requests/s; "
                f"it answered {text(level.requests_per_s)} a second"
            )
        if level.unanswered:
            found.append(f"{place}: {level.unanswered:,} requests were given up unanswered")
        if level.client_cpu > 0.9:
            found.append(f"{place}: the client used a whole core; it may be the client that limits the throughput")
    if report.settings.latency_limit:
        found.append(_best(report))
    return found


def _behind(level: Level, duration: float) -> bool:
    """Whether an open loop asked for more than the server can answer."""
    asked = level.requests + level.errors + level.unanswered
    return level.growth > BACKLOG * duration or level.requests < ANSWERED * asked


def _best(report: Report) -> str:
    limit, best = report.settings.latency_limit, report.best
    if best is None or best.latency is None:
        return f"no level keeps p99 within {limit:g} ms"
    return (
        f"highest throughput with p99 within {limit:g} ms: {best.rows_per_s:,.0f} rows/s "
        f"at {report.load_name} {best.load:g} (p99 {text(best.latency.p99)} ms)"
    )
