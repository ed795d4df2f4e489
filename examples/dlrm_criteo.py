"""The job of `recipes/dlrm_criteo.yaml` in Python: raw Criteo logs to a model in a repository.

python examples/dlrm_criteo.py 'logs/day_*.gz' OUT

The same data and seed give the same weights and metrics as `lanner prep` and `lanner train` with the recipe.
"""

from __future__ import annotations

import sys

import lanner as ln


def main(logs: str, out: str) -> None:
    data = ln.prep(logs, source="criteo", out=f"{out}/dataset", min_count=15, overwrite=True)
    model = ln.models.DLRM(data.schema, dim=64, bottom=[512, 256, 64], top=[512, 256, 1])
    trainer = ln.Trainer(
        model,
        batch_size=2048,
        embedding_optimizer=ln.RowWiseAdagrad(0.02),
        dense_optimizer=ln.Adam(1e-3),
        schedule=ln.Schedule(decay_fraction=0.2),
        out=f"{out}/run",
    )
    trainer.fit(data.train, valid=data.valid)
    print(trainer.evaluate(data.test))
    print(ln.export(trainer, f"{out}/repository", name="ctr"))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
