"""The files of a report are there, parse, and say the same."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pytest
import typer
from click.testing import Result
from perf_stub import Behaviour, http_stub
from typer.testing import CliRunner

from lanner.cli.perf import _show, perf
from lanner.perf import Report, Settings, report, run
from lanner.perf.tables import fitted, notes, text


def command(*words: str) -> Result:
    app = typer.Typer()
    app.command()(perf)
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="module")
def measured() -> Report:
    behaviour = Behaviour(decide=lambda n: "<shed>" if n % 10 == 9 else "")
    with http_stub(behaviour) as url:
        values = {"name": "ctr", "url": url, "protocol": "http", "concurrency": (1, 2), "latency_limit": 1e5}
        return run(Settings.parse({**values, "duration": 0.2, "warmup": 0.05, "batch": 3}))


def test_files(measured: Report, tmp_path: Path) -> None:
    paths = report.write(measured, tmp_path / "perf")
    assert [Path(path).name for path in paths] == ["perf.csv", "perf.json", "perf.png", "perf.html"]
    values = json.loads((tmp_path / "perf/perf.json").read_text())
    best = values.pop("best")
    assert Report.model_validate(values) == measured
    assert best["rows_per_s"] == max(level.rows_per_s for level in measured.levels)
    rows = list(csv.DictReader((tmp_path / "perf/perf.csv").open()))
    assert [int(row["requests"]) for row in rows] == [level.requests for level in measured.levels]
    assert [float(row["p99_ms"]) for row in rows] == [level.latency.p99 for level in measured.levels if level.latency]
    assert rows[0]["concurrency"] == "1.0" and rows[0]["batch"] == "3"


def test_the_picture_is_one(measured: Report, tmp_path: Path) -> None:
    from PIL import Image

    with Image.open(BytesIO(report.plot.draw(measured))) as image:
        assert image.width > 1000 and image.height > 400
        assert len(image.convert("RGB").resize((200, 70)).getcolors(14_000) or []) > 20


class _Page(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for key, value in attributes if key in ("src", "href")]
        if tag not in ("meta", "img"):
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(measured: Report) -> None:
    text_of_page = report.html.page(measured, b"png")
    page = _Page(text_of_page)
    assert page.opened == []
    assert page.tags.count("table") == 3 and page.tags.count("img") == 1
    assert all(source.startswith("data:") for source in page.sources)
    assert "&lt;shed&gt;" in text_of_page and "<shed>" not in text_of_page


def test_notes_tell_errors_and_the_best_level(measured: Report) -> None:
    found = " / ".join(notes(measured))
    assert "503: <shed>" in found
    assert "highest throughput with p99 within" in found


def test_a_run_without_levels_is_still_reported(measured: Report, tmp_path: Path) -> None:
    empty = measured.model_copy(update={"levels": [], "interrupted": True})
    assert len(report.write(empty, tmp_path)) == 4
    assert "interrupted" in notes(empty)[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (12, "12"),
        (1234567, "1,234,567"),
        (0.1234, "0.12"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
        (4140.2, "4,140"),
    ],
)
def test_cells(value: float | None, expected: str) -> None:
    assert text(value) == expected


def test_an_open_loop_says_that_the_server_cannot_keep_up(measured: Report) -> None:
    settings = measured.settings.model_copy(update={"concurrency": (), "rates": (1000.0,), "duration": 2.0})
    base = measured.levels[0].model_copy(
        update={"load": 1000.0, "requests": 2000, "errors": 0, "unanswered": 0, "growth": 0.01, "requests_per_s": 640.0}
    )

    def said(**changes: float) -> str:
        level = base.model_copy(update=changes)
        return " ".join(notes(measured.model_copy(update={"settings": settings, "levels": [level]})))

    complaint = "rate 1000: the server cannot keep up with 1,000 requests/s; it answered 640 a second"
    assert complaint not in said()
    assert complaint in said(growth=0.2)
    assert complaint in said(requests=1000, errors=1000)
    assert complaint in said(requests=1000, unanswered=1000)
    closed = measured.model_copy(update={"levels": [base.model_copy(update={"growth": 1.0})]})
    assert "keep up" not in " ".join(notes(closed))


def test_a_narrow_terminal_gets_every_figure(
    measured: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    assert measured.levels[0].latency is not None
    latency = measured.levels[0].latency.model_copy(update={"p99": 4140.2, "max": 1234567.0, "p95": 3999.1})
    level = measured.levels[0].model_copy(update={"latency": latency, "rows_per_s": 12345678.0, "requests": 7654321})
    monkeypatch.setattr("lanner.cli.perf.people", Console(stderr=True, width=80))
    _show(measured.model_copy(update={"levels": [level]}))
    shown = capsys.readouterr().err
    assert "…" not in shown
    assert {"4,140", "1,234,567", "3,999", "12,345,678", "7,654,321", "rows/ex"} <= set(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("width", [10, 20, 40])
def test_tables_are_cut_between_columns(width: int) -> None:
    parts = fitted(["a", "bbbb", "c", "d"], [[1, 2, 123456, 4], [2, 3, 4, 5]], width)
    assert [title for titles, _ in parts for title in titles[1:]] == ["bbbb", "c", "d"]
    for titles, rows in parts:
        assert titles[0] == "a"
        assert [cells[0] for cells in rows] == [1, 2]
        assert sum(max(len(text(cells[at])) for cells in rows) for at in range(len(titles))) < width
    assert len(fitted(["a", "b"], [], 1)) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--concurrency 0", "--concurrency '0': expected N"),
        ("--concurrency 2 --rate 10", "give --concurrency (closed loop) or --rate (open loop), not both"),
        ("--concurrency 1.5", "concurrency.0"),
        ("--rate x", "--rate 'x'"),
        ("--duration 0", "duration"),
        ("--range 3", "--range '3'"),
        ("--protocol tcp", "tcp"),
    ],
)
def test_wrong_options_are_wrong_usage(words: str, expected: str) -> None:
    done = command("ctr", *words.split())
    assert done.exit_code == 2
    assert expected in " ".join(done.stderr.replace("│", " ").split())


def test_the_command(tmp_path: Path) -> None:
    with http_stub(Behaviour()) as url:
        words = ["ctr", "--url", url, "--protocol", "http", "--batch", "2", "--concurrency", "1:2"]
        done = command(*words, "--duration", "0.2", "--warmup", "0", "--json", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    values = json.loads(done.stdout)
    assert [level["load"] for level in values["levels"]] == [1, 2]
    assert (tmp_path / "perf.html").exists()
