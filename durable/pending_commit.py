"""Turn the deliveries of a pending commit into columns and numbers: those that arrived, and those that were settled.

    arrivals ── octets_of ──> their bytes
    arrivals ── gathered ───> numbered entries in portions of a chunk, without those settled meanwhile
    settled  ── given_up ───> numbers of those that the store has

This is the hot part of the journal, and compiled. It takes lists, as a call for each message would cost more.
"""

from __future__ import annotations

from array import array
from typing import Final

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.durability import PENDING, Entry
from leveret.durable.store.contract import Entries
from leveret.message import LOWEST, Message

OVERHEAD: Final = 64  # bytes of an entry besides properties and body, roughly
PRIORITY_MAX: Final = 255


class GatheringMoment:
    """The time at which entries are gathered, by both clocks."""

    __slots__ = ("ahead_ms", "wall_ms")

    def __init__(self, wall_s: float, ahead_ms: float) -> None:
        self.wall_ms = int(wall_s * 1000)  # since 1970-01-01 UTC
        self.ahead_ms = ahead_ms  # to add to monotonic milliseconds for those since 1970


class ChunkPortion:
    """The entries of one chunk, and the bytes of its messages, roughly."""

    __slots__ = ("entries", "octets")

    def __init__(self, entries: Entries, octets: int) -> None:
        self.entries = entries
        self.octets = octets


def octets_of(arrivals: list[Entry], begin: int) -> int:
    """Return roughly the bytes of these entries, from index `begin` on."""
    messages = [each.message for each in (arrivals[begin:] if begin else arrivals)]
    return sum([each.size + len(each.properties) for each in messages]) + OVERHEAD * len(messages)


def given_up(settled: list[Entry]) -> list[int]:
    """Return the numbers of settled entries that the store has, and mark all as not stored."""
    numbers = [delivery.stored for delivery in settled if delivery.stored > 0]
    for delivery in settled:
        delivery.stored = 0
    return numbers


def gathered(
    arrivals: list[Entry],
    number: int,
    moment: GatheringMoment,
    volatile: bool,
    octets_max: int,
    entries_max: int,
) -> list[ChunkPortion]:
    """Number the arrivals that are not settled yet, from `number` on, and put them into portions of a chunk.

    A portion has at most `octets_max` bytes and one message, and at most `entries_max` entries.
    """
    portions: list[ChunkPortion] = []
    octets = 0
    last: Message | None = None
    portion: list[Entry] = []
    messages: list[Message] = []
    for delivery in arrivals:
        if delivery.stored != PENDING:
            continue
        if octets > octets_max or len(portion) == entries_max:
            portions.append(ChunkPortion(_entries(portion, messages, moment, volatile), octets))
            last, octets, portion, messages = None, 0, [], []
        message = delivery.message
        if message is not last:
            last = message
            messages.append(message)
            octets += message.size + len(message.properties) + OVERHEAD
        portion.append(delivery)
        delivery.stored = number
        number += 1
    if portion:
        portions.append(ChunkPortion(_entries(portion, messages, moment, volatile), octets))
    return portions


def _entries(
    deliveries: list[Entry], messages: list[Message], moment: GatheringMoment, volatile: bool
) -> Entries:
    """Return entries as columns. Filling column by column costs half of row by row."""
    entries = Entries(deliveries[0].stored, volatile, moment.wall_ms)
    entries.messages = messages
    entries.records = range(len(messages)) if len(messages) == len(deliveries) else _records(deliveries)
    numbers = [
        each.queue.number if isinstance(each, Delivery) else each.holder().number for each in deliveries
    ]
    entries.queues = array("I", numbers)
    entries.positions = array("Q", [each.position for each in deliveries])
    priorities = [each.message.facts.priority for each in deliveries]
    if min(priorities) < 0 or max(priorities) > PRIORITY_MAX:
        priorities = [_kept_priority(each) for each in deliveries]
    entries.priorities = array("B" if min(priorities) >= 0 else "h", priorities)
    expiries = [each.expires_at for each in deliveries]
    if expiries.count(NEVER) == len(expiries):
        entries.expiries = array("Q", bytes(8 * len(expiries)))
    else:
        ahead_ms = moment.ahead_ms
        entries.expiries = array(
            "Q", [0 if at == NEVER else max(1, int(at * 1000 + ahead_ms)) for at in expiries]
        )
    return entries


def _kept_priority(entry: Entry) -> int:
    """Return the priority to be stored of an entry: `LOWEST` only if its holder tells it from none."""
    priority = entry.message.facts.priority
    if priority >= 0:
        return min(priority, PRIORITY_MAX)
    holder = entry.holder()
    return LOWEST if holder.rank(LOWEST) != holder.rank(0) else 0


def _records(deliveries: list[Entry]) -> array[int]:
    """Return for each entry the index of the message that it is a copy of; copies of a message are consecutive."""
    records = array("H")
    last: Message | None = None
    record = -1
    for delivery in deliveries:
        if delivery.message is not last:
            last = delivery.message
            record += 1
        records.append(record)
    return records
