"""Checks of values that are asked for: functions from a value to the description of a fault, or None if it is fine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from leveret.limits import MULTIPLIER_MAX, NAME_MAX, PRIORITY_MAX, RETRY_TYPES, TTL_MAX_MS, Overflow
from leveret.selectors.pcre_translation import refusal_of
from leveret.values import Timestamp, Value, printed, type_name

Check: TypeAlias = Callable[[Value], str | None]


def anything(value: Value) -> str | None:
    return None


def or_void(check: Check) -> Check:
    """Return a check that a value is void, or fits `check`."""
    return lambda value: None if value is None else check(value)


def wrong_type(value: Value, expected: str) -> str:
    """Return the fault of a value of the wrong type, by its name in AMQP 0-9-1."""
    return f"unacceptable type '{type_name(value)}', expected {expected}"


def text_fault(value: Value) -> str | None:
    return None if isinstance(value, str | bytes) else wrong_type(value, "a text")


def whole_fault(value: Value) -> str | None:
    whole = isinstance(value, int) and not isinstance(value, bool | Timestamp)
    return None if whole else wrong_type(value, "a whole number")


def truth_fault(value: Value) -> str | None:
    return None if isinstance(value, bool) else wrong_type(value, "true or false")


def between(low: int, high: int | None = None) -> Check:
    """Return a check that a value is a whole number from `low` up to `high`."""

    def fault(value: Value) -> str | None:
        if (wrong := whole_fault(value)) is not None:
            return wrong
        return range_fault(whole(value) or 0, low, high)

    return fault


def range_fault(number: int, low: int, high: int | None) -> str | None:
    if number < 0 <= low:
        return f"{number} is negative"
    if number < low:
        return f"{number} is below the minimum {low}"
    if high is not None and number > high:
        return f"{number} is above the maximum {high}"
    return None


def one_of(*accepted: str) -> Check:
    """Return a check that a value is one of the accepted words."""

    def fault(value: Value) -> str | None:
        if (wrong := text_fault(value)) is not None:
            return wrong
        return None if text(value) in accepted else f"'{printed(value)}' is not one of {', '.join(accepted)}"

    return fault


def expression_fault(value: Value) -> str | None:
    """Return the fault of a value that is no regular expression."""
    if (wrong := text_fault(value)) is not None:
        return wrong
    why = refusal_of(text(value) or "")
    return None if why is None else f"'{printed(value)}' is not a regular expression ({why})"


def header_fault(value: Value) -> str | None:
    if (wrong := text_fault(value)) is not None:
        return wrong
    octets = len((text(value) or "").encode("utf-8", "surrogateescape"))
    return None if 0 < octets <= NAME_MAX else f"a header's name has 1 to {NAME_MAX} bytes, not {octets}"


def age_fault(value: Value) -> str | None:
    if (wrong := text_fault(value)) is not None:
        return wrong
    return (
        None
        if age_ms(value) is not None
        else f"'{printed(value)}' is not an age such as 7D (units Y M D h m s)"
    )


def share_fault(value: Value) -> str | None:
    """Check a share: a number for all levels, or a list with one for each, the lowest level first."""
    listed = value if isinstance(value, list) else [value]
    if len(listed) > PRIORITY_MAX + 1:
        return f"there are no more than {PRIORITY_MAX + 1} levels"
    return next((fault for each in listed if (fault := count_fault(each)) is not None), None)


def text(value: Value) -> str | None:
    """Return an argument as a string, or None if it is not one; bytes that are not UTF-8 become surrogate escapes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else None


def whole(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def age_ms(value: Value) -> int | None:
    """Return an age such as `7D` in milliseconds, or None if it is not an age. As in RabbitMQ, a month has 30 days."""
    match = re.fullmatch(r"([0-9]{1,10})([YMDhms])", text(value) or "")
    return None if match is None else int(match[1]) * _AGE_UNITS_MS[match[2]]


_AGE_UNITS_MS: Final = {
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "D": 86_400_000,
    "M": 30 * 86_400_000,
    "Y": 365 * 86_400_000,
}

count_fault: Final = between(0)
ttl_fault: Final = between(0, TTL_MAX_MS)
expiry_fault: Final = between(1, TTL_MAX_MS)
priority_fault: Final = between(0, PRIORITY_MAX)
percent_fault: Final = between(0, 100)
retry_type_fault: Final = one_of(*RETRY_TYPES)
multiplier_fault: Final = between(1, MULTIPLIER_MAX)
overflow_fault: Final = one_of(*(overflow.value for overflow in Overflow))
