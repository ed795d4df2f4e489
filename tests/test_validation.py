"""`lanner.validation`: errors that name the key, and show no more of a value than helps."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, model_validator

from lanner.errors import ConfigError
from lanner.validation import built, differences, validated


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner = Inner()
    low: int = 0
    high: int = 1

    @model_validator(mode="after")
    def _ordered(self) -> Outer:
        if self.low > self.high:
            raise ValueError(f"low is {self.low}, expected at most {self.high}")
        return self


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"inner": {"size": "x"}}, "here: inner.size: Input should be a valid integer.*'x'\\)$"),
        ({"inner": 3}, r"here: inner: expected a mapping \(got 3\)$"),
        ({"inner": {"sizes": 3}}, "here: inner.sizes: no such key$"),
        ({"outer": 3}, "here: outer: no such key; the keys here are inner, low, high$"),
        ({"low": "x" * 500}, r"here: low: .* \(got 'x{59}…\)$"),
        ({"inner": {"size": 7}, "low": 5}, "here: low is 5, expected at most 1$"),
    ],
)
def test_mistakes_are_named_with_the_value_at_fault_alone(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validated(Outer, given, "here")


def test_a_call_says_which_key_is_unknown_or_missing() -> None:
    def make(low: int, high: int = 3) -> range:
        return range(low, high)

    assert built(make, {"low": 1}, "range") == range(1, 3)
    with pytest.raises(ConfigError, match=r"range: no such key: 'step'; the keys are low, high$"):
        built(make, {"low": 1, "step": 2}, "range")
    with pytest.raises(ConfigError, match=r"range: low is missing$"):
        built(make, {"high": 2}, "range")
    with pytest.raises(ConfigError, match="range: 'str' object"):
        built(make, {"low": "1"}, "range")


def test_differences_name_the_keys_in_full() -> None:
    ours = {"a": {"b": 1, "c": [1, 2]}, "d": None, "e": 0}
    theirs = {"a": {"b": 2, "c": [1, 2]}, "e": {"f": 0}, "g": 5}
    assert differences(ours, theirs, "x") == [("x.a.b", 1, 2), ("x.e", 0, {"f": 0}), ("x.g", None, 5)]
    assert differences(ours, ours, "x") == []
