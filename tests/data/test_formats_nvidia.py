"""NVIDIA's split binary against files laid out here from the description of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from dataset_files import MakeDataset
from format_rows import assert_same, bag_dataset, files_of, one_hot_dataset

import lanner as ln
from lanner import Dataset
from lanner.data.formats import convert, open_source
from lanner.data.formats.nvidia import id_type
from lanner.errors import ConfigError, DataError, IdRangeError
from lanner.schema import Schema
from lanner.train.recipe import load
from lanner.train.run import train

CARDINALITIES = (126, 127, 32_766, 32_767)
TYPES = ("int8", "int16", "int16", "int32")
"""The smallest type whose maximum is strictly greater than the cardinality."""


def golden(root: Path, rows: int = 70) -> dict[str, Any]:
    """Writes train, test and a validation folder that the spec leaves out; returns train's columns."""
    columns: dict[str, Any] = {}
    for seed, folder in enumerate(("validation", "test", "train")):
        random = np.random.default_rng(seed)
        (root / folder).mkdir(parents=True)
        columns = {"label": random.integers(0, 2, rows).astype(np.bool_)}
        columns["numerical"] = random.normal(size=(rows, 2)).astype("<f2")
        for at, (size, kind) in enumerate(zip(CARDINALITIES, TYPES, strict=True)):
            columns[f"cat_{at}"] = random.integers(0, size, rows).astype(f"<{np.dtype(kind).str[1:]}")
        for name, values in columns.items():
            (root / folder / f"{name}.bin").write_bytes(values.tobytes())
    cats = [f"cat_{at}.bin" for at in range(4)]
    features: dict[str, Any] = {
        "label": {"dtype": "bool"},
        "num_0": {"dtype": "float16"},
        "num_1": {"dtype": "float16"},
    }
    for name, kind, size in zip(cats, TYPES, CARDINALITIES, strict=True):
        features[name] = {"dtype": kind, "cardinality": size}
    chunks = [(["label"], "label.bin"), (["num_0", "num_1"], "numerical.bin"), *(([name], name) for name in cats)]
    sources = {
        folder: [{"type": "split_binary", "features": f, "files": [f"{folder}/{file}"]} for f, file in chunks]
        for folder in ("train", "test")
    }
    channels = {"categorical": cats, "numerical": ["num_0", "num_1"], "label": ["label"]}
    spec = {"channel_spec": channels, "feature_spec": features, "metadata": {}, "source_spec": sources}
    (root / "feature_spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return columns


def change_spec(root: Path, change: Any) -> None:
    path = root / "feature_spec.yaml"
    spec = yaml.safe_load(path.read_text())
    change(spec)
    path.write_text(yaml.safe_dump(spec, sort_keys=False))


def test_files_made_elsewhere_are_read_and_come_back_byte_for_byte(tmp_path: Path) -> None:
    columns = golden(tmp_path / "theirs")
    done = convert(tmp_path / "theirs", tmp_path / "ours", "lanner", quiet=True)
    assert done.read_as == "nvidia-binary"
    assert done.rows == {"train": 70, "valid": 70, "test": 70}
    batch = Dataset.open(tmp_path / "ours").split("train").slice(0, 70)  # type: ignore[union-attr]
    assert np.array_equal(batch.dense.numpy(), columns["numerical"].astype(np.float32))
    assert np.array_equal(batch.labels.numpy()[:, 0], columns["label"])
    ids = batch.bags.values.numpy().reshape(4, 70)
    assert all(np.array_equal(ids[at], columns[f"cat_{at}"]) for at in range(4))
    convert(tmp_path / "ours", tmp_path / "back", "nvidia-binary", quiet=True)
    carried = ("format.json", "schema.yaml", "feature_spec.yaml")
    assert files_of(tmp_path / "back", *carried) == files_of(tmp_path / "theirs", *carried)
    ours, theirs = (yaml.safe_load((tmp_path / n / "feature_spec.yaml").read_text()) for n in ("back", "theirs"))
    assert ours == theirs


def test_real_rows_survive_with_schema_and_vocabularies(criteo: Path, tmp_path: Path) -> None:
    convert(criteo, tmp_path / "nvidia", "nvidia-binary", quiet=True)
    convert(tmp_path / "nvidia", tmp_path / "back", "lanner", write={"dense_type": "float16"}, quiet=True)
    assert_same(criteo, tmp_path / "back")
    assert files_of(criteo, "manifest.json") == files_of(tmp_path / "back", "manifest.json")


def test_files_have_the_sizes_of_the_reference(criteo: Path, tmp_path: Path) -> None:
    convert(criteo, tmp_path / "nvidia", "nvidia-binary", quiet=True)
    rows = len(Dataset.open(criteo).split("train"))  # type: ignore[arg-type]
    folder = tmp_path / "nvidia" / "train"
    assert (folder / "label.bin").stat().st_size == rows
    assert (folder / "numerical.bin").stat().st_size == 26 * rows
    schema = Schema.load(criteo / "schema.yaml")
    for at, table in enumerate(schema.tables):
        assert isinstance(table.rows, int)
        assert (folder / f"cat_{at}.bin").stat().st_size == rows * id_type(table.rows).itemsize


def test_multi_hot_features_carry_their_hotness(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = bag_dataset(make_dataset, {"train": 50})
    halves = tmp_path / "halves"
    convert(dataset, halves, "lanner", write={"dense_type": "float16"}, quiet=True)
    convert(halves, tmp_path / "nvidia", "nvidia-binary", quiet=True)
    (tmp_path / "nvidia" / "schema.yaml").unlink()  # the spec alone must do
    convert(tmp_path / "nvidia", tmp_path / "back", "lanner", quiet=True)
    assert_same(halves, tmp_path / "back")


def test_it_can_be_trained_on(tmp_path: Path) -> None:
    golden(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "data", "lanner", quiet=True)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: {name: dlrm, dim: 4, bottom: [8, 4], top: [8, 1]}\nbatch_size: 32\n")
    result = train(load(recipe, [f"data={tmp_path / 'data'}", f"out={tmp_path / 'run'}"]))
    assert np.isfinite(result["test"]["log_loss"])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "train/cat_3.bin").open("ab").write(b"x"), r"281 bytes are no whole number"),
        (lambda root: (root / "train/cat_1.bin").open("ab").write(b"xx"), "cat_1.bin: 71 rows, but .*label.bin has 70"),
        (lambda root: (root / "test/cat_0.bin").unlink(), r"test/cat_0.bin: no such file"),
        (lambda root: change_spec(root, lambda s: s["feature_spec"]["cat_0.bin"].pop("cardinality")), "ity None"),
        (lambda root: change_spec(root, lambda s: s["feature_spec"]["cat_3.bin"].update(dtype="int8")), "too small"),
        (lambda root: change_spec(root, lambda s: s["channel_spec"].update(label=[])), "0 labels"),
        (lambda root: change_spec(root, lambda s: s["source_spec"]["train"].pop()), "no chunk holds 'cat_3.bin'"),
        (lambda root: change_spec(root, lambda s: s["source_spec"]["train"][0].update(type="csv")), "split_binary"),
        (lambda root: change_spec(root, lambda s: s["channel_spec"]["numerical"].reverse()), "order of their channel"),
        (lambda root: change_spec(root, lambda s: s["channel_spec"]["categorical"].append("cat_0.bin")), "2 channels"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused_by_name(tmp_path: Path, damage: Any, message: str) -> None:
    golden(tmp_path / "theirs")
    damage(tmp_path / "theirs")
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "theirs")


