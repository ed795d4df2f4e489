"""Criteo-format text: a label or none, integer columns I1.., hexadecimal columns C1.., tab-separated, no header."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from lanner.errors import ConfigError, DataError, SchemaError
from lanner.kernels.tokenize import SPARE, Layout, Tokens, tokenize
from lanner.prep.chunk import Keys, RawChunk
from lanner.prep.overlap import map_ordered
from lanner.prep.sources import BadRow, OnBadRow, ReadOptions
from lanner.prep.sources.blocks import BrokenFileError, line_blocks
from lanner.schema import Dense, Label, Schema, Sparse


class CriteoSource:
    """Reads Criteo logs (plain, gzip or zstd) with the number of columns, label and delimiter given by the options."""

    def schema(self, options: ReadOptions) -> Schema:
        """label, I1.. as log(1 + max(x, 0)), C1.. with a vocabulary each."""
        return Schema(
            labels=(Label(name="label"),) if options.labelled else (),
            dense=tuple(Dense(name=f"I{k + 1}", raw="int", transform="log1p_clip0") for k in range(options.numeric)),
            sparse=tuple(Sparse(name=f"C{k + 1}", raw="hex") for k in range(options.categorical)),
        )

    def check(self, schema: Schema, options: ReadOptions) -> None:
        """Raise SchemaError where `schema` reads a column this text cannot have, ConfigError for a bad option."""
        layout = _layout(schema, options)
        if options.time:
            raise ConfigError(f"time column {options.time!r}: Criteo logs have no time column")
        if options.join:
            raise ConfigError(f"join {options.join[0]!r}: Criteo logs have no key columns")
        if schema.weight or schema.group:
            raise SchemaError("Criteo logs have neither a weight nor a group column")
        for label in schema.labels:
            if label.source != "label" or label.positive or label.at_least is not None or len(schema.labels) > 1:
                raise SchemaError(f"label {label.name!r}: Criteo logs have one label, column 'label', of 0 and 1")
        for number in schema.dense:
            _index(number.name, number.source, "I", layout.numeric)
        for feature in schema.sparse:
            _index(feature.name, feature.source, "C", layout.categorical)
            if feature.blank is not None:
                raise SchemaError(
                    f"sparse feature {feature.name!r}: null is for other sources, in Criteo logs  is missing"
                )
            if feature.raw != "hex" or not feature.one_hot:
                raise SchemaError(
                    f"sparse feature {feature.name!r}: Criteo columns are one-hot and hexadecimal; expected raw: hex, "
                    f"hotness: 1, got raw: {feature.raw}, hotness: {feature.hotness}"
                )

    def read(self, file: str, schema: Schema, options: ReadOptions, on_bad_row: OnBadRow) -> Iterator[RawChunk]:
        """See `Source.read`."""
        layout = _layout(schema, options)
        parse = partial(_parse, schema=schema, layout=layout)
        lines = rows = 0
        try:
            for tokens, chunk in map_ordered(parse, line_blocks(file, options.block_bytes, SPARE)):
                for error in tokens.errors:
                    text = error.text.decode(errors="replace").rstrip("\r")
                    on_bad_row(BadRow(lines + error.line + 1, error.reason, error.message(layout), text))
                lines += tokens.lines
                rows += chunk.rows
                yield chunk
        except BrokenFileError as broken:
            raise DataError(f"{file}: {broken}; {rows} rows could be read before the break") from broken


def _layout(schema: Schema, options: ReadOptions) -> Layout:
    soft = any(label.soft for label in schema.labels)
    delimiter = "\t" if options.delimiter is None else options.delimiter
    return Layout(options.numeric, options.categorical, options.labelled, soft, delimiter)


def _index(name: str, column: str, letter: str, count: int) -> int:
    """Position of the raw column `column` among those of `letter`."""
    digits = column.removeprefix(letter)
    if column[:1] != letter or not digits.isdecimal() or not 1 <= int(digits) <= count:
        raise SchemaError(f"feature {name!r} reads the column {column!r}: expected one of {letter}1 to {letter}{count}")
    return int(digits) - 1


def _parse(block: np.ndarray, schema: Schema, layout: Layout) -> tuple[Tokens, RawChunk]:
    tokens = tokenize(block, layout, as_float=True)
    dense = [_index(number.name, number.source, "I", layout.numeric) for number in schema.dense]
    numbers = tokens.numbers
    if dense != list(range(layout.numeric)):
        numbers = numbers[:, dense]
    labels = tokens.labels.reshape(tokens.rows, 1) if schema.labels else np.empty((tokens.rows, 0), np.float32)
    return tokens, RawChunk(
        rows=tokens.rows,
        labels=labels,
        dense=numbers,
        sparse=[_keys(tokens, _index(f.name, f.source, "C", layout.categorical)) for f in schema.sparse],
    )


def _keys(tokens: Tokens, column: int) -> Keys:
    missing = tokens.key_missing[column]
    return Keys(tokens.keys[column], missing if missing.any() else None)
