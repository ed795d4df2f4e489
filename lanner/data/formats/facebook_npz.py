"""The `.npz` files of Facebook's DLRM: `X_cat` (n x 26 ids), `X_int` (n x 13 raw integers), `y` and `counts`.

`<name>_processed.npz` holds all days together, `<name>_<i>_reordered.npz` one each; of the last day the first half,
rounded up, is for test and the second for validation. Ids may be stored as float64, as the tool does.
"""

from __future__ import annotations

import re

import numpy as np

from lanner import storage
from lanner.data.formats import npy
from lanner.data.formats.base import Block, Format, Options, Sink, Source, Target
from lanner.data.formats.checks import exactly
from lanner.data.formats.facebook_binary import FacebookOptions, check_counts, criteo_schema
from lanner.data.formats.fixed import FixedRows
from lanner.data.formats.matrices import Matrices, MatrixSource
from lanner.data.formats.npy import Spool
from lanner.data.formats.rows import counts, plain_columns
from lanner.data.formats.schemas import fixed_rows
from lanner.errors import DataError
from lanner.prep.transforms import Transforms
from lanner.schema import Schema

_DAY = re.compile(r"(.*)_(\d+)_reordered\.npz$")
_SPLITS = {split: f"{split}_processed.npz" for split in ("train", "valid", "test")}
_MEMBERS = ("X_cat", "X_int", "y")


class FacebookNpzFormat(Format):
    name = "facebook-npz"
    title = "Facebook DLRM npz"
    options = FacebookOptions

    def recognises(self, uri: str) -> bool:
        if not storage.is_directory(uri):
            return uri.endswith(".npz")
        return any(name in _SPLITS.values() or _DAY.match(name) for name in storage.list_files(uri))

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        assert isinstance(options, FacebookOptions)
        files = _files(uri)
        members = {path: npy.npz_rows(path) for paths in files.values() for path in paths}
        for path, found in members.items():
            if absent := [name for name in _MEMBERS if name not in found]:
                holds = "raw values, an earlier stage" if "X_cat_t" in found else ", ".join(found)
                raise DataError(f"{path}: no member {absent[0]}; it holds {holds}")
        splits = {split: [_matrices(members[path]) for path in paths] for split, paths in files.items()}
        if len(splits["train"]) > 1 and len(splits) == 1:
            splits |= _halves(splits["train"].pop())
        held = schema or criteo_schema(_sizes(next(iter(members.values()))), options.modulo)
        check_counts(held, uri)
        return MatrixSource(uri, held, splits, options.modulo is not None)

    def create(self, target: Target, options: Options) -> Sink:
        return FacebookNpzSink(target)


def _files(uri: str) -> dict[str, list[str]]:
    if not storage.is_directory(uri):
        return {"train": [uri]}
    names = storage.list_files(uri)
    if any(name in _SPLITS.values() for name in names):
        return {split: [storage.join(uri, name)] for split, name in _SPLITS.items() if name in names}
    days = sorted((match[1], int(match[2]), name) for name in names if (match := _DAY.match(name)))
    if not days or len({day[0] for day in days}) > 1:
        raise DataError(f"{uri}: expected <name>_<i>_reordered.npz of one name; name a file otherwise")
    return {"train": [storage.join(uri, name) for _, _, name in days]}


def _matrices(members: dict[str, FixedRows]) -> Matrices:
    return Matrices(members["y"], members["X_int"], (members["X_cat"],))


def _halves(last: Matrices) -> dict[str, list[Matrices]]:
    rows = last.rows
    half = (rows + 1) // 2
    return {"valid": [last.part(half, rows - half)], "test": [last.part(0, half)]}


def _sizes(members: dict[str, FixedRows]) -> list[int | None]:
    if "counts" not in members:
        return [None] * (members["X_cat"].width if "X_cat" in members else 0)
    return [int(value) for value in members["counts"].load().reshape(-1)]


class FacebookNpzSink(Sink):
    """Writes `<split>_processed.npz`."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        wanted = "Facebook's npz format"
        check_counts(target.schema, wanted)
        plain_columns(target.schema, wanted)
        self._sizes = fixed_rows(target.schema, wanted)
        self._transforms = Transforms(target.schema.dense)
        self._spools: dict[str, Spool] = {}

    def write(self, split: str, block: Block) -> None:
        spool = self._spools.setdefault(split, Spool())
        ids = np.stack([column.values for column in block.ids], axis=1)
        dense = counts(block, self.schema, self._transforms)
        for at, number in enumerate(self.schema.dense):
            exactly(dense[:, at], "<i4", block, number.name)
        for at, feature in enumerate(self.schema.sparse):
            exactly(block.ids[at].values, "<i4", block, feature.name)
        spool.write("X_int", dense.astype("<i4"))
        spool.write("X_cat", ids.astype("<i4"))
        spool.write("y", exactly(block.labels[:, 0], "<i4", block, self.schema.labels[0].name))

    def close(self) -> None:
        for split, spool in self._spools.items():
            spool.write("counts", np.array(self._sizes, "<i8"))
            members = {name: name for name in (*_MEMBERS, "counts")}
            spool.save_npz(members, storage.join(self.target.folder, _SPLITS[split]))
        self.drop()

    def drop(self) -> None:
        for spool in self._spools.values():
            spool.close()
