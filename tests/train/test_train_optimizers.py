"""The dense side's optimizers: those of the embeddings, with the same results where every weight has a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from dense_optimizers import OPTIMIZERS, DenseTable

from lanner import manifest
from lanner.data import Dataset
from lanner.embedding import Optimizer, RowWiseAdagrad
from lanner.embedding.optimizers import SGD, Adam, describe
from lanner.errors import ConfigError
from lanner.models import DLRM
from lanner.train import Trainer
from lanner.train.optimizers import build, load_state, state_tensors
from lanner.train.recipe import Recipe, load, parse

DENSE = [optimizer for optimizer in OPTIMIZERS if not isinstance(optimizer, RowWiseAdagrad)]
SHAPES = {"a": (5, 3), "b": (1, 7)}
SMALL: dict[str, Any] = {"dim": 4, "bottom": [8, 4], "top": [8, 1]}


class Side:
    """Two weights, their optimizer, and gradients; `expected` is the same in NumPy."""

    def __init__(self, settings: Optimizer) -> None:
        random = np.random.default_rng(0)
        first = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
        self.settings = settings
        self.weights = {name: torch.nn.Parameter(torch.from_numpy(values.copy())) for name, values in first.items()}
        self.expected = {name: DenseTable(values, settings) for name, values in first.items()}
        self.optimizer = build(settings, self.weights.values())

    def steps(self, begin: int, end: int) -> None:
        for step in range(begin, end):
            random, factor = np.random.default_rng(step), 1 / (1 + step / 5)
            gradients = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
            self.optimizer.param_groups[0]["lr"] = self.settings.lr * factor
            for name, weight in self.weights.items():
                weight.grad = torch.from_numpy(gradients[name].copy())
            self.optimizer.step()
            norm = np.sqrt(sum((each.astype(np.float64) ** 2).sum() for each in gradients.values()))
            cut = min(1.0, (self.settings.clip_norm or np.inf) / norm)
            for name, table in self.expected.items():
                table.step(gradients[name] * cut, lr_scale=factor, clip=False)


@pytest.mark.parametrize("settings", DENSE, ids=str)
@pytest.mark.parametrize("extras", [{}, {"weight_decay": 0.1}, {"clip_norm": 3.0, "weight_decay": 0.1}], ids=str)
def test_equals_numpy_over_25_steps(settings: Optimizer, extras: dict[str, float]) -> None:
    side = Side(replace(settings, **extras))
    side.steps(0, 25)
    for name, table in side.expected.items():
        np.testing.assert_allclose(side.weights[name].detach().numpy(), table.weight, atol=1e-5)


@pytest.mark.parametrize("settings", DENSE, ids=str)
def test_state_put_back_goes_on_exactly(settings: Optimizer) -> None:
    whole, again = Side(settings), Side(settings)
    whole.steps(0, 10)
    with torch.no_grad():
        for name, weight in whole.weights.items():
            again.weights[name].copy_(weight)
    tensors = {name: tensor.clone() for name, tensor in state_tensors(whole.optimizer, list(SHAPES)).items()}
    load_state(again.optimizer, list(SHAPES), tensors)
    for side in (whole, again):
        side.steps(10, 15)
    assert all(torch.equal(again.weights[name], weight) for name, weight in whole.weights.items())


def test_a_weight_without_gradients_stays_with_ftrl() -> None:
    settings = next(each for each in DENSE if type(each).__name__ == "FTRL")
    weight = torch.nn.Parameter(torch.tensor([2.0, 2.0]))
    weight.grad = torch.tensor([0.0, 1.0])
    build(settings, [weight]).step()
    assert weight[0] == 2 and weight[1] < 2


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=str)
def test_recipes_hold_all_of_them(settings: Optimizer, tmp_path: Path) -> None:
    both = replace(settings, weight_decay=0.5, clip_norm=2.0)
    if isinstance(settings, RowWiseAdagrad):
        with pytest.raises(ConfigError, match=r"no such rows; expected SGD, Adagrad, RMSProp, Adam, AdamW or FTRL"):
            parse({"dense_optimizer": describe(both)})
        both = SGD(0.1)
    recipe = Recipe(embedding_optimizer=settings, dense_optimizer=both)
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    assert load(tmp_path / "recipe.yaml") == recipe


def test_checkpoints_from_before_optimizers_had_a_weight_decay_of_their_own(
    dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    data = dataset(train=200)

    def make(epochs: int, dense: Optimizer = Adam(0.01, weight_decay=0.1)) -> Trainer:
        return Trainer(DLRM(data.schema, **SMALL), batch_size=50, epochs=epochs, dense_optimizer=dense, quiet=True)

    whole, half = make(2), make(1)
    whole.fit(data.train)
    half.fit(data.train)
    half.save(tmp_path / "old")
    _age(tmp_path / "old")
    resumed = make(2)
    resumed.resume(tmp_path / "old")
    resumed.fit(data.train)
    for (name, one), other in zip(whole.model.named_parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=0, msg=name)
    assert Trainer.load(tmp_path / "old").settings.dense_optimizer == Adam(0.01, weight_decay=0.1)
    with pytest.raises(ConfigError, match=r"dense_optimizer\.weight_decay: 0\.0, but .* was trained with 0\.1"):
        make(2, Adam(0.01)).resume(tmp_path / "old")


def _age(path: Path) -> None:
    """Write the recipe as it was written then."""
    recipe = yaml.safe_load((path / "recipe.yaml").read_text())
    for name in ("embedding_optimizer", "dense_optimizer"):
        recipe["weight_decay"] = recipe[name].pop("weight_decay")
        del recipe[name]["clip_norm"]
    (path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    of = manifest.read(path, "checkpoint")
    of.files["recipe.yaml"] = manifest.entry(path, "recipe.yaml")
    manifest.write(path, of)
