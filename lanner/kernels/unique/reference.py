"""Distinct ids in plain Python: what the kernel is held to."""

from __future__ import annotations


def unique(values: list[int], bounds: list[int], segments: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Like `lanner.kernels.unique.unique`: (distinct, inverse, counts)."""
    tables: list[dict[int, int]] = [{} for _ in range(max(segments, default=-1) + 1)]
    inverse = []
    for piece, segment in enumerate(segments):
        table = tables[segment]
        inverse += [table.setdefault(value, len(table)) for value in values[bounds[piece] : bounds[piece + 1]]]
    return [value for table in tables for value in table], inverse, [len(table) for table in tables]
