"""Corpora: inputs that reached code which others did not, one file of base64 lines for each target."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "corpora"
INPUTS_MAX: Final = 300  # of one target,
SIZE_MAX: Final = 2048  # each of so many bytes at most


def path_of(target: str) -> Path:
    return FOLDER / f"{target}.txt"


def load(target: str) -> list[bytes]:
    path = path_of(target)
    return [b64decode(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(target: str, inputs: Iterable[bytes]) -> int:
    """Add inputs to the corpus of a target, the smallest first; return how many are new."""
    before = load(target)
    fresh = sorted(
        {each for each in inputs if len(each) <= SIZE_MAX} - set(before), key=lambda each: (len(each), each)
    )
    fresh = fresh[: max(0, INPUTS_MAX - len(before))]
    if fresh:
        FOLDER.mkdir(exist_ok=True)
        path_of(target).write_text("".join(f"{b64encode(each).decode()}\n" for each in (*before, *fresh)))
    return len(fresh)
