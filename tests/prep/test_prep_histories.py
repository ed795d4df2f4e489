"""Histories made from event logs, against a plain loop over the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prep_logs import published_bytes, read_split, read_vocab

from lanner.errors import ConfigError, DataError, SchemaError
from lanner.prep import histories, prepare
from lanner.prep.encoder import Encoder
from lanner.schema import Schema

Event = tuple[str, str, int, int]
"""User, film, time, like."""


def schema(last: int = 3, where: str | None = None, raw: str = "string", min_count: int = 1) -> Schema:
    film = {"table": "film", "raw": raw, "encoder": {"kind": "vocab", "min_count": min_count}}
    history = {"of": "film"} if where is None else {"of": "film", "where": where}
    return Schema.parse(
        {
            "labels": [{"name": "liked"}],
            "sparse": [
                {"name": "before", **film, "hotness": None, "max_hotness": last, "pooling": "none", "history": history},
                {"name": "film", **film},
            ],
            "group": "user",
        }
    )


def write_events(path: Path, events: list[Event]) -> Path:
    path.write_text("user,film,time,liked\n" + "".join(f"{u},{f},{t},{y}\n" for u, f, t, y in events))
    return path


def expected(events: list[Event], last: int, where: bool) -> list[list[str]]:
    """For each event the films of the same user's strictly earlier ones, by time and then by place in the log."""
    found = []
    for user, _, time, _ in events:
        earlier = [
            (t, at, f) for at, (u, f, t, y) in enumerate(events) if u == user and t < time and f and (y or not where)
        ]
        found.append([f for _, _, f in sorted(earlier)][-last:])
    return found


def bags(out: Path, split: str = "train") -> list[list[str]]:
    names = {number: value for value, number in read_vocab(out, "film").items()}
    return [[str(names[number]) for number in row.tolist()] for row in read_split(out, split)["before"]]


EVENTS = st.lists(
    st.tuples(st.sampled_from("uvwxyz"), st.sampled_from(["", *"abcdefgh"]), st.integers(0, 12), st.integers(0, 1)),
    min_size=1,
    max_size=60,
)


