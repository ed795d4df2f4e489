"""The recipe's section `embedding`: what it says of which table, and its mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lanner.embedding import (
    Adam,
    Constant,
    DynamicConfig,
    EmbeddingCollection,
    EmbeddingSettings,
    Normal,
    RowWiseAdagrad,
    TableConfig,
    TableSettings,
    Uniform,
)
from lanner.embedding.initializers import Given, describe, parse
from lanner.embedding.optimizers import describe as describe_optimizer
from lanner.errors import ConfigError
from lanner.schema import Schema

TABLES = [TableConfig("a", 10, 4), TableConfig("b", 20, 4), TableConfig("k", "dynamic", 4)]
SCHEMA = Schema.parse(
    {
        "labels": [{"name": "y"}],
        "sparse": [
            {"name": "a", "raw": "int", "encoder": {"kind": "identity", "size": 10}},
            {"name": "b", "raw": "int", "encoder": {"kind": "identity", "size": 20}},
            {"name": "k", "encoder": {"kind": "key"}},
        ],
        "tables": [{"name": "a", "rows": 10}, {"name": "b", "rows": 20}, {"name": "k", "rows": "dynamic"}],
    }
)
SAID: dict[str, Any] = {
    "tables": {
        "a": {"optimizer": {"name": "Adam", "lr": 0.5}, "dtype": "bf16"},
        "*": {
            "optimizer": {"name": "RowWiseAdagrad", "lr": 0.1},
            "initializer": {"name": "Constant", "value": 2.0},
            "dynamic": {"max_rows": 7, "eviction": "lfu", "min_count": 2},
        },
    }
}


def test_a_table_takes_from_the_star_what_it_does_not_say_itself() -> None:
    a, b, k = EmbeddingSettings.of(SAID).applied(TABLES)
    assert (a.optimizer, a.initializer, a.dtype, a.dynamic) == (Adam(0.5), Constant(2.0), "bf16", None)
    assert (b.optimizer, b.initializer, b.dtype, b.dynamic) == (RowWiseAdagrad(0.1), Constant(2.0), "fp32", None)
    assert k.dynamic == DynamicConfig(max_rows=7, eviction="lfu", min_count=2) and k.optimizer == RowWiseAdagrad(0.1)


def test_nothing_said_changes_nothing() -> None:
    assert EmbeddingSettings().applied(TABLES) == TABLES
    assert EmbeddingSettings.of(None) == EmbeddingSettings.of({}) == EmbeddingSettings()


def test_a_collection_of_a_schema_obeys() -> None:
    said = {"tables": {**SAID["tables"], "a": {"initializer": {"name": "Uniform", "low": 3, "high": 4}}}}
    collection = EmbeddingCollection.from_schema(SCHEMA, 4, Adam(0.25), settings=said)
    weights = {name: collection.weight(name).numpy() for name in ("a", "b")}
    assert (weights["a"] >= 3).all() and (weights["a"] <= 4).all() and np.ptp(weights["a"]) > 0.5
    assert (weights["b"] == 2).all()
    assert collection.table_optimizer("b") == RowWiseAdagrad(0.1)
    collection.set_optimizer(Adam(0.125))  # the trainer's: for tables without one of their own
    assert collection.table_optimizer("b") == RowWiseAdagrad(0.1)
    assert EmbeddingCollection.from_schema(SCHEMA, 4, Adam(0.25)).table_optimizer("b") == Adam(0.25)


def test_what_lasts_is_plain_and_reads_back_the_same() -> None:
    settings = EmbeddingSettings.of({**SAID, "plan": "plan.yaml"})
    assert EmbeddingSettings.of(settings.lasting()) == settings.model_copy(update={"plan": None})
    assert settings.lasting()["tables"]["a"] == {
        "dtype": "bf16",
        "optimizer": describe_optimizer(Adam(0.5)),
    }
    as_objects = EmbeddingSettings(tables={"a": TableSettings(optimizer=Adam(0.5), dtype="bf16")})
    assert as_objects.tables["a"] == settings.tables["a"]


@pytest.mark.parametrize("initializer", [Uniform(-0.5, 0.25), Normal(1.0, 0.1), Constant(3.0)])
def test_initializers_have_a_plain_form(initializer: Given) -> None:
    plain = describe(initializer)
    assert plain["name"] == type(initializer).__name__ and parse(plain) == initializer


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"tables": {"c": {}}}, r"embedding.tables: there is no table 'c'; there are a, b, k"),
        ({"tables": {"a": {"rows": 3}}}, r"embedding: tables.a.rows: no such key"),
        ({"tables": {"a": {"dtype": "int8"}}}, r"embedding: tables.a.dtype: .*got 'int8'"),
        ({"tables": {"a": {"optimizer": {"name": "Lion"}}}}, r"embedding: tables.a.optimizer: .*'Lion' is not known"),
        ({"tables": {"a": {"optimizer": "Adam"}}}, r"embedding: tables.a.optimizer: expected a mapping \(got 'Adam'\)"),
        ({"tables": {"*": {"initializer": {"name": "Zeros"}}}}, r"tables.\*.initializer: .*'Zeros' .*Uniform, Normal"),
        ({"tables": {"a": {"initializer": {"name": "Constant", "value": "x"}}}}, r"tables.a.initializer: .*'x'"),
        (
            {"tables": {"a": {"initializer": {"name": "Uniform"}}}},
            r"tables.a.initializer: initializer Uniform: low is missing",
        ),
        (
            {"tables": {"a": {"optimizer": {"name": "Adam", "rate": 1}}}},
            r"optimizer Adam: no such key: 'rate'; .*betas, eps",
        ),
        ({"tables": {"a": "bf16"}}, r"embedding: tables.a: expected a mapping \(got 'bf16'\)$"),
        (
            {"tables": {"k": {"dynamic": {"max_row": 1}}}},
            r"tables.k.dynamic: dynamic table: no such key: 'max_row'; .*max_rows",
        ),
        ({"tables": {"k": {"dynamic": {"max_rows": 0}}}}, r"tables.k.dynamic: .*max_rows is 0"),
        (
            {"tables": {"a": {"dynamic": {}}}},
            r"embedding.tables.a.dynamic: the schema gives the table a fixed number of rows",
        ),
        ({"plan": 3}, r"embedding: plan: expected the name of a file, or a mapping \(got 3\)"),
        ({"plan": {"version": 9}}, r"embedding.plan: version is 9"),
        (
            {"plan": {"version": 1, "world_size": 4, "tables": {"a": {"kind": "data"}}}},
            r"table '[bk]' has no placement",
        ),
        ({"table": {}}, r"embedding: table: no such key; the keys here are tables"),
    ],
)
def test_mistakes_are_named(said: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EmbeddingCollection.from_schema(SCHEMA, 4, settings=said)


def test_the_star_is_no_way_to_make_static_tables_dynamic() -> None:
    with pytest.raises(ConfigError, match=r"embedding.tables.\*.dynamic: the schema has no dynamic table"):
        EmbeddingSettings.of(SAID).applied(TABLES[:2])


def test_a_plan_may_stand_in_the_recipe() -> None:
    plan = {"version": 1, "world_size": 1, "tables": {name: {"kind": "table", "ranks": [0]} for name in "abk"}}
    loaded = EmbeddingSettings.of({"plan": plan}).load_plan()
    assert loaded is not None and loaded.world_size == 1 and set(loaded.tables) == set("abk")
    assert EmbeddingSettings().load_plan() is None
