"""The hashes against plain Python, against the xxhash package, and the strict parsers against int()."""

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import ConfigError
from lanner.kernels.hashing import bucket, mix64, parse, reference, scatter, xxh64

int64 = st.integers(-(2**63), 2**63 - 1)


def joined(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    return np.frombuffer(b"".join(texts) or b"\0", np.uint8), offsets


@given(st.lists(int64), st.integers(0, 2**63 - 1), st.integers(1, 2**62))
def test_mix_and_bucket_equal_the_reference(keys: list[int], seed: int, size: int) -> None:
    array = np.array(keys, np.int64)
    assert mix64(array).tolist() == [reference.mix64(key) for key in keys]
    assert bucket(array, seed, size).tolist() == [reference.bucket(key, seed, size) for key in keys]
    assert (scatter(array, seed) % np.uint64(size)).tolist() == bucket(array, seed, size).tolist()
    assert len(np.unique(scatter(array, seed))) == len(np.unique(array))


def test_uint32_keys_hash_like_their_int64_values() -> None:
    keys = np.array([0, 1, 2**31, 2**32 - 1], np.uint32)
    assert np.array_equal(mix64(keys), mix64(keys.astype(np.int64)))
    assert np.array_equal(bucket(keys, 3, 1000), bucket(keys.astype(np.int64), 3, 1000))


def test_buckets_fill_evenly_for_keys_in_a_row_and_in_strides() -> None:
    for keys in (np.arange(100_000), np.arange(100_000) << 32, np.arange(100_000) * 1000):
        counts = np.bincount(bucket(keys, 0, 100), minlength=100)
        assert counts.min() > 800 and counts.max() < 1200


@pytest.mark.parametrize(("seed", "size"), [(-1, 10), (0, 0)])
def test_bucket_refuses_what_it_cannot_do(seed: int, size: int) -> None:
    with pytest.raises(ConfigError, match=f"size {size} and seed {seed}"):
        bucket(np.arange(3), seed, size)


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(0, 2**64 - 1))
def test_xxh64_equals_the_reference_and_the_xxhash_package(texts: list[bytes], seed: int) -> None:
    expected = [xxhash.xxh64_intdigest(text, seed) for text in texts]
    assert xxh64(*joined(texts), seed).tolist() == expected
    assert [reference.xxh64(text, seed) for text in texts] == expected


def test_xxh64_of_many_texts_on_all_threads() -> None:
    texts = [f"value {k}".encode() * (k % 9) for k in range(50_000)]
    assert xxh64(*joined(texts)).tolist() == [xxhash.xxh64_intdigest(text) for text in texts]


def parsed(kernel: object, texts: list[bytes], kind: type) -> list[int | str | None]:
    data, offsets = joined(texts)
    keys, missing, bad = np.zeros(len(texts), kind), np.zeros(len(texts), bool), np.zeros(len(texts), bool)
    kernel(0, len(texts), data, offsets, keys, missing, bad)  # type: ignore[operator]
    return [
        "bad" if wrong else None if absent else int(key) for key, absent, wrong in zip(keys, missing, bad, strict=True)
    ]


def by_hand(text: bytes, base: int) -> int | str | None:
    digits = text.removeprefix(b"-") if base == 10 else text
    allowed = b"0123456789" if base == 10 else b"0123456789abcdefABCDEF"
    if not text:
        return None
    if not digits or any(char not in allowed for char in digits) or (base == 16 and len(text) > 8):
        return "bad"
    value = int(text, base)
    return value if base == 16 or -(2**63) <= value < 2**63 else "bad"


EDGES = [str(edge + near).encode() for edge in (0, 2**63, -(2**63), 10**19, 2**64, -(10**19)) for near in (-1, 0, 1)]


@given(st.lists(st.sampled_from(EDGES) | st.text("0123456789-+. aé", max_size=22).map(str.encode)))
def test_integers_are_parsed_strictly(texts: list[bytes]) -> None:
    assert parsed(parse.int_keys, texts, np.int64) == [by_hand(text, 10) for text in texts]


@given(st.lists(st.text("0189abfABFgG-x ", max_size=10).map(str.encode)))
def test_hex_is_parsed_strictly(texts: list[bytes]) -> None:
    assert parsed(parse.hex_keys, texts, np.uint32) == [by_hand(text, 16) for text in texts]
