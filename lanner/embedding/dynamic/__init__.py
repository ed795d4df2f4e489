"""Dynamic tables: rows by any int64 key, made when the key first occurs, evicted when memory is short."""

from lanner.embedding.dynamic.config import DynamicConfig

__all__ = ["DynamicConfig"]
