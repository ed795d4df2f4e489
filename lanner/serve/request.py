"""An inference request and its answer, free of any transport."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lanner.serve.failure import RequestError

_MOST_DIMENSIONS, _MOST_ELEMENTS, _MOST_EMPTY = 16, 2**40, 2**24


@dataclass(slots=True)
class Tensor:
    """An input: `values` is a NumPy array of `shape`, or for BYTES a flat Arrow string array in row-major order."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: np.ndarray | pa.Array


@dataclass(slots=True)
class Output:
    """An output asked for, and whether as binary data (HTTP)."""

    name: str
    binary: bool = False


@dataclass(slots=True)
class Request:
    """`outputs` None asks for all of them, in binary when `binary` is set. `timeout` is in microseconds, 0 = none."""

    model: str
    version: str = ""
    id: str = ""
    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: list[Output] | None = None
    binary: bool = False
    timeout: int = 0

    def add(self, tensor: Tensor) -> None:
        """Add an input; RequestError when its name was given before."""
        if tensor.name in self.inputs:
            raise RequestError(f"input '{tensor.name}' is given more than once")
        self.inputs[tensor.name] = tensor


@dataclass(slots=True)
class Scores:
    """The answer: probabilities float32 [rows, L] by the model `version`."""

    version: str
    values: np.ndarray


def element_count(name: str, shape: tuple[int, ...]) -> int:
    """Number of elements of a tensor of `shape`; RequestError for a shape no tensor can have."""
    if len(shape) > _MOST_DIMENSIONS:
        raise RequestError(f"input '{name}': {len(shape)} dimensions, at most {_MOST_DIMENSIONS} are read")
    extent = 1  # sizes of 0 left out: a tensor without elements may still claim more rows than memory can describe
    for size in shape:
        if type(size) is not int or size < 0:
            raise RequestError(f"input '{name}': shape {list(shape)} must hold non-negative integers")
        extent *= size or 1
    if extent > (_MOST_EMPTY if 0 in shape else _MOST_ELEMENTS):
        raise RequestError(f"input '{name}': shape {list(shape)} has more elements than a request can hold")
    return 0 if 0 in shape else extent
