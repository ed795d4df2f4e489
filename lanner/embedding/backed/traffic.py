"""What went between the disk and memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Of one table, since its optimizer was set.

    Attributes:
        lookups: ids looked up, or asked for ahead.
        misses: those of them whose row was not in memory when it was asked for.
        rows_read: rows read from disk, by dumps as well; rows that were never written are made, not read.
        rows_written: rows written to disk, by loads as well.
    """

    lookups: int
    misses: int
    rows_read: int
    rows_written: int
