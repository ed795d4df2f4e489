"""The inputs a model declares, in its two request forms.

*Encoded*: `dense` FP32 [D], `ids` INT64 [one-hot features] in schema order and `<feature>.ids` INT64 [-1] for each
other feature, padded with -1. Where every integer is an id, that of a dynamic table, bags of any length come with
`<feature>.lengths` INT64 [1] instead: how many ids of a row count, from the first on. *Raw*: the columns as logged,
each [1]; a column left out is a missing value. A request holds one complete form.
"""

from __future__ import annotations

from dataclasses import dataclass

from lanner.schema import Schema, Sparse

PADDING = -1
"""Fills the places of a bag's tensor that hold no id, unless the bag has a length or every place holds an id."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input the model declares; `dims` without the batch dimension."""

    name: str
    datatype: str
    dims: tuple[int, ...]


def encoded_inputs(schema: Schema) -> list[Input]:
    """The inputs of the encoded form, in model order."""
    found = [Input("dense", "FP32", (len(schema.dense),))] if schema.dense else []
    one_hot = sum(feature.one_hot for feature in schema.sparse)
    if one_hot:
        found.append(Input("ids", "INT64", (one_hot,)))
    for feature in schema.sparse:
        if not feature.one_hot:
            found.append(Input(f"{feature.name}.ids", "INT64", (-1,)))
        if has_lengths(schema, feature):
            found.append(Input(f"{feature.name}.lengths", "INT64", (1,)))
    return found


def has_lengths(schema: Schema, feature: Sparse) -> bool:
    """Whether the encoded form says how long each bag of a feature is: padding could be an id."""
    return feature.hotness is None and schema.table(feature.table_name).rows == "dynamic"


def raw_inputs(schema: Schema) -> list[Input]:
    """The inputs of the raw form: every raw column that a feature reads, in order of first use."""
    types: dict[str, str] = {}
    for number in schema.dense:
        types.setdefault(number.source, "FP64")
    for feature in schema.sparse:
        narrow = "INT64" if feature.raw == "int" and feature.separator is None else "BYTES"
        types[feature.source] = "BYTES" if types.get(feature.source) == "BYTES" else narrow
    return [Input(name, datatype, (1,)) for name, datatype in types.items()]
