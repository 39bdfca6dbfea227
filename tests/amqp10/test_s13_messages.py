"""Messages from client to client, §13 of the acceptance list: what goes through untouched, and what the broker adds.

Over 1.0 alone, and between 1.0 and 0-9-1: one queue, and consumers of both.
"""

from __future__ import annotations

from struct import pack

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import types as t
from tests.amqp091.peer import Content, channel_of
from tests.harness.bench import ClientBench

from . import messages, samples
from .client import SETTLED
from .controller import Control, in_tx
from .messages import Said
from .parts import SEQUENCE, VALUE, Delivery, annotations, application_properties, data, section
from .peer import bind, declare, declared, session_of, waiting

HELLO = data(b"hello")


@pytest.fixture
def bench(bench: ClientBench) -> ClientBench:
    return declared(bench, ["q2"])


def sent(bench: ClientBench, *sections: bytes | p.Header | p.Properties, to: str = "/queues/q") -> None:
    assert session_of(bench).sender(to).publish(*sections) == p.Accepted()


def got(bench: ClientBench, queue: str = "q") -> Delivery:
    delivery = session_of(bench).receiver(f"/queues/{queue}", credit=1).get()
    assert delivery is not None
    return delivery


def fetched(bench: ClientBench, queue: str = "q") -> Content:
    content = channel_of(bench).get(queue)
    assert content is not None
    return content


# Over 1.0.


def test_s229_a_message_id_of_type_long_is_taken_and_given_on(bench: ClientBench) -> None:
    """Some clients send such ids, which the specification does not know; RabbitMQ takes them."""
    octets = bytes.fromhex("005373c00301557b") + HELLO
    sent(bench, octets)
    assert got(bench).octets.endswith(octets)
    sent(bench, octets, to="/queues/q2")
    assert fetched(bench, "q2").properties.message_id == "123"


@given(messages.messages())
def test_s229_any_message_is_the_same_to_the_bit_for_all_who_get_it(said: Said) -> None:
    if said.properties is not None:
        given = p.decode(said.properties, 0, len(said.properties))[0]
        if given.user_id is not None or given.absolute_expiry_time is not None:
            said = attrs.evolve(said, properties=None)  # somebody else's, or past
    said = attrs.evolve(said, header=None)  # or it would expire
    bench = declared(ClientBench(), ["q", "q2"])
    for queue in ("q", "q2"):
        bind(bench, "amq.fanout", queue)
    sent(bench, said.octets, to="/exchanges/amq.fanout")
    for queue in ("q", "q2"):
        assert got(bench, queue).octets.endswith(said.bare + (said.footer or b""))


@pytest.mark.parametrize("value", [value for value, _ in samples.VALUES], ids=lambda value: repr(value)[:40])
def test_s229_every_type_is_the_same_to_the_bit(bench: ClientBench, value: t.Value) -> None:
    bare = application_properties({"k": value}) + section(VALUE, value)
    sent(bench, bare)
    assert got(bench).bare == bare


LARGE = 10 * 1024 * 1024


def listed(code: int, item: bytes) -> bytes:
    """A section that is a list of so many equal items that it is large."""
    count = LARGE // len(item)
    return bytes((0, 0x53, code, 0xD0)) + pack(">II", 4 + count * len(item), count) + item * count


@pytest.mark.parametrize(
    "body",
    [
        section(VALUE, "x" * LARGE),
        listed(VALUE, b"\x40"),
        listed(VALUE, t.encode(b"x" * 1000)),
        listed(SEQUENCE, t.encode("é" * 1000)),
        data(b"x" * LARGE),
        application_properties({"large": "x" * LARGE}) + HELLO,
    ],
    ids=["string", "list of nulls", "list of binaries", "sequence of strings", "data", "property"],
)
def test_s229_ten_megabytes_are_the_same_to_the_bit(bench: ClientBench, body: bytes) -> None:
    sent(bench, body)
    delivery = got(bench)
    assert delivery.octets.endswith(body)
    assert len(delivery.octets) < len(body) + 100


