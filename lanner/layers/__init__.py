"""Small `nn.Module`s that models are made of; none knows which model uses it."""

from lanner.layers.interaction import CatInteraction, DotInteraction
from lanner.layers.mlp import MLP, BatchNorm

__all__ = ["MLP", "BatchNorm", "CatInteraction", "DotInteraction"]
