"""One figure of a run: latency percentiles against throughput, and the mean latency's parts for each level."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from lanner.perf.results import Level, Report
from lanner.perf.tables import PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PERCENTILES = {"p50": "#1b6ca8", "p90": "#3fa796", "p95": "#f2a541", "p99": "#c8443c"}
PART_COLOURS = {
    "wait": "#6b6b6b", "send": "#a8c5da", "network": "#d9d9d9", "queue": "#f2a541",
    "compute_input": "#9ad1c2", "compute_infer": "#1b6ca8", "compute_output": "#3fa796", "receive": "#cfa6d6",
}  # fmt: skip
LOG_RATIO = 20
"""Latencies that differ by more than this factor are drawn on a logarithmic axis."""


def draw(report: Report) -> bytes:
    """The figure as PNG. Levels without a good answer are left out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    levels = [level for level in report.levels if level.latency]
    figure = Figure(figsize=(14, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    settings = report.settings
    figure.suptitle(
        f"{settings.name} at {settings.url}: {settings.protocol}, {settings.batch} rows a request", fontweight="bold"
    )
    left, right = figure.subplots(1, 2, width_ratios=(5, 4))
    _percentiles(left, levels, report)
    _parts(right, levels, report)
    png = io.BytesIO()
    figure.savefig(png, dpi=110, format="png")
    return png.getvalue()


def _percentiles(axes: Axes, levels: list[Level], report: Report) -> None:
    throughput = [level.rows_per_s for level in levels]
    values: list[float] = []
    for name, colour in PERCENTILES.items():
        latencies = [getattr(level.latency, name) for level in levels]
        axes.plot(throughput, latencies, marker="o", markersize=4, color=colour, label=name)
        values += latencies
    for level in levels:
        top = level.latency.p99 if level.latency else 0.0
        axes.annotate(
            f"{level.load:g}", (level.rows_per_s, top), xytext=(0, 6), textcoords="offset points", ha="center",
            fontsize=8, color="#555555",
        )  # fmt: skip
    if report.settings.latency_limit:
        axes.axhline(report.settings.latency_limit, color="#c8443c", linestyle="--", linewidth=1, label="limit")
    if values and max(values) > LOG_RATIO * max(min(values), 1e-9):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(0, 1.12 * max(values, default=1.0))
    axes.set_xlim(0, 1.08 * max(throughput, default=1.0))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(title=f"Latency against throughput (numbers: {report.load_name})", xlabel="rows/s", ylabel="ms")
    axes.grid(alpha=0.3)
    if levels:
        axes.legend(loc="upper left", fontsize=9)


def _parts(axes: Axes, levels: list[Level], report: Report) -> None:
    positions = range(len(levels))
    bottom = [0.0] * len(levels)
    for part, title in PARTS.items():
        heights = [getattr(level.breakdown, part) or 0.0 for level in levels]
        if not any(heights):
            continue
        axes.bar(positions, heights, 0.7, bottom=bottom, label=title, color=PART_COLOURS[part])
        bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
    axes.set_xticks(list(positions), [f"{level.load:g}" for level in levels])
    axes.margins(y=0.1)
    unit = "requests/s planned" if report.settings.rates else "requests under way"
    axes.set(title="Where the mean latency goes", xlabel=unit, ylabel="ms per request")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    if levels:
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
