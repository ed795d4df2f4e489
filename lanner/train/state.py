"""How far training has come: everything a resumed run needs beside weights and optimizer state."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch

from lanner.train import metrics
from lanner.train.processes import Processes


@dataclass
class Progress:
    """Place in training, running sums of the epoch's loss, and the best validation so far."""

    step: int = 0
    epoch: int = 0
    first_step: int = 0  # where this `fit` began; a second one goes on counting
    first_epoch: int = 0
    batch: int = 0  # batches of this epoch already trained on
    loss_sum: float = 0.0  # over this epoch's rows
    loss_rows: int = 0
    last_epoch_loss: float | None = None
    best: float | None = None
    best_step: int | None = None
    stale: int = 0  # evaluations in a row without a new best

    def add_loss(self, loss: float, rows: int) -> None:
        self.step += 1
        self.batch += 1
        self.loss_sum += loss * rows
        self.loss_rows += rows

    def end_epoch(self) -> None:
        self.last_epoch_loss = self.epoch_loss
        self.epoch, self.batch, self.loss_sum, self.loss_rows = self.epoch + 1, 0, 0.0, 0

    @property
    def epoch_loss(self) -> float | None:
        """Mean loss of the rows of this epoch so far; of the last epoch where this one has none yet."""
        return self.loss_sum / self.loss_rows if self.loss_rows else self.last_epoch_loss

    def judge(self, metric: str, value: float | None) -> bool:
        """Note an evaluation's metric; True when it is the best so far. An undefined one changes nothing."""
        if value is None:
            return False
        if metrics.improves(metric, value, self.best):
            self.best, self.best_step, self.stale = value, self.step, 0
            return True
        self.stale += 1
        return False

    def again(self) -> Progress:
        """The start of another `fit` after this one: counters go on, the best starts afresh."""
        return Progress(step=self.step, epoch=self.epoch, first_step=self.step, first_epoch=self.epoch)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def random_state(device: torch.device) -> dict[str, Any]:
    """PyTorch's (also that of a CUDA `device`) and NumPy's global generators, JSON-able."""
    name, keys, position, has_gauss, cached = cast(tuple[Any, ...], np.random.get_state(legacy=True))
    states = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return {
        **{kind: base64.b64encode(state.numpy().tobytes()).decode() for kind, state in states.items()},
        "numpy": [name, base64.b64encode(keys.tobytes()).decode(), position, has_gauss, cached],
    }


def random_states(own: dict[str, Any], processes: Processes) -> dict[str, Any]:
    """`own`, what `random_state` gave here, and those of the other processes; the whole is for the first one."""
    others = processes.texts("" if processes.is_first else json.dumps(own))[1:]
    return {**own, "others": [json.loads(text) for text in others]} if processes.is_first else own


def own_random_state(stored: dict[str, Any], processes: Processes) -> dict[str, Any] | None:
    """This process's part of what `random_states` gave; None where other numbers of processes wrote it, for later ones.

    The first process always goes on with the first one's.
    """
    others = stored.get("others", [])
    if processes.is_first:
        return stored
    return others[processes.rank - 1] if len(others) == processes.world_size - 1 else None


def seed_random(seed: int, rank: int = 0, step: int = 0) -> None:
    """Seed PyTorch's global generators with `seed`; in processes other than the first with numbers of their own."""
    torch.manual_seed(int(np.random.SeedSequence([seed, rank, step]).generate_state(1)[0]) if rank else seed)


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put back what `random_state` gave, perhaps on another device."""
    torch.set_rng_state(_bytes(state["torch"]))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(_bytes(state["cuda"]), device)
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.frombuffer(base64.b64decode(keys), np.uint32), position, has_gauss, cached))


def _bytes(text: str) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), np.uint8).copy())
