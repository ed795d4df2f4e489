"""What a client is told when its request fails."""

from __future__ import annotations

from lanner.errors import LannerError

REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
"""Values of the label `reason` of the failure counter, as Triton names them."""


class RequestError(LannerError):
    """A request that gets an error answer instead of scores.

    `status` is the HTTP status: 400 (the request is wrong), 404 (no such model), 499 (cancelled by the client),
    500 (the model failed), 501 (not offered) or 503 (try again later). `reason` is one of `REASONS`.
    """

    def __init__(self, message: str, status: int = 400, reason: str = "OTHER") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def message(self) -> str:
        return str(self)


class StoppingError(RequestError):
    """The version that was asked is being unloaded."""

    def __init__(self, name: str) -> None:
        super().__init__(f"model '{name}' is being unloaded", 503, "REJECTED")


def overloaded() -> RequestError:
    return RequestError("Exceeds maximum queue size", 503, "REJECTED")


def expired() -> RequestError:
    return RequestError("Request timeout expired", 503, "REJECTED")


def cancelled() -> RequestError:
    return RequestError("request was cancelled by its client", 499, "CANCELED")


def unsupported(what: str) -> RequestError:
    return RequestError(f"{what} is not supported by this server", 501)


def as_request_error(error: Exception) -> RequestError:
    """`error`, or the answer to a request that met a fault of the server's own."""
    if isinstance(error, RequestError):
        return error
    return RequestError(f"internal error: {type(error).__name__}: {error}", 500)
