"""How much memory a process may still take: the machine's, and that of the control groups it runs in (Linux)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_NO_LIMIT = 1 << 60  # version 1 of control groups writes a number near 2^63 for none


def free_bytes(root: str | os.PathLike[str] = "/") -> int:
    """Bytes that this process could take before the system or a limit stops it.

    The least of what the machine has (memory that caches of files hold counts as free) and what each control group
    around the process leaves. Elsewhere than on Linux it is half of the physical memory. `root` is where /proc and
    /sys are found.
    """
    try:
        machine = _field(Path(root, "proc/meminfo").read_text(), "MemAvailable:") << 10
    except (OSError, LookupError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return max(min([machine, *_left_by_groups(Path(root))]), 0)


def resident_bytes() -> int:
    """Memory that this process holds now; 0 where the system does not tell."""
    try:
        return _field(Path("/proc/self/status").read_text(), "VmRSS:") << 10
    except (OSError, LookupError):
        return 0


def _left_by_groups(root: Path) -> Iterator[int]:
    """What each limited control group leaves, of both versions."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _left(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _left(root / "sys/fs/cgroup/memory", path, *names)


def _left(mount: Path, path: str, limit_name: str, usage_name: str, cached_name: str) -> Iterator[int]:
    """The limit of a group and of each one above it, less what is used and cannot be given back at once."""
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts), -1, -1):
        group = mount.joinpath(*parts[:depth])
        try:
            limit = (group / limit_name).read_text().strip()
            used = int((group / usage_name).read_text())
            cached = _field((group / "memory.stat").read_text(), f"{cached_name} ")
        except (OSError, LookupError, ValueError):
            continue  # no limit at this level, or not visible from in here
        if limit != "max" and int(limit) < _NO_LIMIT:
            yield int(limit) - used + cached


def _field(text: str, name: str) -> int:
    """The number after `name`, which begins a line."""
    found = re.search(rf"^{re.escape(name)}\s*(\d+)", text, re.MULTILINE)
    if found is None:
        raise LookupError(name)
    return int(found[1])
