"""Optimizers, as plain settings: the embedding kernels and the trainer's dense side read the same classes.

On an embedding, only rows that occur in a batch are touched. The gradients of equal ids are summed first, then each
distinct row takes one step with the formulas of `torch.optim`:

    SGD              w -= lr * g
    Adagrad          s += g * g;        w -= lr * g / (sqrt(s) + eps)
    RowWiseAdagrad   s += mean(g * g);  w -= lr * g / (sqrt(s) + eps)      one s for a row
    Adam (lazy)      m += (1 - b1) * (g - m);  v = b2 * v + (1 - b2) * g * g
                     w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)

Lazy Adam leaves the moments of a row alone while the row does not occur; t counts the steps of the collection.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from lanner.errors import ConfigError


def _check(owner: object, name: str, value: float, low: float, high: float = math.inf) -> None:
    if not (isinstance(value, (int, float)) and low <= value < high and math.isfinite(value)):
        bound = f"{low:g} <= {name}" + (f" < {high:g}" if high < math.inf else "")
        raise ConfigError(f"{type(owner).__name__}: {name} is {value!r}, expected a number with {bound}")


def _check_not_negative(owner: object, *names: str) -> None:
    for name in names:
        _check(owner, name, getattr(owner, name), 0.0)


class RowState(NamedTuple):
    """What an optimizer keeps for one row: an array of this shape (() is one number), and what a fresh row has."""

    shape: tuple[int, ...]
    dtype: Literal["float32", "int32"] = "float32"
    initial: float = 0.0


@dataclass(frozen=True)
class SGD:
    """Plain stochastic gradient descent."""

    lr: float = 0.01

    def __post_init__(self) -> None:
        _check_not_negative(self, "lr")

    def row_states(self, dim: int) -> dict[str, RowState]:
        """State of a row of `dim` weights, by name."""
        return {}


@dataclass(frozen=True)
class Adagrad:
    """Adagrad (Duchi et al. 2011): a sum of squared gradients for every weight."""

    lr: float = 0.01
    eps: float = 1e-10
    initial_accumulator: float = 0.0

    def __post_init__(self) -> None:
        _check_not_negative(self, "lr", "eps", "initial_accumulator")

    def row_states(self, dim: int) -> dict[str, RowState]:
        """State of a row of `dim` weights, by name."""
        return {"sum": RowState((dim,), initial=self.initial_accumulator)}


@dataclass(frozen=True)
class RowWiseAdagrad:
    """Adagrad with one sum a row, of the mean square of the row's gradient: 1/dim of the memory.

    It is for embeddings; a dense layer has no rows of that kind.
    """

    lr: float = 0.01
    eps: float = 1e-8
    initial_accumulator: float = 0.0

    def __post_init__(self) -> None:
        _check_not_negative(self, "lr", "eps", "initial_accumulator")

    def row_states(self, dim: int) -> dict[str, RowState]:
        """State of a row of `dim` weights, by name."""
        return {"sum": RowState((), initial=self.initial_accumulator)}


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015); lazy on embeddings (see the module)."""

    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _check_not_negative(self, "lr", "eps")
        object.__setattr__(self, "betas", tuple(self.betas))
        if len(self.betas) != 2:
            raise ConfigError(f"Adam: betas is {self.betas!r}, expected two numbers")
        for index, beta in enumerate(self.betas):
            _check(self, f"betas[{index}]", beta, 0.0, 1.0)

    def row_states(self, dim: int) -> dict[str, RowState]:
        """State of a row of `dim` weights, by name."""
        return {"first": RowState((dim,)), "second": RowState((dim,))}


Optimizer = SGD | Adagrad | RowWiseAdagrad | Adam

_KINDS: dict[str, type[SGD] | type[Adagrad] | type[RowWiseAdagrad] | type[Adam]] = {
    kind.__name__: kind for kind in (SGD, Adagrad, RowWiseAdagrad, Adam)
}


def describe(optimizer: Optimizer) -> dict[str, Any]:
    """The optimizer as a JSON-able mapping: its `name` and its settings; `parse` is the inverse."""
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(optimizer).items()}
    return {"name": type(optimizer).__name__, **settings}


def parse(values: dict[str, Any]) -> Optimizer:
    """The optimizer that `describe` described. Raises ConfigError naming an unknown name or setting."""
    settings = dict(values)
    name = settings.pop("name", None)
    if name not in _KINDS:
        raise ConfigError(f"optimizer {name!r} is not known; expected one of {', '.join(_KINDS)}")
    try:
        return _KINDS[name](**settings)
    except TypeError as error:
        raise ConfigError(f"optimizer {name}: {error}") from error
