"""The loader alone: rows and bytes a second from disk to batches of tensors, against the usual PyTorch ways.

    python benchmarks/loader.py                    # 2 M rows of 13 numbers and 26 ids, batch 8,192
    python benchmarks/loader.py --rows 20000000    # 2.3 GB

All sides read the same Arrow file, which lies in the page cache, and make the same tensors: numbers, ids, labels.
In order: `Loader`, and pyarrow's own batches turned into tensors. Shuffled anew every epoch, over all rows: `Loader`,
and `torch.utils.data.DataLoader` over the memory-mapped columns, which fetches a batch by its row numbers in this
process or in two. `share` is the bytes of the batches, read once and written once, by the time, as a share of the copy
bandwidth measured in the same run; shuffled rows are read in whole cache lines, of which they use a part.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from _rig import copy_bandwidth
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler
from training import DENSE, TABLES, write_data

from lanner.data import Loader

Tensors = tuple[Tensor, Tensor, Tensor]


class Rows(Dataset[Tensors]):
    """The columns of the file, and batches of them by row numbers."""

    def __init__(self, path: Path) -> None:
        self.path, self.columns = path, columns_of(path)

    def __len__(self) -> int:
        return len(self.columns[2])

    def __getitems__(self, rows: list[int]) -> Tensors:
        chosen = np.asarray(rows)
        dense, ids, labels = self.columns
        return tensors(dense[chosen], np.stack([column[chosen] for column in ids]), labels[chosen])


def columns_of(path: Path) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Numbers, ids by column, labels: views of the memory-mapped file."""
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
    dense = batch.column("dense").flatten().to_numpy().reshape(-1, DENSE)
    return dense, [batch.column(f"C{k}").to_numpy() for k in range(TABLES)], batch.column("label").to_numpy()


def tensors(dense: np.ndarray, ids: np.ndarray, labels: np.ndarray) -> Tensors:
    return torch.from_numpy(dense), torch.from_numpy(ids.astype(np.int32)), torch.from_numpy(labels.astype(np.float32))


def slices(path: Path, batch: int) -> Iterator[Tensors]:
    """Batches in the order of the file, as pyarrow cuts them."""
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    for part in table.to_batches(max_chunksize=batch):
        ids = np.stack([part.column(f"C{k}").to_numpy() for k in range(TABLES)])
        dense = part.column("dense").flatten().to_numpy().reshape(-1, DENSE).copy()
        yield tensors(dense, ids, part.column("label").to_numpy())


def data_loader(path: Path, batch: int, workers: int) -> DataLoader[Tensors]:
    rows = Rows(path)
    sampler = BatchSampler(RandomSampler(rows), batch, drop_last=False)
    return DataLoader(rows, batch_sampler=sampler, num_workers=workers, collate_fn=_as_made)


def _as_made(batch: Tensors) -> Tensors:
    return batch


def seconds(batches: Callable[[], Iterable[object]]) -> float:
    """Of one epoch."""
    start = time.perf_counter()
    for _ in batches():
        pass
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=8_192)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lanner-benchmark-") as folder:
        split = write_data(Path(folder), given.rows)[0].train
        assert split is not None
        path = Path(folder) / "data" / "train" / "part-00000.arrow"
        ordered = Loader(split, given.batch, workers=2, prefetch=4)
        shuffled = Loader(split, given.batch, shuffle=True, workers=2, prefetch=4)
        sides: dict[str, dict[str, Callable[[], Iterable[object]]]] = {
            "in order": {"Loader": lambda: ordered.epoch(0), "pyarrow": lambda: slices(path, given.batch)},
            "shuffled": {
                "Loader": lambda: shuffled.epoch(0),
                "DataLoader": lambda: data_loader(path, given.batch, 0),
                "DataLoader, 2 processes": lambda: data_loader(path, given.batch, 2),
            },
        }
        bandwidth, size = copy_bandwidth(), 4 * (DENSE + TABLES + 1)
        ordered.read(0, 0)  # compiles the kernels
        document: dict[str, object] = {**vars(given), "bytes a row": size, "copy bytes a second": bandwidth}
        for order, ways in sides.items():
            best = dict.fromkeys(ways, float("inf"))
            for _ in range(given.rounds):
                best |= {name: min(best[name], seconds(ways[name])) for name in ways}
            for name, took in best.items():
                rate, share = given.rows / took, 2 * size * given.rows / took / bandwidth
                line = f"{order}  {name:24s} {rate / 1e6:6.2f} M rows/s  {rate * size / 1e9:5.2f} GB/s"
                print(f"{line}  share {share:4.0%}  {took / best['Loader']:5.1f}x", file=sys.stderr)
            document[order] = {name: given.rows / took for name, took in best.items()}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
