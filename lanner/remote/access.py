"""File systems by URI, with time limits and retries where their clients have none, and errors that name the URI."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import fsspec
from fsspec.core import url_to_fs

from lanner.errors import ConfigError, LannerError, MissingExtraError, RemoteError

T = TypeVar("T")

WAITS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds before each new try of what failed for a reason that may pass."""
CONNECT_SECONDS, READ_SECONDS = 10, 60
_ONE_TRY = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory", "webhdfs", "webHDFS")
"""Protocols whose requests are tried again below this module, by s3fs, gcsfs, adlfs and `_bounded`."""
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "http": "http", "https": "http", "webhdfs": "webhdfs"}
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_FINAL = (
    FileNotFoundError,
    PermissionError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    ValueError,
)
_OURS = (LannerError, MemoryError, TypeError, AttributeError, AssertionError, LookupError)


def protocol(uri: str) -> str:
    return uri.partition("://")[0]


def file_system(uri: str, **options: Any) -> tuple[Any, str]:
    """The file system of `uri` and the path on it; its requests end in bounded time.

    Raises ConfigError for an unknown protocol, MissingExtraError where its package is not installed.
    """
    kind = protocol(uri)
    if kind in ("http", "https") and "client_kwargs" not in fsspec.config.conf.get(kind, {}):
        options["client_kwargs"] = {"timeout": _http_timeout(uri)}
    try:
        fs, path = url_to_fs(uri, **options)
    except ImportError as error:
        if kind in _EXTRAS:
            raise MissingExtraError(uri, _EXTRAS[kind]) from error
        raise ConfigError(f"{uri}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{uri}: {error}") from error
    if kind.lower() == "webhdfs":
        _bound(fs)
    return fs, path


def _http_timeout(uri: str) -> Any:
    try:
        from aiohttp import ClientTimeout
    except ImportError as error:
        raise MissingExtraError(uri, "http") from error
    return ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)


def _bound(fs: Any) -> None:
    """Give the `requests` session of fsspec's WebHDFS client, which waits for ever and tries once, our patience."""
    if not isinstance(fs.session.request, _PatientRequest):
        fs.session.request = _PatientRequest(fs.session.request)


class _PatientRequest:
    """`requests.Session.request` with time limits, repeated while it fails for a reason that may pass.

    An append (POST) is not repeated here: it may have been carried out; see `lanner.remote.writing`.
    """

    def __init__(self, request: Callable[..., Any]) -> None:
        self._request = request

    def __call__(self, method: str, url: str, **options: Any) -> Any:
        limits = {"timeout": (CONNECT_SECONDS, READ_SECONDS)}
        for wait in () if method.upper() == "POST" else WAITS:
            with suppress(OSError):  # as which requests' own errors count
                answer = self._request(method, url, **{**limits, **options})
                if answer.status_code not in _PASSING:
                    return answer
            _sleep(wait)
        return self._request(method, url, **{**limits, **options})


def _sleep(seconds: float) -> None:
    """Up to `seconds`, so that many callers do not come back at once."""
    time.sleep(seconds * random.uniform(0.5, 1))


def attempt(uri: str, call: Callable[[], T], waits: tuple[float, ...] | None = None) -> T:
    """`call()`, tried again after each of `waits` seconds while it fails for a reason that may pass.

    By default WAITS, or none for protocols whose requests are tried again anyway. Raises errors that name `uri`:
    FileNotFoundError, PermissionError, ConfigError for what cannot be done there, RemoteError for the rest.
    """
    if waits is None:
        waits = () if protocol(uri) in _ONE_TRY else WAITS
    for wait in (*waits, None):
        try:
            return call()
        except Exception as error:
            reason = _reason(error)
            if isinstance(reason, _OURS):
                raise
            if wait is None or _final(reason):
                raise _named(uri, reason) from error
            _sleep(wait)
    raise AssertionError("unreachable")


def _reason(error: BaseException) -> BaseException:
    """fsspec's HTTP client calls everything "not found": what it really was."""
    cause = error.__cause__
    hidden = isinstance(error, FileNotFoundError) and cause is not None and "aiohttp" in type(cause).__module__
    return cause if hidden and cause is not None and _status(cause) not in (404, 410) else error


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error of aiohttp or requests carries."""
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _final(error: BaseException) -> bool:
    """Whether it is no use to try again."""
    status = _status(error)
    if status is not None:
        return status not in _PASSING
    return isinstance(error, _FINAL) or type(error).__name__.endswith("CredentialsError")


def _named(uri: str, error: BaseException) -> Exception:
    """The error to show: one line with the URI."""
    text = " ".join(str(error).split())
    if isinstance(error, NotImplementedError):
        return ConfigError(f"{uri}: files cannot be written or removed on {protocol(uri)}://")
    if isinstance(error, FileNotFoundError) or _status(error) in (404, 410):
        return FileNotFoundError(errno.ENOENT, _said(error, text, errno.ENOENT), uri)
    if isinstance(error, PermissionError):
        return PermissionError(errno.EACCES, _said(error, text, errno.EACCES), uri)
    return RemoteError(f"{uri}: {text or type(error).__name__}")


def _said(error: BaseException, text: str, code: int) -> str:
    """What a server said, or the usual words where the text is no more than a path."""
    own = getattr(error, "strerror", None) or text
    return own if " " in own else os.strerror(code)
