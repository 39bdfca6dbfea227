"""What AMQP 1.0 receivers ask for beside credit (§10 of the acceptance list): sizes, ranks, exclusivity, time."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp091.peer import channel_of
from tests.amqp10.client import SETTLED, UNSETTLED
from tests.amqp10.consuming import QUEUE, fill, filled, left, receiver, source, taken
from tests.amqp10.peer import Peer, declare, declared, session_of
from tests.harness.bench import ClientBench

PERSISTENT = BasicProperties(delivery_mode=2)

# Sizes, ranks, turns.


def test_s172_a_message_too_large_for_the_receiver_ends_the_link() -> None:
    bench = declared(ClientBench(), ["q"])
    channel = channel_of(bench)
    channel.publish("", "q", bytes(1000))
    channel.publish("", "q", bytes(3000))
    link = receiver(bench, credit=1, max_message_size=2000)
    assert len(link.get().body) == 1000
    link.want(1)
    other = link.session.receiver(QUEUE, credit=0)
    refusal = link.refusal()
    assert refusal.startswith("amqp:link:message-size-exceeded message size (30")
    assert refusal.endswith(" bytes) > maximum message size (2000 bytes)")
    queue = bench.queue("q")
    assert (queue.ready, queue.unsettled, len(queue.consumers)) == (2, 0, 1)
    other.want(2)
    _, got = other.all()
    assert (len(got.body), got.header.first_acquirer, got.header.delivery_count or 0) == (3000, True, 0)


def test_s172_a_message_that_is_just_not_too_large_comes() -> None:
    bench = declared(ClientBench(), ["q"])
    channel = channel_of(bench)
    for _ in range(3):
        channel.publish("", "q", b"x")
    size = len(receiver(bench, credit=1, snd_settle_mode=SETTLED).get().octets)
    assert receiver(bench, credit=1, snd_settle_mode=SETTLED, max_message_size=size).get().body == b"x"
    refusal = receiver(bench, credit=1, max_message_size=size - 1).refusal()
    assert refusal.startswith("amqp:link:message-size-exceeded")


@pytest.mark.parametrize("mode", [UNSETTLED, SETTLED])
@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_s172_a_message_too_large_for_one_receiver_is_neither_lost_nor_a_failed_delivery(
    mode: int, type_: str
) -> None:
    bench = ClientBench()
    arguments = {"x-delivery-limit": 1, "x-queue-type": type_}
    declare(bench, "q", durable=True, arguments=arguments)
    channel = channel_of(bench)
    channel.publish("", "q", bytes(3000), PERSISTENT)
    channel.publish("", "q", b"small", PERSISTENT)
    for _ in range(3):
        link = receiver(bench, credit=1, max_message_size=100, snd_settle_mode=mode)
        assert link.refusal().startswith("amqp:link:message-size-exceeded")
    queue = bench.queue("q")
    assert (queue.ready, queue.unsettled, queue.accepted) == (2, 0, 0)
    got = receiver(bench, credit=2).all()
    assert [len(each.body) for each in got] == [3000, 5]
    assert not got[0].header.delivery_count


def test_a_higher_priority_is_served_first() -> None:
    bench = filled(0)
    session = session_of(bench)
    low = session.receiver(QUEUE, credit=10)
    high = session.receiver(QUEUE, credit=2, properties={"rabbitmq:priority": 5})
    artemis = session.receiver(QUEUE, credit=1, properties={"priority": 3})
    both = session.receiver(QUEUE, credit=1, properties={"priority": 7, "rabbitmq:priority": 2})
    assert high.attached.properties == {"rabbitmq:priority": 5}
    fill(bench, range(6))
    assert (taken(high), taken(artemis), taken(both), taken(low)) == ([0, 1], [2], [3], [4, 5])


@pytest.mark.parametrize(
    "properties",
    [
        {"rabbitmq:priority": "5"},
        {"priority": True},
        {"exclusive": 1},
        {"rabbitmq:consumer-timeout": 0.5},
        {"rabbitmq:consumer-timeout": -1},
    ],
)
def test_a_property_that_makes_no_sense_is_refused(properties: dict[str, object]) -> None:
    bench = filled(1)
    refusal = session_of(bench).ask_receiver(QUEUE, properties=properties).refusal()
    [name] = properties
    assert refusal.startswith(f"amqp:invalid-field Attach refused: property '{name}' is n")
    assert not bench.queue("q").consumers


def test_an_exclusive_receiver_is_the_only_one() -> None:
    """The like of S099."""
    bench = filled(1)
    session = session_of(bench)
    first = session.receiver(QUEUE, properties={"exclusive": True})
    refusal = session.ask_receiver(QUEUE).refusal()
    assert refusal == "amqp:resource-locked queue 'q' in vhost '/' in exclusive use"
    first.detach()
    second = session.receiver(QUEUE)
    assert session.ask_receiver(QUEUE, properties={"exclusive": True}).refusal() == refusal
    second.want(1)
    assert taken(second) == [0]


def test_s083_one_receiver_is_active_and_the_next_one_takes_over() -> None:
    bench = filled(3, arguments={"x-single-active-consumer": True})
    session = session_of(bench)
    first, second = session.receiver(QUEUE, credit=1), session.receiver(QUEUE, credit=10)
    assert (taken(first), taken(second)) == ([0], [])
    second.want(10, drain=True)
    assert second.drained
    second.want(10)
    first.detach()
    assert taken(second) == [0, 1, 2]


# Time.


LATE = "[limits]\nconsumer_timeout_ms = 60000\n[protocols.amqp10]\nidle_timeout_s = 0"
CLOSING = LATE + '\n[compat]\nconsumer_timeout_response = "close-channel"'


def test_x028_whoever_does_not_answer_in_time_loses_the_link() -> None:
    bench = filled(2, ClientBench(CLOSING))
    link = receiver(bench, credit=1, name="slow")
    assert taken(link) == [0]
    bench.advance(59)
    assert link.detached is None
    bench.advance(2)
    refusal = link.refusal()
    assert refusal.startswith("amqp:precondition-failed delivery acknowledgement on link 'slow' timed out. ")
    assert "Timeout value used: 60000 ms" in refusal
    assert left(bench) == [0, 1]
    assert taken(link.session.receiver(QUEUE, credit=2)) == [0, 1]


def test_x028_answers_in_time_keep_the_link() -> None:
    bench = filled(2, ClientBench(CLOSING))
    link = receiver(bench, credit=1)
    first = link.get()
    bench.advance(40)
    link.want(1)
    second = link.get()
    link.accept(first)
    bench.advance(40)
    link.peer.read()
    assert link.detached is None
    link.accept(second)
    bench.advance(1000)
    link.peer.read()
    assert link.detached is None
    fill(bench, range(2, 3))
    link.want(1)
    assert taken(link) == [2]
    bench.advance(61)
    link.peer.read()
    assert link.detached is not None


def test_x028_an_answer_to_the_first_does_not_hide_that_the_second_is_late() -> None:
    bench = filled(2, ClientBench(CLOSING))
    link = receiver(bench, credit=1)
    first = link.get()
    bench.advance(40)
    link.want(1)
    link.accept(first)
    bench.advance(59)
    link.peer.read()
    assert link.detached is None
    bench.advance(2)
    link.peer.read()
    assert link.detached is not None


def test_x028_a_shorter_timeout_holds_for_what_comes_next() -> None:
    bench = filled(2, ClientBench(CLOSING))
    link = receiver(bench, credit=1)
    bench.policy("q", {"consumer-timeout": 5000})
    link.want(1)
    bench.advance(6)
    assert "Timeout value used: 5000 ms" in link.refusal()


def test_x028_whoever_shuts_his_window_has_no_more_time() -> None:
    bench = declared(ClientBench(CLOSING), ["q"])
    channel = channel_of(bench)
    for size in (2000, 1):
        channel.publish("", "q", bytes(size))
    session = Peer(bench).open(max_frame_size=512).begin(incoming_window=5)
    link = session.receiver(QUEUE, credit=2)
    assert len(link.get().body) == 2000  # in five transfers: the other message waits for the window
    link.accept()
    assert (link.get(), bench.queue("q").unsettled) == (None, 1)
    bench.advance(61)
    assert "Timeout value used: 60000 ms" in link.refusal()
    assert bench.queue("q").ready == 1


def test_x028_nothing_is_left_to_watch_when_a_link_has_gone() -> None:
    bench = filled(1, ClientBench(LATE))
    link = receiver(bench, credit=1)
    assert bench.broker.timers.next_at() is not None
    link.detach()
    assert bench.broker.timers.next_at() is None


@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_s083_x028_a_single_active_receiver_that_hangs_is_replaced(type_: str) -> None:
    bench = ClientBench(LATE)
    arguments = {"x-single-active-consumer": True, "x-queue-type": type_}
    filled(2, bench, durable=True, arguments=arguments)
    hangs, waits = receiver(bench, credit=1), receiver(bench, credit=2)
    assert (taken(hangs), taken(waits)) == ([0], [])
    bench.advance(60)
    assert (taken(hangs), taken(waits)) == ([], [0, 1])
    assert hangs.detached is None


def test_x028_an_exclusive_receiver_that_hangs_is_detached() -> None:
    bench = ClientBench(LATE)
    filled(2, bench)
    hangs = receiver(bench, credit=1, properties={"exclusive": True})
    bench.advance(60)
    assert hangs.refusal().startswith("amqp:precondition-failed delivery acknowledgement on link")
    assert taken(receiver(bench, credit=2, properties={"exclusive": True})) == [0, 1]


def test_x028_a_receiver_may_have_a_timeout_of_its_own() -> None:
    bench = filled(2, ClientBench(CLOSING))
    session = session_of(bench)
    hasty = session.receiver(QUEUE, credit=1, properties={"rabbitmq:consumer-timeout": 1000})
    calm = session.receiver(QUEUE, credit=1, properties={"rabbitmq:consumer-timeout": 0})
    assert (taken(hasty), taken(calm)) == ([0], [1])
    bench.advance(2)
    assert "Timeout value used: 1000 ms" in hasty.refusal()
    bench.advance(3600)
    session.peer.read()
    assert calm.detached is None


def test_x028_settled_deliveries_and_browsers_owe_no_answer() -> None:
    bench = filled(2, ClientBench(LATE))
    session = session_of(bench)
    browser = session.receiver(source(distribution_mode="copy"), credit=10)
    settled = session.receiver(QUEUE, credit=10, snd_settle_mode=SETTLED)
    assert (taken(browser), taken(settled)) == ([0, 1], [0, 1])
    bench.advance(3600)
    session.peer.read()
    assert browser.detached is settled.detached is None


# By default only what is late is taken back.


def test_x028_by_default_a_late_delivery_is_settled_as_failed_and_its_link_stays() -> None:
    bench = filled(2, ClientBench(LATE))
    link = receiver(bench, credit=1, name="slow")
    first = link.get()
    assert first is not None
    bench.advance(59)
    link.want(1)
    assert taken(link) == [1]
    bench.advance(2)
    link.peer.read()
    assert link.detached is None
    assert link.session.told == {first.id: p.Modified(delivery_failed=True)}
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (1, 1)
    link.accept(first)  # too late
    link.peer.read()
    assert link.detached is None
    assert (bench.queue("q").ready, bench.queue("q").accepted) == (1, 0)
    link.want(1)
    assert taken(link) == [0]


def test_x028_received_renews_a_delivery() -> None:
    bench = filled(2, ClientBench(LATE))
    link = receiver(bench, credit=2)
    _, second = link.all()
    for _ in range(5):
        bench.advance(40)
        link.answer(p.Received(section_number=0, section_offset=0), second, settled=False)
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (1, 1)
    link.accept(second)
    assert bench.queue("q").accepted == 1


def test_x028_received_renews_a_range() -> None:
    bench = filled(2, ClientBench(LATE))
    link = receiver(bench, credit=2)
    first, second = link.all()
    for _ in range(5):
        bench.advance(40)
        link.session.dispose(
            p.Received(section_number=0, section_offset=0), first.id, second.id, settled=False
        )
    assert bench.queue("q").unsettled == 2


def test_a_paused_queue_drains_with_nothing_and_keeps_its_links() -> None:
    bench = filled(2)
    bench.host.pause_queue(bench.queue("q"), True)
    link = receiver(bench, credit=1)
    assert taken(link) == []
    link.want(5, drain=True)
    assert (link.drained, link.detached, taken(link)) == (True, None, [])
    bench.host.pause_queue(bench.queue("q"), False)
    link.want(2)
    assert taken(link) == [0, 1]


def test_s155_an_alarm_does_not_stop_receivers() -> None:
    bench = filled(2)
    link = receiver(bench, credit=2)
    for peer in bench.peers:
        peer.front.alarm("low on memory")
    first, second = link.all()
    link.accept(first)
    assert bench.queue("q").unsettled == 1
    link.accept(second)
    assert bench.queue("q").unsettled == 0
