"""Columns of `marks`, and the most rounds that uses earn."""

from __future__ import annotations

HOLDS, ROUNDS = 0, 1

MOST = 3
