"""What a column of a file nobody has described may be."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from lanner.schema import RESERVED_NAMES

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?").fullmatch
_INTEGER = re.compile(r"-?\d+").fullmatch
_HEX = re.compile(r"[0-9a-fA-F]{8}").fullmatch
_LABELS = ("label", "click", "clicked", "is_click", "target", "y", "conversion", "bought", "liked", "income", "rating")
_TIME = re.compile(r"(^|_)(time|timestamp|date|datetime|hour|ts)($|_)", re.IGNORECASE).search
_ID = re.compile(r"(^|_)(id|ids|ip|key|code|zip)$|[a-z]Id$", re.IGNORECASE).search
_YAML_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
_SEPARATORS = "|;, "
_SHARE_SPLIT = 0.2
"""From this share of the rows on that hold a separator, texts are taken for lists."""
_FEW, _MANY = 50, 0.3
"""Distinct integers that still are categories; share of distinct values in the rows from which on they are hashed."""


def _is_integer(text: str) -> bool:
    """Of 64 bits with sign."""
    return _INTEGER(text) is not None and -(2**63) <= int(text) < 2**63


def _is_number(text: str) -> bool:
    """Digits beyond 64 bits are an id rather than a measure."""
    return _is_integer(text) if _INTEGER(text) else _NUMBER(text) is not None


class Column:
    """One column: `cells` are texts, None where missing, or lists of values."""

    def __init__(self, name: str, cells: list[object]) -> None:
        self.name, self.rows = name, len(cells)
        self._present = [cell for cell in cells if cell is not None]
        self._lists = any(isinstance(cell, list) for cell in self._present)
        self._separator = None if self._lists else _separator(list(map(str, self._present)))
        self._values = list(map(str, self._flat()))
        self.counts = Counter(self._values)
        self._integer = bool(self._values) and all(map(_is_integer, self.counts))
        self._numeric = bool(self._values) and all(map(_is_number, self.counts))

    def _flat(self) -> Iterable[Any]:
        if self._lists:
            return (v for cell in self._present for v in (cell if isinstance(cell, list) else [cell]) if v is not None)
        if self._separator:
            return (v for cell in self._present for v in str(cell).split(self._separator) if v)
        return self._present

    @property
    def shown(self) -> str:
        """The name as YAML takes it."""
        plain = re.fullmatch(r"[A-Za-z_][\w.]*", self.name) and self.name.lower() not in _YAML_WORDS
        return self.name if plain else json.dumps(self.name, ensure_ascii=False)

    @property
    def seen(self) -> str:
        """For people."""
        missing = self.rows - len(self._present)
        some = ", ".join(json.dumps(value[:20], ensure_ascii=False) for value, _ in self.counts.most_common(3))
        return f"{len(self.counts):,} distinct, {100 * missing / self.rows:.0f} % missing; {some}"

    @property
    def left_out(self) -> str | None:
        """Why the column is of no use as a feature, if so."""
        if len(self.counts) < 2:
            return "one value alone"
        if _TIME(self.name):
            return "a time? Then say --split time --time " + self.name
        single = not self._lists and not self._separator
        if single and len(self.counts) == len(self._present) > _FEW and (not self._numeric or self._integer):
            return "another value in every row"
        return None

    @property
    def is_number(self) -> bool:
        """True for measures and counts."""
        if self.left_out or self._lists or self._separator or not self._numeric:
            return False
        return not self._integer or not (_ID(self.name) or len(self.counts) <= _FEW or self._as_hex or self._as_key)

    @property
    def is_category(self) -> bool:
        """True for what gets a table."""
        return self.left_out is None and not self.is_number

    @property
    def _as_hex(self) -> bool:
        return all(map(_HEX, self.counts)) and not all(value.isdecimal() and value[0] != "0" for value in self.counts)

    @property
    def _as_key(self) -> bool:
        return any(abs(int(value)) > 2**53 for value in self.counts)

    def is_label(self) -> bool:
        """True where the values can be a label: two of them, or numbers under a label's name."""
        single = not self._lists and not self._separator and len(self._present) == self.rows
        return single and (len(self.counts) == 2 or (self._numeric and self.name.lower() == "rating"))

    def as_label(self) -> list[str]:
        """Lines of YAML."""
        if set(self.counts) <= {"0", "1", "0.0", "1.0"}:
            return self._entry("")
        if len(self.counts) > 2:
            ordered = sorted(map(float, self._values))
            return self._entry(f", at_least: {ordered[len(ordered) // 2]:g}", "from the middle value on")
        (negative, _), (positive, _) = self.counts.most_common()
        if negative.lower() in ("true", "yes", "1"):
            positive, negative = negative, positive
        texts = [json.dumps(text, ensure_ascii=False) for text in (positive, negative)]
        return self._entry(f", positive: [{texts[0]}], negative: [{texts[1]}]")

    def as_number(self) -> list[str]:
        """Lines of YAML."""
        numbers = [float(value) for value in self.counts]
        skewed = min(numbers) >= 0 and max(numbers) > 100
        raw = ", raw: int" if self._integer else ""
        return self._entry(f"{raw}, transform: {'log1p_standard' if skewed else 'standard'}")

    def as_category(self) -> list[str]:
        """Lines of YAML."""
        raw = ", raw: hex" if self._as_hex else ", raw: int" if self._integer else ""
        if len(self.counts) > _MANY * len(self._values) and len(self.counts) > 1000:
            encoder = f"{{kind: hash, size: {1 << (4 * len(self.counts)).bit_length()}}}"
        else:
            encoder = f"{{kind: vocab, min_count: {1 if len(self.counts) <= _FEW else 2}}}"
        bag = ""
        if self._lists or self._separator:
            bag = ", hotness: null, max_hotness: 50, pooling: mean"
            bag += f", separator: {json.dumps(self._separator)}" if self._separator else ""
        return self._entry(f"{raw}{bag}, encoder: {encoder}")

    def _entry(self, rest: str, why: str = "") -> list[str]:
        column = ""
        name = self.shown
        if self.name in RESERVED_NAMES - {"label"}:
            column, name = f", column: {name}", f"{name}_"
        return [f"  # {self.seen}" + (f"; {why}" if why else ""), f"  - {{name: {name}{column}{rest}}}"]


def guess_label(columns: list[Column]) -> Column | None:
    """The column most likely to be the label, by its name, or else the last, then the first, of two values."""
    fitting = [column for column in columns if column.is_label()]
    for name in _LABELS:
        for column in fitting:
            if column.name.lower() == name:
                return column
    return next((column for column in (columns[-1], columns[0]) if column in fitting), None)


def _separator(texts: list[str]) -> str | None:
    """What parts the values of a list, where enough texts hold it and pieces come again more often than whole texts."""
    for one in _SEPARATORS:
        held = [text for text in texts if one in text]
        if len(held) <= _SHARE_SPLIT * len(texts):
            continue
        pieces = [piece for text in held for piece in text.split(one)]
        distinct = len(set(pieces))
        plain = (
            all(map(_is_integer, pieces))
            if one in ", "
            else " " not in "".join(pieces[:1000]) or distinct < len(set(held))
        )
        if plain:
            return one
    return None
