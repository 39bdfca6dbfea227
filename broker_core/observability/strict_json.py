"""JSON that strict parsers read: names that clients have chosen may hold bytes that are no UTF-8.

Such bytes are lone surrogates in the core, and the replacement character (U+FFFD) here.
"""

from __future__ import annotations

import re
from typing import Final

SURROGATE: Final = re.compile(
    r"\\\\|\\ud[89ab]..\\ud[c-f]..|(\\ud[89a-f]..)"
)  # or an escape that none begins in


def strict(text: str) -> str:
    """Return JSON, as `json` writes it in ASCII, with lone surrogates replaced."""
    return SURROGATE.sub(_replaced, text) if "\\ud" in text else text  # 20 ns a row, which has none


def _replaced(match: re.Match[str]) -> str:
    return "\\ufffd" if match[1] else match[0]
