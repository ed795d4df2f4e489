"""A report as one HTML page: warnings first, then rows, labels, numbers and categorical features."""

from __future__ import annotations

from collections.abc import Mapping

from lanner import webpage
from lanner.prep.report import charts
from lanner.prep.report.findings import findings
from lanner.prep.report.report import CategoryReport, DatasetReport, NumberReport
from lanner.webpage import Markup

_STYLE = """
.warnings { border: 1px solid #f2a541; background: #fff8ec; padding: .2rem 1rem; }
td small { color: #666; } td ol { margin: 0; padding-left: 1.4rem; text-align: left; }
"""
_SHOWN = 5
"""Top values of a feature that are seen at once."""


def page(report: DatasetReport) -> str:
    """The page."""
    splits = list(report.rows)
    looked = ", ".join(
        f"{report.looked_at[split]:,} ({report.sampled[split]:,}) of {count:,} {split} rows"
        for split, count in report.rows.items()
    )
    parts = [
        _warnings(report),
        webpage.heading("Rows"),
        _rows(report),
        *_labels(report),
        *_numbers(report),
        *_categories(report),
        webpage.paragraph(
            "Rows, missing and unknown values are counted exactly, and so are labels of local files. Ranges come from "
            f"rows read in equal distances; quantiles, histograms, drift and AUC from some of them: {looked or 'none'}."
        ),
        webpage.heading("How it was made"),
        webpage.facts(report.facts),
        webpage.table(
            ["input", "rows", "dropped"],
            [[file["file"], f"{file['rows']:,}", _counts(file["rejected"])] for file in report.files],
        )
        if report.files
        else "",
    ]
    return webpage.page(
        "Dataset report: " + ", ".join(f"{report.rows[split]:,} {split}" for split in splits), parts, _STYLE
    )


def _warnings(report: DatasetReport) -> str:
    found = [
        Markup(f"<b>{webpage.html(item.column)}</b> {webpage.html(item.text)}") if item.column else item.text
        for item in findings(report)
    ]
    text = webpage.items(found) if found else webpage.paragraph("Nothing conspicuous was found.")
    return f'<div class="warnings">{webpage.heading("Warnings")}{text}</div>'


def _rows(report: DatasetReport) -> str:
    kept, dropped = sum(report.rows.values()), sum(report.rejected.values())
    rows = [["read", f"{kept + dropped:,}", ""]]
    rows += [[split, f"{count:,}", _share(count / max(kept, 1))] for split, count in report.rows.items()]
    rows += [[f"dropped: {why}", f"{n:,}", _share(n / (kept + dropped))] for why, n in report.rejected.items()]
    return webpage.table(["", "rows", "share"], rows)


def _labels(report: DatasetReport) -> list[str]:
    if not report.labels:
        return []
    parts = [webpage.heading("Labels by position of the rows"), webpage.paragraph(charts.legend(list(report.rows)))]
    for label in report.labels:
        means = ", ".join(f"{split} {mean:.4g}" for split, mean in label.mean.items())
        parts += [
            webpage.paragraph(f"{label.name}: mean {means}"),
            charts.course(label.course, label.rows, label.width),
        ]
    return parts


def _numbers(report: DatasetReport) -> list[str]:
    if not report.numbers:
        return []
    titles = ["number", "transform", "missing", "distribution", "lowest", "1 %", "median", "99 %", "highest"]
    return [
        webpage.heading("Numbers, as stored after the transform"),
        webpage.paragraph(charts.legend(list(report.rows))),
        webpage.table([*titles, *_comparisons(report)], [_number(number, report) for number in report.numbers]),
    ]


def _number(number: NumberReport, report: DatasetReport) -> list[str]:
    ours = report.reference
    ends = [
        [number.low.get(ours), *(number.quantiles.get(ours, [None] * 7)[at] for at in (0, 3, 6)), number.high.get(ours)]
    ]
    shown = ["-" if value is None else f"{value:.4g}" for value in ends[0]]
    name, transform = number.name, number.transform
    return [
        name,
        transform,
        _share(number.missing.get(ours)),
        charts.histogram(number.bars),
        *shown,
        *_compared(number, report),
    ]


def _categories(report: DatasetReport) -> list[str]:
    if not report.categories:
        return []
    titles = ["feature", "encoder", "table rows", "ids a row", "known values", "values with an id, unknown, missing"]
    later = [f"unknown in {split}" for split in report.rows if split != report.reference]
    return [
        webpage.heading("Categorical features"),
        webpage.table(
            [*titles, "with an id", "missing", *later, *_comparisons(report), "most frequent values (count)"],
            [_category(category, report) for category in report.categories],
        ),
    ]


def _category(category: CategoryReport, report: DatasetReport) -> list[str]:
    ours = report.reference
    missing, unknown = category.missing.get(ours), category.unknown.get(ours)
    present = 1 - (missing or 0)
    shares = [present * (1 - (unknown or 0)), present * (unknown or 0)]
    rows, known = category.table_rows, category.known
    return [
        category.name if category.table == category.name else f"{category.name} (table {category.table})",
        category.encoder,
        f"{rows:,}" if isinstance(rows, int) else str(rows),
        f"{category.ids:.4g}",
        "-" if known is None else f"{known:,}",
        charts.bar(shares, ["#1b6ca8", "#c8443c"]),
        _share(category.covered.get(ours)),
        _share(missing),
        *(_share(category.unknown.get(split)) for split in report.rows if split != ours),
        *_compared(category, report),
        _top(category),
    ]


def _top(category: CategoryReport) -> Markup:
    lines = [
        f"{value or '(empty)'} " + (f"({count:,})" if count is not None else f"({100 * share:.2g} %)")
        for value, count, share in category.top
    ]
    first = "".join(f"<li>{webpage.html(line)}</li>" for line in lines[:_SHOWN])
    rest = "".join(f"<li>{webpage.html(line)}</li>" for line in lines[_SHOWN:])
    more = f'<details><summary>more</summary><ol start="{_SHOWN + 1}">{rest}</ol></details>' if rest else ""
    return Markup(f"<ol>{first}</ol>{more}" if first else "")


def _comparisons(report: DatasetReport) -> list[str]:
    drift = [f"PSI of {split}" for split in report.rows if split != report.reference]
    return [*drift, *(f"AUC alone for {label.name}" for label in report.labels if label.classes)]


def _compared(column: NumberReport | CategoryReport, report: DatasetReport) -> list[str]:
    drifts = (column.drift.get(split) for split in report.rows if split != report.reference)
    scores = (column.auc.get(label.name) for label in report.labels if label.classes)
    return [
        *("-" if drift is None else f"{drift.psi:.3f}" for drift in drifts),
        *("-" if auc is None else f"{auc:.3f}" for auc in scores),
    ]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %" if share else "0"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items()) or "0"
