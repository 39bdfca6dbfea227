"""Branches of distributed transactions: every state and what may be asked in it, and what becomes of the work."""

from __future__ import annotations

import pytest

from leveret.delivery import Unanswered
from leveret.errors import IllegalState, LimitReached
from leveret.features.xa import branch as branch_module
from leveret.features.xa import branches as branches_module
from leveret.features.xa.branch import (
    REPORTED_S,
    UNUSED_S,
    BranchState,
    Verb,
    Verdict,
    Xid,
    xid_in,
)
from leveret.features.xa.branches import Branches, Participant
from leveret.queues.queue import Queue
from tests.core.fakes import FakeConsumer, Holding, morgue, reasons, waiting
from tests.features.xa.branching import (
    ALICE,
    DONE,
    UNDONE,
    UNTOUCHED,
    Crew,
    brought_to,
    mail,
    shape,
    taken,
    xid,
)
from tests.harness.bench import CoreBench

# Every state, every verb.

GONE = None
ALLOWED: dict[tuple[BranchState, Verb], tuple[Verdict, BranchState | None]] = {
    (BranchState.ACTIVE, Verb.JOIN): (Verdict.OK, BranchState.ACTIVE),
    (BranchState.ACTIVE, Verb.RESUME): (Verdict.OK, BranchState.ACTIVE),
    (BranchState.ACTIVE, Verb.END): (Verdict.OK, BranchState.IDLE),
    (BranchState.FAILED, Verb.JOIN): (Verdict.ROLLED_BACK, BranchState.FAILED),
    (BranchState.FAILED, Verb.RESUME): (Verdict.ROLLED_BACK, BranchState.FAILED),
    (BranchState.FAILED, Verb.END): (Verdict.ROLLED_BACK, BranchState.DOOMED),
    (BranchState.IDLE, Verb.JOIN): (Verdict.OK, BranchState.ACTIVE),
    (BranchState.IDLE, Verb.PREPARE): (Verdict.OK, BranchState.PREPARED),
    (BranchState.IDLE, Verb.COMMIT_AT_ONCE): (Verdict.OK, GONE),
    (BranchState.IDLE, Verb.ROLL_BACK): (Verdict.OK, GONE),
    (BranchState.DOOMED, Verb.JOIN): (Verdict.ROLLED_BACK, BranchState.DOOMED),
    (BranchState.DOOMED, Verb.PREPARE): (Verdict.ROLLED_BACK, BranchState.REPORTED),
    (BranchState.DOOMED, Verb.COMMIT_AT_ONCE): (Verdict.ROLLED_BACK, BranchState.REPORTED),
    (BranchState.DOOMED, Verb.ROLL_BACK): (Verdict.OK, GONE),
    (BranchState.REPORTED, Verb.PREPARE): (Verdict.ROLLED_BACK, BranchState.REPORTED),
    (BranchState.REPORTED, Verb.COMMIT_AT_ONCE): (Verdict.ROLLED_BACK, BranchState.REPORTED),
    (BranchState.REPORTED, Verb.ROLL_BACK): (Verdict.OK, GONE),
    (BranchState.PREPARED, Verb.COMMIT): (Verdict.OK, GONE),
    (BranchState.PREPARED, Verb.ROLL_BACK): (Verdict.OK, GONE),
    (BranchState.HEURISTIC, Verb.COMMIT): (Verdict.COMMITTED_BY_OPERATOR, BranchState.HEURISTIC),
    (BranchState.HEURISTIC, Verb.ROLL_BACK): (Verdict.COMMITTED_BY_OPERATOR, BranchState.HEURISTIC),
    (BranchState.HEURISTIC, Verb.FORGET): (Verdict.COMMITTED_BY_OPERATOR, GONE),
}


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("state", BranchState)
def test_every_state_and_what_may_be_asked_in_it(state: BranchState, verb: Verb) -> None:
    bench, branch = brought_to(state)
    if (state, verb) not in ALLOWED:
        before = shape(bench)
        with pytest.raises(IllegalState, match=f"is {state.value}: it cannot {verb.value}"):
            branch.do(verb)
        assert (branch.state, shape(bench)) == (state, before)
        return
    verdict, after = ALLOWED[state, verb]
    told = branch.do(verb)
    if verb is Verb.FORGET:
        assert told is Verdict.OK
    else:
        assert told is verdict
    assert bench.host.guest(Branches).get(xid("a")) is (None if after is GONE else branch)
    assert after is GONE or branch.state is after


# What becomes of the work.


