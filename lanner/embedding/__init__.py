"""Embedding tables: looked up together, updated in backward by a fused optimizer, stored in files."""

from lanner.embedding.backed import Backing
from lanner.embedding.collection import EmbeddingCollection
from lanner.embedding.dynamic import DynamicConfig
from lanner.embedding.initializers import Constant, Initializer, Normal, Uniform
from lanner.embedding.optimizers import SGD, Adagrad, Adam, Optimizer, RowWiseAdagrad
from lanner.embedding.settings import EmbeddingSettings, TableSettings
from lanner.embedding.tables import FeatureConfig, TableConfig

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Backing",
    "Constant",
    "DynamicConfig",
    "EmbeddingCollection",
    "EmbeddingSettings",
    "FeatureConfig",
    "Initializer",
    "Normal",
    "Optimizer",
    "RowWiseAdagrad",
    "TableConfig",
    "TableSettings",
    "Uniform",
]
