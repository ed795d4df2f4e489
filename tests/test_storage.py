"""Files on any URI: written whole or not at all, listed, expanded and checked."""

from __future__ import annotations

import errno
import hashlib
import stat
import uuid
from pathlib import Path

import pytest

from lanner import storage
from lanner.errors import ConfigError, DataError


@pytest.fixture(params=["local", "file", "memory"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"local": str(tmp_path), "file": f"file://{tmp_path}", "memory": f"memory://{uuid.uuid4()}"}[request.param]


def test_written_and_read_again(base: str) -> None:
    path = storage.join(base, "a", "b.txt")
    assert not storage.exists(path)
    storage.write_text(path, "grüße\n")
    assert storage.read_text(path) == "grüße\n"
    assert storage.exists(path) and storage.size(path) == 8
    assert storage.is_directory(storage.join(base, "a")) and not storage.is_directory(path)
    assert storage.checksum(path) == hashlib.blake2b("grüße\n".encode(), digest_size=16).hexdigest()
    storage.write_text(path, "new")
    assert storage.read_text(path) == "new"


def test_a_failed_write_leaves_what_was_there(base: str) -> None:
    path = storage.join(base, "file")
    for before in (None, "old"):
        if before:
            storage.write_text(path, before)
        with pytest.raises(RuntimeError, match="stop"), storage.publish(path) as file:
            file.write(b"half")
            raise RuntimeError("stop")
        assert storage.list_files(base) == (["file"] if before else [])
        assert not before or storage.read_text(path) == before


def test_nothing_is_seen_before_the_write_is_complete(base: str) -> None:
    path = storage.join(base, "file")
    with storage.publish(path) as file:
        file.write(b"content")
        assert not storage.exists(path)
    assert storage.read_text(path) == "content"


def test_two_writers_in_two_files_do_not_meet(base: str) -> None:
    one, two = storage.join(base, "one"), storage.join(base, "two")
    with storage.publish(one) as first, storage.publish(two) as second:
        first.write(b"1")
        second.write(b"2")
    assert (storage.read_text(one), storage.read_text(two)) == ("1", "2")


def test_listing_expanding_and_removing(base: str) -> None:
    for name in ("d/b.txt", "d/a.txt", "d/e/c.txt", "f.txt"):
        storage.write_text(storage.join(base, name), name)
    assert storage.list_files(base) == ["d/a.txt", "d/b.txt", "d/e/c.txt", "f.txt"]
    assert storage.list_files(storage.join(base, "d") + "/") == ["a.txt", "b.txt", "e/c.txt"]
    found = storage.expand([storage.join(base, "f.txt"), storage.join(base, "d", "*.txt")])
    assert [storage.read_text(path) for path in found] == ["f.txt", "d/a.txt", "d/b.txt"]
    with pytest.raises(FileNotFoundError, match=r"no file matches .*\*\.csv"):
        storage.expand([storage.join(base, "*.csv")])
    storage.remove(storage.join(base, "d"))
    storage.remove(storage.join(base, "d"))
    assert storage.list_files(base) == ["f.txt"]
    storage.make_directory(storage.join(base, "new", "deep"))
    assert storage.is_directory(storage.join(base, "new", "deep"))


def test_a_missing_file_is_named(base: str) -> None:
    with pytest.raises(FileNotFoundError, match="nope"):
        storage.read_text(storage.join(base, "nope"))


def test_local_files_are_readable_by_others_and_leave_no_traces(tmp_path: Path) -> None:
    storage.write_text(tmp_path / "x", "text")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_text_that_is_none_is_refused_by_name(base: str) -> None:
    with storage.publish(storage.join(base, "x.yaml")) as file:
        file.write(b"ab\xff\xfe")
    with pytest.raises(DataError, match=r"x.yaml: not UTF-8 text \(byte 2\)"):
        storage.read_text(storage.join(base, "x.yaml"))


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*/x'") as caught,
        storage.publish(tmp_path / "x") as file,
    ):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.errno == errno.ENOSPC
    assert not any(tmp_path.iterdir())


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    names = (".a.yaml.abcd1234.part", ".b.parquet._x3y4z5w.part", "c.part", ".mine.part")
    for name in names:
        (tmp_path / name).touch()
    storage.remove_unpublished(tmp_path, "a.yaml")
    assert {path.name for path in tmp_path.iterdir()} == set(names[1:])
    storage.remove_unpublished(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"c.part", ".mine.part"}
    storage.remove_unpublished(tmp_path / "nowhere")


def test_an_unknown_protocol_is_refused_by_name() -> None:
    for use in (storage.exists, storage.read_text, storage.list_files, storage.make_directory, storage.checksum):
        with pytest.raises(ConfigError, match=r"s3x://a/b: .*s3x"):
            use("s3x://a/b")
    with pytest.raises(ConfigError, match="s3x://a/b"):
        storage.expand(["s3x://a/b"])
    with pytest.raises(ConfigError, match="s3x://a/b"):
        storage.write_text("s3x://a/b", "text")


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        (("a", "b"), "a/b"),
        (("a/", "/b/", "c"), "a/b/c"),
        (("/", "b"), "/b"),
        (("memory://", "b"), "memory://b"),
        (("s3://x/", "b"), "s3://x/b"),
        (("a",), "a"),
    ],
)
def test_join(parts: tuple[str, ...], joined: str) -> None:
    assert storage.join(*parts) == joined


def test_local_uris() -> None:
    assert storage.is_local("a/b") and storage.is_local("file:///a") and not storage.is_local("s3://a")
    assert storage.local_path("file:///a/b") == Path("/a/b")