@pytest.mark.parametrize(
    ("state", "verb", "expected"),
    [
        (BranchState.IDLE, Verb.PREPARE, UNTOUCHED),
        (BranchState.IDLE, Verb.COMMIT_AT_ONCE, DONE),
        (BranchState.IDLE, Verb.ROLL_BACK, UNDONE),
        (BranchState.PREPARED, Verb.COMMIT, DONE),
        (BranchState.PREPARED, Verb.ROLL_BACK, UNDONE),
        (BranchState.DOOMED, Verb.ROLL_BACK, UNDONE),
        (BranchState.DOOMED, Verb.PREPARE, UNDONE),
    ],
)
def test_a_commit_does_all_of_it_and_a_roll_back_none(
    state: BranchState, verb: Verb, expected: list[tuple[str, str, int, int]]
) -> None:
    bench, branch = brought_to(state)
    branch.do(verb)
    bench.settle()
    assert shape(bench) == expected


def test_nothing_happens_before_the_commit() -> None:
    bench, _ = brought_to(BranchState.IDLE)
    assert shape(bench) == UNTOUCHED


def test_what_is_rolled_back_stands_where_it_stood_and_is_redelivered() -> None:
    for prepares in (False, True):
        bench = CoreBench()
        queue = bench.queue()
        bench.publish("q", b"a", b"b", b"c")
        crew = Crew(bench.host)
        first, second, _ = held = taken(queue, 3)
        queue.release(held[2], failed=False)
        crew.session.start(xid("a"))
        crew.branch("a").accept([second, first])
        crew.session.end(xid("a"))
        if prepares:
            crew.ask("a", Verb.PREPARE)
        crew.ask("a", Verb.ROLL_BACK)
        assert waiting(queue) == "a b c"
        assert [each.redelivered for each in queue.waiting()] == [True, True, True]
        assert queue.unsettled == 0


