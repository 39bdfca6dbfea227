"""Who keeps messages in the store besides work queues: streams, and exchanges that hold messages for later."""

from __future__ import annotations

import pytest

from leveret.broker import Broker, Outcome, Publisher
from leveret.clock import ManualClock
from leveret.durable import recovery, restoration
from leveret.durable.journal import Journal
from leveret.durable.page_reader import whole
from leveret.durable.store import chunk
from leveret.durable.store.memory import MemoryStore
from leveret.exchanges.exchange_type import Exchange, ExchangeType
from leveret.exchanges.standard import STANDARD
from leveret.features.kinds import KINDS
from leveret.message import Facts, Message
from leveret.plugins.delayed_message import DelayedMessage
from leveret.queues.stream import StreamQueue
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Timestamp, Value
from tests.core.fakes import FakeConsumer, waiting

DURABLE = Facts(durable=True)
LARGE = 60_000  # octets of a body: a segment has room for one
TYPES: dict[str, type[ExchangeType]] = {**STANDARD, DelayedMessage.name: DelayedMessage}


class Site:
    """A broker with a stream, and with a delayed exchange before a queue; all of them in one store."""

    def __init__(self, store: MemoryStore | None = None, wall: float = 1e9, **limits: Value) -> None:
        self.store = store or MemoryStore()
        self.clock = ManualClock(now=wall % 977, wall=wall)  # the two have nothing to do with each other
        self.broker = Broker(self.clock, exchange_types=TYPES)
        self.limits = limits
        self.encoding = FakeEncoding(Properties())
        self.journal = Journal(self.store, self.broker, {"fake": lambda: self.encoding})
        restoration.restore(self.broker, self.journal, KINDS)
        self.host = self.broker.add_virtual_host("/")

    def start(self) -> Site:
        recovery.messages(self.broker, self.journal)
        self.journal.start(lambda told: told())
        arguments = {"x-queue-type": "stream", **{k.replace("_", "-"): v for k, v in self.limits.items()}}
        stream = self.host.declare_queue("s", durable=True, arguments=arguments)
        assert isinstance(stream, StreamQueue)
        self.stream = stream
        self.queue = self.host.declare_queue("q", durable=True)
        self.later = self.exchange("later")
        self.broker.settle()
        return self

    def exchange(self, name: str, durable: bool = True) -> Exchange:
        """A delayed exchange that leads to the queue."""
        arguments: dict[str, Value] = {"x-delayed-type": "fanout"}
        made = self.host.declare_exchange(name, DelayedMessage.name, durable=durable, arguments=arguments)
        self.host.bind(made, self.queue, "")
        return made

    def again(self, crash: bool = False, away_s: float = 0, held: bool = False) -> Site:
        """The next start, after a proper end or a crash, and some seconds."""
        if not crash:
            self.journal.close()
        return Site(self.store.reopened(held), self.clock.wall() + away_s, **self.limits).start()

    def publish(self, *bodies: bytes, facts: Facts = DURABLE) -> None:
        for body in bodies:
            self.stream.push(Message(self.encoding, "", "s", b"", body, facts))
        self.broker.settle()

    def delay(self, body: bytes, delay_ms: int, facts: Facts = DURABLE) -> None:
        headers: dict[str, Value] = {"x-delay": delay_ms}
        facts = Facts(facts.durable, facts.priority, has_headers=True)
        message = Message(FakeEncoding(Properties(headers=headers)), self.later.name, "", b"", body, facts)
        assert self.broker.publish(self.later, message) is Outcome.TAKEN
        self.broker.settle()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.broker.tick()
        self.broker.settle()

    def land(self) -> None:
        """Everything becomes durable."""
        while self.store.flying is not None:
            self.store.land()

    def reads(self, start: Value = "first") -> list[tuple[int, str]]:
        """Offsets and bodies that a reader gets."""
        reader = FakeConsumer(self.stream, credit=100, arguments={"x-stream-offset": start})
        self.broker.settle()
        reader.leave()
        return [(delivery.position, delivery.message.body.decode()) for delivery in reader.got]

    def letters(self) -> list[tuple[int, str]]:
        """Offsets, and what the bodies begin with."""
        return [(offset, body[0]) for offset, body in self.reads()]

    @property
    def held(self) -> int:
        return 0 if self.later.holding is None else len(self.later.holding.held)

    @property
    def kept(self) -> int:
        """Entries that the store still needs."""
        return self.journal.known.live


