"""Class tx: transfers and accepts that wait for a commit, and what a rollback leaves as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.durable.journal import Journal
from leveret.durable.store.memory import MemoryStore
from leveret.protocols.amqp010.broker.encoding import ENCODING
from leveret.protocols.amqp010.broker.transactions import LocalTransaction
from leveret.protocols.amqp010.codec import commands as c
from tests.harness.bench import ClientBench

from .client import ClientSession, ids
from .peer import session_of, waiting


@pytest.fixture
def tx(session: ClientSession) -> ClientSession:
    session.call(c.TxSelect())
    return session


def commit(session: ClientSession) -> None:
    session.call(c.TxCommit())


def roll_back(session: ClientSession) -> None:
    session.call(c.TxRollback())


# Selecting.


def test_transactions_are_selected_once(tx: ClientSession) -> None:
    tx.send(c.TxSelect())
    assert tx.ended().code == c.ERROR_CODE_ILLEGAL_STATE


@pytest.mark.parametrize("command", [c.TxCommit(), c.TxRollback()], ids=lambda command: command.NAME)
def test_there_is_nothing_to_end_before_they_are_selected(session: ClientSession, command: c.Command) -> None:
    session.send(command)
    assert session.ended().code == c.ERROR_CODE_ILLEGAL_STATE


def test_local_and_distributed_transactions_are_not_mixed(tx: ClientSession) -> None:
    tx.send(c.DtxSelect())
    assert tx.ended().code == c.ERROR_CODE_ILLEGAL_STATE


def test_distributed_and_local_transactions_are_not_mixed(session: ClientSession) -> None:
    session.call(c.DtxSelect())
    session.send(c.TxSelect())
    assert session.ended().code == c.ERROR_CODE_ILLEGAL_STATE


# Transfers.


def test_transfers_are_complete_and_accepted_at_once_and_reach_their_queues_at_the_commit(
    bench: ClientBench, tx: ClientSession
) -> None:
    id = tx.publish("q", b"1", accept_mode=c.ACCEPT_MODE_EXPLICIT)
    tx.publish("q", b"2")
    tx.sync()
    assert tx.taken(c.MessageAccept) == [c.MessageAccept(ids(id))]
    assert waiting(bench) == []
    commit(tx)
    assert waiting(bench) == [b"1", b"2"]


def test_a_rollback_forgets_them_and_a_new_transaction_begins(bench: ClientBench, tx: ClientSession) -> None:
    tx.publish("q", b"1")
    roll_back(tx)
    tx.publish("q", b"2")
    commit(tx)
    commit(tx)
    assert waiting(bench) == [b"2"]


def test_what_may_not_be_published_ends_the_session_at_once(bench: ClientBench, tx: ClientSession) -> None:
    tx.publish("q", b"1")
    tx.publish("q", b"2", "nope")
    assert tx.ended().code == c.ERROR_CODE_NOT_FOUND
    assert waiting(bench) == []


def test_messages_are_routed_when_they_come(bench: ClientBench, tx: ClientSession) -> None:
    tx.bind("q", "amq.direct", "k")
    tx.publish("k", b"1", "amq.direct")
    tx.call(c.ExchangeUnbind("q", "amq.direct", "k"))
    tx.publish("k", b"2", "amq.direct")
    commit(tx)
    assert waiting(bench) == [b"1"]


def test_s125_a_queue_that_was_declared_again_gets_its_messages(
    bench: ClientBench, tx: ClientSession
) -> None:
    tx.publish("q", b"1")
    tx.call(c.QueueDelete("q"))
    tx.declare("q")
    commit(tx)
    assert waiting(bench) == [b"1"]


def test_s125_a_message_whose_queue_is_gone_goes_to_the_alternate_exchange(
    bench: ClientBench, tx: ClientSession
) -> None:
    tx.declare("spare")
    tx.bind("spare", "amq.fanout", "")
    tx.call(c.ExchangeDeclare("x", "direct", alternate_exchange="amq.fanout"))
    tx.bind("q", "x", "k")
    tx.publish("k", b"1", "x")
    tx.call(c.QueueDelete("q"))
    commit(tx)
    assert waiting(bench, "spare") == [b"1"]


def test_s125_one_that_nothing_takes_any_more_fails_the_commit(bench: ClientBench, tx: ClientSession) -> None:
    tx.declare("other")
    tx.publish("other", b"1")
    tx.publish("q", b"2")
    tx.call(c.QueueDelete("q"))
    tx.send(c.TxCommit())
    assert tx.ended().code == c.ERROR_CODE_NOT_FOUND
    assert waiting(bench, "other") == []


def test_a_commit_is_all_or_nothing(bench: ClientBench, tx: ClientSession) -> None:
    tx.declare("full", {"x-max-length": 2, "x-overflow": "reject-publish"})
    inbox_of(bench, tx, 1)
    tx.accept(tx.inboxes["q"].taken)
    tx.publish("q", b"other")
    for number in range(3):
        tx.publish("full", b"%d" % number)
    tx.send(c.TxCommit())
    assert tx.ended().code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    bench.settle()
    assert waiting(bench, "full") == []
    assert waiting(bench) == [b"m0"]


def test_a_transaction_has_an_end(bench: ClientBench, tx: ClientSession) -> None:
    session = tx.client.front.wire.sessions[tx.channel]  # type: ignore[attr-defined]
    session.owner.tx = LocalTransaction(session.owner, size_max=20_000)
    for _ in range(2):
        for _ in range(4):
            tx.publish("q", bytes(4000))
        commit(tx)
    for _ in range(5):
        tx.publish("q", bytes(4000))
    assert tx.ended().code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    assert bench.queue("q").ready == 8


# Accepts.


def inbox_of(bench: ClientBench, session: ClientSession, count: int) -> list[int]:
    """Ids of so many messages that the session was sent."""
    publisher = session_of(bench, "publisher")
    for number in range(count):
        publisher.publish("q", b"m%d" % number)
    publisher.sync()
    inbox = session.subscribe("q")
    assert len(inbox.all()) == count
    return inbox.taken


def test_accepts_count_at_the_commit(bench: ClientBench, tx: ClientSession) -> None:
    taken = inbox_of(bench, tx, 3)
    tx.accept(taken[:2])
    assert bench.queue("q").unsettled == 3
    commit(tx)
    assert bench.queue("q").unsettled == 1
    assert bench.queue("q").accepted == 2


def test_after_a_rollback_what_was_accepted_is_unsettled_still(bench: ClientBench, tx: ClientSession) -> None:
    """It stays with the session, which may release it or accept it again."""
    taken = inbox_of(bench, tx, 3)
    tx.accept(taken)
    roll_back(tx)
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (0, 3)
    tx.call(c.MessageCancel("q"))
    tx.release(taken[1])
    assert waiting(bench) == [b"m1"]
    tx.accept(taken[0])
    commit(tx)
    assert bench.queue("q").unsettled == 1


@pytest.mark.parametrize("end", [commit, roll_back])
def test_what_was_accepted_may_be_released_before_the_transaction_ends(
    bench: ClientBench, tx: ClientSession, end: Callable[[ClientSession], None]
) -> None:
    """Python clients do so before they roll back."""
    taken = inbox_of(bench, tx, 3)
    tx.accept(taken)
    tx.call(c.MessageStop("q"))
    tx.release(taken[:2])
    tx.reject(taken[2])
    end(tx)
    assert waiting(bench) == [b"m0", b"m1"]
    assert (bench.queue("q").unsettled, bench.queue("q").accepted) == (0, 0)


def test_what_is_accepted_twice_in_a_transaction_is_accepted_once(
    bench: ClientBench, tx: ClientSession
) -> None:
    taken = inbox_of(bench, tx, 2)
    tx.accept(taken)
    tx.accept(taken)
    commit(tx)
    assert (bench.queue("q").unsettled, bench.queue("q").accepted) == (0, 2)


def test_release_and_reject_do_not_wait_for_the_commit(bench: ClientBench, tx: ClientSession) -> None:
    taken = inbox_of(bench, tx, 2)
    tx.call(c.MessageStop("q"))
    tx.release(taken[0])
    tx.reject(taken[1])
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (1, 0)
    roll_back(tx)
    assert bench.queue("q").ready == 1


def test_the_end_of_a_session_rolls_back(bench: ClientBench, tx: ClientSession) -> None:
    taken = inbox_of(bench, tx, 2)
    tx.accept(taken)
    tx.publish("q", b"new")
    tx.detach()
    bench.settle()
    assert waiting(bench) == [b"m0", b"m1"]
    assert bench.queue("q").unsettled == 0


def test_a_commit_is_complete_when_it_is_on_disk(bench: ClientBench, session: ClientSession) -> None:
    """The node holds back what it says after a commit: the store has it in the same commit as the messages."""
    session.declare("kept", durable=True)
    store = MemoryStore(held=True)
    journal = Journal(store, bench.broker, {"amqp010": lambda: ENCODING})
    bench.queue("kept").number, bench.queue("kept").journal = 1, journal
    journal.start(lambda told: told())
    session.call(c.TxSelect())
    properties = c.DeliveryProperties(delivery_mode=c.DELIVERY_MODE_PERSISTENT, routing_key="kept")
    session.publish("", b"m", delivery=properties)
    session.sync()
    assert not journal.holds
    assert store.flying is None
    broker = bench.broker
    session.client.front.receive(octets_of(session, c.TxCommit()), broker.tick())  # type: ignore[attr-defined]
    assert journal.holds
    bench.settle()
    assert store.flying is not None


def octets_of(session: ClientSession, command: c.Command) -> bytes:
    sent: list[bytes] = []
    peer = session.client
    send_bytes, peer.send_bytes = peer.send_bytes, sent.append  # type: ignore[method-assign, assignment]
    session.send(command, sync=True)
    peer.send_bytes = send_bytes  # type: ignore[method-assign]
    return b"".join(sent)
