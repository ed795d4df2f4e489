"""Export: a trained model becomes a version in a model repository (Triton layout)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.train import Trainer

__all__ = ["export"]


def export(
    source: Trainer | str | os.PathLike[str],
    repository: str | os.PathLike[str],
    name: str,
    version: int | None = None,
) -> str:
    """Add the model of a trainer, run directory or checkpoint to a repository; returns the version's directory.

    ``<repository>/<name>/<version>/`` holds the dense graph (ONNX), schema, vocabularies, tables and, written last,
    a manifest; ``config.pbtxt`` beside it keeps settings made by hand. `version` defaults to the next free number.
    The version appears whole, after its scores were found equal to the model's, or not at all; versions that exist
    are never touched. With several processes each must call it with its trainer, and the first writes. Raises
    ConfigError for a name, version or place that cannot be used, DataError for a broken checkpoint and ExportError
    where the scores differ.
    """
    from lanner.export.exporter import export as run  # here, because a server needs this room without the trainer

    return run(source, repository, name, version)
