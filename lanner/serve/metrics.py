"""Counters in the Prometheus text format, under the names Triton gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lanner.serve.control import Control

CONTENT_TYPE = b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"

_COUNTERS: tuple[tuple[str, str, Callable[[dict[str, Any]], int]], ...] = (
    ("nv_inference_request_success", "Requests answered with scores", lambda s: _stage(s, "success")["count"]),
    ("nv_inference_count", "Rows scored", lambda s: s["inference_count"]),
    ("nv_inference_exec_count", "Model executions", lambda s: s["execution_count"]),
    ("nv_inference_request_duration_us", "Time from arrival to answer", lambda s: _us(s, "success")),
    ("nv_inference_queue_duration_us", "Time in the queue", lambda s: _us(s, "queue")),
    ("nv_inference_compute_input_duration_us", "Time preparing input", lambda s: _us(s, "compute_input")),
    ("nv_inference_compute_infer_duration_us", "Time running the model", lambda s: _us(s, "compute_infer")),
    ("nv_inference_compute_output_duration_us", "Time preparing output", lambda s: _us(s, "compute_output")),
)  # fmt: skip


def render(control: Control) -> bytes:
    """The metrics page."""
    return ("\n".join(_lines(control)) + "\n").encode()


def _lines(control: Control) -> Iterator[str]:
    models = control.loaded()
    snapshots = [(model, model.statistics.snapshot(model.name, model.version)) for model in models]
    for name, text, read in _COUNTERS:
        yield from _header(name, text, "counter")
        for model, snapshot in snapshots:
            yield f"{name}{_labels(model=model.name, version=model.version)} {read(snapshot)}"
    name = "nv_inference_request_failure"
    yield from _header(name, "Requests answered with an error", "counter")
    for model in models:
        for reason, count in model.statistics.failures().items():
            yield f"{name}{_labels(model=model.name, reason=reason, version=model.version)} {count}"
    name = "nv_inference_pending_request_count"
    yield from _header(name, "Requests waiting in the queue", "gauge")
    for model in models:
        yield f"{name}{_labels(model=model.name, version=model.version)} {model.batcher.waiting}"
    name = "lanner_unknown_keys"
    yield from _header(name, "Lookups of keys that a dynamic table has no row for", "counter")
    for model in models:
        for table, count in model.model.unknown_keys().items():
            yield f"{name}{_labels(model=model.name, table=table, version=model.version)} {count}"


def _stage(snapshot: dict[str, Any], stage: str) -> dict[str, int]:
    found: dict[str, int] = snapshot["inference_stats"][stage]
    return found


def _us(snapshot: dict[str, Any], stage: str) -> int:
    return _stage(snapshot, stage)["ns"] // 1000


def _header(name: str, text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _labels(**labels: str) -> str:
    escaped = {
        key: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"
