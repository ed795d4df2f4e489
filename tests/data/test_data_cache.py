"""The folder of local copies: one download for all who ask at once, and no more bytes than allowed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lanner import storage
from lanner.data import cache
from lanner.errors import ConfigError

CHILD = """
import sys, time
from pathlib import Path
from lanner.data import cache
target, log = Path(sys.argv[1]), Path(sys.argv[2])
with cache.making(target) as missing:
    if missing:
        time.sleep(0.5)
        target.write_text("copy")
        with log.open("a") as file:
            file.write("made ")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LANNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_used", set())
    return tmp_path / "cache"


def fetch(name: str, size: int) -> Path:
    uri = f"memory://cache-test/{name}"
    with storage.publish(uri) as file:
        file.write(name.encode() * size)
    return Path(cache.download(uri, storage.checksum(uri)))


def test_processes_that_want_a_copy_at_once_make_it_once(place: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(place / "abc.arrow"), str(tmp_path / "log")]
    children = [subprocess.Popen(command) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "made "


def test_the_copies_used_longest_ago_make_room(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (fetch(name, 1000) for name in "abc")
    assert fetch("a", 1000) == first  # used again
    monkeypatch.setattr(cache, "_used", set())  # another process
    monkeypatch.setenv("LANNER_CACHE_SIZE", "3KB")
    fourth = fetch("d", 1000)
    assert [path.exists() for path in (first, second, third, fourth)] == [True, False, True, True]
    monkeypatch.setenv("LANNER_CACHE_SIZE", "1KB")
    fifth = fetch("e", 1000)
    assert set(place.glob("*[!s]")) == {fourth, fifth}  # what this process uses stays
    monkeypatch.setenv("LANNER_CACHE_SIZE", "much")
    with pytest.raises(ConfigError, match="LANNER_CACHE_SIZE: 'much'"):
        fetch("f", 10)
