"""`findings`: what in a report looks like trouble, the worst kinds first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lanner.prep.report.report import CategoryReport, DatasetReport, LabelReport, NumberReport

MISSING = 0.99
TELLS_ALL = 0.95
"""AUC of one column alone that is too good to be honest."""
COVERED = 0.5
NEWLY_UNKNOWN = 0.1
REJECTED = 0.01
CHANGED = 0.25
"""Relative difference of label means that is worth a word."""


@dataclass(frozen=True)
class Finding:
    """One sentence about a column, or about the dataset where `column` is empty."""

    kind: str
    column: str
    text: str


def findings(report: DatasetReport) -> list[Finding]:
    """All of them."""
    found = [*_labels(report), *_rows(report)]
    for number in report.numbers:
        found += _column(number, report)
    for category in report.categories:
        found += [*_column(category, report), *_category(category, report)]
    order = ("label", "leak", "constant", "missing", "rejected", "drift", "unknown", "coverage")
    return sorted(found, key=lambda finding: order.index(finding.kind))


def _labels(report: DatasetReport) -> Iterator[Finding]:
    for label in report.labels:
        yield from _label(label, report.reference)


def _label(label: LabelReport, reference: str) -> Iterator[Finding]:
    ours = label.mean.get(reference)
    for split, mean in label.mean.items():
        if label.classes and mean in (0.0, 1.0):
            yield Finding("label", label.name, f"is {mean:.0f} in every row of {split}: there is nothing to tell apart")
        elif split != reference and ours and abs(mean - ours) > CHANGED * abs(ours):
            yield Finding("drift", label.name, f"has mean {mean:.4g} in {split}, {ours:.4g} in {reference}")


def _rows(report: DatasetReport) -> Iterator[Finding]:
    dropped, kept = sum(report.rejected.values()), sum(report.rows.values())
    if dropped > REJECTED * (dropped + kept):
        yield Finding("rejected", "", f"{dropped:,} of {dropped + kept:,} rows were dropped (see rejects.tsv)")


def _column(column: NumberReport | CategoryReport, report: DatasetReport) -> Iterator[Finding]:
    for label, auc in column.auc.items():
        if auc is not None and auc >= TELLS_ALL:
            text = f"alone predicts {label} with AUC {auc:.3f}: does it know what happened afterwards?"
            yield Finding("leak", column.name, text)
    ours = column.missing.get(report.reference)
    if ours is not None and ours > MISSING:
        yield Finding("missing", column.name, f"is missing in {100 * ours:.2f} % of the rows of {report.reference}")
    elif column.constant:
        yield Finding("constant", column.name, f"has the same value in all rows of {report.reference} looked at")
    for split, drift in column.drift.items():
        if drift.matters:
            text = f"is distributed otherwise in {split} than in {report.reference} (PSI {drift.psi:.2f})"
            yield Finding("drift", column.name, text)


def _category(category: CategoryReport, report: DatasetReport) -> Iterator[Finding]:
    ours = category.unknown.get(report.reference)
    if ours is None:
        return
    if 1 - ours < COVERED:
        text = f"{100 * ours:.1f} % of its values in {report.reference} have no id of their own: is min_count too high?"
        yield Finding("coverage", category.name, text)
    for split, share in category.unknown.items():
        if split != report.reference and share is not None and share - ours > NEWLY_UNKNOWN:
            text = f"{100 * share:.1f} % of its values in {split} are unknown, {100 * ours:.1f} % in {report.reference}"
            yield Finding("unknown", category.name, text)
