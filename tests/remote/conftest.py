"""Fixtures of the tests of remote files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the tests share `web_servers`
sys.path.insert(0, str(Path(__file__).parent.parent / "prep"))  # and prep's logs

from web_servers import Faulty, WebHdfs, s3_app, serving


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANNER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def s3_server() -> Iterator[tuple[Faulty, int]]:
    app = Faulty(s3_app())
    with serving(app) as port:
        yield app, port


@pytest.fixture
def s3(s3_server: tuple[Faulty, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Faulty]:
    """moto's S3 server, found and logged in to as everybody does: by the usual variables. Its bucket is `lake`."""
    app, port = s3_server
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    fs = fsspec.filesystem("s3", skip_instance_cache=True)
    if not fs.exists("lake"):
        fs.mkdir("lake")
    type(fs).clear_instance_cache()
    yield app
    app.every = 0
    type(fs).clear_instance_cache()
    fs.rm("lake", recursive=True)


@pytest.fixture
def hdfs() -> Iterator[tuple[Faulty, str]]:
    """The stand-in for WebHDFS, and the URI of its root."""
    app = Faulty(WebHdfs())
    with serving(app) as port:
        yield app, f"webhdfs://127.0.0.1:{port}"
