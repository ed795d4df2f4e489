"""Publishes a report as files: `perf.csv`, `perf.json`, `perf.png`, and `perf.html`, which holds everything."""

from __future__ import annotations

import csv
import io
import json
import os

from lanner import storage
from lanner.perf import html, plot
from lanner.perf.results import Report
from lanner.perf.tables import row


def write(report: Report, directory: str | os.PathLike[str]) -> list[str]:
    """Write all four files into `directory`, each whole or not at all; returns their paths."""
    png = plot.draw(report)
    files = {
        "perf.csv": to_csv(report).encode(),
        "perf.json": json.dumps(to_json(report), indent=2).encode() + b"\n",
        "perf.png": png,
        "perf.html": html.page(report, png).encode(),
    }
    paths = []
    for name, content in files.items():
        paths.append(storage.join(directory, name))
        with storage.publish(paths[-1]) as file:
            file.write(content)
    return paths


def to_json(report: Report) -> dict[str, object]:
    """The whole report as plain values, with the level that `latency_limit` chose as `best`."""
    best = report.best
    return {**report.model_dump(mode="json"), "best": best.model_dump(mode="json") if best else None}


def to_csv(report: Report) -> str:
    """A line for each level under a header; empty cells are unknown."""
    rows = [row(level, report) for level in report.levels]
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()
