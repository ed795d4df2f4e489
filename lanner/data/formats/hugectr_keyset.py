"""HugeCTR's keyset files: the distinct keys of some rows, uint32 or int64, without a header and in any order."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lanner import storage
from lanner.data.formats.base import Array, Block, Format, Options, Sink, Source, Target
from lanner.data.formats.fixed import FixedRows
from lanner.data.formats.records import Layout
from lanner.data.formats.schemas import fixed_rows, table_rows
from lanner.errors import ConfigError, DataError
from lanner.schema import Schema

Keys = Literal["uint32", "int64"]
_TYPES: dict[Keys, np.dtype[Any]] = {"uint32": np.dtype("<u4"), "int64": np.dtype("<i8")}
NAME = "keyset"


def read_keys(uri: str, keys: Keys = "int64") -> Array:
    """The keys of a file, int64, in its order; raises DataError where it is cut, or a key occurs twice."""
    rows = FixedRows.whole(uri, _TYPES[keys], 1)
    found: Array = rows.load()[:, 0].astype(np.int64)
    distinct, counts = np.unique(found, return_counts=True)
    if len(distinct) < len(found):
        raise DataError(f"{uri}: key {distinct[counts > 1][0]} occurs {counts.max()} times; a keyset has each once")
    return found


def write_keys(uri: str, found: Array, keys: Keys = "int64") -> None:
    """Publish distinct keys in rising order; raises DataError where one does not fit the type."""
    if len(found) and keys == "uint32" and (int(found.min()) < 0 or int(found.max()) >= 2**32):
        bad = found[(found < 0) | (found >= 2**32)][0]
        raise DataError(f"{uri}: key {bad} does not fit uint32")
    with storage.publish(uri) as file:
        file.write(np.unique(found).astype(_TYPES[keys]).tobytes())


class KeysetOptions(Options):
    """`keys`: their type. `each`: a file for each table. `offsets`: keys carry the offset of their slot, as those of
    the Norm and Parquet formats do (default: where the sizes of all tables are known).
    """

    keys: Keys = "int64"
    each: bool = False
    offsets: bool | None = None


class KeysetSink(Sink):
    """Writes `<split>/keyset`, or `<split>/<table>.keyset`; holds a byte a row of a table, or the keys where any do."""

    def __init__(self, target: Target, options: KeysetOptions) -> None:
        super().__init__(target)
        schema, wanted = target.schema, "a keyset"
        offsets = None not in table_rows(schema) if options.offsets is None else options.offsets
        if options.keys == "uint32":
            fixed_rows(schema, f"{wanted} of keys of 32 bits")
        kind: Literal["<u4", "<i8"] = "<u4" if options.keys == "uint32" else "<i8"
        self._starts = Layout("<f4", "<f4", kind, offsets).starts(schema, wanted)
        self._options = options
        self._seen: dict[tuple[str, str], Array] = {}

    def write(self, split: str, block: Block) -> None:
        for feature, rows, ids in zip(self.schema.sparse, table_rows(self.schema), block.ids, strict=True):
            key = split, feature.name
            if rows is None:
                self._seen[key] = np.union1d(self._seen.get(key, np.empty(0, np.int64)), ids.values)
            else:
                self._seen.setdefault(key, np.zeros(rows, np.bool_))[ids.values] = True

    def close(self) -> None:
        files: dict[str, list[Array]] = {}
        features = {feature.name: at for at, feature in enumerate(self.schema.sparse)}
        for (split, name), seen in self._seen.items():
            found = np.flatnonzero(seen) if seen.dtype == np.bool_ else seen
            table = self.schema.sparse[features[name]].table_name
            file = f"{split}/{table}.{NAME}" if self._options.each else f"{split}/{NAME}"
            files.setdefault(file, []).append(found + self._starts[features[name]])
        for file, parts in files.items():
            write_keys(storage.join(self.target.folder, file), np.concatenate(parts), self._options.keys)


class KeysetFormat(Format):
    """Written only: keys are no rows. `read_keys` reads them."""

    name = "hugectr-keyset"
    title = "HugeCTR keyset"
    options = KeysetOptions

    def recognises(self, uri: str) -> bool:
        return uri.rpartition("/")[2] == NAME or uri.endswith(f".{NAME}")

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        raise ConfigError(f"{uri}: a keyset holds keys, no rows; `lanner inspect` describes it")

    def create(self, target: Target, options: Options) -> Sink:
        assert isinstance(options, KeysetOptions)
        return KeysetSink(target, options)
