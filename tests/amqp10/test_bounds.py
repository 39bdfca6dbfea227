"""What a peer can make the broker keep, do, or forget: little, and nothing of somebody else's."""

from __future__ import annotations

import gc
import logging

import pytest

from leveret.protocols.amqp10.broker.transactions import Transactions
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Symbol
from leveret.server.node.logs import TextLines
from tests.amqp10.client import SETTLED, Receiver, Session
from tests.amqp10.consuming import QUEUE, filled
from tests.amqp10.controller import Control, in_tx
from tests.amqp10.parts import APPLICATION_PROPERTIES, data, frame, section
from tests.amqp10.peer import SECOND, Peer, bind, declare, session_of
from tests.harness.bench import ClientBench

MARKER = Described(Symbol("of a peer"), None)
FIRST_TAG = bytes(4)  # of the client in memory
MARKED = {Symbol("x"): MARKER}


def kept() -> int:
    """How many marked values there are besides the test's own."""
    gc.collect()
    there = (each for each in gc.get_objects() if type(each) is Described and each is not MARKER)
    return sum(each == MARKER for each in there)


# What links keep of their attach.


def test_what_a_receiver_asks_for_and_does_not_get_is_not_kept(bench: ClientBench) -> None:
    source = p.Source(address=QUEUE, filter=MARKED, dynamic_node_properties=MARKED)
    session_of(bench).receiver(source, properties=MARKED, unsettled=None)
    assert kept() == 0


def test_what_a_subscription_does_not_heed_is_not_kept(bench: ClientBench) -> None:
    source = p.Source(
        address="/exchanges/amq.topic/k", durable=2, filter=MARKED, dynamic_node_properties=MARKED
    )
    session_of(bench).receiver(source, properties=MARKED)
    assert kept() == 0


def test_what_a_sender_says_besides_is_not_kept(bench: ClientBench) -> None:
    target = p.Target(address=QUEUE, dynamic_node_properties=MARKED)
    session_of(bench).sender(target, properties=MARKED, rcv_settle_mode=SECOND)
    # our attach repeats the target, and the client in memory has heard it
    assert kept() == 1


def test_the_name_of_a_link_is_short(bench: ClientBench) -> None:
    session = session_of(bench)
    session.receiver(QUEUE, name="n" * 1024)
    refused = session.ask_receiver(QUEUE, name="n" * 1025)
    assert refused.refusal() == "amqp:invalid-field the name of a link has more than 1024 characters"


def test_the_address_that_a_management_pair_keeps_is_short(bench: ClientBench) -> None:
    session = session_of(bench)
    link = session.ask_sender(
        "/management",
        source=p.Source(address="a" * 1025),
        snd_settle_mode=SETTLED,
        properties={Symbol("paired"): True},
    )
    assert link.refusal() == "amqp:invalid-field an address has more than 1024 characters"


def test_what_is_said_of_an_unfinished_message_is_not_kept_unless_it_counts(bench: ClientBench) -> None:
    session = session_of(bench)
    link = session.sender(QUEUE)
    state = p.Modified(message_annotations={Symbol("x-a"): MARKER})
    session.send(
        p.Transfer(handle=link.handle, delivery_id=0, delivery_tag=b"t", more=True, state=state), b"\0"
    )
    assert kept() == 0


def test_no_message_is_part_of_a_transaction_with_a_long_name(bench: ClientBench) -> None:
    session = session_of(bench)
    link = session.sender(QUEUE)
    state = in_tx(b"t" * 33)
    session.send(
        p.Transfer(handle=link.handle, delivery_id=0, delivery_tag=b"t", more=True, state=state), b"\0"
    )
    assert link.refusal() == "amqp:transaction:unknown-id no transaction has an id of 33 octets"


# What is applied later must be possible then.


def test_a_default_outcome_that_could_not_be_applied_is_refused() -> None:
    bench = filled(1)
    session = session_of(bench)
    refused = session.ask_receiver(
        p.Source(address=QUEUE, default_outcome=p.Modified(message_annotations={Symbol("a"): 1}))
    )
    assert refused.refusal().startswith("amqp:invalid-field Attach refused: reserved annotation key")
    assert not bench.queue("q").consumers


def test_a_default_outcome_is_short() -> None:
    annotations = {Symbol("x-a"): "a" * 1024}
    link = session_of(filled(1)).ask_receiver(
        p.Source(address=QUEUE, default_outcome=p.Modified(message_annotations=annotations))
    )
    assert link.refusal().endswith("a default outcome has more than 1024 octets")


def test_outcomes_count_with_what_they_say_towards_what_transactions_hold() -> None:
    bench = filled(1)
    peer = Peer(bench).open()
    peer.front.transactions = Transactions(bench.broker, held_size_max=10_000)
    session = peer.begin()
    control = Control(session)
    tx = control.declare()
    link = session.receiver(QUEUE, credit=1)
    state = p.Modified(message_annotations={Symbol("x-a"): "a" * 1000})
    session.dispose(in_tx(tx, state), link.get().id, settled=False)
    outcome = control.commit(tx)
    assert isinstance(outcome, p.Rejected)
    assert outcome.error.condition == "amqp:transaction:rollback"


