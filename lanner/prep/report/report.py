"""`DatasetReport`: what a person should know of a dataset before training on it, as plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lanner.manifest import FileEntry
from lanner.prep.report import measures
from lanner.prep.report.profile import SplitProfile
from lanner.prep.report.reading import TOP, Known, profiles, vocabularies
from lanner.schema import Dense, IdentityEncoder, Label, Schema, Sparse, VocabEncoder

QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
BARS = 24

Shares = dict[str, float | None]
"""A share for each split; None where it is not known."""


@dataclass
class LabelReport:
    """Mean and its course by split: means of stretches of `width` of the `rows` read, usually all.

    `classes` tells 0 and 1 from numbers.
    """

    name: str
    classes: bool
    rows: dict[str, int]
    mean: dict[str, float]
    width: dict[str, int]
    course: dict[str, list[float]]


@dataclass
class NumberReport:
    """A number as it is stored, after its transform.

    `low` and `high` are of the rows looked at; quantiles, the bars of the histogram between `low` and `high` of all
    splits, drift and `auc` (by label) come from the sample.
    """

    name: str
    transform: str
    missing: Shares
    low: dict[str, float]
    high: dict[str, float]
    quantiles: dict[str, list[float]]
    bars: dict[str, list[int]]
    constant: bool
    drift: dict[str, measures.Drift]
    auc: dict[str, float | None]


@dataclass
class CategoryReport:
    """A categorical feature.

    `known` values have an id of their own; `covered` is the share of occurrences that have such a value. `ids` is the
    number of ids a row. `top` holds value, count when the vocabulary was made, and share of the sampled ids.
    """

    name: str
    table: str
    encoder: str
    table_rows: int | str | None
    known: int | None
    ids: float
    missing: Shares
    unknown: Shares
    covered: Shares
    constant: bool
    drift: dict[str, measures.Drift]
    auc: dict[str, float | None]
    top: list[tuple[str, int | None, float]]


@dataclass
class DatasetReport:
    """`facts` tell how the dataset was made; `reference` is the split the others are compared with.

    `looked_at` counts the rows whose columns were read, evenly over each split, `sampled` those that were kept of them.
    """

    rows: dict[str, int]
    rejected: dict[str, int]
    files: list[dict[str, Any]]
    facts: dict[str, Any]
    reference: str
    looked_at: dict[str, int]
    sampled: dict[str, int]
    labels: list[LabelReport]
    numbers: list[NumberReport]
    categories: list[CategoryReport]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, with the findings as `warnings`."""
        from lanner.prep.report.findings import findings

        return {"warnings": [asdict(found) for found in findings(self)], **asdict(self)}


def make_report(
    directory: str | os.PathLike[str], schema: Schema, files: Mapping[str, FileEntry], info: Mapping[str, Any]
) -> DatasetReport:
    """The report of the dataset in `directory`, whose manifest has, or will have, these `files` and `info`.

    What `info` does not tell, as that of a converted dataset, is not known. Takes seconds, whatever the size, but for
    reading the labels. Raises DataError naming a file that cannot be read.
    """
    return _Maker(schema, profiles(directory, schema, files), vocabularies(directory, schema), info).report()


