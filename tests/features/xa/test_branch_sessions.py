"""Who works in branches of distributed transactions, whose they are, and who may decide about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from leveret.errors import AccessRefused, Failure, IllegalState, NotAllowed, NotFound
from leveret.features.xa.branch import UNUSED_S, BranchState, Verb, Verdict
from leveret.features.xa.branches import Branches, Participant
from tests.core.fakes import waiting
from tests.features.xa.branching import ALICE, BOB, DONE, ROOT, UNDONE, Crew, brought_to, shape, xid
from tests.harness.bench import CoreBench

# Sessions.

Act: TypeAlias = Callable[[Participant], Verdict]


def starts(name: str = "a", **said: bool) -> Act:
    return lambda session: session.start(xid(name), **said)


def ends(**said: bool) -> Act:
    return lambda session: session.end(xid("a"), **said)


START, JOIN, RESUME, OTHER = starts(), starts(join=True), starts(resume=True), starts("b")
END, FAIL, SUSPEND = ends(), ends(fail=True), ends(suspend=True)
BOTH, BOTH_ENDS = starts(join=True, resume=True), ends(fail=True, suspend=True)
NONE, HERE, AWAY = "no part", "associated", "suspended"
OK, BACK = Verdict.OK, Verdict.ROLLED_BACK


@pytest.mark.parametrize(
    ("part", "act", "expected", "after"),
    [
        (NONE, START, NotAllowed, NONE),  # another session works in it
        (NONE, JOIN, OK, HERE),
        (NONE, RESUME, IllegalState, NONE),
        (NONE, END, IllegalState, NONE),
        (NONE, FAIL, IllegalState, NONE),
        (NONE, SUSPEND, IllegalState, NONE),
        (NONE, OTHER, OK, HERE),
        (NONE, BOTH, NotAllowed, NONE),
        (NONE, BOTH_ENDS, NotAllowed, NONE),
        (HERE, START, IllegalState, HERE),
        (HERE, JOIN, IllegalState, HERE),
        (HERE, RESUME, IllegalState, HERE),
        (HERE, END, OK, NONE),
        (HERE, FAIL, BACK, NONE),
        (HERE, SUSPEND, OK, AWAY),
        (HERE, OTHER, IllegalState, HERE),
        (HERE, BOTH, NotAllowed, HERE),
        (HERE, BOTH_ENDS, NotAllowed, HERE),
        (AWAY, START, IllegalState, AWAY),
        (AWAY, JOIN, IllegalState, AWAY),
        (AWAY, RESUME, OK, HERE),
        (AWAY, END, OK, NONE),
        (AWAY, FAIL, BACK, NONE),
        (AWAY, SUSPEND, IllegalState, AWAY),
        (AWAY, OTHER, OK, HERE),
        (AWAY, BOTH, NotAllowed, AWAY),
        (AWAY, BOTH_ENDS, NotAllowed, AWAY),
    ],
)
def test_every_part_of_a_session_and_what_it_may_do(
    part: str, act: Act, expected: Verdict | type[Failure], after: str, bench: CoreBench
) -> None:
    first, second = Participant(bench.host, ALICE), Participant(bench.host, ALICE)
    first.start(xid("a"))
    if part is not NONE:
        second.start(xid("a"), join=True)
    if part is AWAY:
        second.end(xid("a"), suspend=True)
    if isinstance(expected, Verdict):
        assert act(second) is expected
    else:
        with pytest.raises(Failure) as refused:
            act(second)
        assert type(refused.value) is expected
    if act is OTHER and expected is OK:
        assert second.current is bench.host.guest(Branches).get(xid("b"))
    else:
        assert part_of(second) == after


def part_of(session: Participant) -> str:
    if session.current is not None:
        return HERE
    try:
        session.end(xid("a"))
    except IllegalState:
        return NONE
    return AWAY


def test_to_join_or_resume_what_nobody_knows_is_not_allowed() -> None:
    session = Participant(CoreBench().host, ALICE)
    for join in (True, False):
        with pytest.raises(NotAllowed, match="no branch"):
            session.start(xid("a"), join=join, resume=not join)


def test_a_branch_is_idle_when_the_last_session_has_ended_its_work(bench: CoreBench) -> None:
    first, second = Participant(bench.host, ALICE), Participant(bench.host, ALICE)
    first.start(xid("a"))
    second.start(xid("a"), join=True)
    second.end(xid("a"), suspend=True)
    first.end(xid("a"))
    branch = bench.host.guest(Branches).find(xid("a"), ALICE)
    assert branch.state is BranchState.ACTIVE
    with pytest.raises(IllegalState):
        branch.do(Verb.PREPARE)
    second.end(xid("a"))
    assert branch.state is BranchState.IDLE


def test_a_session_that_dies_takes_what_it_works_in_and_what_it_has_suspended_with_it(bench: CoreBench):
    queue = bench.queue()
    bench.publish("q", b"1", b"2", b"3")
    crew = Crew(bench.host)
    crew.session.start(xid("suspended"))
    crew.accept(queue)
    crew.session.end(xid("suspended"), suspend=True)
    crew.work("ended", takes=[queue])
    crew.session.start(xid("current"))
    crew.accept(queue)
    crew.session.ended()
    bench.settle()
    assert waiting(queue) == "1 3"
    states = [crew.branch(name).state for name in ("suspended", "ended", "current")]
    assert states == [BranchState.DOOMED, BranchState.IDLE, BranchState.DOOMED]
    assert crew.ask("ended", Verb.COMMIT_AT_ONCE) is Verdict.OK
    assert crew.ask("current", Verb.PREPARE) is Verdict.ROLLED_BACK
    assert crew.ask("current", Verb.ROLL_BACK) is Verdict.OK


def test_a_session_that_dies_leaves_the_others_in_a_branch_that_is_undone(bench: CoreBench) -> None:
    first, second = Participant(bench.host, ALICE), Participant(bench.host, ALICE)
    first.start(xid("a"))
    second.start(xid("a"), join=True)
    first.ended()
    branch = bench.host.guest(Branches).find(xid("a"), ALICE)
    assert branch.state is BranchState.FAILED
    assert second.end(xid("a")) is Verdict.ROLLED_BACK
    assert branch.state is BranchState.DOOMED


def test_a_session_has_no_part_in_a_branch_that_was_undone_before() -> None:
    bench, branch = brought_to(BranchState.DOOMED)
    session = Participant(bench.host, ALICE)
    assert session.start(xid("a"), join=True) is Verdict.ROLLED_BACK
    assert session.current is None
    assert branch.sessions == 0


def test_an_xid_is_free_again_when_its_branch_has_ended_or_has_been_reported_undone() -> None:
    bench, branch = brought_to(BranchState.REPORTED)
    session = Participant(bench.host, ALICE)
    assert session.start(xid("a")) is Verdict.OK
    assert bench.host.guest(Branches).get(xid("a")) is not branch
    session.end(xid("a"))
    Crew(bench.host).ask("a", Verb.COMMIT_AT_ONCE)
    assert session.start(xid("a")) is Verdict.OK


# Whose it is.


@pytest.mark.parametrize("state", BranchState)
def test_another_user_has_nothing_to_say_about_a_branch(state: BranchState) -> None:
    bench, _ = brought_to(state)
    branches = bench.host.guest(Branches)
    with pytest.raises(AccessRefused, match="started by another user"):
        branches.find(xid("a"), BOB)
    assert branches.find(xid("a"), ALICE) is branches.find(xid("a"), ROOT)
    with pytest.raises(NotFound, match="no branch '1-62-31' in vhost '/'"):
        branches.find(xid("b"), ALICE)
    in_doubt = [xid("a")] if state in (BranchState.PREPARED, BranchState.HEURISTIC) else []
    assert [branches.in_doubt(user) for user in (ALICE, ROOT, BOB)] == [in_doubt, in_doubt, []]
    stranger = Participant(bench.host, BOB)
    with pytest.raises(AccessRefused):
        stranger.start(xid("a"), join=True)


@pytest.mark.parametrize("state", BranchState)
def test_a_branch_of_a_deleted_user_is_not_the_next_users(state: BranchState) -> None:
    bench, _ = brought_to(state)
    access, branches = bench.broker.access, bench.host.guest(Branches)
    access.put_user(ALICE)
    access.delete_user(ALICE.name)
    access.put_user(ALICE)
    with pytest.raises(AccessRefused, match="started by another user"):
        branches.find(xid("a"), ALICE)
    assert branches.in_doubt(ALICE) == []
    assert branches.find(xid("a"), ROOT).user == ""


def test_every_virtual_host_has_branches_of_its_own(bench: CoreBench) -> None:
    Participant(bench.host, ALICE).start(xid("a"))
    other = bench.broker.add_virtual_host("other")
    assert Participant(other, ALICE).start(xid("a")) is Verdict.OK
    bench.broker.delete_virtual_host("other")
    assert (len(bench.host.guest(Branches)), len(other.guest(Branches))) == (1, 0)


def test_a_virtual_host_takes_its_branches_with_it() -> None:
    for state in BranchState:
        bench, branch = brought_to(state)
        bench.broker.delete_virtual_host("/")
        bench.advance(2 * UNUSED_S)
        assert (len(branch.branches), branch.branches.octets) == (0, 0)


def test_a_session_may_end_after_its_virtual_host(bench: CoreBench) -> None:
    session = Participant(bench.host, ALICE)
    session.start(xid("a"))
    bench.broker.delete_virtual_host("/")
    session.ended()
    bench.advance(2 * UNUSED_S)
    assert len(bench.host.guest(Branches)) == 0


# Operators.


@pytest.mark.parametrize("commit", [True, False])
def test_an_operator_may_decide_and_the_coordinator_is_told_until_it_forgets(commit: bool) -> None:
    bench, branch = brought_to(BranchState.PREPARED)
    branch.complete(commit)
    bench.settle()
    assert shape(bench) == (DONE if commit else UNDONE)
    verdict = Verdict.COMMITTED_BY_OPERATOR if commit else Verdict.ROLLED_BACK_BY_OPERATOR
    assert [branch.do(Verb.COMMIT), branch.do(Verb.ROLL_BACK)] == [verdict, verdict]
    assert shape(bench) == (DONE if commit else UNDONE)
    branch.do(Verb.FORGET)
    assert len(bench.host.guest(Branches)) == 0


@pytest.mark.parametrize("state", [each for each in BranchState if each is not BranchState.PREPARED])
def test_an_operator_decides_about_what_is_prepared_only(state: BranchState) -> None:
    _, branch = brought_to(state)
    with pytest.raises(IllegalState, match="only a prepared one"):
        branch.complete(commit=True)
