"""The protocol's operations, free of any transport: HTTP and gRPC both call these."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version as installed_version
from typing import Any

from tritonclient.grpc.model_config_pb2 import ModelConfig

from lanner.serve.batcher import Ticket
from lanner.serve.control import Control, Loaded
from lanner.serve.failure import RequestError, StoppingError, unsupported
from lanner.serve.request import Request
from lanner.serve.settings import to_json

VERSION = installed_version("lanner")

EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "statistics",
    "trace",
    "logging",
)


class Service:
    """One server: its models and what may be asked about them. Answers are the protocol's JSON shapes."""

    def __init__(self, control: Control, name: str = "lanner") -> None:
        self.control = control
        self.name = name
        self.ready = False
        self._stopping = False
        self.trace = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0"}
        self.log: dict[str, Any] = {
            "log_file": "",
            "log_info": True,
            "log_warning": True,
            "log_error": True,
            "log_verbose_level": 0,
            "log_format": "default",
        }

    def stop(self) -> None:
        """Be ready no longer; requests that were received, or still come on open connections, are answered."""
        self.ready, self._stopping = False, True

    def server_metadata(self) -> dict[str, Any]:
        return {"name": self.name, "version": VERSION, "extensions": list(EXTENSIONS)}

    def model_ready(self, name: str, version: str = "") -> bool:
        try:
            self.control.model(name, version)
        except RequestError:
            return False
        return self.ready

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        loaded = self.control.model(name, version)
        described = to_json(loaded.config)
        return {
            "name": name,
            "versions": self.control.versions(name),
            "platform": loaded.config.platform,
            "inputs": [_tensor(declared) for declared in described["input"]],
            "outputs": [_tensor(declared) for declared in described["output"]],
        }

    def model_config(self, name: str, version: str = "") -> ModelConfig:
        return self.control.model(name, version).config

    def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """Counters of one model, or of all when `name` is empty."""
        models = [self.control.model(name, version)] if name else self.control.loaded()
        return {"model_stats": [model.statistics.snapshot(model.name, model.version) for model in models]}

    def index(self, ready_only: bool = False) -> list[dict[str, str]]:
        return self.control.index(ready_only)

    def load(self, name: str) -> None:
        self.control.load(name)

    def unload(self, name: str) -> None:
        self.control.unload(name)

    def submit(self, request: Request, arrived: int, done: Callable[[Ticket], None]) -> tuple[Loaded, Ticket]:
        """Encode a request and queue it; `done` is called from another thread when it has been answered.

        Raises RequestError when the request cannot be accepted; the model's statistics count that as a failure.
        """
        if not self.ready and not self._stopping:
            raise RequestError("the server is not ready", 503, "REJECTED")
        loaded = self.control.model(request.model, request.version)
        try:
            begun = time.perf_counter_ns()
            rows = loaded.model.inputs.read(request)
            _check_outputs(request)
            encoding = time.perf_counter_ns() - begun if loaded.model.inputs.is_raw(request) else 0
            ticket = Ticket(rows, done, arrived, encoding, request.timeout)
            ticket.version = loaded.version
            loaded.batcher.submit(ticket)
        except StoppingError:
            if self.control.model(request.model, request.version) is loaded:
                raise
            return self.submit(request, arrived, done)  # a newer version has taken over in the meantime
        except RequestError as error:
            loaded.statistics.failed(error.reason, time.perf_counter_ns() - arrived)
            raise
        return loaded, ticket

    def malformed(self, model: str, version: str, arrived: int) -> None:
        """Count a request whose body could not be read."""
        try:
            statistics = self.control.model(model, version).statistics
        except RequestError:
            return
        statistics.failed("OTHER", time.perf_counter_ns() - arrived)

    def shared_memory(self, operation: str) -> Any:
        """Status (none) and unregister (nothing to do); regions cannot be registered."""
        if operation == "register":
            raise unsupported("shared memory")
        return []


def _tensor(declared: dict[str, Any]) -> dict[str, Any]:
    datatype = declared["data_type"].removeprefix("TYPE_")
    return {
        "name": declared["name"],
        "datatype": "BYTES" if datatype == "STRING" else datatype,
        "shape": [-1, *declared["dims"]],
    }


def _check_outputs(request: Request) -> None:
    seen = set()
    for output in request.outputs or ():
        if output.name != "score":
            raise RequestError(f"unexpected inference output '{output.name}' for model '{request.model}'")
        if output.name in seen:
            raise RequestError(f"output '{output.name}' is requested more than once")
        seen.add(output.name)
