"""Class dtx: sessions that work in branches, and whoever decides about them, in this run of the node or the next."""

from __future__ import annotations

import pytest

from leveret.features.xa.branch import Verdict
from leveret.features.xa.branches import Branches
from leveret.protocols.amqp010.broker.distributed import ID_MAX, STATUS
from leveret.protocols.amqp010.codec import commands as c
from tests.durable.site import Site
from tests.harness.bench import ClientBench

from .client import ClientSession, SessionEnded
from .peer import Peer, refused, session_of, waiting
from .permitted import NOT_ALLOWED, NOT_FOUND

OK, BACK, LATE = c.XA_STATUS_XA_OK, c.XA_STATUS_XA_RBROLLBACK, c.XA_STATUS_XA_RBTIMEOUT
ILLEGAL, INVALID = c.ERROR_CODE_ILLEGAL_STATE, c.ERROR_CODE_COMMAND_INVALID


def xid(name: str = "a") -> c.Xid:
    return c.Xid(1, name.encode(), b"branch")


A = xid()


@pytest.fixture
def session(bench: ClientBench) -> ClientSession:
    """One that has selected dtx; there are two queues."""
    session = session_of(bench)
    session.declare("q")
    session.declare("r")
    session.call(c.DtxSelect())
    return session


@pytest.fixture
def other(bench: ClientBench) -> ClientSession:
    """A session of another connection, which has selected nothing."""
    return session_of(bench, "other")


def status(session: ClientSession, command: c.Command) -> int | None:
    result = session.call(command)
    assert isinstance(result, c.XaResult), result
    return result.status


def swap(session: ClientSession, name: str = "a", end: bool = True) -> None:
    """Take a message from q and put it into r, in a branch."""
    session.publish("q", b"swapped")
    assert status(session, c.DtxStart(xid(name))) == OK
    inbox = session.subscribe("q", messages=1)
    message = inbox.get()
    session.accept(message.id)
    session.call(c.MessageCancel("q"))
    session.publish("r", message.body)
    session.sync()
    if end:
        assert status(session, c.DtxEnd(xid(name))) == OK


# A message is swapped from one queue to the other.


def test_one_phase(bench: ClientBench, session: ClientSession, other: ClientSession) -> None:
    swap(session)
    assert (waiting(bench, "q"), waiting(bench, "r")) == ([], [])
    assert status(other, c.DtxCommit(A, True)) == OK
    assert (waiting(bench, "q"), waiting(bench, "r")) == ([], [b"swapped"])
    assert bench.queue("q").unsettled == 0


def test_two_phases(bench: ClientBench, session: ClientSession, other: ClientSession) -> None:
    swap(session)
    assert status(other, c.DtxPrepare(A)) == OK
    assert (waiting(bench, "q"), waiting(bench, "r")) == ([], [])
    assert status(other, c.DtxCommit(A, False)) == OK
    assert (waiting(bench, "q"), waiting(bench, "r")) == ([], [b"swapped"])


@pytest.mark.parametrize("prepares", [True, False])
def test_a_rollback_puts_what_was_accepted_into_its_queue(
    bench: ClientBench, session: ClientSession, other: ClientSession, prepares: bool
) -> None:
    swap(session)
    if prepares:
        assert status(other, c.DtxPrepare(A)) == OK
    assert status(other, c.DtxRollback(A)) == OK
    assert (waiting(bench, "q"), waiting(bench, "r")) == ([b"swapped"], [])
    again = other.subscribe("q").get()
    assert again.delivery.redelivered


def test_a_prepared_branch_of_a_session_that_has_gone(bench: ClientBench, session: ClientSession) -> None:
    swap(session)
    status(session, c.DtxPrepare(A))
    session.detach()
    other = session_of(bench, "other")
    assert status(other, c.DtxCommit(A)) == OK
    assert waiting(bench, "r") == [b"swapped"]


def test_an_idle_branch_of_a_session_that_has_gone(bench: ClientBench, session: ClientSession) -> None:
    swap(session)
    session.detach()
    other = session_of(bench, "other")
    assert waiting(bench, "q") == [], "it was accepted: that waits for the branch"
    assert status(other, c.DtxCommit(A, True)) == OK
    assert (waiting(bench, "q"), waiting(bench, "r")) == ([], [b"swapped"])


def test_a_session_that_goes_while_it_works_in_a_branch(bench: ClientBench, session: ClientSession) -> None:
    swap(session, end=False)
    session.detach()
    bench.settle()
    other = session_of(bench, "other")
    assert waiting(bench, "q") == [b"swapped"]
    assert status(other, c.DtxPrepare(A)) == BACK
    assert status(other, c.DtxRollback(A)) == OK
    assert refused(other, c.DtxRollback(A)) == NOT_FOUND


