"""Keys: 64-bit hashes for ids, from the command's choice to the batch."""

from __future__ import annotations

import numpy as np
import pytest

from lanner.data import Dataset
from lanner.errors import ConfigError, SchemaError
from lanner.kernels.hashing import mix64, xxh64
from lanner.prep import prepare
from lanner.prep.encoder import Encoder
from lanner.schema import Schema

GOLDEN = 0x9E3779B97F4A7C15


def schema(**table):
    features = [{"name": "n", "raw": "int", "encoder": {"kind": "key"}}, {"name": "s", "encoder": {"kind": "key"}}]
    return Schema.parse({"sparse": features, "tables": [{"name": "n", **table}, {"name": "s"}]})


def test_a_key_is_one_hash_of_its_value_and_0_is_missing():
    found = Encoder(schema(), {}).encode({"n": [5, None, -(2**63)], "s": ["a", "", "b"]})
    whole = np.array([5, -(2**63)], np.int64)
    texts = xxh64(np.frombuffer(b"ab", np.uint8), np.array([0, 1, 2])).view(np.int64)
    for column, keys in zip(found.ids, (whole, texts), strict=True):
        expected = mix64((keys.view(np.uint64) + np.uint64(GOLDEN)).view(np.int64)).view(np.int64)
        assert column.values.dtype == np.int64 and column.values[[0, 2]].tolist() == expected.tolist()
        assert column.values[1] == 0 and column.missing == 1


def test_a_table_of_a_fixed_size_cannot_take_keys():
    with pytest.raises(SchemaError, match="table 'n': the schema says 10 rows, its encoder gives any 64-bit key"):
        Encoder(schema(rows=10), {})


def test_prepared_logs_hold_keys_and_their_tables_grow(tmp_path):
    (tmp_path / "logs.csv").write_text("label,color\n" + "1,red\n0,blue\n" * 20)
    given = Schema.parse({"labels": [{"name": "label"}], "sparse": [{"name": "color"}]})
    summary = prepare(tmp_path / "logs.csv", tmp_path / "data", "csv", given, keys=True, quiet=True)
    data = Dataset.open(tmp_path / "data")
    assert data.schema.table("color").rows == "dynamic" and not list((tmp_path / "data" / "vocab").glob("*"))
    assert summary.features[0].table_rows == "dynamic"
    ids = data.train.slice(0, 4).bags.values
    assert ids[0] == ids[2] and ids[1] == ids[3] and ids[0] != ids[1]
    assert ids[:2].tolist() == Encoder.load(tmp_path / "data").encode({"color": ["red", "blue"]}).ids[0].values.tolist()
    with pytest.raises(ConfigError, match="keys and min_count exclude each other"):
        prepare(tmp_path / "logs.csv", tmp_path / "other", "csv", given, keys=True, min_count=3, quiet=True)
