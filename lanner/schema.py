"""The schema: what each column is, how a raw value becomes an id or a number, and which table the id addresses.

Prep writes it, training reads it, export packs it, the server obeys it. Everything is keyed by name, and order in
the lists is the model's input order.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from lanner import storage
from lanner.encoders import (
    Encoding,
    HashEncoder,
    IdentityEncoder,
    KeyEncoder,
    Part,
    VocabEncoder,
)
from lanner.errors import SchemaError

__all__ = [
    "MISSING_ID",
    "RESERVED_NAMES",
    "Column",
    "Dense",
    "Encoding",
    "HashEncoder",
    "History",
    "IdentityEncoder",
    "KeyEncoder",
    "Label",
    "Raw",
    "Schema",
    "Sparse",
    "Table",
    "Transform",
    "VocabEncoder",
]

MISSING_ID = 0
"""Every encoder that knows missing values gives them this id; sequences are padded with it too."""

RESERVED_NAMES = frozenset({"dense", "ids", "score", "label"})
"""Names of tensors and columns that Lanner makes itself; no feature may take them (a label may be called `label`)."""

_LATER_OF_SPARSE = {"blank": None, "fill": None, "modulo": None, "history": None}
_LATER_OF_ENCODERS = {"order": "count", "reserved": True, "max_rows": None, "lowest": 0, "outside": None}

Raw = Literal["hex", "int", "string"]
Transform = Literal[
    "none", "log1p_clip0", "log_shift3_missing0", "log_minus_min_plus2", "standard", "log1p_standard", "bucketize"
]


class Column(Part):
    """A named feature read from the raw column `column` (default: its own name)."""

    name: str = Field(min_length=1)
    column: str | None = None

    @property
    def source(self) -> str:
        """Name of the raw column."""
        return self.column or self.name


class Label(Column):
    """A target.

    `positive` and `negative` list the raw texts that mean 1 and 0 (anything else is an error); `at_least` makes a
    number a label (1 where value >= at_least). With neither, the raw value must be 0 or 1, or any number in [0, 1]
    when `soft` is on. Weights of several losses are `loss_weight`.
    """

    task: Literal["binary", "regression", "multiclass"] = "binary"
    loss_weight: float = 1.0
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    at_least: float | None = None
    soft: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> Label:
        if bool(self.positive) != bool(self.negative):
            raise ValueError(f"label {self.name!r}: give both `positive` and `negative`, or neither")
        if self.positive and self.at_least is not None:
            raise ValueError(f"label {self.name!r}: `at_least` and `positive` exclude each other")
        return self


class Dense(Column):
    """A number.

    `fill` is the raw value taken for a missing cell; null means that a missing cell becomes 0.0 *after* the
    transform. `parameters` are the transform's own: fitted on the training rows by prep where it needs them
    (`minimum`; `mean` and `std`), or given (`boundaries`).
    """

    raw: Literal["int", "float"] = "float"
    fill: float | None = 0.0
    transform: Transform = "none"
    parameters: dict[str, float | tuple[float, ...]] = Field(default={})


class History(Part):
    """The last values of the feature `of` in the rows of the same group that are strictly earlier in time.

    Of all those rows or, with `where`, of those in which that label is above 0.
    """

    of: str
    where: str | None = None


class Sparse(Column):
    """A categorical feature whose ids address the rows of `table` (default: a table of its own, of the same name).

    `raw` is how the value is logged: `hex` (up to 8 digits, read as an unsigned 32-bit integer), `int` (64-bit) or
    `string`. `hotness` 1 is one id a row; n is exactly n ids; null is a ragged bag of at most `max_hotness` ids,
    read from a list column or from text split at `separator`.

    `blank` is a logged value that means missing. Before the encoder sees a value, `fill` (as logged) takes the place
    of a missing one, and hex and int values are taken modulo `modulo`.

    A feature with a `history` is a bag of `max_hotness` values, oldest first, that prep can make from the rows
    themselves when it is told their time; without a time, and in requests, it is a column like any other.
    """

    table: str | None = None
    raw: Raw = "string"
    encoder: Encoding = VocabEncoder()
    hotness: int | None = Field(default=1, ge=1)
    max_hotness: int | None = Field(default=None, ge=1)
    separator: str | None = Field(default=None, min_length=1)
    pooling: Literal["sum", "mean", "max", "none"] = "sum"
    padding: Literal["left", "right"] = "right"
    blank: int | str | None = None
    fill: int | str | None = None
    modulo: int | None = Field(default=None, ge=1)
    history: History | None = None

    @model_validator(mode="after")
    def _fits_hotness(self) -> Sparse:
        if self.modulo is not None and self.raw == "string":
            raise ValueError(f"feature {self.name!r}: modulo {self.modulo} needs raw hex or int, not string")
        if not self.one_hot and self.fill is not None:
            raise ValueError(f"feature {self.name!r}: fill is for one value a row; an empty list stays empty")
        if not self.one_hot and isinstance(self.encoder, VocabEncoder) and not self.encoder.reserved:
            raise ValueError(f"feature {self.name!r}: lists are padded with id 0, which has to be reserved")
        return self

    @property
    def table_name(self) -> str:
        return self.table or self.name

    @property
    def one_hot(self) -> bool:
        return self.hotness == 1


class Table(Part):
    """An embedding table: its number of rows (null until prep has fitted it) and its vocabulary file, if any.

    `rows` = "dynamic" is a table that grows with its keys. `vocabulary` is relative to the schema's directory.
    """

    name: str = Field(min_length=1)
    rows: int | Literal["dynamic"] | None = None
    vocabulary: str | None = None


class Schema(Part):
    """See the module's docstring. Raises SchemaError naming the field where it is invalid."""

    version: Literal[1] = 1
    labels: tuple[Label, ...] = ()
    dense: tuple[Dense, ...] = ()
    sparse: tuple[Sparse, ...] = ()
    tables: tuple[Table, ...] = ()
    weight: str | None = None
    group: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _default_tables(cls, values: Any) -> Any:
        """Give every sparse feature whose table is not listed a table, in order of first use."""
        if not isinstance(values, dict) or not all(_is_parts(values.get(key)) for key in ("tables", "sparse")):
            return values  # left to the validation of the fields
        tables = list(values.get("tables") or ())
        known = {t.name if isinstance(t, Table) else t.get("name") for t in tables}
        for feature in values.get("sparse") or ():
            read = feature.get if isinstance(feature, dict) else lambda key, f=feature: getattr(f, key, None)
            name = read("table") or read("name")
            if name not in known:
                known.add(name)
                tables.append({"name": name})
        return {**values, "tables": tables}

    @model_validator(mode="after")
    def _consistent(self) -> Schema:
        names = [part.name for part in (*self.labels, *self.dense, *self.sparse)]
        for name, count in Counter(names).items():
            if count > 1:
                raise ValueError(f"the name {name!r} is used {count} times; labels and features need distinct names")
        for part in (*self.dense, *self.sparse):
            if part.name in RESERVED_NAMES:
                raise ValueError(f"feature {part.name!r}: this name is reserved, choose another")
        for name, count in Counter(table.name for table in self.tables).items():
            if count > 1:
                raise ValueError(f"table {name!r} is listed {count} times")
        used = {feature.table_name for feature in self.sparse}
        for table in self.tables:
            if table.name not in used:
                raise ValueError(f"table {table.name!r}: no sparse feature uses it")
        for name in used:
            sharing = self.features_of(name)
            if len({(f.encoder, f.raw) for f in sharing}) > 1:
                raise ValueError(
                    f"table {name!r}: features {', '.join(f.name for f in sharing)} share it "
                    "and must have the same encoder and raw type"
                )
        for feature in self.sparse:
            if feature.history is not None:
                self._check_history(feature, feature.history)
        return self

    def _check_history(self, feature: Sparse, history: History) -> None:
        where = f"feature {feature.name!r}, history of {history.of!r}"
        of = next((other for other in self.sparse if other.name == history.of), None)
        if of is None or not of.one_hot:
            raise ValueError(f"{where}: expected the name of a sparse feature with one value a row")
        if feature.hotness is not None or feature.max_hotness is None:
            raise ValueError(f"{where}: expected hotness: null and a max_hotness")
        if feature.table_name != of.table_name or feature.modulo != of.modulo:
            raise ValueError(f"{where}: expected the same table ({of.table_name!r}) and modulo ({of.modulo})")
        if history.where is not None and history.where not in [label.name for label in self.labels]:
            raise ValueError(f"{where}: no label {history.where!r}")
        if self.group is None:
            raise ValueError(f"{where}: the schema gives no group column to say whose history it is")

    def without_histories(self) -> Schema:
        """What has to be read to make the histories."""
        return self.model_copy(update={"sparse": tuple(f for f in self.sparse if f.history is None)})

    def features_of(self, table: str) -> tuple[Sparse, ...]:
        """The sparse features whose ids address `table`."""
        return tuple(feature for feature in self.sparse if feature.table_name == table)

    def table(self, name: str) -> Table:
        """The table called `name`; KeyError when there is none."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)

    @property
    def raw_columns(self) -> tuple[str, ...]:
        """Every raw column the schema reads, in order of first use."""
        parts = (*self.labels, *self.dense, *self.sparse)
        extra = (name for name in (self.weight, self.group) if name)
        return tuple(dict.fromkeys((*(part.source for part in parts), *extra)))

    def fingerprint(self) -> str:
        """16 hex digits that change whenever any field of the schema changes."""
        text = json.dumps(_first_form(self.model_dump(mode="json")), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def difference(self, other: Schema) -> str | None:
        """The first field in which `other` differs, as "path: ours != theirs"; None when the schemas are equal."""
        return next(_differences("", self.model_dump(mode="json"), other.model_dump(mode="json")), None)

    def require_same(self, other: Schema, ours: str, theirs: str) -> None:
        """Raise SchemaError naming the differing field unless `other` equals this schema."""
        if difference := self.difference(other):
            raise SchemaError(f"the schemas of {ours} and {theirs} differ in {difference}")

    def to_yaml(self) -> str:
        """YAML without the fields left at their defaults."""
        values = self.model_dump(mode="json", exclude_defaults=True)
        for feature, written in zip(self.sparse, values.get("sparse", ()), strict=True):
            written["encoder"] = {"kind": feature.encoder.kind, **written.get("encoder", {})}
        return yaml.safe_dump({"version": self.version, **values}, sort_keys=False, allow_unicode=True)

    def save(self, uri: str | os.PathLike[str]) -> None:
        """Publish the schema as YAML."""
        storage.write_text(uri, self.to_yaml())

    @classmethod
    def from_yaml(cls, text: str, source: str = "schema") -> Schema:
        """Parse and validate; raises SchemaError naming `source` and each field at fault."""
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SchemaError(f"{source}: not valid YAML: {error}") from error
        if not isinstance(values, dict):
            raise SchemaError(f"{source}: expected a mapping with labels, dense, sparse, tables")
        return cls.parse(values, source)

    @classmethod
    def parse(cls, values: dict[str, Any], source: str = "schema") -> Schema:
        """Validate a plain mapping; raises SchemaError naming `source` and each field at fault."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SchemaError(f"{source}: " + "; ".join(_problems(error, values))) from error

    @classmethod
    def load(cls, uri: str | os.PathLike[str]) -> Schema:
        """Read a schema file."""
        return cls.from_yaml(storage.read_text(uri), os.fspath(uri))


