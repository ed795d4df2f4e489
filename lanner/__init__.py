"""Lanner: train click-through-rate and ranking models on embedding tables of any size, and serve them.

import lanner as ln

data = ln.prep("day_*", source="criteo", out="criteo/", min_count=15)
model = ln.models.DLRM(data.schema, dim=64, bottom=[512, 256, 64], top=[512, 256, 1])
trainer = ln.Trainer(model, batch_size=4096, embedding_optimizer=ln.RowWiseAdagrad(0.02))
trainer.fit(data.train, valid=data.valid)
print(trainer.evaluate(data.test))
ln.export(trainer, "repository/", name="ctr")

A trained model again, from a run directory or checkpoint:

trainer = ln.Trainer.load("runs/first")
scores = trainer.predict(ln.Dataset.open("new/").test)
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

# The functions `prep` and `export` below take the names of their rooms, which must be loaded before them.
import lanner.export
import lanner.prep

if TYPE_CHECKING:
    from lanner import models
    from lanner.data import Dataset
    from lanner.data.synthetic import write_logs as synth
    from lanner.embedding import FTRL, SGD, Adagrad, Adam, AdamW, EmbeddingCollection, RMSProp, RowWiseAdagrad
    from lanner.schema import Schema
    from lanner.train import Recipe, Schedule, Trainer

__version__ = "0.1.0"
__all__ = [
    "FTRL",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Dataset",
    "EmbeddingCollection",
    "RMSProp",
    "Recipe",
    "RowWiseAdagrad",
    "Schedule",
    "Schema",
    "Trainer",
    "export",
    "models",
    "prep",
    "synth",
]

_ROOMS = {
    "FTRL": "embedding",
    "SGD": "embedding",
    "Adagrad": "embedding",
    "Adam": "embedding",
    "AdamW": "embedding",
    "Dataset": "data",
    "EmbeddingCollection": "embedding",
    "RMSProp": "embedding",
    "Recipe": "train",
    "RowWiseAdagrad": "embedding",
    "Schedule": "train",
    "Schema": "schema",
    "Trainer": "train",
}


def prep(files: str | Sequence[str], *, out: str | os.PathLike[str], source: str = "criteo", **options: Any) -> Dataset:
    """Turn raw logs into a dataset at `out`, and open it; `options` are those of `lanner.prep.prepare`."""
    from lanner.data import Dataset
    from lanner.prep.prepare import prepare

    prepare([files] if isinstance(files, str) else list(files), source=source, out=out, **options)
    return Dataset.open(out)


export = lanner.export.export


def __getattr__(name: str) -> Any:
    """Load a public name from its room on first use, so that `import lanner` is quick."""
    if name in _ROOMS:
        value = getattr(importlib.import_module(f"lanner.{_ROOMS[name]}"), name)
    elif name == "models":
        return importlib.import_module("lanner.models")
    elif name == "synth":
        from lanner.data.synthetic import write_logs as value
    else:
        raise AttributeError(f"module 'lanner' has no attribute {name!r}")
    globals()[name] = value
    return value
