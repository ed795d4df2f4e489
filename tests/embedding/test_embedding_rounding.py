"""Training tables of 16 bits: rounded at random by table, key and column, and by nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import run

from lanner.data.batch import Bags
from lanner.embedding import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Backing,
    Constant,
    EmbeddingCollection,
    FeatureConfig,
    RMSProp,
    RowWiseAdagrad,
    TableConfig,
)
from lanner.embedding.sharding import Placement, Plan

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
OPTIMIZERS = [
    SGD(0.3),
    SGD(0.3, momentum=0.9, nesterov=True, weight_decay=0.01),
    Adagrad(0.3),
    RowWiseAdagrad(0.3, clip_norm=2.0),
    RMSProp(0.01),
    Adam(0.1),
    AdamW(0.1),
    FTRL(0.1, beta=1.0, l1=0.1, l2=0.1),
]
dtypes = pytest.mark.parametrize("dtype", DTYPES)
row_kinds = pytest.mark.parametrize("rows", [50, "dynamic"])


def single(rows, dtype, optimizer, seed=0):
    table = TableConfig("t", rows, 8, Constant(1.5), dtype=dtype)
    return EmbeddingCollection([table], [FeatureConfig("f", "t")], optimizer, seed=seed)


def train(collection, gradient):
    """A step in which key k has gradient[k]."""
    collection(Bags(("f",), torch.arange(len(gradient)))).backward(gradient)


def held(collection, table="t"):
    """Weights and states of the rows held here, by key and in the order of keys."""
    blocks = list(collection.blocks(table))
    order = np.argsort(np.concatenate([rows.keys for rows in blocks]))
    arrays = {"keys": [rows.keys for rows in blocks], "weights": [rows.weights for rows in blocks]}
    arrays |= {name: [rows.states[name] for rows in blocks] for name in blocks[0].states}
    return {name: np.concatenate(parts)[order] for name, parts in arrays.items()}


@dtypes
@row_kinds
def test_steps_far_below_the_precision_move_the_mean(dtype, rows):
    """Rounded to the nearest, steps of 1/50 of the distance of two numbers would change nothing."""
    unit, moved = torch.finfo(DTYPES[dtype]).eps, []
    for seed in range(10):
        collection = single(rows, dtype, SGD(1.0), seed)
        for _ in range(200):
            train(collection, torch.full((50, 8), unit / 50))
        moved.append((1.5 - held(collection)["weights"]) / unit)
    deviation = (200 * 0.02 * 0.98) ** 0.5
    assert abs(np.mean(moved) - 4) < 5 * deviation / np.size(moved) ** 0.5
    assert abs(np.std(moved) - deviation) < 0.2
    assert not (moved[0] == moved[1]).all()


@dtypes
@row_kinds
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_a_step_leads_to_a_neighbour_of_where_float32_leads(dtype, rows, optimizer):
    """In the mean of many seeds, right there; the optimizer's state is float32."""
    gradient = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    exact, unit = single(rows, "fp32", optimizer), 2 * torch.finfo(DTYPES[dtype]).eps
    train(exact, gradient)
    exact, ends = held(exact), []
    for seed in range(40):
        collection = single(rows, dtype, optimizer, seed)
        train(collection, gradient)
        assert collection.weight("t").dtype is DTYPES[dtype]
        ends.append(held(collection))
    errors = np.stack([end["weights"] for end in ends]) - exact["weights"]
    assert (np.abs(errors) < unit).all()
    assert abs(errors.mean()) < 5 * unit / errors.size**0.5
    for name in exact.keys() - {"weights"}:
        np.testing.assert_allclose(ends[0][name], exact[name], rtol=1e-6)


def test_a_gradient_that_is_no_number_spoils_its_row_alone():
    gradient = torch.ones(50, 8)
    gradient[3], gradient[4] = torch.nan, torch.inf
    collection = single(50, "fp16", SGD(0.5))
    train(collection, gradient)
    weights = held(collection)["weights"]
    assert np.isnan(weights[3]).all() and (weights[4] == -np.inf).all()
    assert (np.delete(weights, [3, 4], 0) == 1.0).all()


