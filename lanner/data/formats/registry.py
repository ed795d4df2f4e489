"""The formats by name, and opening what lies somewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from lanner import storage
from lanner.data.formats.base import Format, Source, text_of
from lanner.data.formats.dataset import DatasetFormat
from lanner.data.formats.facebook_binary import FacebookBinaryFormat
from lanner.data.formats.facebook_npz import FacebookNpzFormat
from lanner.data.formats.hugectr_keyset import KeysetFormat
from lanner.data.formats.hugectr_norm import NormFormat
from lanner.data.formats.hugectr_parquet import HugectrParquetFormat
from lanner.data.formats.hugectr_raw import RawFormat
from lanner.data.formats.mlperf import MlperfFormat
from lanner.data.formats.nvidia import NvidiaFormat
from lanner.data.formats.tabular import TabularFormat
from lanner.errors import ConfigError, DataError
from lanner.schema import Schema

CARRIED = "format.json"
"""Written last beside converted files: format, options to read them with, rows. A source needs none."""

FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        DatasetFormat(),
        TabularFormat("parquet"),
        TabularFormat("arrow"),
        HugectrParquetFormat(),
        NormFormat(),
        RawFormat(),
        KeysetFormat(),
        NvidiaFormat(),
        MlperfFormat(),
        FacebookNpzFormat(),
        FacebookBinaryFormat(),
    )
}


def format_of(name: str) -> Format:
    """The format called `name`; raises ConfigError listing those there are."""
    if name not in FORMATS:
        raise ConfigError(f"no format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


def guess(uri: str) -> Format:
    """The format of what lies at `uri`; raises ConfigError unless the names of its files leave no doubt."""
    found = [format for format in FORMATS.values() if format.recognises(uri)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(format.name for format in found or FORMATS.values())
    what = "could be of several formats" if found else "its format cannot be told from its names"
    raise ConfigError(f"{uri}: {what}; say which it is: {names}")


def told(uri: str, format: str | None = None) -> tuple[Format, dict[str, Any] | None]:
    """The format of what lies at `uri`, and what was carried along with it.

    Raises DataError where nothing is there, ConfigError where the format cannot be told.
    """
    if not storage.is_directory(uri) and not storage.exists(uri):
        raise DataError(f"{uri}: no such file or directory")
    carried = _carried(_home(uri))
    named = format or (carried["format"] if carried else None)
    return (format_of(named) if named else guess(uri)), carried


def _home(uri: str) -> str:
    """The folder that `uri` is or lies in."""
    return uri if storage.is_directory(uri) else uri.rpartition("/")[0] or "."


def open_source(
    uri: str | os.PathLike[str],
    format: str | None = None,
    schema: Schema | str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Source:
    """Open for reading what lies at `uri`, a folder or file on any file system.

    `format` and `schema` are by default those carried along beside the files (`format.json`, `schema.yaml`); else the
    format is guessed, and the schema derived. `options` are the format's own. Raises ConfigError, SchemaError or
    DataError naming what does not fit, before rows are read.
    """
    uri = text_of(uri)
    chosen, carried = told(uri, format)
    home = _home(uri)
    known = carried["options"] if carried and carried["format"] == chosen.name else {}
    beside = storage.join(home, "schema.yaml")
    if schema is None and chosen.name != "lanner" and storage.exists(beside):
        schema = beside
    held = schema if isinstance(schema, Schema) or schema is None else Schema.load(schema)
    source = chosen.open(uri, held, chosen.parse({**known, **(options or {})}))
    source.format = chosen.name
    if carried and carried["format"] == chosen.name and home == uri:
        _compare(source, carried["rows"])
    return source


def _carried(home: str) -> dict[str, Any] | None:
    path = storage.join(home, CARRIED)
    if not storage.exists(path):
        return None
    try:
        found: dict[str, Any] = json.loads(storage.read_text(path))
        return {key: found[key] for key in ("format", "options", "rows")}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: expected a mapping with format, options and rows") from error


def _compare(source: Source, rows: dict[str, int]) -> None:
    for split, count in rows.items():
        seen = source.rows.get(split, 0)
        if seen is not None and seen != count:
            raise DataError(f"{source.uri}: {split} has {seen} rows, {CARRIED} says {count}: files are missing or cut")
        source.rows[split] = count
