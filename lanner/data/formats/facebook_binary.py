"""The 160-byte binary of Facebook's DLRM, which its MLPerf loader reads.

A record is 40 int32 words: label, 13 raw integers, 26 ids. The loader takes ln(x + 1) of the integers and ids modulo
`--max-ind-range` on the fly.
"""

from __future__ import annotations

from pydantic import Field

from lanner.data.formats.base import Format, Options, Sink, Source, Target
from lanner.data.formats.hugectr_raw import number_names
from lanner.data.formats.records import Layout, RecordSink, RecordSource
from lanner.data.formats.schemas import derived
from lanner.errors import ConfigError
from lanner.schema import Schema

NUMBERS, FEATURES = 13, 26
_LAYOUT = Layout("<i4", "<i4", "<i4")


class FacebookOptions(Options):
    """`modulo`: ids are taken modulo this number, as `--max-ind-range` does."""

    modulo: int | None = Field(default=None, ge=1)


def criteo_schema(rows: list[int | None], modulo: int | None = None) -> Schema:
    """Criteo's columns: a label, 13 counts, 26 categories over tables of `rows`."""
    sizes = [modulo if count is None else min(count, modulo or count) for count in rows]
    features: dict[str, tuple[int | None, int | None]] = {f"C{at + 1}": (size, 1) for at, size in enumerate(sizes)}
    return derived(["label"], number_names(NUMBERS), features, counts=True)


class FacebookBinaryFormat(Format):
    name = "facebook-binary"
    title = "Facebook DLRM binary"
    options = FacebookOptions

    def recognises(self, uri: str) -> bool:
        return False  # headerless, and its names are also those of others

    def open(self, uri: str, schema: Schema | None, options: Options) -> Source:
        assert isinstance(options, FacebookOptions)
        held = schema or criteo_schema([None] * FEATURES, options.modulo)
        check_counts(held, uri)
        return RecordSource(uri, held, _LAYOUT, options.modulo)

    def create(self, target: Target, options: Options) -> Sink:
        check_counts(target.schema, "Facebook's binary format")
        return RecordSink(target, _LAYOUT, "Facebook's binary format", options.chosen())


def check_counts(schema: Schema, wanted: str) -> None:
    """Raise ConfigError unless the schema has a label, 13 numbers and 26 features of one id."""
    seen = len(schema.labels), len(schema.dense), len(schema.sparse)
    if seen != (1, NUMBERS, FEATURES) or not all(feature.one_hot for feature in schema.sparse):
        held = f"{seen[0]} labels, {seen[1]} numbers, {seen[2]} features"
        raise ConfigError(f"{wanted}: holds 1 label, {NUMBERS} numbers, {FEATURES} one-hot features; the schema {held}")
