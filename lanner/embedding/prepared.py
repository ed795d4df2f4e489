"""`Prepared`: bags for which all is done that does not depend on the values of rows."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lanner.data.batch import Bags

if TYPE_CHECKING:
    from lanner.embedding.backed.holds import Hold
    from lanner.embedding.sharding.crossing import Trip


@dataclass(frozen=True, slots=True)
class Prepared(Bags):
    """Checked bags on the device of the tables; with several processes, their ids are on the way to the rows.

    Rows of tables on disk are on the way to memory, held in `holds` by table (or in those of the trip, once it has
    ended). With `strays`, it is known already that ids are out of range.
    """

    training: bool = False
    trip: Future[Trip] | None = None
    holds: Mapping[str, Hold] = field(default_factory=dict)
    strays: bool = False

    @property
    def held(self) -> Mapping[str, Hold]:
        """The holds of this process's tables; waits for the trip."""
        return self.holds if self.trip is None else self.trip.result().holds
