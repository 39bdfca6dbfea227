"""message.subscribe and cancel: who may, on what terms, and what a subscriber is sent."""

from __future__ import annotations

import pytest

from leveret.message import Encoding, Message
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.types import Datetime
from leveret.values import Properties, Table
from tests.harness.bench import ClientBench

from .client import FOREVER, ClientSession, ids
from .peer import Peer, session_of

BROWSING = c.ACQUIRE_MODE_NOT_ACQUIRED


def fill(session: ClientSession, queue: str, count: int, **options: object) -> None:
    for number in range(count):
        session.publish(queue, b"%d" % number, **options)  # type: ignore[arg-type]
    session.sync()


# Who may.


@pytest.mark.parametrize(
    ("queue", "code"),
    [
        ("nope", c.ERROR_CODE_NOT_FOUND),
        ("", c.ERROR_CODE_ILLEGAL_ARGUMENT),
        (None, c.ERROR_CODE_ILLEGAL_ARGUMENT),
    ],
)
def test_a_subscription_needs_a_queue_that_is_there(
    session: ClientSession, queue: str | None, code: int
) -> None:
    id = session.send(c.MessageSubscribe(queue, "d"))
    exception = session.ended().exception
    assert exception is not None
    assert (exception.error_code, exception.command_id) == (code, id)
    assert (exception.class_code, exception.command_code) == (4, 7)


def test_a_destination_is_subscribed_to_once_in_a_session(bench: ClientBench, session: ClientSession) -> None:
    session.call(c.MessageSubscribe("q", "d"))
    session_of(bench, "other").call(c.MessageSubscribe("q", "d"))
    session.send(c.MessageSubscribe("q", "d"))
    assert session.ended().code == c.ERROR_CODE_NOT_ALLOWED
    assert len(bench.queue("q").consumers) == 1


def test_who_may_not_read_from_the_queue_is_refused(bench: ClientBench, session: ClientSession) -> None:
    other = session_of(bench, user=bench.user("eve", read="mine"))
    other.send(c.MessageSubscribe("q", "d"))
    assert other.ended().code == c.ERROR_CODE_UNAUTHORIZED_ACCESS


def test_an_exclusive_subscription_is_the_only_one(bench: ClientBench, session: ClientSession) -> None:
    session.call(c.MessageSubscribe("q", "d", exclusive=True))
    other = session_of(bench, "other")
    other.send(c.MessageSubscribe("q", "d"))
    assert other.ended().code == c.ERROR_CODE_RESOURCE_LOCKED
    session.call(c.MessageCancel("d"))
    session_of(bench, "third").call(c.MessageSubscribe("q", "d"))


def test_an_exclusive_subscription_is_not_to_be_had_beside_others(
    bench: ClientBench, session: ClientSession
) -> None:
    session.call(c.MessageSubscribe("q", "d"))
    session.send(c.MessageSubscribe("q", "e", exclusive=True))
    assert session.ended().code == c.ERROR_CODE_RESOURCE_LOCKED


def test_the_exclusive_queue_of_another_session_is_locked(bench: ClientBench, session: ClientSession) -> None:
    session.declare("mine", exclusive=True, auto_delete=True)
    other = session.client.attach("other")
    other.send(c.MessageSubscribe("mine", "d"))
    assert other.ended().code == c.ERROR_CODE_RESOURCE_LOCKED
    session.call(c.MessageSubscribe("mine", "d"))


# What it is sent.


def test_a_transfer_names_the_destination_and_the_modes(session: ClientSession) -> None:
    fill(session, "q", 1)
    for accept, acquire in ((0, 1), (1, 1), (0, 0)):
        message = session.subscribe("q", f"{accept}{acquire}", accept_mode=accept, acquire_mode=acquire).get()
        assert message.transfer == c.MessageTransfer(f"{accept}{acquire}", accept, acquire)


def test_a_message_comes_as_it_was_sent_and_says_where_it_was_sent_to(session: ClientSession) -> None:
    session.bind("q", "amq.direct", "k")
    properties = c.MessageProperties(
        content_type="text/plain", correlation_id=b"7", application_headers={"a": 1, "b": "x", "c": [True]}
    )
    session.publish("k", b"body", "amq.direct", properties)
    message = session.subscribe("q").get()
    assert message.properties == properties
    assert message.delivery == c.DeliveryProperties(exchange="amq.direct", routing_key="k")
    assert message.body == b"body"


