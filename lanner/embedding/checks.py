"""What is refused before tables are touched, with errors that name feature, table and value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lanner.data.batch import Bags
from lanner.embedding.optimizers import Optimizer
from lanner.embedding.tables import FeatureConfig, TableConfig, check
from lanner.errors import ConfigError, DataError, IdRangeError
from lanner.kernels.lookup import bags_fit

_WHOLE = (torch.int64, torch.int32)


def arguments(
    tables: Sequence[TableConfig],
    features: Sequence[FeatureConfig],
    optimizer: object,
    backend: object,
    out_of_range: object,
) -> None:
    """Raise ConfigError where no collection can be made of these."""
    check(tables, features)
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(
            f"embedding: optimizer is {optimizer!r}, expected one of lanner.embedding, such as RowWiseAdagrad(0.02)"
        )
    for what, value, known in (
        ("backend", backend, ("auto", "cpu", "reference", "gpu")),
        ("out_of_range", out_of_range, ("error", "unknown")),
    ):
        if value not in known:
            raise ConfigError(f"embedding: {what} is {value!r}, expected one of {', '.join(known)}")


def usable(given: Bags, features: Sequence[FeatureConfig], device: torch.device) -> Bags:
    """The bags as the kernels take them: contiguous, offsets int64; on the CPU or on `device`.

    Raises DataError unless all features are there, and ids, offsets and weights have usable types and fit together.
    """
    if not isinstance(given, Bags):
        raise DataError(f"bags: got {type(given).__name__}, expected Bags; Bags.from_lengths makes them")
    for feature in features:
        if feature.name not in given.names:
            raise DataError(f"bags: feature {feature.name!r} is missing; they hold {', '.join(given.names) or 'none'}")
    values = _plain("ids", given.values, _WHOLE, device)
    offsets = None if given.offsets is None else _plain("offsets", given.offsets, _WHOLE, device).long()
    weights = None if given.weights is None else _plain("weights", given.weights, (torch.float32,), device)
    if weights is not None and weights.requires_grad:
        raise DataError("bags: no gradient flows to per-id weights; detach them")
    if not bags_fit(values, offsets, weights, len(given.names)):
        given.validate()
        raise DataError(f"bags: {values.numel()} ids do not fit {len(given.names)} features")
    return Bags(given.names, values, offsets, weights)


def _plain(what: str, tensor: Tensor, kinds: tuple[torch.dtype, ...], device: torch.device) -> Tensor:
    if tensor.dtype not in kinds:
        raise DataError(f"bags: {what} are {tensor.dtype}, expected {' or '.join(map(str, kinds))}")
    if tensor.dim() != 1 or (tensor.device != device and tensor.device.type != "cpu"):
        seen, place = f"{tuple(tensor.shape)} on {tensor.device}", "" if device.type == "cpu" else f" or {device}"
        raise DataError(f"bags: {what} have shape {seen}, expected one dimension on the CPU{place}")
    return tensor.contiguous()


class BadId(NamedTuple):
    """An id outside its table."""

    feature: FeatureConfig
    table: TableConfig
    value: int
    sample: int
    strays: int  # how many ids of this feature are out of range


def out_of_range(given: Bags, features: Sequence[FeatureConfig], tables: Mapping[str, TableConfig]) -> Iterator[BadId]:
    """For each feature with ids outside its table, the first of them and their number."""
    batch = given.batch_size
    for feature in features:
        at = given.names.index(feature.name)
        table = tables[feature.table]
        begin, end = _span(given.offsets, at * batch, (at + 1) * batch)
        ids = given.values[begin:end]
        if table.rows == "dynamic":
            continue
        if ids.numel() and not 0 <= int((ends := ids.aminmax()).min) <= int(ends.max) < table.rows:
            bad = torch.nonzero((ids < 0) | (ids >= table.rows))
            position = begin + int(bad[0])
            yield BadId(feature, table, int(given.values[position]), _bag(given.offsets, position) % batch, bad.numel())


def range_error(bad: BadId) -> IdRangeError:
    """The error for `bad`."""
    return IdRangeError(
        f"table {bad.table.name!r}: id {bad.value} of feature {bad.feature.name!r} (sample {bad.sample}) is outside "
        f"its {bad.table.rows} rows; expected 0 <= id < {bad.table.rows}"
    )


def _span(offsets: Tensor | None, first: int, last: int) -> tuple[int, int]:
    return (first, last) if offsets is None else (int(offsets[first]), int(offsets[last]))


def _bag(offsets: Tensor | None, position: int) -> int:
    return position if offsets is None else int(torch.searchsorted(offsets, position, right=True)) - 1
