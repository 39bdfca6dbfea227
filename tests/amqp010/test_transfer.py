"""message.transfer from a client: where it goes, who may, when it is accepted and complete, what ends the session."""

from __future__ import annotations

import pytest

from leveret.durable.journal import Journal
from leveret.durable.store.memory import MemoryStore
from leveret.message import Message
from leveret.protocols.amqp010.broker.encoding import ENCODING, NO_BODY
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.sequences import SequenceSet
from leveret.protocols.amqp010.codec.types import Struct32
from tests.harness.bench import ClientBench

from .client import ClientSession, SessionEnded, each, ids
from .peer import Peer, session_of

EXPLICIT = c.ACCEPT_MODE_EXPLICIT


@pytest.fixture
def session(session: ClientSession) -> ClientSession:
    session.taken()
    return session


def waiting(bench: ClientBench, queue: str = "q") -> list[Message]:
    return [delivery.message for delivery in bench.queue(queue).waiting()]


def bodies(bench: ClientBench, queue: str = "q") -> list[bytes]:
    return [message.body for message in waiting(bench, queue)]


def delivery(**given: object) -> c.DeliveryProperties:
    return c.DeliveryProperties(routing_key="q", **given)  # type: ignore[arg-type]


# Where it goes.


def test_a_transfer_to_no_destination_goes_through_the_default_exchange(
    bench: ClientBench, session: ClientSession
) -> None:
    session.publish("q", b"one")
    session.send(c.MessageTransfer(), structs=[delivery()], body=b"two")
    session.sync()
    assert bodies(bench) == [b"one", b"two"]


def test_the_destination_is_the_exchange(bench: ClientBench, session: ClientSession) -> None:
    session.bind("q", "amq.topic", "a.#")
    session.publish("a.b", b"in", "amq.topic")
    session.publish("b.a", b"out", "amq.topic")
    session.sync()
    assert [(each.exchange, each.key, each.body) for each in waiting(bench)] == [("amq.topic", "a.b", b"in")]


