"""Random but valid input rows: ids inside every table, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lanner.errors import ConfigError
from lanner.export.signature import PADDING, has_lengths
from lanner.perf.model import Input
from lanner.schema import HashEncoder, IdentityEncoder, Schema, Sparse

DYNAMIC_KEYS = 1_000_000
"""Keys drawn for a table that grows with its keys, where any integer is legal."""

RAGGED_LENGTH = 8
"""Longest bag drawn for a ragged feature that states no cap."""

NUMPY_TYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input of many rows: `values` [rows, ...] in the NumPy type of `datatype`, text as bytes objects.

    `ragged` tensors are padded on the right with -1; each request trims them to its longest bag.
    """

    datatype: str
    values: npt.NDArray[np.generic]
    ragged: bool = False


Tensors = dict[str, Tensor]


def encoded(schema: Schema, rows: int, rng: np.random.Generator, skew: float) -> Tensors:
    """`dense` FP32 [rows, D], `ids` INT64 [rows, one-hot features] and `<feature>.ids` INT64 [rows, longest bag].

    Where every integer is an id, bags of any length have `<feature>.lengths` INT64 [rows, 1] too.
    """
    tensors: Tensors = {}
    if schema.dense:
        tensors["dense"] = Tensor("FP32", rng.standard_normal((rows, len(schema.dense)), dtype=np.float32))
    one_hot = [feature for feature in schema.sparse if feature.one_hot]
    if one_hot:
        ids = np.empty((rows, len(one_hot)), np.int64)
        for column, feature in enumerate(one_hot):
            ids[:, column] = draw(table_rows(schema, feature), rows, rng, skew)
        tensors["ids"] = Tensor("INT64", ids)
    for feature in schema.sparse:
        if not feature.one_hot:
            lengths = bag_lengths(feature, rows, rng)
            ids = draw(table_rows(schema, feature), (rows, max(1, lengths.max(initial=0))), rng, skew)
            ids[np.arange(ids.shape[1]) >= lengths[:, None]] = PADDING
            tensors |= bag_tensors(schema, feature, ids, lengths)
    return tensors


