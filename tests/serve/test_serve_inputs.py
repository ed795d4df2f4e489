"""From a request's tensors to encoded rows, and from several requests to one batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lanner.prep.encoder import Encoder
from lanner.schema import Schema
from lanner.serve.failure import RequestError
from lanner.serve.inputs import Inputs
from lanner.serve.request import Request, Tensor
from lanner.serve.rows import Rows, merge


@pytest.fixture(scope="module")
def inputs(mixed_schema: Schema) -> Inputs:
    rows = {table.name: table.rows for table in mixed_schema.tables if isinstance(table.rows, int)}
    return Inputs(mixed_schema, rows, Encoder(mixed_schema, {}))


def request(**values: Any) -> Request:
    """A request of NumPy arrays and lists of texts; `__` in a name stands for a dot."""
    made = Request("mixed")
    for name, value in values.items():
        name = name.replace("__", ".")
        if isinstance(value, list):
            made.add(Tensor(name, "BYTES", (len(value), 1), pa.array(value, pa.string())))
        else:
            letters = {"i": "INT", "u": "UINT", "f": "FP", "b": "BOOL"}[value.dtype.kind]
            datatype = letters if letters == "BOOL" else f"{letters}{value.dtype.itemsize * 8}"
            made.add(Tensor(name, datatype, value.shape, value))
    return made


def encoded(rows: int = 2, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "dense": np.ones((rows, 2), np.float32),
        "ids": np.full((rows, 2), 5),
        "tags__ids": np.tile([3, -1, 4], (rows, 1)),
        "pair__ids": np.tile([1, 2], (rows, 1)),
    }
    values.update(changes)
    return request(**{name: value for name, value in values.items() if value is not None})


def test_the_encoded_form_is_read(inputs: Inputs) -> None:
    rows = inputs.read(encoded())
    assert rows.count == 2
    assert rows.ids.tolist() == [[5, 5], [5, 5]]
    (tags, tag_counts), (pairs, pair_counts) = rows.bags
    assert (tags.tolist(), tag_counts.tolist()) == ([3, 4, 3, 4], [2, 2])
    assert (pairs.tolist(), pair_counts.tolist()) == ([1, 2, 1, 2], [2, 2])


def test_narrow_types_are_widened(inputs: Inputs) -> None:
    narrow = encoded(dense=np.ones((2, 2), np.float16), ids=np.full((2, 2), 29, np.uint8))
    rows = inputs.read(narrow)
    assert (rows.dense.dtype, rows.ids.dtype, rows.ids[0, 0]) == (np.float32, np.int64, 29)


def test_the_raw_form_equals_the_encoder(inputs: Inputs, mixed_schema: Schema) -> None:
    columns = {
        "price": ["1.5", ""],
        "age": ["3", "-1"],
        "user": ["17", ""],
        "tags": ["a|b", ""],
        "pair": ["x,y", "z,x"],
    }
    columns["item"] = ["4", "29"]
    rows = inputs.read(request(**columns))
    expected = Encoder(mixed_schema, {}).encode(columns)
    np.testing.assert_array_equal(rows.dense, expected.dense)
    assert rows.ids[:, 0].tolist() == expected.ids[0].values.tolist()
    assert rows.ids[:, 1].tolist() == [4, 29]
    assert rows.bags[0][0].tolist() == expected.ids[1].values.tolist()
    assert rows.bags[0][1].tolist() == [2, 0]


def test_a_raw_column_left_out_is_a_missing_value(inputs: Inputs) -> None:
    with_empty = request(price=[""], age=[""], user=[""], tags=[""], item=[""], pair=[""])
    left_out = request(user=[""])
    ours, theirs = inputs.read(left_out), inputs.read(with_empty)
    np.testing.assert_array_equal(ours.dense, theirs.dense)
    np.testing.assert_array_equal(ours.ids, theirs.ids)
    for (left, left_counts), (right, right_counts) in zip(ours.bags, theirs.bags, strict=True):
        assert (left.tolist(), left_counts.tolist()) == (right.tolist(), right_counts.tolist())


def test_numbers_may_come_as_numbers_or_texts(inputs: Inputs) -> None:
    as_numbers = request(price=np.array([[1.5]]), age=np.array([[3]]), user=np.array([[17]]), item=np.array([[4]]))
    as_texts = request(price=["1.5"], age=["3"], user=["17"], item=["4"])
    np.testing.assert_array_equal(inputs.read(as_numbers).ids, inputs.read(as_texts).ids)
    np.testing.assert_array_equal(inputs.read(as_numbers).dense, inputs.read(as_texts).dense)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (encoded(ids=None, foo=np.ones((2, 1))), "missing inputs: ids; unexpected inputs: foo"),
        (encoded(tags__ids=None), "missing inputs: tags.ids"),
        (encoded(user=["1", "2"]), "unexpected inputs: user"),
        (request(user=["1"], foo=["1"]), "missing inputs: .*item.*unexpected inputs: foo"),
        (request(), "no inputs; expected dense, ids"),
        (encoded(dense=np.ones((2, 3), np.float32)), r"'dense'. Expected \[-1, 2\], got \[2, 3\]"),
        (encoded(dense=np.ones(2, np.float32)), r"'dense'. Expected \[-1, 2\], got \[2\]"),
        (encoded(dense=np.ones((3, 2), np.float32)), "has 2 rows, the inputs before it have 3"),
        (encoded(rows=0), "0 rows"),
        (encoded(dense=np.ones((2, 2))), "FP64 given, expected FP32"),
        (encoded(ids=np.ones((2, 2), np.float32) * 3), "FP32 given, expected INT64"),
        (encoded(dense=np.array([[1, 1], [1, np.nan]], np.float32)), "nan in row 1, feature 'age'"),
        (encoded(ids=np.array([[5, 5], [51, 5]])), "table 'user', feature 'user': id 51 in row 1 is outside 0..50"),
        (encoded(ids=np.array([[5, 5], [5, -1]])), "table 'item', feature 'item': id -1 in row 1"),
        (encoded(ids=np.array([[5, 2**40], [5, 1]])), f"feature 'item': id {2**40} in row 0"),
        (encoded(tags__ids=np.array([[1, 2], [-1, 21]])), "table 'tags', feature 'tags': id 21 in row 1"),
        (encoded(tags__ids=np.array([[1, 2], [-2, 1]])), "feature 'tags': id -2 in row 1"),
        (encoded(tags__ids=np.ones((2, 6), int)), "feature 'tags': 6 ids in row 0, expected at most 5"),
        (encoded(pair__ids=np.array([[1, 2], [1, -1]])), "feature 'pair': 1 ids in row 1, expected 2"),
        (request(item=["30"]), "column 'item', row 0: 30 is outside 0..29"),
        (request(price=["much"]), "column 'price'"),
        (request(user=np.array([[1.0]])), "FP64 given, expected INT64"),
        (request(tags=np.array([[1]])), "INT64 given, expected BYTES"),
    ],
)
def test_what_does_not_fit_is_named(given: Request, problem: str, inputs: Inputs) -> None:
    with pytest.raises(RequestError, match=problem) as error:
        inputs.read(given)
    assert error.value.status == 400


def test_requests_of_several_sizes_merge_in_order(mixed_schema: Schema) -> None:
    rng = np.random.default_rng(1)
    parts = []
    for count in (1, 3, 2):
        lengths = rng.integers(0, 4, count)
        bags = [(rng.integers(0, 21, lengths.sum()), lengths), (rng.integers(0, 10, 2 * count), np.full(count, 2))]
        dense = rng.random((count, 2), dtype=np.float32)
        parts.append(Rows(count, dense, rng.integers(0, 30, (count, 2)), bags))
    dense, bags = merge(parts, mixed_schema)
    np.testing.assert_array_equal(dense, np.concatenate([p.dense for p in parts]))
    bags.validate()
    assert bags.names == ("user", "tags", "item", "pair")
    assert bags.offsets is not None
    values, offsets = bags.values.numpy(), bags.offsets.numpy()
    bounds = offsets[:: dense.shape[0]]
    np.testing.assert_array_equal(values[bounds[0] : bounds[1]], np.concatenate([p.ids[:, 0] for p in parts]))
    np.testing.assert_array_equal(values[bounds[1] : bounds[2]], np.concatenate([p.bags[0][0] for p in parts]))
    np.testing.assert_array_equal(np.diff(offsets)[6:12], np.concatenate([p.bags[0][1] for p in parts]))
    np.testing.assert_array_equal(values[bounds[3] :], np.concatenate([p.bags[1][0] for p in parts]))
