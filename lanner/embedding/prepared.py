"""`Prepared`: bags for which all is done that does not depend on the values of rows."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanner.data.batch import Bags

if TYPE_CHECKING:
    from lanner.embedding.sharding.crossing import Trip


@dataclass(frozen=True)
class Prepared:
    """Checked bags; with tables on several processes, their ids are on the way to the rows."""

    bags: Bags
    training: bool
    trip: Future[Trip] | None = None
