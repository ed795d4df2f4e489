"""Writes hash_golden.json: the texts and the hashes every release must give. Never run it to make a test pass.

The hashes come from the xxhash package and plain Python integers, not from the kernels.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import xxhash

from lanner.kernels.hashing.reference import bucket

GOLDEN = Path(__file__).with_name("hash_golden.json")
SEED, SIZE = 17, 100_003


def texts() -> list[str]:
    """1,000 distinct texts: empty, long, in many scripts, of every short length."""
    random.seed(0)
    alphabets = [
        "abcdefghijklmnopqrstuvwxyz0123456789",
        "äöüßéèñøł",
        "абвгдежз",
        "日本語中文字漢",
        "😀🎉🚀👍",
        " \t|,;\"'\\",
    ]
    fixed = ["", "a", "0", "-1", "null", "NaN", "x" * 10_000, "é" * 5_000, "日本" * 2_000, "\x00", "a\x00b"]
    made = dict.fromkeys(fixed)
    while len(made) < 1000:
        alphabet = random.choice(alphabets)
        made["".join(random.choices(alphabet, k=random.randrange(1, 70)))] = None
    return list(made)


def main() -> None:
    rows = []
    for text in texts():
        digest = xxhash.xxh64_intdigest(text.encode())
        key = digest - 2**64 if digest >= 2**63 else digest
        rows.append([text, f"{digest:016x}", bucket(key, SEED, SIZE)])
    held = {"seed": SEED, "size": SIZE, "rows": rows}
    GOLDEN.write_text(json.dumps(held, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
