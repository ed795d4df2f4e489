"""Entry point: finds the command's file, runs it, and turns errors into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated

# Idle OpenMP threads must sleep, not spin: set before PyTorch loads its runtime.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import typer

from lanner import __version__
from lanner.cli.console import people
from lanner.errors import LannerError

COMMANDS = ("synth", "prep", "report", "convert", "inspect", "plan", "train", "evaluate", "export", "serve", "perf")

app = typer.Typer(
    name="lanner", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)

for _name in COMMANDS:
    app.command(_name)(getattr(importlib.import_module(f"lanner.cli.{_name}"), _name))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lanner {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train ranking models on embedding tables of any size, and serve them.

    Example: lanner synth --rows 100000 --out logs.tsv
    """


def run() -> None:
    """Run the command line; LANNER_DEBUG=1 shows tracebacks."""
    try:
        app(standalone_mode=True)
    except (LannerError, OSError) as error:
        if os.environ.get("LANNER_DEBUG"):
            raise
        people.print(f"error: {_text(error)}", style="bold red", markup=False)
        sys.exit(1)
    except MemoryError as error:
        if os.environ.get("LANNER_DEBUG"):
            raise
        people.print(f"error: out of memory. {error}".rstrip(". "), style="bold red", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        people.print("interrupted")
        sys.exit(130)


def _text(error: Exception) -> str:
    """The error in words: the system's own errors name their file first and no number."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"no such file: {error.filename}"
    return f"{error.filename}: {error.strerror}"


if __name__ == "__main__":
    run()
