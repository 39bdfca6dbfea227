"""The version of Leveret, said once."""

from typing import Final

VERSION: Final = "0.1.0"