class _Maker:
    def __init__(
        self,
        schema: Schema,
        splits: Mapping[str, SplitProfile],
        vocabularies: Mapping[str, Known],
        info: Mapping[str, Any],
    ) -> None:
        self._schema, self._splits = schema, splits
        self._vocabularies, self._info = vocabularies, info
        self._counted = {feature["name"]: feature for feature in info.get("features", ())}
        self._reference = "train" if "train" in splits or not splits else next(iter(splits))

    def report(self) -> DatasetReport:
        schema = self._schema
        left_out = {"features", "files", "rejected", "rows"}
        files = [{key: file[key] for key in ("file", "rows", "rejected")} for file in self._info.get("files", ())]
        return DatasetReport(
            rows={name: split.rows for name, split in self._splits.items()},
            rejected=dict(self._info.get("rejected", {})),
            files=files,
            facts={key: value for key, value in self._info.items() if key not in left_out and value is not None},
            reference=self._reference,
            looked_at={name: split.looked_at for name, split in self._splits.items()},
            sampled={name: len(split.labels.values) for name, split in self._splits.items()},
            labels=[self._label(at, label) for at, label in enumerate(schema.labels)],
            numbers=[self._number(at, number) for at, number in enumerate(schema.dense)],
            categories=[self._category(at, feature) for at, feature in enumerate(schema.sparse)],
        )

    def _label(self, at: int, label: Label) -> LabelReport:
        lines = {name: split.timeline for name, split in self._splits.items()}
        return LabelReport(
            name=label.name,
            classes=label.task == "binary" and not label.soft,
            rows={name: line.rows for name, line in lines.items()},
            mean={name: float(line.total[at] / max(line.rows, 1)) for name, line in lines.items()},
            width={name: line.width for name, line in lines.items()},
            course={name: line.means[:, at].tolist() for name, line in lines.items()},
        )

    def _number(self, at: int, number: Dense) -> NumberReport:
        samples = {name: split.dense.values[:, at].astype(np.float64) for name, split in self._splits.items()}
        low = {name: float(split.low[at]) for name, split in self._splits.items()}
        high = {name: float(split.high[at]) for name, split in self._splits.items()}
        edges = np.linspace(min(low.values(), default=0), max(high.values(), default=0), BARS + 1)
        ours = samples.get(self._reference, np.zeros(0))
        return NumberReport(
            name=number.name,
            transform=number.transform,
            missing=self._shares("missing", number.name, {name: split.rows for name, split in self._splits.items()}),
            low=low,
            high=high,
            quantiles={name: np.quantile(x, QUANTILES).tolist() for name, x in samples.items()},
            bars={name: _bars(x, edges) for name, x in samples.items()},
            constant=self._reference in low and low[self._reference] == high[self._reference],
            drift={name: measures.drift_of_numbers(ours, x) for name, x in self._later(samples).items()},
            auc=self._auc(ours, measures.auc_of_numbers),
        )

    def _category(self, at: int, feature: Sparse) -> CategoryReport:
        samples = {name: split.ids[at] for name, split in self._splits.items()}
        ours = samples[self._reference].values if samples else np.zeros(0)
        values = {name: self._present(feature, name, split, at) for name, split in self._splits.items()}
        unknown = self._shares("unknown", feature.name, values)
        vocabulary = self._vocabularies.get(feature.table_name)
        known = None if vocabulary is None else vocabulary.values
        counted = isinstance(feature.encoder, VocabEncoder)
        looked_at = sum(split.looked_at for split in self._splits.values())
        return CategoryReport(
            name=feature.name,
            table=feature.table_name,
            encoder=feature.encoder.kind,
            table_rows=self._schema.table(feature.table_name).rows,
            known=known,
            ids=sum(sample.seen for sample in samples.values()) / max(looked_at, 1),
            missing=self._shares("missing", feature.name, {name: split.rows for name, split in self._splits.items()}),
            unknown=unknown if counted else dict.fromkeys(samples),
            covered={name: 1 - x if counted and x is not None else None for name, x in unknown.items()},
            constant=len(ours) > 0 and known != 0 and bool((ours == ours[0]).all()),
            drift={
                name: measures.drift_of_ids(ours, sample.values)
                for name, sample in self._later(samples).items()
                if len(ours) and len(sample.values)
            },
            auc=self._auc(ours, measures.auc_of_ids) if feature.one_hot else {},
            top=_top(feature, vocabulary, ours),
        )

    def _later(self, samples: dict[str, Any]) -> dict[str, Any]:
        return {name: sample for name, sample in samples.items() if name != self._reference}

    def _present(self, feature: Sparse, name: str, split: SplitProfile, at: int) -> int | None:
        """Values of a split that are not missing (about, for lists of any length); a fixed list is missing whole."""
        counted = self._counted.get(feature.name)
        if counted is None:
            return None
        ids = round(split.ids[at].seen / max(split.looked_at, 1) * split.rows)
        return ids - int(counted["missing"].get(name, 0)) * (feature.hotness or 0)

    def _shares(self, what: str, name: str, of: Mapping[str, int | None]) -> Shares:
        counted = self._counted.get(name, {}).get(what)
        if counted is None:
            return dict.fromkeys(of)
        return {split: counted.get(split, 0) / all_ if all_ else None for split, all_ in of.items()}

    def _auc(self, values: np.ndarray, measure: Any) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        split: SplitProfile | None = self._splits.get(self._reference)
        for at, label in enumerate(self._schema.labels):
            if split is not None and label.task == "binary" and not label.soft:
                found[label.name] = measure(values, split.labels.values[:, at])
        return found


def _bars(values: np.ndarray, edges: np.ndarray) -> list[int]:
    if edges[0] == edges[-1]:
        return [len(values), *[0] * (BARS - 1)]
    bars: list[int] = np.histogram(values, edges)[0].tolist()
    return bars


def _top(feature: Sparse, known: Known | None, ids: np.ndarray) -> list[tuple[str, int | None, float]]:
    """The most frequent values: by the counts of the vocabulary, else by the sample."""
    sampled, counts = np.unique(ids, return_counts=True)
    shares = dict(zip(sampled.tolist(), (counts / max(len(ids), 1)).tolist(), strict=True))
    if known is None:
        best = sampled[np.argsort(-counts, kind="stable")[:TOP]].tolist()
        return [(_shown(feature, number), None, shares[number]) for number in best]
    most = feature.encoder.max_rows if isinstance(feature.encoder, VocabEncoder) else None
    return [(text, count, shares.get(number % most if most else number, 0.0)) for text, number, count in known.top]


def _shown(feature: Sparse, number: int) -> str:
    """A value by its id, as far as the id tells."""
    if isinstance(feature.encoder, IdentityEncoder):
        return str(number + feature.encoder.lowest)
    return "missing" if number == 0 else f"id {number}"
