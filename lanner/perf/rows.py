"""Request rows from a split of a dataset, in either form."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lanner import storage
from lanner.data.dataset import Dataset
from lanner.data.split import Split
from lanner.errors import DataError
from lanner.export.signature import PADDING
from lanner.perf import generate
from lanner.perf.generate import Tensor, Tensors
from lanner.prep.vocabulary import UNKNOWN, Vocabulary
from lanner.schema import MISSING_ID, HashEncoder, KeyEncoder, Schema, Sparse, VocabEncoder

UNKNOWN_VALUES: dict[str, object] = {"hex": "fffffffe", "int": 2**63 - 2, "string": UNKNOWN}
"""Logged values that stand for ids of unknown values."""


class DatasetRows:
    """Rows of a split, consecutive from a random one on, and from the first again after the last.

    In raw form categorical values are those the vocabularies hold for the rows' ids; numbers, and values behind a
    hash, cannot be had back and are drawn at random. Raises SchemaError when the dataset is not the model's.
    """

    def __init__(self, uri: str, schema: Schema, form: Literal["encoded", "raw"], rng: np.random.Generator) -> None:
        directory, _, name = uri.rstrip("/").rpartition("/")
        dataset = Dataset.open(directory or ".")
        dataset.schema.require_same(schema, f"dataset {directory!r}", "the served model")
        split = dataset.split(name)
        if split is None or not split.rows:
            raise DataError(f"{uri}: the dataset has no rows there; expected DATASET/train, /valid or /test")
        self._split: Split = split
        self._schema, self._form, self._rng = schema, form, rng
        self._directory = directory or "."
        self._start = int(rng.integers(split.rows))

    def sample(self, rows: int) -> Tensors:
        """The first `rows` rows from the start, as the tensors of the form."""
        batch = self._split.take((self._start + np.arange(rows)) % self._split.rows)
        bags = _per_feature(batch.bags, rows)
        if self._form == "encoded":
            return _encoded(self._schema, batch.dense.numpy(), bags)
        tensors = generate.raw(self._schema, rows, self._rng, 0.0)
        vocabularies: dict[str, Vocabulary] = {}
        for feature, (ids, lengths) in zip(self._schema.sparse, bags, strict=True):
            if isinstance(feature.encoder, HashEncoder | KeyEncoder):
                continue
            table = feature.table_name
            if isinstance(feature.encoder, VocabEncoder) and table not in vocabularies:
                vocabularies[table] = Vocabulary.load(storage.join(self._directory, "vocab", f"{table}.parquet"))
            tensors[feature.source] = _decoded(feature, ids, lengths, vocabularies.get(table))
        return tensors


def _per_feature(bags: Any, rows: int) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Flat ids and bag lengths of each feature."""
    values = bags.values.numpy().astype(np.int64)
    count = len(bags.names)
    ends = np.arange(count * rows + 1) if bags.offsets is None else bags.offsets.numpy()
    cuts = ends[np.arange(count + 1) * rows]
    lengths = np.diff(ends).reshape(count, rows) if count else np.empty((0, rows), np.int64)
    return [(values[cuts[index] : cuts[index + 1]], lengths[index]) for index in range(count)]


def _encoded(
    schema: Schema,
    dense: npt.NDArray[np.float32],
    bags: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
) -> Tensors:
    tensors: Tensors = {}
    if schema.dense:
        tensors["dense"] = Tensor("FP32", dense)
    one_hot = [ids for feature, (ids, _) in zip(schema.sparse, bags, strict=True) if feature.one_hot]
    if one_hot:
        tensors["ids"] = Tensor("INT64", np.stack(one_hot, axis=1))
    for feature, (ids, lengths) in zip(schema.sparse, bags, strict=True):
        if not feature.one_hot:
            padded = np.full((len(lengths), max(1, lengths.max(initial=0))), PADDING, np.int64)
            padded[np.arange(padded.shape[1]) < lengths[:, None]] = ids
            tensors |= generate.bag_tensors(schema, feature, padded, lengths)
    return tensors


def _decoded(
    feature: Sparse, ids: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], vocabulary: Vocabulary | None
) -> Tensor:
    """The raw column of a feature: its values as logged, missing ones as empty text."""
    values: list[object] = list(ids.tolist()) if vocabulary is None else vocabulary.decode(ids)
    unknown = UNKNOWN_VALUES[feature.raw]
    values = [unknown if value is UNKNOWN else value for value in values]
    if feature.one_hot and all(value is not None for value in values):
        return generate.raw_tensor(feature, values, None)
    # A missing integer can only be said in text; bags leave their missing ids out.
    if feature.one_hot:
        values = ["" if value is None else value for value in values]
        return generate.text_tensor([str(value) for value in values])
    kept = np.asarray(ids != MISSING_ID) if vocabulary is not None else np.ones(len(ids), bool)
    owners = np.repeat(np.arange(len(lengths)), lengths)[kept]
    return generate.raw_tensor(
        feature, [value for value in values if value is not None], np.bincount(owners, minlength=len(lengths))
    )
