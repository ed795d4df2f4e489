"""The value that an encoder sees: a missing one filled, a number folded into a range."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lanner.prep.chunk import Keys
from lanner.prep.keys import logged_key
from lanner.schema import Sparse


def folded(feature: Sparse, keys: Keys) -> Keys:
    """`keys` with the feature's `fill` for missing values and modulo its `modulo`; as they are where it has neither.

    Raises SchemaError like `logged_key`.
    """
    if feature.fill is not None and keys.missing is not None:
        fill = logged_key(feature.raw, feature.fill)
        texts = keys.texts and pc.if_else(pa.array(keys.missing), str(feature.fill), keys.texts)
        keys = Keys(np.where(keys.missing, keys.keys.dtype.type(fill), keys.keys), texts=texts)
    if feature.modulo is not None:
        keys = Keys(keys.keys.astype(np.int64) % feature.modulo, keys.missing, keys.offsets)
    return keys
