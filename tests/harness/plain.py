"""What holds of plain Python only.

Compiled code makes no calls that could be counted, and neither functions nor constants can be replaced in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

plain_only = pytest.mark.plain_only  # `tests/conftest.py` skips it where the code is compiled


def calls_under(root: str, work: Callable[[], object]) -> tuple[list[str], set[str]]:
    """Call `work`; return the calls that it makes from the function `root` down, in order, and their modules."""
    calls: list[str] = []
    modules: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        above: FrameType | None = frame
        while event == "call" and above is not None:
            if above.f_code.co_qualname == root:
                calls.append(frame.f_code.co_qualname)
                modules.add(Path(frame.f_code.co_filename).stem)
                return
            above = above.f_back

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls, modules
