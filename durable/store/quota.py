"""Find out whether a quota of the file system is used up.

SQLite says "disk I/O error" of a write that a quota forbids, and keeps the number of the error to itself.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

PROBED_OCTETS: Final = 1 << 16


def is_used_up(folder: Path) -> bool:
    """Return whether a quota lets no file in a folder grow; a file without a name is written for that."""
    try:
        with TemporaryFile(dir=folder) as file:
            os.pwrite(file.fileno(), bytes(PROBED_OCTETS), 0)
    except OSError as error:
        return error.errno == errno.EDQUOT
    return False
