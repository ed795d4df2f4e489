"""How a request's tensors become encoded rows; the two request forms are those of `lanner.export.signature`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lanner.errors import DataError
from lanner.export.signature import PADDING, Input, encoded_inputs, has_lengths, raw_inputs
from lanner.schema import IdentityEncoder, Schema, Sparse
from lanner.serve.datatypes import NUMERIC, widen
from lanner.serve.failure import RequestError
from lanner.serve.request import Request, Tensor
from lanner.serve.rows import Rows

if TYPE_CHECKING:
    from lanner.prep.encoder import Encoded


class Encodes(Protocol):
    def encode(self, columns: Mapping[str, Any]) -> Encoded: ...


class Inputs:
    """Reads requests for one model: `rows` gives the number of rows of each table, "dynamic" where any key is legal."""

    def __init__(self, schema: Schema, rows: Mapping[str, int | str], encoder: Encodes | None) -> None:
        self.schema = schema
        self.encoded = {declared.name: declared for declared in encoded_inputs(schema)}
        self.raw = {declared.name: declared for declared in raw_inputs(schema)} if encoder else {}
        self._encoder = encoder
        self._one_hot = [feature for feature in schema.sparse if feature.one_hot]
        self._bags = [feature for feature in schema.sparse if not feature.one_hot]
        self._last = {
            name: np.uint64(2**64 - 1 if count == "dynamic" else int(count) - 1) for name, count in rows.items()
        }
        self._lasts = np.array([self._last[feature.table_name] for feature in self._one_hot], dtype=np.uint64)
        self.required = [f.source for f in schema.sparse if _required(f)]

    def is_raw(self, request: Request) -> bool:
        """True when the request must go through the encoder."""
        return not any(name in self.encoded for name in request.inputs)

    def read(self, request: Request) -> Rows:
        """Encoded rows of a request; RequestError naming the input, feature or table at fault."""
        raw = self.is_raw(request)
        expected = self.raw if raw else self.encoded
        self._check_names(request, expected, self.required if raw else expected)
        count = _row_count(request.inputs, expected)
        return self._read_raw(request, count) if raw else self._read_encoded(request, count)

    def _check_names(self, request: Request, expected: Mapping[str, Input], required: Iterable[str]) -> None:
        unexpected = [name for name in request.inputs if name not in expected]
        missing = [name for name in required if name not in request.inputs]
        if not request.inputs:
            raise RequestError(f"the request has no inputs; expected {_names(self.encoded)} or {_names(self.raw)}")
        if unexpected:  # what is merely left out is worth naming here: it may be the misspelt one
            missing = [name for name in expected if name not in request.inputs]
        if unexpected or missing:
            parts = [f"missing inputs: {_names(missing)}"] * bool(missing)
            parts += [f"unexpected inputs: {_names(unexpected)}"] * bool(unexpected)
            raise RequestError(f"model '{request.model}': {'; '.join(parts)}")

    def _read_encoded(self, request: Request, count: int) -> Rows:
        dense = np.empty((count, 0), dtype=np.float32)
        if self.schema.dense:
            dense = _numbers(request.inputs["dense"], "FP32")
            if not np.isfinite(dense).all():
                row, column = np.argwhere(~np.isfinite(dense))[0]
                name = self.schema.dense[column].name
                raise RequestError(f"input 'dense': {dense[row, column]} in row {row}, feature {name!r}: not finite")
        ids = np.empty((count, 0), dtype=np.int64)
        if self._one_hot:
            ids = _numbers(request.inputs["ids"], "INT64")
        return self.check(Rows(count, dense, ids, [self._read_bag(request, feature) for feature in self._bags]))

    def _read_bag(self, request: Request, feature: Sparse) -> tuple[np.ndarray, np.ndarray]:
        """Flat ids of a feature and their number in each row."""
        ids = _numbers(request.inputs[f"{feature.name}.ids"], "INT64")
        if has_lengths(self.schema, feature):
            lengths = _numbers(request.inputs[f"{feature.name}.lengths"], "INT64").reshape(-1)
            odd = (lengths < 0) | (lengths > ids.shape[1])
            if odd.any():
                row = int(np.argmax(odd))
                width = f"0 to {ids.shape[1]}, the width of '{feature.name}.ids'"
                raise RequestError(f"feature {feature.name!r}: length {lengths[row]} in row {row}, expected {width}")
            real = np.arange(ids.shape[1]) < lengths[:, None]
        elif self.schema.table(feature.table_name).rows == "dynamic":
            real = np.ones(ids.shape, bool)
        else:
            real = ids != PADDING
        return ids[real], real.sum(axis=1)

    def _read_raw(self, request: Request, count: int) -> Rows:
        columns = {name: self._column(tensor) for name, tensor in request.inputs.items()}
        assert self._encoder is not None  # without an encoder no raw name is expected, and read() has refused them
        try:
            encoded = self._encoder.encode(columns)
        except DataError as error:
            raise RequestError(str(error)) from error
        ids = np.empty((count, len(self._one_hot)), dtype=np.int64)
        bags, place = [], 0
        for feature, column in zip(self.schema.sparse, encoded.ids, strict=True):
            if feature.one_hot:
                ids[:, place] = column.values
                place += 1
            else:
                assert column.offsets is not None  # every feature that is not one-hot has them
                bags.append((column.values.astype(np.int64), np.diff(column.offsets)))
        return self.check(Rows(count, encoded.dense, ids, bags))

    def _column(self, tensor: Tensor) -> Any:
        if tensor.datatype == "BYTES":
            return tensor.values
        return widen(tensor.name, tensor.datatype, tensor.values, self.raw[tensor.name].datatype).reshape(-1)

    def check(self, rows: Rows) -> Rows:
        """Refuse ids outside their tables and bags of a wrong size."""
        wrong = rows.ids.view(np.uint64) > self._lasts
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise self._out_of_range(self._one_hot[column], int(rows.ids[row, column]), int(row))
        for feature, (values, lengths) in zip(self._bags, rows.bags, strict=True):
            outside = np.flatnonzero(values.view(np.uint64) > self._last[feature.table_name])
            if outside.size:
                row = int(np.searchsorted(np.cumsum(lengths), outside[0], side="right"))
                raise self._out_of_range(feature, int(values[outside[0]]), row)
            limit = feature.hotness or feature.max_hotness
            odd = lengths != limit if feature.hotness else lengths > (limit or np.inf)
            if odd.any():
                row = int(np.argmax(odd))
                expected = f"{limit}" if feature.hotness else f"at most {limit}"
                raise RequestError(f"feature {feature.name!r}: {lengths[row]} ids in row {row}, expected {expected}")
        return rows

    def _out_of_range(self, feature: Any, value: int, row: int) -> RequestError:
        table = feature.table_name
        return RequestError(
            f"table {table!r}, feature {feature.name!r}: id {value} in row {row} is outside 0..{self._last[table]}"
        )


def _required(feature: Sparse) -> bool:
    encoder = feature.encoder
    return isinstance(encoder, IdentityEncoder) and encoder.missing is None and feature.fill is None


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _row_count(inputs: Mapping[str, Tensor], expected: Mapping[str, Input]) -> int:
    """Rows of the request, which all tensors must share; checks every shape."""
    count = -1
    for tensor in inputs.values():
        dims = expected[tensor.name].dims
        given = tensor.shape
        if len(given) != 1 + len(dims) or any(e not in (-1, g) for g, e in zip(given[1:], dims, strict=True)):
            raise RequestError(f"unexpected shape for input '{tensor.name}'. Expected {[-1, *dims]}, got {list(given)}")
        if count >= 0 and given[0] != count:
            raise RequestError(f"input '{tensor.name}' has {given[0]} rows, the inputs before it have {count}")
        count = given[0]
    if count == 0:
        raise RequestError("the request has 0 rows, expected at least 1")
    return count


def _numbers(tensor: Tensor, target: str) -> np.ndarray:
    values = widen(tensor.name, tensor.datatype, tensor.values, target)
    return np.ascontiguousarray(values, dtype=NUMERIC[target])
