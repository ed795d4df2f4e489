"""The report of a dataset: made from what lies in its directory, published there as one HTML page."""

from __future__ import annotations

import os

from lanner import storage
from lanner.prep.report.page import page
from lanner.prep.report.report import DatasetReport, make_report

NAME = "prep-report.html"

__all__ = ["NAME", "DatasetReport", "make_report", "page", "write_report"]


def write_report(report: DatasetReport, directory: str | os.PathLike[str]) -> str:
    """Publish the page in `directory`; returns its path."""
    path = storage.join(directory, NAME)
    storage.write_text(path, page(report))
    return path
