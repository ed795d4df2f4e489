"""MLPerf's files of the multi-hot Criteo data: for each day two `.npy` and an uncompressed `.npz`.

`day_<i>_dense.npy` is float32, `day_<i>_labels.npy` int32 (n x 1), `day_<i>_sparse_multi_hot.npz` holds `0.npy`,
`1.npy`, ... with the ids of each table, int32 (n x hotness), in place of `day_<i>_sparse.npy` (int64, n x tables).
The first half of day 23, rounded up, is for validation, the second for test.
"""

from __future__ import annotations

import re

from lanner import storage
from lanner.data.formats import npy
from lanner.data.formats.base import Block, Format, Numbers, Options, Sink, Source, Target
from lanner.data.formats.checks import exactly
from lanner.data.formats.hugectr_raw import Sizes, label_names, number_names
from lanner.data.formats.matrices import Matrices, MatrixSource
from lanner.data.formats.npy import Spool
from lanner.data.formats.rows import numbers, plain_columns, widths
from lanner.data.formats.schemas import derived, fixed_rows
from lanner.errors import ConfigError, DataError
from lanner.prep.transforms import Transforms
from lanner.schema import Schema

LAST_DAY = 23
_DENSE, _LABELS, _MULTI, _ONE = "dense.npy", "labels.npy", "sparse_multi_hot.npz", "sparse.npy"
_DAYS = {"train": 0, "valid": 1, "test": 2}
_DAY = re.compile(rf"day_(\d+)_{_LABELS}$")


class MlperfOptions(Options):
    """`valid`, `test`: days of these splits (by default the halves of day 23, where it is there). `sizes` of the tables
    where there is no schema (`mlperf` for MLPerf's); `modulo`: ids are taken modulo those, as MLPerf's loader does.
    """

    valid: Numbers = ()
    test: Numbers = ()
    sizes: Sizes = ()
    modulo: bool = False


def _day(folder: str, day: int) -> Matrices:
    def path(name: str) -> str:
        return storage.join(folder, f"day_{day}_{name}")

    if storage.exists(path(_MULTI)):
        members = npy.npz_rows(path(_MULTI))
        if sorted(members, key=str) != sorted(map(str, range(len(members)))):
            raise DataError(f"{path(_MULTI)}: members {', '.join(members)}; expected 0, 1, 2, ...")
        ids = tuple(members[str(at)] for at in range(len(members)))
    else:
        ids = (npy.npy_rows(path(_ONE)),)
    return Matrices(npy.npy_rows(path(_LABELS)), npy.npy_rows(path(_DENSE)), ids)


class MlperfSink(Sink):
    """Writes train as day 0, valid as day 1, test as day 2."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, {"valid": [_DAYS["valid"]], "test": [_DAYS["test"]]})
        wanted = "MLPerf's format"
        plain_columns(target.schema, wanted)
        if max(fixed_rows(target.schema, wanted), default=0) > 2**31:
            raise ConfigError(f"{wanted} has ids of 32 bits; the largest table has more rows")
        self._widths, self._transforms = widths(target.schema, wanted), Transforms(target.schema.dense)
        self._spools: dict[str, Spool] = {}

    def write(self, split: str, block: Block) -> None:
        spool = self._spools.setdefault(split, Spool())
        names = [label.name for label in self.schema.labels]
        for at, name in enumerate(names):
            exactly(block.labels[:, at], "<i4", block, name)
        spool.write(_LABELS, block.labels.astype("<i4"))
        spool.write(_DENSE, numbers(block, self._transforms).astype("<f4"))
        for at, (ids, width) in enumerate(zip(block.ids, self._widths, strict=True)):
            spool.write(str(at), ids.values.reshape(-1, width).astype("<i4"))

    def close(self) -> None:
        for split, spool in self._spools.items():
            place = storage.join(self.target.folder, f"day_{_DAYS[split]}_")
            spool.save_npy(_LABELS, place + _LABELS)
            spool.save_npy(_DENSE, place + _DENSE)
            spool.save_npz({str(at): str(at) for at in range(len(self._widths))}, place + _MULTI)
        self.drop()

    def drop(self) -> None:
        for spool in self._spools.values():
            spool.close()


class MlperfFormat(Format):
    name = "mlperf"
    title = "MLPerf multi-hot npz"
    options = MlperfOptions

    def recognises(self, uri: str) -> bool:
        return storage.is_directory(uri) and bool(_days(uri))

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        assert isinstance(options, MlperfOptions)
        days = {day: _day(uri, day) for day in _days(uri)}
        if not days:
            raise DataError(f"{uri}: no day_<i>_{_LABELS}")
        splits: dict[str, list[Matrices]] = {"train": [], "valid": [], "test": []}
        halved = LAST_DAY in days and len(days) > 1 and not (options.valid or options.test)
        for day, files in days.items():
            rows = files.rows
            if halved and day == LAST_DAY:
                half = (rows + 1) // 2
                splits["valid"].append(files.part(0, half))
                splits["test"].append(files.part(half, rows - half))
            else:
                split = "valid" if day in options.valid else "test" if day in options.test else "train"
                splits[split].append(files)
        held = schema or _schema(next(iter(days.values())), options.sizes, uri)
        return MatrixSource(uri, held, {name: parts for name, parts in splits.items() if parts}, options.modulo)

    def create(self, target: Target, options: Options) -> Sink:
        return MlperfSink(target)


def _days(folder: str) -> list[int]:
    matches = (_DAY.match(name) for name in storage.list_files(folder))
    return sorted(int(match[1]) for match in matches if match)


def _schema(day: Matrices, sizes: tuple[int, ...], uri: str) -> Schema:
    hotness = [file.width for file in day.ids] if len(day.ids) > 1 else [1] * day.ids[0].width
    if sizes and len(sizes) != len(hotness):
        raise ConfigError(f"{uri}: {len(sizes)} sizes for {len(hotness)} tables")
    features: dict[str, tuple[int | None, int | None]] = {
        f"C{at + 1}": (sizes[at] if sizes else None, width) for at, width in enumerate(hotness)
    }
    return derived(label_names(day.labels.width), number_names(day.dense.width), features)
