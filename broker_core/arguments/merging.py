"""Rules by which an argument and a policy of the same meaning become one limit; None: nothing was asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from leveret.limits import Overflow

Limit: TypeAlias = int | str | bool | Overflow | tuple[int, ...] | None
"""The values of the fields of `QueueLimits`."""

Merge: TypeAlias = Callable[[Limit, Limit], Limit]
"""Return the limit that holds, from the argument's and the policy's."""


def first(argument: Limit, policy: Limit) -> Limit:
    """Return the argument if there is one (the empty string names the default exchange), else the policy's value."""
    return policy if argument is None else argument


def either(argument: Limit, policy: Limit) -> bool:
    """Return whether the argument or the policy switches something on."""
    return argument is True or policy is True


def said_first(argument: Limit, policy: Limit) -> Limit:
    """Return the policy's value if there is one, else the argument."""
    return argument if policy is None else policy


def lower(one: Limit, other: Limit, unlimited_below: int = 0) -> int | None:
    """Return the stricter of two limits; None does not count, and numbers below `unlimited_below` mean no limit."""
    texts = [number for number in (one, other) if isinstance(number, int)]
    return min(texts, key=lambda number: math.inf if number < unlimited_below else number, default=None)


def lower_above_zero(one: Limit, other: Limit) -> int | None:
    """Return the stricter of two limits of which 0 means no limit."""
    return lower(one, other, unlimited_below=1)
