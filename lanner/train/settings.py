"""How a model is trained: the keywords of `Trainer`, which are the keys of a recipe."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, PlainSerializer, ValidationError

from lanner.embedding.optimizers import SGD, Adagrad, Adam, RowWiseAdagrad, describe, parse
from lanner.errors import ConfigError
from lanner.train.schedule import Schedule


def _optimizer(value: Any) -> Any:
    return parse(value) if isinstance(value, dict) else value


Optimizer = Annotated[
    InstanceOf[SGD] | InstanceOf[Adagrad] | InstanceOf[RowWiseAdagrad] | InstanceOf[Adam],
    BeforeValidator(_optimizer),
    PlainSerializer(describe),
]
DenseOptimizer = Annotated[
    InstanceOf[SGD] | InstanceOf[Adagrad] | InstanceOf[Adam], BeforeValidator(_optimizer), PlainSerializer(describe)
]


class Settings(BaseModel):
    """See `lanner.train.Trainer` for what each means."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    batch_size: int = Field(default=4096, ge=1)
    embedding_optimizer: Optimizer = RowWiseAdagrad(0.02)
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


def validated(kind: type[BaseModel], values: dict[str, Any], source: str) -> Any:
    """`kind` from plain values; raises ConfigError naming `source`, each key at fault and the value seen."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: " + "; ".join(_problem(p, kind) for p in error.errors())) from error


def _problem(problem: Any, kind: type[BaseModel]) -> str:
    place = ".".join(str(step) for step in problem["loc"] if not str(step).startswith("is-instance"))
    if problem["type"] == "extra_forbidden":
        fields = f"; the keys here are {', '.join(kind.model_fields)}" if len(problem["loc"]) == 1 else ""
        return f"{place}: no such key{fields}"
    return f"{place}: {problem['msg']} (got {problem['input']!r})"
