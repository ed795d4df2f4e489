"""How a model is trained: the keywords of `Trainer`, which are the keys of a recipe."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, PlainSerializer

from lanner.embedding.optimizers import SGD, Adagrad, Adam, RowWiseAdagrad, describe, parse
from lanner.embedding.settings import OptimizerSetting
from lanner.train.schedule import Schedule


def _optimizer(value: Any) -> Any:
    return parse(value) if isinstance(value, dict) else value


DenseOptimizer = Annotated[
    InstanceOf[SGD] | InstanceOf[Adagrad] | InstanceOf[Adam], BeforeValidator(_optimizer), PlainSerializer(describe)
]


class Settings(BaseModel):
    """See `lanner.train.Trainer` for what each means."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    batch_size: int = Field(default=4096, ge=1)
    embedding_optimizer: OptimizerSetting = RowWiseAdagrad(0.02)
    dense_optimizer: DenseOptimizer = Adam(1e-3)
    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    schedule: Schedule = Schedule()
    weight_decay: float = Field(default=0.0, ge=0)
    embedding_l2: float = Field(default=0.0, ge=0)
    metric: Literal["auc", "log_loss", "normalized_entropy"] = "auc"
    early_stopping: int | None = Field(default=None, ge=1)
    evaluate_every: int | None = Field(default=None, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)
    keep_checkpoints: int = Field(default=2, ge=1)
    log_every: int = Field(default=100, ge=1)