@pytest.fixture
def site() -> Site:
    return Site().start()


@pytest.fixture
def before() -> Site:
    return Site().start()


# Streams.


def test_a_stream_comes_back_with_its_offsets_and_times(before: Site) -> None:
    before.publish(b"a", b"b")
    before.advance(10)
    before.publish(b"c")
    after = before.again(away_s=100)
    assert after.reads() == [(0, "a"), (1, "b"), (2, "c")]
    assert after.reads(Timestamp(1_000_000_005)) == [(2, "c")]
    assert (after.stream.ready, after.stream.ready_bytes) == (3, 3)
    after.publish(b"d")
    assert after.reads(2) == [(2, "c"), (3, "d")]


def test_a_reader_is_shown_the_offsets_of_what_came_back(before: Site) -> None:
    before.publish(b"a", b"b")
    shown = [delivery.message.notes for delivery in before.again().stream.waiting()]
    assert [notes.offset for notes in shown if notes is not None] == [0, 1]


def test_transient_messages_in_a_stream_are_kept_and_priorities_change_no_order(before: Site) -> None:
    before.publish(b"a", facts=Facts(durable=True, priority=1))
    before.publish(b"b", facts=Facts(priority=9))
    before.publish(b"c", facts=Facts(priority=0))
    assert before.again().reads() == [(0, "a"), (1, "b"), (2, "c")]


def test_what_retention_dropped_stays_away() -> None:
    before = Site(x_max_length_bytes=160_000).start()
    for letter in "abcd":
        before.publish(letter.encode() * LARGE)
    assert (before.letters(), before.store.stats().segments) == ([(2, "c"), (3, "d")], 2)
    after = before.again()
    assert (after.letters(), after.stream.ready_bytes) == ([(2, "c"), (3, "d")], 2 * LARGE)
    after.publish(b"e" * LARGE)
    assert after.again().letters() == [(3, "d"), (4, "e")]


def test_the_time_that_the_node_was_away_counts_towards_the_age() -> None:
    before = Site(x_max_age="10s").start()
    before.publish(b"a")
    before.advance(5)
    before.publish(b"b")
    after = before.again(away_s=6)
    assert (after.reads(), after.store.stats().segments) == ([(1, "b")], 1)


def test_the_newest_segment_stays_however_old_until_another_follows() -> None:
    before = Site(x_max_age="10s").start()
    before.publish(b"a", b"b")
    before.advance(20)
    after = before.again(away_s=20)
    assert after.reads() == [(0, "a"), (1, "b")]
    after.publish(b"c")
    assert after.reads() == after.again().reads() == [(2, "c")]


def test_ages_are_looked_at_when_nothing_arrives() -> None:
    site = Site(x_max_age="10s").start()
    for body in (b"a", b"b"):
        site.publish(body)
        site.advance(2)
    site.advance(7)
    assert site.reads() == [(1, "b")]


def test_readers_see_what_is_on_disk_so_that_an_offset_means_one_message() -> None:
    before = Site(MemoryStore(held=True)).start()
    before.land()
    before.publish(b"a")
    assert before.reads() == []
    before.land()
    before.publish(b"lost")
    assert before.reads() == [(0, "a")]
    after = before.again(crash=True)
    after.publish(b"b")
    assert after.reads() == after.again(crash=True).reads() == [(0, "a"), (1, "b")]


def test_the_confirm_of_a_transient_message_in_a_stream_waits_for_the_disk() -> None:
    class Told(Publisher):
        persistent = False
        safe = 0

        def mark(self) -> int:
            return 1

        def taken(self, mark: int) -> None:
            self.safe = mark

    site, publisher = Site(MemoryStore(held=True)).start(), Told()
    site.land()
    site.broker.publishers.append(publisher)
    site.publish(b"a", facts=Facts())
    assert publisher.safe == 0
    site.land()
    assert (publisher.safe, site.reads()) == (1, [(0, "a")])


def test_a_reader_that_waits_at_the_end_gets_what_becomes_durable() -> None:
    site = Site(MemoryStore(held=True)).start()
    site.land()
    reader = FakeConsumer(site.stream, credit=100)
    site.publish(b"a", b"b")
    assert reader.bodies() == ""
    site.land()
    site.broker.settle()
    assert reader.bodies() == "a b"


