"""Numbers that no run can use are refused at once, in words of the options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prep_logs import make_rows, write

from lanner.errors import ConfigError
from lanner.prep import prepare


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"numeric": 999_999_999}, r"numeric 999999999: expected 0 to 10,000 columns"),
        ({"categorical": 10_001}, r"categorical 10001: expected 0 to 10,000"),
        ({"numeric": -1}, r"numeric -1: expected 0"),
        ({"hash_size": 0}, r"^hash_size: [^\n]*\(got 0\)$"),
        ({"max_size": 0}, r"^max_size: [^\n]*\(got 0\)$"),
        ({"min_count": 0}, r"^min_count: [^\n]*\(got 0\)$"),
    ],
)
def test_numbers_out_of_range(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    logs = write(tmp_path / "logs.tsv", make_rows(10))
    with pytest.raises(ConfigError, match=message):
        prepare(logs, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
