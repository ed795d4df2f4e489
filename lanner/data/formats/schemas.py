"""Schemas of files that bring none: ids are rows of their tables as they are, integer counts await a logarithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lanner.errors import ConfigError
from lanner.schema import IdentityEncoder, Schema

UNMEASURED = 2**63 - 1
"""Size of an identity encoder whose table is not measured yet."""


def derived(
    labels: Sequence[str],
    dense: Sequence[str],
    sparse: Mapping[str, tuple[int | None, int | None]],
    counts: bool = False,
) -> Schema:
    """A schema for encoded rows. `sparse` gives each feature (rows of its table or None, hotness or None for ragged).

    `counts` says that the numbers are raw integers: they are taken by ln(1 + max(x, 0)), as HugeCTR and Facebook's
    DLRM do. Raises SchemaError where the names do not do.
    """
    number: dict[str, Any] = {"raw": "int", "transform": "log1p_clip0"} if counts else {}
    return Schema.parse(
        {
            "labels": [{"name": name} for name in labels],
            "dense": [{"name": name, **number} for name in dense],
            "sparse": [
                {
                    "name": name,
                    "raw": "int",
                    "encoder": {"kind": "identity", "size": rows or UNMEASURED},
                    "hotness": hotness,
                }
                for name, (rows, hotness) in sparse.items()
            ],
            "tables": [{"name": name, "rows": rows} for name, (rows, _) in sparse.items()],
        },
        "derived schema",
    )


def table_rows(schema: Schema) -> list[int | None]:
    """Rows of the table of each sparse feature; None where it takes any key or is not measured."""
    counts = (schema.table(feature.table_name).rows for feature in schema.sparse)
    return [count if isinstance(count, int) else None for count in counts]


def fixed_rows(schema: Schema, wanted: str) -> list[int]:
    """Rows of the table of each sparse feature; raises ConfigError naming a table that has no fixed number."""
    for feature, rows in zip(schema.sparse, table_rows(schema), strict=True):
        if rows is None:
            raise ConfigError(f"table {feature.table_name!r} takes any key; {wanted} needs ids below a fixed size")
    return [rows for rows in table_rows(schema) if rows is not None]


def unmeasured(schema: Schema) -> tuple[str, ...]:
    """The tables whose sizes are not known."""
    return tuple(table.name for table in schema.tables if table.rows is None)


def measured(schema: Schema, largest: Mapping[str, int], hotness: Mapping[str, int]) -> Schema:
    """`schema` with tables just large enough for the `largest` ids seen in them, where their size is not known.

    `hotness` replaces that of the features it names.
    """
    rows = {table.name: max(largest.get(table.name, -1) + 1, 1) for table in schema.tables if table.rows is None}
    values = schema.model_dump(mode="json")
    for table in values["tables"]:
        table["rows"] = rows.get(table["name"], table["rows"])
    for feature, written in zip(schema.sparse, values["sparse"], strict=True):
        written["hotness"] = hotness.get(feature.name, feature.hotness)
        if feature.table_name in rows and isinstance(feature.encoder, IdentityEncoder):
            written["encoder"]["size"] = rows[feature.table_name]
    return Schema.parse(values)


def without_vocabularies(schema: Schema) -> Schema:
    """`schema` for rows whose vocabularies are lost: raw requests then give the ids themselves."""
    lost = {table.name for table in schema.tables if table.vocabulary}
    values = schema.model_dump(mode="json")
    for table in values["tables"]:
        table["vocabulary"] = None
    for feature, written in zip(schema.sparse, values["sparse"], strict=True):
        if feature.table_name in lost:
            size = schema.table(feature.table_name).rows
            written |= {"raw": "int", "encoder": {"kind": "identity", "size": size, "missing": 0}}
    return Schema.parse(values)
