"""Exchanges between processes: what arrives is what was sent, whatever the sizes."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from processes import Failure, outcomes_of, run

from lanner.embedding.sharding.exchange import Wire


def sizes(step: int, ranks: int) -> np.ndarray:
    """How much each rank sends to each: many nothings."""
    return np.random.default_rng(step).integers(-3, 6, (ranks, ranks)).clip(0)


def swap_pieces(rank: int) -> list[Any]:
    wire, seen = Wire(), []
    for step in range(6):
        between = sizes(step, wire.world_size)
        numbers = np.arange(between[rank].sum()) + 1000 * rank + 100_000 * step
        data = torch.from_numpy(numbers) if step % 2 else torch.from_numpy(numbers).float()[:, None] + torch.zeros(3)
        assert np.array_equal(wire.swap(between[[rank]].T), between[:, [rank]])
        seen.append(wire.exchange(data, between[rank].tolist(), between[:, rank].tolist()).numpy())
    assert wire.messages(f"I am {rank}") == [f"I am {each}" for each in range(wire.world_size)]
    return seen


def test_pieces_arrive_in_the_order_of_the_ranks() -> None:
    for rank, seen in enumerate(run(swap_pieces, 3)):
        for step, arrived in enumerate(seen):
            between, expected = sizes(step, 3), []
            for source in range(3):
                first = between[source, :rank].sum() + 1000 * source + 100_000 * step
                expected += range(first, first + between[source, rank])
            assert (arrived if step % 2 else arrived[:, 2]).tolist() == expected


def leave(rank: int) -> float:
    wire = Wire()
    if rank == 1:
        raise SystemExit
    begin = time.monotonic()
    wire.swap(np.zeros((2, 4), np.int64))
    return time.monotonic() - begin


def test_a_peer_that_ends_is_an_error_at_once() -> None:
    stayed, left = outcomes_of(leave, 2)
    assert isinstance(stayed, Failure) and isinstance(left, Failure)
    assert stayed.kind == "LannerError"
    assert "one of them has ended or does not answer" in stayed.text


def come_alone(rank: int) -> None:
    group = dist.new_group(timeout=timedelta(seconds=2))
    dist.barrier(group)
    if rank == 0:
        Wire(group)


def test_a_peer_that_does_not_connect_is_an_error_too() -> None:
    alone, _ = outcomes_of(come_alone, 2)
    assert isinstance(alone, Failure)
    assert alone.kind == "LannerError"
    assert "one of them has ended or does not answer" in alone.text
