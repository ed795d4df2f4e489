"""The Spark a run works on: the one that is running already, or one started for it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lanner.errors import ConfigError, MissingExtraError

JAVA_HINT = "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started the JVM then."""


@contextmanager
def spark_context(master: str | None, settings: Mapping[str, str], quiet: bool = False) -> Iterator[Any]:
    """The running SparkContext, which is left running; else a new one, stopped at the end.

    A new one has `master`, else what spark-submit says, else `local[*]`. Raises ConfigError where Java is missing,
    Spark does not start, or a running context would have to change.
    """
    try:
        from pyspark import SparkContext
    except ImportError:
        raise MissingExtraError("engine spark", "spark") from None
    running = SparkContext._active_spark_context
    if running is not None:
        if master or settings:
            raise ConfigError("Spark is running already in this process: its master and settings cannot be changed")
        yield running
        return
    started = _start(master, settings, quiet)
    try:
        yield started
    finally:
        started.stop()


def java_found() -> bool:
    """Whether there is a Java to start Spark with."""
    home = os.environ.get("JAVA_HOME")
    return (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None


def _start(master: str | None, settings: Mapping[str, str], quiet: bool) -> Any:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    submitted = _SUBMITTED in os.environ
    if not submitted and not java_found():
        raise ConfigError(f"engine spark needs Java 17 or later, and there is none: {JAVA_HINT}")
    chosen = dict(settings)
    if master or not submitted:
        chosen["spark.master"] = master or settings.get("spark.master", "local[*]")
    if not submitted:
        chosen = {**_defaults(chosen["spark.master"], quiet), **chosen}
    try:
        context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(chosen.items())))
    except (PySparkException, Py4JError) as error:
        reason = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise ConfigError(f"Spark did not start: {reason} (it needs Java 17 or later: {JAVA_HINT})") from error
    if "PYSPARK_PYTHON" not in os.environ:  # Spark would look for a python3 on the path
        context.pythonExec = sys.executable
    return context


def _defaults(master: str, quiet: bool) -> dict[str, str]:
    bar = not quiet and sys.stderr.isatty()
    common = {
        "spark.app.name": "lanner prep",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(bar).lower(),
    }
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {**common, **(here if is_local(master) else {})}


def is_local(master: str) -> bool:
    """True for `local`, `local[4]` and the like."""
    return master == "local" or master.startswith("local[")