TABLES = [
    TableConfig("a", 31, 8, dtype="bf16"),
    TableConfig("b", 20, 8, dtype="bf16"),
    TableConfig("c", 9, 4, optimizer=SGD(0.37), dtype="fp16"),
    TableConfig("d", "dynamic", 8, dtype="bf16"),
]
ROWS = {"a": 31, "b": 20, "c": 9, "d": 40}


def trained(rank, plan=None, **options):
    """What is held after 12 steps whose gradients add up without rounding, in whatever order."""
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    features = [FeatureConfig(table.name, table.name) for table in options.get("tables", TABLES)]
    options = {"tables": TABLES, "optimizer": Adagrad(0.01), "plan": plan} | options
    collection = EmbeddingCollection(features=features, **options)
    for step in range(12):
        own = np.array_split(np.arange(14), ranks)[rank]
        names, ids, gradients = [feature.name for feature in features], [], []
        for name, width in zip(names, collection.arrangement.dims, strict=True):
            random = np.random.default_rng([step, ord(name)])
            ids.append(random.integers(0, ROWS[name], 14)[own])
            gradients.append(random.integers(-8, 9, (14, width))[own] * 2.0**-6 * ranks)
        bags = Bags(tuple(names), torch.from_numpy(np.concatenate(ids)))
        collection(bags).backward(torch.from_numpy(np.concatenate(gradients, 1)).float())
    return {name: (collection.shards[name].columns, held(collection, name)) for name in collection.shards}


def check(parts, whole):
    """Rows, wherever they are held, are bit by bit those of `whole`."""
    seen = set()
    for part in parts:
        for name, (columns, found) in part.items():
            wanted = whole[name][1]
            at = np.searchsorted(wanted["keys"], found["keys"])
            for what, values in found.items():
                expected = wanted[what][at]
                np.testing.assert_array_equal(values, expected[:, columns] if values.ndim == 2 else expected, name)
            seen |= {(name, key, columns.start) for key in found["keys"].tolist()}
    assert {(name, key) for name, key, _ in seen} == {(n, k) for n, (_, rows) in whole.items() for k in rows["keys"]}


def plans(ranks):
    """Every kind of placement for every table, by turns."""
    everyone = tuple(range(ranks))
    kinds = {"data": (), "table": (ranks - 1,), "row": everyone, "column": everyone}
    turns = [list(kinds)[turn:] + list(kinds)[:turn] for turn in range(4)]
    names = [table.name for table in TABLES]
    return [
        Plan(ranks, {name: Placement(kind, kinds[kind]) for name, kind in zip(names, turn, strict=True)})
        for turn in turns
        if turn[3] != "data"  # a dynamic table has one place for each key
    ]


def trained_by_all(rank, given):
    return [trained(rank, plan) for plan in given]


def test_two_processes_round_as_one():
    whole, given = trained(0), plans(2)
    for parts in zip(*run(trained_by_all, 2, given), strict=True):
        check(parts, whole)


@pytest.mark.parametrize(
    "options",
    [{"tables": TABLES[::-1]}, {"tables": TABLES[1:3]}, {"backend": "reference"},
     {"backing": Backing("40 kB", tables=("a", "b"))}],
    ids=["tables in another order", "fewer tables", "reference", "on disk"],
)  # fmt: skip
def test_nothing_else_matters(options):
    names = {table.name for table in options.get("tables", TABLES)}
    check([trained(0, **options)], {name: part for name, part in trained(0).items() if name in names})


@dtypes
@row_kinds
def test_dumps_keep_every_bit_and_training_goes_on_as_if_nothing_had_happened(dtype, rows, tmp_path):
    random = torch.Generator().manual_seed(1)
    gradients, first = torch.randn(8, 50, 8, generator=random), single(rows, dtype, Adam(0.01))
    for gradient in gradients[:4]:
        train(first, gradient)
    first.embedding_dump(tmp_path / "dump")
    second = single(rows, dtype, Adam(0.01))
    second.embedding_load(tmp_path / "dump")
    for collection in (first, second):
        for gradient in gradients[4:]:
            train(collection, gradient)
    for name, values in held(first).items():
        np.testing.assert_array_equal(held(second)[name], values, name)
