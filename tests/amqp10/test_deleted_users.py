"""What a user's links have left goes with the user: the next user of that name neither gets nor settles any of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.protocols.amqp10.broker.termini import termini_of
from leveret.protocols.amqp10.codec import performatives as p
from leveret.server.definitions.importer import apply
from leveret.server.definitions.reader import read_content
from tests.amqp10.client import Receiver
from tests.amqp10.parts import Delivery, data
from tests.amqp10.peer import declare, session_of
from tests.amqp10.subscribing import subscribed
from tests.amqp10.test_recovery import known_to, tag
from tests.amqp10.test_unsettled_state import bench_of, notes, receiver_of, send, sender_of, stored
from tests.harness.bench import StoredBench

NAME = "ann"


def bench_with_ann(count: int = 0) -> StoredBench:
    """A node with a store, the queue q with so many messages, and a user that clients have made."""
    bench = bench_of(count)
    bench.user(NAME)
    return bench


def delete(bench: StoredBench) -> None:
    bench.broker.access.delete_user(NAME)
    bench.settle()


def make_anew(bench: StoredBench) -> StoredBench:
    delete(bench)
    bench.user(NAME)
    return bench


def import_anew(bench: StoredBench) -> StoredBench:
    delete(bench)
    user = {"name": NAME, "password_hash": "", "tags": []}
    permission = {"user": NAME, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    apply(read_content({"users": [user], "permissions": [permission]}), bench.broker)
    bench.user(NAME)
    return bench


def start_and_make_anew(bench: StoredBench) -> StoredBench:
    return make_anew(bench.again())


def make_anew_and_start(bench: StoredBench) -> StoredBench:
    return make_anew(bench).again()


def start_without_and_make_anew(bench: StoredBench) -> StoredBench:
    """The user is gone with the last commit of the node from before."""
    delete(bench)
    after = bench.again()
    after.user(NAME)
    return after


WAYS = [make_anew, import_anew, start_and_make_anew, make_anew_and_start, start_without_and_make_anew]
Way = Callable[[StoredBench], StoredBench]


def got(receiver: Receiver) -> Delivery:
    delivery = receiver.get()
    assert delivery is not None
    return delivery


@pytest.mark.parametrize("is_detached", [True, False], ids=["detached", "attached"])
@pytest.mark.parametrize("way", WAYS)
def test_the_next_user_of_that_name_resumes_no_receiver(way: Way, is_detached: bool) -> None:
    bench = bench_with_ann(1)
    session = session_of(bench, NAME)
    delivery = got(receiver_of(session))
    if is_detached:
        session.peer.drop()
    bench.settle()
    assert (len(stored(bench)), notes(bench)) == (1, 1)
    after = way(bench)
    again = receiver_of(session_of(after, NAME), {delivery.tag: p.Accepted()})
    assert not again.attached.unsettled
    if after is bench and not is_detached:
        assert again.get() is None  # the client from before has it as long as it is there
        session.peer.drop()
        after.settle()
    assert [each.resume for each in again.peer.taken(p.Transfer)] == [False]
    assert got(again).body == b"0"


@pytest.mark.parametrize("is_detached", [True, False], ids=["detached", "attached"])
@pytest.mark.parametrize("way", WAYS)
def test_the_next_user_of_that_name_is_told_nothing_of_what_was_sent(way: Way, is_detached: bool) -> None:
    bench = bench_with_ann()
    session = session_of(bench, NAME)
    sender = sender_of(session)
    assert sender.outcome(send(sender, 0)) == p.Accepted()
    if is_detached:
        session.peer.drop()
    bench.settle()
    assert (len(stored(bench)), notes(bench)) == (1, 1)
    after = way(bench)
    assert not known_to(sender_of(session_of(after, NAME), {tag(0): None}))


def test_nothing_of_a_deleted_user_is_in_the_store_any_more() -> None:
    bench = bench_with_ann(1)
    session = session_of(bench, NAME)
    got(receiver_of(session, credit=1))
    send(sender_of(session), 0)
    session.peer.drop()
    bench.settle()
    assert (len(stored(bench)), notes(bench)) == (2, 2)
    delete(bench)
    assert (stored(bench), notes(bench)) == ([], 0)
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (2, 0)


def test_attached_links_go_on_and_leave_nothing() -> None:
    bench = bench_with_ann(2)
    session = session_of(bench, NAME)
    receiver, sender = receiver_of(session, credit=1), sender_of(session)
    delivery = got(receiver)
    delete(bench)
    assert (stored(bench), notes(bench)) == ([], 0)
    receiver.accept(delivery)
    receiver.want(1)
    assert got(receiver).body == b"1"
    send(sender, 2)
    session.peer.drop()
    bench.settle()
    termini = termini_of(bench.host)
    assert (stored(bench), notes(bench), termini.receivers, termini.targets) == ([], 0, {}, {})
    assert (termini.served, termini.publishing) == ({}, {})
    assert bench.queue("q").unsettled == 0


def test_a_client_whose_user_was_deleted_has_nothing_of_the_next_user() -> None:
    bench = bench_with_ann(1)
    old = session_of(bench, NAME)
    make_anew(bench)
    new = session_of(bench, NAME)
    delivery = got(receiver_of(new))
    assert sender_of(new).attached
    new.peer.drop()
    bench.settle()
    assert not receiver_of(old, {delivery.tag: p.Accepted()}).attached.unsettled
    assert not known_to(sender_of(old, {tag(0): None}))
    assert [delivery.tag] == [*receiver_of(session_of(bench, NAME), {delivery.tag: None}).attached.unsettled]


def test_others_and_users_of_other_names_keep_theirs() -> None:
    bench = bench_with_ann(1)
    session = session_of(bench)
    delivery = got(receiver_of(session))
    session.peer.drop()
    after = make_anew(bench).again()
    assert got(receiver_of(session_of(after), {delivery.tag: None})).tag == delivery.tag


def test_a_durable_subscription_stays_and_its_deliveries_come_anew() -> None:
    bench = bench_with_ann()
    session = session_of(bench, NAME)
    of = p.Source(
        address="/exchanges/amq.fanout", durable=2, expiry_policy=p.TERMINUS_EXPIRY_POLICY_NEVER, timeout=60
    )
    receiver = session.receiver(of, 10, "news", rcv_settle_mode=1)
    session_of(bench).sender("/exchanges/amq.fanout").publish(p.Header(durable=True), data(b"0"))
    delivery = got(receiver)
    session.peer.drop()
    after = make_anew(bench).again()
    assert len(subscribed(after)) == 1
    again = session_of(after, NAME).receiver(
        of, 10, "news", rcv_settle_mode=1, unsettled={delivery.tag: None}
    )
    assert not again.attached.unsettled
    assert [each.resume for each in again.peer.taken(p.Transfer)] == [False]
    assert got(again).body == b"0"


PATIENT = "[protocols.amqp10]\nidle_timeout_s = 0\n"
RIGHTS = 'permissions = { "/" = { configure = ".*", write = ".*", read = ".*" } }\n'
GUEST = '[[users]]\nname = "guest"\npassword = "guest"\n' + RIGHTS
ANN = '[[users]]\nname = "ann"\npassword = "ann"\n' + RIGHTS
ELSEWHERE = '[security]\nbackends = ["internal", "http"]\n[auth_http]\nuser_path = "http://127.0.0.1/user"\n'


@pytest.mark.parametrize("elsewhere", ["", ELSEWHERE], ids=["here", "elsewhere"])
def test_a_user_that_has_gone_from_the_file_meanwhile_leaves_nothing(elsewhere: str) -> None:
    """Unless others than this node have users, too: then it may be one of theirs."""
    bench = StoredBench(PATIENT + GUEST + ANN)
    declare(bench, "q", durable=True)
    session_of(bench).sender("/queues/q").publish(p.Header(durable=True), data(b"0"))
    got(receiver_of(session_of(bench, NAME)))
    bench.settle()
    assert len(stored(bench)) == 1
    bench.toml = PATIENT + GUEST + elsewhere
    after = bench.again()
    assert (len(stored(after)), after.queue("q").ready) == ((1, 0) if elsewhere else (0, 1))
