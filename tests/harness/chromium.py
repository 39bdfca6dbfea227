"""The browser of the tests: Chromium without a window, which needs half of the processor time, or the whole of it."""

from __future__ import annotations

import shutil
from typing import Final

COMMANDS: Final = ("chromium-headless-shell", "chromium", "chromium-browser")
REMEDY: Final = "apt-get install chromium-headless-shell"


def chromium() -> str | None:
    """Return the path of the browser, or None if there is none."""
    return next(filter(None, map(shutil.which, COMMANDS)), None)
