"""The training loop: epochs, evaluations, checkpoints, and how it ends."""

from __future__ import annotations

import math
import tempfile
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import torch

from lanner.data import Batch, Loader, Split
from lanner.progress import Bar, progress
from lanner.train import metrics
from lanner.train.dynamic import summary
from lanner.train.memory import keep_freed_memory
from lanner.train.records import Records
from lanner.train.run_directory import RunDirectory
from lanner.train.state import set_random_state
from lanner.train.stop import StopRequest, stop_on_signal
from lanner.train.verdict import Verdict, judge

if TYPE_CHECKING:
    from lanner.train.trainer import Trainer

_RECENT_ROWS = 1 << 20


class Fitting:
    """One call of `Trainer.fit`."""

    def __init__(self, trainer: Trainer, train: Split, valid: Split | None) -> None:
        self.trainer, self.settings = trainer, trainer.settings
        self.loader = Loader(train, self.settings.batch_size, shuffle=True, seed=self.settings.seed)
        self.valid = valid if valid is not None and valid.rows else None
        self.valid_metrics: dict[str, Any] | None = None
        self.valid_verdict: Verdict | None = None
        self.run_directory = trainer.run
        self.recent = metrics.Collector(limit=_RECENT_ROWS)  # predictions made in passing, of this epoch
        self._resumed_at: int | None = None  # where in the epoch of `recent` this run was taken up
        self.diverged = False
        self.seconds, self.timed_rows, self._steps_here = 0.0, 0, 0
        self._clock = 0.0

    def run(self) -> dict[str, Any]:
        """Train to the end; see `Trainer.fit`."""
        trainer = self.trainer
        if trainer.random is None:
            if trainer.progress.step:
                trainer.progress = trainer.progress.again()
            torch.manual_seed(self.settings.seed)
        else:
            set_random_state(trainer.random)
            trainer.random = None
        keep_freed_memory()
        with ExitStack() as stack:
            if self.run_directory is None and self.settings.early_stopping and self.valid:
                self.run_directory = RunDirectory(stack.enter_context(tempfile.TemporaryDirectory(prefix="lanner-")))
            self.records = Records(trainer.run, trainer.progress.step)
            stack.callback(self.records.close)
            stop = stack.enter_context(stop_on_signal())
            self._train(stop)
            if not self.diverged and self.trainer.run is not None:
                self._keep(best=False)
            if stop.requested:
                raise KeyboardInterrupt
            self._return_to_best()
        trainer.model.eval()
        return self._result()

    def _train(self, stop: StopRequest) -> None:
        place = self.trainer.progress
        last = place.first_step + self._total_steps()
        self.schedule = self.settings.schedule.over(place.first_step, last)
        left = last - place.step
        with progress("training", max(left, 0), self.trainer.quiet) as bar:
            while not (self.trainer.finished or stop.requested or self.diverged):
                self._epoch(stop, bar)

    def _epoch(self, stop: StopRequest, bar: Bar) -> None:
        place = self.trainer.progress
        self._resumed_at = place.step if place.batch else None
        if place.batch == 0:
            self.recent = metrics.Collector(limit=_RECENT_ROWS)
        self.trainer.model.train()
        self._clock = time.perf_counter()
        with closing(self.loader.epoch(place.epoch, place.batch)) as batches:
            for batch in batches:
                self._train_on(batch, bar)
                if self.diverged:
                    return
                if place.batch == len(self.loader):
                    place.end_epoch()
                    self.trainer.model.embedding.end_pass()
                self._after_step()
                self._clock = time.perf_counter()
                if stop.requested or place.batch == 0 or self.trainer.finished:
                    return

    def _train_on(self, batch: Batch, bar: Bar) -> None:
        place = self.trainer.progress
        factor = self.schedule.factor(place.step)
        loss, logits = self.trainer.step(batch, factor)
        if not math.isfinite(loss):
            self.diverged = True
            return
        place.add_loss(loss, len(batch))
        weight = None if batch.weight is None else batch.weight.numpy()
        self.recent.add(logits.float().numpy(), batch.labels.numpy(), weight)
        self._steps_here += 1
        if self._steps_here > 1:  # the first step compiles kernels
            self.seconds += time.perf_counter() - self._clock
            self.timed_rows += len(batch)
        bar.advance(note=f"loss {loss:.4f}  {self.speed or 0:,.0f} samples/s")
        if place.step % self.settings.log_every == 0:
            values = {"epoch": place.epoch, "loss": loss, "rate_factor": factor, "samples_per_second": self.speed}
            self.records.add("train", place.step, values)
            self.records.flush()

    def _after_step(self) -> None:
        """Evaluate and write checkpoints where they are due."""
        place, settings = self.trainer.progress, self.settings
        due = place.step % settings.evaluate_every == 0 if settings.evaluate_every else place.batch == 0
        if due or self.trainer.finished:
            self._note_tables()
        best = self.valid is not None and (due or self.trainer.finished) and self._evaluate()
        every = settings.checkpoint_every
        if best or (every and place.step % every == 0):
            self._keep(best)

    def _note_tables(self) -> None:
        if found := summary(self.trainer.model.embedding):
            self.records.add("tables", self.trainer.progress.step, {"tables": found})

    def _evaluate(self) -> bool:
        """Evaluate on the validation rows; True when this is the best step so far."""
        assert self.valid is not None
        place = self.trainer.progress
        found, verdict = self.trainer.assess(self.valid)
        self.trainer.model.train()
        self.records.add("valid", place.step, found)
        self.records.flush()
        best = place.judge(self.settings.metric, found.get(self.settings.metric))
        if best or self.valid_metrics is None or place.best_step is None:
            self.valid_metrics, self.valid_verdict = found, verdict
        return best

    def _keep(self, best: bool) -> None:
        """Write a checkpoint of this step, where checkpoints are kept."""
        if self.run_directory is not None:
            self.records.flush()
            step = self.trainer.progress.step
            self.run_directory.save(step, self.trainer.save, best, self.settings.keep_checkpoints)

    def _return_to_best(self) -> None:
        place = self.trainer.progress
        best = self.run_directory.best() if self.run_directory and place.best_step is not None else None
        if best is not None and (place.best_step != place.step or self.diverged):
            self.trainer.load_weights(best)
        if self.valid is not None and self.valid_metrics is None:
            self.valid_metrics, self.valid_verdict = self.trainer.assess(self.valid)

    def _total_steps(self) -> int:
        steps = self.settings.epochs * len(self.loader)
        return min(steps, self.settings.max_steps or steps)

    @property
    def speed(self) -> float | None:
        """Training samples a second in steps after the first, evaluations and checkpoints left out."""
        return self.timed_rows / self.seconds if self.seconds else None

    def _result(self) -> dict[str, Any]:
        place = self.trainer.progress
        logits, labels, weight = self.recent.arrays()
        predictions = torch.sigmoid(torch.from_numpy(logits)).numpy()
        names = [label.name for label in self.trainer.model.schema.labels]
        train = metrics.evaluate(labels, predictions, names, weight)
        train["epoch_loss"] = place.epoch_loss  # survives a resume; all else is of the rows seen here
        if self._resumed_at is not None:
            train["rows_reason"] = f"only the rows since step {self._resumed_at}, where this run was resumed"
        verdict = "diverged" if self.diverged else self.valid_verdict or judge(predictions, labels)
        tables = summary(self.trainer.model.embedding)
        return {
            "train": {**train, "steps": place.step, "epochs": place.epoch, "best_step": place.best_step},
            "valid": self.valid_metrics,
            "samples_per_second": self.speed,
            **({"dynamic_tables": tables} if tables else {}),
            "verdict": verdict,
            "healthy": verdict == "ok",
        }