def test_readers_pass_over_what_is_damaged_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    before = Site().start()
    before.publish(b"a", b"b")
    begin = before.store.stats().segment_octets
    before.publish(b"c", b"d")
    before.publish(b"e")
    before.store.content.segments[before.stream.number, 0].octets[begin + 100] ^= 1
    after = before.again()
    assert after.reads() == [(0, "a"), (1, "b"), (4, "e")]
    assert after.reads(2) == after.reads(3) == [(4, "e")]
    after.publish(b"f")
    assert after.reads(4) == [(4, "e"), (5, "f")]
    (said,) = [record.message for record in caplog.records if "cannot be read" in record.message]
    assert said.startswith(
        "messages 2 to 3 of queue 's' in vhost '/' cannot be read; readers pass over them: "
    )


def test_a_stream_that_is_deleted_leaves_nothing(site: Site) -> None:
    site.publish(b"a", b"b")
    site.host.delete_queue(site.stream)
    site.broker.settle()
    assert (site.store.stats().segments, site.journal.cache.octets, site.journal.logs) == (0, 0, {})


def test_what_is_published_and_deleted_at_once_is_never_written() -> None:
    site = Site(MemoryStore(held=True)).start()
    site.land()
    site.stream.push(Message(site.encoding, "", "s", b"", b"a", DURABLE))
    site.host.delete_queue(site.stream)
    site.broker.settle()
    assert site.store.flying is not None
    assert site.store.flying.appends == []


def test_a_stream_that_was_deleted_in_flight_stays_away() -> None:
    site = Site(MemoryStore(held=True)).start()
    site.land()
    site.publish(b"a")
    site.host.delete_queue(site.stream)
    site.broker.settle()
    site.land()
    assert (site.store.stats().segments, site.again(crash=True).reads()) == (0, [])


def test_files_of_a_stream_that_nobody_knows_go_at_a_start(before: Site) -> None:
    before.publish(b"a")
    del before.store.content.objects['["queue","/","s"]']
    after = before.again(crash=True)
    assert (after.store.stats().segments, after.reads()) == (0, [])
    assert after.stream.number > before.stream.number


def test_a_message_goes_to_a_stream_and_to_a_queue_or_to_neither() -> None:
    site = Site(MemoryStore(held=True)).start()
    site.land()
    fanout = site.host.exchanges["amq.fanout"]
    for queue in (site.stream, site.queue):
        site.host.bind(fanout, queue, "")
    site.broker.settle()
    site.land()
    site.broker.publish(fanout, Message(site.encoding, "", "", b"", b"a", DURABLE))
    site.broker.settle()
    crashed = site.again(crash=True)
    assert (crashed.reads(), waiting(crashed.queue)) == ([], "")
    site.land()
    crashed = site.again(crash=True)
    assert (crashed.reads(), waiting(crashed.queue)) == ([(0, "a")], "a")


def test_a_stream_has_another_incarnation_when_it_is_made_anew(site: Site) -> None:
    before = site.stream.incarnation
    site = site.again()
    assert site.stream.incarnation == before != ""
    site.host.delete_queue(site.stream)
    site = site.again()
    assert site.stream.incarnation not in ("", before)


def test_chunks_that_become_one_keep_the_times_of_their_entries(site: Site) -> None:
    for body in (b"a", b"b", b"c"):
        site.queue.push(Message(site.encoding, "", "q", b"", body, DURABLE))
        site.broker.settle()
        site.advance(1)
    with site.store.reader() as reader:
        parts = [(*whole(reader, first), [first]) for first in (1, 2, 3)]
    once = chunk.rewritten(parts)
    twice = chunk.read(chunk.rewritten([(once.entries, once.messages, [2, 3])]).entries)
    assert [twice.arrival(place) - 10**12 for place in range(2)] == [1000, 2000]


# Exchanges that hold messages.


def test_a_held_message_survives_the_node_and_goes_when_it_is_due(before: Site) -> None:
    before.delay(b"late", 60_000)
    before.delay(b"soon", 30_000)
    after = before.again(away_s=10)
    assert (after.held, waiting(after.queue)) == (2, "")
    after.advance(19.9)
    assert waiting(after.queue) == ""
    after.advance(0.2)
    assert waiting(after.queue) == "soon"
    after.advance(30)
    assert (waiting(after.queue), after.held) == ("soon late", 0)
    assert waiting(after.again().queue) == "soon late"


