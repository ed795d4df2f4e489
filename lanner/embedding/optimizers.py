"""Optimizers, as plain settings: the embedding kernels and the trainer's dense side read the same classes.

On an embedding, only rows that occur in a batch are touched. The gradients of equal ids are summed first; the norm of
a row's sum is cut to `clip_norm`, `weight_decay` times the row is added, and each distinct row takes one step with the
formulas of `torch.optim`:

    SGD              w -= lr * g
      with momentum  m = momentum * m + g;  w -= lr * m      (nesterov: w -= lr * (g + momentum * m))
    Adagrad          s += g * g;        w -= lr * g / (sqrt(s) + eps)
    RowWiseAdagrad   s += mean(g * g);  w -= lr * g / (sqrt(s) + eps)      one s for a row
    RMSProp          s = alpha * s + (1 - alpha) * g * g;  w -= lr * g / (sqrt(s) + eps)
    Adam, AdamW      m += (1 - b1) * (g - m);  v = b2 * v + (1 - b2) * g * g
                     w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
                     AdamW multiplies w by 1 - lr * weight_decay first, and adds nothing to g
    FTRL             z += lr * g - (sqrt(s + g * g) - sqrt(s)) * w;  s += g * g
                     w = (clamp(z, -lr * l1, lr * l1) - z) / (sqrt(s) + beta + lr * l2)

t counts the steps of the collection. State that a row has of its own (m, s, v, z) stays as it is while the row does
not occur: momentum does not carry an absent row on, moments do not fade, weights do not decay. That is what "lazy"
means; `Adam(mode="global")` alone does what the dense optimizer does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from lanner.errors import ConfigError
from lanner.validation import built


class RowState(NamedTuple):
    """What an optimizer keeps for one row: an array of this shape (() is one number), and what a fresh row has."""

    shape: tuple[int, ...]
    dtype: Literal["float32", "int32"] = "float32"
    initial: float = 0.0


@dataclass(frozen=True)
class Optimizer(ABC):
    """What all optimizers have.

    Attributes:
        lr: learning rate.
        weight_decay: L2 penalty: so many times the weight is added to the gradient. On an embedding only rows that
            occur decay.
        clip_norm: longest that a gradient may be; a longer one is scaled down. On an embedding that is the summed
            gradient of one row, on the dense side all gradients together. None: any length.
    """

    lr: float = 0.01
    weight_decay: float = field(default=0.0, kw_only=True)
    clip_norm: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_not_negative("lr", "weight_decay")
        if self.clip_norm is not None:
            self._check("clip_norm", self.clip_norm, 0.0, above=True)

    @abstractmethod
    def row_states(self, dim: int) -> dict[str, RowState]:
        """State of a row of `dim` weights, by name, in the order in which the kernels take it."""

    def _check_not_negative(self, *names: str) -> None:
        for name in names:
            self._check(name, getattr(self, name), 0.0)

    def _check(self, name: str, value: float, low: float, high: float = math.inf, above: bool = False) -> None:
        """Raise ConfigError unless `value` is from `low` (or `above` it) to below `high`."""
        if isinstance(value, (int, float)) and low <= value < high and not (above and value == low):
            return
        bound = f"{low:g} {'<' if above else '<='} {name}" + (f" < {high:g}" if high < math.inf else "")
        raise ConfigError(f"{type(self).__name__}: {name} is {value!r}, expected a finite number with {bound}")


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent; with momentum (Polyak 1964), also Nesterov's (Sutskever et al. 2013)."""

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("momentum", self.momentum, 0.0, 1.0)
        if self.nesterov and not self.momentum:
            raise ConfigError("SGD: nesterov is True, but momentum is 0; expected a momentum above 0")

    def row_states(self, dim: int) -> dict[str, RowState]:
        """One number a weight with momentum, else none."""
        return {"momentum": RowState((dim,))} if self.momentum else {}


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): a sum of squared gradients for every weight."""

    eps: float = 1e-10
    initial_accumulator: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_not_negative("eps", "initial_accumulator")

    def row_states(self, dim: int) -> dict[str, RowState]:
        """One number a weight."""
        return {"sum": RowState((dim,), initial=self.initial_accumulator)}


@dataclass(frozen=True)
class RowWiseAdagrad(Optimizer):
    """Adagrad with one sum a row, of the mean square of the row's gradient: 1/dim of the memory.

    It is for embeddings; a dense layer has no rows of that kind.
    """

    eps: float = 1e-8
    initial_accumulator: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_not_negative("eps", "initial_accumulator")

    def row_states(self, dim: int) -> dict[str, RowState]:
        """One number a row."""
        return {"sum": RowState((), initial=self.initial_accumulator)}


@dataclass(frozen=True)
class RMSProp(Optimizer):
    """RMSProp (Tieleman and Hinton 2012): a fading mean of squared gradients for every weight."""

    alpha: float = 0.99
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("alpha", self.alpha, 0.0, 1.0)
        self._check_not_negative("eps")

    def row_states(self, dim: int) -> dict[str, RowState]:
        """One number a weight."""
        return {"square": RowState((dim,))}


@dataclass(frozen=True)
class _Moments(Optimizer):
    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_not_negative("eps")
        object.__setattr__(self, "betas", tuple(self.betas))
        if len(self.betas) != 2:
            raise ConfigError(f"{type(self).__name__}: betas is {self.betas!r}, expected two numbers")
        for index, beta in enumerate(self.betas):
            self._check(f"betas[{index}]", beta, 0.0, 1.0)

    def row_states(self, dim: int) -> dict[str, RowState]:
        """Two numbers a weight."""
        return {"first": RowState((dim,)), "second": RowState((dim,))}


@dataclass(frozen=True)
class Adam(_Moments):
    """Adam (Kingma and Ba 2015).

    On embeddings `mode` says what becomes of rows that do not occur. "lazy": nothing. "global": they move on as with
    dense Adam, whose steps with a gradient of 0 they take, with the learning rates of those steps, when they are next
    looked at. That costs 4 bytes a row, and time for rows that were away.
    """

    mode: Literal["lazy", "global"] = "lazy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in ("lazy", "global"):
            raise ConfigError(f"Adam: mode is {self.mode!r}, expected lazy or global")
        if self.mode == "global" and self.weight_decay:
            raise ConfigError(
                f"Adam: weight_decay is {self.weight_decay!r}, expected 0 with mode 'global': rows that do not occur "
                "would decay in every step, without end"
            )
        beta1, beta2 = self.betas
        if self.mode == "global" and beta1 * beta1 >= beta2:
            raise ConfigError(
                f"Adam: betas is {self.betas!r}, expected betas[0]^2 < betas[1] with mode 'global': otherwise rows "
                "would move faster and faster while they do not occur"
            )

    def row_states(self, dim: int) -> dict[str, RowState]:
        """Two numbers a weight; the global mode adds the last step that a row has taken."""
        return super().row_states(dim) | ({"step": RowState((), "int32")} if self.mode == "global" else {})


@dataclass(frozen=True)
class AdamW(_Moments):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    On embeddings it is lazy, in both parts: only rows that occur move and decay.
    """

    weight_decay: float = field(default=0.01, kw_only=True)


