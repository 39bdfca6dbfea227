"""Translate queue arguments of 0-10 clients into the core's, and back into those that are shown to clients.

    qpid.max_count = "5" ── core_arguments ──> the same, and x-max-length = 5, x-overflow = reject-publish
                         <── shown ──────────  without what was added

`MEANINGS` lists the arguments that have an effect, besides the fair shares of single levels, whose names contain
numbers. Every other argument is kept and shown, as brokers of 0-10 do, and has no effect (`argument_rows.py`). Numbers
and booleans are accepted in any form, because clients differ: 5, "5", 1 for true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.arguments import checks
from leveret.limits import PRIORITY_MAX, TTL_MAX_MS
from leveret.protocols.amqp010.broker.core_values import table, wire
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.contract import SessionError
from leveret.values import Int64, Table, printed
from leveret.values import Value as Neutral

if TYPE_CHECKING:
    from leveret.protocols.amqp010.codec.types import Value

ALTERNATE_EXCHANGE: Final = "alternate-exchange"  # of exchanges
ALTERNATE_OF_QUEUE: Final = "x-alternate-exchange"
LVQ_KEY: Final = "qpid.LVQ_key"  # the header for a last-value queue that names none
LEVELS_MAX: Final = PRIORITY_MAX + 1
COUNT_MAX: Final = (1 << 63) - 1

Meaning: TypeAlias = Callable[[str, Table], Table]
"""Return the core's arguments for one that the client has given, with all given ones at hand."""


def core_arguments(
    arguments: Mapping[str, Value] | None, alternate: str | None = None, field_index: int = 0
) -> Table:
    """Return a declaration's arguments and the core's that they mean. Raises SessionError (invalid-argument)."""
    given = table(arguments or {})
    try:
        meant = meaning_of(given)
    except ValueError as fault:
        raise SessionError(c.ERROR_CODE_INVALID_ARGUMENT, str(fault), field_index) from None
    if alternate:
        meant = {**meant, ALTERNATE_OF_QUEUE: alternate}
    return {**given, **meant}


def shown(arguments: Table) -> dict[str, Value]:
    """Return a queue's arguments as they were given."""
    try:
        added = {*meaning_of(arguments), ALTERNATE_OF_QUEUE}
    except ValueError:  # they came over another protocol, where they have no effect
        added = {ALTERNATE_OF_QUEUE}
    return _wire({name: value for name, value in arguments.items() if name not in added})


def shown_of_exchange(arguments: Table) -> dict[str, Value]:
    return _wire({name: value for name, value in arguments.items() if name != ALTERNATE_EXCHANGE})


def _wire(arguments: Table) -> dict[str, Value]:
    found = wire(arguments)
    assert isinstance(found, dict), "a table is a map"
    return found


def meaning_of(given: Table) -> Table:
    """Return the core's arguments for these. Raises ValueError, naming the argument and what is wrong with it."""
    found: dict[str, Neutral] = {}
    for name, meaning in MEANINGS.items():
        if name in given:
            found.update(meaning(name, given))
    found.update(_fair_shares({**given, **found}))
    return found


# Values in any form.


def whole(name: str, given: Table, most: int = COUNT_MAX) -> int:
    value = given[name]
    if isinstance(value, str | bytes | bytearray):
        text = value if isinstance(value, str) else bytes(value).decode("ascii", "replace")
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    else:
        number = value if isinstance(value, int) and not isinstance(value, bool) else -1
    if not 0 <= number <= most:
        raise ValueError(f"{name}: {printed(value)} is no whole number from 0 to {most}")
    return number


def truth(name: str, given: Table) -> bool:
    value = given.get(name)
    if value is None or isinstance(value, int):
        return bool(value)
    text = printed(value).lower()
    if text not in TRUTHS:
        raise ValueError(f"{name}: {printed(value)} is neither true nor false")
    return TRUTHS[text]


TRUTHS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def text(name: str, given: Table) -> str:
    value = given[name]
    if not isinstance(value, str):
        raise ValueError(f"{name}: {printed(value)} is no text")
    return value


# Meanings.


def _count(name: str, given: Table) -> Table:
    return _limit("x-max-length", whole(name, given), given)


def _size(name: str, given: Table) -> Table:
    return _limit("x-max-length-bytes", whole(name, given), given)


def _limit(ours: str, number: int, given: Table) -> Table:
    """Return the limit; 0 means none."""
    policy = given.get("qpid.policy_type", "reject")
    overflow = OVERFLOWS.get(printed(policy).lower(), OVERFLOWS["reject"])
    return {ours: Int64(number), "x-overflow": overflow} if number else {}


