"""Plays records into a virtual host: topology, and what came into queues and left them.

    records ──> Player ──> a virtual host with the same exchanges, queues, bindings, policies and messages

The recording says what happened, and the virtual host does nothing by itself meanwhile: it has no consumers, messages
neither expire nor overflow there, and dead letters come from the recording. A message goes where it went. With a seed
it goes where the exchanges send it now, and those that draw by chance draw from the seed: then the same seed leads to
the same state each time. What is taken from a queue is then its first message, if the recorded one is elsewhere.

Unacknowledged messages stay with the player until `release`, as a broker's stay with its clients.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Final

import attrs

from leveret.arguments.queue_declaration import parse_queue_arguments
from leveret.broker import Broker
from leveret.clock import NEVER, ManualClock
from leveret.delivery import Delivery
from leveret.durable.store.contract import DamagedError
from leveret.durable.store.records import ObjectRecord, text_of
from leveret.durable.store.typed_json import Unreadable
from leveret.errors import Failure
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Exchange, ExchangeType
from leveret.exchanges.missing import missing
from leveret.features.recording import description
from leveret.features.recording.records import RecordKind, SessionRecord
from leveret.features.recording.redaction import digest, read
from leveret.features.standard import equip
from leveret.limits import Overflow, QueueLimits
from leveret.message import Message
from leveret.policy import ApplyTo, Policy
from leveret.queues.observer import QueueObserver
from leveret.queues.stream import StreamQueue
from leveret.queues.work_queue import WorkQueue
from leveret.selectors.parser import compile_selector
from leveret.values import Json
from leveret.virtual_host import RESERVED, VirtualHost

if TYPE_CHECKING:
    from leveret.durable.store.origin import EncodingOf
    from leveret.queues.queue import Queue

TOLD_MAX: Final = 100  # differences of one kind that are told one by one


class PlayedHost(VirtualHost):
    """A virtual host whose queues keep what they are given, however much and however long, until `wake`."""

    sleeps = True

    def apply_queue_policy(self, queue: Queue) -> None:
        if self.sleeps:
            queue.apply(asleep(queue.declared_limits))
        else:
            super().apply_queue_policy(queue)

    def wake(self) -> None:
        """Have queues obey their arguments and policies from now on."""
        self.sleeps = False
        self.apply_policies()


def asleep(limits: QueueLimits) -> QueueLimits:
    """Return limits by which nothing leaves a queue by itself, nor is kept from it; levels and keys stay."""
    return attrs.evolve(
        limits,
        message_ttl_ms=None,
        expires_ms=None,
        max_length=None,
        max_bytes=None,
        overflow=Overflow.DROP_HEAD,
        dead_letter_exchange=None,
        at_least_once=None,
        delivery_limit=None,
        consumer_timeout_ms=None,
        slow_threshold=None,
        max_age_ms=None,
        alternate_exchange=None,
        no_local=False,
        delayed_message=False,
        retry_type=None,
        retry_min_ms=None,
        deduplicates=None,
        fair_share=(),
    )


@attrs.define
class ReplayReport:
    """The outcome of a replay: counts, and what differs from the recording."""

    records: int = 0
    published: int = 0
    delivered: int = 0
    settled: int = 0
    gaps: int = 0
    begin_at: int = 0  # microseconds since 1970-01-01 UTC, as all times of records
    end_at: int = 0
    ended: bool = False  # the recording was stopped, and says what there was at its end
    rerouted: int = 0  # messages that go elsewhere now than when they were recorded
    refused: list[str] = attrs.field(factory=list)  # what could not be played
    differences: list[str] = attrs.field(factory=list)  # from what the recording says of its end

    def to_json(self) -> dict[str, Json]:
        return {
            **attrs.asdict(self),
            "same": self.ended and not self.differences,
        }


class Player:
    """Plays the records of one recording, in their order, into one virtual host."""

    def __init__(
        self, host: PlayedHost, encoding_of: EncodingOf, seed: int | None = None, contents: bool = True
    ) -> None:
        """`contents`: without it only the topology is played."""
        self.host = host
        self.report = ReplayReport()
        self._encoding_of = encoding_of
        self._seed = seed
        self._contents = contents
        self._queues: dict[str, PlayedQueue] = {}
        self._message: Message | None = None  # the message that was published last, and its number
        self._serial = 0
        self._topology: Json = None  # as the recording says it last
        self._listed: dict[str, QueueListing] = {}
        self._unsettled: dict[str, int] = {}  # at the beginning: not known one by one
        self._has_begun = False

    def play(self, record: SessionRecord) -> None:
        """Play the next record."""
        report = self.report
        report.records += 1
        report.begin_at = report.begin_at or record.at
        report.end_at = max(report.end_at, record.at)
        self._queue_clock(record.at)
        play = PLAYS.get(record.kind)
        if play is None or (not self._contents and record.kind not in OF_TOPOLOGY):
            return
        try:
            play(self, ObjectRecord(record.fields), record)
        except (Failure, DamagedError, Unreadable, KeyError) as failure:
            self._refuse(f"{record.kind.name.lower()}: {failure}")

    def _refuse(self, text: str) -> None:
        if len(self.report.refused) < TOLD_MAX and text not in self.report.refused:
            self.report.refused.append(text)

    def _queue_clock(self, at: int) -> None:
        """Let the time of a broker of our own be that of the record."""
        clock = self.host.broker.clock
        if isinstance(clock, ManualClock):
            clock.advance(max(0.0, at / 1e6 - clock.wall()))

    # Topology.

    def _begin(self, content: ObjectRecord, record: SessionRecord) -> None:
        """Forget what was there: everything is described anew after a gap, and in each file."""
        if self._has_begun:
            for played in self._queues.values():
                self.host.delete_queue(played.queue)
            for exchange in list(self.host.exchanges.values()):
                if (
                    exchange.name
                    and not exchange.name.startswith(RESERVED)
                    and exchange.name in self.host.exchanges
                ):
                    self.host.delete_exchange(exchange.name)
            for binding in list(self.host.bindings()):
                self.host.unbind(binding.source, binding.end, binding.key, binding.arguments)
            policies, name = self.host.broker.policies, self.host.name
            for policy in policies.list(name):
                policies.clear(name, policy.name)
            for policy in policies.list_operator(name):
                policies.clear_operator(name, policy.name)
        self._has_begun, self._topology = True, None
        self._queues.clear()
        self._unsettled.clear()

    def _on_topology(self, content: ObjectRecord, record: SessionRecord) -> None:
        """Make everything at the beginning; note what there is at the end."""
        if self._topology is not None:
            self._topology = record.fields
            return
        self._topology = record.fields
        for each in _objects(content.json("policies")):
            self._set_policy(each, operator=False)
        for each in _objects(content.json("operator_policies")):
            self._set_policy(each, operator=True)
        for each in _objects(content.json("exchanges")):
            self._declare_exchange(each)
        for each in _objects(content.json("queues")):
            self._declare_queue(each)
        for each in _objects(content.json("bindings")):
            self._bind(each.text("source"), each.text("to"), each.text("destination"), each)

    def _on_event(self, content: ObjectRecord, record: SessionRecord) -> None:
        name, facts = content.text("event"), ObjectRecord(content.json("facts"))
        host, policies = self.host, self.host.broker.policies
        if name == "exchange.created":
            self._declare_exchange(facts)
        elif name == "exchange.deleted" and facts.text("name") in host.exchanges:
            host.delete_exchange(facts.text("name"))
        elif name == "queue.created":
            self._declare_queue(facts)
        elif name == "queue.deleted" and (played := self._queues.pop(facts.text("name"), None)) is not None:
            host.delete_queue(played.queue)
        elif name in ("queue.paused", "queue.resumed") and facts.text("name") in host.queues:
            host.pause_queue(host.queue(facts.text("name")), name == "queue.paused")
        elif name == "binding.created":
            self._bind(
                facts.text("source_name"),
                facts.text("destination_kind"),
                facts.text("destination_name"),
                facts,
            )
        elif name == "binding.deleted":
            self._unbind(facts)
        elif name == "policy.set":
            self._set_policy(facts, operator=facts.flag("operator"))
        elif name == "policy.cleared":
            clear = policies.clear_operator if facts.flag("operator") else policies.clear
            clear(host.name, facts.text("name"))
            host.apply_policies()

    def _declare_exchange(self, content: ObjectRecord) -> None:
        name, type_ = content.text("name"), content.text("type")
        if name in self.host.exchanges:
            return
        broker = self.host.broker
        kind = broker.exchange_types.get(type_)
        if kind is None:
            self._refuse(f"exchange '{name}' is of the type '{type_}', which is not installed")
            kind = missing(type_, "it is not installed")
        flags = content.flag("durable"), content.flag("auto_delete"), content.flag("internal")
        exchange = Exchange(self.host, name, kind, *flags, content.table("arguments"))
        self.host.add_exchange(exchange)
        if broker.catalogue is not None:
            broker.catalogue.keep(exchange)

    def _declare_queue(self, content: ObjectRecord) -> None:
        name, arguments = content.text("name"), content.table("arguments")
        flags = content.flag("durable"), content.flag("exclusive"), content.flag("auto_delete")
        parse_queue_arguments(name, self.host.name, *flags, arguments)  # refused with its own words
        selector = content.optional_text("selector") if content.has("selector") else None
        queue = self.host.declare_queue(
            name,
            *flags,
            arguments,
            generated=True,
            selector=None if selector is None else compile_selector(selector),
            typed=False,
        )
        if content.flag("paused", False):
            self.host.pause_queue(queue, True)
        self._queues[name] = PlayedQueue(queue)

    def _bind(self, source: str, kind: str, name: str, content: ObjectRecord) -> None:
        key = content.text("key" if content.has("key") else "routing_key")
        self.host.bind(self.host.exchange(source), self._end(kind, name), key, content.table("arguments"))

    def _unbind(self, facts: ObjectRecord) -> None:
        source = self.host.exchanges.get(facts.text("source_name"))
        kind, name = facts.text("destination_kind"), facts.text("destination_name")
        there = self.host.exchanges if kind == "exchange" else self.host.queues
        if source is not None and name in there:
            self.host.unbind(
                source, self._end(kind, name), facts.text("routing_key"), facts.table("arguments")
            )

    def _end(self, kind: str, name: str) -> Destination:
        return self.host.exchange(name) if kind == "exchange" else self.host.queue(name)

    def _set_policy(self, content: ObjectRecord, operator: bool) -> None:
        apply_to = content.text("apply_to" if content.has("apply_to") else "apply-to")
        policy = Policy(
            content.text("name"),
            self.host.name,
            content.text("pattern"),
            content.table("definition"),
            content.whole("priority"),
            ApplyTo(apply_to),
        )
        policies = self.host.broker.policies
        (policies.set_operator if operator else policies.set)(policy)
        self.host.apply_policies()

    # Messages.

    def _on_content(self, content: ObjectRecord, record: SessionRecord) -> None:
        played = self._queues[content.text("queue")]
        message = read(record.raw, self._encoding_of)
        played.begin_with(content.whole("position"), message, content.flag("redelivered"))

    def _on_ready(self, content: ObjectRecord, record: SessionRecord) -> None:
        unsettled = content.json("unsettled")
        if isinstance(unsettled, dict):
            self._unsettled = {name: count for name, count in unsettled.items() if isinstance(count, int)}

    def _on_published(self, content: ObjectRecord, record: SessionRecord) -> None:
        self.report.published += 1
        message = read(record.raw, self._encoding_of)
        self._message, self._serial = message, content.whole("serial")
        exchange = self.host.exchanges.get(message.exchange)
        if (
            exchange is None
            or message.notes is not None
            or (self._seed is None and _draws(type(exchange.type)))
        ):
            return
        recorded = content.texts("queues")
        now = [queue.name for queue in self.host.broker.route(exchange, message).queues]
        if now != recorded:
            self.report.rerouted += 1
        if self._seed is not None:
            for name in now:
                self._queues[name].enter(None, message, False)

    def _on_entered(self, content: ObjectRecord, record: SessionRecord) -> None:
        played = self._queues[content.text("queue")]
        if record.raw:
            message: Message | None = read(record.raw, self._encoding_of)
        else:
            message = self._message if content.whole("serial") == self._serial else None
            if self._seed is not None and message is not None and message.notes is None:
                return  # it went where the exchange sent it
        if message is None:
            raise Unreadable("its message is missing")
        played.enter(content.whole("position"), message, False)

    def _on_delivered(self, content: ObjectRecord, record: SessionRecord) -> None:
        positions = content.json("positions")
        assert isinstance(positions, list), "delivered messages are a list"
        self.report.delivered += len(positions)
        played = self._queues.get(content.text("queue"))
        if played is None:
            return
        for position in positions:
            if isinstance(position, int):
                played.take(position, self._seed is not None)

    def _on_returned(self, content: ObjectRecord, record: SessionRecord) -> None:
        played = self._queues[content.text("queue")]
        position = content.whole("position")
        if played.give_back(position, content.flag("redelivered")) or not record.raw:
            return
        self._count_unknown(content.text("queue"))
        played.enter(position, read(record.raw, self._encoding_of), content.flag("redelivered"))

    def _on_left(self, content: ObjectRecord, record: SessionRecord) -> None:
        self.report.settled += 1
        played = self._queues.get(content.text("queue"))
        if played is not None and not played.drop(content.whole("position"), self._seed is not None):
            self._count_unknown(played.queue.name)

    def _on_purged(self, content: ObjectRecord, record: SessionRecord) -> None:
        if (played := self._queues.get(content.text("queue"))) is not None:
            played.purge()

    def _count_unknown(self, queue: str) -> None:
        """Count off a message that was unacknowledged when the recording began."""
        if self._unsettled.get(queue, 0) > 0:
            self._unsettled[queue] -= 1

    def _on_gap(self, content: ObjectRecord, record: SessionRecord) -> None:
        self.report.gaps += 1

    # The end.

    def _on_listing(self, content: ObjectRecord, record: SessionRecord) -> None:
        listed = self._listed.setdefault(content.text("queue"), QueueListing())
        listed.waiting += _digests(content.json("messages"))
        listed.delayed |= dict(_digests(content.json("delayed"))) if content.has("delayed") else {}
        listed.unsettled = content.optional_whole("unsettled")

    def _on_end(self, content: ObjectRecord, record: SessionRecord) -> None:
        self.report.ended = content.flag("complete")

    def compare(self) -> ReplayReport:
        """Compare topology and queues with what the recording says of its end, and return the report."""
        report = self.report
        if not report.ended:
            return report
        found = description.topology_json(self.host)
        definitions = self._topology if isinstance(self._topology, dict) else {}
        for name in found:
            report.differences += differing(name, definitions.get(name), found[name])
        for queue_name, listed in self._listed.items():
            if (played := self._queues.get(queue_name)) is not None:
                unknown = self._unsettled.get(queue_name, 0)
                report.differences += played.differences(listed, unknown)
        return report

    def fingerprint(self) -> str:
        """Return a digest of what is in the queues, by name and in order, for comparisons of two replays."""
        summed = blake2b(digest_size=16)
        for name in sorted(self._queues):
            summed.update(name.encode("utf-8", "surrogatepass"))
            for delivery in self._queues[name].waiting():
                summed.update(digest(delivery.message).encode())
        return summed.hexdigest()

    def release(self) -> None:
        """Give unacknowledged messages back to their queues, and have these obey their limits from now on."""
        for played in self._queues.values():
            played.release_all()
            played.queue.observe(None)
        self.host.wake()


PLAYS: Final = {
    RecordKind.BEGIN: Player._begin,
    RecordKind.TOPOLOGY: Player._on_topology,
    RecordKind.CONTENT: Player._on_content,
    RecordKind.READY: Player._on_ready,
    RecordKind.EVENT: Player._on_event,
    RecordKind.PUBLISHED: Player._on_published,
    RecordKind.ENTERED: Player._on_entered,
    RecordKind.DELIVERED: Player._on_delivered,
    RecordKind.RETURNED: Player._on_returned,
    RecordKind.LEFT: Player._on_left,
    RecordKind.PURGED: Player._on_purged,
    RecordKind.GAP: Player._on_gap,
    RecordKind.LISTING: Player._on_listing,
    RecordKind.END: Player._on_end,
}
OF_TOPOLOGY: Final = (RecordKind.BEGIN, RecordKind.TOPOLOGY, RecordKind.EVENT, RecordKind.GAP, RecordKind.END)


@attrs.define
class QueueListing:
    """The contents of a queue at the end of a recording: positions and digests."""

    waiting: list[tuple[int, str]] = attrs.field(factory=list)
    delayed: dict[int, str] = attrs.field(factory=dict)
    unsettled: int | None = None


class PlayedQueue(QueueObserver):
    """One queue that is played, with its messages by the positions that they were recorded with."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._waiting: dict[int, Delivery] = {}
        self._taken: dict[int, Delivery] = {}
        self._gone_early: set[int] = set()  # that left before the recording had told of them
        # that were settled with their delivery, which is told afterwards
        self._settled_first: set[int] = set()
        self._entered: Delivery | None = None
        self._offsets: list[int] = []  # of a stream's messages, as they were recorded
        self._content_to = 0  # the offset behind those that were there at the beginning
        queue.observe(self)

    def begin_with(self, position: int, message: Message, redelivered: bool) -> None:
        """Put a message into the queue that was there when the recording began."""
        self.enter(position, message, redelivered)
        self._content_to = position + 1

    def entered(self, delivery: Delivery) -> None:
        self._entered = delivery

    def enter(self, position: int | None, message: Message, redelivered: bool) -> None:
        """Put a message into the queue, at its position; without one, at the end."""
        queue = self.queue
        if position is not None and (position in self._waiting or position in self._taken):
            return  # it was told twice, at the beginning and when it came back
        if position in self._gone_early:
            self._gone_early.discard(position)
            return
        if not isinstance(queue, WorkQueue):
            if position is not None and isinstance(queue, StreamQueue) and not queue.published:
                queue.log.begin_at(position)
            self._offsets.append(queue.published if position is None else position)
            queue.push(message)
            return
        if message.facts.due_ms:
            message.facts = message.facts.due_at(0)
        if position is None or position >= queue.position:
            queue.go_on_from(position or 0)
            self._entered = None
            queue.admit(message)
            delivery = self._entered
            if delivery is None:
                return  # the queue has passed it over
        else:
            delivery = Delivery(message, queue, position, NEVER)
            queue.due(delivery)
        if redelivered:
            delivery.redelivered = queue.came_back = True
        self._waiting[delivery.position if position is None else position] = delivery

    def take(self, position: int, any_will_do: bool) -> None:
        """Take a message off the queue, as a consumer that has not answered."""
        queue = self.queue
        if position in self._settled_first:
            self._settled_first.discard(position)
            return
        delivery = self._waiting.pop(position, None)
        if delivery is None and any_will_do and isinstance(queue, WorkQueue) and position not in self._taken:
            delivery = next(iter(queue.waiting()), None)
            if delivery is not None:
                self._waiting.pop(delivery.position, None)
        if delivery is not None and queue.acquire(delivery.position) is not None:
            self._taken[position] = delivery

    def give_back(self, position: int, redelivered: bool) -> bool:
        """Let a message wait again. Return False if it is not known."""
        delivery = self._taken.pop(position, None)
        if delivery is None:
            return position in self._waiting
        self.queue.release(delivery, failed=False, redelivered=redelivered, until=0.0)
        self._waiting[delivery.position] = delivery
        return True

    def drop(self, position: int, any_will_do: bool) -> bool:
        """Settle a message. Return False if it is not known."""
        if not isinstance(self.queue, WorkQueue):
            return True
        if position not in self._taken:
            self.take(position, any_will_do)
            if any_will_do:
                self._settled_first.add(position)
        delivery = self._taken.pop(position, None)
        if delivery is None:
            self._gone_early.add(position)
            return False
        self.queue.accept(delivery)
        return True

    def purge(self) -> None:
        self.queue.purge()
        self._waiting.clear()

    def waiting(self) -> Iterator[Delivery]:
        return iter(self.queue.waiting())

    def release_all(self) -> None:
        """Give back what was taken."""
        for delivery in self._taken.values():
            self.queue.release(delivery, failed=False, until=0.0)
        self._taken.clear()

    def differences(self, listed: QueueListing, unknown: int) -> Iterator[str]:
        """Yield sentences about what is not here as a listing says; `unknown` are unacknowledged from the start."""
        name, value = self.queue.name, listed.waiting
        if isinstance(self.queue, WorkQueue):
            positions = {id(delivery): position for position, delivery in self._waiting.items()}
            found = [
                (positions.get(id(each), each.position), digest(each.message)) for each in self.waiting()
            ]
        else:
            value, found = self._committed(value)
        later = {position: summed for position, summed in found if position in listed.delayed}
        found = [each for each in found if each[0] not in listed.delayed]
        if len(found) != len(value):
            yield f"queue '{name}': {len(found)} messages are ready, the recording says {len(value)}"
        at = next((at for at, (a, b) in enumerate(zip(found, value, strict=False)) if a != b), None)
        if at is not None:
            what = (
                "other content"
                if found[at][0] == value[at][0]
                else f"position {value[at][0]}, and here {found[at][0]}"
            )
            yield f"queue '{name}': message {at + 1} has {what}"
        if later != listed.delayed:
            yield f"queue '{name}': {len(later)} messages wait for a time, the recording says {len(listed.delayed)}"
        if listed.unsettled is not None and isinstance(self.queue, WorkQueue):
            unsettled = len(self._taken) + unknown
            if unsettled != listed.unsettled:
                yield (
                    f"queue '{name}': {unsettled} messages are unacknowledged, "
                    f"the recording says {listed.unsettled}"
                )

    def _committed(self, rows: list[tuple[int, str]]) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        """Return what a listing of a stream says, and what is here, without messages on their way to the disk.

        At the beginning nobody could see them, so that they are missing here; at the end they are not listed.
        """
        known_from = next((each for each in self._offsets if each >= self._content_to), None)
        rows = [each for each in rows if each[0] < self._content_to or (known_from or each[0] + 1) <= each[0]]
        if not rows:
            return [], []
        summed = [digest(each.message) for each in self.waiting()]
        found = zip(self._offsets[len(self._offsets) - len(summed) :], summed, strict=True)
        return rows, [each for each in found if rows[0][0] <= each[0] <= rows[-1][0]]


