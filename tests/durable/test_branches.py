"""Prepared branches on disk: wherever a node is killed, a message is in its queue or in the branch, never in both."""

from __future__ import annotations

import pytest

from leveret.durable.segment_log import SegmentLog
from leveret.features.xa.branch import BranchState, Verb, Verdict
from leveret.features.xa.branches import Branches, Participant
from tests.core.fakes import FakeConsumer, Holding, fetched, waiting
from tests.durable.branched import (
    BEFORE,
    COMMITTED,
    KEY,
    LAST,
    PREPARED,
    changes,
    has,
    killed,
    look,
    steps,
    swapping,
)
from tests.durable.site import TYPES, Site, held_site, land_all
from tests.features.xa.branching import ALICE, Crew, mail, taken, xid


def held_and_swapping() -> tuple[Site, Crew]:
    site = held_site()
    return site, swapping(site)


# Wherever it is killed.


def test_to_prepare_is_one_commit() -> None:
    site, crew = held_and_swapping()
    land_all(site)
    assert killed(site) == BEFORE
    crew.branch("a").do(Verb.PREPARE)
    found = [killed(site)]
    found += [killed(site) for _ in steps(site)]
    assert changes(found) == [BEFORE, PREPARED]


def test_to_commit_is_one_commit() -> None:
    site, crew = held_and_swapping()
    crew.branch("a").do(Verb.PREPARE)
    land_all(site)
    crew.branch("a").do(Verb.COMMIT)
    assert changes([killed(site) for _ in steps(site)]) == [PREPARED, COMMITTED]
    assert (site.store.content.segments, site.kinds()) == ({}, ["last-number", "queue"])


def test_to_roll_back_is_one_commit() -> None:
    site, crew = held_and_swapping()
    crew.branch("a").do(Verb.PREPARE)
    land_all(site)
    crew.branch("a").do(Verb.ROLL_BACK)
    assert changes([killed(site) for _ in steps(site)]) == [PREPARED, BEFORE]
    assert (site.store.content.segments, site.kinds()) == ({}, ["last-number", "queue"])


def test_to_commit_in_one_phase_is_one_commit() -> None:
    site, crew = held_and_swapping()
    land_all(site)
    crew.branch("a").do(Verb.COMMIT_AT_ONCE)
    assert changes([killed(site) for _ in steps(site)]) == [BEFORE, COMMITTED]


@pytest.mark.parametrize(("verb", "after"), [(Verb.COMMIT, COMMITTED), (Verb.ROLL_BACK, BEFORE)])
def test_what_is_prepared_and_decided_in_one_turn_leaves_nothing_behind(
    verb: Verb, after: tuple[str, str, str]
) -> None:
    site, crew = held_and_swapping()
    land_all(site)
    crew.branch("a").do(Verb.PREPARE)
    crew.branch("a").do(verb)
    assert changes([BEFORE, *[killed(site) for _ in steps(site)]]) == changes([BEFORE, after])
    assert site.store.content.segments == {}


@pytest.mark.parametrize(("verb", "after"), [(Verb.COMMIT, COMMITTED), (Verb.ROLL_BACK, BEFORE)])
def test_what_is_decided_while_the_prepare_is_in_flight_comes_after_it(
    verb: Verb, after: tuple[str, str, str]
) -> None:
    site, crew = held_and_swapping()
    land_all(site)
    crew.ask("a", Verb.PREPARE)
    assert site.store.flying is not None
    crew.branch("a").do(verb)
    assert changes([killed(site) for _ in steps(site)]) == [BEFORE, PREPARED, after]


def test_what_arrives_and_is_accepted_and_prepared_in_one_commit_is_in_the_branch_alone() -> None:
    site = held_site()
    site.queue("q")
    site.queue("r")
    land_all(site)
    site.exchange("other")
    site.settle()  # its commit is in flight: what follows waits for the next
    swapping(site).branch("a").do(Verb.PREPARE)
    assert changes([killed(site) for _ in steps(site)]) == [("", "", ""), PREPARED]


