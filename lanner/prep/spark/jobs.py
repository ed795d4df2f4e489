"""Jobs on Spark whose tasks are calls of our functions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from lanner.errors import LannerError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Jobs:
    """Runs functions of modules on a SparkContext; errors come out as if they had been raised here."""

    def __init__(self, context: Any) -> None:
        self._context = context

    @property
    def parallelism(self) -> int:
        """How many tasks Spark would run at once by itself."""
        return int(self._context.defaultParallelism)

    def broadcast(self, value: Any) -> Any:
        """A handle that tasks get `value` from (`.value`), sent to each worker once."""
        return self._context.broadcast(value)

    def map(self, title: str, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """`function` of each item, a task each, in order.

        Raises the LannerError of the first item that has one, once all have ended: Spark would only try again.
        """
        if not items:
            return []
        tasks = self._context.parallelize(items, len(items)).map(partial(_outcome, function))
        results = []
        for outcome in self.collect(title, tasks):
            if isinstance(outcome, _Failure):
                outcome.throw()
            results.append(outcome)
        return results

    def tasks(self, items: Sequence[Item], function: Callable[[Item], Iterable[Result]]) -> Any:
        """An RDD of what `function` gives for each item, a task each."""
        return self._context.parallelize(items, len(items)).flatMap(partial(_flat, function))

    def collect(self, title: str, rdd: Any) -> list[Any]:
        """Everything in `rdd`. Raises LannerError with what went wrong in a task, or in Spark."""
        from py4j.protocol import Py4JJavaError

        self._context.setJobDescription(f"lanner prep: {title}")
        try:
            found: list[Any] = rdd.collect()
        except Py4JJavaError as error:
            raise LannerError(f"Spark, {title}: {_reason(error)}") from error
        finally:
            self._context.setJobDescription(None)
        return found


class _Failure:
    """A LannerError on its way to the driver."""

    def __init__(self, error: LannerError) -> None:
        self._kind, self._text = type(error), str(error)

    def throw(self) -> None:
        error = self._kind.__new__(self._kind)  # some kinds make their text of other arguments
        error.args = (self._text,)
        raise error


def _outcome(function: Callable[[Item], Result], item: Item) -> Result | _Failure:
    with _task_threads():
        try:
            return function(item)
        except LannerError as error:
            return _Failure(error)


def _flat(function: Callable[[Item], Iterable[Result]], item: Item) -> Iterator[Result]:
    with _task_threads():
        yield from function(item)


@contextmanager
def _task_threads() -> Iterator[None]:
    """Kernels use as many threads as Spark has given the task CPUs (`spark.task.cpus`)."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is not None:
        os.environ["LANNER_THREADS"] = str(task.cpus())
    yield


def _reason(error: Any) -> str:
    """The Python error of a failed task, else Spark's own first line."""
    text = str(error.java_exception)
    _, python, trace = text.rpartition("Traceback (most recent call last):")
    found = re.search(r"^\S.*?(?=\n\s*(?:at |SQLSTATE)|\Z)", trace, re.MULTILINE | re.DOTALL) if python else None
    reason = found[0].strip() if found else text.splitlines()[0]
    if "No module named 'lanner'" in reason:
        reason += " (install the same lanner for the Python of every worker; PYSPARK_PYTHON says which that is)"
    return reason
