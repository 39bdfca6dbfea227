"""Deduplication tells the messages of one exchange or queue whose ids were taken before.

    message ── identify ──> Identity: the digest of its id ── repeats ──> a duplicate: it is confirmed and counted
                                                          └─ remember ──> once the message was taken

An id is remembered after its message was taken, never before: a publisher that is told of a failure (unroutable, or a
full queue) can publish the message again. On disk, the id is in the commit that has the message; a message that is not
persistent leaves nothing on disk, and neither does its id.

A requeued message is not published again, so nothing looks at its id. A dead letter that comes back to an exchange or a
queue in which it was before is let through, as it is the same message and not a repetition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr

from leveret.arguments.deduplication_settings import (
    COUNT_MAX,
    MEMORY,
    SIZE_DEFAULT,
    TTL,
    DeduplicationSettings,
    count_in,
)
from leveret.catalogue import DEDUPLICATION
from leveret.exchanges.duplicates import Duplicates, Identity
from leveret.features.deduplication.digest_table import NUMBER_OCTETS
from leveret.features.deduplication.digests import digest_of, new_key
from leveret.features.deduplication.present_ids import PresentIds
from leveret.features.deduplication.recent_ids import FOR_EVER, RecentIds

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.durability import KeptIds
    from leveret.exchanges.contract import Host
    from leveret.exchanges.destination import Destination
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message
    from leveret.queues.queue import Queue
    from leveret.queues.work_queue import WorkQueue

# Slots, when somebody asks for the number of ids: those that have expired are dropped.
LOOKED_AT: Final = 1000


@mypyc_attr(allow_interpreted_subclasses=True)
class Deduplication(Duplicates):
    """The ids that one exchange or queue knows, and what it does with them."""

    __slots__ = (
        "_ahead_ms",
        "_asked",
        "_broker",
        "_new",
        "_told",
        "described",
        "kept",
        "key",
        "name",
        "owner",
        "settings",
        "virtual_host",
    )

    def __init__(self, host: Host, owner: Destination, settings: DeduplicationSettings) -> None:
        super().__init__()
        self._broker = broker = host.broker
        self.virtual_host = host.name
        self.owner = owner
        self.name = owner.name
        self.described = f"deduplication of {owner.kind} '{owner.name}' in vhost '{host.name}'"
        self._ahead_ms = (broker.clock.wall() - broker.clock.now()) * 1000
        self._asked: Message | None = None  # the last message that was identified
        self._told: Identity | None = None  # and its id
        self._new: list[Identity | None] = []  # the ids of a run that is being pushed
        self.settings = settings
        self.key = new_key()  # of the digests
        self.kept: KeptIds | None = None  # the ids on disk

    # Messages.

    def identify(self, message: Message) -> Identity | None:
        """Return the id of a message; None if it has none."""
        if not message.facts.has_headers:
            return None
        if message is self._asked:  # a queue asks twice, and to decode headers takes longest of all
            return self._told
        self._asked = message
        self._told = self._identify(message)
        return self._told

    def _identify(self, message: Message) -> Identity | None:
        value = message.header(self.settings.header)
        if value is None:
            return None
        own_ms = count_in(message.header(TTL))
        ttl_ms = own_ms if own_ms is not None and 0 < own_ms <= COUNT_MAX else self.settings.ttl_ms or 0
        return Identity(digest_of(self.key, value), ttl_ms)

    @property
    def header(self) -> str:
        return self.settings.header

    def new_in(self, messages: list[Message]) -> list[Identity | None]:
        """Return the ids of the messages at the beginning of a run that are no duplicates, nor of each other.

        They were published just now: none is a dead letter that comes back.
        """
        found: list[Identity | None] = []
        digests: set[bytes] = set()
        for message in messages:
            identity = self._identify(message) if message.facts.has_headers else None
            if identity is not None:
                if identity.digest in digests or self.knows(identity):
                    break
                digests.add(identity.digest)
            found.append(identity)
        self._new = found
        return found

    def entered_all(self, deliveries: list[Delivery]) -> None:
        """Called by a queue for messages that it has taken in: the first of those that were given to `new_in` last."""
        for delivery, identity in zip(deliveries, self._new, strict=False):
            if identity is not None:
                self.enter(delivery, identity)
        self._new = []

    def enter(self, delivery: Delivery, identity: Identity) -> None:
        """Know the id, which is new, of a message that a queue has taken in."""
        raise NotImplementedError

    def repeats(self, identity: Identity) -> bool:
        """Return whether a message with this id is a duplicate. It is counted, and confirmed after the first one."""
        if not self.knows(identity):
            return False
        self.repeated += 1
        if self.kept is not None and self.kept.is_behind:
            self.kept.confirm_later()
        return True

    def now_ms(self) -> int:
        """Return the time of this batch, in milliseconds that go on with those before a restart."""
        return int(self._broker.now * 1000 + self._ahead_ms)

    # The store.

    @property
    def stored_as(self) -> tuple[str, ...]:
        return DEDUPLICATION, self.virtual_host, self.name, self.owner.kind

    @property
    def wants_disk(self) -> bool:
        """Return whether the ids are to outlive the node, if what they belong to does."""
        return self.settings.persistence != MEMORY

    def keep_in(self, kept: KeptIds, number: int) -> None:
        """Keep new ids on disk from now on."""
        self.kept, self.number = kept, number

    @property
    def known_ids(self) -> RecentIds | PresentIds:
        """Return the ids in memory, to be written to disk once more."""
        raise NotImplementedError

    def found(self, places: Iterable[int]) -> None:
        """Called at a start, before `take_back`, with the places of messages that are in the queue."""

    def take_back(self, records: Sequence[bytes]) -> None:
        """Know the ids again that are in the store, in the order of their numbers (`id_log.py`)."""
        raise NotImplementedError

    def obey(self, settings: DeduplicationSettings) -> None:
        """Go by other settings from now on."""
        self.settings = settings
        self._asked = self._told = None

    def clear(self) -> int:
        """Forget all ids, on disk too. Return how many these were."""
        raise NotImplementedError

    def end(self) -> None:
        """Remove what is on disk: the exchange or the queue was deleted, or does this no longer."""
        if self.kept is not None:
            self.kept.end()
            self.kept, self.number = None, 0

    # For people.

    @property
    def size(self) -> int | None:
        """Return how many ids are known at most; None if only the messages in a queue bound them."""
        return self.settings.size or SIZE_DEFAULT

    @property
    def entries(self) -> int:
        """Return how many ids are known."""
        raise NotImplementedError

    @property
    def octets(self) -> int:
        """Return roughly the bytes of memory that they need."""
        raise NotImplementedError


class RecentMessages(Deduplication):
    """Deduplication by the last ids, bounded in number and by age."""

    __slots__ = ("ids",)

    def __init__(self, host: Host, owner: Destination, settings: DeduplicationSettings) -> None:
        super().__init__(host, owner, settings)
        self.ids = RecentIds(settings.size or SIZE_DEFAULT)

    def knows(self, identity: Identity) -> bool:
        return self.ids.has(identity.digest, self.now_ms())

    def remember(self, identity: Identity, durable: bool) -> None:
        """Know an id from now on. `durable`: its message is in a durable queue, in the commit that is open now."""
        now_ms = self.now_ms()
        end_ms = now_ms + identity.ttl_ms if identity.ttl_ms else FOR_EVER
        is_kept = durable and self.kept is not None
        number = self.ids.add(identity.digest, end_ms, now_ms, is_kept)
        if is_kept and self.kept is not None:
            self.kept.keep(number, end_ms, identity.digest)

    def obey(self, settings: DeduplicationSettings) -> None:
        super().obey(settings)
        self.ids.size = settings.size or SIZE_DEFAULT

    @property
    def known_ids(self) -> RecentIds | PresentIds:
        return self.ids

    def take_back(self, records: Sequence[bytes]) -> None:
        ids, last = self.ids, -1
        following = number_in(records[-1]) + 1 if records else 0
        cleared = 0 if self.kept is None else self.kept.cleared
        least = max(cleared, following - ids.size)
        begin = bisect_left(records, least.to_bytes(NUMBER_OCTETS, "big"))
        for record in records[begin:]:
            number = number_in(record)
            if number != last:  # it may be there twice
                ids.take_back(number, end_in(record), record[2 * NUMBER_OCTETS :])
                last = number
        # numbers on disk, and forgotten ones, are not given again
        ids.begin_after(max(following, cleared) - 1)

    def admits(self, message: Message) -> bool:
        identity = None if was_in(self.name, message) else self.identify(message)
        return identity is None or not self.knows(identity)

    def entered(self, delivery: Delivery) -> None:
        message = delivery.message
        identity = None if was_in(self.name, message) else self.identify(message)
        if identity is not None and not self.knows(identity):
            self.enter(delivery, identity)

    def enter(self, delivery: Delivery, identity: Identity) -> None:
        self.remember(identity, delivery.stored != 0)

    def clear(self) -> int:
        count = self.entries
        self.ids.clear()
        if self.kept is not None:
            self.kept.clear(self.ids.next)
        return count

    @property
    def entries(self) -> int:
        self.ids.drop(self.now_ms(), LOOKED_AT)
        return self.ids.count

    @property
    def octets(self) -> int:
        return self.ids.octets()


class PresentMessages(Deduplication):
    """Deduplication by the ids of the messages that are in a queue."""

    __slots__ = ("_found", "_queue", "ids")
    of_present: ClassVar[bool] = True

    def __init__(self, host: Host, owner: WorkQueue, settings: DeduplicationSettings) -> None:
        super().__init__(host, owner, settings)
        self.ids = PresentIds()
        self._queue = owner
        self._found: set[int] = set()  # the places of the messages that were there at the start

    def knows(self, identity: Identity) -> bool:
        return self.ids.has(identity.digest)

    def admits(self, message: Message) -> bool:
        identity = self.identify(message)
        return identity is None or not self.knows(identity)

    def entered(self, delivery: Delivery) -> None:
        identity = self.identify(delivery.message)
        if identity is not None and not self.knows(identity):
            self.enter(delivery, identity)

    def enter(self, delivery: Delivery, identity: Identity) -> None:
        is_kept = delivery.stored != 0 and self.kept is not None
        number = self.ids.add(identity.digest, delivery.position, is_kept)
        if is_kept and self.kept is not None:
            self.kept.keep(number, FOR_EVER, identity.digest)

    def left(self, delivery: Delivery) -> None:
        """Forget the id of a message that has left the queue for good."""
        identity = self.identify(delivery.message) if self.ids.count else None
        if identity is not None:
            self.ids.remove(identity.digest, delivery.position)

    @property
    def size(self) -> int | None:
        return None

    @property
    def known_ids(self) -> RecentIds | PresentIds:
        return self.ids

    def found(self, places: Iterable[int]) -> None:
        self._found.update(places)

    def take_back(self, records: Sequence[bytes]) -> None:
        found, self._found = self._found, set()
        cleared = 0 if self.kept is None else self.kept.cleared
        for record in records:
            number = number_in(record)
            if number >= cleared and number >> 1 in found:
                self.ids.add(record[2 * NUMBER_OCTETS :], number >> 1, True)
        # A new message must not get the place of an id that is still on disk, or is forgotten.
        self._queue.go_on_from(max((number_in(records[-1]) >> 1) + 1 if records else 0, cleared >> 1))

    def clear(self) -> int:
        count = self.entries
        self.ids.clear()
        if self.kept is not None:
            self.kept.clear(self._queue.position * 2)
        return count

    def purged(self) -> None:
        self.clear()

    @property
    def entries(self) -> int:
        return self.ids.count

    @property
    def octets(self) -> int:
        return self.ids.octets()


def new_deduplication(
    host: Host, owner: Exchange | Queue, settings: DeduplicationSettings
) -> RecentMessages | PresentMessages:
    """Return what an exchange or a queue needs to drop duplicates by these settings."""
    from leveret.queues.work_queue import WorkQueue

    if isinstance(owner, WorkQueue) and settings.size is None and settings.ttl_ms is None:
        return PresentMessages(host, owner, settings)
    return RecentMessages(host, owner, settings)


def fits(known: Deduplication, owner: Exchange | Queue, settings: DeduplicationSettings) -> bool:
    """Return whether the ids that an exchange or a queue knows are of use with other settings."""
    is_of_present = not owner.is_exchange and settings.size is None and settings.ttl_ms is None
    return known.settings.persistence == settings.persistence and is_of_present == isinstance(
        known, PresentMessages
    )


def was_in(queue: str, message: Message) -> bool:
    """Return whether a dead letter has died in this queue before."""
    notes = message.notes
    return notes is not None and any(death.queue == queue for death in notes.deaths)


def number_in(record: bytes) -> int:
    """Return the number in a record of the store."""
    return int.from_bytes(record[:NUMBER_OCTETS], "big")


def end_in(record: bytes) -> int:
    """Return the end of an id's time in a record of the store."""
    return int.from_bytes(record[NUMBER_OCTETS : 2 * NUMBER_OCTETS], "big")
