"""The engine spark writes what the local engine writes, byte by byte."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer
from prep_logs import make_rows, published_bytes, text_of, write
from pyarrow.csv import read_csv
from typer.testing import CliRunner

from lanner.cli.prep import prep
from lanner.data.synthetic import write_logs
from lanner.errors import ConfigError, DataError, LannerError
from lanner.prep import prepare
from lanner.prep.spark import counting, session, shuffling
from lanner.prep.spark.session import JAVA_HINT, java_found, spark_context
from lanner.schema import Schema

pytest.importorskip("pyspark", reason="pip install 'lanner[spark]'")
pytestmark = pytest.mark.skipif(not java_found(), reason=f"Spark needs Java: {JAVA_HINT}")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One Spark for the tests here: a start takes seconds."""
    with spark_context("local[2]", {}, quiet=True) as context:
        yield context


def alike(files: Any, folder: Path, **options: Any) -> None:
    """Prepare with both engines and compare every file, the manifest included."""
    prepare(files, folder / "local", **options)
    prepare(files, folder / "spark", engine="spark", **options)
    same(folder / "spark", folder / "local")


def same(found: Path, expected: Path) -> None:
    assert published_bytes(found) == published_bytes(expected)
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (found, expected)]
    assert manifests[0] == manifests[1]


def test_the_real_sample(tmp_path: Path, shared_data: Path, spark: Any) -> None:
    alike(shared_data / "criteo_kaggle_10k.tsv.gz", tmp_path, min_count=2)
    assert not (tmp_path / "spark" / ".prep").exists()