def test_what_is_rolled_back_and_accepted_again_does_not_come_back() -> None:
    site, crew = held_and_swapping()
    crew.ask("a", Verb.PREPARE)
    crew.ask("a", Verb.ROLL_BACK)
    consumer = FakeConsumer(site.host.queues["q"])
    site.settle()
    assert consumer.bodies() == "1 2 3 4"
    consumer.accept_all()
    land_all(site)
    assert killed(site) == ("", "", "")


def test_an_operator_decides_in_one_commit_and_that_is_kept_until_it_is_forgotten() -> None:
    for commit, after in ((True, ("4 y", "x z", " -> ")), (False, ("1 2 3 4", "", " -> "))):
        site, crew = held_and_swapping()
        crew.branch("a").do(Verb.PREPARE)
        land_all(site)
        crew.branch("a").complete(commit)
        assert changes([killed(site) for _ in steps(site)]) == [PREPARED, after]
        assert site.store.content.segments == {}
        again = Site(site.store.reopened())
        branch = again.host.guest(Branches).find(xid("a"), ALICE)
        told = Verdict.COMMITTED_BY_OPERATOR if commit else Verdict.ROLLED_BACK_BY_OPERATOR
        assert (branch.state, branch.do(Verb.COMMIT)) == (BranchState.HEURISTIC, told)
        assert again.host.guest(Branches).in_doubt(ALICE) == [xid("a")]
        branch.do(Verb.FORGET)
        assert "branch" not in again.again().kinds()


# A store with two files keeps the objects that come first, and lets go of those that went last.


def test_a_record_whose_messages_were_not_written_is_that_of_no_branch(site: Site) -> None:
    crew = swapping(site)
    before = site.store.reopened()
    crew.ask("a", Verb.PREPARE)
    before.content.objects[KEY] = site.objects[KEY]
    before.content.objects[LAST] = site.objects[LAST]
    after = Site(before)
    assert look(after) == BEFORE
    assert KEY not in after.again().objects
    crew = Crew(after.host)
    crew.work("a", takes=[after.host.queues["q"]])
    assert crew.ask("a", Verb.PREPARE) is Verdict.OK
    assert look(after.again()) == ("2 3 4", "", "1 -> ")


@pytest.mark.parametrize(("verb", "expected"), [(Verb.COMMIT, COMMITTED), (Verb.ROLL_BACK, BEFORE)])
def test_a_record_whose_messages_are_where_they_belong_is_that_of_no_branch(
    verb: Verb, expected: tuple[str, str, str], site: Site
) -> None:
    crew = swapping(site)
    crew.ask("a", Verb.PREPARE)
    record = site.objects[KEY]
    crew.ask("a", verb)
    before = site.store.reopened()
    before.content.objects[KEY] = record
    after = Site(before)
    assert look(after) == expected
    assert KEY not in after.again().objects


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_of_an_operator_of_which_only_the_record_was_written_was_none(commit: bool, site: Site):
    crew = swapping(site)
    crew.ask("a", Verb.PREPARE)
    before = site.store.reopened()
    crew.branch("a").complete(commit)
    site.settle()
    before.content.objects[KEY] = site.objects[KEY]
    after = Site(before)
    assert look(after) == PREPARED
    assert Crew(after.host).ask("a", Verb.COMMIT) is Verdict.OK
    assert look(after.again()) == COMMITTED


# From one start to the next.


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("starts", [1, 3])
@pytest.mark.parametrize(("verb", "after"), [(Verb.COMMIT, COMMITTED), (Verb.ROLL_BACK, BEFORE)])
def test_a_prepared_branch_is_decided_about_after_starts(
    clean: bool, starts: int, verb: Verb, after: tuple[str, str, str], site: Site
) -> None:
    swapping(site).ask("a", Verb.PREPARE)
    for _ in range(starts):
        site = site.again(clean=clean)
        assert site.host.guest(Branches).in_doubt(ALICE) == [xid("a")]
        assert look(site) == PREPARED
        assert site.host.queues["q"].unsettled == 3
    assert Crew(site.host).ask("a", verb) is Verdict.OK
    queue = site.host.queues["q"]
    assert look(site) == after
    assert (queue.unsettled, queue.accepted, site.host.guest(Branches).octets) == (
        0,
        3 if verb is Verb.COMMIT else 0,
        0,
    )
    assert look(site.again(clean=clean)) == after


