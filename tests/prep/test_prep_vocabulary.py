"""Counting and vocabularies against Counter and sorted()."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import DataError
from lanner.prep.bags import feature_keys
from lanner.prep.chunk import Keys
from lanner.prep.counting import TableCounter
from lanner.prep.keys import scalar_keys
from lanner.prep.vocabulary import UNKNOWN, Vocabulary
from lanner.schema import Raw, Sparse, VocabEncoder


def keys_of(raw: Raw, values: Any) -> Keys:
    return feature_keys(Sparse(name="c", raw=raw), values, keep_texts=True).keys


def counted(raw: Raw, *chunks: Any) -> TableCounter:
    counter = TableCounter(raw)
    for chunk in chunks:
        counter.add(keys_of(raw, chunk))
    return counter


def vocabulary(raw: Raw, *chunks: Any, **encoder: Any) -> Vocabulary:
    return Vocabulary.fit(counted(raw, *chunks), VocabEncoder(**{"min_count": 1, **encoder}))


def ids(words: Vocabulary, values: Any) -> list[int]:
    found = scalar_keys(words.raw, values, "c")
    return words.encode(found.keys, found.missing).tolist()


values_of = {
    "int": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5),
    "hex": st.integers(0, 2**32 - 1) | st.integers(0, 5),
    "string": st.text("abé", max_size=3),
}


@pytest.mark.parametrize("raw", ["int", "hex", "string"])
@given(st.data(), st.integers(1, 3), st.none() | st.integers(1, 4), st.integers(0, 3))
def test_ids_fall_by_count_then_rise_by_value(
    raw: Raw, data: st.DataObject, min_count: int, max_size: int | None, buckets: int
) -> None:
    chunks = data.draw(st.lists(st.lists(st.none() | values_of[raw], max_size=12), max_size=4))
    counts = Counter(value for chunk in chunks for value in chunk if value is not None and value != "")
    order = sorted(counts, key=lambda v: (-counts[v], v.encode() if isinstance(v, str) else v))
    known = [value for value in order if counts[value] >= min_count][:max_size]

    words = vocabulary(raw, *chunks, min_count=min_count, max_size=max_size, unknown_buckets=buckets)

    assert words.counts.tolist() == [counts[value] for value in known]
    assert words.rows == 1 + buckets + len(known)
    assert ids(words, known) == list(range(1 + buckets, words.rows)) == words.ids.tolist()
    shown = [f"{value:08x}" for value in known] if raw == "hex" else known
    assert words.decode(words.ids) == shown
    rest = [value for value in order if value not in known]
    assert all((0 if not buckets else 1) <= i <= buckets for i in ids(words, rest))


@pytest.mark.parametrize("raw", ["int", "hex", "string"])
@given(st.data())
def test_counts_do_not_depend_on_chunks_merging_or_storage(raw: Raw, data: st.DataObject) -> None:
    chunks = data.draw(st.lists(st.lists(values_of[raw], max_size=12), min_size=1, max_size=4))
    whole = vocabulary(raw, [value for chunk in chunks for value in chunk])
    merged = counted(raw)
    for chunk in reversed(chunks):
        part = counted(raw, chunk)
        part.save("memory://counts/part.parquet")
        merged.merge(TableCounter.load("memory://counts/part.parquet"))
    again = Vocabulary.fit(merged, VocabEncoder(min_count=1))
    assert again.keys.tolist() == whole.keys.tolist()
    assert again.counts.tolist() == whole.counts.tolist()


@pytest.mark.parametrize("raw", ["int", "hex", "string"])
@given(st.data(), st.integers(0, 2))
def test_saved_vocabularies_come_back_exactly(raw: Raw, data: st.DataObject, buckets: int) -> None:
    values = data.draw(st.lists(values_of[raw]))
    words = vocabulary(raw, values, unknown_buckets=buckets)
    words.save("memory://vocab/c.parquet")
    again = Vocabulary.load("memory://vocab/c.parquet")
    assert (again.raw, again.unknown_buckets, again.rows) == (raw, buckets, words.rows)
    assert np.array_equal(again.keys, words.keys) and np.array_equal(again.counts, words.counts)
    assert again.decode(range(again.rows)) == words.decode(range(words.rows))
    probe = [*values, *data.draw(st.lists(values_of[raw]))]
    assert ids(again, probe) == ids(words, probe)


def test_the_file_is_plain_parquet(tmp_path: Path) -> None:
    for raw, values, written in (("hex", [10, 10, 11], ["0000000a", "0000000b"]), ("int", [5, 5, -1], [5, -1])):
        vocabulary(raw, values).save(tmp_path / "v.parquet")
        table = pq.read_table(tmp_path / "v.parquet")
        assert table.to_pydict() == {"value": written, "id": [1, 2], "count": [2, 1]}


@pytest.mark.parametrize(
    ("raw", "fitted", "probe", "unseen"),
    [("int", [1, 2, 3, 5, 6], [1, 2, 4, 7, 8], [4, 7, 8]), ("string", list("acdeg"), list("abfh"), list("bfh"))],
)
@pytest.mark.parametrize("buckets", [0, 1])
def test_unseen_values_are_unknown_and_never_a_neighbour(
    raw: Raw, fitted: list[Any], probe: list[Any], unseen: list[Any], buckets: int
) -> None:
    words = vocabulary(raw, fitted, unknown_buckets=buckets)
    found = dict(zip(probe, ids(words, probe), strict=True))
    assert {found[value] for value in unseen} == {buckets}
    assert all(words.decode([found[value]]) == [value] for value in probe if value not in unseen)


@pytest.mark.parametrize("buckets", [0, 5])
def test_encoder_decoder_and_a_hand_lookup_agree(buckets: int, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    tokens = [f"t{k}" for k in random.zipf(1.3, 10_000) % 5000]
    probe: list[str | None] = [None if random.random() < 0.1 else f"t{k}" for k in random.integers(0, 8000, 10_000)]
    words = vocabulary("string", tokens, min_count=2, unknown_buckets=buckets)
    words.save(tmp_path / "v.parquet")
    rows = pq.read_table(tmp_path / "v.parquet").to_pydict()
    by_hand = dict(zip(rows["value"], rows["id"], strict=True))
    found = ids(words, probe)
    for token, number in zip(probe, found, strict=True):
        if token is None:
            assert number == 0
        elif token in by_hand:
            assert number == by_hand[token]
        else:
            assert (1 if buckets else 0) <= number <= buckets
    for token, shown in zip(probe, words.decode(found), strict=True):
        known = token if token in by_hand else UNKNOWN if buckets and token is not None else None
        assert shown == known


def test_bags_and_features_that_share_a_table_count_together() -> None:
    counter = TableCounter("int")
    counter.add(keys_of("int", [1, None, 2]))
    counter.add(feature_keys(Sparse(name="g", raw="int", hotness=None), [[2, 2], None, [3]], True).keys)
    assert sorted(zip(*counter.table().to_pydict().values(), strict=True)) == [(1, 1), (2, 3), (3, 1)]


def test_dictionary_columns_count_like_plain_ones() -> None:
    texts = ["b", "a", "b", None, "c"]
    plain = pa.array(texts)
    shuffled = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2, None, 1], pa.int32()), pa.array(["a", "c", "b"]))
    words = [vocabulary("string", column) for column in (plain, plain.cast(pa.large_string()), shuffled)]
    assert len({tuple(w.decode(w.ids)) for w in words}) == len({tuple(w.counts.tolist()) for w in words}) == 1


def colliding_texts() -> tuple[str, str]:
    """Two texts of 16 bytes with one XXH64: its rounds over 8-byte words can be undone, so the second word of the
    second text is solved for until it is ASCII."""
    mask, p1, p2, p4, p5 = 2**64 - 1, 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

    def turn(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & mask

    def round_of(word: int) -> int:
        return turn(word * p2 & mask, 31) * p1 & mask

    def word_of(round_value: int) -> int:
        return turn(round_value * pow(p1, -1, 2**64) & mask, 33) * pow(p2, -1, 2**64) & mask

    def after(word: int) -> int:
        return (turn((p5 + 16 & mask) ^ round_of(word), 27) * p1 + p4) & mask

    first = b"collision", b"abcdefgh"
    words = [int.from_bytes(part[:8], "little") for part in first]
    target = after(words[0]) ^ round_of(words[1])
    for number in range(10**6):
        head = f"{number:08d}".encode()
        tail = word_of(target ^ after(int.from_bytes(head, "little"))).to_bytes(8, "little")
        if tail.isascii():
            return (first[0][:8] + first[1]).decode(), (head + tail).decode()
    raise AssertionError("no collision found")


def test_two_texts_with_one_key_are_an_error_and_not_one_value() -> None:
    one, other = colliding_texts()
    assert one != other and xxhash.xxh64_digest(one.encode()) == xxhash.xxh64_digest(other.encode())
    for chunks in ([[one, other]], [["x", one], [other]]):
        with pytest.raises(DataError, match="have the same 64-bit key"):
            counted("string", *chunks)
    left, right = counted("string", [one]), counted("string", [other])
    with pytest.raises(DataError, match="have the same 64-bit key"):
        left.merge(right)


def test_errors_name_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"id 9 is outside 0..2"):
        vocabulary("int", [1, 2]).decode([0, 9])
    with pytest.raises(DataError, match=r"string.*cannot be added.*int"):
        counted("int").merge(counted("string"))
    pq.write_table(pa.table({"value": [1]}), tmp_path / "v.parquet")
    with pytest.raises(DataError, match=r"v\.parquet: not a vocabulary"):
        Vocabulary.load(tmp_path / "v.parquet")
    with pytest.raises(DataError, match=r"v\.parquet: not a file of value counts"):
        TableCounter.load(tmp_path / "v.parquet")
    table = pa.table({"value": [1, 2], "id": [1, 3], "count": [1, 1]})
    notes = {"lanner.raw": "int", "lanner.unknown_buckets": "0"}
    pq.write_table(table.replace_schema_metadata(notes), tmp_path / "v.parquet")
    with pytest.raises(DataError, match="without gaps"):
        Vocabulary.load(tmp_path / "v.parquet")
