"""Find out whether a quota of the file system is used up.

SQLite says "disk I/O error" of a write that a quota forbids, and keeps the number of the error to itself.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

PROBED_OCTETS: Final = 1 << 16


def is_used_up(folder: Path) -> bool:
    """Return whether a quota lets no file in a folder grow; a small file is written there for that."""
    try:
        with NamedTemporaryFile(dir=folder, prefix="quota-") as file:
            os.pwrite(file.fileno(), bytes(PROBED_OCTETS), 0)
    except OSError as error:
        return error.errno == errno.EDQUOT
    return False
