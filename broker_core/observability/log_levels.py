"""The levels of the log, for all of it and for each of its categories, as Python's loggers keep them.

Each category is a logger `leveret.CATEGORY`; one without a level of its own has that of the whole log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

CATEGORIES: Final = (
    "node",
    "connection",
    "cluster",
    "amqp091",
    "amqp10",
    "amqp010",
    "protocols",
    "http",
    "http_client",
    "broker",
    "exchanges",
    "shovel",
    "pipeline",
    "federation",
    "store",
    "security",
    "timeouts",
    "arguments",
    "definitions",
    "audit",
)
LEVELS: Final = ("debug", "info", "warning", "error", "none")
NONE: Final = logging.CRITICAL + 1  # above what anything is logged at
ROOT: Final = "leveret"


def set_levels(level: str, by_category: Mapping[str, str | None]) -> None:
    """Set the level of the log, and of each category; None for that of the log."""
    set_level(None, level)
    for category in CATEGORIES:
        set_level(category, by_category.get(category))


def set_level(category: str | None, level: str | None) -> None:
    """Set the level of a category, or of the whole log (None), to one of LEVELS."""
    logger = logging.getLogger(ROOT if category is None else f"{ROOT}.{category}")
    logger.setLevel(logging.NOTSET if level is None else number(level))


def levels() -> dict[str, str]:
    """Return the level of each category, whether it is its own or that of the whole log."""
    return {name: _word(logging.getLogger(f"{ROOT}.{name}").getEffectiveLevel()) for name in CATEGORIES}


def level() -> str:
    """Return the level of the whole log."""
    return _word(logging.getLogger(ROOT).getEffectiveLevel())


def number(level: str) -> int:
    """Return the number that `logging` has for one of LEVELS."""
    return NONE if level == "none" else int(logging.getLevelNamesMapping()[level.upper()])


def _word(given: int) -> str:
    return next((level for level in LEVELS if given <= number(level)), "none")