def test_a_connection_that_is_lost_while_its_session_works_in_a_branch(
    bench: ClientBench, session: ClientSession, other: ClientSession
) -> None:
    swap(session, end=False)
    assert isinstance(session.client, Peer)
    session.client.drop()
    assert waiting(bench, "q") == [b"swapped"]
    assert status(other, c.DtxPrepare(A)) == BACK


def test_what_comes_after_the_end_is_no_part_of_it(bench: ClientBench, session: ClientSession) -> None:
    status(session, c.DtxStart(A))
    session.publish("q", b"one")
    status(session, c.DtxEnd(A))
    session.publish("q", b"two")
    session.sync()
    assert waiting(bench) == [b"two"]
    inbox = session.subscribe("q")
    session.accept(inbox.get().id)
    assert bench.queue("q").unsettled == 0
    status(session, c.DtxCommit(A, True))
    assert [message.body for message in inbox.all()] == [b"one"]


def test_what_is_not_settled_stays_with_the_session(bench: ClientBench, session: ClientSession) -> None:
    """Only accepts belong to a branch: release and reject count at once."""
    for body in (b"1", b"2", b"3"):
        session.publish("q", body)
    status(session, c.DtxStart(A))
    inbox = session.subscribe("q")
    first, second, third = inbox.all()
    session.call(c.MessageStop("q"))
    session.release(first.id)
    session.reject(second.id)
    session.accept(third.id)
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (1, 1)
    session.release(third.id)
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (1, 1), "it is the branch's"


def test_two_sessions_in_one_branch(bench: ClientBench, session: ClientSession, other: ClientSession) -> None:
    other.call(c.DtxSelect())
    status(session, c.DtxStart(A))
    assert status(other, c.DtxStart(A, True)) == OK
    session.publish("q", b"1")
    session.sync()
    other.publish("q", b"2")
    other.sync()
    status(session, c.DtxEnd(A))
    assert refused(session, c.DtxPrepare(A)) == ILLEGAL
    status(other, c.DtxEnd(A))
    assert status(other, c.DtxCommit(A, True)) == OK
    assert waiting(bench) == [b"1", b"2"]


def test_a_branch_is_suspended_for_another_and_resumed(bench: ClientBench, session: ClientSession) -> None:
    b = xid("b")
    status(session, c.DtxStart(A))
    session.publish("q", b"1")
    assert status(session, c.DtxEnd(A, False, True)) == OK
    status(session, c.DtxStart(b))
    session.publish("q", b"of b")
    status(session, c.DtxEnd(b))
    session.publish("q", b"of none")
    assert status(session, c.DtxStart(A, False, True)) == OK
    session.publish("q", b"2")
    status(session, c.DtxEnd(A))
    assert waiting(bench) == [b"of none"]
    status(session, c.DtxCommit(A, True))
    status(session, c.DtxRollback(b))
    assert waiting(bench) == [b"of none", b"1", b"2"]


def test_a_session_that_fails_its_work(bench: ClientBench, session: ClientSession) -> None:
    swap(session, end=False)
    assert status(session, c.DtxEnd(A, True)) == BACK
    assert waiting(bench) == [b"swapped"]
    assert status(session, c.DtxCommit(A, True)) == BACK


# What is refused.


@pytest.mark.parametrize("command", [c.DtxStart(A), c.DtxEnd(A)], ids=lambda command: command.NAME)
def test_who_works_in_branches_has_to_select_dtx(other: ClientSession, command: c.Command) -> None:
    assert refused(other, command) == INVALID


def test_dtx_is_selected_once(session: ClientSession) -> None:
    assert refused(session, c.DtxSelect()) == ILLEGAL


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (c.DtxStart(A, True, True), INVALID),
        (c.DtxStart(A, True), NOT_ALLOWED),
        (c.DtxStart(A, False, True), NOT_ALLOWED),
        (c.DtxEnd(A), ILLEGAL),
        (c.DtxEnd(A, True, True), INVALID),
        (c.DtxPrepare(A), NOT_FOUND),
        (c.DtxCommit(A), NOT_FOUND),
        (c.DtxCommit(A, True), NOT_FOUND),
        (c.DtxRollback(A), NOT_FOUND),
        (c.DtxForget(A), NOT_FOUND),
        (c.DtxGetTimeout(A), NOT_FOUND),
        (c.DtxSetTimeout(A, 1), NOT_FOUND),
    ],
)
def test_what_nobody_knows(session: ClientSession, command: c.Command, code: int) -> None:
    assert refused(session, command) == code


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (c.DtxStart(A), NOT_ALLOWED),
        (c.DtxEnd(A), ILLEGAL),
        (c.DtxPrepare(A), ILLEGAL),
        (c.DtxCommit(A), ILLEGAL),
        (c.DtxCommit(A, True), ILLEGAL),
        (c.DtxRollback(A), ILLEGAL),
        (c.DtxForget(A), ILLEGAL),
    ],
)
def test_what_a_session_works_in(
    session: ClientSession, other: ClientSession, command: c.Command, code: int
) -> None:
    other.call(c.DtxSelect())
    status(session, c.DtxStart(A))
    assert refused(other, command) == code
    assert status(session, c.DtxEnd(A)) == OK


