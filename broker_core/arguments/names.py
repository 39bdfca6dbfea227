"""Words for people: typed names as they can be printed, the known name that was probably meant, and counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ALIKE: Final = 0.8  # of names with a common beginning, such as x-max-length and x-max-age
NAME_MAX: Final = 100  # characters of a name that are told
SHORT_MIN: Final = 4  # letters of a shortened name


def meant(name: str, known: Iterable[str], alike: float = ALIKE) -> str:
    """Return `; did you mean ...?` if a known name is much like this one, or this begins it, else nothing."""
    found = nearest(name, known, alike)
    return f"; did you mean {found}?" if found else ""


def nearest(name: str, known: Iterable[str], alike: float = ALIKE) -> str:
    """Return the known name that is much like this one, or that this begins; empty if there is none."""
    names = list(known)
    begun = [each for each in names if len(name) >= SHORT_MIN and each.startswith(name)]
    return closest(name[:NAME_MAX], names, alike) or next(iter(begun), "")


def closest(name: str, known: Iterable[str], alike: float) -> str:
    """Return the known name that is most like this one, from a likeness of 0 to 1 on; empty if none is."""
    from difflib import get_close_matches  # a node without mistakes in its settings does without

    return next(iter(get_close_matches(name, known, 1, alike)), "")


def shown(name: str) -> str:
    """Return a name that a client has chosen as it can be printed: short, and without control characters."""
    cut = name if len(name) <= NAME_MAX else f"{name[:NAME_MAX]}..."
    return cut if cut.isprintable() else repr(cut)


def counted(count: int, what: str) -> str:
    """Return `1 queue`, `2,001 queues`."""
    if count == 1:
        return f"1 {what}"
    return f"{count:,} {what[:-1] + 'ies' if what.endswith('y') and not what.endswith('ey') else what + 's'}"
