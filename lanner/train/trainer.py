"""`Trainer`: trains a ranking model on a split and evaluates it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanner import storage
from lanner.data import Split
from lanner.embedding.device import device_of
from lanner.embedding.optimizers import Adam, Optimizer, RowWiseAdagrad
from lanner.embedding.settings import EmbeddingSettings
from lanner.errors import ConfigError
from lanner.models import RankingModel, name_of
from lanner.train import checkpoint, optimizers
from lanner.train.fitting import Fitting
from lanner.train.inference import assess, predict, require_scorable
from lanner.train.precision import build as build_precision
from lanner.train.processes import Processes
from lanner.train.run_directory import RunDirectory
from lanner.train.schedule import Schedule
from lanner.train.settings import DenseOptimizer, Settings
from lanner.train.state import Progress, random_state, random_states
from lanner.train.step import TrainingStep
from lanner.train.verdict import Verdict
from lanner.validation import differences, validated

_EVALUATION_BATCH = 4096
_FIXED = ("batch_size", "seed", "shuffle_window", "embedding", "embedding_optimizer", "dense_optimizer", "precision")


class Trainer:
    """Trains `model`: each batch makes one fused update of the embeddings and one optimizer step of the dense side.

    The same data, model and settings give the same result, whether they come from a recipe or from here: the order
    of rows is a function of `seed` and the epoch, and `fit` seeds PyTorch's global generator (dropout) with `seed`.

    Where the model's tables are spread over the processes of `torch.distributed`, these train together: each has its
    share of every batch of `batch_size` rows, and all must make the same calls in the same order. Losses, weights and
    metrics are those of one process; the first one writes and shows.

    Args:
        model: A ranking model, such as `lanner.models.DLRM`.
        batch_size: Rows a step; the last batch of an epoch is as short as it comes out.
        embedding_optimizer: SGD, Adagrad, RowWiseAdagrad, RMSProp, Adam, AdamW or FTRL of `lanner.embedding`.
        dense_optimizer: Any of these but RowWiseAdagrad.
        epochs: Passes over the training rows.
        max_steps: Stop after this many steps even within an epoch.
        seed: Of the order of rows and of dropout. The model's initial weights have a seed of their own.
        shuffle_window: Rows mixed at a time, for training rows larger than memory; None mixes all.
        device: Where the model and its tables are moved to and trained: "cpu", "cuda" (the current one) or "cuda:N".
        precision: "fp32", "bf16" or "fp16" (with dynamic loss scaling) for the dense forward and backward.
        schedule: Factor on every learning rate by step.
        embedding_l2: L2 penalty on the pooled embeddings of a batch.
        metric: What chooses the best step on the validation rows and drives early stopping.
        early_stopping: Stop after this many evaluations in a row without a new best.
        evaluate_every: Steps between evaluations on the validation rows; None evaluates after each epoch.
        checkpoint_every: Steps between checkpoints; None writes them at the end and at each new best. Needs `out`.
        keep_checkpoints: How many of the newest checkpoints stay (the best one stays too).
        log_every: Steps between records of the training loss.
        out: Run directory for checkpoints, metrics and TensorBoard events; None keeps nothing.
        quiet: Show no progress bar.
    """

    def __init__(
        self,
        model: RankingModel,
        *,
        batch_size: int = 4096,
        embedding_optimizer: Optimizer = RowWiseAdagrad(0.02),
        dense_optimizer: DenseOptimizer = Adam(1e-3),
        epochs: int = 1,
        max_steps: int | None = None,
        seed: int = 0,
        shuffle_window: int | None = None,
        device: str = "cpu",
        precision: str = "fp32",
        schedule: Schedule | dict[str, Any] = Schedule(),
        embedding_l2: float = 0.0,
        metric: str = "auc",
        early_stopping: int | None = None,
        evaluate_every: int | None = None,
        checkpoint_every: int | None = None,
        keep_checkpoints: int = 2,
        log_every: int = 100,
        out: str | os.PathLike[str] | None = None,
        quiet: bool = False,
    ) -> None:
        """Raises ConfigError naming a setting that cannot be used."""
        given = {name: value for name, value in locals().items() if name in Settings.model_fields}
        self.settings: Settings = validated(Settings, given, "Trainer")
        _check(model)
        self.processes = Processes(model.embedding.wire)
        self.device = device_of(self.settings.device)
        self.model = model.to(self.device)
        self.run = None if out is None else RunDirectory(out)
        self.quiet = quiet or not self.processes.is_first
        self.progress = Progress()
        self.random: dict[str, Any] | None = None
        self._dataset: str | None = None
        model.embedding.set_optimizer(self.settings.embedding_optimizer)
        parameters = {n: p for n, p in model.named_parameters() if not n.startswith("embedding.")}
        self._names = list(parameters)
        self.optimizer = optimizers.build(self.settings.dense_optimizer, parameters.values())
        place = self.device.type
        self.precision = build_precision(self.settings.precision, model.embedding, self.processes, place)
        self.step = TrainingStep(model, self.optimizer, self.precision, self.processes, self.settings.embedding_l2)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        quiet: bool = False,
        device: str = "cpu",
        embedding: Mapping[str, Any] | None = None,
    ) -> Trainer:
        """A trainer with model, weights and settings of a checkpoint, or of a run directory's best (else last) one.

        Ready for `predict`, `evaluate` and `lanner.export`; `fit` trains on from these weights with fresh optimizer
        state, while `resume` goes on exactly where training stopped. Writes nothing (`out` is None). Checkpoints do
        not depend on the device they come from, nor on where tables live: `embedding` says that, as for
        `lanner.train.checkpoint.load_model`. Raises DataError when there is no finished checkpoint.

        Example: ``ln.Trainer.load("runs/first").predict(ln.Dataset.open("new/").test)``
        """
        path = checkpoint.resolve(path)
        stored = checkpoint.read_recipe(path)
        settings = {name: value for name, value in stored.items() if name in Settings.model_fields}
        trainer = cls(checkpoint.load_model(path, embedding), **settings, quiet=quiet, device=device)
        trainer._dataset = path  # a checkpoint holds its dataset's vocabularies
        return trainer

    def fit(self, train: Split, valid: Split | None = None) -> dict[str, Any]:
        """Train, and return metrics, speed and verdict.

        The "train" metrics are of predictions made in passing in the last epoch (of its last million or so rows), of
        those since the resume where it was taken up in its midst; "epoch_loss" is the mean loss of the whole epoch.
        With validation rows the model ends with the weights of the best step where those were kept (in `out`, or
        because `early_stopping` is set). Called again it trains `epochs` more; after `resume` it goes on. Ctrl-C and
        SIGTERM finish the step, write a checkpoint into `out` and raise KeyboardInterrupt. A loss that is not finite
        ends training; the verdict then is "diverged". Raises SchemaError when a split has another schema.
        """
        for split in (train, valid):
            if split is not None:
                self.model.schema.require_same(split.schema, "the model", split.name)
        self._dataset = train.name.rpartition("/")[0] or None
        return Fitting(self, train, valid).run()

    @property
    def finished(self) -> bool:
        """True when `epochs`, `max_steps` or `early_stopping` leaves a resumed `fit` nothing to do."""
        place, settings = self.progress, self.settings
        enough = settings.max_steps is not None and place.step - place.first_step >= settings.max_steps
        stale = settings.early_stopping is not None and place.stale >= settings.early_stopping
        return enough or stale or place.epoch - place.first_epoch >= settings.epochs

    def predict(self, split: Split, batch_size: int | None = None) -> NDArray[np.float32]:
        """Probabilities in row order, float32: [N] for one label, [N, L] for several.

        The split may have no labels (see `lanner.prep.prepare` with ``labelled=False``). Of several processes only the
        first gets them; the others get none.
        """
        require_scorable(self.model.schema, split)
        predictions, _, _ = predict(self.model, split, self._batch(batch_size), self.quiet).arrays()
        return predictions[:, 0] if predictions.shape[1] == 1 else predictions

    def evaluate(self, split: Split, batch_size: int | None = None) -> dict[str, Any]:
        """Metrics over all rows of `split`, exact; see `lanner.train.metrics.summary`."""
        return self.assess(split, batch_size)[0]

    def assess(self, split: Split, batch_size: int | None = None) -> tuple[dict[str, Any], Verdict]:
        """`evaluate`, and the verdict on the predictions."""
        return assess(self.model, split, self._batch(batch_size), self.quiet)[:2]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint directory: weights, optimizer state, settings and the place in training."""
        trainer = {
            "progress": self.progress.to_json(),
            "precision": self.precision.state(),
            "random": random_states(random_state(self.device), self.processes),
        }
        state = optimizers.state_tensors(self.optimizer, self._names)
        contents = checkpoint.Contents(
            optimizer=state,
            trainer={"step": self.progress.step, **trainer, "dense_optimizer": sorted(state)},
            recipe=self.recipe(),
            dataset=self._dataset,
        )
        checkpoint.save(path, self.model, contents)

    def resume(self, path: str | os.PathLike[str], optimizer_state: bool = True) -> None:
        """Take up the training of a checkpoint (or of a run directory's last) exactly where it was written.

        `fit` then goes on from there. With `optimizer_state=False` the optimizers of tables and dense weights start
        afresh. Raises DataError when there is no finished checkpoint, it is of another model, or some of its state is
        missing, ConfigError naming a setting that must not change on the way.
        """
        path = self.processes.told(partial(checkpoint.latest, path))
        _, schema = checkpoint.open_checkpoint(path)
        self.model.schema.require_same(schema, "the model", str(path))
        stored, ours = _with_defaults(checkpoint.read_recipe(path), path), self.recipe()
        for key in _FIXED:
            for place, now, then in differences(ours[key], stored[key], key):
                raise ConfigError(f"{place}: {now!r}, but {path} was trained with {then!r}")
        checkpoint.load_weights(path, self.model, optimizer_state)
        state = checkpoint.read_trainer(path)
        if optimizer_state:
            file = storage.join(path, "dense_optimizer.safetensors")
            entries = state.get("dense_optimizer", ())
            optimizers.load_state(self.optimizer, self._names, checkpoint.read_tensors(file), entries)
        self.progress = Progress(**state["progress"])
        self.precision.load(state["precision"])
        self.random = state["random"]

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Load only the weights of a checkpoint; the place in training stays."""
        checkpoint.open_checkpoint(path)
        checkpoint.load_weights(path, self.model)

    def recipe(self) -> dict[str, Any]:
        """The settings, the model and its tables, as a recipe's values; the device is a choice of the run."""
        model = {"name": name_of(self.model), **self.model.hyperparameters}
        embedding = self.model.embedding_settings.lasting()
        return {"model": model, "embedding": embedding, **self.settings.model_dump(mode="json", exclude={"device"})}

    def _batch(self, given: int | None) -> int:
        return given or max(self.settings.batch_size, _EVALUATION_BATCH)


def _with_defaults(stored: dict[str, Any], path: str) -> dict[str, Any]:
    """What `Trainer.recipe` would have said of a checkpoint's tables and settings; an earlier version said less."""
    given = {name: value for name, value in stored.items() if name in Settings.model_fields}
    settings: Settings = validated(Settings, given, f"{path}/recipe.yaml")
    return {"embedding": EmbeddingSettings.of(stored.get("embedding")).lasting(), **settings.model_dump(mode="json")}


def _check(model: RankingModel) -> None:
    missing = [name for name in ("schema", "embedding", "head") if not hasattr(model, name)]
    if missing:
        raise ConfigError(
            f"{type(model).__name__} has no {missing[0]!r}: a ranking model is a module with `schema` (a Schema), "
            "`embedding` (an EmbeddingCollection) and `head(dense, embedded)`; see lanner.models.RankingModel"
        )
    if not model.schema.labels:
        raise ConfigError("the schema has no labels, so there is nothing to train on")
    for label in model.schema.labels:
        if label.task != "binary":
            raise ConfigError(f"label {label.name!r}: task is {label.task!r}; only 'binary' can be trained")
