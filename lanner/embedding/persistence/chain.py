"""`Origin`: which dumps the rows of a table come from, and whether a delta follows them."""

from __future__ import annotations

from dataclasses import dataclass

from lanner.embedding.persistence.description import Description
from lanner.errors import DataError


@dataclass(frozen=True)
class Origin:
    """The dumps that were loaded into a table.

    Attributes:
        chain: identities of the full dump and of the deltas on top of it, in order.
        steps: of the collection afterwards.
        optimizer_state: whether that was loaded too.
    """

    chain: tuple[str, ...]
    steps: int
    optimizer_state: bool


def follows(where: str, origin: Origin | None, delta: Description, steps: int) -> bool:
    """Whether `delta` is the next one for a table; False where the table has it already.

    Raises DataError, beginning with `where`, for all others; `steps` is where the collection is now.
    """
    if delta.kind != "delta":
        raise DataError(f"{where}: this is a full dump, expected a delta")
    number = delta.sequence
    if origin is None:
        raise DataError(f"{where}: this is delta {number} of a full dump; load that one first")
    base, loaded = origin.chain[0], len(origin.chain) - 1
    if delta.base != base:
        raise DataError(f"{where}: this delta belongs to the full dump {delta.base}, the table was loaded from {base}")
    if delta.identity in origin.chain:
        return False
    if number > loaded + 1:
        missing = f"delta {loaded + 1} is" if number == loaded + 2 else f"deltas {loaded + 1} to {number - 1} are"
        raise DataError(f"{where}: this is delta {number}, the table is at delta {loaded}: {missing} missing")
    if number <= loaded or delta.parent != origin.chain[-1]:
        raise DataError(f"{where}: this is delta {number} of another chain than the {loaded} loaded so far")
    if steps != origin.steps:
        raise DataError(
            f"{where}: the table was trained since it was loaded (from step {origin.steps} to {steps}); a delta "
            "goes on top of what was loaded only"
        )
    return True
