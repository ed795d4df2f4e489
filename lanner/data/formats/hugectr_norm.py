"""HugeCTR's Norm format: files of records of any length, with or without checksums, and a list of the files.

A file begins with 8 int64: 1 where there are checksums (else 0), records, labels, numbers, slots, three reserved. With
checksums, this header and every record stand between their length and the sum of their bytes; see
`lanner.kernels.norm`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Literal

import numpy as np
from pydantic import Field

from lanner import storage
from lanner.data.formats import file_lists
from lanner.data.formats.base import BLOCK_ROWS, Array, Block, Format, Ids, Options, Sink, Source, Target
from lanner.data.formats.checks import exactly
from lanner.data.formats.hugectr_raw import label_names, number_names
from lanner.data.formats.records import Layout
from lanner.data.formats.rows import numbers, plain_columns
from lanner.data.formats.schemas import derived, fixed_rows, table_rows
from lanner.errors import ConfigError, DataError
from lanner.kernels import norm
from lanner.prep.transforms import Transforms
from lanner.schema import Schema

_HEADER = struct.Struct("<8q")
_PIECE = 1 << 23  # bytes read at a time
_STATES = {norm.BAD_SUM: "its bytes have another sum", norm.TORN: "its counts do not fit its length"}


class NormOptions(Options):
    """`keys`: width of the keys (told by the first records when reading). `offsets`: keys carry the offset of their
    slot (default: on writing, where the sizes of all tables are known). On writing, `checksum`, and `records` a file.
    """

    keys: Literal["uint32", "int64"] | None = None
    offsets: bool | None = None
    checksum: bool = True
    records: int = Field(default=1 << 16, ge=1)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of the file `uri`; records begin at byte `start`."""

    uri: str
    checked: bool
    records: int
    labels: int
    numbers: int
    slots: int
    start: int

    @property
    def words(self) -> int:
        return self.labels + self.numbers

    @staticmethod
    def read(uri: str) -> Header:
        """Raises DataError naming the file where it does not begin with a header."""
        with storage.open_file(uri) as file:
            head = file.read(_HEADER.size + 5)
        checked = head[:4] == struct.pack("<i", _HEADER.size)
        body = head[4 : 4 + _HEADER.size] if checked else head[: _HEADER.size]
        if len(body) < _HEADER.size:
            raise DataError(f"{uri}: {len(head)} bytes, no room for a Norm header of {_HEADER.size}")
        if checked and sum(body) % 256 != head[-1]:
            raise DataError(f"{uri}: the header is damaged: its bytes have the sum {sum(body) % 256}, not {head[-1]}")
        check, records, labels, dense, slots, *_ = _HEADER.unpack(body)
        if check != int(checked) or min(records, labels, dense, slots) < 0 or max(labels, dense, slots) > 1 << 20:
            raise DataError(f"{uri}: no Norm header: {check}, {records}, {labels}, {dense}, {slots}")
        return Header(uri, checked, records, labels, dense, slots, _HEADER.size + 5 * checked)


