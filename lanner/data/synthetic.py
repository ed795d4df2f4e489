"""Synthetic click logs in Criteo's text format, with a planted signal and the best scores a model can reach on it."""

from __future__ import annotations

import gzip
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lanner import storage
from lanner.data.best import Best, BestScores
from lanner.errors import ConfigError
from lanner.kernels import synthetic
from lanner.kernels.synthetic import World
from lanner.progress import progress

CHUNK = 1 << 16
_CALIBRATION = 1 << 16
_CALIBRATION_ROW = 1 << 50

# Distinct values of the 26 categorical columns of the Criteo display advertising challenge of 2014.
CRITEO_SIZES = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)


@dataclass(frozen=True)
class Options:
    """What the logs look like.

    `cardinality` caps the column sizes, which otherwise are Criteo's; `missing` is the average share of empty cells;
    `signal` the standard deviation of the true logit; `fade` the share of rows of a value at which half its effect
    is left, so that what a model cannot learn from a million rows carries nothing.
    """

    dense: int = 13
    sparse: int = 26
    cardinality: int = 2_000
    click_rate: float = 0.25
    missing: float = 0.1
    signal: float = 1.6
    fade: float = 3e-3
    seed: int = 0

    def check(self) -> None:
        """Raises ConfigError naming the first option out of range."""
        for name, low, high in (
            ("dense", 0, 1 << 16),
            ("sparse", 0, 1 << 16),
            ("cardinality", 1, 2**31),
            ("missing", 0.0, 0.5),
            ("signal", 0.0, 10.0),
            ("fade", 0.0, 1.0),
            ("seed", 0, 2**63 - 1),
        ):
            if not low <= (value := getattr(self, name)) <= high:
                raise ConfigError(f"synth: {name} is {value}; expected {low} to {high}")
        if not 0.0 < self.click_rate < 1.0:
            raise ConfigError(f"synth: click_rate is {self.click_rate}; expected a share between 0 and 1")
        if not self.dense + self.sparse:
            raise ConfigError("synth: no columns; expected at least one dense or sparse column")


@dataclass(frozen=True)
class SynthSummary:
    """What was written: `best` is the score of the true probabilities against the labels drawn from them."""

    path: str
    rows: int
    bytes: int
    clicks: int
    click_rate: float
    best: BestScores
    options: Options
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def write_logs(path: str | os.PathLike[str], rows: int, quiet: bool = True, **options: Any) -> SynthSummary:
    """Write `rows` lines (label, integers, hex hashes; tab-separated) to `path`, gzip-compressed when it ends in .gz.

    `options` are the fields of `Options`. The bytes before compression depend on `rows` and the options alone. What
    is returned is also written to `path`.json. Raises ConfigError for an option out of range.
    """
    try:
        chosen = Options(**options)
    except TypeError as error:
        raise ConfigError(f"synth: {error}") from error
    chosen.check()
    if rows < 0:
        raise ConfigError(f"synth: rows is {rows}; expected at least 0")
    path, begun, written, best = os.fspath(path), time.monotonic(), 0, Best(rows)
    world = make_world(chosen)
    with _writer(path) as file, progress("synth", rows, quiet) as bar:
        for first in range(0, rows, CHUNK):
            made = synthetic.rows(world, first, min(CHUNK, rows - first))
            best.add(made.logits, made.labels)
            for piece in synthetic.text(world, made):
                file.write(piece.data)
                written += piece.size
            bar.advance(made.labels.size)
    summary = SynthSummary(
        path=path,
        rows=rows,
        bytes=written,
        clicks=best.clicks,
        click_rate=best.clicks / rows if rows else 0.0,
        best=best.scores(),
        options=chosen,
        seconds=round(time.monotonic() - begun, 3),
    )
    storage.write_text(f"{path}.json", json.dumps(summary.as_dict(), indent=2) + "\n")
    return summary


@contextmanager
def _writer(path: str) -> Iterator[IO[Any]]:
    with storage.publish(path) as file:
        if not path.endswith(".gz"):
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=file, mtime=0) as packed:
            yield packed  # type: ignore[misc]


def make_world(options: Options) -> World:
    """The parameters behind the logs; the logit is brought to the wanted spread and click rate on rows of their own."""
    random = np.random.default_rng([options.seed, options.dense, options.sparse])
    sizes = np.resize(np.array(CRITEO_SIZES), options.sparse).clip(max=options.cardinality)
    pairs = _pairs(sizes)
    dense = random.uniform(size=(4, options.dense))
    weight = 0.5 * random.choice([-1.0, 1.0], options.dense) * dense[0]
    curved = np.arange(options.dense) % 4 == 2
    world = World(
        seed=int(random.integers(2**63)),
        log_size=np.log(sizes + 1.0),
        salt=random.integers(2**32, size=options.sparse, dtype=np.uint32),
        strength=_strengths(random, options.sparse),
        sparse_missing=_shares(options.missing, random.uniform(size=options.sparse)),
        center=0.5 + 5.0 * dense[1] ** 2,
        spread=0.5 + 0.6 * dense[2],
        shift=np.where(np.arange(options.dense) == 1, 2.0, 0.0),
        linear=np.where(curved, 0.0, weight),
        square=np.where(curved, 0.4 * weight, 0.0),
        dense_missing=_shares(options.missing, dense[3]),
        pairs=pairs,
        pair_strength=np.full(len(pairs), 0.25),
        bias=0.0,
        scale=1.0,
        fade=options.fade,
    )
    logits = synthetic.rows(world, _CALIBRATION_ROW, _CALIBRATION).logits
    spread = float(logits.std())
    scale = options.signal / spread if spread else 0.0
    return world._replace(scale=scale, bias=_bias(logits * scale, options.click_rate))


def _pairs(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Up to four pairs of columns of middling size, whose values are frequent enough to learn how they interact."""
    near = np.argsort(np.abs(np.log(sizes) - math.log(300)), kind="stable")[:8]
    return near[: near.size // 2 * 2].reshape(-1, 2).astype(np.int64)


def _strengths(random: np.random.Generator, columns: int) -> NDArray[np.float64]:
    """Half of the columns say something, some more than others; the rest is noise."""
    strength = 0.3 + 0.7 * random.uniform(size=columns)
    strength[random.permutation(columns)[: columns // 2]] = 0.0
    return strength


def _shares(average: float, spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Missing shares from 0 to twice the average."""
    return 2.0 * average * spread


def _bias(logits: NDArray[np.float64], rate: float) -> float:
    """The bias at which the mean probability is `rate`, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        if float((1.0 / (1.0 + np.exp(-(logits + middle)))).mean()) < rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2
