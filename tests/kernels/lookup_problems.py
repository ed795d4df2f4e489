"""Random lookup problems that several test files share."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from hypothesis import strategies as st

from lanner.kernels.layout import MAX, MEAN, NONE, SUM

# Each pair is compiled afresh on a new machine, so odd widths come with one id type.
KINDS = [(1, np.int64), (3, np.int32), (17, np.int64), (64, np.int32), (64, np.int64), (130, np.int64)]
NARROW = KINDS[:3]  # for Triton's interpreter, which is slow
BACKENDS = ("reference", "cpu")
ALL_BACKENDS = (*BACKENDS, "gpu") if find_spec("triton") else BACKENDS
ARRAYS = ("weights", "layout", "values", "offsets", "factors")


def arrays_of(problem):
    """The NumPy arrays of a problem, in the order of `ARRAYS`."""
    return [None if problem[name] is None else np.asarray(problem[name]) for name in ARRAYS]


def for_backend(backend, *tensors):
    """Copies of tensors where `backend` works: on the CUDA device, if there is one, for gpu."""
    device = "cuda" if backend == "gpu" and torch.cuda.is_available() else "cpu"
    return [tensor.to(device, copy=True) if isinstance(tensor, torch.Tensor) else tensor for tensor in tensors]


def vectors_of(line, offsets, batch, dim):
    """For each vector of a line of a layout: its first and last + 1 id, and its columns of the flat output."""
    feature, _, _, pooling, out, stride = line
    for sample in range(batch):
        bag = feature * batch + sample
        begin, end = (bag, bag + 1) if offsets is None else offsets[bag : bag + 2]
        first = feature * batch if offsets is None else offsets[feature * batch]
        if pooling == NONE:
            for at in range(begin, end):
                place = out + (at - first) * stride
                yield at, at + 1, slice(place, place + dim)
        else:
            yield begin, end, slice(out + sample * stride, out + sample * stride + dim)


@st.composite
def problems(draw, kinds=KINDS):
    """Weights, layout, bags: two or three features over one or two tables of one width."""
    dim, kind = draw(st.sampled_from(kinds))
    batch = draw(st.integers(0, 9))
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=2))
    tables = sorted(draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3)))
    order = draw(st.permutations(range(len(tables))))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    starts = np.cumsum([0, *sizes])
    rows = dict(zip(order, (sizes[table] for table in tables), strict=True))
    one_hot = draw(st.booleans())
    lengths = np.ones(len(tables) * batch, np.int64) if one_hot else random.integers(0, 5, len(tables) * batch)
    values = [random.integers(0, rows[f], lengths[f * batch : (f + 1) * batch].sum()) for f in range(len(tables))]
    values = np.concatenate(values).astype(kind) if values else np.zeros(0, kind)
    size, stride = len(tables) * dim * batch, len(tables) * dim
    layout = []
    for k, table in enumerate(tables):
        pooling, place = draw(st.sampled_from([SUM, MEAN, MAX, NONE])), (order[k] * dim, stride)
        if pooling == NONE:  # its vectors lie one after another, behind the pooled ones
            place = size, dim
            size += int(lengths[order[k] * batch : (order[k] + 1) * batch].sum()) * dim
        layout.append((order[k], starts[table], sizes[table], pooling, *place))
    weights = random.standard_normal((starts[-1], dim)).astype(np.float32)
    weighted = draw(st.booleans())
    return {
        "weights": torch.from_numpy(weights),
        "layout": np.array(layout, np.int64),
        "values": torch.from_numpy(values),
        "offsets": None if one_hot else torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])),
        "factors": torch.from_numpy(random.standard_normal(values.size).astype(np.float32)) if weighted else None,
        "batch": batch,
        "size": size,
    }