def test_a_message_without_a_header_or_a_body_is_one(bench: ClientBench, session: ClientSession) -> None:
    session.bind("q", "amq.fanout")
    session.send(c.MessageTransfer("amq.fanout"), sync=True)
    (message,) = waiting(bench)
    assert (message.key, message.properties, message.body) == ("", NO_BODY, b"")


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("body", [None, b""])
def test_no_body_is_told_from_an_empty_one(
    bench: ClientBench, session: ClientSession, body: bytes | None, is_dead: bool
) -> None:
    session.declare("last", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    inbox = session.subscribe("q")
    key = "last" if is_dead else "q"
    session.send(c.MessageTransfer(), structs=[c.DeliveryProperties(routing_key=key)], body=body, sync=True)
    if is_dead:
        session.subscribe("last", "dying")
        session.send(c.MessageReject(ids(session.inboxes["dying"].get().id)), sync=True)
    message = inbox.get()
    assert (message.has_body, message.body) == (body is not None, b"")
    assert not any(isinstance(each, Struct32) for each in message.structs)


def test_a_rejected_message_is_held_until_its_target_has_room(
    bench: ClientBench, session: ClientSession
) -> None:
    to_full = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full"}
    held = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    session.declare("last", {**to_full, **held})
    session.declare("full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    for _ in range(2):
        session.send(
            c.MessageTransfer(), structs=[c.DeliveryProperties(routing_key="last")], body=b"a", sync=True
        )
    session.subscribe("last", "dying")
    for _ in range(2):
        session.send(c.MessageReject(ids(session.inboxes["dying"].get().id)), sync=True)
    letters = bench.queue("last").dead_letters
    assert letters is not None
    assert (letters.count, bench.queue("full").ready) == (1, 1)
    assert len(session.subscribe("full", "inbox").all()) == 2
    assert letters.count == 0


def test_what_nobody_is_bound_for_is_accepted_and_dropped(session: ClientSession) -> None:
    """As qpidd does: discard-unroutable changes nothing."""
    for discard in (True, False):
        id = session.publish(
            "", delivery=c.DeliveryProperties(discard, routing_key="nowhere"), accept_mode=EXPLICIT
        )
        session.sync()
        assert session.taken(c.MessageAccept, c.MessageReject) == [c.MessageAccept(ids(id))]


def test_what_nobody_is_bound_for_goes_to_the_alternate_exchange(
    bench: ClientBench, session: ClientSession
) -> None:
    session.exchange("x", "direct", alternate_exchange="amq.fanout")
    session.bind("q", "amq.fanout")
    session.publish("nowhere", b"lost", "x")
    session.sync()
    assert bodies(bench) == [b"lost"]


def test_an_immediate_message_waits_for_nobody(bench: ClientBench, session: ClientSession) -> None:
    session.publish("", b"early", delivery=delivery(immediate=True))
    session.sync()
    assert bodies(bench) == []
    inbox = session.subscribe("q")
    session.publish("", b"now", delivery=delivery(immediate=True))
    assert inbox.bodies() == [b"now"]


def test_a_deleted_exchange_is_not_remembered(session: ClientSession) -> None:
    session.exchange("x", "fanout")
    session.publish("", b"1", "x")
    session.call(c.ExchangeDelete("x"))
    session.publish("", b"2", "x")
    assert session.ended().code == c.ERROR_CODE_NOT_FOUND


# Who may.


def test_a_transfer_to_an_exchange_that_is_not_there_ends_the_session(session: ClientSession) -> None:
    id = session.publish("q", exchange="nope")
    exception = session.ended().exception
    assert exception is not None
    assert (exception.error_code, exception.command_id) == (c.ERROR_CODE_NOT_FOUND, id)
    assert (exception.class_code, exception.command_code) == (4, 1)


def test_who_may_not_write_to_the_exchange_is_refused(bench: ClientBench) -> None:
    session = session_of(bench, user=bench.user("eve", write="mine"))
    session.publish("q", exchange="amq.direct")
    assert session.ended().code == c.ERROR_CODE_UNAUTHORIZED_ACCESS


def test_a_permission_that_is_taken_away_counts_from_then_on(bench: ClientBench) -> None:
    session = session_of(bench, user=bench.user("eve"))
    session.publish("q", exchange="amq.direct")
    session.sync()
    bench.user("eve", write="")
    session.publish("q", exchange="amq.direct")
    assert session.ended().code == c.ERROR_CODE_UNAUTHORIZED_ACCESS


def test_a_topic_permission_is_asked_for_each_key(bench: ClientBench) -> None:
    session = session_of(bench, user=bench.user("eve"))
    bench.broker.access.set_topic_permissions("eve", "/", "amq.topic", "ours.*", ".*")
    session.publish("ours.1", exchange="amq.topic")
    session.sync()
    session.publish("theirs.1", exchange="amq.topic")
    assert session.ended().code == c.ERROR_CODE_UNAUTHORIZED_ACCESS


def test_a_transfer_to_an_internal_exchange_is_refused(bench: ClientBench, session: ClientSession) -> None:
    bench.host.declare_exchange("hidden", "fanout", False, False, True, None, lambda: None)
    session.publish("q", exchange="hidden")
    assert session.ended().code == c.ERROR_CODE_UNAUTHORIZED_ACCESS


@pytest.mark.parametrize("user_id", [None, b"", b"guest"])
def test_a_user_id_may_be_absent_or_empty_or_ones_own(
    bench: ClientBench, session: ClientSession, user_id: bytes | None
) -> None:
    session.publish("q", b"m", properties=c.MessageProperties(user_id=user_id))
    session.sync()
    assert bodies(bench) == [b"m"]


def test_the_user_id_of_somebody_else_is_refused(bench: ClientBench, session: ClientSession) -> None:
    session.publish("q", b"m", properties=c.MessageProperties(user_id=b"root"))
    assert session.ended().code == c.ERROR_CODE_UNAUTHORIZED_ACCESS
    assert bodies(bench) == []


def test_a_header_that_cannot_be_read_ends_the_session_only(bench: ClientBench) -> None:
    session, other = session_of(bench), session_of(bench, "other")

    class Broken:
        def encode(self) -> bytes:
            return b"\x00\x00\x00\x09\x04\x01\x00"

    session.send(c.MessageTransfer(), structs=[Broken()], body=b"m")
    assert session.ended().code == c.ERROR_CODE_ILLEGAL_ARGUMENT
    other.sync()


# When it is complete.


def test_a_transfer_is_accepted_before_it_is_complete(session: ClientSession) -> None:
    id = session.publish("q", accept_mode=EXPLICIT, sync=True)
    accept, completed = session.taken(c.MessageAccept, c.SessionCompleted)
    assert accept == c.MessageAccept(ids(id))
    assert id in completed.commands


def test_s237_a_transfer_that_is_not_to_be_accepted_is_only_completed(session: ClientSession) -> None:
    id = session.publish("q", sync=True)
    (completed,) = session.taken()
    assert isinstance(completed, c.SessionCompleted)
    assert id in completed.commands


def test_a_transfer_that_says_nothing_of_acceptance_is_only_completed(session: ClientSession) -> None:
    """Python clients leave the mode out, and do not know what to do with message.accept."""
    session.send(c.MessageTransfer(), sync=True, structs=[delivery()])
    assert [type(what) for what in session.taken()] == [c.SessionCompleted]


def test_the_transfers_of_one_read_are_accepted_together(bench: ClientBench, session: ClientSession) -> None:
    peer = session.client
    first = session.next_id
    sent: list[bytes] = []
    send_bytes, peer.send_bytes = peer.send_bytes, sent.append  # type: ignore[method-assign, assignment]
    for number in range(20):
        session.publish("q", accept_mode=EXPLICIT if number != 7 else c.ACCEPT_MODE_NONE)
    peer.send_bytes = send_bytes  # type: ignore[method-assign]
    peer.send_bytes(b"".join(sent))
    peer.read()
    expected = ids((first, first + 6), (first + 8, first + 19))
    assert session.taken(c.MessageAccept) == [c.MessageAccept(expected)]
    session.sync()
    assert set(range(first, first + 20)) <= set(each(session.completed))


def test_s239_a_flush_tells_what_is_complete_now_and_waits_for_nothing(
    bench: ClientBench, session: ClientSession
) -> None:
    first = session.publish("q")
    kept = Kept(bench, session)
    waits = kept.publish(durable=True, sync=False)
    session.taken()
    session.control(c.SessionFlush(completed=True))
    (completed,) = session.taken(c.SessionCompleted)
    assert first in completed.commands
    assert waits not in completed.commands


class Kept:
    """A session, and a durable queue whose store is slow."""

    def __init__(self, bench: ClientBench, session: ClientSession | None = None) -> None:
        self.store = MemoryStore(held=True)
        self.bench = bench
        self.session = session or session_of(bench)
        self.session.declare("kept", durable=True)
        journal = Journal(self.store, bench.broker, {"amqp010": lambda: ENCODING})
        self.queue.number, self.queue.journal = 1, journal
        journal.start(lambda told: told())

    @property
    def queue(self):
        return self.bench.queue("kept")

    def land(self) -> None:
        while self.store.flying is not None:
            self.store.land()
            self.bench.settle()

    def publish(self, durable: bool, sync: bool = True, body: bytes = b"m") -> int:
        mode = c.DELIVERY_MODE_PERSISTENT if durable else c.DELIVERY_MODE_NON_PERSISTENT
        properties = c.DeliveryProperties(delivery_mode=mode, routing_key="kept")
        return self.session.publish("", body, delivery=properties, sync=sync, accept_mode=EXPLICIT)

    def is_complete(self, id: int) -> bool:
        self.session.client.read()
        return id in self.session.completed


@pytest.mark.parametrize("lands", ["while it is detached", "after it has resumed"])
def test_what_was_not_on_disk_when_the_transport_was_lost_is_complete_when_it_is(
    bench: ClientBench, lands: str
) -> None:
    peer = Peer(bench).open()
    kept = Kept(bench, peer.attach("mine"))
    kept.session.control(c.SessionRequestTimeout(60))
    id = kept.publish(durable=True)
    peer.drop()
    if lands == "while it is detached":
        kept.land()
    again = kept.session = Peer(bench).open().attach("mine")
    again.control(c.SessionExpected(SequenceSet.of((0, 0)), None))
    again.control(c.SessionFlush(expected=True, completed=True))
    assert kept.is_complete(id) is (lands == "while it is detached")
    kept.land()
    assert kept.is_complete(id)
    (expected,) = again.taken(c.SessionExpected)
    assert expected.commands == SequenceSet.of((id + 1, id + 1))
    assert [each.message.body for each in kept.queue.waiting()] == [b"m"]


def test_s238_a_durable_message_is_complete_when_it_is_on_disk_sync_or_not(bench: ClientBench) -> None:
    kept = Kept(bench)
    id = kept.publish(durable=True)
    assert not kept.is_complete(id)
    assert not kept.session.taken(c.MessageAccept)
    kept.land()
    assert kept.is_complete(id)
    assert kept.session.taken(c.MessageAccept) == [c.MessageAccept(ids(id))]


def test_a_message_that_is_not_durable_does_not_wait_for_the_disk(bench: ClientBench) -> None:
    kept = Kept(bench)
    assert kept.is_complete(kept.publish(durable=False))


def test_what_comes_after_a_message_on_its_way_to_the_disk_is_not_complete_through_it(
    bench: ClientBench,
) -> None:
    """S234, S237: the later command is complete, the earlier transfer is not."""
    kept = Kept(bench)
    first = kept.publish(durable=True)
    query = kept.session.send(c.QueueQuery("kept"), sync=True)
    kept.session.client.read()
    assert not kept.is_complete(first)
    assert kept.is_complete(query)
    kept.land()
    assert kept.is_complete(first)


def test_the_end_of_a_session_does_not_wait_for_the_disk(bench: ClientBench) -> None:
    kept = Kept(bench)
    kept.publish(durable=True)
    kept.session.detach()
    kept.land()
    assert kept.queue.ready == 1


# What ends the session.


def test_a_full_queue_ends_the_session_that_publishes_and_no_other(bench: ClientBench) -> None:
    session, other = session_of(bench), session_of(bench, "other")
    session.declare("full", {"x-max-length": 2, "x-overflow": "reject-publish"})
    first = [session.publish("full", b"%d" % n) for n in range(2)]
    refused = session.publish("full", b"too much")
    ended = session.ended()
    assert ended.exception is not None
    assert (ended.code, ended.exception.command_id) == (c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, refused)
    assert bodies(bench, "full") == [b"0", b"1"]
    assert set(first) <= set(each(session.completed))
    other.sync()


def test_s236_the_exception_comes_before_anything_says_that_its_command_is_complete(
    bench: ClientBench, session: ClientSession
) -> None:
    good = session.publish("q", b"good", accept_mode=EXPLICIT)
    bad = session.publish("q", b"bad", "nope", accept_mode=EXPLICIT, sync=True)
    session.ended()
    heard = session.heard
    told = [what for what in heard if isinstance(what, c.SessionCompleted) and bad in what.commands]
    assert not told
    assert any(isinstance(what, c.MessageAccept) and good in what.transfers for what in heard)
    assert bodies(bench) == [b"good"]


# How long it lives.


def test_a_ttl_ends_and_counts_down(bench: ClientBench, session: ClientSession) -> None:
    session.publish("", b"short", delivery=delivery(ttl=1000))
    session.publish("", b"long", delivery=delivery(ttl=60_000))
    session.sync()
    bench.advance(10)
    (message,) = session.subscribe("q")
    assert message.body == b"long"
    assert message.delivery.ttl == 50_000


def test_an_expiration_is_a_ttl_from_now_on(bench: ClientBench, session: ClientSession) -> None:
    wall = int(bench.clock.wall())
    session.publish("", b"past", delivery=delivery(expiration=wall - 5))
    session.publish("", b"soon", delivery=delivery(expiration=wall + 5))
    session.publish("", b"later", delivery=delivery(expiration=wall + 500))
    session.sync()
    bench.advance(10)
    assert session.subscribe("q").bodies() == [b"later"]


def test_a_session_that_has_ended_hears_nothing_more(session: ClientSession, bench: ClientBench) -> None:
    session.answers = False
    session.publish("q", b"bad", "nope")
    with pytest.raises(SessionEnded):
        session.sync()
    session.publish("q", b"late")
    assert bodies(bench) == []
