"""`Devices`: what a training run computes on, as a planner sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanner.embedding.planner import measurement
from lanner.embedding.planner.free_memory import free_bytes
from lanner.errors import ConfigError

ETHERNET = 1.25e9
"""Bytes a second of 10-gigabit Ethernet."""


@dataclass(frozen=True)
class Devices:
    """`count` equal devices, one process each, on `nodes` machines with as many each: rank r is on node r // per_node.

    Attributes:
        count: processes.
        memory: bytes that each process may take.
        bandwidth: bytes a second that each can copy in memory, read and written counted.
        compute: float32 operations a second of each.
        link: bytes a second that each sends to others of its node.
        nodes: machines.
        node_link: bytes a second that each sends to other nodes.
    """

    count: int
    memory: int
    bandwidth: float
    compute: float
    link: float
    nodes: int = 1
    node_link: float = ETHERNET

    def __post_init__(self) -> None:
        for name in ("count", "nodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"devices: {name} is {getattr(self, name)!r}, expected at least 1")
        if self.count % self.nodes:
            raise ConfigError(f"devices: {self.count} processes do not divide evenly among {self.nodes} nodes")
        for name in ("memory", "bandwidth", "compute", "link", "node_link"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"devices: {name} is {getattr(self, name)!r}, expected a number above 0")

    @classmethod
    def here(
        cls,
        count: int = 1,
        nodes: int = 1,
        memory: float | None = None,
        bandwidth: float | None = None,
        compute: float | None = None,
        link: float | None = None,
        node_link: float | None = None,
    ) -> Devices:
        """`count` processes on machines like this one, which share what it has.

        What is not given is measured, in about a second: `memory` is what is free now. A node's processes are taken to
        share an `ETHERNET` to the others; within the node each has a core of its own to send with.
        """
        share = max(count // max(nodes, 1), 1)
        return cls(
            count=count,
            memory=free_bytes() // share if memory is None else int(memory),
            bandwidth=measurement.copy_bandwidth() / share if bandwidth is None else bandwidth,
            compute=measurement.compute_rate() / share if compute is None else compute,
            link=measurement.link_bandwidth() if link is None else link,
            nodes=nodes,
            node_link=ETHERNET / share if node_link is None else node_link,
        )

    @property
    def per_node(self) -> int:
        """Processes of one machine."""
        return self.count // self.nodes

    def node(self, number: int) -> tuple[int, ...]:
        """The ranks of a node."""
        return tuple(range(number * self.per_node, (number + 1) * self.per_node))

    def paths(self) -> NDArray[np.float64]:
        """Bytes a second from each rank to each [count, count]; infinite to itself."""
        node = np.arange(self.count) // self.per_node
        paths = np.where(node[:, None] == node[None, :], self.link, self.node_link)
        np.fill_diagonal(paths, np.inf)
        return paths
