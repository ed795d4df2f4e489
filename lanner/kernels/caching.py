"""Compiled kernels kept on disk are of the sources that are there now.

Numba keeps compiled functions beside their source and compiles anew where that source has changed, but not where a
function that it calls, in another file, has. So an upgrade could leave kernels that mix old and new code. Here, what is
kept of a function of this package is also of the files that its file imports, directly or not.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import caching

_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(r"^\s*(?:from (lanner[\w.]*) import (\([^)]*\)|.*)|import (lanner[\w.]*))", re.MULTILINE)


def install() -> None:
    """Make Numba ask for the imported files too, for functions of this package; other packages see no change."""
    # Private names, there are no public ones; without them kernels work, and are kept as Numba does by itself.
    locators = getattr(caching.CacheImpl, "_locator_classes", None)
    if locators is not None:
        locators[:0] = [_watching(locator) for locator in locators]
    if hasattr(index := getattr(caching, "IndexDataCacheFile", None), "_load_index"):
        caching.IndexDataCacheFile = _forgiving(index)


def imported(path: Path) -> frozenset[Path]:
    """The source files of this package that `path` imports, directly or not, and itself."""
    found, open_files = set(), {path}
    while open_files:
        found |= open_files
        open_files = {named for source in open_files for named in _named_in(source)} - found
    return frozenset(found)


def _forgiving(index: Any) -> Any:
    class Forgiving(index):
        def _load_index(self) -> Any:
            try:
                return super()._load_index()
            except (AttributeError, ImportError):  # kept of older sources, with types that are no longer there
                return {}

    return Forgiving


def _watching(locator: Any) -> Any:
    class Watching(locator):
        def get_source_stamp(self) -> Any:
            return super().get_source_stamp(), _digest(Path(self._py_file))

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            ours = Path(py_file).is_relative_to(_PACKAGE)
            return super().from_function(py_func, py_file) if ours else None

    return Watching


@cache
def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for source in sorted(imported(path)):
        digest.update(source.read_bytes())
    return digest.hexdigest()


@cache
def _named_in(path: Path) -> frozenset[Path]:
    """Files of the modules that the import statements of `path` name; a name may be a module or something in one."""
    names = set()
    for module, members, plain in _IMPORT.findall(path.read_text()):
        names |= {module or plain} | {f"{module}.{member}" for member in re.findall(r"\w+", members)}
    bases = [_PACKAGE.parent.joinpath(*name.split(".")) for name in names]
    files = [file for base in bases for file in (base.with_suffix(".py"), base / "__init__.py")]
    return frozenset(file for file in files if file.is_file())