def test_a_message_of_many_frames_comes_whole(session: ClientSession) -> None:
    body = bytes(range(256)) * 1000
    session.publish("q", body)
    assert session.subscribe("q").get().body == body


def test_subscribers_are_served_in_turn(bench: ClientBench, session: ClientSession) -> None:
    other = session_of(bench, "other")
    inboxes = [each.subscribe("q") for each in (session, other)]
    fill(session, "q", 10)
    assert [len(inbox.all()) for inbox in inboxes] == [5, 5]


def test_a_higher_priority_is_served_first(bench: ClientBench, session: ClientSession) -> None:
    low = session.subscribe("q", "low")
    high = session.subscribe("q", "high", arguments={"x-priority": 5})
    fill(session, "q", 3)
    assert (len(low.all()), len(high.all())) == (0, 3)


def test_a_selector_chooses(bench: ClientBench, session: ClientSession) -> None:
    red = session.subscribe("q", "red", arguments={"x-apache-selector": "color = 'red' AND n > 1"})
    for color, n in (("red", 1), ("blue", 2), ("red", 2)):
        properties = c.MessageProperties(application_headers={"color": color, "n": n})
        session.publish("q", f"{color}{n}".encode(), properties=properties)
    assert red.bodies() == [b"red2"]
    assert bench.queue("q").ready == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-apache-selector": "color ="},
        {"x-apache-selector": 7},
        {"x-priority": "high"},
        {"x-priority": True},
    ],
)
def test_terms_that_make_no_sense_are_refused(
    bench: ClientBench, session: ClientSession, arguments: dict[str, object]
) -> None:
    session.send(c.MessageSubscribe("q", "d", arguments=arguments))  # type: ignore[arg-type]
    assert session.ended().code == c.ERROR_CODE_INVALID_ARGUMENT
    assert not bench.queue("q").consumers


def test_terms_that_nobody_knows_are_passed_over(session: ClientSession) -> None:
    session.call(c.MessageSubscribe("q", "d", arguments={"x-unknown": [1], "x-apache-selector": ""}))


def test_there_is_an_end_to_the_subscriptions_of_a_session() -> None:
    bench = ClientBench("[limits]\nconsumers_per_channel_max = 2")
    session = session_of(bench)
    session.declare("q")
    for name in "ab":
        session.call(c.MessageSubscribe("q", name))
    session.send(c.MessageSubscribe("q", "c"))
    assert session.ended().code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED


class Unreadable(Encoding):
    """Another protocol's encoding, at fault."""

    name = "unreadable"

    def headers(self, properties: bytes) -> Table:
        raise ValueError

    def read(self, properties: bytes) -> Properties:
        raise ValueError

    def write(self, properties: Properties) -> bytes:
        raise ValueError


@pytest.mark.parametrize("octets", [FOREVER, 100_000])
def test_a_message_that_cannot_be_read_is_rejected_and_the_others_come(
    bench: ClientBench, session: ClientSession, octets: int
) -> None:
    for number in range(6):
        if number % 2:
            session.publish("q", b"%d" % number)
            session.sync()
        else:
            bench.queue("q").push(Message(Unreadable(), "", "q", b"?", b""))
    inbox = session.subscribe("q", messages=3, octets=octets, flow_mode=c.FLOW_MODE_CREDIT)
    assert inbox.bodies() == [b"1", b"3", b"5"]
    assert bench.queue("q").unsettled == 3
    session.accept(inbox.taken)
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (0, 0)


# Cancelling.


