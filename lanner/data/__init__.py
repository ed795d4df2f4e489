"""Reading datasets: `Dataset`, the batch `Loader`, and synthetic logs."""

from lanner.data.batch import Bags, Batch
from lanner.data.dataset import Dataset
from lanner.data.loader import Loader
from lanner.data.split import Split

__all__ = ["Bags", "Batch", "Dataset", "Loader", "Split"]
