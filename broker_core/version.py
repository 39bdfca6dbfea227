"""The version of Leveret."""

from typing import Final

VERSION: Final = "0.1.0"
