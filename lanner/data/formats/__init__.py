"""Rows in the formats of others: opened, checked, described and converted, block after block."""

from lanner.data.formats.base import Block, Format, Ids, Sink, Source
from lanner.data.formats.convert import Conversion, convert
from lanner.data.formats.describe import Description, describe
from lanner.data.formats.registry import FORMATS, open_source

__all__ = [
    "FORMATS",
    "Block",
    "Conversion",
    "Description",
    "Format",
    "Ids",
    "Sink",
    "Source",
    "convert",
    "describe",
    "open_source",
]
