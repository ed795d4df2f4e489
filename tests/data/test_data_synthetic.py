"""Synthetic logs: the format, the planted signal, and that nothing but seed and options decides them."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lanner.cli.main import app
from lanner.data import best, synthetic
from lanner.data.synthetic import Options, make_world, write_logs
from lanner.errors import ConfigError
from lanner.kernels import synthetic as kernel


def read(path: Path) -> list[list[str]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [line.split("\t") for line in data.decode().splitlines()]


def test_lines_have_criteos_format(tmp_path: Path) -> None:
    path = tmp_path / "logs.tsv"
    summary = write_logs(path, 2000)
    lines = read(path)
    assert len(lines) == summary.rows == 2000 and path.stat().st_size == summary.bytes
    assert {len(line) for line in lines} == {40}
    assert {line[0] for line in lines} == {"0", "1"}
    assert sum(line[0] == "1" for line in lines) == summary.clicks
    numbers = [int(cell) for line in lines for cell in line[1:14] if cell]
    assert min(numbers) >= -2 and max(numbers) > 1000
    hashes = {cell for line in lines for cell in line[14:] if cell}
    assert all(len(cell) == 8 and set(cell) <= set("0123456789abcdef") for cell in hashes)
    empty = np.array([[cell == "" for cell in line[1:]] for line in lines]).mean()
    assert 0.07 < empty < 0.13
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("chunk", [1, 7, 300])
def test_logs_do_not_depend_on_chunks_or_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    whole, pieces = tmp_path / "whole.tsv", tmp_path / "pieces.tsv"
    first = write_logs(str(whole), 300, seed=5)
    monkeypatch.setattr(synthetic, "CHUNK", chunk)
    monkeypatch.setenv("LANNER_THREADS", "1")
    second = write_logs(str(pieces), 300, seed=5)
    assert whole.read_bytes() == pieces.read_bytes()
    assert first.best.auc == second.best.auc and first.best.log_loss == pytest.approx(second.best.log_loss, rel=1e-12)


def test_more_rows_begin_with_the_same_rows(tmp_path: Path) -> None:
    short, long = tmp_path / "short.tsv", tmp_path / "long.tsv.gz"
    write_logs(str(short), 50, seed=1)
    write_logs(str(long), 80, seed=1)
    assert read(long)[:50] == read(short)
    write_logs(str(short), 50, seed=2)
    assert read(long)[:50] != read(short)


def test_options_shape_the_logs(tmp_path: Path) -> None:
    path = tmp_path / "logs.tsv"
    write_logs(str(path), 20_000, dense=2, sparse=3, cardinality=5, click_rate=0.1, missing=0.0)
    lines = read(path)
    assert {len(line) for line in lines} == {6}
    assert not any(cell == "" for line in lines for cell in line)
    assert [len({line[column] for line in lines}) for column in (3, 4, 5)] == [5, 5, 5]
    assert 0.09 < np.mean([line[0] == "1" for line in lines]) < 0.11


def test_only_dense_or_only_sparse_columns(tmp_path: Path) -> None:
    for options in ({"dense": 0}, {"sparse": 0}, {"dense": 1, "sparse": 0}, {"dense": 0, "sparse": 1}):
        write_logs(str(tmp_path / "logs.tsv"), 20, **options)
        assert {len(line) for line in read(tmp_path / "logs.tsv")} == {
            1 + options.get("dense", 13) + options.get("sparse", 26)
        }


def test_frequencies_follow_a_power_law() -> None:
    world = make_world(Options(sparse=1, dense=0, cardinality=1000, missing=0.0))
    ranks = kernel.rows(world, 0, 200_000).ranks[:, 0]
    counts = np.bincount(ranks, minlength=1000)
    assert counts.size == 1000
    expected = 200_000 * np.log((np.arange(1000) + 2) / (np.arange(1000) + 1)) / np.log(1001)
    assert np.abs(counts - expected)[:100].max() < 5 * np.sqrt(expected[0])
    assert (np.abs(counts - expected) < 6 * np.sqrt(expected) + 1).all()


def test_labels_follow_the_true_probabilities() -> None:
    made = kernel.rows(make_world(Options(seed=3)), 0, 200_000)
    probability = 1 / (1 + np.exp(-made.logits))
    assert abs(probability.mean() - 0.25) < 0.01
    assert abs(made.logits.std() - Options().signal) < 0.05
    for low, high in itertools.pairwise(np.linspace(0, 1, 11)):
        inside = (probability >= low) & (probability < high)
        if inside.sum() > 100:
            error = abs(made.labels[inside].mean() - probability[inside].mean())
            assert error < 4.5 * np.sqrt(0.25 / inside.sum())


def test_what_is_seen_decides_the_logit() -> None:
    """Rows with equal cells have equal logits: nothing hidden moves the click rate."""
    made = kernel.rows(make_world(Options(dense=1, sparse=3, cardinality=3)), 0, 50_000)
    cells = np.concatenate([made.dense, made.ranks], axis=1)
    _, first, group = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_allclose(made.logits, made.logits[first][group.reshape(-1)], atol=1e-12)


def test_best_scores_equal_the_definition() -> None:
    random = np.random.default_rng(0)
    logits = np.round(random.normal(size=400), 1)
    labels = (random.uniform(size=400) < 1 / (1 + np.exp(-logits))).astype(np.uint8)
    collected = best.Best(400)
    for part in np.array_split(np.arange(400), 7):
        collected.add(logits[part], labels[part])
    ones, zeros = logits[labels == 1][:, None], logits[labels == 0][None]
    scores = collected.scores()
    assert scores.auc == pytest.approx(((ones > zeros) + 0.5 * (ones == zeros)).mean())
    probability = 1 / (1 + np.exp(-logits))
    assert scores.log_loss == pytest.approx(-np.log(np.where(labels, probability, 1 - probability)).mean())


def test_counting_in_bins_comes_within_a_ten_thousandth(monkeypatch: pytest.MonkeyPatch) -> None:
    made = kernel.rows(make_world(Options()), 0, 50_000)
    exact = best.Best(50_000)
    exact.add(made.logits, made.labels)
    monkeypatch.setattr(best, "EXACT_UP_TO", 10)
    binned = best.Best(50_000)
    binned.add(made.logits, made.labels)
    assert binned.scores().auc == pytest.approx(exact.scores().auc, abs=1e-4)
    assert binned.scores().log_loss == exact.scores().log_loss


@pytest.mark.parametrize("rows", [0, 1])
def test_undefined_scores_are_none(tmp_path: Path, rows: int) -> None:
    summary = write_logs(str(tmp_path / "logs.tsv"), rows)
    assert summary.best.auc is None
    assert (summary.best.log_loss is None) == (rows == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": 0.6}, "missing is 0.6; expected 0.0 to 0.5"),
        ({"click_rate": 1.0}, "click_rate is 1.0"),
        ({"cardinality": 0}, "cardinality is 0"),
        ({"dense": 0, "sparse": 0}, "no columns"),
        ({"colour": 1}, "colour"),
    ],
)
def test_options_out_of_range_are_named(tmp_path: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        write_logs(str(tmp_path / "logs.tsv"), 5, **options)
    assert not list(tmp_path.iterdir())


def test_the_command_prints_and_stores_the_best_scores(tmp_path: Path) -> None:
    path = tmp_path / "logs.tsv.gz"
    result = CliRunner().invoke(app, ["synth", "--rows", "500", "--out", str(path), "--seed", "3", "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed == json.loads((tmp_path / "logs.tsv.gz.json").read_text())
    assert 0.7 < printed["best"]["auc"] < 1 and printed["rows"] == 500
    assert len(read(path)) == 500
