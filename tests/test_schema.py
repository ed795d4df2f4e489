"""The schema: round trips, fingerprints, differences and errors that name the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import SchemaError
from lanner.schema import Dense, HashEncoder, IdentityEncoder, Label, Schema, Sparse, Table, VocabEncoder

EXAMPLES = Path(__file__).parents[1] / "examples" / "schemas"
names = st.text("abcxyz_é 1:#'\"", min_size=1, max_size=8)
vocab_encoders = st.builds(
    VocabEncoder,
    min_count=st.integers(1, 99),
    max_size=st.none() | st.integers(1, 9),
    unknown_buckets=st.integers(0, 3),
)
encoders = (
    vocab_encoders
    | st.builds(HashEncoder, size=st.integers(1, 2**40), seed=st.integers(0, 2**63 - 1))
    | st.builds(IdentityEncoder, size=st.integers(1, 99), missing=st.none() | st.integers(0, 5))
)
numbers = st.floats(-9, 9)
parameters = st.dictionaries(names, numbers | st.lists(numbers, min_size=1).map(tuple), max_size=2)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    used = draw(st.lists(names.filter(lambda n: n not in ("ids", "dense")), unique=True, max_size=6))
    cut, end = sorted(draw(st.tuples(*[st.integers(0, len(used))] * 2)))

    def build(kind: type, chosen: list[str], **settings: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(st.builds(kind, name=st.just(name), **settings)) for name in chosen)

    hotness, separator = st.sampled_from([1, None, 3]), st.none() | names
    return Schema(
        labels=build(Label, used[:cut], soft=st.booleans(), column=st.none() | names),
        dense=build(Dense, used[cut:end], fill=st.none() | numbers, parameters=parameters),
        sparse=build(Sparse, used[end:], encoder=encoders, hotness=hotness, separator=separator),
        weight=draw(st.none() | names),
    )


@given(schemas())
def test_yaml_gives_the_same_schema_back(schema: Schema) -> None:
    again = Schema.from_yaml(schema.to_yaml())
    assert again == schema
    assert again.fingerprint() == schema.fingerprint()
    assert schema.difference(again) is None


def test_saved_and_loaded(tmp_path: Path) -> None:
    schema = Schema(sparse=(Sparse(name="ä", raw="hex"),), group="user")
    schema.save(tmp_path / "s" / "schema.yaml")
    assert Schema.load(tmp_path / "s" / "schema.yaml") == schema
    with pytest.raises(FileNotFoundError, match="nope"):
        Schema.load(tmp_path / "nope.yaml")


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_the_example_schemas_are_valid(name: str) -> None:
    schema = Schema.load(EXAMPLES / name)
    assert schema.labels and (schema.sparse or schema.dense)


def test_tables_are_made_for_features_that_name_none() -> None:
    shared = {"table": "shared", "encoder": HashEncoder(size=9)}
    schema = Schema(
        sparse=(Sparse(name="b"), Sparse(name="a", **shared), Sparse(name="c", **shared)),
        tables=(Table(name="shared", rows=10),),
    )
    assert [table.name for table in schema.tables] == ["shared", "b"]
    assert [feature.name for feature in schema.features_of("shared")] == ["a", "c"]
    assert schema.table("shared").rows == 10 and schema.table("b").rows is None
    with pytest.raises(KeyError):
        schema.table("z")


def test_raw_columns_in_order_of_first_use() -> None:
    schema = Schema(
        labels=(Label(name="y", column="click"),),
        dense=(Dense(name="age"), Dense(name="decade", column="age")),
        sparse=(Sparse(name="s"),),
        weight="w",
        group="s",
    )
    assert schema.raw_columns == ("click", "age", "s", "w")


def test_differences_name_the_field() -> None:
    left = Schema(sparse=(Sparse(name="a"), Sparse(name="b", encoder=VocabEncoder(min_count=2))))
    right = Schema(sparse=(Sparse(name="a"), Sparse(name="b", encoder=VocabEncoder(min_count=3))))
    assert left.fingerprint() != right.fingerprint()
    assert left.difference(right) == "sparse[b].encoder.min_count: 2 != 3"
    longer = Schema(sparse=(*left.sparse, Sparse(name="c")))
    assert left.difference(longer) == "sparse: 2 entries != 3 entries"
    with pytest.raises(SchemaError, match=r"schemas of the data and the model differ in sparse\[b\]"):
        left.require_same(right, "the data", "the model")
    left.require_same(left, "one", "itself")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sparse": [{"name": "C3", "raw": "hexa"}]}, r"sparse\[C3\]\.raw: .*got 'hexa'"),
        ({"sparse": [{"name": "a", "encoder": {"kind": "hash", "size": 0}}]}, r"sparse\[a\].*size.*got 0"),
        ({"sparse": [{"name": "a", "hotnes": 3}]}, r"sparse\[a\]\.hotnes"),
        ({"dense": [{"name": "a", "transform": "log"}]}, r"dense\[a\]\.transform.*got 'log'"),
        ({"dense": [{"name": "a"}], "sparse": [{"name": "a"}]}, "'a' is used 2 times"),
        ({"sparse": [{"name": "ids"}]}, "'ids': this name is reserved"),
        ({"tables": [{"name": "t"}]}, "table 't': no sparse feature uses it"),
        ({"sparse": [{"name": "t"}], "tables": [{"name": "t"}, {"name": "t"}]}, "table 't' is listed 2 times"),
        ({"sparse": [{"name": "a", "table": "t"}, {"name": "b", "table": "t", "raw": "int"}]}, "a, b share it"),
        ({"labels": [{"name": "y", "positive": ["1"]}]}, "'y': give both"),
        ({"labels": [{"name": "y", "positive": ["1"], "negative": ["0"], "at_least": 1}]}, "exclude each other"),
        ({"sparse": "C1"}, "sparse"),
        ({"sparse": ["C1"]}, "sparse"),
        ({"sparse": 3}, "sparse"),
        ({"sparse": [{"raw": "int"}]}, "name"),
        ({"tables": "t"}, "tables"),
        ({"tables": ["t"]}, "tables"),
        ({"tables": 3}, "tables"),
        ({"feature": []}, "feature"),
    ],
)
def test_errors_name_the_field_and_the_source(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"my.yaml: .*{message}"):
        Schema.parse(values, "my.yaml")


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "just text"])
def test_text_that_is_no_schema(text: str) -> None:
    with pytest.raises(SchemaError, match=r"my\.yaml"):
        Schema.from_yaml(text, "my.yaml")
