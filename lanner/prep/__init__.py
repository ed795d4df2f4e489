"""Raw logs to datasets: sources, transforms, vocabularies and the engine that runs them."""

from lanner.prep.prepare import prepare

__all__ = ["prepare"]