def test_a_cancelled_subscription_gets_no_more(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q")
    session.call(c.MessageCancel("q"))
    fill(session, "q", 1)
    assert inbox.all() == []
    assert not bench.queue("q").consumers
    session.call(c.MessageSubscribe("q", "q"))


@pytest.mark.parametrize(
    "command",
    [
        c.MessageCancel("d"),
        c.MessageFlow("d", 0, 1),
        c.MessageFlush("d"),
        c.MessageStop("d"),
        c.MessageSetFlowMode("d", 0),
    ],
    ids=lambda command: command.NAME,
)
def test_an_unknown_destination_ends_the_session(session: ClientSession, command: c.Command) -> None:
    session.send(command)
    assert session.ended().code == c.ERROR_CODE_NOT_FOUND


# The queue goes.


def test_who_subscribes_to_a_queue_that_another_deletes_is_told(
    bench: ClientBench, session: ClientSession
) -> None:
    other = session_of(bench, "other")
    other.subscribe("q")
    session.call(c.QueueDelete("q"))
    assert other.ended().code == c.ERROR_CODE_RESOURCE_DELETED
    session.sync()


def test_who_deletes_the_queue_that_he_subscribes_to_knows(
    bench: ClientBench, session: ClientSession
) -> None:
    """As the transcript of qpid.messaging has it: delete, then cancel."""
    session.subscribe("q", "d")
    session.call(c.QueueDelete("q"))
    session.call(c.MessageCancel("d"))
    session.sync()


def test_an_auto_delete_queue_goes_with_its_last_subscription(
    bench: ClientBench, session: ClientSession
) -> None:
    session.declare("temp", auto_delete=True)
    session.call(c.MessageSubscribe("temp", "d"))
    session.call(c.MessageCancel("d"))
    assert "temp" not in bench.host.queues


# A session that is detached.


def kept_session(bench: ClientBench) -> ClientSession:
    session = Peer(bench).open().attach("kept")
    session.control(c.SessionRequestTimeout(60))
    session.declare("q")
    return session


def test_a_detached_session_is_sent_nothing_and_goes_on_when_it_is_attached(bench: ClientBench) -> None:
    session = kept_session(bench)
    session.subscribe("q")
    session.client.drop()  # type: ignore[attr-defined]
    publisher = session_of(bench, "publisher")
    fill(publisher, "q", 3)
    assert bench.queue("q").ready == 3
    again = Peer(bench).open().attach("kept")
    again.control(c.SessionExpected(ids(0)))
    again.client.read()
    assert again.inboxes["q"].bodies() == [b"0", b"1", b"2"]
    assert bench.queue("q").unsettled == 3


def test_a_detached_session_that_nobody_attaches_gives_back_what_it_had(bench: ClientBench) -> None:
    session = kept_session(bench)
    session.subscribe("q")
    fill(session, "q", 3)
    session.client.drop()  # type: ignore[attr-defined]
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (0, 3)
    bench.advance(61)
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (3, 0)
    assert not bench.queue("q").consumers


# Streams.


def stream_of(session: ClientSession) -> None:
    session.declare("s", {"x-queue-type": "stream"}, durable=True)
    fill(session, "s", 4)


def test_a_stream_is_read_from_where_the_subscriber_says(session: ClientSession) -> None:
    stream_of(session)
    first = session.subscribe("s", "first", arguments={"x-stream-offset": "first"})
    third = session.subscribe("s", "third", arguments={"x-stream-offset": 2})
    past = session.subscribe("s", "past", arguments={"x-stream-offset": Datetime(0)})
    later = session.subscribe("s", "next")
    assert [inbox.bodies() for inbox in (first, third, past, later)] == [
        [b"0", b"1", b"2", b"3"],
        [b"2", b"3"],
        [b"0", b"1", b"2", b"3"],
        [],
    ]


def test_a_message_of_a_stream_says_its_place_and_stays(bench: ClientBench, session: ClientSession) -> None:
    stream_of(session)
    inbox = session.subscribe("s", arguments={"x-stream-offset": 3})
    assert inbox.get().headers["x-stream-offset"] == 3
    session.accept(inbox.taken)
    browsing = session.subscribe("s", "b", acquire_mode=BROWSING, arguments={"x-stream-offset": "first"})
    assert len(browsing.all()) == 4
    assert session.acquire(browsing.taken) == []
    assert bench.queue("s").unsettled == 0


# Room.


def test_a_slow_reader_holds_up_himself_only(bench: ClientBench) -> None:
    bench = ClientBench("[limits]\noutbox_size_max = 65536")
    session, other = session_of(bench), session_of(bench, "other")
    session.declare("big")
    inbox = session.subscribe("big", messages=FOREVER, flow_mode=c.FLOW_MODE_CREDIT)
    peer = session.client
    read, peer.read = peer.read, lambda: None  # type: ignore[method-assign]
    for _ in range(50):
        other.publish("big", bytes(10_000))
    other.sync()
    assert 0 < bench.queue("big").ready < 50
    peer.read = read  # type: ignore[method-assign]
    assert len(inbox.all()) == 50
