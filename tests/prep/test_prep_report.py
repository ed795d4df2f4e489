"""The report of a dataset says what the rows say, warns of what looks like trouble, and stays text."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from prep_logs import make_rows, read_split, text_of, write
from typer.testing import CliRunner

from lanner import manifest as manifests
from lanner.cli.main import app
from lanner.errors import DataError
from lanner.prep import local, prepare
from lanner.prep.report import NAME, measures, reading
from lanner.prep.report.samples import Sample, Timeline
from lanner.schema import Schema

NUMBERS, CATEGORIES = [f"I{k}" for k in range(1, 14)], [f"C{k}" for k in range(1, 27)]


def command(*words: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words)])


def told(dataset: Path | str) -> dict[str, Any]:
    """What `lanner report --json` says."""
    result = command(dataset, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def warned(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(warning["kind"], warning["column"]) for warning in report["warnings"]]


@pytest.fixture(scope="module")
def criteo(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[list[str]], Path]:
    """The rows of the real sample, and the dataset made of them."""
    path, out = shared_data / "criteo_kaggle_10k.tsv.gz", tmp_path_factory.mktemp("criteo") / "out"
    prepare(path, out, min_count=5)
    return [line.split("\t") for line in gzip.open(path, "rt").read().splitlines()], out


def test_counts_and_shares_of_the_real_sample(criteo: tuple[list[list[str]], Path]) -> None:
    rows, out = criteo
    report = told(out)
    train = rows[: report["rows"]["train"]]
    assert sum(report["rows"].values()) == len(rows) and not report["rejected"]
    assert report["labels"][0]["mean"]["train"] == pytest.approx(np.mean([int(row[0]) for row in train]))
    for at, number in enumerate(report["numbers"], 1):
        assert number["name"] == NUMBERS[at - 1]
        assert number["missing"]["train"] == pytest.approx(sum(not row[at] for row in train) / len(train))
    for at, category in enumerate(report["categories"], 14):
        counts = Counter(row[at] for row in train if row[at])
        kept = {value: count for value, count in counts.items() if count >= 5}
        assert (category["name"], category["known"]) == (CATEGORIES[at - 14], len(kept))
        assert category["missing"]["train"] == pytest.approx(sum(not row[at] for row in train) / len(train))
        assert category["covered"]["train"] == pytest.approx(sum(kept.values()) / sum(counts.values()))
        later = [row[at] for row in rows[len(train) : len(train) + report["rows"]["valid"]] if row[at]]
        assert category["unknown"]["valid"] == pytest.approx(sum(value not in kept for value in later) / len(later))
        best = sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:10]
        assert [(value, count) for value, count, _ in category["top"]] == best
        assert [share for *_, share in category["top"]] == pytest.approx([count / len(train) for _, count in best])


def test_distributions_of_the_real_sample(criteo: tuple[list[list[str]], Path]) -> None:
    _, out = criteo
    report, train, valid = told(out), read_split(out, "train"), read_split(out, "valid")
    labels = train["label"].astype(float)
    line = report["labels"][0]
    width = line["width"]["train"]
    expected = [labels[at : at + width].mean() for at in range(0, len(labels), width)]
    assert line["course"]["train"] == pytest.approx(expected) and 32 < len(expected) <= 64
    for at, number in enumerate(report["numbers"]):
        values = train["dense"][:, at].astype(float)
        assert (number["low"]["train"], number["high"]["train"]) == (values.min(), values.max())
        assert number["quantiles"]["train"] == pytest.approx(
            np.quantile(values, [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
        )
        assert sum(number["bars"]["train"]) == len(values)
        pairs = values[labels == 1][:, None], values[labels == 0][None, :]
        auc = np.mean([(pairs[0] > pairs[1]).mean(), (pairs[0] >= pairs[1]).mean()])
        assert number["auc"]["label"] == pytest.approx(max(auc, 1 - auc))
    for category in report["categories"]:
        ids = [Counter(split[category["name"]].tolist()) for split in (train, valid)]
        common = [number for number, _ in sorted(ids[0].items(), key=lambda item: (-item[1], item[0]))[:50]]
        bins = [[*(found[number] for number in common), 0] for found in ids]
        for found, counts in zip(bins, ids, strict=True):
            found[-1] = sum(counts.values()) - sum(found)
        used = [k for k in range(len(bins[0])) if bins[0][k] + bins[1][k]]
        p, q = ([(b[k] + 0.5) / (sum(b) + 0.5 * len(used)) for k in used] for b in bins)
        psi = sum((x - y) * np.log(x / y) for x, y in zip(p, q, strict=True))
        assert category["drift"]["valid"][0] == pytest.approx(psi)


class _Page(HTMLParser):
    """Checks that every tag is closed; keeps tags, addresses and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        assert self.opened == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for key, value in attributes if key in ("src", "href", "xlink:href")]
        if tag != "meta":
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


