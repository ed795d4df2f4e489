"""How the embedding kernels address tables: one int64 array [K, 6], a row (a *line*) for each feature looked up.

Tables of one width lie one after another in a joint weight array. Each line says, for one feature: its place among
the features of the bags, the first row and the number of rows of its table, how its bags are pooled, and where its
vectors lie in the flat output (and in the flat gradient): that of sample s starts at element OUT + s * STRIDE. With
pooling NONE every id has a vector of its own, that of the line's j-th id starts at OUT + j * STRIDE. Lines that share
a table stand next to each other.
"""

from __future__ import annotations

FEATURE, FIRST_ROW, ROWS, POOLING, OUT, STRIDE = range(6)
"""Columns of a layout."""

FIELDS = 6
"""Their number."""

SUM, MEAN, MAX, NONE = range(4)
"""Values of POOLING."""

POOLINGS = {"sum": SUM, "mean": MEAN, "max": MAX, "none": NONE}
