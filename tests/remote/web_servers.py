"""Servers on this machine for the tests of remote files: moto's S3, a stand-in for WebHDFS, plain HTTP; with faults."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

App = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Faulty:
    """Passes requests on to `app`; while `every` is set, each such one fails, in the ways of `kinds` in turn.

    busy: 503, nothing done; dropped: the connection is closed, nothing done; cut: the connection is closed amid the
    answer's body; lost: what was asked is done, and the answer is 503.
    """

    def __init__(self, app: App) -> None:
        self.app, self.every, self.kinds = app, 0, ("busy",)
        self.requests: list[str] = []
        self.failed: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        with self._lock:
            self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}")
            kind = None
            if self.every and len(self.requests) % self.every == 0:
                kind = self.kinds[len(self.failed) % len(self.kinds)]
                self.failed.append(f"{kind} {self.requests[-1]}")
        if kind is None:
            return self.app(environ, start)
        if kind in ("busy", "lost"):
            if kind == "lost":
                Response.from_app(self.app, environ)
            return Response("busy", 503)(environ, start)
        if kind == "cut":
            whole = Response.from_app(self.app, environ)
            body = whole.get_data()
            start(f"{whole.status}", list(whole.headers))
            return self._cut(environ, body[: len(body) // 2])
        _hang_up(environ)
        return []

    @staticmethod
    def _cut(environ: dict[str, Any], part: bytes) -> Iterator[bytes]:
        yield part
        _hang_up(environ)


def _hang_up(environ: dict[str, Any]) -> None:
    with suppress(OSError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


class _Quiet(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        pass


@contextmanager
def serving(app: App, handler: type[WSGIRequestHandler] = _Quiet) -> Iterator[int]:
    """The port of a server that runs `app` while the block does."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def s3_app() -> App:
    """moto's S3."""
    from moto.server import DomainDispatcherApplication, create_backend_app

    app: App = DomainDispatcherApplication(create_backend_app)
    return app


def folder_app(folder: Path, ranges: bool) -> App:
    """Plain HTTP of the files of a folder; without `ranges`, only whole files are served, their size untold."""

    def app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        request = Request(environ)
        path = folder / unquote(request.path).strip("/")
        if path.is_dir():
            links = "".join(f'<a href="{entry.name}">{entry.name}</a>' for entry in path.iterdir())
            return Response(links, mimetype="text/html")(environ, start)
        if not path.is_file():
            return Response("no such file", 404)(environ, start)
        data = path.read_bytes()
        if not ranges:
            pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]
            return Response(iter(pieces), mimetype="application/octet-stream")(environ, start)
        response = Response(data, mimetype="application/octet-stream")
        return response.make_conditional(request, accept_ranges=True, complete_length=len(data))(environ, start)

    return app


class WebHdfs:
    """A stand-in for the WebHDFS REST interface of a name node and its data node, with files kept in memory.

    Written from the interface's description, for no HDFS can be had here: it shows that our side keeps to that
    description, not that a cluster does. RENAME on an existing file answers 200 and false, as HDFS does, unless the
    option OVERWRITE is given; `overwrites` False makes it ignore the option, as HttpFS does.
    """

    def __init__(self, overwrites: bool = True) -> None:
        self.files: dict[str, bytes] = {}
        self.folders = {"/"}
        self.overwrites = overwrites
        self._lock = threading.RLock()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        request = Request(environ)
        path = unquote(request.path).removeprefix("/webhdfs/v1").rstrip("/") or "/"
        values = dict(parse_qsl(environ["QUERY_STRING"]))
        with self._lock:
            answer = getattr(self, values["op"].lower())(request, path, values)
        response: Response = answer
        return response(environ, start)

    def getfilestatus(self, _: Request, path: str, __: dict[str, str]) -> Response:
        return self._missing(path) if not self._is(path) else _json(FileStatus=self._status(path, ""))

    def liststatus(self, _: Request, path: str, __: dict[str, str]) -> Response:
        if path in self.files:
            return _json(FileStatuses={"FileStatus": [self._status(path, "")]})
        if path not in self.folders:
            return self._missing(path)
        inside = [p for p in (*self.files, *self.folders) if p != "/" and (p.rpartition("/")[0] or "/") == path]
        return _json(FileStatuses={"FileStatus": [self._status(p, p.rpartition("/")[2]) for p in sorted(inside)]})

    def open(self, request: Request, path: str, values: dict[str, str]) -> Response:
        if path not in self.files:
            return self._missing(path)
        if "datanode" not in values:
            return _redirect(request, path, values)
        start = int(values.get("offset", 0))
        end = start + int(values.get("length", len(self.files[path])))
        return Response(self.files[path][start:end], mimetype="application/octet-stream")

    def create(self, request: Request, path: str, values: dict[str, str]) -> Response:
        if "datanode" not in values:
            return _redirect(request, path, values)
        if path in self.files and values.get("overwrite") != "true":
            return _refused("FileAlreadyExistsException", path, 403)
        self._make(path.rpartition("/")[0])
        self.files[path] = request.get_data()
        return Response(status=201)

    def append(self, request: Request, path: str, values: dict[str, str]) -> Response:
        if path not in self.files:
            return self._missing(path)
        if "datanode" not in values:
            return _redirect(request, path, values)
        self.files[path] += request.get_data()
        return Response(status=200)

    def mkdirs(self, _: Request, path: str, __: dict[str, str]) -> Response:
        self._make(path)
        return _json(boolean=True)

    def delete(self, _: Request, path: str, values: dict[str, str]) -> Response:
        inside = [p for p in (*self.files, *self.folders) if p.startswith(path + "/")]
        if inside and values.get("recursive") != "true":
            return _refused("PathIsNotEmptyDirectoryException", path, 403)
        found = self._is(path)
        for name in (path, *inside):
            self.files.pop(name, None)
            self.folders.discard(name)
        return _json(boolean=found)

    def rename(self, _: Request, path: str, values: dict[str, str]) -> Response:
        target, option = values["destination"], values.get("renameoptions") if self.overwrites else None
        if option is not None and path not in self.files:
            return self._missing(path)
        done = path in self.files and (option == "OVERWRITE" or not self._is(target))
        if done and target.rpartition("/")[0] in self.folders:
            self.files[target] = self.files.pop(path)
        return Response(status=200) if option is not None else _json(boolean=done)

    def _is(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def _make(self, folder: str) -> None:
        while folder:
            self.folders.add(folder)
            folder = folder.rpartition("/")[0]

    def _status(self, path: str, suffix: str) -> dict[str, Any]:
        kind = "FILE" if path in self.files else "DIRECTORY"
        return {
            "pathSuffix": suffix,
            "type": kind,
            "length": len(self.files.get(path, b"")),
            "modificationTime": hash(self.files.get(path)) % 10**12,
        }

    @staticmethod
    def _missing(path: str) -> Response:
        return _refused("FileNotFoundException", f"File does not exist: {path}", 404)


def _json(**values: Any) -> Response:
    return Response(json.dumps(values), mimetype="application/json")


def _refused(kind: str, message: str, status: int) -> Response:
    told = {"RemoteException": {"exception": kind, "javaClassName": f"java.io.{kind}", "message": message}}
    return Response(json.dumps(told), status, mimetype="application/json")


def _redirect(request: Request, path: str, values: dict[str, str]) -> Response:
    query = urlencode({**values, "datanode": "true"})
    place = f"{request.host_url}webhdfs/v1{quote(path)}?{query}"
    return Response(status=307, headers={"Location": place})
