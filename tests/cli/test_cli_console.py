"""Tables for people: whole in files, and without a figure cut short on narrow terminals."""

from __future__ import annotations

import pytest
from rich.console import Console

from lanner.cli import console

COLUMNS = ["rank", "weights", "state", "buffers", "why"]
ROWS: list[list[object]] = [[0, "6.71 GiB", "215 MiB", "129 MiB", "copies: cheaper than sending rows"]]


def printed(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setattr(console, "people", Console(stderr=True, width=width, highlight=False))
    console.print_table("memory", COLUMNS, ROWS)
    return capsys.readouterr().err.splitlines()


def test_a_wide_terminal_shows_frames(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(120, monkeypatch, capsys)
    assert "│    0 │ 6.71 GiB │ 215 MiB │ 129 MiB │ copies: cheaper than sending rows │" in lines


@pytest.mark.parametrize("width", [72, 50, 24])
def test_a_narrow_one_loses_no_figure(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(width, monkeypatch, capsys)
    assert max(map(len, lines)) <= width
    assert not any("…" in line or "│" in line for line in lines)
    if width >= 50:  # figures and their units on one line, frames or not
        assert any(line.split()[:7] == ["0", "6.71", "GiB", "215", "MiB", "129", "MiB"] for line in lines)


def test_lines_in_files_stay_whole() -> None:
    assert console.people.is_terminal or console.people.width > 1000
