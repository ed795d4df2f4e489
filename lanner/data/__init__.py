"""Reading datasets: `Dataset`, the batch `Loader`, and synthetic logs."""

from lanner.data.batch import Bags, Batch

__all__ = ["Bags", "Batch"]