def test_the_page_needs_nothing_else_and_can_be_made_again(
    criteo: tuple[list[list[str]], Path], tmp_path: Path
) -> None:
    _, out = criteo
    made = (out / NAME).read_bytes()
    page = _Page(made.decode())
    assert page.addresses == [] and "script" not in page.tags and "link" not in page.tags
    assert page.tags.count("svg") == 1 + 13 + 26
    assert len(made) < 100_000
    result = command(out, "--out", tmp_path)
    assert result.exit_code == 0
    assert (tmp_path / NAME).read_bytes() == made
    assert NAME not in json.loads((out / "manifest.json").read_text())["files"]


SCHEMA = """
version: 1
labels: [{name: click}]
dense: [{name: price}, {name: hint}, {name: same}]
sparse:
  - {name: site, raw: string, encoder: {kind: vocab, min_count: 2}}
  - {name: shop, raw: string, encoder: {kind: vocab, min_count: 2}}
  - {name: visit, raw: string, encoder: {kind: vocab, min_count: 2}}
  - {name: gone, raw: string, encoder: {kind: hash, size: 10}}
  - {name: day, raw: int, encoder: {kind: identity, size: 9, lowest: 5}}
  - {name: tags, raw: string, hotness: null, separator: "|", encoder: {kind: vocab, min_count: 1}}
"""
EVIL = "<script>alert('x')</script>&amp;"


def troubled(folder: Path) -> Path:
    """A dataset with one trouble of each kind."""
    choose = random.Random(0)
    lines = ["click,price,hint,same,site,shop,visit,gone,day,tags"]
    for row in range(4000):
        click = int(choose.random() < 0.3) if row < 3200 else 0
        price = choose.gauss(0, 1) + (5 if row >= 3600 else 0)
        site = EVIL if choose.random() < 0.5 else "b"
        shop = f"shop {click}" if row < 3600 else f"new {row}"
        tags = "|".join(choose.sample("xyz", choose.randrange(3)))
        lines.append(f"{click},{price:.4f},{click + choose.random() / 2},1,{site},{shop},v{row},,{5 + row % 3},{tags}")
    lines[10:20] = [line.replace(",", ",x", 1) for line in lines[10:20]]
    (folder / "logs.csv").write_text("\n".join(lines) + "\n")
    schema = Schema.from_yaml(SCHEMA)
    prepare(folder / "logs.csv", folder / "out", "csv", schema, tolerant=True, valid=0.1, test=0.1)
    return folder / "out"


def test_trouble_is_found_and_hostile_values_stay_text(tmp_path: Path) -> None:
    out = troubled(tmp_path)
    report = told(out)
    assert set(warned(report)) == {
        ("label", "click"), ("drift", "hint"), ("leak", "hint"), ("leak", "shop"), ("constant", "same"),
        ("missing", "gone"), ("drift", "price"), ("unknown", "shop"), ("drift", "shop"), ("coverage", "visit"),
    }  # fmt: skip
    assert sum(kind == "label" for kind, _ in warned(report)) == 2
    assert sum(report["rejected"].values()) == 10
    by_name = {category["name"]: category for category in report["categories"]}
    assert by_name["site"]["top"][0][0] == EVIL
    assert [value for value, *_ in by_name["day"]["top"]] == ["5", "6", "7"]
    assert by_name["gone"]["covered"]["train"] is None and by_name["gone"]["top"] == [["missing", None, 1.0]]
    assert by_name["tags"]["ids"] == pytest.approx(1, abs=0.05) and by_name["tags"]["covered"]["train"] == 1
    text = (out / NAME).read_text()
    assert "<script" not in text and "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;amp;" in text
    assert "script" not in _Page(text).tags
    said = command(out).stderr.replace("\n", " ")
    assert "warning: hint alone predicts click with AUC" in said


def test_rows_without_labels_and_other_vocabularies(tmp_path: Path) -> None:
    rows = make_rows(500)
    prepare(write(tmp_path / "a.tsv", rows), tmp_path / "fitted", split="none", min_count=2)
    prepare(
        write(tmp_path / "b.tsv", [row[1:] for row in rows[:50]]),
        tmp_path / "out",
        using=tmp_path / "fitted",
        labelled=False,
    )
    report = told(tmp_path / "out")
    assert (report["rows"], report["reference"], report["labels"]) == ({"test": 50}, "test", [])
    assert report["numbers"][0]["auc"] == {} and report["categories"][0]["drift"] == {}
    _Page((tmp_path / "out" / NAME).read_text())