@pytest.mark.parametrize("state", ["active", "idle", "doomed"])
def test_what_is_not_prepared_is_undone_by_a_start(state: str, site: Site) -> None:
    crew = swapping(site)
    if state == "active":
        Participant(site.host, ALICE).start(xid("a"), join=True)
    elif state == "doomed":
        crew.branch("a").fail(Verdict.ROLLED_BACK)
    after = site.again()
    assert look(after) == BEFORE
    assert len(after.host.guest(Branches)) == 0
    assert all(each.redelivered for each in after.host.queues["q"].waiting())


def test_a_branch_remembers_whose_it_is_how_much_it_holds_and_that_messages_were_redelivered(site: Site):
    queue = site.queue("q")
    site.publish("", "q", b"1", b"2")
    queue.release(fetched(queue, settled=False))
    crew = Crew(site.host)
    crew.session.start(xid("a"))
    crew.accept(queue, 2)
    crew.session.end(xid("a"))
    crew.ask("a", Verb.PREPARE)
    before = crew.branch("a")
    after = site.again().host.guest(Branches).find(xid("a"), ALICE)
    assert after.user == "alice"
    assert (after.octets, after.branches.octets) == (before.octets, before.octets)
    assert [(each.position, each.redelivered) for each in after.accepted] == [(0, True), (1, False)]


def test_what_arrives_after_a_start_stands_behind_what_is_rolled_back(site: Site) -> None:
    queue = site.queue("q")
    site.publish("", "q", b"1", b"2")
    crew = Crew(site.host)
    crew.session.start(xid("a"))
    crew.accept(queue, 2)
    crew.session.end(xid("a"))
    crew.ask("a", Verb.PREPARE)
    after = site.again()
    after.publish("", "q", b"3")
    Crew(after.host).ask("a", Verb.ROLL_BACK)
    assert waiting(after.host.queues["q"]) == "1 2 3"
    positions = [each.position for each in after.host.queues["q"].waiting()]
    assert positions == sorted(set(positions))


def test_s125_a_queue_made_anew_after_a_start_gets_what_is_committed() -> None:
    for verb, expected in ((Verb.COMMIT, ("y", "x z", "")), (Verb.ROLL_BACK, ("", "", ""))):
        site = Site()
        swapping(site).ask("a", Verb.PREPARE)
        after = site.again()
        for name in "qr":
            after.host.delete_queue(after.host.queues[name])
            after.queue(name)
        assert Crew(after.host).ask("a", verb) is Verdict.OK
        assert look(after) == expected
        assert look(after.again()) == expected


def test_s125_a_queue_made_anew_before_a_start_gets_what_is_committed() -> None:
    for verb, expected in ((Verb.COMMIT, ("y", "x z", "")), (Verb.ROLL_BACK, ("", "", ""))):
        site = Site()
        swapping(site).ask("a", Verb.PREPARE)
        site.host.delete_queue(site.host.queues["q"])
        site.queue("q")
        after = site.again()
        assert after.host.guest(Branches).get(xid("a")) is not None
        assert Crew(after.host).ask("a", verb) is Verdict.OK
        assert look(after) == expected
        assert after.host.queues["q"].unsettled == 0


def test_a_virtual_host_takes_its_prepared_branches_with_it(site: Site) -> None:
    swapping(site).ask("a", Verb.PREPARE)
    site.broker.delete_virtual_host("/")
    after = site.again()
    assert "branch" not in after.kinds()
    assert after.store.content.segments == {}