class NormSource(Source):
    """`uri` is a file, a file list, a folder with one, or a folder with one in `train`, `valid` and `test`."""

    def __init__(self, uri: str, schema: Schema | None, options: NormOptions) -> None:
        self._files = {split: [Header.read(file) for file in files] for split, files in _files(uri).items()}
        first = next(header for headers in self._files.values() for header in headers)
        for header in (header for headers in self._files.values() for header in headers):
            if (header.labels, header.numbers, header.slots) != (first.labels, first.numbers, first.slots):
                raise DataError(f"{header.uri}: other numbers of labels, numbers and slots than {first.uri}")
        super().__init__(uri, schema or _schema(first), {s: sum(h.records for h in f) for s, f in self._files.items()})
        self.any_hotness = schema is None
        seen = len(self.schema.labels), len(self.schema.dense), len(self.schema.sparse)
        if seen != (first.labels, first.numbers, first.slots):
            held = f"{first.labels} labels, {first.numbers} numbers, {first.slots} slots"
            raise DataError(f"{first.uri}: {held}; the schema has {seen[0]}, {seen[1]} and {seen[2]}")
        self._first = first
        self._starts = Layout("<f4", "<f4", "<i8", bool(options.offsets)).starts(self.schema, uri)
        self._key_size = {"uint32": 4, "int64": 8, None: 0}[options.keys] or _key_size(first)

    def blocks(self, split: str) -> Iterator[Block]:
        for header in self._files[split]:
            yield from self._file(header)

    def _file(self, header: Header) -> Iterator[Block]:
        at = done = 0
        with storage.open_file(header.uri) as file:
            file.seek(header.start)
            data, ended = _more(file, np.empty(0, np.uint8))
            while done < header.records:
                found = self._scan(header, data, at, min(BLOCK_ROWS, header.records - done), ended)
                if len(found.starts):
                    yield from self._block(header, data, found, done)
                    done, at = done + len(found.starts), found.end
                elif found.stop == norm.CUT and not ended:
                    data, ended = _more(file, data[at:])
                    at = 0
                else:
                    why = "the file ends within it" if found.stop == norm.CUT else "its length is damaged"
                    raise DataError(f"{header.uri}: record {done} of {header.records}: {why}; the next is not found")
            if at < len(data) or file.read(1):
                raise DataError(f"{header.uri}: more bytes follow the {header.records} records of its header")

    def _scan(self, header: Header, data: Array, at: int, most: int, ended: bool) -> norm.Found:
        return norm.scan(data, at, most, header.words, header.slots, self._key_size, header.checked, ended)

    def _block(self, header: Header, data: Array, found: norm.Found, done: int) -> Iterator[Block]:
        good = found.states == norm.GOOD
        for record in np.flatnonzero(~good).tolist():
            self.skip(f"{header.uri}: record {done + record} is damaged: {_STATES[int(found.states[record])]}")
        starts, lengths = found.starts[good], found.lengths[good]
        if not len(starts):
            return
        words, keys = norm.unpack(data, starts, lengths, header.words, self._key_size)
        ids = []
        for slot, (values, start) in enumerate(zip(keys, self._starts, strict=True)):
            ids.append(Ids(values - start, np.concatenate([[0], np.cumsum(lengths[:, slot])]).astype(np.int64)))
        numbered = None if good.all() else done + np.flatnonzero(good)
        labels, dense = words[:, : header.labels], np.ascontiguousarray(words[:, header.labels :])
        yield Block(header.uri, done, labels, dense, tuple(ids), numbers=numbered)

    def details(self) -> dict[str, object]:
        files = sum(len(headers) for headers in self._files.values())
        return {"files": files, "checksums": self._first.checked, "key_bytes": self._key_size}


def _files(uri: str) -> dict[str, list[str]]:
    if not storage.is_directory(uri):
        return {"train": file_lists.read_list(uri) if file_lists.is_list(uri) else [uri]}
    if (own := file_lists.list_in(uri)) is not None:
        return {"train": file_lists.read_list(own)}
    found = {}
    for split, folder in file_lists.split_folders(uri, file_lists.NAMES).items():
        path = file_lists.list_in(folder)
        found[split] = file_lists.read_list(path) if path else []
    if not any(found.values()):
        raise DataError(f"{uri}: no file list ({' or '.join(file_lists.NAMES)}) that names files, here or in train")
    return found


def _schema(header: Header) -> Schema:
    slots: dict[str, tuple[int | None, int | None]] = {f"C{at + 1}": (None, None) for at in range(header.slots)}
    return derived(label_names(header.labels), number_names(header.numbers), slots)


def _more(file: IO[bytes], rest: Array) -> tuple[Array, bool]:
    """`rest` and the next piece of the file, or more where a record is longer; and whether the file ends there."""
    size = max(_PIECE, len(rest))
    piece = file.read(size)
    return np.concatenate([rest, np.frombuffer(piece, np.uint8)]), len(piece) < size


def _key_size(header: Header) -> int:
    """Width of the keys by the first records; raises DataError or ConfigError where they fit none or both."""
    with storage.open_file(header.uri) as file:
        file.seek(header.start)
        data, ended = _more(file, np.empty(0, np.uint8))
    most, fits = min(header.records, 1000), []
    for size in (4, 8):
        found = norm.scan(data, 0, most, header.words, header.slots, size, header.checked, ended)
        whole = int(np.count_nonzero(found.states == norm.GOOD))
        if header.checked:
            fits.append((whole, size))
        elif len(found.starts) == most and (most < header.records or found.end == len(data)):
            fits.append((1, size))
    best = max((count for count, _ in fits), default=0)
    chosen = [size for count, size in fits if count == best]
    if not best and header.records:
        raise DataError(f"{header.uri}: the first records are damaged or no Norm records; give the option keys")
    if len(chosen) > 1 and header.records:
        raise ConfigError(f"{header.uri}: keys may be of 4 or 8 bytes; give the option keys (uint32 or int64)")
    return chosen[0] if chosen else 8


