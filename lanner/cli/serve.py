"""`lanner serve`: answer requests with the models of a repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lanner.cli.console import Json, people, print_json, print_table

if TYPE_CHECKING:
    from lanner.serve.server import Ports
    from lanner.serve.service import Service


def serve(
    repository: Annotated[str, typer.Argument(help="Model repository, as `lanner export` writes it.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 accepts other machines.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="HTTP port; 0 takes any free one.")] = 8000,
    grpc_port: Annotated[int, typer.Option(help="gRPC port; 0 takes any free one.")] = 8001,
    metrics_port: Annotated[int, typer.Option(help="Port of the Prometheus metrics; 0 takes any free one.")] = 8002,
    threads: Annotated[int, typer.Option(help="Threads of one model execution; 0 means all CPUs.")] = 0,
    model_control: Annotated[str, typer.Option(help="none: models as found at start; explicit: load and unload.")] = (
        "none"
    ),
    server_name: Annotated[str, typer.Option(help="Name in the server's metadata.")] = "lanner",
    http_max_input_size: Annotated[int, typer.Option(help="Largest HTTP request body in bytes.")] = 64 << 20,
    exit_timeout: Annotated[float, typer.Option(help="Seconds that requests in flight have after a signal.")] = 30.0,
    ready_file: Annotated[Path | None, typer.Option(help="Write the ports as JSON here once ready.")] = None,
    json: Json = False,
) -> None:
    """Serve a model repository over HTTP and gRPC (Triton / KServe v2 protocol).

    One line is printed when the models are loaded and warm. SIGTERM or Ctrl-C stops the server once all requests in
    flight are answered.

    Example: lanner serve repository --http-port 8000 --grpc-port 8001 --metrics-port 8002
    """
    if model_control not in ("none", "explicit"):
        raise typer.BadParameter(f"{model_control!r}; expected none or explicit", param_hint="--model-control")
    from lanner.serve.server import Options
    from lanner.serve.server import serve as run

    options = Options(
        repository=repository,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        threads=threads,
        explicit=model_control == "explicit",
        name=server_name,
        http_limit=http_max_input_size,
        exit_timeout=exit_timeout,
        ready_file=None if ready_file is None else str(ready_file),
    )

    def ready(ports: Ports, service: Service) -> None:
        models = service.index()
        if json:
            print_json({"http": ports.http, "grpc": ports.grpc, "metrics": ports.metrics, "models": models})
            return
        people.print(f"ready: HTTP {host}:{ports.http}  gRPC {host}:{ports.grpc}  metrics {host}:{ports.metrics}")
        if any(model["state"] != "READY" for model in models):
            columns = ["name", "version", "state", "reason"]
            print_table("models", columns, [[model[column] for column in columns] for model in models])

    run(options, ready)
