"""Embedding tables: looked up together, updated in backward by a fused optimizer, stored in files."""

from lanner.embedding.backed import Backing
from lanner.embedding.collection import EmbeddingCollection
from lanner.embedding.dynamic import DynamicConfig
from lanner.embedding.initializers import Constant, Initializer, Normal, Uniform
from lanner.embedding.optimizers import FTRL, SGD, Adagrad, Adam, AdamW, Optimizer, RMSProp, RowWiseAdagrad
from lanner.embedding.settings import EmbeddingSettings, TableSettings
from lanner.embedding.tables import FeatureConfig, TableConfig

__all__ = [
    "FTRL",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Backing",
    "Constant",
    "DynamicConfig",
    "EmbeddingCollection",
    "EmbeddingSettings",
    "FeatureConfig",
    "Initializer",
    "Normal",
    "Optimizer",
    "RMSProp",
    "RowWiseAdagrad",
    "TableConfig",
    "TableSettings",
    "Uniform",
]
