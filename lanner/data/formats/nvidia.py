"""NVIDIA's split binary: `feature_spec.yaml` and, for each split, a headerless file for each category.

Layout after DeepLearningExamples' DLRM. `label.bin` has a byte a row, `numerical.bin` float16 in rows, each
category a file of the smallest of int8, int16 and int32 whose maximum is greater than the cardinality.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Any

import numpy as np
import yaml

from lanner import storage
from lanner.data.formats import fixed
from lanner.data.formats.base import Array, Block, Format, Options, Sink, Source, Target
from lanner.data.formats.checks import exactly
from lanner.data.formats.fixed import FixedRows
from lanner.data.formats.rows import from_matrix, numbers, plain_columns, widths
from lanner.data.formats.schemas import derived, fixed_rows
from lanner.errors import ConfigError, DataError
from lanner.prep.transforms import Transforms
from lanner.schema import Schema

SPEC = "feature_spec.yaml"
FOLDERS = {"train": "train", "valid": "validation", "test": "test"}
"""The folder of each split. The spec names only those of train and test, as its reader demands."""

_KEYS = ("feature_spec", "source_spec", "channel_spec")
_CHANNELS = ("categorical", "numerical", "label")


def id_type(cardinality: int) -> np.dtype[Any]:
    """The type of a category's file; raises ConfigError where none is wide enough."""
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).max > cardinality:
            return np.dtype(kind)
    raise ConfigError(f"a table of {cardinality} rows; the split binary format ends at {2**31 - 2}")