def test_s228_a_message_is_transient_unless_it_says_otherwise(bench: ClientBench) -> None:
    for header, durable in ((None, False), (p.Header(), False), (p.Header(durable=True), True)):
        sent(bench, *((header, HELLO) if header else (HELLO,)))
        [waiting_] = bench.queue("q").waiting()
        assert waiting_.message.facts.durable is durable
        assert got(bench).header == p.Header(durable=durable, first_acquirer=True)
        bench.host.queue("q").purge()


def test_s228_a_message_that_comes_again_says_so_and_how_often_it_failed(bench: ClientBench) -> None:
    sent(bench, p.Header(durable=True), HELLO)
    receiver = session_of(bench).receiver("/queues/q", credit=10)
    for state, redelivered, count in (
        (p.Released(), False, None),
        (p.Modified(delivery_failed=True), True, None),
        (p.Modified(delivery_failed=True), True, 1),
        (p.Released(), True, 2),
        (p.Accepted(), True, 2),
    ):
        delivery = receiver.get()
        assert delivery.header == p.Header(durable=True, first_acquirer=not redelivered, delivery_count=count)
        receiver.answer(state)
    assert receiver.get() is None


def test_s207_annotations_of_the_broker_do_not_route(bench: ClientBench) -> None:
    forged = annotations({"x-exchange": "", "x-routing-key": "q2"})
    sent(bench, forged, HELLO)
    assert bench.queue("q2").ready == 0
    assert got(bench).annotations == {"x-exchange": "", "x-routing-key": "q"}


def test_s230_annotations_say_where_a_message_was_published_to(bench: ClientBench) -> None:
    bind(bench, "amq.topic", "q", "#")
    sent(bench, annotations({"x-mine": [1]}), HELLO, to="/exchanges/amq.topic/a.%C3%A9")
    assert got(bench).annotations == {"x-mine": [1], "x-exchange": "amq.topic", "x-routing-key": "a.é"}


def test_s230_deaths_are_told_to_both(bench: ClientBench) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    declare(bench, "dying", arguments=arguments)
    for number in range(2):
        sent(bench, p.Header(ttl=t.UInt(1000)), data(b"%d" % number), to="/queues/dying")
    bench.advance(2.0)
    delivery, content = got(bench), fetched(bench)
    [death] = delivery.annotations["x-opt-deaths"].items
    assert {name: death[name] for name in ("queue", "reason", "count", "exchange", "ttl")} == {
        "queue": "dying",
        "reason": "expired",
        "count": 1,
        "exchange": "",
        "ttl": 1000,
    }
    assert isinstance(death["reason"], t.Symbol)
    assert list(death["routing-keys"].items) == ["dying"]
    assert delivery.header == p.Header(durable=False, first_acquirer=False)
    assert delivery.annotations["x-routing-key"] == "q"
    headers = content.properties.headers
    assert content.body == b"1"
    assert headers is not None
    [dead] = headers["x-death"]
    assert (dead["queue"], dead["reason"], dead["count"]) == ("dying", "expired", 1)
    assert (dead["routing-keys"], dead["original-expiration"]) == (["dying"], "1000")
    assert dead["time"] * 1000 == death["first-time"]
    assert headers["x-first-death-queue"] == delivery.annotations["x-first-death-queue"] == "dying"
    assert content.properties.expiration is None


