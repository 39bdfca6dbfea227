"""Shovels between brokers, joined in memory: handshake, flow, refusals, and connections that end at any moment."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec import wire

from .joined import TwoBrokers
from .yard import DURABLE

THERE = "amqp://guest:guest@there"
MODES = ["on-confirm", "on-publish", "no-ack"]


@pytest.fixture
def both() -> TwoBrokers:
    return TwoBrokers()


def publish_there(both: TwoBrokers, *bodies: bytes) -> None:
    for body in bodies:
        message = Message(ENCODING, "", "from", b"\x10\x00\x02", body, DURABLE)
        both.there.broker.publish(both.there.host.default_exchange, message)
    both.run()


@pytest.mark.parametrize("mode", MODES)
def test_messages_go_to_another_broker_in_order(both: TwoBrokers, mode: str) -> None:
    both.yard.host.declare_queue("from")
    both.yard.publish(b"1", b"", bytes(300_000))
    both.set(dest_uri=THERE, ack_mode=mode)
    both.yard.publish(b"4")
    both.run()
    assert both.bodies("to") == [b"1", b"", bytes(300_000), b"4"]
    source = both.yard.host.queues["from"]
    assert (source.ready, source.unsettled, both.yard.shovel.forwarded) == (0, 0, 4)
    assert both.there.host.queues["to"].durable


@pytest.mark.parametrize("mode", MODES)
def test_messages_come_from_another_broker_in_order(both: TwoBrokers, mode: str) -> None:
    both.there.host.declare_queue("from", arguments={"x-max-length": 1000})  # not as it would be declared
    publish_there(both, b"1", b"", bytes(300_000))
    both.set(src_uri=THERE, ack_mode=mode)
    publish_there(both, b"4")
    assert both.yard.bodies() == [b"1", b"", bytes(300_000), b"4"]
    source = both.there.host.queues["from"]
    assert (source.ready, source.unsettled) == (0, 0)
    (delivery, *_) = both.yard.host.queues["to"].waiting()
    assert delivery.message.facts.durable


def test_another_broker_cannot_say_who_published(both: TwoBrokers) -> None:
    both.set(src_uri=THERE, reconnect_delay=100)
    facts = Facts(durable=True, user_id="root")
    said = Message(ENCODING, "", "from", wire.edit_properties(b"\x00\x00", {"user_id": "root"}), b"1", facts)
    both.there.broker.publish(both.there.host.default_exchange, said)
    both.run()
    assert both.yard.bodies() == []
    assert "user_id" in both.yard.shovel.reason
    assert both.there.host.queues["from"].ready == 1


def test_a_broker_may_be_at_both_ends(both: TwoBrokers) -> None:
    both.set(src_uri=THERE, dest_uri=THERE)
    publish_there(both, b"1")
    both.run()
    assert both.bodies("to") == [b"1"]


def test_an_exchange_of_another_broker_is_a_source(both: TwoBrokers) -> None:
    both.set(src_uri=THERE, src_exchange="amq.fanout")
    message = Message(ENCODING, "amq.fanout", "k", b"\x00\x00", b"1", Facts())
    both.there.broker.publish(both.there.host.exchanges["amq.fanout"], message)
    both.run()
    assert both.yard.bodies() == [b"1"]


def test_headers_and_deaths_reach_the_other_broker(both: TwoBrokers) -> None:
    both.yard.host.declare_queue("from")
    both.set(dest_uri=THERE, dest_add_forward_headers=True)
    both.yard.publish(b"1")
    both.run()
    (delivery,) = both.there.host.queues["to"].waiting()
    (mark,) = delivery.message.headers["x-shovelled"]  # type: ignore[misc, union-attr]
    assert mark["dest-uri"] == "amqp://guest:***@there"  # type: ignore[index, call-overload]


def test_a_wrong_password_is_told_without_it(both: TwoBrokers) -> None:
    both.set(dest_uri="amqp://guest:canary@there")
    both.run()
    shovel = both.yard.shovel
    assert shovel.state == "terminated"
    assert "ACCESS_REFUSED" in shovel.reason
    assert "canary" not in shovel.reason + shovel.described + repr(shovel.journey)


def test_a_broker_that_cannot_be_reached_is_tried_at_the_next_uri_and_later(both: TwoBrokers) -> None:
    both.network.is_up = False
    both.yard.host.declare_queue("from")
    both.set(dest_uri=[THERE, "amqp://guest:guest@elsewhere"], reconnect_delay=1)
    reasons = {both.yard.shovel.reason}
    both.run(2.5)
    reasons.add(both.yard.shovel.reason)
    assert len(reasons) == 2
    assert both.network.dialled in (2, 3)
    both.network.is_up = True
    both.yard.publish(b"1")
    both.run(10.0)
    assert both.bodies("to") == [b"1"]


def test_a_predeclared_queue_is_not_declared_there(both: TwoBrokers) -> None:
    both.set(dest_uri=THERE, dest_predeclared=True)
    both.run()
    assert both.yard.shovel.state == "terminated"
    assert "NOT_FOUND" in both.yard.shovel.reason
    assert "to" not in both.there.host.queues


def test_a_refusal_there_loses_nothing(both: TwoBrokers) -> None:
    both.there.host.declare_queue("to", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    both.yard.host.declare_queue("from")
    both.yard.publish(b"1", b"2")
    both.set(dest_uri=THERE, reconnect_delay=1)
    both.run()
    assert both.yard.shovel.reason == "the destination refuses messages"
    assert both.bodies("to") == [b"1"]
    assert both.yard.host.queues["from"].ready == 1
    both.there.host.queues["to"].purge()
    both.run(20.0)
    assert both.bodies("to") == [b"2"]


def test_only_what_an_exchange_there_routes_to_no_queue_stays_and_the_rest_comes_once(
    both: TwoBrokers,
) -> None:
    fanout, topic = (both.there.host.exchanges[name] for name in ("amq.fanout", "amq.topic"))
    both.there.host.bind(fanout, both.there.host.declare_queue("to"), "", {})
    both.yard.host.declare_queue("from")
    bind = both.yard.host.bind
    bind(both.yard.host.exchanges["amq.fanout"], both.yard.host.queues["from"], "", {})
    for key, body in (("a", b"1"), ("b", b"2"), ("b", b"2"), ("a", b"3")):
        message = Message(ENCODING, "amq.fanout", key, b"\x10\x00\x02", body, Facts(durable=True))
        both.yard.broker.publish(both.yard.host.exchanges["amq.fanout"], message)
    both.there.host.bind(topic, both.there.host.queues["to"], "a", {})
    both.set(dest_uri=THERE, dest_exchange="amq.topic", reconnect_delay=1)
    both.run()
    shovel = both.yard.shovel
    assert (shovel.state, both.bodies("to")) == ("terminated", [b"1", b"3"])
    assert (
        shovel.reason
        == "exchange 'amq.topic' of the destination routes a message with the key 'b' to no queue"
    )
    both.run(5.0)
    source = both.yard.host.queues["from"]
    assert (both.bodies("to"), source.ready + source.unsettled) == ([b"1", b"3"], 2)
    both.there.host.bind(topic, both.there.host.queues["to"], "b", {})
    both.run(20.0)
    assert both.bodies("to") == [b"1", b"3", b"2", b"2"]


def test_a_source_that_is_deleted_there_ends_it(both: TwoBrokers) -> None:
    both.set(src_uri=THERE, reconnect_delay=100)
    both.there.host.delete_queue(both.there.host.queues["from"])
    both.run()
    assert both.yard.shovel.reason == "amqp://guest:***@there: the source queue has been deleted"


def test_a_silent_broker_is_given_up(both: TwoBrokers) -> None:
    both.set(dest_uri=f"{THERE}?heartbeat=5", reconnect_delay=100)
    (line,) = both.network.lines
    both.network.lines.clear()  # nothing comes through any more
    now = both.yard.bench.clock.now()
    for seconds in (5, 10, 15):
        line.ours.on_due(now + seconds)
    both.run()
    assert both.yard.shovel.state == "terminated"
    assert "it was silent for more than 10 s" in both.yard.shovel.reason


def test_a_line_without_messages_is_kept_alive(both: TwoBrokers) -> None:
    both.set(dest_uri=f"{THERE}?heartbeat=5")
    for _ in range(60):
        both.run(1.0)
    assert (both.yard.shovel.state, both.network.dialled) == ("running", 1)


@pytest.mark.parametrize("direction", ["out", "in"])
def test_a_destination_without_room_stops_the_source(both: TwoBrokers, direction: str) -> None:
    if direction == "in":
        both.set(src_uri=THERE, ack_mode="no-ack")
        both.yard.broker.alarms.set("a test")
        publish_there(both, b"1")
        assert all(line.ours.throttled for line in both.network.lines)
        both.yard.broker.alarms.clear("a test")
        both.run()
        assert both.yard.bodies() == [b"1"]
        assert not any(line.ours.throttled for line in both.network.lines)
        return
    both.yard.host.declare_queue("from")
    both.set(dest_uri=THERE, ack_mode="no-ack")
    lines, both.network.lines = both.network.lines, []
    both.yard.publish(*[bytes(200_000)] * 30)
    assert both.yard.host.queues["from"].ready >= 10
    assert both.yard.shovel.is_blocked
    both.network.lines = lines
    both.run(3.0)
    assert len(both.bodies("to")) == 30


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
    both.yard.host.declare_queue("from")
    both.there.host.declare_queue("from")
    uris = {"src_uri": THERE} if is_source else {"dest_uri": THERE}
    both.set(**uris, reconnect_delay=1, src_prefetch_count=3)
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
    found = both.yard.bodies() if is_source else both.bodies("to")
    assert set(found) == {b"%d" % number for number in range(count)}
    left = source.host.queues["from"]
    assert (left.ready, left.unsettled) == (0, 0)
