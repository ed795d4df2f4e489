"""Placing tables on devices before anything is allocated: memory and time that a plan takes, and the best plan found.

workload   what the tables are and what a step asks of them
devices    processes, memory and speeds, given or measured
memory     bytes of a plan by device        costs    seconds of a step by device
search     the choice of placements         estimates  the result: printed, stored, or refused
"""

from lanner.embedding.planner.devices import Devices
from lanner.embedding.planner.estimates import Estimate, estimate, plan, require_fits
from lanner.embedding.planner.workload import Dense, Load, Workload, hotness_of

__all__ = ["Dense", "Devices", "Estimate", "Load", "Workload", "estimate", "hotness_of", "plan", "require_fits"]