def test_many_files_with_bad_rows_and_many_counting_tasks(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [*make_rows(700), ["1"], *make_rows(600, seed=1)]
    write(tmp_path / "day_0", rows[:500])
    (tmp_path / "day_1").write_bytes(b"")
    (tmp_path / "day_2").write_bytes(gzip.compress(text_of([*rows[500:], ["x"]])))
    monkeypatch.setattr(counting, "_LEAST_ROWS", 200)
    options = {"min_count": 3, "transform": "log1p_standard", "unknown_buckets": 2, "dense_type": "float16"}
    alike(tmp_path / "day_*", tmp_path, tolerant=True, split="random", valid=0.2, test=0.1, seed=3, **options)


def test_shuffled_rows_in_many_runs_and_shares(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = write(tmp_path / "logs.tsv", make_rows(3000))
    monkeypatch.setattr(shuffling, "_RUN", (700, 700))
    monkeypatch.setattr(shuffling, "_share_rows", lambda plan: 200)
    alike(logs, tmp_path, recipe="facebook-dlrm", seed=5)


def test_errors_of_tasks_come_out_as_those_of_a_local_run(tmp_path: Path, spark: Any) -> None:
    rows = [*make_rows(20), ["1"]]
    for number, content in enumerate([rows[:20], rows, rows[5:]]):
        write(tmp_path / f"day_{number}", content)
    messages = []
    for engine in ("local", "spark"):
        with pytest.raises(DataError) as caught:
            prepare(tmp_path / "day_*", tmp_path / engine, engine=engine)
        messages.append(str(caught.value))
        assert [path.name for path in (tmp_path / engine).iterdir()] == [".prep"]
    assert messages[0] == messages[1]
    for number in (1, 2):
        write(tmp_path / f"day_{number}", rows[:-1])
    summary = prepare(tmp_path / "day_*", tmp_path / "spark", engine="spark")
    assert [file.reused for file in summary.files] == [True, False, False]


def test_a_running_spark_is_taken_as_it_is(tmp_path: Path, spark: Any) -> None:
    logs = write(tmp_path / "logs.tsv", make_rows(5))
    with pytest.raises(ConfigError, match="running already"):
        prepare(logs, tmp_path / "out", engine="spark", master="local[4]")
    assert not (tmp_path / "out").exists()


def test_what_spark_cannot_do_is_refused_at_once(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", make_rows(5))
    with pytest.raises(ConfigError, match="of the engine spark"):
        prepare(logs, tmp_path / "out", master="local[2]")
    with pytest.raises(ConfigError, match="expected local or spark"):
        prepare(logs, tmp_path / "out", engine="flink")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_without_java_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="apt-get install openjdk-17"), session.spark_context(None, {}):
        pass


def events(path: Path, count: int) -> Path:
    """A CSV with texts, bags of texts, whole numbers, times and gaps."""
    choose = random.Random(5)
    lines = ["click,time,price,site,tags,day"]
    for _ in range(count):
        tags = "|".join(f"tag{int(choose.paretovariate(1))}" for _ in range(choose.randrange(4)))
        price = "" if choose.random() < 0.1 else f"{choose.gauss(10, 4):.3f}"
        site = "" if choose.random() < 0.1 else f"söte {int(choose.paretovariate(0.7))}"
        lines.append(f"{choose.randrange(2)},{choose.randrange(10**6)},{price},{site},{tags},{choose.randrange(7)}")
    path.write_text("\n".join(lines) + "\n")
    return path


SCHEMA = """
labels: [{name: click}]
dense: [{name: price, transform: standard}]
sparse:
  - {name: site, raw: string, encoder: {kind: vocab, min_count: 2, order: seen}}
  - {name: tags, raw: string, hotness: null, separator: "|", encoder: {kind: vocab, min_count: 1, max_size: 20}}
  - {name: day, raw: int, encoder: {kind: identity, size: 7}}
  - {name: hashed, column: site, raw: string, encoder: {kind: hash, size: 50}}
"""

WAYS: list[dict[str, Any]] = [
    {"split": "time", "valid": 0.1, "test": 0.1, "time": "time"},
    {"split": "time", "test": "900000", "time": "time", "fit": "all"},
    {"split": "none", "rows": 700},
    {"split": "day", "valid": "first", "test": "second"},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=lambda options: options["split"])
@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_texts_bags_and_every_split(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, source: str, options: dict[str, Any]
) -> None:
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    logs = events(tmp_path / "events.csv", 3000)
    if source == "parquet":
        pq.write_table(read_csv(logs), tmp_path / "events.parquet", row_group_size=1000)
        logs = tmp_path / "events.parquet"
    monkeypatch.setattr(counting, "_LEAST_ROWS", 500)
    alike(logs, tmp_path, source=source, schema=Schema.load(tmp_path / "schema.yaml"), **options)


@pytest.mark.slow
def test_counts_above_the_budget_of_a_task_are_sent_in_parts(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(str(tmp_path / "logs.tsv"), 200_000, quiet=True, cardinality=100_000)
    alike(tmp_path / "logs.tsv", tmp_path, memory="64MB", min_count=2)


@pytest.mark.slow
def test_an_older_dataset_keys_and_hashes(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = write(tmp_path / "logs.tsv", make_rows(500))
    prepare(logs, tmp_path / "old", min_count=2)
    write(tmp_path / "new.tsv", make_rows(300, seed=9))
    monkeypatch.chdir(tmp_path)
    for number, options in enumerate([{"using": "old"}, {"keys": True}, {"hash_size": 100, "transform": "none"}]):
        (tmp_path / f"{number}").mkdir()
        alike("new.tsv", Path(f"{number}"), **options)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_rows_in_several_parts(tmp_path: Path, spark: Any) -> None:
    for day in range(3):
        write_logs(str(tmp_path / f"day_{day}.tsv"), 400_000, quiet=True, seed=day, cardinality=50_000)
    alike(tmp_path / "day_*.tsv", tmp_path, split="sequential", test=50_000, shuffle=True)
    assert (tmp_path / "spark" / "train" / "part-00001.arrow").exists()


@pytest.mark.slow
def test_the_command_line_starts_its_own_spark_and_spark_submit_brings_one(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs.tsv", make_rows(500))
    prepare(logs, tmp_path / "local", min_count=2)
    words = ["prep", str(logs), "--min-count", "2", "--engine", "spark", "--out"]
    own = ["--master", "local[2]", "--spark-conf", "spark.ui.enabled=false", "--spark-conf", "spark.task.cpus=2"]
    subprocess.run([sys.executable, "-m", "lanner", *words, str(tmp_path / "own"), *own], check=True)
    same(tmp_path / "own", tmp_path / "local")
    (tmp_path / "job.py").write_text("from lanner.cli.main import run\n\nrun()\n")
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    python = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    job = [str(tmp_path / "job.py"), *words, str(tmp_path / "submitted")]
    subprocess.run([str(submit), "--master", "local[2]", *job], check=True, env=python)
    same(tmp_path / "submitted", tmp_path / "local")


def test_settings_on_the_command_line() -> None:
    app = typer.Typer()
    app.command()(prep)
    result = CliRunner().invoke(app, ["x", "--out", "y", "--engine", "spark", "--spark-conf", "spark.ui.enabled"])
    assert isinstance(result.exception, LannerError) or result.exit_code == 2
