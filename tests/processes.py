"""Functions of a test file, run in several processes joined by `torch.distributed` over Gloo.

    def double(rank, numbers): ...             # at the top level of the test file; rank 0, 1, ...

    results = run(double, 2, [1, 2, 3])        # one result for each rank

The processes find each other through a file, so that no port can be taken. An error in one is raised here with its
traceback; a process that does not end is killed. They are forked from a server that has imported what takes long.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import util
from pathlib import Path
from typing import Any

PEER_TIMEOUT = 30
"""Seconds that a process waits for the others."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch.distributed", "lanner.embedding", "lanner.train"])


@dataclass(frozen=True)
class Failure:
    """How a process failed: its error's type and text, or how it ended."""

    kind: str
    text: str


def run(function: Callable[..., Any], world_size: int, *arguments: Any, timeout: float = 120) -> list[Any]:
    """What `function(rank, *arguments)` returns on each rank; arguments and results are pickled."""
    outcomes = outcomes_of(function, world_size, *arguments, timeout=timeout)
    for rank, outcome in enumerate(outcomes):
        if isinstance(outcome, Failure):
            raise AssertionError(f"rank {rank} of {world_size} failed: {outcome.kind}: {outcome.text}")
    return outcomes


def outcomes_of(function: Callable[..., Any], world_size: int, *arguments: Any, timeout: float = 120) -> list[Any]:
    """Like `run`, with a `Failure` in place of the result of a rank that raised, died or was killed."""
    with tempfile.TemporaryDirectory(prefix="lanner-processes-") as folder:
        call = folder, world_size, function.__code__.co_filename, function.__name__, pickle.dumps(arguments)
        processes = [_context.Process(target=_run, args=(rank, *call)) for rank in range(world_size)]
        for process in processes:
            process.start()
        deadline = time.monotonic() + timeout
        for process in processes:
            process.join(max(deadline - time.monotonic(), 0))
        for process in processes:
            process.kill()
            process.join()
        return [_outcome(Path(folder, f"result-{rank}"), each.exitcode) for rank, each in enumerate(processes)]


def _outcome(path: Path, status: int | None) -> Any:
    return pickle.loads(path.read_bytes()) if path.exists() else Failure("ended", f"exit status {status}")


def _run(rank: int, folder: str, world_size: int, file: str, name: str, arguments: bytes) -> None:
    """What each process does."""
    try:
        result = _join_and_call(rank, folder, world_size, file, name, arguments)
    except BaseException as error:
        result = Failure(type(error).__name__, f"{error}\n{traceback.format_exc()}")
    path = Path(folder, f"result-{rank}")
    path.with_suffix(".part").write_bytes(pickle.dumps(result))
    path.with_suffix(".part").rename(path)


def _join_and_call(rank: int, folder: str, world_size: int, file: str, name: str, arguments: bytes) -> Any:
    import torch
    import torch.distributed as dist

    os.environ |= {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{world_size}", "LANNER_THREADS": "1"}
    torch.set_num_threads(1)
    meeting, timeout = f"file://{folder}/meeting", timedelta(seconds=PEER_TIMEOUT)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size, timeout=timeout)
    sys.path[:0] = [str(Path(file).parent), str(Path(__file__).parent)]
    specification = util.spec_from_file_location("test_file", file)
    module = util.module_from_spec(specification)
    sys.modules["test_file"] = module
    specification.loader.exec_module(module)
    return getattr(module, name)(rank, *pickle.loads(arguments))
