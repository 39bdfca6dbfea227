"""Receivers of AMQP 1.0 (§10 of the acceptance list): credit, drain, windows, and how a link ends."""

from __future__ import annotations

import pytest

from protocols.amqp10.codec import performatives as p
from tests.amqp10.consuming import QUEUE, fill, filled, left, numbers, receiver, taken
from tests.amqp10.peer import SETTLED, Peer, World, declare, session_of

# Credit.


def test_a_receiver_without_credit_gets_nothing() -> None:
    world = filled(3)
    link = receiver(world)
    assert taken(link) == []
    link.want(2)
    assert taken(link) == [0, 1]
    assert left(world) == [2]


def test_outcomes_give_no_credit_back() -> None:
    link = receiver(filled(3), credit=1)
    link.accept(link.get())
    assert taken(link) == []
    link.want(2)
    assert taken(link) == [1, 2]


def test_credit_counts_for_settled_deliveries_too() -> None:
    world = filled(3)
    link = receiver(world, credit=2, snd_settle_mode=SETTLED)
    deliveries = link.all()
    assert [delivery.settled for delivery in deliveries] == [True, True]
    assert world.queue("q").unsettled == 0
    fill(world, range(3, 4))
    assert taken(link) == []
    link.want(2)
    assert taken(link) == [2, 3]


def test_credit_can_be_taken_back() -> None:
    world = filled(0)
    link = receiver(world, credit=10)
    link.want(0)
    fill(world, range(2))
    assert taken(link) == []
    link.want(1)
    assert taken(link) == [0]


def test_a_flow_that_crosses_deliveries_counts_them() -> None:
    """The delivery-count of a flow says how many of the deliveries it knows of (part 2, section 2.6.7)."""
    world = filled(5)
    link = receiver(world, credit=2)
    world.settle()
    link.session.flow(handle=link.handle, delivery_count=0, link_credit=3)  # has seen neither of the two
    link.credit = 3
    assert taken(link) == [0, 1, 2]
    assert left(world) == [3, 4]


def test_messages_go_to_receivers_in_turn_whatever_their_protocol() -> None:
    world = World()
    channel = world.channel()
    channel.declare("q")
    first = receiver(world, credit=10)
    channel.consume("q", no_ack=True)
    second = receiver(world, credit=10)
    fill(world, range(6))
    assert taken(first) == [0, 3]
    assert [int(delivery.body) for delivery in channel.deliveries()] == [1, 4]
    assert taken(second) == [2, 5]


