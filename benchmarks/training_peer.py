"""The peer of `training.py`: a DLRM of plain PyTorch parts, doing what facebookresearch/dlrm does, in our own words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

torch.sparse.check_sparse_tensor_invariants.disable()  # the default; said aloud, it does not warn

Rows = tuple[Tensor, Tensor, Tensor, Tensor]  # numbers [B, D], offsets [F, B], ids [F, B], labels [B, 1]


class PlainDLRM(nn.Module):
    """26 `nn.EmbeddingBag` with sparse gradients, `nn.Linear` + ReLU, concatenation and `bmm` for the dot products."""

    def __init__(self, rows: list[int], dim: int, bottom: list[int], top: list[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in rows)
        for table, n in zip(self.tables, rows, strict=True):
            nn.init.uniform_(table.weight, -((1 / n) ** 0.5), (1 / n) ** 0.5)
        vectors = len(rows) + 1
        self.bottom = _layers(bottom, nn.ReLU())
        self.top = _layers([dim + vectors * (vectors - 1) // 2, *top], nn.Sigmoid())
        self.left = torch.tensor([i for i in range(vectors) for _ in range(i)])
        self.right = torch.tensor([j for i in range(vectors) for j in range(i)])

    def forward(self, numbers: Tensor, offsets: Tensor, ids: Tensor) -> Tensor:
        x = self.bottom(numbers)
        embedded = [table(ids[k], offsets[k]) for k, table in enumerate(self.tables)]
        vectors = torch.cat([x, *embedded], dim=1).view(x.shape[0], -1, x.shape[1])
        gram = torch.bmm(vectors, vectors.transpose(1, 2))
        result: Tensor = self.top(torch.cat([x, gram[:, self.left, self.right]], dim=1))
        return result


def _layers(sizes: list[int], last: nn.Module) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last)


class SparseRowWiseAdagrad(torch.optim.Optimizer):
    """Row-wise Adagrad on sparse gradients: coalesce, one sum a row; plain Adagrad on dense ones."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, eps: float = 1e-10) -> None:
        super().__init__(parameters, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.is_sparse:
                    self._sparse(p, p.grad.coalesce(), group["lr"], group["eps"])
                else:
                    total = self.state[p].setdefault("sum", torch.zeros_like(p))
                    total.addcmul_(p.grad, p.grad)
                    p.addcdiv_(p.grad, total.sqrt().add_(group["eps"]), value=-group["lr"])

    def _sparse(self, p: nn.Parameter, gradient: Tensor, lr: float, eps: float) -> None:
        """The sum is kept as a column of one number a row, and read and written as a sparse tensor, as there."""
        total = self.state[p].setdefault("sum", torch.zeros(p.shape[0]))
        values = gradient.values()
        squares = torch.sparse_coo_tensor(gradient.indices(), values.pow(2).mean(1), total.shape)
        total.add_(squares)
        scale = total.sparse_mask(squares.coalesce()).values().sqrt_().add_(eps)
        step = torch.sparse_coo_tensor(gradient.indices(), values / scale[:, None], p.shape)
        p.add_(step, alpha=-lr)


PEER_OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "row-wise Adagrad": lambda parameters: SparseRowWiseAdagrad(parameters, lr=0.01),
}


def binary_batches(path: Path, numbers: int, features: int, batch: int) -> Iterator[Rows]:
    """Batches of a file of int32 rows (label, numbers, ids) in order, without end; numbers become log(x + 1)."""
    width = 1 + numbers + features
    offsets = torch.arange(batch).repeat(features, 1)
    while True:
        with path.open("rb") as file:
            while len(data := file.read(4 * width * batch)) == 4 * width * batch:
                rows = torch.from_numpy(np.frombuffer(data, np.int32).reshape(batch, width).copy())
                dense = torch.log(rows[:, 1 : 1 + numbers].float() + 1)
                yield dense, offsets, rows[:, 1 + numbers :].t().long().contiguous(), rows[:, :1].float()


def train_steps(model: PlainDLRM, optimizer: torch.optim.Optimizer, batches: Iterator[Rows], steps: int) -> int:
    """Train `steps` steps; returns the number of rows."""
    loss_function, rows = nn.BCELoss(), 0
    for _ in range(steps):
        dense, offsets, ids, labels = next(batches)
        loss = loss_function(model(dense, offsets, ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        rows += len(labels)
    return rows
