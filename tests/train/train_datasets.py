"""Small datasets, written by hand in the dataset format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lanner import manifest
from lanner.data import Dataset
from lanner.schema import Schema

Columns = dict[str, Any]
"""Labels and sparse features by name (one value a row, or a list of lists), and `dense` [rows, D]."""


KEYS = 30
"""Keys of a dynamic table that occur again and again."""


def schema(dense: int = 2, rows: tuple[int, ...] = (20, 30), dynamic: bool = False, **options: Any) -> Schema:
    """Label `label`, numbers n0.., one-hot features c0.. with identity tables of the given rows, or dynamic ones."""
    encoders = [{"kind": "key"} if dynamic else {"kind": "identity", "size": n} for n in rows]
    return Schema(
        labels=options.pop("labels", ({"name": "label"},)),
        dense=tuple({"name": f"n{k}"} for k in range(dense)),
        sparse=tuple({"name": f"c{k}", "raw": "int", "encoder": encoder} for k, encoder in enumerate(encoders)),
        tables=tuple({"name": f"c{k}", "rows": "dynamic" if dynamic else n} for k, n in enumerate(rows)),
        **options,
    )


def write(path: Path, of: Schema, **splits: Columns) -> Dataset:
    """A dataset of the given splits."""
    of.save(path / "schema.yaml")
    files = {}
    for split, columns in splits.items():
        arrays = {name: _array(name, values) for name, values in columns.items()}
        batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
        (path / split).mkdir()
        with pa.ipc.new_file(path / split / "part-00000.arrow", batch.schema) as writer:
            writer.write_batch(batch)
        name = f"{split}/part-00000.arrow"
        files[name] = manifest.entry(path, name, batch.num_rows)
    files["schema.yaml"] = manifest.entry(path, "schema.yaml")
    manifest.write(path, manifest.Manifest(kind="dataset", fingerprint=of.fingerprint(), files=files))
    return Dataset.open(path)


def _ids(count: Any, rows: int, draw: np.random.Generator) -> np.ndarray:
    if count != "dynamic":
        return draw.integers(0, count, rows)
    extremes = np.iinfo(np.int64)
    keys = np.random.default_rng(99).integers(extremes.min, extremes.max, KEYS)
    keys[:4] = 0, -1, extremes.min, extremes.max
    rare = draw.random(rows) < 0.1
    return np.where(rare, draw.integers(extremes.min, extremes.max, rows), keys[draw.integers(0, KEYS, rows)])


def _array(name: str, values: Any) -> pa.Array:
    if name == "dense":
        flat = pa.array(np.asarray(values, np.float32).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, np.asarray(values).shape[1])
    if isinstance(values, list):
        return pa.array(values, pa.list_(pa.uint8()))
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return pa.array(array.astype(np.float32))
    if array.dtype == np.int64 and array.size and (array.min() < 0 or array.max() >= 1 << 16):
        return pa.array(array)
    return pa.array(array.astype(np.uint8 if array.size == 0 or array.max() < 256 else np.uint16))


def random_rows(rows: int, of: Schema, seed: int = 0, signal: float = 2.0) -> Columns:
    """Random features; the label follows the first number, and the parity of the first feature.

    The ids of dynamic tables are `KEYS` any 64-bit integers, alike for every seed, and now and then one more.
    """
    draw = np.random.default_rng(seed)
    columns: Columns = {f.name: _ids(of.table(f.name).rows, rows, draw) for f in of.sparse}
    logit = np.zeros(rows)
    if of.dense:
        columns["dense"] = draw.standard_normal((rows, len(of.dense))).astype(np.float32)
        logit += signal * columns["dense"][:, 0]
    if of.sparse:
        logit += signal * (1 - 2 * (columns[of.sparse[0].name] % 2))
    for label in of.labels:
        columns[label.name] = (draw.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.uint8)
    return columns