class NormSink(Sink):
    """Writes `<split>/part-*.data` and `<split>/_file_list.txt`."""

    def __init__(self, target: Target, options: NormOptions) -> None:
        schema, wanted = target.schema, "HugeCTR's Norm format"
        plain_columns(schema, wanted)
        keys = options.keys or "int64"
        offsets = None not in table_rows(schema) if options.offsets is None else options.offsets
        super().__init__(target, {"keys": keys, "offsets": offsets})
        self._size = 4 if keys == "uint32" else 8
        if self._size == 4:
            fixed_rows(schema, f"{wanted} with keys of 32 bits")
        self._starts = Layout("<f4", "<f4", "<u4" if self._size == 4 else "<i8", offsets).starts(schema, wanted)
        self._options, self._transforms = options, Transforms(schema.dense)
        self._waiting: dict[str, tuple[list[bytes], int]] = {}
        self._written: dict[str, list[str]] = {}

    def write(self, split: str, block: Block) -> None:
        labels = [exactly(block.labels[:, at], "<f4", block, x.name) for at, x in enumerate(self.schema.labels)]
        targets = np.stack(labels, 1) if labels else np.empty((block.rows, 0))
        words = np.concatenate([targets, numbers(block, self._transforms)], axis=1).astype("<f4")
        begin = 0
        while begin < block.rows:
            pieces, held = self._waiting.get(split, ([], 0))
            end = min(begin + self._options.records - held, block.rows)
            pieces.append(self._records(block, words, begin, end))
            self._waiting[split] = pieces, held + end - begin
            if held + end - begin == self._options.records:
                self._flush(split)
            begin = end

    def _records(self, block: Block, words: Array, begin: int, end: int) -> bytes:
        keys, offsets = [], np.zeros((len(block.ids), end - begin + 1), np.int64)
        for slot, (ids, start) in enumerate(zip(block.ids, self._starts, strict=True)):
            ends = np.arange(begin, end + 1) if ids.offsets is None else ids.offsets[begin : end + 1]
            offsets[slot] = ends - ends[0]
            keys.append(ids.values[ends[0] : ends[-1]].astype(np.int64) + start)
        return norm.pack(words[begin:end], keys, offsets, self._size, self._options.checksum).tobytes()

    def _flush(self, split: str) -> None:
        pieces, records = self._waiting.pop(split)
        written = self._written.setdefault(split, [])
        name = f"{split}/part-{len(written):05d}.data"
        counts = len(self.schema.labels), len(self.schema.dense), len(self.schema.sparse)
        head = _HEADER.pack(int(self._options.checksum), records, *counts, 0, 0, 0)
        if self._options.checksum:
            head = struct.pack("<i", len(head)) + head + bytes([sum(head) % 256])
        with storage.publish(storage.join(self.target.folder, name)) as file:
            file.writelines([head, *pieces])
        written.append(storage.join(self.target.final, name))

    def close(self) -> None:
        for split in list(self._waiting):
            self._flush(split)
        for split, files in self._written.items():
            file_lists.write_list(storage.join(self.target.folder, split, file_lists.NAMES[0]), files)


class NormFormat(Format):
    name = "hugectr-norm"
    title = "HugeCTR Norm"
    options = NormOptions

    def recognises(self, uri: str) -> bool:
        if not storage.is_directory(uri):
            return False
        folders = [uri, *file_lists.split_folders(uri, file_lists.NAMES).values()]
        found = [folder for folder in folders if file_lists.list_in(folder)]
        return bool(found) and not any(storage.exists(storage.join(folder, "_metadata.json")) for folder in found)

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        assert isinstance(options, NormOptions)
        return NormSource(uri, schema, options)

    def create(self, target: Target, options: Options) -> Sink:
        assert isinstance(options, NormOptions)
        return NormSink(target, options)