def test_a_message_that_fails_in_one_branch_after_the_other_dies_at_its_limit(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.host.declare_queue(
        "q",
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    bench.publish("q", b"poison")
    crew = Crew(bench.host)
    for _ in range(3):
        crew.work("a", takes=[queue])
        crew.ask("a", Verb.ROLL_BACK)
    assert waiting(queue) == ""
    assert reasons(dead) == ["poison delivery_limit"]


def test_messages_are_routed_when_they_are_published_and_queues_that_have_gone_are_left_out() -> None:
    for prepares in (False, True):
        bench = CoreBench()
        gone, there = bench.queue("gone"), bench.queue("there")
        fanout = bench.host.declare_exchange("f", "fanout")
        for queue in (gone, there):
            bench.host.bind(fanout, queue, "")
        crew = Crew(bench.host)
        crew.session.start(xid("a"))
        assert crew.branch("a").publish(fanout, mail("", b"1"))
        crew.session.end(xid("a"))
        if prepares:
            crew.ask("a", Verb.PREPARE)
        bench.host.delete_queue(gone)
        late = bench.queue("late")
        bench.host.bind(fanout, late, "")
        crew.ask("a", Verb.COMMIT if prepares else Verb.COMMIT_AT_ONCE)
        assert (waiting(there), waiting(late)) == ("1", "")


@pytest.mark.parametrize("prepares", [False, True])
def test_s125_a_queue_that_was_declared_again_gets_its_messages(prepares: bool, bench: CoreBench) -> None:
    crew, before = Crew(bench.host), bench.queue()
    crew.work("a", sends=[("q", b"1")])
    if prepares:
        assert crew.ask("a", Verb.PREPARE) is Verdict.OK
    bench.host.delete_queue(before)
    again = bench.queue()
    assert crew.ask("a", Verb.COMMIT if prepares else Verb.COMMIT_AT_ONCE) is Verdict.OK
    assert waiting(again) == "1"


@pytest.mark.parametrize("verb", [Verb.PREPARE, Verb.COMMIT_AT_ONCE])
def test_s125_a_branch_with_a_message_that_nothing_takes_any_more_is_rolled_back(
    verb: Verb, bench: CoreBench
) -> None:
    source, target = bench.queue("source"), bench.queue()
    bench.publish("source", b"taken")
    crew = Crew(bench.host)
    crew.work("a", takes=[source], sends=[("q", b"1")])
    bench.host.delete_queue(target)
    assert crew.ask("a", verb) is Verdict.ROLLED_BACK
    assert waiting(source) == "taken"


def test_s125_what_loses_its_queue_after_the_prepare_goes_to_the_alternate_exchange(bench: CoreBench) -> None:
    target, spare = bench.queue(), bench.queue("spare")
    alternate = bench.host.declare_exchange("ae", "fanout")
    exchange = bench.host.declare_exchange("x", "fanout", arguments={"alternate-exchange": "ae"})
    bench.host.bind(alternate, spare, "")
    bench.host.bind(exchange, target, "")
    crew = Crew(bench.host)
    crew.session.start(xid("a"))
    crew.branch("a").publish(exchange, mail("", b"1"))
    crew.session.end(xid("a"))
    assert crew.ask("a", Verb.PREPARE) is Verdict.OK
    bench.host.delete_queue(target)
    assert crew.ask("a", Verb.COMMIT) is Verdict.OK
    assert waiting(spare) == "1"


def test_what_is_unroutable_is_said_at_once(bench: CoreBench) -> None:
    crew = Crew(bench.host)
    crew.session.start(xid("a"))
    assert not crew.branch("a").publish(bench.host.default_exchange, mail("nowhere", b"1"))
    bench.queue("somewhere")
    assert crew.branch("a").publish(bench.host.default_exchange, mail("somewhere", b"1"))


def test_an_exchange_that_takes_messages_itself_gets_them_at_the_commit() -> None:
    bench = CoreBench({**CoreBench().broker.exchange_types, Holding.name: Holding})
    exchange = bench.host.declare_exchange("h", Holding.name)
    assert isinstance(exchange.type, Holding)
    for number, commit in enumerate((Verb.COMMIT, Verb.ROLL_BACK)):
        crew = Crew(bench.host)
        crew.session.start(xid("a"))
        assert crew.branch("a").publish(exchange, mail("", b"%d" % number))
        crew.session.end(xid("a"))
        crew.ask("a", Verb.PREPARE)
        crew.ask("a", commit)
    assert exchange.type.held == [b"0"]


def test_a_consumer_gets_what_is_committed(bench: CoreBench) -> None:
    consumer = FakeConsumer(bench.queue())
    crew = Crew(bench.host)
    crew.work("a", sends=[("q", b"1"), ("q", b"2")])
    assert consumer.bodies() == ""
    crew.ask("a", Verb.COMMIT_AT_ONCE)
    assert consumer.bodies() == "1 2"


def test_a_deleted_queue_takes_what_was_accepted_of_it_along() -> None:
    for verb in (Verb.COMMIT, Verb.ROLL_BACK):
        bench, branch = brought_to(BranchState.PREPARED)
        bench.host.delete_queue(bench.host.queues["q"])
        again = bench.queue()
        branch.do(verb)
        bench.settle()
        assert (waiting(again), again.unsettled) == ("", 0)


@pytest.mark.parametrize("prepares", [True, False])
def test_the_alternate_exchange_of_a_deleted_queue_gets_what_is_rolled_back(prepares: bool, bench: CoreBench):
    lost = bench.queue("lost")
    bench.host.bind(bench.host.declare_exchange("alternate", "fanout"), lost, "")
    queue = bench.queue(x_alternate_exchange="alternate")
    bench.publish("q", b"1")
    crew = Crew(bench.host)
    crew.work("a", takes=[queue])
    if prepares:
        crew.ask("a", Verb.PREPARE)
    bench.host.delete_queue(queue)
    bench.settle()
    assert waiting(lost) == ""
    crew.ask("a", Verb.ROLL_BACK)
    assert waiting(lost) == "1"


def test_a_purge_leaves_what_is_in_a_branch() -> None:
    bench, branch = brought_to(BranchState.PREPARED)
    assert bench.host.queues["q"].purge() == 0
    branch.do(Verb.ROLL_BACK)
    assert waiting(bench.host.queues["q"]) == "taken"


def test_what_was_accepted_of_a_stream_is_read_and_stays_there(bench: CoreBench) -> None:
    stream = bench.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    bench.publish("s", b"1")
    reader = FakeConsumer(stream, credit=1)
    bench.settle()
    crew = Crew(bench.host)
    crew.session.start(xid("a"))
    crew.branch("a").accept(reader.held)
    crew.session.end(xid("a"))
    crew.ask("a", Verb.PREPARE)
    assert stream.unsettled == 0
    crew.ask("a", Verb.ROLL_BACK)
    assert (waiting(stream), stream.unsettled) == ("1", 0)


# Room.


def test_a_branch_for_which_a_queue_has_no_room_cannot_be_prepared_nor_committed() -> None:
    for verb in (Verb.PREPARE, Verb.COMMIT_AT_ONCE):
        bench = CoreBench()
        queue = bench.queue(x_max_length=1, x_overflow="reject-publish")
        source = bench.queue("source")
        bench.publish("source", b"taken")
        crew = Crew(bench.host)
        crew.work("a", takes=[source], sends=[("q", b"1"), ("q", b"2")])
        assert crew.ask("a", verb) is Verdict.ROLLED_BACK
        assert (waiting(queue), waiting(source)) == ("", "taken")
        assert crew.ask("a", Verb.ROLL_BACK) is Verdict.OK


def test_a_queue_that_has_become_full_since_the_prepare_takes_what_was_promised(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=1, x_overflow="reject-publish")
    crew = Crew(bench.host)
    crew.work("a", sends=[("q", b"promised")])
    assert crew.ask("a", Verb.PREPARE) is Verdict.OK
    bench.publish("q", b"early")
    assert crew.ask("a", Verb.COMMIT) is Verdict.OK
    assert waiting(queue) == "early promised"
    assert bench.publish("q", b"late")[0].value == "refused", "the limit holds again"


def test_a_queue_that_drops_its_head_does_so_for_what_was_promised_too(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=1)
    crew = Crew(bench.host)
    crew.work("a", sends=[("q", b"1"), ("q", b"2")])
    crew.ask("a", Verb.PREPARE)
    crew.ask("a", Verb.COMMIT)
    assert waiting(queue) == "2"


@pytest.mark.parametrize("verb", [Verb.COMMIT, Verb.ROLL_BACK])
def test_a_group_is_held_by_what_is_prepared_and_free_after_it(verb: Verb, bench: CoreBench) -> None:
    queue = bench.queue(x_message_group_key="group")
    bench.publish("q", b"1", b"2")  # without the header: of one group
    crew = Crew(bench.host)
    crew.work("a", takes=[queue])
    crew.ask("a", Verb.PREPARE)
    consumer = FakeConsumer(queue)
    bench.settle()
    assert consumer.bodies() == ""
    crew.ask("a", verb)
    assert consumer.bodies() == ("2" if verb is Verb.COMMIT else "1 2")


@pytest.mark.parametrize("verb", [Verb.COMMIT, Verb.ROLL_BACK])
def test_what_is_prepared_is_answered_for_consumers_that_may_have_so_much(
    verb: Verb, bench: CoreBench, queue: Queue
) -> None:
    bench.publish("q", bytes(100), bytes(100))
    consumer = FakeConsumer(queue)
    bound = Unanswered(150)
    consumer.bounds = [bound]
    bench.settle()
    assert (len(consumer.held), bound.octets) == (1, 100)
    crew = Crew(bench.host)
    crew.session.start(xid("a"))
    branch = crew.branch("a")
    branch.accept([consumer.held.pop()])
    crew.session.end(xid("a"))
    crew.ask("a", Verb.PREPARE)
    assert (len(consumer.held), bound.octets) == (1, 100), "the next one has come"
    crew.ask("a", verb)
    consumer.accept_all()
    bench.settle()
    assert bound.octets == (0 if verb is Verb.COMMIT else 100)


def test_branches_together_hold_no_more_than_they_may(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", bytes(2000))
    bench.host.guest(Branches).size_max = 5000
    crew, other = Crew(bench.host), Crew(bench.host)
    crew.work("a", sends=[("q", bytes(1000))])
    other.session.start(xid("b"))
    other.accept(queue)
    with pytest.raises(LimitReached, match="would hold more than 5000 octets"):
        other.publish(("q", bytes(1000)))
    assert other.branch("b").state is BranchState.FAILED
    assert (queue.ready, queue.unsettled) == (1, 0), "what it had accepted is back"
    crew.ask("a", Verb.COMMIT_AT_ONCE)
    other.session.end(xid("b"))
    other.ask("b", Verb.ROLL_BACK)
    assert bench.host.guest(Branches).octets == 0


def test_each_queue_that_gets_a_message_counts(bench: CoreBench) -> None:
    fanout = bench.host.declare_exchange("f", "fanout")
    for number in range(100):
        bench.host.bind(fanout, bench.queue(f"q{number}"), "")
    crew = Crew(bench.host)
    crew.session.start(xid("a"))
    branch = crew.branch("a")
    branch.publish(fanout, mail("", b""))
    assert branch.octets > 100 * branch_module.COPY
    assert bench.host.guest(Branches).octets == branch.octets


def test_there_are_no_more_branches_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches_module, "BRANCHES_MAX", 2)
    bench = CoreBench()
    crew = Crew(bench.host)
    for name in "ab":
        crew.work(name)
    with pytest.raises(LimitReached, match="has 2 branches"):
        crew.session.start(xid("c"))
    crew.ask("a", Verb.ROLL_BACK)
    assert crew.session.start(xid("c")) is Verdict.OK


# Time.


def test_a_branch_whose_time_is_over_is_undone_while_its_session_still_works_in_it() -> None:
    bench, branch = brought_to(BranchState.ACTIVE)
    branch.set_timeout(2)
    bench.advance(1.9)
    assert branch.state is BranchState.ACTIVE
    bench.advance(0.2)
    assert branch.state is BranchState.FAILED
    assert shape(bench) == UNDONE
    assert not bench.host.guest(Branches).octets


@pytest.mark.parametrize("state", [BranchState.ACTIVE, BranchState.IDLE])
def test_who_asks_about_a_branch_whose_time_was_over_is_told_so(state: BranchState) -> None:
    bench, branch = brought_to(state)
    branch.set_timeout(1)
    bench.advance(1)
    if state is BranchState.ACTIVE:
        assert branch.do(Verb.END) is Verdict.TIMED_OUT
    assert branch.do(Verb.PREPARE) is Verdict.TIMED_OUT
    assert branch.do(Verb.COMMIT_AT_ONCE) is Verdict.TIMED_OUT
    assert branch.do(Verb.ROLL_BACK) is Verdict.TIMED_OUT
    assert len(bench.host.guest(Branches)) == 0


def test_what_is_done_in_a_branch_that_is_undone_is_undone_at_once() -> None:
    bench, branch = brought_to(BranchState.FAILED)
    branch.accept(taken(bench.host.queues["q"]))
    assert branch.publish(bench.host.default_exchange, mail("target", b"more"))
    assert not branch.publish(bench.host.default_exchange, mail("nowhere", b"more"))
    assert shape(bench) == UNDONE


def test_a_branch_has_a_minute_unless_somebody_says_otherwise() -> None:
    bench, branch = brought_to(BranchState.ACTIVE)
    assert branch.timeout_s == 60
    bench.advance(59)
    assert branch.state is BranchState.ACTIVE
    bench.advance(1)
    assert branch.verdict is Verdict.TIMED_OUT


def test_a_timeout_begins_when_it_is_set_and_the_last_one_counts() -> None:
    bench, branch = brought_to(BranchState.IDLE)
    branch.set_timeout(5)
    bench.advance(4)
    branch.set_timeout(5)
    bench.advance(4)
    assert branch.state is BranchState.IDLE
    branch.set_timeout(0)
    bench.advance(100)
    assert (branch.state, branch.timeout_s) == (BranchState.IDLE, 0)


def test_what_is_prepared_waits_however_long() -> None:
    bench, branch = brought_to(BranchState.IDLE)
    branch.set_timeout(5)
    branch.do(Verb.PREPARE)
    bench.advance(10 * UNUSED_S)
    branch.set_timeout(5)
    bench.advance(10 * UNUSED_S)
    assert (branch.state, branch.timeout_s) == (BranchState.PREPARED, 5)


@pytest.mark.parametrize(
    ("state", "seconds"),
    [(BranchState.IDLE, UNUSED_S), (BranchState.DOOMED, UNUSED_S), (BranchState.REPORTED, REPORTED_S)],
)
def test_what_nobody_comes_back_for_goes(state: BranchState, seconds: float) -> None:
    bench, branch = brought_to(state)
    branch.set_timeout(0)
    bench.advance(seconds - 1)
    assert len(bench.host.guest(Branches)) == 1
    bench.advance(1)
    assert len(bench.host.guest(Branches)) == 0
    assert shape(bench) == UNDONE


def test_what_a_session_works_in_does_not_go() -> None:
    bench, branch = brought_to(BranchState.IDLE)
    Participant(bench.host, ALICE).start(xid("a"), join=True)
    branch.set_timeout(0)
    bench.advance(2 * UNUSED_S)
    assert branch.state is BranchState.ACTIVE


# Names.


@pytest.mark.parametrize(
    "name", [Xid(0, b"", b""), Xid(4294967295, bytes(64), b"\xff" * 64), Xid(1, b"-", b"--")]
)
def test_a_name_is_written_and_read(name: Xid) -> None:
    assert xid_in(str(name)) == name


@pytest.mark.parametrize("text", ["", "1", "1-2", "x--", "1-g-", "1-00-00-00"])
def test_what_is_no_name_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="is no name of a branch"):
        xid_in(text)


def test_the_limits_are_what_the_page_says() -> None:
    assert (branches_module.BRANCHES_MAX, branches_module.HELD_SIZE_MAX) == (1000, 256 << 20)
    assert Branches(CoreBench().host).size_max == branches_module.HELD_SIZE_MAX
