"""Tables larger than memory: rows live in a file, those in use in memory."""

from lanner.embedding.backed.config import Backing
from lanner.embedding.backed.table import BackedTable, allocate

__all__ = ["BackedTable", "Backing", "allocate"]
