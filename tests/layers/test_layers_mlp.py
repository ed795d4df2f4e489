"""Fully connected layers."""

from __future__ import annotations

import math

import torch
from torch import nn

from lanner.layers import MLP


def test_layers_and_activations() -> None:
    kinds = [type(layer) for layer in MLP(3, [5, 4, 2])]
    assert kinds == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    assert isinstance(MLP(3, [5], activate_last=True)[-1], nn.ReLU)
    mlp = MLP(3, [5, 2], dropout=0.5, batch_norm=True)
    assert [type(layer).__name__ for layer in mlp] == ["Linear", "BatchNorm", "ReLU", "Dropout", "Linear"]
    assert mlp.out_features == 2
    assert MLP(3, []).out_features == 3


def test_result_is_the_plain_chain_of_products() -> None:
    mlp, x = MLP(3, [5, 2]), torch.randn(7, 3)
    first, last = mlp[0], mlp[2]
    expected = (x @ first.weight.T + first.bias).clamp(min=0) @ last.weight.T + last.bias
    torch.testing.assert_close(mlp(x), expected)


def test_initial_weights_have_nvidias_spread() -> None:
    torch.manual_seed(0)
    layer = MLP(400, [600])[0]
    assert math.isclose(layer.weight.std().item(), math.sqrt(2 / 1000), rel_tol=0.02)
    assert math.isclose(layer.bias.std().item(), math.sqrt(1 / 600), rel_tol=0.1)
    assert abs(layer.weight.mean().item()) < 1e-3


def test_batch_norm_trains_on_one_row() -> None:
    mlp = MLP(3, [4, 1], batch_norm=True)
    mlp(torch.randn(50, 3))
    before = mlp[1].running_mean.clone()
    mlp(torch.randn(1, 3)).sum().backward()
    torch.testing.assert_close(mlp[1].running_mean, before)
    assert all(torch.isfinite(parameter.grad).all() for parameter in mlp.parameters())


def test_dropout_acts_only_in_training() -> None:
    mlp, x = MLP(3, [64, 1], dropout=0.5), torch.randn(2, 3)
    assert not torch.equal(mlp(x), mlp(x))
    mlp.eval()
    assert torch.equal(mlp(x), mlp(x))