@settings(max_examples=20)
@given(EVENTS, st.integers(1, 6), st.booleans(), st.integers(0, 59), st.sampled_from([1, 3, 12]))
def test_histories_equal_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], last: int, where: bool, cut: int, shares: int
) -> None:
    folder = tmp_path_factory.mktemp("events")
    files = [write_events(folder / "a.csv", events[:cut]), write_events(folder / "b.csv", events[cut:])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histories, "_ROW_BYTES", (64 << 20) // 4 * shares // len(events))
        patch.setattr(histories, "_PIECE", 7)
        options: dict[str, Any] = {"split": "none", "time": "time"}
        asked = schema(last, "liked" if where else None)
        prepare(files, folder / "out", "csv", asked, memory="64MB", **options)
    assert bags(folder / "out") == expected(events, last, where)
    counts = {film: number for number, film in enumerate(sorted({f for _, f, _, _ in events if f}))}
    assert len(read_vocab(folder / "out", "film")) == len(counts)


def test_the_future_is_never_seen_and_counts_are_those_of_the_events(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    events: list[Event] = [
        (f"u{random.integers(20)}", f"f{random.integers(30)}", int(random.integers(500)), int(random.integers(2)))
        for _ in range(2000)
    ]
    logs = write_events(tmp_path / "log.csv", events)
    options: dict[str, Any] = {"split": "time", "time": "time", "test": "400"}
    prepare(logs, tmp_path / "out", "csv", schema(10, min_count=60), **options)
    train = [row for row in events if row[2] < 400]
    counts = {film: sum(row[1] == film for row in train) for film in {row[1] for row in train}}
    assert set(read_vocab(tmp_path / "out", "film")) == {film for film, count in counts.items() if count >= 60}
    prepare(logs, tmp_path / "all", "csv", schema(10), **options)
    wanted = expected(events, 10, False)
    for split, chosen in (("train", False), ("test", True)):
        assert bags(tmp_path / "all", split) == [
            w for w, row in zip(wanted, events, strict=True) if (row[2] >= 400) == chosen
        ]
    # later rows change nothing in what earlier ones see
    prepare(
        write_events(tmp_path / "early.csv", train), tmp_path / "early", "csv", schema(10), split="none", time="time"
    )
    assert bags(tmp_path / "early") == bags(tmp_path / "all", "train")


def test_output_does_not_depend_on_memory_and_a_second_run_takes_over(tmp_path: Path) -> None:
    events: list[Event] = [(f"u{at % 7}", f"f{at % 11}", at // 3, at % 2) for at in range(3000)]
    logs = write_events(tmp_path / "log.csv", events)
    prepare(logs, tmp_path / "one", "csv", schema(raw="string"), time="time")
    prepare(logs, tmp_path / "two", "csv", schema(raw="string"), time="time", memory="64MB", block_bytes=1000)
    assert published_bytes(tmp_path / "one") == published_bytes(tmp_path / "two")


def test_rows_without_a_user_share_no_history(tmp_path: Path) -> None:
    events: list[Event] = [("", "a", 1, 1), ("", "b", 2, 1), ("u", "c", 1, 1), ("u", "d", 2, 1)]
    prepare(write_events(tmp_path / "log.csv", events), tmp_path / "out", "csv", schema(), split="none", time="time")
    assert bags(tmp_path / "out") == [[], [], [], ["c"]]


def test_requests_give_the_history_and_files_may(tmp_path: Path) -> None:
    events: list[Event] = [("u", film, at, 1) for at, film in enumerate("abcabd")]
    prepare(write_events(tmp_path / "log.csv", events), tmp_path / "out", "csv", schema(), split="none", time="time")
    encoder = Encoder.load(tmp_path / "out")
    served = encoder.encode({"film": [e[1] for e in events], "before": expected(events, 3, False)}).ids[0]
    found = read_split(tmp_path / "out", "train")["before"]
    assert served.values.tolist() == [number for row in found for number in row.tolist()]
    long = encoder.encode({"film": ["a"], "before": [list("abcd")]}).ids[0]
    assert long.values.tolist() == encoder.encode({"film": ["a"], "before": [list("bcd")]}).ids[0].values.tolist()
    (tmp_path / "lists.json").write_text('{"liked": 1, "film": "a", "before": ["b", "c"], "user": "u"}\n')
    prepare(tmp_path / "lists.json", tmp_path / "again", "json", using=tmp_path / "out")
    ids = read_vocab(tmp_path / "out", "film")
    assert read_split(tmp_path / "again", "test")["before"][0].tolist() == [ids["b"], ids["c"]]


def test_rows_that_were_dropped_are_kept_aside_and_leave_no_trace(tmp_path: Path) -> None:
    logs = write_events(tmp_path / "log.csv", [("u", "a", 1, 1), ("u", "b", 2, 7), ("u", "c", 3, 1)])
    summary = prepare(logs, tmp_path / "out", "csv", schema(), split="none", time="time", tolerant=True)
    assert summary.rejected == {"label": 1}
    assert bags(tmp_path / "out") == [[], ["a"]]
    assert "log.csv\t3\tlabel" in (tmp_path / "out" / "rejects.tsv").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"history": {"of": "movie"}}, "expected the name of a sparse feature with one value a row"),
        ({"max_hotness": None}, "expected hotness: null and a max_hotness"),
        ({"table": "other"}, "expected the same table"),
        ({"history": {"of": "film", "where": "y"}}, "no label 'y'"),
    ],
)
def test_histories_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    values = schema().model_dump()
    del values["tables"]
    values["sparse"] = [values["sparse"][0] | change, values["sparse"][1]]
    with pytest.raises(SchemaError, match=message):
        Schema.parse(values)


def test_a_group_and_a_time_are_needed(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="no group column to say whose history it is"):
        Schema.parse({**schema().model_dump(), "group": None})
    logs = write_events(tmp_path / "log.csv", [("u", "a", 1, 1)] * 5)
    with pytest.raises(DataError, match="no column 'before'"):
        prepare(logs, tmp_path / "out", "csv", schema(), split="none")
    with pytest.raises(ConfigError, match="only a split by time, or a schema with histories, needs"):
        prepare(logs, tmp_path / "out", "csv", schema().without_histories(), split="none", time="time")
