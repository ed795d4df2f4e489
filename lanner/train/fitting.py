"""The training loop: epochs, evaluations, checkpoints, and how it ends."""

from __future__ import annotations

import math
import tempfile
import time
from collections import deque
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lanner.data import Batch, Loader, Split
from lanner.progress import Bar, progress
from lanner.train import metrics
from lanner.train.ahead import prepared
from lanner.train.memory import keep_freed_memory
from lanner.train.processes import Array
from lanner.train.records import Records
from lanner.train.run_directory import RunDirectory
from lanner.train.state import own_random_state, seed_random, set_random_state
from lanner.train.stop import StopRequest, stop_on_signal
from lanner.train.tables import Numbers, summary
from lanner.train.verdict import Verdict, judge

if TYPE_CHECKING:
    from lanner.train.trainer import Trainer

_RECENT_ROWS = 1 << 20


class Fitting:
    """One call of `Trainer.fit`."""

    def __init__(self, trainer: Trainer, train: Split, valid: Split | None) -> None:
        self.trainer, self.settings = trainer, trainer.settings
        self.processes = trainer.processes
        self.loader = Loader(
            train,
            self.settings.batch_size,
            shuffle=True,
            seed=self.settings.seed,
            rank=self.processes.rank,
            world_size=self.processes.world_size,
            window=self.settings.shuffle_window,
        )
        self.valid = valid if valid is not None and valid.rows else None
        self.valid_metrics: dict[str, Any] | None = None
        self.valid_verdict: Verdict | None = None
        self.run_directory = trainer.run
        self.recent = self._collector()  # predictions made in passing, of this epoch
        self._resumed_at: int | None = None  # where in the epoch of `recent` this run was taken up
        self.diverged = self.stopping = False
        self._trips: deque[Future[Any]] = deque(maxlen=trainer.model.embedding.ahead + 1)  # the last ones begun
        self.seconds, self.timed_rows, self._steps_here = 0.0, 0, 0
        self._clock = 0.0

    def run(self) -> dict[str, Any]:
        """Train to the end; see `Trainer.fit`."""
        trainer = self.trainer
        self._begin()
        keep_freed_memory()
        with ExitStack() as stack:
            if self.run_directory is None and self.settings.early_stopping and self.valid:
                self.run_directory = self._temporary(stack)
            self.records = Records(trainer.run if self.processes.is_first else None, trainer.progress.step)
            stack.callback(self.records.close)
            stop = stack.enter_context(stop_on_signal())
            self._train(stop)
            if not self.diverged and self.trainer.run is not None:
                self._keep(best=False)
            wait(self._trips)
            if self._must_stop(stop):
                raise KeyboardInterrupt
            self._return_to_best()
        trainer.model.eval()
        tables = summary(trainer.model.embedding)
        return self.processes.told(partial(self._result, tables, self.processes.rows(*self.recent.arrays())))

    def _begin(self) -> None:
        """Set the place in training, and the random generators, to where this call begins."""
        trainer, rank, seed = self.trainer, self.processes.rank, self.settings.seed
        if trainer.random is None:
            if trainer.progress.step:
                trainer.progress = trainer.progress.again()
            seed_random(seed, rank)
            return
        if (own := own_random_state(trainer.random, self.processes)) is None:
            seed_random(seed, rank, trainer.progress.step)
        else:
            set_random_state(own, trainer.device)
        trainer.random = None

    def _temporary(self, stack: ExitStack) -> RunDirectory:
        """A directory for the time of this call."""

        def make() -> str:
            return stack.enter_context(tempfile.TemporaryDirectory(prefix="lanner-"))

        return RunDirectory(self.processes.told(make))

    def _must_stop(self, stop: StopRequest) -> bool:
        """Whether a signal reached any of the processes: they stop together."""
        self.stopping = self.stopping or self.processes.any(stop.requested)
        return self.stopping

    def _train(self, stop: StopRequest) -> None:
        place = self.trainer.progress
        last = place.first_step + self._total_steps()
        self.schedule = self.settings.schedule.over(place.first_step, last)
        left = last - place.step
        with progress("training", max(left, 0), self.trainer.quiet) as bar:
            while not (self.trainer.finished or self.stopping or self.diverged):
                self._epoch(stop, bar)

    def _epoch(self, stop: StopRequest, bar: Bar) -> None:
        place = self.trainer.progress
        self._resumed_at = place.step if place.batch else None
        if place.batch == 0:
            self.recent = self._collector()
        self.trainer.model.train()
        self._clock = time.perf_counter()
        coming = self.loader.epoch(place.epoch, place.batch)
        with closing(prepared(coming, self.trainer.model.embedding, self._trips)) as batches:
            for batch in batches:
                self._train_on(batch, bar)
                if self.diverged:
                    return
                if place.batch == len(self.loader):
                    place.end_epoch()
                    self.trainer.model.embedding.end_pass()
                self._after_step()
                self._clock = time.perf_counter()
                if self._must_stop(stop) or place.batch == 0 or self.trainer.finished:
                    return

    def _train_on(self, batch: Batch, bar: Bar) -> None:
        place = self.trainer.progress
        factor = self.schedule.factor(place.step)
        loss, rows, logits = self.trainer.step(batch, factor)
        if not math.isfinite(loss):
            self.diverged = True
            return
        place.add_loss(loss, rows)
        weight = None if batch.weight is None else batch.weight.numpy()
        self.recent.add(logits.float().cpu().numpy(), batch.labels.numpy(), weight)
        self._steps_here += 1
        if self._steps_here > 1:  # the first step compiles kernels
            self.seconds += time.perf_counter() - self._clock
            self.timed_rows += rows
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
            self.records.add("tables", self.trainer.progress.step, found)

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
        run, step = self.run_directory, self.trainer.progress.step
        if run is None:
            return
        self.records.flush()
        if self.processes.told(lambda: step not in run.steps()):
            self.trainer.save(run.checkpoint(step))
        self.processes.first(lambda: run.keep(step, best, self.settings.keep_checkpoints))

    def _return_to_best(self) -> None:
        place, run = self.trainer.progress, self.run_directory
        best = self.processes.told(run.best) if run and place.best_step is not None else None
        if best is not None and (place.best_step != place.step or self.diverged):
            self.trainer.load_weights(best)
        if self.valid is not None and self.valid_metrics is None:
            self.valid_metrics, self.valid_verdict = self.trainer.assess(self.valid)

    def _collector(self) -> metrics.Collector:
        return metrics.Collector(limit=-(-_RECENT_ROWS // self.settings.batch_size))

    def _total_steps(self) -> int:
        steps = self.settings.epochs * len(self.loader)
        return min(steps, self.settings.max_steps or steps)

    @property
    def speed(self) -> float | None:
        """Training samples a second in steps after the first, evaluations and checkpoints left out."""
        return self.timed_rows / self.seconds if self.seconds else None

    def _result(self, tables: dict[str, Numbers], recent: tuple[Array | None, ...]) -> dict[str, Any]:
        """The outcome, from the summary of tables and the recent logits, labels and weights of all processes."""
        place, (logits, labels, weight) = self.trainer.progress, recent
        assert logits is not None and labels is not None
        predictions = torch.sigmoid(torch.from_numpy(logits)).numpy()
        names = [label.name for label in self.trainer.model.schema.labels]
        train = metrics.evaluate(labels, predictions, names, weight)
        train["epoch_loss"] = place.epoch_loss  # survives a resume; all else is of the rows seen here
        if self._resumed_at is not None:
            train["rows_reason"] = f"only the rows since step {self._resumed_at}, where this run was resumed"
        verdict = "diverged" if self.diverged else self.valid_verdict or judge(predictions, labels)
        return {
            "train": {**train, "steps": place.step, "epochs": place.epoch, "best_step": place.best_step},
            "valid": self.valid_metrics,
            "samples_per_second": self.speed,
            **tables,
            "verdict": verdict,
            "healthy": verdict == "ok",
        }