def test_what_does_not_outlive_the_node_is_left_out_after_a_start(site: Site) -> None:
    gone = site.host.declare_queue("gone")
    fanout = site.exchange("f")
    for queue in (gone, site.queue("r")):
        site.host.bind(fanout, queue, "")
    site.publish("", "gone", b"1")
    crew = Crew(site.host)
    crew.session.start(xid("a"))
    crew.accept(gone)
    crew.branch("a").publish(fanout, mail("", b"2"))
    crew.branch("a").publish(fanout, mail("", b"3", durable=False))
    crew.session.end(xid("a"))
    crew.ask("a", Verb.PREPARE)
    after = site.again()
    assert Crew(after.host).ask("a", Verb.COMMIT) is Verdict.OK
    assert waiting(after.host.queues["r"]) == "2 3"


def test_an_exchange_that_takes_messages_itself_gets_them_after_a_start() -> None:
    site = Site(types={**TYPES, Holding.name: Holding})
    crew = Crew(site.host)
    crew.session.start(xid("a"))
    for name in ("there", "gone"):
        exchange = site.host.declare_exchange(name, Holding.name, durable=True)
        crew.branch("a").publish(exchange, mail("", name.encode()))
    crew.session.end(xid("a"))
    crew.ask("a", Verb.PREPARE)
    site.host.delete_exchange("gone")
    after = site.again()
    Crew(after.host).ask("a", Verb.COMMIT)
    there = after.host.exchanges["there"].type
    assert isinstance(there, Holding)
    assert there.held == [b"there"]


def test_two_prepared_branches_come_back_each_with_its_own(site: Site) -> None:
    queue = site.queue("q")
    site.queue("r")
    site.publish("", "q", b"1", b"2", b"3")
    crew = Crew(site.host)
    for name, body in (("a", b"x"), ("b", b"y"), ("c", b"z")):
        crew.work(name, takes=[queue], sends=[("r", body)])
    for name in "cab":
        crew.ask(name, Verb.PREPARE)
    after = site.again()
    again = Crew(after.host)
    assert [has(again.branch(name)) for name in "abc"] == ["1 -> x", "2 -> y", "3 -> z"]
    again.ask("a", Verb.ROLL_BACK)
    again.ask("c", Verb.COMMIT)
    last = after.again().host
    queues = waiting(last.queues["q"]), waiting(last.queues["r"])
    assert (*queues, has(last.guest(Branches).get(xid("b")))) == ("1", "z", "2 -> y")


def test_a_branch_of_many_segments_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.durable.segment_log.SEGMENT_OCTETS", 2000)
    monkeypatch.setattr("leveret.durable.store.block.BLOCK_OCTETS", 500)
    site = Site()
    site.queue("r")
    bodies = [b"%03d" % n + bytes(100) for n in range(100)]
    crew = Crew(site.host)
    crew.work("a", sends=[("r", body) for body in bodies])
    crew.ask("a", Verb.PREPARE)
    assert len(site.store.content.segments) > 3
    after = site.again()
    Crew(after.host).ask("a", Verb.COMMIT)
    assert [each.message.body for each in after.host.queues["r"].waiting()] == bodies


def test_an_empty_branch_is_prepared_and_comes_back(site: Site) -> None:
    Crew(site.host).work("a")
    Crew(site.host).ask("a", Verb.PREPARE)
    after = site.again()
    assert after.host.guest(Branches).in_doubt(ALICE) == [xid("a")]
    assert Crew(after.host).ask("a", Verb.COMMIT) is Verdict.OK
    assert "branch" not in after.again().kinds()


def test_a_log_of_a_branch_remembers_nothing_in_the_cache(site: Site) -> None:
    swapping(site).ask("a", Verb.PREPARE)
    branch = site.host.guest(Branches).find(xid("a"), ALICE)
    assert isinstance(branch.prepared.log, SegmentLog)
    assert not branch.prepared.log.remembers
    assert site.journal.cache.octets == 0


def test_nothing_of_a_branch_that_is_not_prepared_is_written() -> None:
    site = held_site()
    swapping(site)
    land_all(site)
    written = site.journal.open
    Crew(site.host).ask("a", Verb.ROLL_BACK)
    assert site.store.flying is None
    assert site.journal.open == written
    assert taken(site.host.queues["q"], 4)
