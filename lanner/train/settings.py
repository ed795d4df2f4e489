"""How a model is trained: the keywords of `Trainer`, which are the keys of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lanner.embedding.optimizers import Adam, RowWiseAdagrad
from lanner.embedding.settings import OptimizerSetting
from lanner.train.optimizers import require_dense
from lanner.train.schedule import Schedule

DenseOptimizer = Annotated[OptimizerSetting, AfterValidator(require_dense)]


class Settings(BaseModel):
    """See `lanner.train.Trainer` for what each means."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    batch_size: int = Field(default=4096, ge=1)
    embedding_optimizer: OptimizerSetting = RowWiseAdagrad(0.02)
    dense_optimizer: DenseOptimizer = Adam(1e-3)
    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    shuffle_window: int | None = Field(default=None, ge=1)
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    schedule: Schedule = Schedule()
    embedding_l2: float = Field(default=0.0, ge=0)
    metric: Literal["auc", "log_loss", "normalized_entropy"] = "auc"
    early_stopping: int | None = Field(default=None, ge=1)
    evaluate_every: int | None = Field(default=None, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)
    keep_checkpoints: int = Field(default=2, ge=1)
    log_every: int = Field(default=100, ge=1)