def test_phases_are_not_mixed_up(session: ClientSession, other: ClientSession) -> None:
    swap(session)
    third = session_of(other.client.bench, "third")  # type: ignore[attr-defined]
    assert refused(other, c.DtxCommit(A, False)) == ILLEGAL
    status(session, c.DtxPrepare(A))
    assert refused(third, c.DtxCommit(A, True)) == ILLEGAL
    assert status(session, c.DtxRollback(A)) == OK


@pytest.mark.parametrize(
    "name",
    [None, c.Xid(None, b"g", b"b"), c.Xid(1, bytes(ID_MAX + 1), b"b"), c.Xid(1, b"g", bytes(ID_MAX + 1))],
)
def test_a_name_that_is_none(session: ClientSession, name: c.Xid | None) -> None:
    with pytest.raises(SessionEnded) as ended:
        session.call(c.DtxStart(name))
    assert ended.value.code == c.ERROR_CODE_ILLEGAL_ARGUMENT
    assert ended.value.exception is not None
    assert ended.value.exception.field_index == 1


def test_parts_of_a_name_may_be_long_or_empty(session: ClientSession) -> None:
    for name in (c.Xid(4294967295, bytes(ID_MAX), bytes(ID_MAX)), c.Xid(0), c.Xid(0, b"g")):
        assert status(session, c.DtxStart(name)) == OK
        assert status(session, c.DtxEnd(name)) == OK
        assert status(session, c.DtxPrepare(name)) == OK
    found = session.call(c.DtxRecover())
    assert isinstance(found, c.RecoverResult)
    assert found.in_doubt == [
        c.Xid(4294967295, bytes(ID_MAX), bytes(ID_MAX)),
        c.Xid(0, b"", b""),
        c.Xid(0, b"g", b""),
    ]


def test_a_branch_that_holds_too_much_ends_its_session(bench: ClientBench, session: ClientSession) -> None:
    bench.host.guest(Branches).size_max = 10_000
    status(session, c.DtxStart(A))
    for _ in range(3):
        session.publish("q", bytes(4000))
    assert session.ended().code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    other = session_of(bench, "other")
    assert status(other, c.DtxPrepare(A)) == BACK


def test_a_branch_for_which_there_is_no_room(bench: ClientBench, session: ClientSession) -> None:
    session.declare("small", {"x-max-length": 1, "x-overflow": "reject-publish"})
    status(session, c.DtxStart(A))
    for body in (b"1", b"2"):
        session.publish("small", body)
    status(session, c.DtxEnd(A))
    assert status(session, c.DtxPrepare(A)) == BACK
    assert waiting(bench, "small") == []


def test_another_user_has_nothing_to_do_with_it(bench: ClientBench, session: ClientSession) -> None:
    swap(session)
    status(session, c.DtxPrepare(A))
    bench.user("eve")
    bench.user("root", tags=["administrator"])
    eve = session_of(bench, "s", "eve")
    recovered = eve.call(c.DtxRecover())
    assert isinstance(recovered, c.RecoverResult)
    assert recovered.in_doubt == []
    assert refused(eve, c.DtxRollback(A)) == c.ERROR_CODE_UNAUTHORIZED_ACCESS
    assert status(session_of(bench, "s", "root"), c.DtxCommit(A)) == OK


# Time.


def test_a_timeout_undoes_a_branch_while_its_session_works_in_it(
    bench: ClientBench, session: ClientSession
) -> None:
    swap(session, end=False)
    result = session.call(c.DtxGetTimeout(A))
    assert result == c.GetTimeoutResult(60)
    session.call(c.DtxSetTimeout(A, 2))
    assert session.call(c.DtxGetTimeout(A)) == c.GetTimeoutResult(2)
    bench.advance(3)
    assert (waiting(bench, "q"), waiting(bench, "r")) == ([b"swapped"], [])
    session.publish("r", b"too late")
    assert status(session, c.DtxEnd(A)) == LATE
    assert status(session, c.DtxRollback(A)) == LATE
    assert waiting(bench, "r") == []


# In doubt.


