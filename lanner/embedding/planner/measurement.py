"""Speeds of this machine, measured in about a second: what a plan takes where no figures are given."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import numpy as np
import torch

from lanner.kernels import memory, parallel

_COPIED = 64 << 20  # bytes: beyond the caches of most machines
_SENT = 64 << 20
_SIDE = 1024  # rows of a square matrix


def copy_bandwidth() -> float:
    """Bytes a second, read and written, of a copy in memory by all kernel threads."""
    source, target = memory.zeros(_COPIED, np.uint8), memory.zeros(_COPIED, np.uint8)
    source[:] = target[:] = 1

    def copy(begin: int, end: int) -> None:
        target[begin:end] = source[begin:end]

    return 2 * _COPIED / _best(lambda: parallel.run(copy, _COPIED, grain=1 << 20, pieces_per_thread=1), 4)


def compute_rate() -> float:
    """float32 operations a second in a product of matrices."""
    left, right, out = (torch.ones(_SIDE, _SIDE) for _ in range(3))
    return 2 * _SIDE**3 / _best(lambda: torch.mm(left, right, out=out), 4)


def link_bandwidth() -> float:
    """Bytes a second through a TCP connection of this machine with itself, such as Gloo makes between processes."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        receiver, _ = server.accept()
        with receiver:
            return _SENT / _best(lambda: _transfer(sender, receiver), 2)


def _transfer(sender: socket.socket, receiver: socket.socket) -> None:
    sending = threading.Thread(target=sender.sendall, args=(memoryview(bytearray(_SENT)),))
    sending.start()
    buffer, left = memoryview(bytearray(1 << 20)), _SENT
    while left:
        left -= receiver.recv_into(buffer)
    sending.join()


def _best(work: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of some rounds, after one that warms up."""
    seconds = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds[1:])
