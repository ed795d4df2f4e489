"""Loading, versions, broken models and the end of a server."""

from __future__ import annotations

import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest

from lanner.errors import ConfigError
from lanner.serve.batcher import Ticket
from lanner.serve.control import REFUSED, Control
from lanner.serve.failure import RequestError
from lanner.serve.request import Request, Tensor
from lanner.serve.server import Options, serve
from lanner.serve.service import Service


def states(control: Control) -> dict[tuple[str, str], str]:
    return {(entry["name"], entry["version"]): entry["state"] for entry in control.index()}


@pytest.fixture
def copy(repository: Path, tmp_path: Path) -> Path:
    """A repository with the model `planted` alone, to be changed by a test."""
    shutil.copytree(repository / "planted", tmp_path / "planted")
    return tmp_path


def add_version(repository: Path, number: int, finished: bool = True) -> Path:
    added = repository / "planted" / str(number)
    shutil.copytree(repository / "planted" / "1", added)
    if not finished:
        (added / "manifest.json").unlink()
    return added


def test_the_newest_finished_version_serves(copy: Path) -> None:
    add_version(copy, 2)
    add_version(copy, 10)
    add_version(copy, 11, finished=False)
    control = Control(copy)
    control.start()
    assert control.model("planted").version == "10"
    with pytest.raises(RequestError, match="version 2 is not found"):
        control.model("planted", "2")
    control.stop()


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("all {}", ["1", "2", "3"]),
        ("specific { versions: [1, 3] }", ["1", "3"]),
        ("latest { num_versions: 2 }", ["2", "3"]),
    ],
)
def test_the_version_policy_is_kept(copy: Path, policy: str, versions: list[str]) -> None:
    add_version(copy, 2)
    add_version(copy, 3)
    (copy / "planted" / "config.pbtxt").write_text(f"max_batch_size: 8\nversion_policy {{ {policy} }}")
    control = Control(copy)
    control.start()
    assert control.versions("planted") == versions
    assert control.model("planted").version == "3"
    assert control.model("planted", versions[0]).version == versions[0]
    control.stop()


def test_broken_models_are_reported_and_do_not_stop_the_others(copy: Path) -> None:
    (add_version(copy, 3) / "model.onnx").write_bytes(b"no graph")
    shutil.copytree(copy / "planted", copy / "torn")
    shutil.rmtree(copy / "torn" / "3")
    (copy / "torn" / "config.pbtxt").write_text("max_batch_size: ${size}\n")
    (copy / "empty").mkdir()
    control = Control(copy)
    control.start()
    assert states(control) == {
        ("planted", "1"): "READY", ("planted", "3"): "UNAVAILABLE", ("torn", ""): "UNAVAILABLE",
        ("empty", ""): "UNAVAILABLE",
    }  # fmt: skip
    reasons = {(entry["name"], entry["version"]): entry["reason"] for entry in control.index()}
    assert "model.onnx" in reasons["planted", "3"]
    assert "torn/config.pbtxt: 1:17" in reasons["torn", ""]
    assert "unfilled template" in reasons["torn", ""]
    assert reasons["empty", ""] == "no finished version"
    assert control.model("planted").version == "1"
    with pytest.raises(RequestError, match="'torn' has no available versions"):
        control.model("torn")
    control.stop()


def test_without_explicit_control_nothing_is_loaded_on_request(copy: Path) -> None:
    control = Control(copy)
    control.start()
    for change in (control.load, control.unload):
        with pytest.raises(RequestError, match=REFUSED):
            change("planted")
    control.stop()


def test_a_repository_must_be_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: the model repository must be a directory"):
        Control(tmp_path / "nowhere").start()


def test_a_repository_must_have_models_unless_they_come_later(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "unfinished" / "1").mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"no models found in {tmp_path}: `lanner export` writes one"):
        Control(tmp_path).check()
    Control(tmp_path, explicit=True).check()
    with pytest.raises(ConfigError, match=f"this is one model; serve {repository}"):
        Control(repository / "planted").check()


def test_a_wrong_repository_is_told_before_any_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="must be a directory"):
            serve(Options(str(tmp_path / "nowhere"), http_port=port, grpc_port=port, metrics_port=port))


