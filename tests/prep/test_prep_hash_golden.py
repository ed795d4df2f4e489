"""Hashed features have the ids of the golden file, in every process and release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from lanner.prep.encoder import Encoder
from lanner.schema import Schema

GOLDEN = Path(__file__).with_name("hash_golden.json")


def golden() -> tuple[Schema, list[list]]:
    held = json.loads(GOLDEN.read_text(encoding="utf-8"))
    encoder = {"kind": "hash", "size": held["size"], "seed": held["seed"]}
    return Schema.parse({"sparse": [{"name": "text", "encoder": encoder}]}), held["rows"]


def ids() -> list[int]:
    schema, rows = golden()
    found: list[int] = Encoder(schema, {}).encode({"text": [row[0] for row in rows]}).ids[0].values.tolist()
    return found


def test_ids_are_those_of_the_golden_file() -> None:
    schema, rows = golden()
    expected = [1 + row[2] if row[0] else 0 for row in rows]
    assert len(rows) == 1000
    assert ids() == expected
    array = pa.array([row[0] for row in rows])
    for column in (array, array.cast(pa.large_string()), array.dictionary_encode()):
        assert Encoder(schema, {}).encode({"text": column}).ids[0].values.tolist() == expected


def test_ids_do_not_depend_on_the_process() -> None:
    code = "import test_prep_hash_golden as t; print(t.json.dumps(t.ids()))"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "random")
    ]
    for process in started:
        assert json.loads(process.communicate()[0]) == ids()