def test_s230_a_death_over_0_9_1_is_told_to_1_0(bench: ClientBench) -> None:
    declare(bench, "dying", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    channel = channel_of(bench)
    channel.publish("", "dying", b"x", BasicProperties(headers={"CC": ["nowhere"]}, expiration="90000"))
    content = channel.get("dying", no_ack=False)
    assert content is not None
    channel.reject(content.method.delivery_tag)
    delivery = got(bench)
    [death] = delivery.annotations["x-opt-deaths"].items
    assert (death["reason"], list(death["routing-keys"].items)) == ("rejected", ["dying", "nowhere"])
    assert "x-cc" not in delivery.annotations
    assert "x-death" not in delivery.annotations
    assert delivery.header.ttl is None


# Copies.


@pytest.mark.parametrize("target", ["/queues/q", "/exchanges/amq.direct/q", None])
def test_s208_x_cc_sends_copies(bench: ClientBench, target: str | None) -> None:
    for queue in ("q", "q2"):
        bind(bench, "amq.direct", queue, queue)
    properties = p.Properties(to=None if target else "/queues/q")
    sent(bench, annotations({"x-cc": ["q2", "q2", "nowhere"]}), properties, HELLO, to=target)
    for queue in ("q", "q2"):
        assert got(bench, queue).annotations["x-cc"] == ["q2", "q2", "nowhere"]
        assert bench.queue(queue).ready == 0


def test_s208_a_bad_x_cc_is_released_and_ends_a_link_to_an_address(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q")
    number = sender.send(annotations({"x-cc": "q2"}), HELLO)
    text = "bad value for 'x-cc' message-annotation: {utf8,<<\"q2\">>}"
    assert sender.refusal() == f"amqp:invalid-field {text}"
    assert sender.outcome(number) == p.Released()
    assert waiting(bench, "q") == []


@pytest.mark.parametrize("settled", [False, True])
def test_s208_a_bad_x_cc_is_rejected_on_the_anonymous_terminus(bench: ClientBench, settled: bool) -> None:
    sender = session_of(bench).sender(None, snd_settle_mode=SETTLED if settled else None)
    bad = (annotations({"x-cc": [1]}), p.Properties(to="/queues/q"), HELLO)
    text = "amqp:invalid-field bad value for 'x-cc' message-annotation: {list,[{int,1}]}"
    if settled:
        sender.send(*bad, settled=True)
        assert sender.refusal() == text
    else:
        assert sender.rejection(*bad) == text
    assert waiting(bench, "q") == []


@pytest.mark.parametrize("key", [t.Symbol("reserved"), t.ULong(1)])
def test_s209_a_reserved_annotation_ends_the_link(bench: ClientBench, key: t.Value) -> None:
    sender = session_of(bench).sender("/queues/q")
    sender.send(section(0x72, {key: 1}), HELLO)
    said = f'{{symbol,<<"{key}">>}}' if isinstance(key, str) else f"{{ulong,{key}}}"
    text = f"failed to parse message: {{reserved_annotation_key,{said}}}"
    assert sender.refusal() == f"amqp:decode-error {text}"
    assert waiting(bench, "q") == []


# What the broker acts on.


def test_x071_a_message_expires_as_its_header_says(bench: ClientBench) -> None:
    sent(bench, p.Header(ttl=t.UInt(1000)), data(b"short"))
    sent(bench, p.Header(ttl=t.UInt(5000)), data(b"long"))
    bench.advance(2.0)
    assert got(bench).body == b"long"


@pytest.mark.parametrize("arguments", [{}, {"x-message-ttl": 3000}, {"x-message-ttl": 60000}])
def test_x071_a_ttl_goes_to_receivers_less_the_time_in_the_queue(arguments: dict[str, int]) -> None:
    """Part 3, section 3.2.1; 0-9-1 has it as it was published."""
    bench = ClientBench()
    declare(bench, "q", arguments=arguments)
    for wait_s in (0.5, 1.0, 1.0):
        sent(bench, p.Header(ttl=t.UInt(5000)), HELLO)
        channel_of(bench).publish("", "q", b"", BasicProperties(expiration="5000"))
        bench.advance(wait_s)
    receiver = session_of(bench).receiver("/queues/q", credit=5)
    assert [each.header.ttl for each in receiver.all()] == [2500, 2500, 3000, 3000, 4000]
    assert fetched(bench).properties.expiration == "5000"


def test_x071_what_is_left_of_a_ttl_is_never_none(bench: ClientBench) -> None:
    sent(bench, p.Header(ttl=t.UInt(5)), HELLO)
    bench.advance(0.0049)
    assert got(bench).header.ttl == 1


def test_x071_a_redelivery_has_less_to_live(bench: ClientBench) -> None:
    sent(bench, p.Header(ttl=t.UInt(5000)), HELLO)
    link = session_of(bench).receiver("/queues/q", credit=1)
    link.answer(p.Released(), link.get())
    bench.advance(2.0)
    assert got(bench).header.ttl == 3000


@pytest.mark.parametrize("transactional", [False, True])
def test_x071_a_message_expires_at_its_absolute_expiry_time(bench: ClientBench, transactional: bool) -> None:
    now = int(bench.broker.clock.wall() * 1000)
    session = session_of(bench)
    sender, control = session.sender("/queues/q"), Control(session)
    tx = control.declare()
    state = {"state": in_tx(tx)} if transactional else {}
    for number in range(40):  # some in one read, alike but for their times
        at = p.Properties(absolute_expiry_time=t.Timestamp(now + 1000 * (1 + number % 4)))
        sender.send(at, data(b"%d" % number), settle=number % 8 == 7, **state)
    bench.settle()
    assert control.commit(tx) == p.Accepted()
    bench.advance(2.5)
    left = session_of(bench).receiver("/queues/q", credit=100).bodies()
    assert left == [b"%d" % number for number in range(40) if number % 4 > 1]


def test_x071_a_ttl_counts_before_an_absolute_expiry_time_and_the_past_is_over(bench: ClientBench) -> None:
    now = int(bench.broker.clock.wall() * 1000)
    sent(
        bench, p.Header(ttl=t.UInt(5000)), p.Properties(absolute_expiry_time=t.Timestamp(now + 1)), data(b"1")
    )
    sent(bench, p.Properties(absolute_expiry_time=t.Timestamp(now - 1)), data(b"2"))
    sent(bench, p.Properties(creation_time=t.Timestamp(now - 1)), data(b"3"))
    bench.advance(0.01)
    assert session_of(bench).receiver("/queues/q", credit=9).bodies() == [b"1", b"3"]


def test_x071_messages_of_higher_priority_come_first() -> None:
    bench = ClientBench()
    declare(bench, "q", arguments={"x-max-priority": 10})
    for priority in (None, 3, 9, 0, 5):
        sent(bench, p.Header(priority=None if priority is None else t.UByte(priority)), HELLO)
    channel_of(bench).publish("", "q", b"", BasicProperties(priority=7))
    receiver = session_of(bench).receiver("/queues/q", credit=10)
    assert [delivery.header.priority for delivery in receiver.all()] == [9, 7, 5, None, 3, 0]


@pytest.mark.parametrize(("profile", "order"), [("default", b"5 - 3"), ("rabbitmq-4", b"5 3 -")])
def test_x071_a_message_without_priority_has_that_of_its_protocol(profile: str, order: bytes) -> None:
    bench = ClientBench(f'compat.profile = "{profile}"')
    declare(bench, "q", durable=True, arguments={"x-max-priority": 10})
    channel = channel_of(bench)
    channel.publish("", "q", b"3", BasicProperties(priority=3))
    for _ in range(2):
        sent(bench, data(b"-"))
    channel.publish("", "q", b"5", BasicProperties(priority=5))
    receiver = session_of(bench).receiver("/queues/q", credit=10)
    bench.advance(1)  # deliveries pause there after an attach
    assert b" ".join(dict.fromkeys(receiver.bodies())) == order


# Between the protocols.


def test_s231_s232_each_gets_what_the_other_has_published(bench: ClientBench) -> None:
    channel_of(bench).publish(
        "",
        "q",
        b"from 0-9-1",
        BasicProperties("a/b", headers={"n": 1, "x-n": 2}, delivery_mode=2, reply_to="q2"),
    )
    delivery = got(bench)
    assert delivery.body == b"from 0-9-1"
    assert delivery.properties == p.Properties(content_type=t.Symbol("a/b"), reply_to="/queues/q2")
    assert (delivery.application_properties, delivery.annotations["x-n"]) == ({"n": 1}, 2)
    said = p.Properties(reply_to="/queues/q2", group_id="g", subject="s")
    header = p.Header(durable=True, priority=t.UByte(1))
    sent(bench, header, said, application_properties({"n": t.UShort(1)}), data(b"from"), data(b" 1.0"))
    content = fetched(bench)
    assert content.body == b"from 1.0"
    expected = BasicProperties(headers={"n": 1}, delivery_mode=2, priority=1, reply_to="q2", app_id="g")
    assert content.properties == expected
    assert type(content.properties.headers["n"]) is wire.UInt16


def test_one_message_is_shown_to_each_in_his_own_protocol() -> None:
    bench = declared(ClientBench(), ["a", "b"])
    receivers, channels = [], []
    for queue in ("a", "b"):
        bind(bench, "amq.fanout", queue)
    for _ in range(2):
        receivers.append(session_of(bench).receiver("/queues/a", credit=10))
        channel = channel_of(bench)
        channel.consume("b", no_ack=True)
        channels.append(channel)
    for _ in range(2):
        sent(bench, p.Properties(message_id="m"), section(VALUE, "text"), to="/exchanges/amq.fanout")
        channel_of(bench).publish("amq.fanout", "", b"octets", BasicProperties(message_id="m"))
    shown = [delivery for receiver in receivers for delivery in receiver.all()]
    assert sorted(repr(delivery.body) for delivery in shown) == ["'text'"] * 2 + ["b'octets'"] * 2
    assert all(delivery.properties.message_id == "m" for delivery in shown)
    contents = [content for channel in channels for content in channel.deliveries()]
    assert sorted((content.properties.type or "", content.body) for content in contents) == [
        *[("", b"octets")] * 2,
        *[("amqp-1.0", section(VALUE, "text"))] * 2,
    ]


def test_a_copy_for_nobody_to_see_is_seen_by_nobody(bench: ClientBench) -> None:
    headers: wire.FieldTable = {"CC": ["q"], "BCC": ["q2"]}
    channel_of(bench).publish("", "nowhere", b"x", BasicProperties(headers=headers))
    for queue in ("q", "q2"):
        delivery = got(bench, queue)
        assert delivery.annotations["x-cc"] == ["q"]
        assert b"q2" not in delivery.octets


def test_a_question_over_one_protocol_is_answered_over_the_other(bench: ClientBench) -> None:
    channel = channel_of(bench)
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    question = BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="urn:uuid:" + 36 * "0")
    channel.publish("", "q", b"question", question)
    asked = got(bench).properties
    session_of(bench).sender(None).publish(
        p.Properties(to=asked.reply_to, correlation_id=asked.correlation_id), data(b"answer")
    )
    [answer] = channel.deliveries()
    assert (answer.body, answer.properties.correlation_id) == (b"answer", question.correlation_id)


MATCHING: list[tuple[t.Value, wire.FieldValue]] = [
    *((of(5), 5) for of in (t.UInt, t.UByte, t.UShort, t.ULong, t.Long)),
    (5.0, 5),
    (t.Symbol("s"), "s"),
    (b"s", "s"),
    (t.Timestamp(5000), wire.Timestamp(5)),
    (True, True),
    (t.Array(b"\x52", [t.UInt(1)]), [1]),
]


@pytest.mark.parametrize(("value", "wanted"), MATCHING)
def test_a_headers_exchange_compares_by_value_whatever_the_type(
    bench: ClientBench, value: t.Value, wanted: wire.FieldValue
) -> None:
    channel = channel_of(bench)
    channel.bind("q", "amq.headers", arguments={"k": wanted})
    channel.bind("q2", "amq.headers", arguments={"x-match": "all-with-x", "x-k": wanted})
    sender = session_of(bench).sender("/exchanges/amq.headers")
    assert sender.publish(application_properties({"k": value}), HELLO) == p.Accepted()
    assert sender.publish(annotations({"x-k": value}), HELLO) == p.Accepted()
    assert sender.publish(application_properties({"k": "other"}), HELLO) == p.Released()
    assert sender.publish(HELLO) == p.Released()
    assert (bench.queue("q").ready, bench.queue("q2").ready) == (1, 1)


def test_a_place_in_a_stream_is_told_to_both() -> None:
    bench = ClientBench()
    declare(bench, "s", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(2):
        sent(bench, p.Properties(message_id=str(number)), section(VALUE, number), to="/queues/s")
    channel_of(bench).publish("", "s", b"2", BasicProperties(message_id="2"))
    source = p.Source(
        address="/queues/s",
        filter={t.Symbol("first"): t.Described(t.Symbol("rabbitmq:stream-offset-spec"), "first")},
    )
    deliveries = session_of(bench).receiver(source, credit=10).all()
    channel = channel_of(bench)
    channel.prefetch(10)
    channel.consume("s", arguments={"x-stream-offset": "first"})
    contents = channel.deliveries()
    assert [delivery.annotations["x-stream-offset"] for delivery in deliveries] == [0, 1, 2]
    assert [delivery.properties.message_id for delivery in deliveries] == ["0", "1", "2"]
    assert [content.properties.headers["x-stream-offset"] for content in contents] == [0, 1, 2]
    assert [content.properties.message_id for content in contents] == ["0", "1", "2"]


def test_a_1_0_message_may_be_returned_to_the_queue_by_a_0_9_1_consumer(bench: ClientBench) -> None:
    sent(bench, p.Header(durable=True), p.Properties(subject="s"), HELLO)
    channel = channel_of(bench)
    content = channel.get("q", no_ack=False)
    assert content is not None
    channel.nack(content.method.delivery_tag)
    again = channel.get("q", no_ack=False)
    assert again is not None
    assert (again.method.redelivered, again.body) == (True, b"hello")
    channel.nack(again.method.delivery_tag)
    delivery = got(bench)
    assert delivery.bare == p.Properties(subject="s").encode() + HELLO
    assert delivery.header == p.Header(durable=True, first_acquirer=False, delivery_count=2)


@given(samples.values)
def test_no_value_keeps_a_message_from_anybody(value: t.Value) -> None:
    bench = declared(ClientBench(), ["q"])
    said = annotations({"x-v": value}), application_properties({"v": value}), section(VALUE, value)
    for _ in range(2):
        sent(bench, *said)
    assert got(bench).octets.endswith(section(VALUE, value))
    assert fetched(bench).body == section(VALUE, value)


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_no_name_or_body_keeps_a_message_from_anybody(key: bytes, body: bytes) -> None:
    bench = declared(ClientBench(), ["q"])
    bind(bench, "amq.fanout", "q")
    channel = channel_of(bench)
    name = key.decode("utf-8", "surrogateescape")
    properties = BasicProperties(
        type="amqp-1.0", message_id=name, app_id=name, headers={name: body, "x-" + name: 1}
    )
    publish = m.BasicPublish("amq.fanout", name)
    out: list[bytes] = []
    wire.append_content(out, channel.number, publish.encode(), properties.encode(), body, 131_072)
    channel.peer.send_bytes(b"".join(out))
    delivery = got(bench)
    assert delivery.octets.endswith(body)
    assert t.encode(delivery.annotations["x-routing-key"])


def test_s230_dead_letters_at_least_once_of_a_rejected_delivery(bench: ClientBench) -> None:
    bounded = {"x-max-length": 0, "x-overflow": "reject-publish"}
    declare(bench, "full", arguments=bounded)
    held = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    declare(
        bench, "dying", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full", **held}
    )
    sent(bench, p.Header(durable=True), HELLO, to="/queues/dying")
    queue = bench.queue("dying")
    delivery = queue.take_one(settled=False)
    assert delivery is not None
    queue.reject(delivery)
    bench.settle()
    assert queue.dead_letters is not None
    assert queue.dead_letters.why == "queue 'full' is full"
    bench.host.delete_queue(bench.queue("full"))
    declare(bench, "full")
    bench.advance(1)
    assert queue.dead_letters.count == 0
    [dead] = bench.queue("full").waiting()
    assert dead.message.notes is not None
    assert dead.message.notes.deaths[0].reason == "rejected"
