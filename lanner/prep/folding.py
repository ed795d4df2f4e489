"""The value that an encoder sees: a missing one filled, a number folded into a range."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lanner.errors import SchemaError
from lanner.prep.chunk import Keys
from lanner.prep.keys import scalar_keys
from lanner.schema import Raw, Sparse


def folded(feature: Sparse, keys: Keys) -> Keys:
    """`keys` with the feature's `fill` for missing values and modulo its `modulo`; as they are where it has neither.

    Raises SchemaError where `fill` is no value of the feature's raw kind.
    """
    if feature.fill is not None and keys.missing is not None:
        fill = fill_key(feature.raw, feature.fill)
        texts = keys.texts and pc.if_else(pa.array(keys.missing), str(feature.fill), keys.texts)
        keys = Keys(np.where(keys.missing, keys.keys.dtype.type(fill), keys.keys), texts=texts)
    if feature.modulo is not None:
        keys = Keys(keys.keys.astype(np.int64) % feature.modulo, keys.missing, keys.offsets)
    return keys


@lru_cache(maxsize=1024)
def fill_key(raw: Raw, fill: int | str) -> int:
    """The key of a `fill`; see `folded`."""
    values = [str(fill) if raw == "string" else fill]
    found = scalar_keys(raw, values, "fill")
    if found.bad[0] or found.missing[0]:
        raise SchemaError(f"fill {fill!r} is no {raw} value")
    return int(found.keys[0])
