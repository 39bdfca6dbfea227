"""One queue, three protocols: who publishes and who consumes need not know of each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from uuid import UUID

import pytest

from leveret.message import Encoding, Facts, Message
from leveret.protocols.amqp010.broker.encoding import ENCODING as AMQP010
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import DeliveryProperties, MessageProperties, ReplyTo
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Symbol
from leveret.protocols.http.bulk import arrow
from tests.amqp091.peer import channel_of
from tests.amqp10.parts import annotations, application_properties, data, message
from tests.amqp10.peer import session_of as session_10
from tests.harness.bench import ClientBench, StoredBench
from tests.http.press import Press, packed
from tests.http.stand import Stand

from .client import Received
from .peer import session_of

ENCODINGS: dict[str, Encoding] = {each.name: each for each in (AMQP010, AMQP091, AMQP10)}


class Seen:
    """What a consumer has been shown, in words that all three have."""

    def __init__(self, body: bytes, number: object, durable: bool, correlation_id: object, reply_to: object):
        self.body = body
        self.number = number
        self.durable = durable
        self.correlation_id = correlation_id
        self.reply_to = reply_to


class Actor(ABC):
    """A client of one protocol, on a connection of its own."""

    @abstractmethod
    def publish(self, queue: str, body: bytes, number: int, reply_to: str | None = None) -> None:
        """Durable, with the header `number` and the correlation id `c-<number>`."""

    @abstractmethod
    def take(self, queue: str) -> Seen | None:
        """The next message of the queue, accepted."""


class Of010(Actor):
    def __init__(self, bench: ClientBench) -> None:
        self.session = session_of(bench, f"s{len(bench.peers)}")

    def publish(self, queue: str, body: bytes, number: int, reply_to: str | None = None) -> None:
        said = MessageProperties(
            correlation_id=b"c-%d" % number,
            reply_to=None if reply_to is None else ReplyTo(routing_key=reply_to),
            application_headers={"number": number},
        )
        self.session.publish(
            queue, body, properties=said, delivery=DeliveryProperties(delivery_mode=2, routing_key=queue)
        )
        self.session.sync()

    def take(self, queue: str) -> Seen | None:
        inbox = self.session.subscribe(queue, messages=1)
        found: list[Received] = inbox.all()
        self.session.accept(inbox.taken)
        self.session.call(c.MessageCancel(queue))
        if not found:
            return None
        properties = found[0].properties
        reply = properties.reply_to
        return Seen(
            found[0].body,
            found[0].headers["number"],
            found[0].delivery.delivery_mode == 2,
            (properties.correlation_id or b"").decode(),
            None if reply is None else reply.routing_key,
        )


class Of091(Actor):
    def __init__(self, bench: ClientBench) -> None:
        self.channel = channel_of(bench)

    def publish(self, queue: str, body: bytes, number: int, reply_to: str | None = None) -> None:
        said = BasicProperties(
            headers={"number": number}, delivery_mode=2, correlation_id=f"c-{number}", reply_to=reply_to
        )
        self.channel.publish("", queue, body, said)

    def take(self, queue: str) -> Seen | None:
        content = self.channel.get(queue)
        if content is None:
            return None
        said = content.properties
        number = (said.headers or {})["number"]
        return Seen(content.body, number, said.delivery_mode == 2, said.correlation_id, said.reply_to)


class Of10(Actor):
    def __init__(self, bench: ClientBench) -> None:
        self.session = session_10(bench)

    def publish(self, queue: str, body: bytes, number: int, reply_to: str | None = None) -> None:
        address = None if reply_to is None else f"/queues/{reply_to}"
        sender = self.session.sender(f"/queues/{queue}")
        outcome = sender.publish(
            p.Header(durable=True),
            p.Properties(correlation_id=f"c-{number}", reply_to=address),
            application_properties({"number": number}),
            data(body),
        )
        assert outcome == p.Accepted()
        sender.detach()

    def take(self, queue: str) -> Seen | None:
        receiver = self.session.receiver(f"/queues/{queue}", credit=1)
        delivery = receiver.get()
        if delivery is not None:
            receiver.accept(delivery)
        receiver.detach()
        if delivery is None:
            return None
        said = delivery.properties
        number = (delivery.application_properties or {})["number"]
        address = None if said.reply_to is None else said.reply_to.removeprefix("/queues/")
        return Seen(delivery.body, number, bool(delivery.header.durable), said.correlation_id, address)


ACTORS: list[type[Actor]] = [Of010, Of091, Of10]


# Anybody to anybody.


@pytest.mark.parametrize("consumer", ACTORS)
@pytest.mark.parametrize("publisher", ACTORS)
def test_what_one_publishes_another_consumes(
    bench: ClientBench, publisher: type[Actor], consumer: type[Actor]
) -> None:
    bench.host.declare_queue("q")
    publisher(bench).publish("q", b"hello", 7, "answers")
    taken = consumer(bench).take("q")
    assert taken is not None
    assert (taken.body, taken.number, taken.durable) == (b"hello", 7, True)
    assert (taken.correlation_id, taken.reply_to) == ("c-7", "answers")
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (0, 0)


def test_all_of_them_share_a_queue_and_each_message_goes_to_one(bench: ClientBench) -> None:
    bench.host.declare_queue("q")
    actors = [kind(bench) for kind in ACTORS]
    for number in range(12):
        actors[number % 3].publish("q", b"%d" % number, number)
    taken = [actors[number % 3 - 1].take("q") for number in range(13)]
    assert [each and each.number for each in taken] == [*range(12), None]


@pytest.mark.parametrize("responder", ACTORS)
@pytest.mark.parametrize("requester", ACTORS)
def test_requests_are_answered_across_protocols(
    bench: ClientBench, requester: type[Actor], responder: type[Actor]
) -> None:
    bench.host.declare_queue("requests")
    bench.host.declare_queue("answers")
    asking, answering = requester(bench), responder(bench)
    asking.publish("requests", b"how much?", 5, "answers")
    request = answering.take("requests")
    assert request is not None
    assert isinstance(request.correlation_id, str)
    answering.publish(str(request.reply_to), b"much", int(request.correlation_id.removeprefix("c-")))
    answer = asking.take("answers")
    assert answer is not None
    assert (answer.body, answer.correlation_id) == (b"much", "c-5")


def test_an_answer_finds_its_way_through_an_exchange(bench: ClientBench) -> None:
    """As the Java client asks: a queue bound to amq.direct."""
    session = session_of(bench)
    session.declare("answers")
    session.bind("answers", "amq.direct", "answers")
    session.declare("requests")
    session.publish("requests", b"?", properties=MessageProperties(reply_to=ReplyTo("amq.direct", "answers")))
    session.sync()
    answering = session_10(bench)
    receiver = answering.receiver("/queues/requests", credit=1)
    request = receiver.get()
    assert request is not None
    assert request.properties.reply_to == "/exchanges/amq.direct/answers"
    answering.sender(request.properties.reply_to).publish(data(b"!"))
    assert session.subscribe("answers").get().body == b"!"


# Routing and choosing.


def test_headers_of_0_10_are_matched_by_the_headers_exchange(bench: ClientBench) -> None:
    session = session_of(bench)
    for queue, wanted in (("red", "red"), ("blue", "blue")):
        session.declare(queue)
        session.bind(queue, "amq.match", "", {"x-match": "all", "colour": wanted})
    session.publish("", b"r", "amq.match", MessageProperties(application_headers={"colour": "red", "n": 1}))
    session.sync()
    assert (bench.queue("red").ready, bench.queue("blue").ready) == (1, 0)


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("n > 1", [b"2", b"3"]),
        ("colour = 'red'", [b"1", b"3"]),
        ("JMSPriority = 4", [b"1", b"2"]),
        ("JMSPriority = 7 AND n = 3", [b"3"]),
        ("JMSType = 'news'", [b"2"]),
        ("JMSDeliveryMode = 'PERSISTENT'", [b"3"]),
        ("JMSCorrelationID = 'c'", [b"1"]),
        ("colour IS NULL", [b"2"]),
    ],
)
def test_selectors_choose_among_messages_of_0_10(
    bench: ClientBench, selector: str, chosen: list[bytes]
) -> None:
    """For 1.0 and for 0-10 (x-apache-selector) alike."""
    session = session_of(bench)
    session.declare("q")
    plain, better = (
        DeliveryProperties(routing_key="q"),
        DeliveryProperties(routing_key="q", priority=7, delivery_mode=2),
    )
    said = [
        MessageProperties(correlation_id=b"c", application_headers={"n": 1, "colour": "red"}),
        MessageProperties(application_headers={"n": 2, "qpid.subject": "news"}),
        MessageProperties(application_headers={"n": 3, "colour": "red"}),
    ]
    for number, properties in enumerate(said, 1):
        session.publish("q", b"%d" % number, properties=properties, delivery=better if number == 3 else plain)
    session.sync()
    browser = session.subscribe(
        "q", acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED, arguments={"x-apache-selector": selector}
    )
    assert browser.bodies() == chosen
    wanted = {"s": Described(Symbol("apache.org:selector-filter:string"), selector)}
    source = p.Source(address="/queues/q", filter=wanted)
    receiver = session_10(bench).receiver(source, credit=10)
    assert receiver.bodies() == chosen


# History.


def test_a_dead_letter_of_0_10_is_told_to_0_9_1(bench: ClientBench) -> None:
    channel = channel_of(bench)
    channel.declare("dead")
    channel.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    session = session_of(bench)
    said = MessageProperties(content_type="text/plain", application_headers={"a": 1})
    session.publish("q", b"x", properties=said, delivery=DeliveryProperties(ttl=1000, routing_key="q"))
    session.sync()
    bench.advance(1.001)
    content = channel.get("dead")
    assert content is not None
    headers = content.properties.headers or {}
    [death] = headers["x-death"]
    assert (death["reason"], death["queue"], death["original-expiration"]) == ("expired", "q", "1000")
    assert (headers["a"], headers["x-first-death-reason"]) == (1, "expired")
    assert (content.properties.expiration, content.properties.content_type) == (None, "text/plain")


def test_a_dead_letter_of_0_9_1_is_told_to_0_10(bench: ClientBench) -> None:
    channel = channel_of(bench)
    channel.declare("dead")
    channel.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    channel.publish("", "q", b"x", BasicProperties(headers={"a": 1, "CC": []}, expiration="1000", priority=3))
    bench.advance(1.001)
    received = session_of(bench).subscribe("dead").get()
    [death] = received.headers["x-death"]
    assert (death["reason"], death["count"], death["original-expiration"]) == ("expired", 1, "1000")
    assert received.headers["a"] == 1
    assert (received.delivery.ttl, received.delivery.priority) == (None, 3)
    assert (received.delivery.exchange, received.delivery.routing_key) == ("", "dead")


def test_what_0_10_rejects_dies_as_elsewhere(bench: ClientBench) -> None:
    session = session_of(bench)
    session.declare("dead")
    session.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    session.publish("q", b"x")
    inbox = session.subscribe("q")
    inbox.get()
    session.reject(inbox.taken)
    delivery = session_10(bench).receiver("/queues/dead", credit=1).get()
    assert delivery is not None
    [death] = delivery.annotations["x-opt-deaths"].items
    assert (death["reason"], death["queue"]) == ("rejected", "q")


def test_what_1_0_adds_to_a_message_of_0_10_is_a_header(bench: ClientBench) -> None:
    session = session_of(bench)
    session.declare("q")
    session.publish("q", b"x", properties=MessageProperties(application_headers={"a": 1}))
    session.sync()
    receiver = session_10(bench).receiver("/queues/q", credit=1)
    assert receiver.get() is not None
    receiver.answer(p.Modified(delivery_failed=True, message_annotations={Symbol("x-note"): "seen"}))
    receiver.detach()
    received = session.subscribe("q").get()
    assert received.headers == {"a": 1, "x-note": "seen"}
    assert received.delivery.redelivered


def test_the_ttl_that_is_left_is_shown_to_0_10_whoever_published(bench: ClientBench) -> None:
    bench.host.declare_queue("q")
    channel_of(bench).publish("", "q", b"x", BasicProperties(expiration="5000"))
    bench.advance(2)
    assert session_of(bench).subscribe("q").get().delivery.ttl == 3000


# Streams, and what stands beside AMQP.


def of_010(octets: bytes, queue: str) -> Message:
    """A message of 0-10, of which nobody has found out anything yet."""
    return Message(AMQP010, "", queue, octets, b"x", Facts())


def test_a_stream_is_read_by_all_and_tells_offsets(bench: ClientBench) -> None:
    bench.host.declare_queue("log", durable=True, arguments={"x-queue-type": "stream"})
    for kind in ACTORS:
        kind(bench).publish("log", kind.__name__.encode(), 1)
    session = session_of(bench)
    inbox = session.subscribe("log", arguments={"x-stream-offset": "first"})
    found = inbox.all()
    assert [each.body for each in found] == [b"Of010", b"Of091", b"Of10"]
    assert [each.headers["x-stream-offset"] for each in found] == [0, 1, 2]


def test_bulk_answers_hold_messages_of_0_10_as_they_came() -> None:
    pa = pytest.importorskip("pyarrow")
    octets = MessageProperties(application_headers={"a": 1}).encode()
    stand = Stand()
    stand.broker.publish(stand.host.exchange(""), of_010(octets, "s"))
    stand.broker.settle()
    blocks = stand.blocks("from=0").body
    made, _ = arrow.made(blocks, 0, None, 1 << 20, ENCODINGS.get)
    [row] = pa.ipc.open_stream(made).read_all().to_pylist()
    assert (row["encoding"], row["properties"], row["body"]) == ("amqp010", octets, b"x")


def test_messages_of_0_10_may_come_in_over_http() -> None:
    press = Press()
    press.broker.encodings = {
        name: lambda encoding=encoding: encoding for name, encoding in ENCODINGS.items()
    }
    octets = MessageProperties(content_type="text/plain").encode()
    answer = press.ask("POST", "/api/leveret/publish/%2F", packed([of_010(octets, "q")])).content
    assert answer == {"published": 1, "unroutable": 0}
    [delivery] = press.queue.waiting()
    assert delivery.message.encoding is AMQP010
    assert delivery.message.properties == octets
    refused = press.ask("POST", "/api/leveret/publish/%2F", packed([of_010(octets[:-1], "q")]))
    assert refused.status == 400
    assert "cannot be read" in refused.content["reason"]


# Restarts.


def test_durable_messages_of_0_10_survive_a_restart_for_everybody() -> None:
    before = StoredBench()
    session = session_of(before)
    session.declare("q", durable=True)
    ids = [UUID(int=number) for number in range(3)]
    for number, message_id in enumerate(ids):
        said = MessageProperties(message_id=message_id, application_headers={"number": number})
        session.publish(
            "q", b"kept", properties=said, delivery=DeliveryProperties(delivery_mode=2, routing_key="q")
        )
    session.publish("q", b"lost")
    session.sync()
    after = before.again()
    first = session_of(after).subscribe("q", messages=1).get()
    assert (first.body, first.properties.message_id, first.headers) == (b"kept", ids[0], {"number": 0})
    assert first.delivery == DeliveryProperties(
        redelivered=True, delivery_mode=2, exchange="", routing_key="q"
    )
    content = channel_of(after).get("q")
    assert content is not None
    assert content.properties.message_id == ids[1].urn
    delivery = session_10(after).receiver("/queues/q", credit=1).get()
    assert delivery is not None
    assert delivery.properties.message_id == ids[2]
    assert after.queue("q").ready == 0


def test_a_dead_letter_of_0_10_keeps_its_history_over_a_restart() -> None:
    before = StoredBench()
    session = session_of(before)
    session.declare("dead", durable=True)
    session.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}, durable=True)
    session.publish("q", b"x", delivery=DeliveryProperties(delivery_mode=2, ttl=1000, routing_key="q"))
    session.sync()
    before.advance(1.001)
    received = session_of(before.again()).subscribe("dead").get()
    assert [death["reason"] for death in received.headers["x-death"]] == ["expired"]
    assert received.delivery.ttl is None


def test_annotations_and_subject_of_1_0_reach_0_10(bench: ClientBench) -> None:
    bench.host.declare_queue("q")
    sender = session_10(bench).sender("/queues/q")
    sender.send(message(annotations({"x-a": 1}), p.Properties(subject="news"), data(b"x")))
    assert session_of(bench).subscribe("q").get().headers == {"x-a": 1, "qpid.subject": "news"}