def _capacity(name: str, given: Table) -> Table:
    """Return the size at which publishers wait, and the one at which they go on: by default the same, as in Qpid."""
    capacity = whole(name, given)
    if not capacity:
        return {}
    resume = whole(RESUME, given) if RESUME in given else capacity
    return {
        "x-max-length-bytes": Int64(capacity),
        "x-overflow": "producer-flow-control",
        "x-flow-resume-percent": Int64(min(resume, capacity) * 100 // capacity),
    }


RESUME: Final = "x-qpid-flow-resume-capacity"
OVERFLOWS: Final = {
    "reject": "reject-publish",
    "ring": "drop-head",
    "ring_strict": "drop-head",
    "self-destruct": "self-destruct",
    "flow_to_disk": "flow-to-disk",
    "producer_flow_control": "producer-flow-control",
}


def _policy(name: str, given: Table) -> Table:
    if printed(given[name]).lower() not in OVERFLOWS:
        raise ValueError(f"{name}: {printed(given[name])} is not one of {', '.join(OVERFLOWS)}")
    return {}


def _last_value(name: str, given: Table) -> Table:
    return {"x-last-value-key": LVQ_KEY} if truth(name, given) else {}


def _last_value_key(name: str, given: Table) -> Table:
    key = text(name, given)
    return {"x-last-value-key": key} if key else {}


def _priorities(name: str, given: Table) -> Table:
    """Map the ten priorities of 0-10 to the given number of levels: those around the default share the lowest."""
    levels = whole(name, given, LEVELS_MAX)
    if levels < 2:
        return {}
    return {"x-max-priority": Int64(levels - 1), "x-priority-base": Int64(max(0, 5 - (levels + 1) // 2))}


def _groups(name: str, given: Table) -> Table:
    key = text(name, given)
    return {"x-message-group-key": key} if key and truth("qpid.shared_msg_group", given) else {}


def _sequence(name: str, given: Table) -> Table:
    header = text(name, given)
    return {"x-sequence-header": header} if header else {}


def _no_local(name: str, given: Table) -> Table:
    return {"x-no-local": True} if truth(name, given) else {}


def _delay(name: str, given: Table) -> Table:
    seconds = whole(name, given, TTL_MAX_MS // 1000)
    return {"x-auto-delete-delay": Int64(seconds * 1000)} if seconds else {}


def _fair_shares(given: Table) -> Table:
    """Return how many messages of each level are delivered in a row, by arguments for all levels or one. 0 is no
    limit."""
    named = [name for name in given if name in FAIR_SHARES or name.startswith(FAIR_SHARES_OF)]
    if not named:
        return {}
    levels = min(1 + (checks.whole(given.get("x-max-priority")) or 0), LEVELS_MAX)
    if levels == 1 and not any(name in given for name in PRIORITIES):
        raise ValueError(f"{named[0]}: there are no levels to share without qpid.priorities")
    for_all = next((whole(name, given) for name in FAIR_SHARES if name in given), 0)
    of_one = {_level(name): whole(name, given) for name in named if name not in FAIR_SHARES}
    shares = [Int64(of_one.get(level, for_all)) for level in range(levels)]
    is_kept = levels > 1 and any(shares) and not {"x-last-value-key", "x-message-group-key"} & given.keys()
    if not is_kept:
        return {}
    return {"x-fair-share": shares if len({*shares}) > 1 else shares[0]}


def _level(name: str) -> int:
    value = next(name[len(each) :] for each in FAIR_SHARES_OF if name.startswith(each))
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise ValueError(f"{name}: a level is a number from 0 on")
    return int(value)


FAIR_SHARES: Final = ("qpid.fairshare", "x-qpid-fairshare")  # of all levels
FAIR_SHARES_OF: Final = ("qpid.fairshare-", "x-qpid-fairshare-")  # of one level, whose number follows
PRIORITIES: Final = ("qpid.priorities", "x-qpid-priorities")

MEANINGS: Final[Mapping[str, Meaning]] = {
    "qpid.max_count": _count,
    "qpid.max_size": _size,
    "x-qpid-capacity": _capacity,
    "qpid.policy_type": _policy,
    "qpid.last_value_queue": _last_value,
    "qpid.last_value_queue_no_browse": _last_value,
    "qpid.last_value_queue_key": _last_value_key,
    **dict.fromkeys(PRIORITIES, _priorities),  # the second is an older name
    "qpid.group_header_key": _groups,
    "qpid.queue_msg_sequence": _sequence,
    "no-local": _no_local,
    "qpid.auto_delete_timeout": _delay,
}