class FeatureSpec:
    """A checked `feature_spec.yaml`."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        try:
            loaded = yaml.safe_load(storage.read_text(uri))
        except yaml.YAMLError as error:
            raise DataError(f"{uri}: not valid YAML: {error}") from error
        for key in _KEYS:
            if not isinstance(loaded, dict) or not isinstance(loaded.get(key), dict):
                raise DataError(f"{uri}: {key} is missing; expected a mapping with {', '.join(_KEYS)}")
        self.features: dict[str, dict[str, Any]] = loaded["feature_spec"]
        self.sources: dict[str, list[dict[str, Any]]] = loaded["source_spec"]
        channels = {name: list(loaded["channel_spec"].get(name) or ()) for name in _CHANNELS}
        self.categorical, self.numerical, self.label = (channels[name] for name in _CHANNELS)
        self._check()

    def _check(self) -> None:
        named = [*self.categorical, *self.numerical, *self.label]
        for name, count in Counter(named).items():
            if count > 1 or name not in self.features:
                why = f"is in {count} channels" if count > 1 else "is not in feature_spec"
                raise DataError(f"{self.uri}: feature {name!r} {why}")
        if len(self.label) != 1:
            raise DataError(f"{self.uri}: {len(self.label)} labels, expected one")
        for name in self.numerical:
            if self._dtype(name).kind != "f":
                raise DataError(f"{self.uri}: feature {name!r} has type {self._dtype(name)}, expected float16")
        for name in self.categorical:
            rows = self.features[name].get("cardinality")
            if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
                raise DataError(f"{self.uri}: feature {name!r} has cardinality {rows!r}, expected a whole number")
            kind = self._dtype(name)
            if kind.kind not in "iu" or np.iinfo(kind).max < rows - 1:
                raise DataError(f"{self.uri}: feature {name!r} has type {kind}, too small for cardinality {rows}")

    def _dtype(self, name: str) -> np.dtype[Any]:
        try:
            kind: np.dtype[Any] = np.dtype(self.features[name]["dtype"])
            return kind
        except (KeyError, TypeError) as error:
            raise DataError(f"{self.uri}: feature {name!r} has no NumPy dtype") from error

    def hotness(self, name: str) -> int:
        return int(self.features[name].get("hotness") or 1)

    def schema(self) -> Schema:
        sparse = {name: (int(self.features[name]["cardinality"]), self.hotness(name)) for name in self.categorical}
        return derived(self.label, self.numerical, sparse)

    def files(self, split: str) -> dict[str, FixedRows] | None:
        """The files of a split by feature, the numbers under ""; None where the split has none.

        Raises DataError where the chunks are not what the format demands, or the files' sizes do not agree.
        """
        mapping = next((name for name in (FOLDERS[split], split) if name in self.sources), None)
        chunks = self.sources.get(mapping or "")
        if chunks is None:
            chunks = self._beside(FOLDERS[split])
            if chunks is None:
                return None
        found: dict[str, FixedRows] = {}
        for chunk in chunks:
            key, part = self._chunk(split, chunk)
            if key in found:
                raise DataError(f"{self.uri}: {split}: feature {key or 'numerical'!r} is in two chunks")
            found[key] = part
        for name in (*self.label, *self.categorical, *([""] if self.numerical else [])):
            if name not in found:
                raise DataError(f"{self.uri}: {split}: no chunk holds {name or 'the numerical features'!r}")
        fixed.same_rows(list(found.values()))
        return found

    def _beside(self, folder: str) -> list[dict[str, Any]] | None:
        """Chunks of a folder that the spec leaves out, laid out like that of train."""
        if not storage.is_directory(storage.join(self.uri.removesuffix(SPEC), folder)) or "train" not in self.sources:
            return None
        return [
            {**chunk, "files": [f"{folder}/{str(file).rpartition('/')[2]}" for file in chunk.get("files") or ()]}
            for chunk in self.sources["train"]
        ]

    def _chunk(self, split: str, chunk: Mapping[str, Any]) -> tuple[str, FixedRows]:
        names, files = list(chunk.get("features") or ()), list(chunk.get("files") or ())
        where = f"{self.uri}: {split}: chunk of {', '.join(map(str, names)) or 'no features'}"
        if chunk.get("type") != "split_binary":
            raise DataError(f"{where}: type {chunk.get('type')!r}, expected split_binary")
        if len(files) != 1:
            raise DataError(f"{where}: {len(files)} files, expected one")
        uri = storage.join(self.uri.removesuffix(SPEC), str(files[0]))
        if names and names == self.numerical:
            return "", FixedRows.whole(uri, self._same_dtype(where), len(names))
        if len(names) != 1 or names[0] not in (*self.categorical, *self.label):
            wanted = "one category, the label, or all numerical features in the order of their channel"
            raise DataError(f"{where}: expected {wanted}")
        width = 1 if names == self.label else self.hotness(names[0])
        return names[0], FixedRows.whole(uri, self._dtype(names[0]), width)

    def _same_dtype(self, where: str) -> np.dtype[Any]:
        kinds = {self._dtype(name) for name in self.numerical}
        if len(kinds) > 1:
            raise DataError(f"{where}: types {', '.join(map(str, kinds))}, expected one")
        return kinds.pop()


class NvidiaSource(Source):
    def __init__(self, uri: str, schema: Schema | None) -> None:
        self._spec = FeatureSpec(storage.join(uri, SPEC))
        found = {split: self._spec.files(split) for split in FOLDERS}
        self._files = {split: files for split, files in found.items() if files is not None}
        own = self._spec.schema()
        super().__init__(uri, schema or own, {s: fixed.same_rows(list(f.values())) for s, f in self._files.items()})
        if schema is not None:
            _agree(schema, own, self._spec)

    def blocks(self, split: str) -> Iterator[Block]:
        spec, files = self._spec, self._files[split]
        parts, names = list(files.values()), {name: part.uri for name, part in files.items()}
        where = {**names, **dict.fromkeys(spec.numerical, names.get("", ""))}
        for first, arrays in fixed.blocks(parts):
            held = dict(zip(files, arrays, strict=True))
            dense = held[""] if spec.numerical else np.empty((len(arrays[0]), 0), np.float32)
            label = held[spec.label[0]].view(np.uint8) if held[spec.label[0]].dtype == bool else held[spec.label[0]]
            ids = tuple(from_matrix(held[name]) for name in spec.categorical)
            yield Block(where[spec.label[0]], first, label, dense, ids, files=where)

    def details(self) -> dict[str, Any]:
        return {"files": sum(len(files) for files in self._files.values())}


def _agree(schema: Schema, own: Schema, spec: FeatureSpec) -> None:
    """A schema from elsewhere must name the same columns in the same order, with the same tables."""
    names = [[part.name for part in parts] for parts in (schema.labels, schema.dense, schema.sparse)]
    ours = [[part.name for part in parts] for parts in (own.labels, own.dense, own.sparse)]
    if names != ours:
        raise DataError(f"{spec.uri}: its channels hold {ours}, the schema {names}")
    for feature, rows in zip(schema.sparse, fixed_rows(schema, spec.uri), strict=True):
        if rows != spec.features[feature.name]["cardinality"]:
            seen = spec.features[feature.name]["cardinality"]
            raise DataError(f"{spec.uri}: feature {feature.name!r} has cardinality {seen}, the schema says {rows}")


class NvidiaSink(Sink):
    def __init__(self, target: Target) -> None:
        schema = target.schema
        plain_columns(schema, "the split binary format")
        if len(schema.labels) != 1 or schema.labels[0].task != "binary" or schema.labels[0].soft:
            raise ConfigError(
                f"the split binary format holds one label of 0 and 1; the schema has {len(schema.labels)}"
            )
        super().__init__(target)
        self._widths = widths(schema, "the split binary format")
        self._types = [id_type(rows) for rows in fixed_rows(schema, "the split binary format")]
        self._transforms = Transforms(schema.dense)
        self._open = ExitStack()
        self._splits: dict[str, dict[str, IO[bytes]]] = {}

    def write(self, split: str, block: Block) -> None:
        files, name = self._files(split), self.schema.labels[0].name
        files["label.bin"].write(exactly(block.labels[:, 0], np.uint8, block, name).tobytes())
        if self.schema.dense:
            files["numerical.bin"].write(self._halves(block).tobytes())
        for at, (feature, ids) in enumerate(zip(self.schema.sparse, block.ids, strict=True)):
            files[f"cat_{at}.bin"].write(exactly(ids.values, self._types[at], block, feature.name).tobytes())

    def _halves(self, block: Block) -> Array:
        values = numbers(block, self._transforms)
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16)
        if not np.isfinite(halves).all():
            row, at = (int(place) for place in np.argwhere(~np.isfinite(halves))[0])
            where = block.where(row, self.schema.dense[at].name)
            raise DataError(f"{where}: {values[row, at]:g} does not fit float16, which the split binary format has")
        return halves

    def _files(self, split: str) -> dict[str, IO[bytes]]:
        if split not in self._splits:
            folder = storage.join(self.target.folder, FOLDERS[split])
            numerical = ["numerical.bin"] if self.schema.dense else []
            names = ["label.bin", *numerical, *self._categories()]
            opened = {name: storage.publish(storage.join(folder, name)) for name in names}
            self._splits[split] = {name: self._open.enter_context(file) for name, file in opened.items()}
        return self._splits[split]

    def _categories(self) -> list[str]:
        return [f"cat_{at}.bin" for at in range(len(self.schema.sparse))]

    def close(self) -> None:
        self._open.close()
        storage.write_text(storage.join(self.target.folder, SPEC), yaml.safe_dump(self._spec(), sort_keys=False))

    def drop(self) -> None:
        self._open.__exit__(RuntimeError, RuntimeError("given up"), None)

    def _spec(self) -> dict[str, Any]:
        schema, label = self.schema, self.schema.labels[0].name
        dense, sparse = [part.name for part in schema.dense], [part.name for part in schema.sparse]
        features: dict[str, dict[str, Any]] = {label: {"dtype": "bool"}}
        features |= {name: {"dtype": "float16"} for name in dense}
        for name, kind, rows, width in zip(sparse, self._types, fixed_rows(schema, ""), self._widths, strict=True):
            hotness = {"hotness": width} if width > 1 else {}
            features[name] = {"dtype": str(kind), "cardinality": rows, **hotness}
        sources = {}
        for split in ("train", "test"):
            if split in self._splits:
                chunks = [([label], "label.bin"), *([(dense, "numerical.bin")] if dense else [])]
                chunks += [([name], file) for name, file in zip(sparse, self._categories(), strict=True)]
                sources[split] = [
                    {"type": "split_binary", "features": names, "files": [f"{FOLDERS[split]}/{file}"]}
                    for names, file in chunks
                ]
        channels = {"categorical": sparse, "numerical": dense, "label": [label]}
        return {"channel_spec": channels, "feature_spec": features, "metadata": {}, "source_spec": sources}


class NvidiaFormat(Format):
    name = "nvidia-binary"
    title = "NVIDIA split binary"

    def recognises(self, uri: str) -> bool:
        return storage.exists(storage.join(uri, SPEC))

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        return NvidiaSource(uri, schema)

    def create(self, target: Target, options: Options) -> Sink:
        return NvidiaSink(target)
