"""Levels and settings are read as written, or refused by name."""

from __future__ import annotations

import pytest

from lanner.errors import ConfigError
from lanner.perf import Settings, parse_levels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", (8,)),
        ("1,4,32", (1, 4, 32)),
        ("1:32", (1, 2, 4, 8, 16, 32)),
        ("1:24", (1, 2, 4, 8, 16, 24)),
        ("1:9:4", (1, 5, 9)),
        ("1:10:4", (1, 5, 9, 10)),
        ("2:50:x5", (2, 10, 50)),
        ("7:7", (7,)),
        ("0.5:2", (0.5, 1, 2)),
    ],
)
def test_levels(text: str, expected: tuple[float, ...]) -> None:
    assert parse_levels(text, "--rate") == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-1", "4:1", "1:8:0", "1:8:x1", "1:2:3:4", "1:8:-2", "inf", "nan", "1,"]
)
def test_bad_levels_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="--concurrency"):
        parse_levels(text, "--concurrency")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "closed loop"),
        ({"concurrency": (1,), "rates": (5.0,)}, "not both"),
        ({"concurrency": (1,), "duration": 0}, "duration"),
        ({"concurrency": (1.5,)}, "concurrency.0"),
        ({"concurrency": (1,), "low": 5, "high": 5}, "5:5"),
        ({"concurrency": (1,), "ranges": {"x": (3, 2)}}, "3:2"),
        ({"concurrency": (1,), "protocol": "ftp"}, "protocol"),
    ],
)
def test_bad_settings_are_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings.parse({"name": "ctr", "url": "h:1", **values})
