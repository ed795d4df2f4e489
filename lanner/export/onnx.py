"""The dense part of a model as an ONNX graph; lookups stay outside it, in Lanner's own kernels."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from lanner.errors import MissingExtraError
from lanner.models import RankingModel


class DensePart(nn.Module):
    """The head of `model` with its sigmoid: `names` says which of dense [B, D] and embedded [B, W] it takes, in order.

    A model without dense features has no `dense`, one without sparse features no `embedded`.
    """

    def __init__(self, model: RankingModel) -> None:
        super().__init__()
        self.model = model
        self.widths = {"dense": len(model.schema.dense), "embedded": model.embedding.width}
        self.names = [name for name, width in self.widths.items() if width]

    def forward(self, *given: Tensor) -> Tensor:
        inputs = dict(zip(self.names, given, strict=True))
        for name in self.widths:
            if name not in inputs:
                inputs[name] = given[0].new_zeros((given[0].shape[0], 0))
        return torch.sigmoid(self.model.head(inputs["dense"], inputs["embedded"]))


def to_onnx(model: RankingModel) -> bytes:
    """The dense part of `model` as an ONNX file, for any number of rows; the model is left in evaluation mode."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("export", "onnx") from error
    part = DensePart(model.eval()).eval()
    example = tuple(torch.zeros(2, part.widths[name]) for name in part.names)
    rows = torch.export.Dim("B")
    with _quiet(), torch.no_grad(), TemporaryDirectory() as folder:
        program = torch.onnx.export(
            part,
            example,
            dynamo=True,
            dynamic_shapes=(tuple({0: rows} for _ in example),),
            input_names=part.names,
            output_names=["score"],
            verbose=False,
        )
        assert program is not None
        path = Path(folder) / "graph.onnx"
        program.save(path)
        return path.read_bytes()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's notes on packages that are not installed, and its own deprecations, from the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