def test_x063_credit_and_settlement_stay_right_when_300_rejections_are_batched() -> None:
    world = World()
    declare(world, "dead")
    filled(300, world, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    link = receiver(world, credit=300)
    deliveries = link.all()
    assert numbers(deliveries) == list(range(300))
    link.session.dispose(p.Rejected(), deliveries[0].id, deliveries[-1].id)
    assert world.queue("q").unsettled == 0
    assert left(world, "dead") == list(range(300))
    fill(world, range(300, 302))
    assert taken(link) == []
    link.want(1)
    assert taken(link) == [300]


# Drain.


def test_s180_drain_gives_what_there_is_and_voids_the_rest() -> None:
    world = filled(2)
    link = receiver(world)
    link.want(10, drain=True)
    assert taken(link) == [0, 1]
    assert link.drained
    assert (link.count, link.credit) == (10, 0)
    fill(world, range(2, 3))
    assert taken(link) == []
    link.want(1)
    assert taken(link) == [2]


def test_s180_drain_on_an_empty_queue_answers_at_once() -> None:
    link = receiver(filled(0), credit=3)
    link.want(5, drain=True)
    flow = link.session.flows[-1]
    assert (flow.delivery_count, flow.link_credit, flow.drain, flow.available) == (5, 0, True, 0)


def test_s180_what_was_published_before_the_drain_comes_before_its_answer() -> None:
    """One read with a publish and a drain: nobody has settled in between."""
    world = filled(0)
    session = session_of(world)
    link = session.receiver(QUEUE)
    channel = world.channel()
    channel.publish("", "q", b"0", settle=False)
    link.credit = 5
    session.flow(settle=False, handle=link.handle, delivery_count=0, link_credit=5, drain=True)
    world.settle()
    heard = [type(what) for what in session.peer.taken(p.Transfer, p.Flow)]
    assert heard[-2:] == [p.Transfer, p.Flow]
    assert link.drained


def test_s180_a_drain_that_uses_up_the_credit_is_answered_too() -> None:
    link = receiver(filled(3))
    link.want(2, drain=True)
    assert taken(link) == [0, 1]
    assert link.drained
    assert link.session.flows[-1].available == 1


def test_s180_a_drain_that_was_called_off_leaves_the_credit() -> None:
    world = filled(0)
    session = session_of(world)
    link = session.receiver(QUEUE)
    link.credit = 5
    session.flow(settle=False, handle=link.handle, delivery_count=0, link_credit=5, drain=True)
    session.flow(settle=False, handle=link.handle, delivery_count=0, link_credit=5, drain=False)
    world.settle()
    session.peer.read()
    assert not link.drained
    fill(world, range(1))
    assert taken(link) == [0]


def test_s180_two_drains_in_one_breath_are_answered_once() -> None:
    world = filled(0)
    session = session_of(world)
    link = session.receiver(QUEUE)
    before = len(session.flows)
    for _ in range(2):
        session.flow(settle=False, handle=link.handle, delivery_count=0, link_credit=5, drain=True)
    world.settle()
    session.peer.read()
    assert [flow.drain for flow in session.flows[before:]] == [True]


def test_s180_nothing_to_wait_for_no_drain_waits_for_the_window() -> None:
    session = Peer(filled(0)).open().begin(incoming_window=0)
    link = session.receiver(QUEUE)
    link.want(10, drain=True)
    assert link.drained


def test_s180_a_drain_waits_for_the_window_of_the_session() -> None:
    world = filled(3)
    session = Peer(world).open().begin(incoming_window=2)
    link = session.receiver(QUEUE)
    link.want(10, drain=True)
    assert taken(link) == [0, 1]
    assert not link.drained
    session.window = 5
    session.flow()
    assert taken(link) == [2]
    assert link.drained


def test_s180_without_credit_no_drain_waits_for_the_window() -> None:
    session = Peer(filled(3)).open().begin(incoming_window=2)
    link = session.receiver(QUEUE)
    link.want(2, drain=True)
    assert taken(link) == [0, 1]
    assert link.drained


def test_s180_a_drain_waits_for_a_peer_that_reads_slowly() -> None:
    world = World("[limits]\noutbox_size_max = 65536")
    declare(world, "q")
    channel = world.channel()
    for _ in range(4):
        channel.publish("", "q", bytes(40_000))
    session = session_of(world)
    link = session.receiver(QUEUE)
    link.credit = 10
    session.flow(handle=link.handle, delivery_count=0, link_credit=10, drain=True)
    assert world.queue("q").ready == 2  # as much as was written before the mark
    assert len(link.all()) == 4
    world.settle()
    link.peer.read()
    assert link.drained
    assert link.count == 10


def test_s180_echo_is_answered_and_tells_what_is_available() -> None:
    world = filled(4)
    link = receiver(world, credit=1)
    assert taken(link) == [0]
    before = len(link.session.flows)
    link.want(0, echo=True)
    [flow] = link.session.flows[before:]
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (link.attached.handle, 1, 0)
    assert flow.available == 3
    fill(world, range(4, 6))
    link.want(0, echo=True)
    assert link.session.flows[-1].available == 5


# The session's window, and the outbox.


def test_deliveries_stop_at_the_window_of_the_session() -> None:
    world = filled(5)
    session = Peer(world).open().begin(incoming_window=3)
    link = session.receiver(QUEUE, credit=100)
    assert taken(link) == [0, 1, 2]
    assert left(world) == [3, 4]  # for whoever else wants them
    session.window = 1
    session.flow()
    assert taken(link) == [3]


def test_the_window_goes_to_whoever_was_served_longest_ago() -> None:
    world = World()
    filled(10, world, "first")
    filled(10, world, "second")
    session = Peer(world).open().begin(incoming_window=1)
    links = [session.receiver(f"/queues/{name}", credit=10) for name in ("first", "second")]
    got = []
    for _ in range(7):
        session.window = 1
        session.flow()
        got.append([taken(link) for link in links])
    assert [sum(map(len, each)) for each in zip(*got[1:], strict=True)] == [3, 3]


def test_deliveries_stop_when_the_peer_does_not_read() -> None:
    world = World("[limits]\noutbox_size_max = 65536")
    declare(world, "q")
    channel = world.channel()
    for _ in range(10):
        channel.publish("", "q", bytes(20_000))
    session = session_of(world)
    link = session.receiver(QUEUE)
    link.credit = 10
    session.flow(handle=link.handle, delivery_count=0, link_credit=10)
    assert world.queue("q").ready == 6
    assert len(link.all()) == 10


# The end of links.


def test_s178_what_a_detached_receiver_has_not_settled_goes_back_in_order() -> None:
    world = filled(4)
    session = session_of(world)
    first, second = session.receiver(QUEUE, credit=3), session.receiver(QUEUE)
    assert taken(first) == [0, 1, 2]
    first.accept()  # 0
    first.detach()
    assert left(world) == [1, 2, 3]
    second.want(10)
    deliveries = second.all()
    assert numbers(deliveries) == [1, 2, 3]
    assert [delivery.header.first_acquirer for delivery in deliveries] == [False, False, True]
    assert [delivery.header.delivery_count for delivery in deliveries] == [None, None, None]


def test_s178_receivers_on_one_session_are_served_in_turn_and_inherit_each_other() -> None:
    world = filled(0)
    session = session_of(world)
    first, second = session.receiver(QUEUE, credit=50), session.receiver(QUEUE, credit=50)
    fill(world, range(4))
    assert taken(first) == [0, 2]
    assert taken(second) == [1, 3]
    first.detach()
    again = second.all()
    assert numbers(again) == [0, 2]
    session.dispose(p.Accepted(), min(second.unsettled), max(second.unsettled))
    assert (world.queue("q").unsettled, left(world)) == (0, [])


@pytest.mark.parametrize("end", ["detach", "session", "connection", "transport"])
def test_s178_however_a_link_ends_nothing_is_lost(end: str) -> None:
    world = filled(3)
    link = receiver(world, credit=2)
    assert taken(link) == [0, 1]
    if end == "detach":
        link.detach(closed=False)
    elif end == "session":
        link.session.end()
    elif end == "connection":
        link.peer.close()
    else:
        link.peer.drop()
    assert left(world) == [0, 1, 2]
    assert not world.queue("q").consumers
    assert world.queue("q").unsettled == 0


def test_s179_a_deleted_queue_ends_its_links_and_no_others() -> None:
    world = filled(2)
    filled(1, world, "other")
    session = session_of(world)
    link, other = session.receiver(QUEUE, credit=1), session.receiver("/queues/other")
    assert taken(link) == [0]
    world.host.delete_queue(world.queue("q"))
    world.settle()
    assert link.refusal() == "amqp:resource-deleted queue 'q' in vhost '/' was deleted"
    other.want(1)
    assert taken(other) == [0]


def test_an_auto_delete_queue_goes_with_its_last_receiver() -> None:
    world = filled(1, auto_delete=True)
    session = session_of(world)
    first, second = session.receiver(QUEUE), session.receiver(QUEUE)
    first.detach()
    assert "q" in world.host.queues
    second.detach()
    assert "q" not in world.host.queues


def test_s181_the_exclusive_queue_of_another_connection_is_locked() -> None:
    world = World()
    world.channel().declare("q", exclusive=True)
    refusal = session_of(world).ask_receiver(QUEUE).refusal()
    assert refusal.startswith(
        "amqp:resource-locked cannot obtain exclusive access to locked queue 'q' in vhost '/'"
    )


def test_s177_a_refused_receiver_is_answered_without_a_source_and_the_session_goes_on() -> None:
    world = filled(1)
    session = session_of(world)
    link = session.ask_receiver("/queues/missing")
    assert link.attached.source is None
    assert link.refusal() == "amqp:not-found no queue 'missing' in vhost '/'"
    assert taken(session.receiver(QUEUE, credit=1)) == [0]


def test_s182_whoever_may_not_read_loses_the_session() -> None:
    world = filled(1)
    session = session_of(world, world.user("ann", read="other"))
    session.ask_receiver(QUEUE)
    why = "read access to queue 'q' in vhost '/' refused for user 'ann'"
    assert session.refusal() == f"amqp:unauthorized-access {why}"
    assert not world.queue("q").consumers


def test_whoever_may_not_read_any_more_loses_the_session() -> None:
    """The like of X008."""
    world = filled(1)
    link = receiver(world, credit=0)
    session = session_of(world, world.user("ann"))
    session.receiver(QUEUE)
    world.broker.access.set_permissions("ann", "/", ".*", ".*", "other")
    session.peer.front.change_secret(b"ann")
    assert session.refusal().startswith("amqp:unauthorized-access read access to queue 'q'")
    assert len(world.queue("q").consumers) == 1
    link.want(1)
    assert taken(link) == [0]


def test_x025_a_session_has_no_more_consumers_than_the_node_allows() -> None:
    world = filled(0, World("[limits]\nconsumers_per_channel_max = 2"))
    session = session_of(world)
    first, _ = session.receiver(QUEUE), session.receiver(QUEUE)
    refusal = session.ask_receiver(QUEUE).refusal()
    assert refusal == "amqp:resource-limit-exceeded reached maximum (2) of consumers per channel"
    first.detach()
    session.receiver(QUEUE)
