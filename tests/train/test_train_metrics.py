"""Metrics against independent computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.train import metrics


def pairs_auc(labels: list[float], scores: list[float], weight: list[float]) -> float | None:
    """Share of (positive, negative) pairs in the right order, ties half: the definition, in O(n^2)."""
    won = total = 0.0
    for y, s, w in zip(labels, scores, weight, strict=True):
        for y2, s2, w2 in zip(labels, scores, weight, strict=True):
            pair = y * w * (1 - y2) * w2
            total += pair
            won += pair * (1.0 if s > s2 else 0.5 if s == s2 else 0.0)
    return won / total if total else None


rows = st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 6), st.sampled_from([1.0, 0.5, 3.0]))


@given(st.lists(rows, max_size=30))
def test_auc_is_the_share_of_pairs_in_order(drawn: list[tuple[float, int, float]]) -> None:
    labels, scores, weight = ([row[k] for row in drawn] for k in range(3))
    expected = pairs_auc(labels, scores, weight)
    found = metrics.auc(labels, scores, weight)
    assert found == (expected if expected is None else pytest.approx(expected, abs=1e-12))


def test_a_soft_label_is_part_positive_part_negative() -> None:
    labels, scores = [0.3, 1.0, 0.0, 0.7], [2.0, 1.0, 1.0, 3.0]
    assert metrics.auc(labels, scores) == pytest.approx(pairs_auc_soft(labels, scores))


def pairs_auc_soft(labels: list[float], scores: list[float]) -> float:
    """Every row is split into a positive and a negative with the weights y and 1 - y."""
    both = [1.0] * len(labels) + [0.0] * len(labels)
    weight = [*labels, *(1 - y for y in labels)]
    found = pairs_auc(both, scores * 2, weight)
    assert found is not None
    return found


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_auc_does_not_depend_on_the_batches(batch: int) -> None:
    labels, scores = np.array([1, 0, 0, 0]), np.array([0.3, 0.2, 0.9, 0.8])
    collector = metrics.Collector()
    for start in range(0, 4, batch):
        collector.add(scores[start : start + batch, None], labels[start : start + batch, None])
    found, truth, weight = collector.arrays()
    assert weight is None
    assert metrics.auc(truth, found) == pytest.approx(1 / 3)


def test_equal_scores_give_one_half() -> None:
    assert metrics.auc([1, 0, 1, 0, 0], [0.2] * 5) == 0.5


@pytest.mark.parametrize("value", [0, 1])
def test_one_class_has_no_auc_but_a_log_loss(value: int) -> None:
    found = metrics.summary(np.full(100, value), np.full(100, 0.25))
    assert found["auc"] is None
    assert found["auc_reason"] == f"every label is {value}"
    assert found["log_loss"] == pytest.approx(-math.log(0.25 if value else 0.75))
    assert found["rows"] == 100
    assert found["calibration"] == (pytest.approx(0.25) if value else None)


def test_log_loss_weighs_every_row_the_same() -> None:
    labels, scores = np.zeros(129), np.full(129, 0.5)
    labels[128], scores[128] = 1, 0.01
    assert metrics.log_loss(labels, scores) == pytest.approx(0.723473, abs=1e-6)


def test_saturated_probabilities_have_a_finite_loss() -> None:
    assert metrics.log_loss([1, 0], np.array([0, 1], np.float32)) == pytest.approx(-math.log(metrics.CLIP), rel=1e-6)


def test_normalized_entropy_and_calibration() -> None:
    labels, base = np.array([1, 0, 0, 0]), -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    found = metrics.summary(labels, np.full(4, 0.25))
    assert found["normalized_entropy"] == pytest.approx(1)
    assert found["calibration"] == pytest.approx(1)
    assert metrics.base_log_loss(labels) == pytest.approx(base)
    assert metrics.summary(labels, np.full(4, 0.5))["calibration"] == pytest.approx(2)


def test_weights_count_like_repeated_rows() -> None:
    draw = np.random.default_rng(0)
    labels, scores, times = draw.integers(0, 2, 40), draw.random(40), draw.integers(0, 4, 40)
    weighted = metrics.summary(labels, scores, times)
    repeated = metrics.summary(np.repeat(labels, times), np.repeat(scores, times))
    for name in ("auc", "log_loss", "normalized_entropy", "calibration"):
        assert weighted[name] == pytest.approx(repeated[name])


def test_what_is_not_finite_is_undefined() -> None:
    found = metrics.summary([1, 0, 1], [0.5, math.nan, 0.5])
    assert found["auc"] is found["log_loss"] is None
    assert found["auc_reason"] == "1 of 3 predictions are not finite"
    assert metrics.summary([], [])["auc_reason"] == "there are no rows"
    assert metrics.summary([0, 1], [0.5, 0.5], [0, 0])["log_loss_reason"] == "the weights of all rows are 0"


def test_several_labels_are_averaged_where_defined() -> None:
    labels = np.array([[1, 0], [0, 0], [1, 0]])
    scores = np.array([[0.9, 0.1], [0.1, 0.1], [0.8, 0.1]])
    found = metrics.evaluate(labels, scores, ["click", "buy"])
    assert found["auc"] == 1.0
    assert found["labels"]["buy"]["auc"] is None
    assert found["log_loss"] == pytest.approx(np.mean([each["log_loss"] for each in found["labels"].values()]))


def test_a_limited_collector_keeps_the_last_batches() -> None:
    collector = metrics.Collector(limit=3)
    for value in range(6):
        collector.add(np.full((2, 1), value), np.full((2, 1), value))
    assert collector.arrays()[0].reshape(-1).tolist() == [3, 3, 4, 4, 5, 5]


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="2 predictions for 3 labels"):
        metrics.summary([0, 1, 1], [0.5, 0.5])


def test_what_is_better() -> None:
    assert metrics.improves("auc", 0.7, 0.6)
    assert not metrics.improves("log_loss", 0.7, 0.6)
    assert metrics.improves("log_loss", 0.7, None)
