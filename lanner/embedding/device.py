"""Where tables lie: in host memory, or on a CUDA device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from lanner.embedding.tables import TableConfig
from lanner.errors import ConfigError
from lanner.kernels import backends

HOST = torch.device("cpu")


def device_of(given: str | torch.device) -> torch.device:
    """The device that `given` names: cpu, cuda (the current one) or cuda:N.

    Raises ConfigError where it is none of these or not there, MissingExtraError where its kernels are not.
    """
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device is {given!r}, expected cpu, cuda or cuda:N") from error
    if device.type == "cpu":
        return HOST
    if device.type != "cuda":
        raise ConfigError(f"device is {str(device)!r}, expected cpu, cuda or cuda:N")
    if (device.index or 0) >= (count := torch.cuda.device_count()):
        raise ConfigError(f"device is {str(device)!r}, but PyTorch sees {count} CUDA devices")
    backends.gpu("lookup")
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)


def require_held(device: torch.device, tables: Iterable[TableConfig], on_disk: bool, several: bool) -> None:
    """Raise ConfigError where `tables`, some `on_disk` or spread over `several` processes, cannot lie on `device`."""
    if device == HOST:
        return
    for table in tables:
        if table.rows == "dynamic":
            raise ConfigError(f"table {table.name!r}: dynamic tables are held in host memory; use device='cpu'")
    if on_disk:
        raise ConfigError(
            "tables on disk have their rows in use in host memory; without a backing, or use device='cpu'"
        )
    if several:
        raise ConfigError("tables spread over several processes are held in host memory; use device='cpu'")
