"""`Status`: the file of a run directory that says whether its run goes on, and how it ended."""

from __future__ import annotations

from types import TracebackType

from lanner.train.processes import Processes
from lanner.train.run_directory import RunDirectory


class Status:
    """A block in which a run takes place: ``{"status": "running", "processes": n}`` from `begin` on.

    Once the block ends, the status is "finished", "stopped" (Ctrl-C, SIGTERM) or "failed", then with its "cause". Where
    one of several processes is killed, those that are left say so.
    """

    def __init__(self) -> None:
        self._run: RunDirectory | None = None
        self._processes = 1
        self._is_first = True

    def __enter__(self) -> Status:
        return self

    def begin(self, run: RunDirectory, processes: Processes) -> None:
        """The run takes place in the directory `run`."""
        self._run, self._processes, self._is_first = run, processes.world_size, processes.is_first
        if self._is_first:
            self._write("running")

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._write("failed", cause=str(error) or type(error).__name__)
        elif self._is_first:
            self._write("stopped" if error else "finished")

    def _write(self, status: str, **more: str) -> None:
        if self._run is not None:
            self._run.write_status({"status": status, "processes": self._processes, **more})
