"""Dynamic tables: rows by any int64 key, made when the key first occurs, evicted when memory is short.

`DynamicTable` (in `table`) is the store; `DynamicConfig` its settings, which table configurations carry.
"""

from lanner.embedding.dynamic.config import DynamicConfig

__all__ = ["DynamicConfig"]