def _first_form(values: dict[str, Any]) -> dict[str, Any]:
    """`values` of a schema without later fields that say nothing, so that older fingerprints still hold."""
    for feature in values["sparse"]:
        for part, later in ((feature, _LATER_OF_SPARSE), (feature["encoder"], _LATER_OF_ENCODERS)):
            for name, default in later.items():
                if name in part and part[name] == default:
                    del part[name]
    return values


def _is_parts(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(isinstance(v, dict | Part) for v in value))


def _problems(error: ValidationError, values: dict[str, Any]) -> Iterator[str]:
    for problem in error.errors():
        place = _place(problem["loc"], values)
        text = problem["msg"].removeprefix("Value error, ")
        seen = f" (got {problem['input']!r})" if place and not isinstance(problem["input"], dict) else ""
        yield f"{place}: {text}{seen}" if place else text


def _place(location: tuple[int | str, ...], values: Any) -> str:
    """`sparse.3.raw` as `sparse[C3].raw`: list items are named by their `name` where they have one."""
    text = ""
    for step in location:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            values = None
        if isinstance(step, int):
            text += f"[{values.get('name', step) if isinstance(values, dict) else step}]"
        else:
            text += f".{step}" if text else step
    return text


def _differences(path: str, ours: Any, theirs: Any) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys((*ours, *theirs)):
            yield from _differences(f"{path}.{key}" if path else key, ours.get(key), theirs.get(key))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            name = left.get("name", index) if isinstance(left, dict) else index
            yield from _differences(f"{path}[{name}]", left, right)
    elif isinstance(ours, list) and isinstance(theirs, list):
        yield f"{path}: {len(ours)} entries != {len(theirs)} entries"
    elif ours != theirs:
        yield f"{path}: {ours!r} != {theirs!r}"
