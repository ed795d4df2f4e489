"""Amounts of bytes and rates as people write them: "8 GiB", "20GB/s", "300 G"."""

from __future__ import annotations

import math
import re

from lanner.errors import ConfigError

_FORM = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([KMGTP]?)(i?)(B?)(?:/s)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_NAMES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def parse_amount(text: str | float, what: str) -> float:
    """The number that `text` says: KB, MB, GB... are powers of 1000, KiB, MiB, GiB... powers of 1024.

    "B" and "/s" may be left out, and a bare number stands for itself. Raises ConfigError naming `what` and the text
    for anything else, and for what is not above 0.
    """
    found = _FORM.fullmatch(str(text))
    try:
        number = float(found[1]) if found else 0.0
    except ValueError:
        number = 0.0
    if found is None or not 0 < number < math.inf:
        raise ConfigError(f"{what}: {text!r}; expected an amount above 0, such as 8GiB or 20GB/s")
    return number * float((1024 if found[3] else 1000) ** _POWERS[found[2].upper()])


def bytes_text(count: float) -> str:
    """Bytes for people, in binary units: "512 B", "6.2 GiB"."""
    size, power = float(count), 0
    while abs(size) >= 1024 and power < len(_NAMES) - 1:
        size, power = size / 1024, power + 1
    return f"{size:.0f} {_NAMES[power]}" if power == 0 or size >= 1000 else f"{size:.3g} {_NAMES[power]}"
