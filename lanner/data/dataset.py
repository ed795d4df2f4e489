"""`Dataset`: a finished directory of encoded rows with its schema, on any file system."""

from __future__ import annotations

import os

from lanner import manifest as manifests
from lanner import storage
from lanner.data.cache import download
from lanner.data.parquet import arrow_copy
from lanner.data.part import Part, open_part
from lanner.data.split import Split
from lanner.errors import DataError, SchemaError
from lanner.manifest import FileEntry, Manifest
from lanner.schema import Schema

SPLITS = ("train", "valid", "test")
VERIFY_UP_TO = 4 << 30
"""Splits of at most this many bytes are read against their checksums on first use (a second or two a GiB)."""


class Dataset:
    """A dataset directory: `schema`, `manifest`, `path`, and the splits `train`, `valid` and `test`.

    A split is opened on first use and kept. Local Arrow files are memory-mapped; remote files are first downloaded
    to the cache folder and Parquet files are converted there.
    """

    def __init__(self, path: str, schema: Schema, manifest: Manifest, verify: bool | None = None) -> None:
        self.path = path
        self.schema = schema
        self.manifest = manifest
        self._verify = verify
        self._splits: dict[str, Split | None] = {}

    @staticmethod
    def open(uri: str | os.PathLike[str], verify: bool | None = None) -> Dataset:
        """Open the dataset at `uri`.

        `verify` says whether a split's checksums are compared on first use; by default they are for splits up to
        VERIFY_UP_TO bytes. Sizes always are, here. Raises DataError when the directory is unfinished, lacks a file or
        has one of the wrong size, SchemaError when its schema is not the one its manifest was made with.
        """
        path = os.fspath(uri).rstrip("/")
        manifest = manifests.read(path, "dataset")
        manifests.verify(path, manifest)
        source = storage.join(path, "schema.yaml")
        schema = Schema.load(source)
        if schema.fingerprint() != manifest.fingerprint:
            raise SchemaError(
                f"{source}: fingerprint {schema.fingerprint()}, but the manifest says {manifest.fingerprint}: "
                "the schema was changed after the dataset was made"
            )
        return Dataset(path, schema, manifest, verify)

    def __repr__(self) -> str:
        return f"Dataset({self.path!r})"

    @property
    def train(self) -> Split | None:
        """The rows to learn from."""
        return self.split("train")

    @property
    def valid(self) -> Split | None:
        """The rows that choose the best step."""
        return self.split("valid")

    @property
    def test(self) -> Split | None:
        """The rows that judge the result."""
        return self.split("test")

    def split(self, name: str) -> Split | None:
        """The split in the folder `name`; None when the dataset has no such files.

        Raises DataError naming the file that is damaged or does not hold what the schema says.
        """
        if name not in self._splits:
            self._splits[name] = self._open_split(name)
        return self._splits[name]

    def _open_split(self, name: str) -> Split | None:
        files = {file: entry for file, entry in sorted(self.manifest.files.items()) if file.startswith(f"{name}/")}
        if not files:
            return None
        verify = self._verify
        if verify is None:
            verify = sum(entry.size for entry in files.values()) <= VERIFY_UP_TO
        parts = [self._open_part(file, entry, verify) for file, entry in files.items()]
        return Split(storage.join(self.path, name), self.schema, parts)

    def _open_part(self, file: str, entry: FileEntry, verify: bool) -> Part:
        uri = storage.join(self.path, file)
        if not storage.is_local(uri):
            path = download(uri, entry.checksum)
        else:
            path = str(storage.local_path(uri))
            if verify and (digest := storage.checksum(path)) != entry.checksum:
                raise DataError(f"{uri}: checksum {digest}, the manifest says {entry.checksum}: the file was damaged")
        if file.endswith(".parquet"):
            path = arrow_copy(path, uri, entry.checksum, self.schema)
        part = open_part(path, uri, self.schema)
        if entry.rows is not None and (rows := int(part.rows.sum())) != entry.rows:
            raise DataError(f"{uri}: {rows} rows, the manifest says {entry.rows}")
        return part


def open_split(uri: str | os.PathLike[str]) -> Split:
    """The split whose directory is `uri`, inside its dataset's directory.

    Raises DataError like `Dataset.open`, and when `uri` is no split's directory but a dataset's, or none at all.
    """
    if storage.exists(storage.join(uri, manifests.NAME)):
        manifests.read(uri, "dataset")  # anything else that has a manifest is told apart
        raise DataError(f"{uri} is a dataset; name a split, e.g. {storage.join(uri, 'test')}")
    directory, _, name = os.fspath(uri).rstrip("/").rpartition("/")
    if not storage.is_directory(uri) and not storage.exists(storage.join(directory or ".", manifests.NAME)):
        raise DataError(f"{uri}: no such directory")
    split = Dataset.open(directory or ".").split(name)
    if split is None:
        raise DataError(f"{uri}: the dataset {directory or '.'} has no files in {name!r}")
    return split