def bag_tensors(schema: Schema, feature: Sparse, ids: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Tensors:
    """The encoded tensors of bags: `ids` [rows, longest], padded with -1, `lengths` [rows]."""
    if schema.table(feature.table_name).rows != "dynamic":
        return {f"{feature.name}.ids": Tensor("INT64", ids, ragged=True)}
    tensors = {f"{feature.name}.ids": Tensor("INT64", ids)}  # not to be trimmed: -1 may be an id
    if has_lengths(schema, feature):
        tensors[f"{feature.name}.lengths"] = Tensor("INT64", lengths[:, None])
    return tensors


def raw(schema: Schema, rows: int, rng: np.random.Generator, skew: float) -> Tensors:
    """One tensor [rows, 1] per raw column, as logged: what the server reads with `--form raw`.

    Values of a vocabulary are not known to the client, so those drawn here are mostly unknown to the server; rows of
    a dataset have known ones.
    """
    tensors: Tensors = {}
    for part in schema.dense:
        values = np.floor(rng.lognormal(1.5, 1.5, (rows, 1)))
        tensors[part.source] = Tensor("FP32", values.astype(np.float32))
    for feature in schema.sparse:
        if feature.source in tensors:
            continue
        lengths = None if feature.one_hot else bag_lengths(feature, rows, rng)
        count = rows if lengths is None else int(lengths.sum())
        keys = draw(_raw_keys(schema, feature), count, rng, skew)
        tensors[feature.source] = raw_tensor(feature, _as_logged(feature, keys), lengths)
    return tensors


def raw_tensor(feature: Sparse, values: Iterable[object], lengths: npt.NDArray[np.int64] | None) -> Tensor:
    """A raw column [rows, 1]: INT64 for one-hot integers, else BYTES with bags joined by the feature's separator."""
    if lengths is None and feature.raw == "int":
        return Tensor("INT64", np.asarray(list(values), np.int64).reshape(-1, 1))
    texts = [str(value) for value in values]
    if lengths is not None:
        ends = np.cumsum(lengths)
        separator = feature.separator or ","
        texts = [separator.join(texts[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
    return text_tensor(texts)


def text_tensor(texts: Sequence[str]) -> Tensor:
    """A BYTES column [rows, 1]."""
    column = np.empty((len(texts), 1), np.object_)
    column[:, 0] = [text.encode() for text in texts]
    return Tensor("BYTES", column)


def from_metadata(
    inputs: tuple[Input, ...],
    rows: int,
    rng: np.random.Generator,
    bounds: tuple[int, int],
    ranges: Mapping[str, tuple[int, int]],
    shapes: Mapping[str, tuple[int, ...]],
) -> Tensors:
    """Random values for the inputs a model needs: integers within the range, floats in [0, 1), decimal text.

    Raises ConfigError for an open dimension without a shape, a type this client cannot send, or an option that
    names no input.
    """
    needed = [tensor for tensor in inputs if not tensor.optional] or list(inputs)
    if unknown := sorted({*ranges, *shapes} - {tensor.name for tensor in inputs}):
        raise ConfigError(f"the model has no input {unknown[0]!r}; it has {', '.join(t.name for t in inputs)}")
    tensors: Tensors = {}
    for tensor in needed:
        shape = shapes.get(tensor.name, tensor.shape)
        if any(size < 0 for size in shape):
            raise ConfigError(f"input {tensor.name!r} has the open shape {list(shape)}: give --shape {tensor.name}=D,D")
        low, high = ranges.get(tensor.name, bounds)
        tensors[tensor.name] = Tensor(tensor.datatype, _random(tensor, (rows, *shape), rng, low, high))
    return tensors


def conform(tensors: Tensors, inputs: tuple[Input, ...]) -> Tensors:
    """The tensors in the types the model declares: numbers as text or as wider numbers; text stays text."""
    declared = {tensor.name: tensor.datatype for tensor in inputs}
    return {name: _as_type(tensor, declared.get(name, tensor.datatype)) for name, tensor in tensors.items()}


def _as_type(tensor: Tensor, datatype: str) -> Tensor:
    if tensor.datatype in (datatype, "BYTES") or datatype not in NUMPY_TYPES:
        return tensor
    if datatype == "BYTES":
        values = tensor.values.ravel().tolist()
        return text_tensor([f"{value:g}" if isinstance(value, float) else str(value) for value in values])
    return Tensor(datatype, tensor.values.astype(NUMPY_TYPES[datatype]), tensor.ragged)


def _random(
    tensor: Input, shape: tuple[int, ...], rng: np.random.Generator, low: int, high: int
) -> npt.NDArray[np.generic]:
    if tensor.datatype not in NUMPY_TYPES:
        raise ConfigError(f"input {tensor.name!r} has type {tensor.datatype}, which this client cannot send")
    kind = NUMPY_TYPES[tensor.datatype]
    if tensor.datatype.startswith("FP"):
        return rng.random(shape).astype(kind)
    integers = rng.integers(low, high, shape)
    if tensor.datatype == "BYTES":
        flat = np.empty(integers.size, np.object_)
        flat[:] = [b"%d" % value for value in integers.ravel()]
        return flat.reshape(shape)
    if tensor.datatype == "BOOL":
        return np.equal(integers % 2, 1)
    limits = np.iinfo(kind)
    if low < limits.min or high - 1 > limits.max:
        raise ConfigError(f"input {tensor.name!r} has type {tensor.datatype}, which cannot hold the range {low}:{high}")
    values: npt.NDArray[np.generic] = integers.astype(kind)
    return values


def draw(size: int, shape: int | tuple[int, ...], rng: np.random.Generator, skew: float) -> npt.NDArray[np.int64]:
    """Ids in [0, size): uniform, or with probability falling like 1 / (id + 1) ** skew (small ids are frequent).

    The power law is inverted in its continuous form, so no table of `size` probabilities is needed.
    """
    if skew == 0:
        return rng.integers(0, size, shape)
    uniform = rng.random(shape)
    if abs(skew - 1) < 1e-9:
        position = np.exp(uniform * np.log(size + 1.0))
    else:
        power = 1.0 - skew
        position = (1.0 + uniform * ((size + 1.0) ** power - 1.0)) ** (1.0 / power)
    ids: npt.NDArray[np.int64] = np.clip(position.astype(np.int64) - 1, 0, size - 1)
    return ids


def bag_lengths(feature: Sparse, rows: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Ids per row of a feature that is not one-hot: its fixed number, or 1 to its cap."""
    if feature.hotness is not None:
        return np.full(rows, feature.hotness, np.int64)
    return rng.integers(1, (feature.max_hotness or RAGGED_LENGTH) + 1, rows)


def table_rows(schema: Schema, feature: Sparse) -> int:
    """Rows of the feature's table; raises ConfigError when the schema was never fitted."""
    rows = schema.table(feature.table_name).rows
    if rows is None:
        raise ConfigError(f"the model's schema gives table {feature.table_name!r} no number of rows: it is not fitted")
    return DYNAMIC_KEYS if rows == "dynamic" else rows


def _raw_keys(schema: Schema, feature: Sparse) -> int:
    encoder = feature.encoder
    if isinstance(encoder, IdentityEncoder | HashEncoder):
        return encoder.size
    return table_rows(schema, feature)


def _as_logged(feature: Sparse, keys: npt.NDArray[np.int64]) -> Iterable[object]:
    if feature.raw == "hex":
        # Spread over 32 bits by an odd factor, as the hashes in real logs are.
        return (f"{key:08x}" for key in (keys * 2_654_435_761) & 0xFFFF_FFFF)
    return keys.tolist() if feature.raw == "int" else (f"{feature.name}-{key}" for key in keys)