def test_what_came_due_while_the_node_was_away_goes_at_once_and_in_order(before: Site) -> None:
    before.delay(b"b", 2000)
    before.delay(b"a", 1000, Facts(durable=True, priority=7))
    before.delay(b"c", 2000, Facts(durable=True, priority=3))
    after = before.again(away_s=3600)
    assert (waiting(after.queue), after.held) == ("a b c", 0)


def test_messages_come_back_in_the_order_in_which_they_were_held(site: Site) -> None:
    for body, priority in ((b"a", 9), (b"b", 0)):
        site.delay(body, 2000, Facts(durable=True, priority=priority))
    site = site.again()
    site.delay(b"c", 2000, Facts(durable=True, priority=5))
    site = site.again()
    assert site.later.holding is not None
    assert [held.message.body for held in site.later.holding.held] == [b"a", b"b", b"c"]


def test_a_released_message_is_in_the_exchange_or_in_its_queue_whenever_the_node_crashes() -> None:
    site = Site(MemoryStore(held=True)).start()
    site.delay(b"a", 1000)
    site.land()
    site.advance(1)
    assert site.store.flying is not None
    crashed = site.again(crash=True, away_s=-0.5)  # not due again
    assert (crashed.held, waiting(crashed.queue)) == (1, "")
    site.land()
    crashed = site.again(crash=True)
    assert (crashed.held, waiting(crashed.queue)) == (0, "a")


def test_a_message_is_held_on_disk_if_it_and_its_exchange_are_durable(site: Site) -> None:
    site.delay(b"transient", 1000, Facts())
    site.later = site.exchange("transient", durable=False)
    site.delay(b"in a transient exchange", 1000)
    assert site.kept == 0
    site.advance(1)
    assert waiting(site.queue) == "transient in a transient exchange"


def test_a_message_that_goes_before_its_commit_is_closed_is_never_written() -> None:
    site = Site(MemoryStore(held=True)).start()
    site.delay(b"a", 1000)
    site.host.delete_exchange("later")
    site.broker.settle()
    site.land()
    assert site.store.stats().chunks == 0


def test_deleting_the_exchange_or_its_virtual_host_lets_go_of_what_it_holds(site: Site) -> None:
    site.delay(b"a", 1000)
    site.host.delete_exchange("later")
    site.broker.settle()
    assert (site.kept, site.store.stats().chunks) == (0, 0)
    site.later = site.exchange("later")
    site.delay(b"b", 1000)
    assert site.kept == 1
    site.broker.delete_virtual_host("/")
    site.broker.settle()
    assert site.kept == 0


def test_a_reload_of_the_type_changes_nothing_on_disk(site: Site) -> None:
    site.delay(b"a", 1000)
    site.later.replace_type(DelayedMessage)
    assert (site.kept, site.held) == (1, 1)
    site.advance(1)
    assert (waiting(site.queue), site.held, site.kept) == ("a", 0, 1)


def test_a_type_that_cannot_take_a_message_back_loses_none(caplog: pytest.LogCaptureFixture, before: Site):
    before.delay(b"a", 60_000)
    before.delay(b"b", 60_000)
    before.journal.close()
    broken = Site(before.store.reopened())
    kind = broken.host.exchanges["later"].type
    kind.hold_again = lambda held: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    broken.start()
    assert (broken.held, broken.kept, broken.later.route_errors) == (2, 2, 2)
    assert (
        len([record for record in caplog.records if "failed to hold a message again" in record.message]) == 1
    )
    after = broken.again()
    after.advance(60)
    assert waiting(after.queue) == "a b"


def test_messages_of_a_type_that_does_not_hold_again_are_routed() -> None:
    class Forgetful(DelayedMessage):
        hold_again = ExchangeType.hold_again

    before = Site().start()
    before.delay(b"a", 60_000)
    before.journal.close()
    after = Site(before.store.reopened())
    after.host.exchanges["later"].replace_type(Forgetful)
    after.start()
    assert (waiting(after.queue), after.held, after.kept) == ("a", 0, 1)