def differing(kind: str, value: Json, content: Json) -> Iterator[str]:
    """Yield sentences about objects of one kind that are not on both sides. Their order does not matter."""
    expected = {text_of(each) for each in value} if isinstance(value, list) else set()
    there = {text_of(each) for each in content} if isinstance(content, list) else set()
    for missing_one in sorted(expected - there)[:TOLD_MAX]:
        yield f"{kind.replace('_', ' ')}: missing here: {missing_one}"
    for surplus in sorted(there - expected)[:TOLD_MAX]:
        yield f"{kind.replace('_', ' ')}: not in the recording: {surplus}"


def fresh_player(
    name: str,
    types: Mapping[str, type[ExchangeType]],
    encoding_of: EncodingOf,
    seed: int | None = None,
    contents: bool = True,
) -> Player:
    """Return a player into a new broker in this process, in memory, whose time is that of the recording."""
    chosen = types if seed is None else {known: seeded(kind, seed) for known, kind in types.items()}
    broker = equip(Broker(ManualClock(wall=0.0), exchange_types=chosen))
    host = broker.virtual_hosts[name] = PlayedHost(broker, name)
    return Player(host, encoding_of, seed, contents)


def seeded(kind: type[ExchangeType], seed: int) -> type[ExchangeType]:
    """Return an exchange type that draws from a seed, if it draws at all: it takes a parameter `random` then."""
    if not _draws(kind):
        return kind

    class Seeded(kind):  # type: ignore[misc, valid-type]
        name = kind.name

        def __init__(self, exchange: Exchange) -> None:
            super().__init__(exchange, random=Random(f"{seed}/{exchange.name}"))

    return Seeded


@lru_cache  # it is asked for each message, and a signature takes longer than all else
def _draws(kind: type[ExchangeType]) -> bool:
    """Return whether a type draws by chance: its constructor takes a `random` then."""
    try:
        return "random" in inspect.signature(kind.__init__).parameters
    except ValueError:  # it is compiled, and tells nothing
        return False


def _objects(value: Json) -> Iterator[ObjectRecord]:
    if not isinstance(value, list):
        raise Unreadable("a list is missing")
    return map(ObjectRecord, value)


def _digests(value: Json) -> list[tuple[int, str]]:
    if not isinstance(value, list):
        raise Unreadable("a list is missing")
    return [(each[0], each[1]) for each in value if isinstance(each, list)]
