"""Read from arguments and policies how an exchange or a queue is to tell duplicates.

    x-message-deduplication      true: messages with an id that was taken before are confirmed, and not delivered
    x-deduplication-header       the header that has the id; by default one with this same name
    x-cache-size                 how many ids are known at most: the last ones
    x-cache-ttl                  for how many milliseconds an id is known; a message can say so for itself (same name)
    x-cache-persistence          `disk` or `memory`

The names are those of the community plug-in for RabbitMQ (noxdafox/rabbitmq-message-deduplication) and of LavinMQ. An
exchange knows the last ids. A queue with a size or a time knows the last ids, too, whatever has become of their
messages; without both, it knows those of the messages that are in it, waiting or with consumers, as the plug-in does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from leveret.errors import PreconditionFailed
from leveret.limits import QueueLimits
from leveret.values import Table, Timestamp, Value, printed, type_name

DEDUPLICATES: Final = "x-message-deduplication"
HEADER: Final = "x-deduplication-header"
SIZE: Final = "x-cache-size"
TTL: Final = "x-cache-ttl"
PERSISTENCE: Final = "x-cache-persistence"

SIZE_DEFAULT: Final = 1_000_000  # where neither argument nor policy says: 56 MB once there are so many
COUNT_MAX: Final = (1 << 31) - 1  # of ids, and of milliseconds
NAME_MAX: Final = 255  # bytes of a header's name
DISK: Final = "disk"
MEMORY: Final = "memory"


@attrs.frozen
class DeduplicationSettings:
    """The way in which one exchange or queue tells duplicates."""

    header: str = HEADER
    # None: the default, or in a queue without a time: the ids of the messages that are in it.
    size: int | None = None
    ttl_ms: int | None = None
    persistence: str | None = None  # None: on disk if the exchange or queue is durable


def truth_fault(value: Value) -> str | None:
    return None if isinstance(value, bool) else f"unacceptable type '{type_name(value)}'"


def count_fault(value: Value) -> str | None:
    """Check a number of ids or milliseconds, which may be a string of digits, as the plug-in has it."""
    number = count_in(value)
    if number is None:
        return f"'{printed(value)}' is not an integer greater than 0"
    return None if 0 < number <= COUNT_MAX else f"{number} is not between 1 and {COUNT_MAX}"


def persistence_fault(value: Value) -> str | None:
    return None if text_in(value) in (DISK, MEMORY) else f"'{printed(value)}' is not one of {DISK}, {MEMORY}"


def name_fault(value: Value) -> str | None:
    name = text_in(value)
    if name is None:
        return f"unacceptable type '{type_name(value)}'"
    octets = len(name.encode("utf-8", "surrogatepass"))
    return None if 0 < octets <= NAME_MAX else f"a header's name has 1 to {NAME_MAX} bytes, not {octets}"


CHECKS: Final[dict[str, Callable[[Value], str | None]]] = {
    DEDUPLICATES: truth_fault,
    HEADER: name_fault,
    SIZE: count_fault,
    TTL: count_fault,
    PERSISTENCE: persistence_fault,
}
"""The arguments, which are also the keys of policies, and a check of each: what is wrong with a value, or None."""


def text_in(value: Value) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else None


def count_in(value: Value) -> int | None:
    """Return a number of ids or milliseconds; None if it is none."""
    if isinstance(value, bool | Timestamp):
        return None
    if isinstance(value, int):
        return int(value)
    text = text_in(value)
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


def refuse_faulty(arguments: Table, thing: str) -> None:
    """Raise PreconditionFailed if one of these arguments does not fit. `thing` is what is declared, for the text."""
    for name, check in CHECKS.items():
        if name in arguments and (fault := check(arguments[name])) is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {thing}: {fault}")


def settings_in(limits: QueueLimits) -> DeduplicationSettings | None:
    """Return the settings among the limits of a queue, where arguments and policies are merged; None if it has none."""
    if limits.deduplicates is not True:
        return None
    return DeduplicationSettings(
        limits.id_header or HEADER, limits.cache_size, limits.cache_ttl_ms, limits.cache_persistence
    )


def settings_of(arguments: Table, definition: Table, implied: bool = False) -> DeduplicationSettings | None:
    """Return the settings of arguments and of a policy's definition; None if they do not ask for deduplication.

    An argument holds against the policy. `implied`: the type of the exchange asks for it.
    """
    settings = {**definition, **{name: arguments[name] for name in CHECKS if name in arguments}}
    if settings.get(DEDUPLICATES, implied) is not True:
        return None
    return DeduplicationSettings(
        text_in(settings.get(HEADER)) or HEADER,
        count_in(settings.get(SIZE)),
        count_in(settings.get(TTL)),
        text_in(settings.get(PERSISTENCE)),
    )
