"""What comes before the encoder (fill, modulo), ranges of identity encoders, and ids in order of appearance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prep_logs import read_split, read_vocab

from lanner.errors import DataError, SchemaError
from lanner.prep import prepare
from lanner.prep.bags import feature_keys
from lanner.prep.chunk import RawChunk
from lanner.prep.counts import Counts
from lanner.prep.encoder import Encoder
from lanner.schema import Schema


def encoder(**feature: Any) -> Encoder:
    return Encoder(Schema.parse({"sparse": [{"name": "a", **feature}]}), {})


def ids(values: list[Any], **feature: Any) -> list[int]:
    found: list[int] = encoder(**feature).encode({"a": values}).ids[0].values.tolist()
    return found


def test_identity_ranges() -> None:
    years = {"raw": "int", "encoder": {"kind": "identity", "size": 3, "lowest": 1999}}
    assert ids([1999, "2001", 2000], **years) == [0, 2, 1]
    with pytest.raises(DataError, match=r"column 'a', row 1: 2002 is outside 1999\.\.2001"):
        ids([1999, 2002], **years)
    years["encoder"] |= {"outside": 2, "missing": 1}  # type: ignore[operator]
    assert ids([1999, 2002, None, -(2**63), 2**63 - 1], **years) == [0, 2, 1, 2, 2]
    with pytest.raises(SchemaError, match=r"outside id 3 is outside 0\.\.2"):
        ids([1], raw="int", encoder={"kind": "identity", "size": 3, "outside": 3})


def test_values_outside_an_identity_range_stop_prep_unless_they_have_an_id(tmp_path: Path) -> None:
    (tmp_path / "logs.csv").write_text("y,a\n1,-1\n0,1\n1,2\n0,3\n")
    schema = {"labels": [{"name": "y"}], "sparse": [{"name": "a", "raw": "int"}]}
    schema["sparse"][0]["encoder"] = {"kind": "identity", "size": 4, "lowest": -1}  # type: ignore[assignment]
    with pytest.raises(DataError, match=r"line 5: column 'a': '3' is not in -1\.\.2, the values of table 'a'"):
        prepare(tmp_path / "logs.csv", tmp_path / "out", "csv", Schema.parse(schema), split="none")
    schema["sparse"][0]["encoder"]["outside"] = 0  # type: ignore[index]
    prepare(tmp_path / "logs.csv", tmp_path / "out", "csv", Schema.parse(schema), split="none")
    assert read_split(tmp_path / "out", "train")["a"].tolist() == [0, 2, 3, 0]


def test_modulo_and_fill_come_before_every_encoder() -> None:
    identity = {"kind": "identity", "size": 10}
    assert ids(["a", "14", None], raw="hex", modulo=10, fill="f", encoder=identity) == [0, 0, 5]
    assert ids([-1, 12, None], raw="int", modulo=10, fill=-3, encoder=identity) == [9, 2, 7]
    hashing = {"kind": "hash", "size": 1000}
    assert ids([None, "x"], fill="none", encoder=hashing) == ids(["none", "x"], encoder=hashing)
    assert ids([25], raw="int", modulo=10, encoder=hashing) == ids([5], raw="int", encoder=hashing)


def test_a_blank_is_missing_in_files_and_requests() -> None:
    identity = {"kind": "identity", "size": 10, "missing": 9}
    assert ids([0, 3, None], raw="int", blank=0, encoder=identity) == [9, 3, 9]
    assert ids(["-", "x", ""], blank="-", encoder={"kind": "hash", "size": 99})[::2] == [0, 0]
    bags = encoder(raw="int", blank=0, hotness=None, max_hotness=2, encoder=identity)
    found = bags.encode({"a": [[0, 1, 2, 3, 0, 0], [0], [5]]}).ids[0]
    assert found.offsets is not None
    assert (found.values.tolist(), found.offsets.tolist(), found.missing) == ([2, 3, 5], [0, 2, 2, 3], 1)


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"modulo": 5}, "modulo 5 needs raw hex or int, not string"),
        ({"hotness": None, "fill": "x"}, "fill is for one value a row"),
        ({"hotness": None, "encoder": {"kind": "vocab", "reserved": False}}, "id 0, which has to be reserved"),
        ({"encoder": {"kind": "vocab", "reserved": False, "unknown_buckets": 2}}, "unknown_buckets 2 are reserved ids"),
    ],
)
def test_fields_that_do_not_fit_are_refused(feature: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        encoder(**feature)


def test_fingerprints_of_schemas_without_the_new_fields_stay() -> None:
    plain = Schema.parse(
        {"sparse": [{"name": "a", "raw": "hex"}, {"name": "b", "encoder": {"kind": "hash", "size": 9}}]}
    )
    assert plain.fingerprint() == "36c953323e992c88"
    changed = Schema.parse({"sparse": [{"name": "a", "raw": "hex", "fill": "0"}, plain.sparse[1].model_dump()]})
    assert changed.fingerprint() != plain.fingerprint()
    assert Schema.from_yaml(changed.to_yaml()) == changed


def test_ids_by_first_appearance_fill_and_rows_from_files(tmp_path: Path) -> None:
    (tmp_path / "logs.csv").write_text("y,a\n" + "".join(f"1,{v}\n" for v in ("q", "", *"bqbbz", "", "a")))
    encoding = {"kind": "vocab", "min_count": 2, "order": "seen", "unknown_buckets": 1}
    schema = Schema.parse({"labels": [{"name": "y"}], "sparse": [{"name": "a", "fill": "-", "encoder": encoding}]})
    summary = prepare(tmp_path / "logs.csv", tmp_path / "out", "csv", schema, split="none")
    assert read_vocab(tmp_path / "out", "a") == {"q": 2, "-": 3, "b": 4}
    assert read_split(tmp_path / "out", "train")["a"].tolist() == [2, 3, 4, 2, 4, 4, 1, 3, 1]
    assert (summary.features[0].missing, summary.features[0].unknown) == ({"train": 2}, {"train": 2})


def test_ids_beyond_max_rows_come_round_again(tmp_path: Path) -> None:
    (tmp_path / "logs.csv").write_text("a\n" + "".join(f"{v}\n" for v in "abcdefg"))
    encoding = {"kind": "vocab", "min_count": 1, "order": "seen", "unknown_buckets": 1, "max_rows": 5}
    schema = Schema.parse({"sparse": [{"name": "a", "encoder": encoding}]})
    summary = prepare(tmp_path / "logs.csv", tmp_path / "out", "csv", schema, split="none", labelled=False)
    assert read_split(tmp_path / "out", "train")["a"].tolist() == [2, 3, 4, 0, 1, 2, 3]
    assert (summary.features[0].table_rows, summary.features[0].unknown) == (5, {"train": 0})


SHARED = Schema.parse(
    {
        "sparse": [
            {"name": "a", "raw": "int", "table": "t", "encoder": {"kind": "vocab", "min_count": 2, "order": "seen"}},
            {"name": "b", "raw": "int", "table": "t", "encoder": {"kind": "vocab", "min_count": 2, "order": "seen"},
             "hotness": None},
        ]
    }
)  # fmt: skip


@given(
    st.lists(st.tuples(st.none() | st.integers(-5, 60), st.lists(st.integers(-5, 60), max_size=4)), max_size=80),
    st.integers(1, 90),
    st.sampled_from([1 << 20, 2_000]),
)
def test_first_appearance_in_shared_tables_however_rows_are_cut_and_memory_is_short(
    rows: list[tuple[int | None, list[int]]], cut: int, memory: int
) -> None:
    def read() -> Iterator[RawChunk]:
        for at in range(0, len(rows), cut):
            part = rows[at : at + cut]
            one = feature_keys(SHARED.sparse[0], [row[0] for row in part]).keys
            bag = feature_keys(SHARED.sparse[1], [row[1] for row in part]).keys
            yield RawChunk(len(part), np.zeros((len(part), 0), np.float32), np.zeros((len(part), 0)), [one, bag])

    counts = Counts(SHARED, memory)
    for chunk in read():
        for task in counts.work(chunk):
            task()
        counts.drop_largest()
    found = counts.vocabularies(read)["t"]
    first: dict[int, int] = {}
    seen: list[int] = []
    for number, (one, bag) in enumerate(rows):
        for value in (*bag, *([] if one is None else [one])):
            seen.append(value)
            first.setdefault(value, number)
    wanted = sorted((v for v in first if seen.count(v) >= 2), key=lambda v: (first[v], v))
    assert found.keys.tolist() == wanted