def test_recover_tells_what_is_prepared(session: ClientSession, other: ClientSession) -> None:
    for name in "abcd":
        status(session, c.DtxStart(xid(name)))
        session.publish("q", name.encode())
        status(session, c.DtxEnd(xid(name)))
    for name in "bd":
        status(other, c.DtxPrepare(xid(name)))
    assert other.call(c.DtxRecover()) == c.RecoverResult([xid("b"), xid("d")])


@pytest.mark.parametrize(("commit", "code"), [(True, c.XA_STATUS_XA_HEURCOM), (False, c.XA_STATUS_XA_HEURRB)])
def test_what_an_operator_has_decided(
    bench: ClientBench, session: ClientSession, commit: bool, code: int
) -> None:
    swap(session)
    status(session, c.DtxPrepare(A))
    bench.host.guest(Branches).all()[0].complete(commit)
    assert session.call(c.DtxRecover()) == c.RecoverResult([A])
    assert status(session, c.DtxCommit(A)) == code
    assert status(session, c.DtxRollback(A)) == code
    session.call(c.DtxForget(A))
    assert session.call(c.DtxRecover()) == c.RecoverResult([])
    assert waiting(bench, "r") == ([b"swapped"] if commit else [])


def test_every_verdict_has_a_status_of_its_own() -> None:
    assert STATUS.keys() == set(Verdict)
    assert len(set(STATUS.values())) == len(Verdict)


# In the next run of the node.


class Node(ClientBench):
    """A bench with a store."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.config, self.clock, self.broker = site.config, site.clock, site.broker
        self.ready, self.peers = [], []

    def again(self) -> Node:
        """It is killed, and started again."""
        return Node(self.site.again())


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_branch_is_decided_about_after_a_start(commit: bool) -> None:
    node = Node(Site())
    session = session_of(node)
    for name in "qr":
        session.declare(name, durable=True)
    session.call(c.DtxSelect())
    persistent = c.DeliveryProperties(delivery_mode=c.DELIVERY_MODE_PERSISTENT, routing_key="q")
    session.publish("q", b"taken", delivery=persistent)
    status(session, c.DtxStart(A))
    inbox = session.subscribe("q", messages=1)
    session.accept(inbox.get().id)
    persistent = c.DeliveryProperties(delivery_mode=c.DELIVERY_MODE_PERSISTENT, routing_key="r")
    session.publish("r", b"sent", delivery=persistent)
    status(session, c.DtxEnd(A))
    status(session, c.DtxPrepare(A))
    after = node.again()
    coordinator = session_of(after, "coordinator")
    assert coordinator.call(c.DtxRecover()) == c.RecoverResult([A])
    assert (waiting(after, "q"), waiting(after, "r")) == ([], [])
    assert status(coordinator, c.DtxCommit(A) if commit else c.DtxRollback(A)) == OK
    expected = ([], [b"sent"]) if commit else ([b"taken"], [])
    assert (waiting(after, "q"), waiting(after, "r")) == expected
    last = after.again()
    assert (waiting(last, "q"), waiting(last, "r")) == expected
    assert session_of(last, "last").call(c.DtxRecover()) == c.RecoverResult([])


@pytest.mark.parametrize("commit", [True, False])
def test_a_group_is_held_by_what_is_prepared_after_a_start_too(commit: bool) -> None:
    node = Node(Site())
    session = session_of(node)
    session.declare("q", {"x-message-group-key": "group"}, durable=True)
    persistent = c.DeliveryProperties(delivery_mode=c.DELIVERY_MODE_PERSISTENT, routing_key="q")
    session.publish("q", b"1", delivery=persistent)
    session.publish("q", b"2", delivery=persistent)
    session.call(c.DtxSelect())
    status(session, c.DtxStart(A))
    session.accept(session.subscribe("q", messages=1).get().id)
    status(session, c.DtxEnd(A))
    status(session, c.DtxPrepare(A))
    after = node.again()
    other = session_of(after, "other")
    inbox = other.subscribe("q")
    assert inbox.bodies() == []
    assert status(other, c.DtxCommit(A) if commit else c.DtxRollback(A)) == OK
    assert inbox.bodies() == ([b"2"] if commit else [b"1", b"2"])


@pytest.mark.parametrize(
    "command",
    [c.DtxPrepare(A), c.DtxCommit(A, True), c.DtxRollback(A), c.DtxRecover()],
    ids=lambda each: each.NAME,
)
def test_an_answer_waits_for_the_disk(command: c.Command) -> None:
    """The node holds back what it says while this is set."""
    node = Node(Site())
    session = session_of(node)
    session.declare("q", durable=True)
    session.call(c.DtxSelect())
    status(session, c.DtxStart(A))
    session.publish("q", b"1")
    status(session, c.DtxEnd(A))
    node.site.journal.holds = False
    session.call(command)
    assert node.site.journal.holds
