"""DLRM: shapes, options, seeds and rebuilding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lanner.data.batch import Bags, Batch
from lanner.errors import ConfigError
from lanner.models import DLRM, build, name_of
from lanner.schema import Schema


def schema(dense: int = 3, ragged: bool = False, labels: int = 1, features: int = 2) -> Schema:
    hotness: dict[str, Any] = {"hotness": None, "max_hotness": 5, "separator": "|"} if ragged else {}
    encoder = {"kind": "identity", "size": 10}
    return Schema.parse(
        {
            "labels": [{"name": f"y{k}"} for k in range(labels)],
            "dense": [{"name": f"n{k}"} for k in range(dense)],
            "sparse": [{"name": f"c{k}", "raw": "int", "encoder": encoder, **hotness} for k in range(features)],
            "tables": [{"name": f"c{k}", "rows": 10} for k in range(features)],
        }
    )


def batch(of: Schema, rows: int = 4) -> Batch:
    names, dense = tuple(f.name for f in of.sparse), torch.randn(rows, len(of.dense))
    labels = torch.zeros(rows, len(of.labels))
    if of.sparse and not of.sparse[0].one_hot:
        lengths = torch.arange(rows * len(names)) % 3
        values = torch.randint(0, 10, (int(lengths.sum()),))
        return Batch(dense, Bags.from_lengths(names, values, lengths), labels)
    return Batch(dense, Bags(names, torch.randint(0, 10, (rows * len(names),))), labels)


@pytest.mark.parametrize("interaction", ["dot", "cat"])
@pytest.mark.parametrize(
    "of",
    [schema(), schema(dense=0), schema(features=0), schema(dense=0, features=1), schema(ragged=True), schema(labels=2)],
)
def test_any_mix_of_features_gives_one_logit_a_label(of: Schema, interaction: str) -> None:
    model = DLRM(of, dim=4, bottom=(8, 4), top=(8, 1), interaction=interaction, dropout=0.1, batch_norm=True)
    logits = model(batch(of))
    assert logits.shape == (4, len(of.labels))
    assert len(set(logits[:, 0].tolist())) > 1, "the features must reach the result"
    logits.sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith("embedding."))


def test_head_and_embedding_make_the_model() -> None:
    of = schema()
    model, rows = DLRM(of, dim=4, bottom=(8, 4), top=(8, 1)).eval(), batch(of)
    embedded = model.embedding(rows.bags)
    assert embedded.shape == (4, 8)
    torch.testing.assert_close(model(rows), model.head(rows.dense, embedded))


def test_paper_form_by_hand() -> None:
    of = schema()
    model, rows = DLRM(of, dim=4, bottom=(8, 4), top=(8, 1)).eval(), batch(of)
    bottom = model.bottom(rows.dense)
    first, second = model.embedding(rows.bags).view(4, 2, 4).unbind(1)
    pairs = [(first * bottom).sum(1), (second * bottom).sum(1), (second * first).sum(1)]
    expected = model.top(torch.cat([bottom, torch.stack(pairs, 1)], 1))
    torch.testing.assert_close(model(rows), expected)


def test_bottom_ends_in_the_embedding_width() -> None:
    model = DLRM(schema(), dim=16, bottom=(512, 256, 64), top=(8, 1))
    assert model.bottom.out_features == 16
    assert model.hyperparameters["bottom"] == [512, 256, 64, 16]


def test_weights_come_from_the_seed_alone() -> None:
    of = schema()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = DLRM(of, dim=4, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    two, three = DLRM(of, dim=4, seed=5), DLRM(of, dim=4, seed=6)
    assert torch.equal(one.top[0].weight, two.top[0].weight)
    assert torch.equal(one.embedding.weight("c1"), two.embedding.weight("c1"))
    assert not torch.equal(one.top[0].weight, three.top[0].weight)
    assert not torch.equal(one.embedding.weight("c1"), three.embedding.weight("c1"))


def test_a_model_is_rebuilt_from_its_hyperparameters() -> None:
    of = schema(labels=2)
    model = DLRM(of, dim=4, bottom=(8,), top=(8, 1), interaction="cat", dropout=0.2)
    again = build(name_of(model), of, **model.hyperparameters)
    assert again.hyperparameters == model.hyperparameters
    assert [p.shape for p in again.parameters()] == [p.shape for p in model.parameters()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": (8, 3)}, r"model.top: \[8, 3\] must end in 1"),
        ({"bottom": (8, 0)}, r"model.bottom: \[8, 0\]"),
        ({"dim": 0}, r"model.dim"),
        ({"dropout": 1.0}, r"model.dropout: 1.0"),
        ({"interaction": "sum"}, r"model.interaction: 'sum'"),
        ({"layers": 3}, r"model.layers: dlrm has no such hyperparameter; it has dim, bottom, top"),
    ],
)
def test_bad_hyperparameters_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build("dlrm", schema(), **options)


def test_unknown_model_and_empty_schema() -> None:
    with pytest.raises(ConfigError, match="'dlrn'; expected one of dlrm"):
        build("dlrn", schema())
    with pytest.raises(ConfigError, match="no features"):
        DLRM(Schema(labels=({"name": "y"},)))


def test_a_model_too_big_for_memory_is_refused_with_its_size() -> None:
    with pytest.raises(ConfigError, match=r"tables .* need [\d,]+ bytes \(\d+ x 100000000000000 float32\)"):
        build("dlrm", schema(), dim=10**14, bottom=(10**14,), top=(1,))
    with pytest.raises(ConfigError, match=r"dlrm is too big for this machine's memory: one layer needs [\d,]+ bytes"):
        build("dlrm", schema(), dim=4, bottom=(10**14, 4), top=(1,))
