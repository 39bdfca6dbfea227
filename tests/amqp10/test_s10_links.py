"""Receivers of AMQP 1.0 (§10 of the acceptance list): credit, drain, windows, and how a link ends."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp091.peer import channel_of
from tests.amqp10.client import SETTLED
from tests.amqp10.consuming import QUEUE, fill, filled, left, numbers, receiver, taken
from tests.amqp10.peer import Peer, declare, session_of
from tests.harness.bench import ClientBench

# Credit.


def test_a_receiver_without_credit_gets_nothing() -> None:
    bench = filled(3)
    link = receiver(bench)
    assert taken(link) == []
    link.want(2)
    assert taken(link) == [0, 1]
    assert left(bench) == [2]


def test_outcomes_give_no_credit_back() -> None:
    link = receiver(filled(3), credit=1)
    link.accept(link.get())
    assert taken(link) == []
    link.want(2)
    assert taken(link) == [1, 2]


def test_credit_counts_for_settled_deliveries_too() -> None:
    bench = filled(3)
    link = receiver(bench, credit=2, snd_settle_mode=SETTLED)
    deliveries = link.all()
    assert [delivery.settled for delivery in deliveries] == [True, True]
    assert bench.queue("q").unsettled == 0
    fill(bench, range(3, 4))
    assert taken(link) == []
    link.want(2)
    assert taken(link) == [2, 3]


def test_credit_can_be_taken_back() -> None:
    bench = filled(0)
    link = receiver(bench, credit=10)
    link.want(0)
    fill(bench, range(2))
    assert taken(link) == []
    link.want(1)
    assert taken(link) == [0]


def test_a_flow_that_crosses_deliveries_counts_them() -> None:
    """The delivery-count of a flow says how many of the deliveries it knows of (part 2, section 2.6.7)."""
    bench = filled(5)
    link = receiver(bench, credit=2)
    bench.settle()
    link.session.flow(handle=link.handle, delivery_count=0, link_credit=3)  # has seen neither of the two
    link.credit = 3
    assert taken(link) == [0, 1, 2]
    assert left(bench) == [3, 4]


def test_messages_go_to_receivers_in_turn_whatever_their_protocol() -> None:
    bench = ClientBench()
    channel = channel_of(bench)
    channel.declare("q")
    first = receiver(bench, credit=10)
    channel.consume("q", no_ack=True)
    second = receiver(bench, credit=10)
    fill(bench, range(6))
    assert taken(first) == [0, 3]
    assert [int(delivery.body) for delivery in channel.deliveries()] == [1, 4]
    assert taken(second) == [2, 5]


def test_x063_credit_and_settlement_stay_right_when_300_rejections_are_batched() -> None:
    bench = ClientBench()
    declare(bench, "dead")
    filled(300, bench, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    link = receiver(bench, credit=300)
    deliveries = link.all()
    assert numbers(deliveries) == list(range(300))
    link.session.dispose(p.Rejected(), deliveries[0].id, deliveries[-1].id)
    assert bench.queue("q").unsettled == 0
    assert left(bench, "dead") == list(range(300))
    fill(bench, range(300, 302))
    assert taken(link) == []
    link.want(1)
    assert taken(link) == [300]


# Drain.


def test_s180_drain_gives_what_there_is_and_voids_the_rest() -> None:
    bench = filled(2)
    link = receiver(bench)
    link.want(10, drain=True)
    assert taken(link) == [0, 1]
    assert link.drained
    assert (link.count, link.credit) == (10, 0)
    fill(bench, range(2, 3))
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
    bench = filled(0)
    session = session_of(bench)
    link = session.receiver(QUEUE)
    channel = channel_of(bench)
    channel.publish("", "q", b"0", settle=False)
    link.credit = 5
    session.flow(settle=False, handle=link.handle, delivery_count=0, link_credit=5, drain=True)
    bench.settle()
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
    bench = filled(0)
    session = session_of(bench)
    link = session.receiver(QUEUE)
    link.credit = 5
    session.flow(settle=False, handle=link.handle, delivery_count=0, link_credit=5, drain=True)
    session.flow(settle=False, handle=link.handle, delivery_count=0, link_credit=5, drain=False)
    bench.settle()
    session.peer.read()
    assert not link.drained
    fill(bench, range(1))
    assert taken(link) == [0]


def test_s180_two_drains_in_one_breath_are_answered_once() -> None:
    bench = filled(0)
    session = session_of(bench)
    link = session.receiver(QUEUE)
    before = len(session.flows)
    for _ in range(2):
        session.flow(settle=False, handle=link.handle, delivery_count=0, link_credit=5, drain=True)
    bench.settle()
    session.peer.read()
    assert [flow.drain for flow in session.flows[before:]] == [True]


def test_s180_nothing_to_wait_for_no_drain_waits_for_the_window() -> None:
    session = Peer(filled(0)).open().begin(incoming_window=0)
    link = session.receiver(QUEUE)
    link.want(10, drain=True)
    assert link.drained


def test_s180_a_drain_waits_for_the_window_of_the_session() -> None:
    bench = filled(3)
    session = Peer(bench).open().begin(incoming_window=2)
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
    bench = ClientBench("[limits]\noutbox_size_max = 65536")
    declare(bench, "q")
    channel = channel_of(bench)
    for _ in range(4):
        channel.publish("", "q", bytes(40_000))
    session = session_of(bench)
    link = session.receiver(QUEUE)
    link.credit = 10
    session.flow(handle=link.handle, delivery_count=0, link_credit=10, drain=True)
    assert bench.queue("q").ready == 2  # as much as was written before the mark
    assert len(link.all()) == 4
    bench.settle()
    link.peer.read()
    assert link.drained
    assert link.count == 10


def test_s180_echo_is_answered_and_tells_what_is_available() -> None:
    bench = filled(4)
    link = receiver(bench, credit=1)
    assert taken(link) == [0]
    before = len(link.session.flows)
    link.want(0, echo=True)
    [flow] = link.session.flows[before:]
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (link.attached.handle, 1, 0)
    assert flow.available == 3
    fill(bench, range(4, 6))
    link.want(0, echo=True)
    assert link.session.flows[-1].available == 5


# The session's window, and the outbox.


def test_deliveries_stop_at_the_window_of_the_session() -> None:
    bench = filled(5)
    session = Peer(bench).open().begin(incoming_window=3)
    link = session.receiver(QUEUE, credit=100)
    assert taken(link) == [0, 1, 2]
    assert left(bench) == [3, 4]  # for whoever else wants them
    session.window = 1
    session.flow()
    assert taken(link) == [3]


def test_the_window_goes_to_whoever_was_served_longest_ago() -> None:
    bench = ClientBench()
    filled(10, bench, "first")
    filled(10, bench, "second")
    session = Peer(bench).open().begin(incoming_window=1)
    links = [session.receiver(f"/queues/{name}", credit=10) for name in ("first", "second")]
    got = []
    for _ in range(7):
        session.window = 1
        session.flow()
        got.append([taken(link) for link in links])
    assert [sum(map(len, each)) for each in zip(*got[1:], strict=True)] == [3, 3]


def test_deliveries_stop_when_the_peer_does_not_read() -> None:
    bench = ClientBench("[limits]\noutbox_size_max = 65536")
    declare(bench, "q")
    channel = channel_of(bench)
    for _ in range(10):
        channel.publish("", "q", bytes(20_000))
    session = session_of(bench)
    link = session.receiver(QUEUE)
    link.credit = 10
    session.flow(handle=link.handle, delivery_count=0, link_credit=10)
    assert bench.queue("q").ready == 6
    assert len(link.all()) == 10


# The end of links.


def test_s178_what_a_detached_receiver_has_not_settled_goes_back_in_order() -> None:
    bench = filled(4)
    session = session_of(bench)
    first, second = session.receiver(QUEUE, credit=3), session.receiver(QUEUE)
    assert taken(first) == [0, 1, 2]
    first.accept()  # 0
    first.detach()
    assert left(bench) == [1, 2, 3]
    second.want(10)
    deliveries = second.all()
    assert numbers(deliveries) == [1, 2, 3]
    assert [delivery.header.first_acquirer for delivery in deliveries] == [False, False, True]
    assert [delivery.header.delivery_count for delivery in deliveries] == [None, None, None]


def test_s178_receivers_on_one_session_are_served_in_turn_and_inherit_each_other() -> None:
    bench = filled(0)
    session = session_of(bench)
    first, second = session.receiver(QUEUE, credit=50), session.receiver(QUEUE, credit=50)
    fill(bench, range(4))
    assert taken(first) == [0, 2]
    assert taken(second) == [1, 3]
    first.detach()
    again = second.all()
    assert numbers(again) == [0, 2]
    session.dispose(p.Accepted(), min(second.unsettled), max(second.unsettled))
    assert (bench.queue("q").unsettled, left(bench)) == (0, [])


@pytest.mark.parametrize("end", ["detach", "session", "connection", "transport"])
def test_s178_however_a_link_ends_nothing_is_lost(end: str) -> None:
    bench = filled(3)
    link = receiver(bench, credit=2)
    assert taken(link) == [0, 1]
    if end == "detach":
        link.detach(closed=False)
    elif end == "session":
        link.session.end()
    elif end == "connection":
        link.peer.close()
    else:
        link.peer.drop()
    assert left(bench) == [0, 1, 2]
    assert not bench.queue("q").consumers
    assert bench.queue("q").unsettled == 0


def test_s179_a_deleted_queue_ends_its_links_and_no_others() -> None:
    bench = filled(2)
    filled(1, bench, "other")
    session = session_of(bench)
    link, other = session.receiver(QUEUE, credit=1), session.receiver("/queues/other")
    assert taken(link) == [0]
    bench.host.delete_queue(bench.queue("q"))
    bench.settle()
    assert link.refusal() == "amqp:resource-deleted queue 'q' in vhost '/' was deleted"
    other.want(1)
    assert taken(other) == [0]


def test_an_auto_delete_queue_goes_with_its_last_receiver() -> None:
    bench = filled(1, auto_delete=True)
    session = session_of(bench)
    first, second = session.receiver(QUEUE), session.receiver(QUEUE)
    first.detach()
    assert "q" in bench.host.queues
    second.detach()
    assert "q" not in bench.host.queues


def test_s181_the_exclusive_queue_of_another_connection_is_locked() -> None:
    bench = ClientBench()
    channel_of(bench).declare("q", exclusive=True)
    refusal = session_of(bench).ask_receiver(QUEUE).refusal()
    assert refusal.startswith(
        "amqp:resource-locked cannot obtain exclusive access to locked queue 'q' in vhost '/'"
    )


def test_s177_a_refused_receiver_is_answered_without_a_source_and_the_session_goes_on() -> None:
    bench = filled(1)
    session = session_of(bench)
    link = session.ask_receiver("/queues/missing")
    assert link.attached.source is None
    assert link.refusal() == "amqp:not-found no queue 'missing' in vhost '/'"
    assert taken(session.receiver(QUEUE, credit=1)) == [0]


def test_s182_whoever_may_not_read_is_refused() -> None:
    bench = filled(1)
    session = session_of(bench, bench.user("ann", read="other"))
    link = session.ask_receiver(QUEUE)
    why = "read access to queue 'q' in vhost '/' refused for user 'ann'"
    assert link.attached.source is None
    assert link.refusal() == f"amqp:unauthorized-access {why}"
    assert (session.ended, len(bench.queue("q").consumers)) == (None, 0)


def test_whoever_may_not_read_any_more_loses_the_link() -> None:
    """The like of X008."""
    bench = filled(1)
    link = receiver(bench, credit=0)
    session = session_of(bench, bench.user("ann"))
    theirs = session.receiver(QUEUE)
    bench.broker.access.set_permissions("ann", "/", ".*", ".*", "other")
    session.peer.front.change_secret(b"ann")
    assert theirs.refusal().startswith("amqp:unauthorized-access read access to queue 'q'")
    assert len(bench.queue("q").consumers) == 1
    link.want(1)
    assert taken(link) == [0]


def test_x025_a_session_has_no_more_consumers_than_the_node_allows() -> None:
    bench = filled(0, ClientBench("[limits]\nconsumers_per_channel_max = 2"))
    session = session_of(bench)
    first, _ = session.receiver(QUEUE), session.receiver(QUEUE)
    refusal = session.ask_receiver(QUEUE).refusal()
    assert refusal == "amqp:resource-limit-exceeded reached maximum (2) of consumers per channel"
    first.detach()
    session.receiver(QUEUE)


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_an_attach_that_does_not_fit_the_peers_frames_leaves_the_session_and_nothing_behind(
    role: str,
) -> None:
    bench = filled(1)
    session = Peer(bench).open(max_frame_size=512).begin()
    dynamic = {"dynamic": True, "capabilities": [Symbol("temporary-queue")]}
    if role == "sender":
        refused = session.ask_sender(p.Target(**dynamic), name="n" * 430)
    else:
        refused = session.ask_receiver(p.Source(**dynamic), name="n" * 430)
    assert refused.refusal().startswith("amqp:frame-size-too-small")
    assert session.ended is None
    assert [*bench.host.queues] == ["q"]
    assert taken(session.receiver(QUEUE, credit=1)) == [0]


def test_a_management_link_that_does_not_fit_the_peers_frames_may_be_attached_again() -> None:
    session = Peer(ClientBench()).open(max_frame_size=512).begin()
    paired = {"properties": {"paired": True}, "name": "pair", "snd_settle_mode": SETTLED}
    long = p.Source(address="n", capabilities=[Symbol("x" * 600)])
    refused = session.ask_sender("/management", source=long, **paired)
    assert refused.refusal().startswith("amqp:frame-size-too-small")
    session.sender("/management", source=p.Source(address="n"), **paired)


@pytest.mark.parametrize("name", ["n" * 255, "\u2713" * 255])
def test_the_open_of_a_node_with_a_long_name_fits_the_peers_frames(name: str) -> None:
    peer = Peer(ClientBench(f'node.name = "{name}"')).open(max_frame_size=512)
    assert name.startswith(peer.opened.container_id)
    assert len(peer.opened.encode()) + 8 <= 512
