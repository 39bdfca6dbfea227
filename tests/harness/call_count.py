"""What an action costs in Python calls: free of noise."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType


def calls(action: Callable[[], object]) -> Counter[str]:
    """The Python functions called by `action`, and how often."""
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            counted[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    gc.disable()  # what listens to it would be counted
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
        gc.enable()
    return counted
