"""Training: `Trainer`, recipes, schedules, metrics and checkpoints."""

from lanner.train.recipe import Recipe
from lanner.train.schedule import Schedule
from lanner.train.trainer import Trainer

__all__ = ["Recipe", "Schedule", "Trainer"]