def test_an_id_outside_its_table_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    golden(tmp_path / "theirs")
    values = np.fromfile(tmp_path / "theirs/test/cat_2.bin", "<i2")
    values[41] = 32_766
    (tmp_path / "theirs/test/cat_2.bin").write_bytes(values.tobytes())
    message = r"test/cat_2.bin: row 41, column 'cat_2.bin': id 32766 lies outside table 'cat_2.bin' \(0..32765\)"
    with pytest.raises(IdRangeError, match=message):
        convert(tmp_path / "theirs", tmp_path / "ours", "lanner", quiet=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs"]


def test_what_the_format_cannot_hold_is_refused_first(make_dataset: MakeDataset, tmp_path: Path) -> None:
    ragged = bag_dataset(make_dataset, {"train": 5}, ragged=True)
    with pytest.raises(ConfigError, match="'bag' has bags of any length"):
        convert(ragged, tmp_path / "out", "nvidia-binary", quiet=True)
    schema = Schema.load(ragged / "schema.yaml").model_dump(mode="json")
    two = Schema.parse({**schema, "labels": [{"name": "label"}, {"name": "other"}]})
    with pytest.raises(ln.errors.SchemaError, match="labels: 1 entries != 2"):
        convert(ragged, tmp_path / "out", "nvidia-binary", schema=two, quiet=True)


def test_numbers_beyond_float16_are_refused(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = one_hot_dataset(make_dataset, {"train": 70_000})
    with pytest.raises(DataError, match="row 65520, column 'd0': 65520 does not fit float16"):
        convert(dataset, tmp_path / "out", "nvidia-binary", quiet=True)


def test_any_file_system(tmp_path: Path) -> None:
    golden(tmp_path / "theirs")
    convert(tmp_path / "theirs", "memory://formats/nvidia", "nvidia-binary", quiet=True)
    convert("memory://formats/nvidia", tmp_path / "ours", "lanner", quiet=True)
    convert(tmp_path / "theirs", tmp_path / "direct", "lanner", quiet=True)
    assert_same(tmp_path / "ours", tmp_path / "direct")
