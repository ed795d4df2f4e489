"""The same rules for delimited text, one character at a time in plain Python."""

from __future__ import annotations


def records(text: str, delimiter: str = ",", strip: bool = False) -> list[tuple[int, list[str], bool]]:
    """(line number from 0, fields, whether its quotes are well placed) of each record of `text`, which ends in LF."""
    found, at, line = [], 0, 0
    while at < len(text):
        fields: list[str] = []
        first_line, clean, empty, ended = line, True, True, False
        while not ended:
            at = _skip_blanks(text, at, delimiter) if strip else at
            quoted = text[at] == '"'
            if quoted:
                value, at = _quoted(text, at + 1)
                line += value.count("\n")
            stop = min(place for mark in (delimiter, "\n") if (place := text.find(mark, at)) >= 0)
            rest, ended = text[at:stop], text[stop] == "\n"
            rest = rest.removesuffix("\r") if ended else rest
            rest = rest.rstrip(" \t") if strip else rest
            clean &= not (quoted and rest)
            empty &= not fields and not quoted and not rest
            fields.append(value if quoted else rest)
            at = stop + 1
        line += 1
        if not empty:
            found.append((first_line, fields, clean))
    return found


def _skip_blanks(text: str, at: int, delimiter: str) -> int:
    while text[at] in " \t" and text[at] != delimiter:
        at += 1
    return at


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The value of the quoted field whose text begins at `at`, and the place after its closing quote."""
    value = ""
    while text[at] != '"' or text[at + 1] == '"':
        value += text[at]
        at += 2 if text[at] == '"' else 1
    return value, at + 1