@dataclass(frozen=True)
class FTRL(Optimizer):
    """FTRL-Proximal with learning rates by coordinate (McMahan et al. 2013): weights that matter little become 0.

    `l1` and `l2` are the penalties on the weights that the paper calls lambda, `beta` dampens the first steps. A
    row's training starts from its first values: a table whose weights are to be 0 until gradients outweigh `l1` is
    initialised with `Constant(0.0)`.
    """

    beta: float = 0.0
    l1: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_not_negative("beta", "l1", "l2")

    def row_states(self, dim: int) -> dict[str, RowState]:
        """Two numbers a weight."""
        return {"sum": RowState((dim,)), "linear": RowState((dim,))}


_KINDS: dict[str, type[Optimizer]] = {
    kind.__name__: kind for kind in (SGD, Adagrad, RowWiseAdagrad, RMSProp, Adam, AdamW, FTRL)
}


def describe(optimizer: Optimizer) -> dict[str, Any]:
    """The optimizer as a JSON-able mapping: its `name` and its settings; `parse` is the inverse."""
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(optimizer).items()}
    return {"name": type(optimizer).__name__, **settings}


def parse(values: dict[str, Any]) -> Optimizer:
    """The optimizer that `describe` described; settings left out have their defaults.

    Raises ConfigError naming an unknown name or setting.
    """
    settings = dict(values)
    name = settings.pop("name", None)
    if name not in _KINDS:
        raise ConfigError(f"optimizer {name!r} is not known; expected one of {', '.join(_KINDS)}")
    return built(_KINDS[name], settings, f"optimizer {name}")
