"""Shovels from and to other brokers over AMQP 1.0, joined in memory: what they carry, and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.features.shovels.shovel import Shovel
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING10
from leveret.protocols.amqp10.broker.encoding import project
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol, Value, encode
from leveret.values import Json

from .joined import TwoBrokers
from .yard import DURABLE

THERE = "amqp://guest:guest@there10"
MODES = ["on-confirm", "on-publish", "no-ack"]
APPLICATION, ANNOTATIONS = b"\x00\x53\x74", b"\x00\x53\x72"


@pytest.fixture
def both() -> TwoBrokers:
    return TwoBrokers()


def send_to(both: TwoBrokers, queue: str = "to", **said: Json) -> Shovel:
    """Set a shovel from the queue `from` here to a queue there."""
    if "from" not in both.yard.host.queues:
        both.yard.host.declare_queue("from", durable=True)
    if queue not in both.there.host.queues:
        both.there.host.declare_queue(queue, durable=True)
    value: dict[str, Json] = {
        "src-uri": "amqp://",
        "src-queue": "from",
        "dest-protocol": "amqp10",
        "dest-uri": THERE,
        "dest-address": f"/queues/{queue}",
    }
    return set_shovel(both, {**value, **{key.replace("_", "-"): item for key, item in said.items()}})


def take_from(both: TwoBrokers, **said: Json) -> Shovel:
    """Set a shovel from the queue `from` there to the queue `to` here."""
    if "from" not in both.there.host.queues:
        both.there.host.declare_queue("from", durable=True)
    value: dict[str, Json] = {
        "src-protocol": "amqp10",
        "src-uri": THERE,
        "src-address": "/queues/from",
        "dest-uri": "amqp://",
        "dest-queue": "to",
    }
    return set_shovel(both, {**value, **{key.replace("_", "-"): item for key, item in said.items()}})


def set_shovel(both: TwoBrokers, value: dict[str, Json]) -> Shovel:
    both.yard.shovels.set("/", "s", value, "guest")
    shovel = both.yard.shovel
    both.run()
    return shovel


def publish_there(both: TwoBrokers, *bodies: bytes) -> None:
    for body in bodies:
        message = Message(ENCODING, "", "from", b"\x10\x00\x02", body, DURABLE)
        both.there.broker.publish(both.there.host.default_exchange, message)
    both.run()


def contents(both: TwoBrokers, queue: str = "to") -> list[bytes]:
    """The bodies of messages there, without the sections around them."""
    found = both.there.host.queues[queue].waiting()
    return [each.message.encoding.octets(each.message.body) for each in found]


def contents_here(both: TwoBrokers, queue: str = "to") -> list[bytes]:
    found = both.yard.host.queues[queue].waiting()
    return [each.message.encoding.octets(each.message.body) for each in found]


def of_1_0(*sections: p.Record | bytes, body: bytes = b"body") -> Message:
    """A message that a client has published over AMQP 1.0."""
    payload = b"".join(each if isinstance(each, bytes) else each.encode() for each in sections)
    facts, properties, octets, _, _ = project(payload + ENCODING10.body(body))
    return Message(ENCODING10, "", "from", properties, octets, facts)


def mapped(begin: bytes, pairs: dict[Value, Value]) -> bytes:
    return begin + encode(pairs)


def publish_here(both: TwoBrokers, message: Message) -> None:
    both.yard.broker.publish(both.yard.host.default_exchange, message)
    both.run()


def only_one(both: TwoBrokers) -> Message:
    (delivery,) = both.there.host.queues["to"].waiting()
    return delivery.message


# Messages.


@pytest.mark.parametrize("mode", MODES)
def test_messages_go_to_another_broker_in_order(both: TwoBrokers, mode: str) -> None:
    both.yard.host.declare_queue("from")
    both.yard.publish(b"1", b"", bytes(300_000))
    send_to(both, ack_mode=mode)
    both.yard.publish(b"4")
    both.run()
    assert contents(both) == [b"1", b"", bytes(300_000), b"4"]
    source = both.yard.host.queues["from"]
    assert (source.ready, source.unsettled, both.yard.shovel.forwarded) == (0, 0, 4)
    assert all(each.message.facts.durable for each in both.there.host.queues["to"].waiting())


@pytest.mark.parametrize("mode", MODES)
def test_messages_come_from_another_broker_in_order(both: TwoBrokers, mode: str) -> None:
    both.there.host.declare_queue("from")
    publish_there(both, b"1", b"", bytes(300_000))
    take_from(both, ack_mode=mode)
    publish_there(both, b"4")
    assert contents_here(both) == [b"1", b"", bytes(300_000), b"4"]
    source = both.there.host.queues["from"]
    assert (source.ready, source.unsettled, both.yard.shovel.forwarded) == (0, 0, 4)
    (delivery, *_) = both.yard.host.queues["to"].waiting()
    assert delivery.message.facts.durable


def test_both_ends_may_speak_it(both: TwoBrokers) -> None:
    for name in ("from", "to"):
        both.there.host.declare_queue(name)
    ends: dict[str, Json] = {f"{end}-protocol": "amqp10" for end in ("src", "dest")}
    uris: dict[str, Json] = {"src-uri": THERE, "dest-uri": THERE}
    set_shovel(both, {**ends, **uris, "src-address": "/queues/from", "dest-address": "/queues/to"})
    publish_there(both, b"1", b"2")
    assert contents(both) == [b"1", b"2"]


def test_one_end_may_speak_0_9_1(both: TwoBrokers) -> None:
    both.there.host.declare_queue("from")
    value: dict[str, Json] = {"src-protocol": "amqp10", "src-uri": THERE, "src-address": "/queues/from"}
    set_shovel(both, {**value, "dest-uri": "amqp://guest:guest@there", "dest-queue": "to"})
    publish_there(both, b"1", b"2")
    assert contents(both) == [b"1", b"2"]


@pytest.mark.parametrize(("prefetch", "count"), [(1, 1), (1, 5), (3, 20), (1000, 2500)])
def test_many_messages_come_with_little_credit(both: TwoBrokers, prefetch: int, count: int) -> None:
    take_from(both, src_prefetch_count=prefetch)
    publish_there(both, *[b"%d" % number for number in range(count)])
    for _ in range(10):
        both.run()
    assert contents_here(both) == [b"%d" % number for number in range(count)]
    assert both.there.host.queues["from"].unsettled == 0


def test_no_more_than_the_prefetch_is_on_its_way(both: TwoBrokers) -> None:
    take_from(both, src_prefetch_count=3)
    both.yard.broker.alarms.set("a test")
    publish_there(both, *[b"x"] * 10)
    source = both.there.host.queues["from"]
    assert (source.ready, source.unsettled) == (7, 3)
    both.yard.broker.alarms.clear("a test")
    both.run(1.0)
    assert len(contents_here(both)) == 10


def test_a_message_of_0_9_1_is_converted_as_for_consumers(both: TwoBrokers) -> None:
    send_to(both)
    properties = {"content_type": "text/plain", "message_id": "m1", "headers": {"n": 5, "x-kind": "hare"}}
    octets = wire.edit_properties(b"\x10\x00\x02", properties)
    publish_here(both, Message(ENCODING, "", "from", octets, b"body", Facts(durable=True)))
    message = only_one(both)
    read = message.encoding.read(message.properties)
    assert (read.content_type, read.message_id, read.durable) == ("text/plain", "m1", True)
    assert message.headers == {"n": 5, "x-kind": "hare"}


def test_a_message_of_1_0_keeps_its_sections(both: TwoBrokers) -> None:
    send_to(both)
    sections = (
        p.Header(durable=True, priority=7),
        mapped(ANNOTATIONS, {Symbol("x-opt-a"): 1}),
        p.Properties(message_id=5, subject="news", group_id="g", creation_time=1000),
        mapped(APPLICATION, {"k": "v"}),
    )
    message = of_1_0(*sections)
    publish_here(both, message)
    there = only_one(both)
    assert there.properties == message.properties
    assert there.body == message.body


def test_a_message_of_1_0_comes_with_its_sections_and_the_place_that_it_had(both: TwoBrokers) -> None:
    take_from(both)
    properties = p.Properties(message_id=5, subject="news").encode()
    message = of_1_0(p.Header(durable=True), properties, mapped(APPLICATION, {"k": "v"}))
    both.there.broker.publish(both.there.host.default_exchange, message)
    both.run()
    (delivery,) = both.yard.host.queues["to"].waiting()
    here = delivery.message
    assert here.encoding is ENCODING10
    assert properties + mapped(APPLICATION, {"k": "v"}) in here.properties
    assert here.headers["k"] == "v"


def test_a_time_to_live_is_passed_on_in_both_directions(both: TwoBrokers) -> None:
    send_to(both)
    publish_here(both, of_1_0(p.Header(ttl=60_000)))
    assert only_one(both).facts.ttl_ms == 60_000
    take_from(both)
    both.there.broker.publish(both.there.host.default_exchange, of_1_0(p.Header(ttl=60_000)))
    both.run()
    (delivery,) = both.yard.host.queues["to"].waiting()
    assert delivery.message.facts.ttl_ms is not None
    assert 59_000 <= delivery.message.facts.ttl_ms <= 60_000


def test_an_absolute_expiry_time_counts_where_a_message_comes(both: TwoBrokers) -> None:
    take_from(both)
    at_ms = int(both.yard.broker.clock.wall() * 1000)
    both.there.broker.publish(
        both.there.host.default_exchange, of_1_0(p.Properties(absolute_expiry_time=at_ms + 30_000))
    )
    both.run()
    (delivery,) = both.yard.host.queues["to"].waiting()
    assert delivery.message.facts.ttl_ms is not None
    assert 29_000 <= delivery.message.facts.ttl_ms <= 30_000


# What is overwritten.

GIVEN: dict[str, Json] = {
    "dest-properties": {"subject": "news", "creation-time": 5000, "user_id": "guest", "content_type": "a/b"},
    "dest-application-properties": {"k": "other", "n": 7, "yes": True},
    "dest-message-annotations": {"x-opt-hare": "brown"},
}


@pytest.mark.parametrize("is_1_0", [True, False])
def test_properties_and_annotations_are_overwritten(both: TwoBrokers, is_1_0: bool) -> None:
    send_to(both, **GIVEN)
    if is_1_0:
        publish_here(
            both,
            of_1_0(p.Properties(message_id="m", subject="old"), mapped(APPLICATION, {"k": "v", "l": "w"})),
        )
    else:
        octets = wire.edit_properties(b"\x00\x00", {"message_id": "m", "headers": {"k": "v", "l": "w"}})
        publish_here(both, Message(ENCODING, "", "from", octets, b"body", Facts()))
    message = only_one(both)
    read = message.encoding.read(message.properties)
    assert (read.message_id, read.user_id, read.content_type, read.timestamp) == ("m", "guest", "a/b", 5)
    assert message.encoding.property(message.properties, "subject") == "news"
    assert message.headers == {"k": "other", "l": "w", "n": 7, "yes": True, "x-opt-hare": "brown"}
    assert contents(both) == [b"body"]


@pytest.mark.parametrize("is_1_0", [True, False])
def test_forward_headers_are_annotations(both: TwoBrokers, is_1_0: bool) -> None:
    send_to(both, dest_add_forward_headers=True, dest_add_timestamp_header=True)
    publish_here(both, of_1_0() if is_1_0 else Message(ENCODING, "", "from", b"\x00\x00", b"body", Facts()))
    headers = only_one(both).headers
    at = headers.pop("x-opt-shovelled-timestamp")
    assert isinstance(at, int)
    assert abs(at - both.yard.broker.clock.wall() * 1000) < 60_000
    assert headers == {
        "x-opt-shovelled-by": "leveret",
        "x-opt-shovel-type": "dynamic",
        "x-opt-shovel-name": "s",
    }


def test_forward_headers_of_a_source_name_its_address(both: TwoBrokers) -> None:
    take_from(both, dest_add_forward_headers=True)
    publish_there(both, b"1")
    (delivery,) = both.yard.host.queues["to"].waiting()
    (mark,) = delivery.message.headers["x-shovelled"]  # type: ignore[misc, union-attr]
    assert (mark["src-address"], mark["src-uri"]) == ("/queues/from", "amqp://guest:***@there10")  # type: ignore[index, call-overload]


# What is refused stays.


def test_what_the_destination_rejects_or_releases_stays_and_the_state_says_why(both: TwoBrokers) -> None:
    both.there.host.declare_queue("to", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    both.yard.host.declare_queue("from")
    both.yard.publish(b"1", b"2")
    shovel = send_to(both, reconnect_delay=1)
    both.run()
    assert (shovel.state, contents(both)) == ("terminated", [b"1"])
    assert "queue" in shovel.reason
    assert both.yard.host.queues["from"].ready == 1
    both.there.host.queues["to"].purge()
    both.run(20.0)
    assert contents(both) == [b"2"]


def test_what_has_no_queue_there_stays(both: TwoBrokers) -> None:
    both.yard.host.declare_queue("from")
    both.yard.publish(b"1")
    shovel = send_to(both, dest_address="/exchanges/amq.direct/k", reconnect_delay=1)
    both.run()
    assert (shovel.state, both.yard.host.queues["from"].ready) == ("terminated", 1)
    assert "releases messages" in shovel.reason
    there = both.there.host
    there.bind(there.exchanges["amq.direct"], there.queues["to"], "k", {})
    both.run(20.0)
    assert contents(both) == [b"1"]


def test_an_address_that_is_not_there_is_told(both: TwoBrokers) -> None:
    shovel = send_to(both, dest_address="/queues/missing", reconnect_delay=100)
    assert shovel.state == "terminated"
    assert shovel.reason.startswith("amqp://guest:***@there10: amqp:not-found: ")
    assert "missing" in shovel.reason
    shovel = take_from(both, src_address="/queues/missing", reconnect_delay=100)
    assert "amqp:not-found: " in shovel.reason


def test_a_message_that_is_too_large_for_the_destination_stays(both: TwoBrokers) -> None:
    shovel = send_to(both, reconnect_delay=100)
    (line,) = both.network.lines
    line.ours.client.message_max = 100  # type: ignore[attr-defined]
    both.yard.publish(b"1", bytes(200))
    both.run(2.0)
    assert contents(both) == [b"1"]
    assert "messages of up to 100 bytes" in shovel.reason
    assert both.yard.host.queues["from"].ready == 1


def test_a_wrong_password_is_told_without_it(both: TwoBrokers) -> None:
    shovel = send_to(both, dest_uri="amqp://guest:canary@there10", reconnect_delay=100)
    assert (shovel.state, "refuses the login of user 'guest'" in shovel.reason) == ("terminated", True)
    assert "canary" not in shovel.reason + shovel.described + repr(shovel.journey)


def test_another_broker_cannot_say_who_published(both: TwoBrokers) -> None:
    take_from(both, reconnect_delay=100)
    both.there.broker.publish(both.there.host.default_exchange, of_1_0(p.Properties(user_id=b"root")))
    both.run()
    assert both.yard.bodies() == []
    assert "user" in both.yard.shovel.reason
    assert both.there.host.queues["from"].ready == 1


def test_a_source_that_is_deleted_there_ends_it(both: TwoBrokers) -> None:
    shovel = take_from(both, reconnect_delay=100)
    both.there.host.delete_queue(both.there.host.queues["from"])
    both.run()
    assert shovel.reason.startswith("amqp://guest:***@there10: amqp:resource-deleted: ")


def test_it_ends_after_so_many_messages(both: TwoBrokers) -> None:
    both.there.host.declare_queue("from")
    publish_there(both, *[b"%d" % number for number in range(5)])
    take_from(both, src_delete_after=3)
    both.run(1.0)
    assert list(both.yard.shovels) == []
    assert contents_here(both) == [b"0", b"1", b"2"]
    assert (both.there.host.queues["from"].ready, both.there.host.queues["from"].unsettled) == (2, 0)


# The line.


def test_a_silent_broker_is_given_up(both: TwoBrokers) -> None:
    shovel = send_to(both, dest_uri=f"{THERE}?heartbeat=5", reconnect_delay=100)
    (line,) = both.network.lines
    both.network.lines.clear()  # nothing comes through any more
    now = both.yard.bench.clock.now()
    for seconds in (5, 10, 15):
        line.ours.on_due(now + seconds)
    both.run()
    assert shovel.state == "terminated"
    assert "it was silent for more than 10 s" in shovel.reason


def test_lines_without_messages_are_kept_alive(both: TwoBrokers) -> None:
    shovel = send_to(both, dest_uri=f"{THERE}?heartbeat=5")
    for _ in range(120):
        both.run(1.0)
    assert (shovel.state, both.network.dialled) == ("running", 1)


def test_a_source_that_waits_is_not_read(both: TwoBrokers) -> None:
    take_from(both, ack_mode="no-ack")
    both.yard.broker.alarms.set("a test")
    publish_there(both, b"1")
    assert all(line.ours.throttled for line in both.network.lines)
    both.yard.broker.alarms.clear("a test")
    both.run()
    assert contents_here(both) == [b"1"]
    assert not any(line.ours.throttled for line in both.network.lines)


def test_a_destination_without_room_stops_the_source(both: TwoBrokers) -> None:
    both.yard.host.declare_queue("from")
    shovel = send_to(both, ack_mode="no-ack")
    lines, both.network.lines = both.network.lines, []
    both.yard.publish(*[bytes(200_000)] * 30)
    assert both.yard.host.queues["from"].ready >= 10
    assert shovel.is_blocked
    both.network.lines = lines
    both.run(3.0)
    assert len(contents(both)) == 30


def test_a_virtual_host_is_named_in_the_open(both: TwoBrokers) -> None:
    both.there.broker.add_virtual_host("blue").declare_queue("to")
    both.there.broker.access.set_permissions("guest", "blue", ".*", ".*", ".*")
    both.yard.host.declare_queue("from")
    both.yard.publish(b"1")
    send_to(both, dest_uri=f"{THERE}/blue")
    (delivery,) = both.there.broker.virtual_hosts["blue"].queues["to"].waiting()
    assert delivery.message.encoding.octets(delivery.message.body) == b"1"


# Whatever happens, nothing is lost on confirm.

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5)),
        st.tuples(st.just("carry"), st.integers(1, 400)),
        st.tuples(st.just("cut"), st.just(0)),
        st.tuples(st.just("steps"), st.integers(1, 3)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("is_source", [False, True])
@given(events=EVENTS)
@settings(deadline=None, max_examples=25)
def test_no_message_is_lost_on_confirm_whenever_a_connection_ends(
    is_source: bool, events: list[tuple[str, int]]
) -> None:
    both = TwoBrokers()
    (take_from if is_source else send_to)(both, reconnect_delay=1, src_prefetch_count=3)
    count = 0
    source = both.there if is_source else both.yard.bench
    for event, size in events:
        if event == "publish":
            for _ in range(size):
                message = Message(ENCODING, "", "from", b"\x10\x00\x02", b"%d" % count, DURABLE)
                source.broker.publish(source.host.default_exchange, message)
                count += 1
        elif event == "carry":
            both.network.carry(size)
        elif event == "cut":
            for line in list(both.network.lines):
                both.network.cut(line)
        else:
            for bench in (both.yard.bench, both.there):
                bench.clock.advance(0.002 * size)
                bench.broker.tick()
                bench.broker.settle()
    for _ in range(8):
        both.run(10.0)
    both.run(1.0)
    found = contents_here(both) if is_source else contents(both)
    assert set(found) == {b"%d" % number for number in range(count)}
    left = source.host.queues["from"]
    assert (left.ready, left.unsettled) == (0, 0)
