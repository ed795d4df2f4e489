"""`Counters`: what became of the keys of a dynamic table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Keys since the table was made; of a batch, each distinct key counts once.

    At all times inserted - evicted - expired - erased is the number of rows.
    """

    inserted: int = 0
    evicted: int = 0  # made room for others
    expired: int = 0  # outlived the time to live
    erased: int = 0  # by `erase`
    refused_admission: int = 0  # did not occur often enough yet, or lost the draw
    refused_full: int = 0  # no row was to be had
    unknown: int = 0  # lookups outside training of keys without a row; every lookup counts
