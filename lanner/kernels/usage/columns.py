"""Columns of `usage`, and where counting ends."""

from __future__ import annotations

USED, COUNT = 0, 1

MOST = 1 << 30
"""A count that is not added to any more."""
