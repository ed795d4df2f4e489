"""What happens to bad rows: strict runs stop at the first file that has any, tolerant ones keep them aside."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import IO

from lanner.errors import DataError
from lanner.prep.sources import BadRow

LISTED = 20
"""Most bad rows listed in an error."""

ALIKE = 3
"""More rows than this with the same message share one line, which names so many of them."""

HEADER = b"file\tline\treason\tmessage\ttext\n"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class StrictRows:
    """Collects the bad rows of one file; the row after the last one listed stops the reading."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._seen: list[BadRow] = []

    def __call__(self, row: BadRow) -> None:
        self._seen.append(row)
        if len(self._seen) > LISTED:
            self.stop()

    def stop(self, hint: str = "tolerant mode drops such rows and keeps them in rejects.tsv") -> None:
        """Raise DataError listing the rows seen; returns when there was none."""
        if not self._seen:
            return
        more = len(self._seen) > LISTED
        lines = [f"  {line}" for line in _listing(self._seen[:LISTED])]
        count = f"at least {len(self._seen)}" if more else str(len(self._seen))
        noun = "row" if len(self._seen) == 1 else "rows"
        end = ["  ..."] if more else []
        raise DataError("\n".join([f"{self._file}: {count} bad {noun} ({hint})", *lines, *end]))


def _listing(rows: list[BadRow]) -> list[str]:
    """A line for each row, in order; rows with a frequent message are on the line of the first of them."""
    alike: dict[str, list[int]] = {}
    for row in rows:
        alike.setdefault(row.message, []).append(row.line)
    lines = []
    for row in rows:
        numbers = alike[row.message]
        if len(numbers) <= ALIKE:
            lines.append(f"line {row.line}: {row.message}")
        elif row.line == numbers[0]:
            first = ", ".join(map(str, numbers[:ALIKE]))
            lines.append(f"lines {first} and {len(numbers) - ALIKE} more: {row.message}")
    return lines


class TolerantRows:
    """Writes the bad rows of one file to a rejects file and counts them by reason; a context manager."""

    def __init__(self, file: str, path: Path) -> None:
        self._file, self._path = file, path
        self._sink: IO[bytes] | None = None
        self.first: BadRow | None = None
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> TolerantRows:
        return self

    def __exit__(self, *_: object) -> None:
        if self._sink:
            self._sink.close()

    def __call__(self, row: BadRow) -> None:
        if self._sink is None:
            self._sink = self._path.open("wb")
        self.first = self.first or row
        self.counts[row.reason] += 1
        cells = (self._file, str(row.line), row.reason, row.message, row.text)
        self._sink.write("\t".join(cell.translate(_ESCAPES) for cell in cells).encode(errors="replace") + b"\n")
