"""Optimizer settings: checked, described and parsed back."""

from __future__ import annotations

import json

import pytest

from lanner.embedding.optimizers import SGD, Adagrad, Adam, RowWiseAdagrad, describe, parse
from lanner.errors import ConfigError


@pytest.mark.parametrize(
    "optimizer", [SGD(0.5), Adagrad(0.1, 1e-6, 0.1), RowWiseAdagrad(0.2), Adam(0.01, (0.8, 0.99), 1e-7)]
)
def test_round_trip_through_json(optimizer):
    assert parse(json.loads(json.dumps(describe(optimizer)))) == optimizer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(-0.1), "SGD: lr is -0.1"),
        (lambda: SGD(float("nan")), "lr is nan"),
        (lambda: Adagrad(0.1, initial_accumulator=-1), "initial_accumulator"),
        (lambda: RowWiseAdagrad(0.1, eps=-1), "eps"),
        (lambda: Adam(0.1, (0.9, 1.0)), r"betas\[1\] is 1.0"),
        (lambda: Adam(0.1, (0.9,)), "two numbers"),
        (lambda: parse({"name": "Lion"}), "'Lion' is not known; expected one of SGD, Adagrad, RowWiseAdagrad, Adam"),
        (lambda: parse({"name": "SGD", "momentum": 0.9}), "SGD.*momentum"),
    ],
)
def test_wrong_settings_are_errors_naming_them(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
