"""Single files on S3 (moto's server) and on a stand-in for WebHDFS: whole or not there, through faults, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from web_servers import Faulty, WebHdfs, folder_app, serving

from lanner import storage
from lanner.errors import ConfigError, RemoteError
from lanner.remote import access, writing

BIG = np.random.default_rng(3).bytes(13 << 20)
"""More than two parts of an upload."""
CHILD = """
import sys
from lanner import storage
with storage.publish(sys.argv[1]) as file:
    for _ in range(12):
        file.write(bytes(range(256)) * (1 << 12))
    print("half", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["s3", "hdfs"])
def served(request: pytest.FixtureRequest) -> tuple[Faulty, str]:
    """A server and a folder on it."""
    if request.param == "s3":
        return request.getfixturevalue("s3"), "s3://lake/folder"
    app, root = request.getfixturevalue("hdfs")
    return app, f"{root}/folder"


def write(uri: str, data: bytes) -> None:
    with storage.publish(uri) as file:
        for at in range(0, len(data), 1 << 20):
            file.write(data[at : at + (1 << 20)])


def read(uri: str) -> bytes:
    with storage.open_file(uri) as file:
        return file.read()


def test_written_listed_replaced_and_removed(served: tuple[Faulty, str]) -> None:
    _, base = served
    for name in ("d/b.txt", "d/a.txt", "d/e/c.txt", "f.txt"):
        storage.write_text(storage.join(base, name), name)
    assert storage.list_files(base) == ["d/a.txt", "d/b.txt", "d/e/c.txt", "f.txt"]
    assert storage.list_files(storage.join(base, "d") + "/") == ["a.txt", "b.txt", "e/c.txt"]
    found = storage.expand([storage.join(base, "f.txt"), storage.join(base, "d", "*.txt")])
    assert found == [storage.join(base, name) for name in ("f.txt", "d/a.txt", "d/b.txt")]
    assert [storage.read_text(path) for path in found] == ["f.txt", "d/a.txt", "d/b.txt"]
    with pytest.raises(FileNotFoundError, match=r"no file matches .*\*\.csv"):
        storage.expand([storage.join(base, "*.csv")])
    path = storage.join(base, "f.txt")
    storage.write_text(path, "other")  # of the same length
    assert (storage.read_text(path), storage.size(path)) == ("other", 5)
    storage.remove(path)
    storage.remove(storage.join(base, "d"))
    storage.remove(storage.join(base, "d"))
    assert not storage.exists(path) and not storage.exists(storage.join(base, "d"))
    with pytest.raises(FileNotFoundError, match=r"/folder/f\.txt'"):
        storage.read_text(path)
    write(path, b"")
    assert storage.size(path) == 0 and read(path) == b""


def test_what_another_process_wrote_is_seen(served: tuple[Faulty, str]) -> None:
    _, base = served
    storage.write_text(storage.join(base, "one"), "1")
    assert storage.list_files(base) == ["one"]
    code = f"from lanner import storage; storage.write_text({storage.join(base, 'two')!r}, '2')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert storage.list_files(base) == ["one", "two"]
    assert storage.read_text(storage.join(base, "two")) == "2"


def test_a_failed_write_leaves_what_was_there(served: tuple[Faulty, str]) -> None:
    _, base = served
    path = storage.join(base, "file")
    for before in (None, "old"):
        if before:
            storage.write_text(path, before)
        with pytest.raises(RuntimeError, match="stop"), storage.publish(path) as file:
            file.write(BIG[: 6 << 20])
            raise RuntimeError("stop")
        assert storage.exists(path) == bool(before)
        assert not before or storage.list_files(base) == ["file"]
        assert not before or storage.read_text(path) == before


