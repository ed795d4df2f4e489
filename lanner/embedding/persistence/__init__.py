"""Tables in files, in the layout HugeCTR and its parameter server also read.

    <path>/<table>/key            int64 little-endian, rising: the keys (row numbers, for a static table)
    <path>/<table>/emb_vector     float32 little-endian [rows, dim], in the order of the keys
    <path>/<table>/state.<name>   each optimizer state, float32 or int32 [rows, dim] or [rows], in the same order
    <path>/<table>/table.json     written last: rows, dim, optimizer, steps, sizes and checksums

A dynamic table also has `meta.used` and `meta.count` (int64 [rows]: step of the last use, number of uses), and, of the
keys that wait for admission, `waiting.key` and `waiting.count` (int64) and `waiting.recent` (uint8).

A delta holds the rows that changed since another dump, its parent, and the keys that left: `deleted` (int64).

`path` is any URI. A table without `table.json` is unfinished and refused. Blocks are streamed; no process holds a
table twice, and none holds the whole of one that is spread over several. The files say nothing about how it was.
"""

from lanner.embedding.persistence.chain import Origin
from lanner.embedding.persistence.copying import copy_weights
from lanner.embedding.persistence.description import Description
from lanner.embedding.persistence.description import read as describe
from lanner.embedding.persistence.dumping import dump, dump_delta
from lanner.embedding.persistence.layout import DESCRIPTION, FOLDER, directory_of, needs_checksum, weights_form
from lanner.embedding.persistence.loading import load, load_delta

__all__ = [
    "DESCRIPTION",
    "FOLDER",
    "Description",
    "Origin",
    "copy_weights",
    "describe",
    "directory_of",
    "dump",
    "dump_delta",
    "load",
    "load_delta",
    "needs_checksum",
    "weights_form",
]
