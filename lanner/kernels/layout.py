"""How the embedding kernels address tables: one int64 array [K, 5], a row for each feature looked up.

Tables of one width lie one after another in a joint weight array. Each row of the layout says, for one feature:
its place among the features of the bags, the first row and the number of rows of its table, how its bags are
pooled, and the first column of the output (and of the gradient) that it fills. Features that share a table stand
next to each other.
"""

from __future__ import annotations

FEATURE, FIRST_ROW, ROWS, POOLING, COLUMN = range(5)
"""Columns of a layout."""

FIELDS = 5
"""Their number."""

SUM, MEAN, MAX = range(3)
"""Values of POOLING."""

POOLINGS = {"sum": SUM, "mean": MEAN, "max": MAX}