def test_a_killed_writer_leaves_what_was_there(served: tuple[Faulty, str]) -> None:
    _, base = served
    path = storage.join(base, "file")
    storage.write_text(path, "old")
    child = subprocess.Popen([sys.executable, "-c", CHILD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"half\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert storage.read_text(path) == "old"
    storage.remove_unpublished(base)
    assert storage.list_files(base) == ["file"]


def test_every_third_request_fails(served: tuple[Faulty, str], monkeypatch: pytest.MonkeyPatch) -> None:
    app, base = served
    # Not `lost` on S3: moto forgets an upload that it has completed, which S3 does not.
    kinds = ("busy", "dropped", "cut") if base.startswith("s3") else ("busy", "dropped", "lost", "cut")
    monkeypatch.setattr(writing, "APPEND_BYTES", 3 << 20)
    monkeypatch.setattr(access, "WAITS", (0.01,) * 6)
    app.every, app.kinds = 3, kinds
    path = storage.join(base, "deep", "file")
    write(path, BIG)
    storage.write_text(storage.join(base, "deep", "note"), "one")
    storage.write_text(storage.join(base, "deep", "note"), "two")
    assert read(path) == BIG
    assert storage.read_text(storage.join(base, "deep", "note")) == "two"
    assert storage.list_files(base) == ["deep/file", "deep/note"]
    assert storage.expand([storage.join(base, "*", "f*")]) == [path]
    assert storage.is_directory(storage.join(base, "deep")) and not storage.exists(storage.join(base, "nope"))
    storage.remove(storage.join(base, "deep"))
    assert not storage.exists(path)
    assert len(app.failed) > 4


def test_a_gateway_that_renames_over_nothing() -> None:
    with serving(WebHdfs(overwrites=False)) as port:
        path = f"webhdfs://127.0.0.1:{port}/folder/file"
        for text in ("one", "two"):
            storage.write_text(path, text)
            assert storage.read_text(path) == text
        assert storage.list_files(f"webhdfs://127.0.0.1:{port}/folder") == ["file"]


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "whole files"])
@pytest.mark.parametrize("kinds", [(), ("busy", "dropped", "cut")], ids=["sound", "faulty"])
def test_http_is_read(ranges: bool, kinds: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "big.bin").write_bytes(BIG[: 7 << 20])
    (tmp_path / "d" / "a.txt").write_text("text")
    monkeypatch.setattr(access, "WAITS", (0.01,) * 6)
    app = Faulty(folder_app(tmp_path, ranges))
    with serving(app) as port:
        base = f"http://127.0.0.1:{port}/d"
        if kinds:
            app.every, app.kinds = 3, kinds
        with storage.open_file(f"{base}/big.bin") as file:
            assert file.read(4) == BIG[:4]
            file.seek(0)
            assert file.read(1000) == BIG[:1000]
            file.seek(5 << 20)
            assert file.read() == BIG[5 << 20 : 7 << 20]
            file.seek(100)
            assert file.read() == BIG[100 : 7 << 20]
        assert storage.expand([f"{base}/*.txt"]) == [f"{base}/a.txt"]
        assert storage.read_text(f"{base}/a.txt") == "text"
        assert not storage.exists(f"{base}/nope")
        with pytest.raises(FileNotFoundError, match=f"{base}/nope"):
            storage.read_text(f"{base}/nope")
        with pytest.raises(ConfigError, match=f"{base}/new: files cannot be written or removed on http://"):
            storage.write_text(f"{base}/new", "text")


def test_a_server_that_is_down_is_named_in_bounded_time(s3: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "WAITS", (0.01, 0.01))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    with serving(WebHdfs()) as port:
        pass
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    for uri in ("s3://lake/x", f"http://127.0.0.1:{port}/x", f"webhdfs://127.0.0.1:{port}/x"):
        for use in (storage.exists, storage.read_text):
            with pytest.raises(RemoteError, match=f"^{uri}: .*onnect") as caught:
                use(uri)
            assert "\n" not in str(caught.value)


def test_what_s3_refuses_is_named(s3: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"bucket does not exist: 's3://nowhere/x'"):
        storage.read_text("s3://nowhere/x")
    with pytest.raises(FileNotFoundError, match=r"bucket does not exist: 's3://nowhere/x'"):
        storage.write_text("s3://nowhere/x", "text")
    with pytest.raises(FileNotFoundError, match=r"no file matches 's3://nowhere/\*'"):
        storage.expand(["s3://nowhere/*"])
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(RemoteError, match="s3://lake/x: Unable to locate credentials"):
        storage.exists("s3://lake/x")
