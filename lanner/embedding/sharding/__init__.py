"""Tables spread over processes: where each part lies, and how ids, rows and gradients travel between them."""

from lanner.embedding.sharding.placement import Placement, Plan

__all__ = ["Placement", "Plan"]