def test_every_queue_that_a_message_is_for_counts_towards_what_transactions_hold(bench: ClientBench) -> None:
    for number in range(20):
        declare(bench, f"q{number}")
        bind(bench, "amq.fanout", f"q{number}")
    peer = Peer(bench).open()
    peer.front.transactions = Transactions(bench.broker, held_size_max=10_000)
    session = peer.begin()
    control = Control(session)
    link = session.sender("/exchanges/amq.fanout")
    tx = control.declare()
    assert isinstance(link.publish(data(b"a"), state=in_tx(tx)).outcome, p.Rejected)
    assert isinstance(control.commit(tx), p.Rejected)
    tx = control.declare()
    link = session.sender("/queues/q")
    assert link.publish(data(b"a"), state=in_tx(tx)) == in_tx(tx, p.Accepted())
    assert control.commit(tx) == p.Accepted()


# Others have their turn: reading halts after what is much work.


def unread(session: Session, *frames: bytes) -> bool:
    """Whether reading halts before the last of these frames."""
    session.peer.front.receive(b"".join(frames), 0)
    return session.peer.front.halted


def test_one_request_to_the_management_is_worked_off_at_a_time(bench: ClientBench) -> None:
    session = session_of(bench)
    paired = {Symbol("paired"): True}
    source, target = p.Source(address="me"), p.Target(address="me")
    link = session.sender("/management", "m", source=source, snd_settle_mode=SETTLED, properties=paired)
    session.receiver("/management", name="m", credit=9, target=target, properties=paired)
    request = p.Properties(message_id=1, to="/queues/q", subject="GET", reply_to="$me").encode()
    transfer = p.Transfer(handle=link.handle, delivery_id=0, delivery_tag=b"t", settled=True)
    assert unread(session, frame(0, transfer, request), frame(0, transfer, request))
    session.peer.read()
    assert unread(session)
    assert not unread(session)


def test_many_searches_through_a_long_queue_are_more_than_one_turn(bench: ClientBench) -> None:
    session = session_of(bench)
    copy = p.Source(address=QUEUE, distribution_mode=Symbol("copy"))
    attach = p.Attach(name="b", handle=0, role=True, source=copy, target=p.Target())
    frames = [frame(0, attach), frame(0, p.Detach(handle=0, closed=True))]
    assert not unread(session, *frames, *frames)
    bench.queue("q").ready = 6_000_000  # as if so many waited
    assert unread(session, *frames, *frames)


def test_what_a_selector_reads_of_a_message_counts_as_work(bench: ClientBench) -> None:
    source = p.Source(
        address="/exchanges/amq.topic/k",
        capabilities=[Symbol("topic")],
        filter={Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), "a = 'b'")},
    )
    session_of(bench).receiver(source)
    session = session_of(bench)
    link = session.sender("/exchanges/amq.topic/k")
    transfer = p.Transfer(handle=link.handle, delivery_id=0, delivery_tag=b"t", settled=True)
    small, large = (section(APPLICATION_PROPERTIES, {"a": "a" * size}) + data(b"") for size in (1, 100_000))
    assert not unread(session, *[frame(0, transfer, small)] * 3)
    assert unread(session, *[frame(0, transfer, large)] * 8)


# What is another user's.


def test_what_a_sender_left_behind_is_not_another_users(bench: ClientBench) -> None:
    target = p.Target(address=QUEUE, expiry_policy=Symbol(p.TERMINUS_EXPIRY_POLICY_NEVER))

    def sender_of(user: str, **fields: object) -> p.Attach:
        session = session_of(bench, user)
        link = session.sender(target, name="s", rcv_settle_mode=SECOND, **fields)
        if not fields:
            link.send(data(b"a"))
        session.peer.read()
        session.peer.drop()
        return link.attached

    bench.user("ann")
    sender_of("guest")
    tag = FIRST_TAG
    assert not sender_of("ann", unsettled={tag: None}).unsettled
    assert list(sender_of("guest", unsettled={tag: None}).unsettled) == [tag]


@pytest.mark.parametrize("lacking", ["configure", "write"])
def test_who_may_not_make_a_subscription_does_not_come_back_to_one(bench: ClientBench, lacking: str) -> None:
    source = p.Source(address="/exchanges/amq.topic/k", durable=2, capabilities=[Symbol("topic")])
    mine = session_of(bench).receiver(source, name="sub")
    session = session_of(bench, bench.user("ann", **{lacking: "other"}))
    refused = session.attach(Receiver(session, "sub"), source=None, target=p.Target())
    assert refused.refusal().startswith(
        f"amqp:unauthorized-access {lacking} access to queue 'amq.sub-test/sub'"
    )
    mine.peer.read()
    assert mine.detached is None


def test_a_peer_writes_no_lines_of_its_own_into_the_log() -> None:
    record = logging.makeLogRecord({"msg": "user '%s': %s", "args": ("a\nb\x1b", "\xe4")})
    assert TextLines().format(record).endswith(": user 'a\\nb\\x1b': \xe4")
