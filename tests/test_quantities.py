"""Amounts with units."""

from __future__ import annotations

import pytest

from lanner.errors import ConfigError
from lanner.quantities import bytes_text, parse_amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("8 GiB", 8 * 2**30),
        ("8GB", 8e9),
        ("1.5gib", 1.5 * 2**30),
        ("20GB/s", 20e9),
        ("300G", 300e9),
        ("4096", 4096),
        ("1e9", 1e9),
        (512, 512),
        ("2kib", 2048),
    ],
)
def test_units(text: str | int, amount: float) -> None:
    assert parse_amount(text, "memory") == amount


@pytest.mark.parametrize("text", ["", "GiB", "8 bits", "-1GB", "0", "1.2.3GB", "nan", "inf", "1e400", "8 GiB of it"])
def test_what_is_no_amount_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"memory.*expected an amount above 0") as raised:
        parse_amount(text, "memory")
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1536, "1.5 KiB"),
        (8 << 30, "8 GiB"),
        (1001 << 20, "1001 MiB"),
        (1 << 61, "2048 PiB"),
    ],
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert bytes_text(count) == text
