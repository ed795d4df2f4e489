"""Optimizer settings: checked, described and parsed back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from dense_optimizers import OPTIMIZERS

from lanner.embedding.optimizers import FTRL, SGD, Adagrad, Adam, AdamW, RMSProp, RowWiseAdagrad, describe, parse
from lanner.errors import ConfigError


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_round_trip_through_json(optimizer):
    for one in (optimizer, replace(optimizer, weight_decay=0.5, clip_norm=2.0)):
        assert parse(json.loads(json.dumps(describe(one)))) == one
        assert type(parse(describe(one))) is type(optimizer)


def test_what_is_left_out_has_its_default():
    assert parse({"name": "AdamW", "betas": [0.8, 0.9]}) == AdamW(0.001, (0.8, 0.9), 1e-8, weight_decay=0.01)
    assert parse({"name": "Adam"}) == Adam() != AdamW()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(-0.1), "SGD: lr is -0.1"),
        (lambda: SGD(float("nan")), "lr is nan"),
        (lambda: Adagrad(0.1, initial_accumulator=-1), "initial_accumulator"),
        (lambda: RowWiseAdagrad(0.1, eps=-1), "eps"),
        (lambda: Adam(0.1, (0.9, 1.0)), r"betas\[1\] is 1.0"),
        (lambda: Adam(0.1, (0.9,)), "two numbers"),
        (lambda: SGD(0.1, momentum=1.0), "SGD: momentum is 1.0, .* 0 <= momentum < 1"),
        (lambda: SGD(0.1, nesterov=True), "SGD: nesterov is True, but momentum is 0"),
        (lambda: SGD(0.1, weight_decay=-1), "SGD: weight_decay is -1"),
        (lambda: SGD(0.1, clip_norm=0), "SGD: clip_norm is 0, .* 0 < clip_norm"),
        (lambda: SGD(0.1, clip_norm=float("inf")), "clip_norm is inf"),
        (lambda: RMSProp(0.1, alpha=1), "RMSProp: alpha is 1"),
        (lambda: FTRL(0.1, l1=-1), "FTRL: l1 is -1"),
        (lambda: AdamW("much"), "AdamW: lr is 'much'"),
        (
            lambda: parse({"name": "Lion"}),
            "'Lion' is not known; expected one of SGD, Adagrad, RowWiseAdagrad, RMSProp, Adam, AdamW, FTRL",
        ),
        (lambda: parse({"name": "SGD", "beta": 0.9}), "SGD.*beta"),
    ],
)
def test_wrong_settings_are_errors_naming_them(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
