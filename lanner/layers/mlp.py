"""Fully connected layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from lanner.kernels.linear import linear
from lanner.layers.exporting import exporting


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that also trains on a batch of one row or none, which has no variance of its own.

    Such a batch (often the last of an epoch) is normalised by the running statistics, which it leaves unchanged.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.shape[0] < 2:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


class MLP(nn.Sequential):
    """Linear layers of `sizes` with ReLU between them, [B, inputs] → [B, sizes[-1]].

    The last layer is linear, or followed by ReLU as well when `activate_last`. `batch_norm` normalises before each
    activation; `dropout` zeroes that share of each activated output while training. Weights start from
    N(0, 2/(in+out)) and biases from N(0, 1/out) (variances), as in the DLRM of Facebook and NVIDIA. A linear layer
    and its ReLU run as one operation; exported graphs hold the plain layers.
    """

    def __init__(
        self,
        inputs: int,
        sizes: Sequence[int],
        activate_last: bool = False,
        dropout: float = 0.0,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.out_features = sizes[-1] if sizes else inputs
        for index, size in enumerate(sizes):
            self.append(_linear(inputs, size))
            inputs = size
            if index == len(sizes) - 1 and not activate_last:
                break
            if batch_norm:
                self.append(BatchNorm(size))
            self.append(nn.ReLU(inplace=True))
            if dropout:
                self.append(nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        if exporting():
            result: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return result
        layers = list(self)
        for index, layer in enumerate(layers):
            if isinstance(layer, nn.Linear):
                activate = index + 1 < len(layers) and isinstance(layers[index + 1], nn.ReLU)
                x = linear(x, layer.weight, layer.bias, activate)
            elif not (isinstance(layer, nn.ReLU) and isinstance(layers[index - 1], nn.Linear)):
                x = layer(x)
        return x


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=math.sqrt(2.0 / (inputs + outputs)))
    nn.init.normal_(layer.bias, std=math.sqrt(1.0 / outputs))
    return layer