@pytest.mark.parametrize("use", ["HTTP", "gRPC", "metrics"])
def test_a_port_in_use_is_told_with_the_option_that_changes_it(repository: Path, use: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, f"{use.lower()}_port": port}
        expected = rf"^port {port} \({use}\) is in use; choose another with --{use.lower()}-port$"
        with pytest.raises(OSError, match=expected):
            serve(Options(str(repository), **ports))


def test_an_address_of_another_machine_is_told(repository: Path) -> None:
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:0 \(HTTP; --host, --http-port\)"):
        serve(Options(str(repository), host="192.0.2.1", http_port=0))


def test_a_failing_load_leaves_what_serves_and_fails_every_time(copy: Path) -> None:
    control = Control(copy, explicit=True)
    control.start()
    serving = control.model("planted")
    broken = add_version(copy, 3)
    vectors = broken / "tables" / "t1" / "emb_vector"
    for damage in (b"", (broken / "tables" / "t2" / "emb_vector").read_bytes()):  # cut short; other values
        vectors.write_bytes(damage)
        with pytest.raises(RequestError, match=r"failed to load 'planted'.*emb_vector"):
            control.load("planted")
        assert control.model("planted") is serving
        assert states(control) == {("planted", "1"): "READY", ("planted", "3"): "UNAVAILABLE"}
    shutil.copytree(copy / "planted" / "1", copy / "planted" / "4")
    control.load("planted")
    assert states(control) == {("planted", "4"): "READY"}
    control.unload("planted")
    with pytest.raises(RequestError, match="no available versions"):
        control.model("planted")
    with pytest.raises(RequestError, match="no such model"):
        control.load("../planted")
    control.stop()


def test_requests_during_a_swap_are_all_answered(copy: Path) -> None:
    control = Control(copy, explicit=True)
    control.start()
    service = Service(control)
    service.ready = True
    add_version(copy, 2)
    stop = threading.Event()
    versions: list[str] = []

    def ask() -> None:
        while not stop.is_set():
            answered = Queue[Ticket]()
            request = Request("planted")
            request.add(Tensor("ids", "INT64", (1, 4), np.zeros((1, 4), dtype=np.int64)))
            service.submit(request, 0, answered.put)
            ticket = answered.get(timeout=30)
            assert ticket.error is None
            versions.append(ticket.version)

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        control.load("planted")
        last = len(versions)
        while len(versions) < last + 10:
            time.sleep(0.001)
        stop.set()
        for future in asking:
            future.result()
    assert set(versions) == {"1", "2"}
    assert versions[-1] == "2"
    control.stop()


def test_a_service_that_stops_answers_what_it_received(copy: Path) -> None:
    control = Control(copy)
    control.start()
    service = Service(control)
    request = Request("planted")
    request.add(Tensor("ids", "INT64", (1, 4), np.zeros((1, 4), dtype=np.int64)))
    answered = Queue[Ticket]()
    with pytest.raises(RequestError, match="not ready"):
        service.submit(request, 0, answered.put)
    service.ready = True
    service.stop()
    assert not service.model_ready("planted")
    service.submit(request, 0, answered.put)
    assert answered.get(timeout=30).error is None
    control.stop()


def test_requests_under_way_at_a_signal_are_answered(start_server: Any, copy: Path) -> None:
    config = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 500000 }"
    (copy / "planted" / "config.pbtxt").write_text(config)
    server = start_server(copy, "--threads", "1")
    body = b'{"inputs":[{"name":"ids","datatype":"INT64","shape":[1,4],"data":[0,0,3,0]}]}'
    with socket.create_connection(("127.0.0.1", server.http), timeout=30) as client:
        client.sendall(b"POST /v2/models/planted/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        time.sleep(0.1)
        assert server.stop() == 0
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(start_server: Any, copy: Path, number: int) -> None:
    server = start_server(copy, "--threads", "1")
    client = server.http_client()
    assert client.is_server_ready()
    assert server.stop(number) == 0
    error = server.process.stderr.read().decode()
    assert error.count("\n") == 1
    assert error.startswith("ready: HTTP 127.0.0.1:")