def test_remote_datasets_and_converted_ones(tmp_path: Path) -> None:
    from lanner.data.formats import convert

    (tmp_path / "logs.tsv").write_bytes(text_of(make_rows(400)))
    prepare(tmp_path / "logs.tsv", "memory://report/out", min_count=2)
    prepare(tmp_path / "logs.tsv", tmp_path / "out", min_count=2)
    ours = told(tmp_path / "out")
    assert told("memory://report/out") == ours
    convert(tmp_path / "out", tmp_path / "copy", "lanner")
    copied = told(tmp_path / "copy")
    assert copied["categories"][0]["missing"] == dict.fromkeys(copied["rows"])
    assert copied["numbers"][0]["quantiles"] == ours["numbers"][0]["quantiles"]
    _Page((tmp_path / "out" / NAME).read_text())


def test_parquet_parts_with_a_column_for_each_number(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(write(tmp_path / "logs.tsv", make_rows(300)), out, split="none", min_count=2)
    expected, (part,) = told(out), out.glob("train/*.arrow")
    table = pa.ipc.open_file(part.read_bytes()).read_all()
    dense = table["dense"].combine_chunks().flatten().to_numpy().reshape(-1, 13)
    for at, name in enumerate(NUMBERS):
        table = table.append_column(name, pa.array(dense[:, at]))
    pq.write_table(table.drop_columns("dense"), part.with_suffix(".parquet"))
    found = manifests.read(out, "dataset")
    del found.files["train/part-00000.arrow"]
    found.files["train/part-00000.parquet"] = manifests.entry(out, "train/part-00000.parquet", 300)
    manifests.write(out, found)
    assert told(out) == expected


def test_large_splits_are_looked_at_in_equal_distances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "BATCH_ROWS", 100)
    prepare(write(tmp_path / "logs.tsv", make_rows(3000)), tmp_path / "out", split="none", min_count=2)
    monkeypatch.setattr(reading, "LOOKED_AT", 1000)
    report, rows = told(tmp_path / "out"), read_split(tmp_path / "out", "train")
    assert report["looked_at"] == {"train": 1000}
    assert report["labels"][0]["mean"]["train"] == pytest.approx(rows["label"].mean())
    seen = rows["dense"].reshape(10, 3, 100, 13)[:, 0].reshape(-1, 13)
    assert report["numbers"][0]["quantiles"]["train"][3] == pytest.approx(np.median(seen[:, 0].astype(float)))


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    result = command(tmp_path)
    assert isinstance(result.exception, DataError) and "no manifest.json" in str(result.exception)


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 1000, 5000])
def test_samples_and_timelines_do_not_depend_on_cuts(rows: int) -> None:
    choose, values = random.Random(rows), np.random.default_rng(rows).random((rows, 2))
    sample, timeline = Sample(100), Timeline(2)
    first = 0
    while first < rows:
        step = choose.randrange(1, 700)
        sample.add(values[first : first + step])
        timeline.add(values[first : first + step])
        first += step
    stride = next(2**k for k in range(20) if -(-rows // 2**k) <= 100)
    np.testing.assert_array_equal(sample.values.reshape(-1, 2), values[::stride])
    expected = [values[at : at + timeline.width].mean(axis=0) for at in range(0, rows, timeline.width)]
    np.testing.assert_allclose(timeline.means, np.reshape(expected, (-1, 2)))
    np.testing.assert_allclose(timeline.total, values.sum(axis=0))
    assert len(timeline.means) <= Timeline.MOST


def test_drift_is_told_from_chance() -> None:
    random_ = np.random.default_rng(0)
    for rows in (60, 1000, 20_000):
        ours, theirs = random_.zipf(1.5, (2, rows))
        assert not measures.drift_of_ids(ours, theirs).matters
        assert not measures.drift_of_numbers(random_.normal(size=rows), random_.normal(size=rows)).matters
    assert measures.drift_of_ids(ours, theirs + 1).matters
    assert measures.drift_of_numbers(random_.normal(size=1000), random_.normal(1, size=1000)).matters


def test_auc_of_ids_is_not_taken_in_by_rare_values() -> None:
    random_ = np.random.default_rng(0)
    labels = (random_.random(5000) < 0.3).astype(np.float32)
    unique, telling = np.arange(5000), np.where(labels == 1, 3, random_.integers(3, 10, 5000))
    assert measures.auc_of_ids(unique, labels) == pytest.approx(0.5, abs=0.05)
    assert measures.auc_of_ids(telling, labels) == pytest.approx(1 - 1 / 14, abs=0.02)
    assert measures.auc_of_ids(unique, np.ones(5000)) is None
