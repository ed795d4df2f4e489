"""Serving: model repositories over HTTP and gRPC in the Triton / KServe v2 protocol."""

from lanner.serve.failure import RequestError

__all__ = ["RequestError"]
