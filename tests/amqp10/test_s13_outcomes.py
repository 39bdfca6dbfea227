"""What becomes of AMQP 1.0 deliveries by their outcomes (§13 of the acceptance list), whoever publishes them."""

from __future__ import annotations

import pytest

from leveret.config.compat import compat
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import (
    Array,
    Described,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    Value,
    array_of,
)
from tests.amqp091.peer import channel_of
from tests.amqp10.client import Receiver
from tests.amqp10.consuming import DEAD, QUEUE, fill, filled, left, mourned, numbers, source, stream, taken
from tests.amqp10.parts import Delivery, annotations, data
from tests.amqp10.peer import SECOND, declare, declared, session_of
from tests.harness.bench import ClientBench

FAILED = p.Modified(delivery_failed=True)
HERE = p.Modified(undeliverable_here=True)


def receiver(bench: ClientBench, credit: int = 10, **fields: object) -> Receiver:
    return session_of(bench).receiver(fields.pop("source", QUEUE), credit, **fields)


def reasons(bench: ClientBench) -> list[str]:
    """Numbers and reasons of what died."""
    found = bench.queue("dead").waiting()
    return [
        f"{delivery.message.body.decode()} {delivery.message.notes.deaths[0].reason}" for delivery in found
    ]


def flags(delivery: Delivery | None) -> tuple[bool, int]:
    """How the header tells of earlier attempts."""
    assert delivery is not None
    return delivery.header.first_acquirer, delivery.header.delivery_count or 0


# The four.


def test_s227_accepted_is_done() -> None:
    bench = mourned(2)
    link = receiver(bench)
    link.accept()
    link.accept()
    queue = bench.queue("q")
    assert (queue.ready, queue.unsettled, queue.accepted) == (0, 0, 2)
    assert reasons(bench) == []


def test_s227_rejected_dies() -> None:
    bench = mourned(2)
    link = receiver(bench)
    error = p.Error(condition=Symbol("amqp:decode-error"), description="not ours")
    link.answer(p.Rejected(error=error))
    assert reasons(bench) == ["0 rejected"]
    assert bench.queue("q").unsettled == 1
    assert left(bench) == []


def test_s227_released_comes_again_and_is_no_failure() -> None:
    link = receiver(filled(1))
    first = link.get()
    assert flags(first) == (True, 0)
    link.answer(p.Released(), first)
    again = link.get()
    assert again.body == first.body
    assert flags(again) == (False, 0)


def test_s227_s228_modified_counts_failed_deliveries() -> None:
    link = receiver(filled(1))
    seen = []
    for outcome in (p.Modified(), FAILED, p.Modified(delivery_failed=False), FAILED):
        delivery = link.get()
        seen.append(flags(delivery))
        link.answer(outcome, delivery)
    seen.append(flags(link.get()))
    assert seen == [(True, 0), (False, 0), (False, 1), (False, 1), (False, 2)]


@pytest.mark.parametrize("failed", [None, False, True])
def test_s227_undeliverable_here_dies_where_the_compat_row_says_so(failed: bool | None) -> None:
    bench = mourned(1, 'compat.undeliverable_here = "dead-letter"')
    receiver(bench).answer(p.Modified(delivery_failed=failed, undeliverable_here=True))
    assert reasons(bench) == ["0 rejected"]
    assert left(bench) == []
    assert compat("rabbitmq-4.0").dead_letters_undeliverable
    assert compat("rabbitmq-4").dead_letters_undeliverable


QUEUES = {
    "classic": {},
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum", **DEAD}},
    "priorities": {"arguments": {"x-max-priority": 5, **DEAD}},
    "groups": {"arguments": {"x-group-key": "user", **DEAD}},
    "last value": {"arguments": {"x-last-value-key": "n", **DEAD}},
    "fair": {"arguments": {"x-max-priority": 1, "x-fair-share": [2, 1], **DEAD}},
}


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize(("failed", "count"), [(None, 0), (False, 0), (True, 1)])
def test_s227_undeliverable_here_goes_to_another_receiver(kind: str, failed: bool | None, count: int) -> None:
    bench = ClientBench()
    declare(bench, "dead")
    filled(1, bench, **QUEUES[kind])
    here = receiver(bench)
    here.answer(p.Modified(delivery_failed=failed, undeliverable_here=True), here.get())
    assert (left(bench), here.get()) == ([0], None)
    if kind != "last value":  # it takes others
        fill(bench, range(1, 2))
        assert taken(here) == [1]
    there = receiver(bench)
    got = there.get()
    assert got is not None
    assert flags(got) == (False, count)
    there.answer(p.Accepted(), got)
    assert (left(bench, "dead"), bench.queue("q").unsettled) == ([], kind != "last value")


def test_s227_undeliverable_here_is_not_forgotten_when_another_gives_it_back() -> None:
    bench = filled(2)
    here, there = receiver(bench, credit=2), receiver(bench, credit=0)
    here.answer(HERE, here.get())
    there.want(1)
    there.answer(p.Released(), there.get())
    assert (left(bench), numbers(here.all())) == ([0], [1])
    there.want(1)
    there.answer(HERE, there.get())
    assert left(bench) == [0]  # it waits for a third
    assert receiver(bench, credit=1).get() is not None


def test_s227_undeliverable_here_holds_for_receivers_with_selectors() -> None:
    bench = filled(1)
    link = receiver(bench, source=source(filter={"jms-selector": "x IS NULL"}))
    link.answer(HERE, link.get())
    assert (left(bench), link.get()) == ([0], None)


def test_s227_what_a_receiver_merely_releases_comes_back_to_it_after_undeliverable_here() -> None:
    bench = filled(2)
    link = receiver(bench, credit=10)
    first, second = link.all()
    link.answer(HERE, first)
    for _ in range(3):
        link.answer(p.Released(), second)
        second = link.get()
        assert second is not None
    assert left(bench) == [0]


def test_s227_undeliverable_here_waits_for_its_time_too() -> None:
    bench = filled(1)
    here, there = receiver(bench), receiver(bench)
    bench_now = int(bench.clock.wall() * 1000)
    outcome = modified(x_opt_delivery_time=Timestamp(bench_now + 5000))
    outcome.undeliverable_here = True
    here.answer(outcome, here.get() or there.get())
    bench.advance(6)
    assert [here.get(), numbers(there.all())] == [None, [0]]


@pytest.mark.parametrize("end", ["detach", "close", "end", "lost"])
@pytest.mark.parametrize("failed", [None, True])
def test_s227_an_ended_link_with_undeliverable_here_as_default_outcome_loses_nothing(
    end: str, failed: bool | None
) -> None:
    bench = mourned(2)
    outcome = p.Modified(delivery_failed=failed, undeliverable_here=True)
    here = receiver(bench, source=source(default_outcome=outcome))
    assert len(here.all()) == 2
    if end == "lost":
        here.session.peer.drop()
    elif end == "end":
        here.session.end()
    else:
        here.detach(closed=end == "close")
    assert (left(bench), left(bench, "dead")) == ([0, 1], [])
    assert [flags(each) for each in receiver(bench).all()] == [(False, 1 if failed else 0)] * 2


def test_s227_undeliverable_here_dies_where_no_other_can_ever_take_it() -> None:
    bench = ClientBench()
    declare(bench, "dead")
    bench.policy("^amq.gen", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"})
    link = receiver(bench, source=source("/exchanges/amq.topic/a", capabilities=["topic"]))
    channel_of(bench).publish("amq.topic", "a", b"0")
    link.answer(HERE, link.get())
    assert reasons(bench) == ["0 rejected"]


def test_failures_end_at_the_delivery_limit_and_releases_do_not() -> None:
    bench = ClientBench()
    declare(bench, "dead")
    filled(1, bench, arguments={**DEAD, "x-delivery-limit": 2})
    link = receiver(bench, credit=20)
    for _ in range(5):
        link.answer(p.Released(), link.get())
    for _ in range(3):
        link.answer(FAILED, link.get())
    assert reasons(bench) == ["0 delivery_limit"]
    assert link.get() is None


def test_what_comes_back_keeps_its_place() -> None:
    bench = filled(4)
    link = receiver(bench, credit=3)
    deliveries = link.all()
    link.answer(p.Released(), deliveries[2])
    link.answer(FAILED, deliveries[0])
    assert left(bench) == [0, 2, 3]
    link.want(3)
    assert taken(link) == [0, 2, 3]


# Many at once.


@pytest.mark.parametrize("outcome", [p.Accepted(), p.Rejected(), p.Released(), FAILED, HERE])
def test_one_disposition_may_be_about_many(outcome: p.DeliveryState) -> None:
    bench = mourned(10)
    link = receiver(bench, credit=10)
    ids = [delivery.id for delivery in link.all()]
    link.session.dispose(outcome, ids[2], ids[6])
    back = [2, 3, 4, 5, 6] if outcome in (p.Released(), FAILED, HERE) else []
    dead = [2, 3, 4, 5, 6] if outcome == p.Rejected() else []
    assert left(bench) == back
    assert left(bench, "dead") == dead
    assert bench.queue("q").unsettled == 5
    link.session.dispose(p.Accepted(), ids[0], ids[9])
    assert bench.queue("q").unsettled == 0
    assert left(bench) == back


def test_outcomes_may_come_in_any_order() -> None:
    bench = filled(5)
    link = receiver(bench)
    deliveries = link.all()
    for at in (3, 0, 4, 1, 2):
        link.accept(deliveries[at])
        assert bench.queue("q").unsettled == len(link.unsettled)
    assert left(bench) == []


def test_one_disposition_reaches_over_links_and_queues() -> None:
    bench = filled(2)
    filled(2, bench, "other")
    session = session_of(bench)
    links = [session.receiver(address, credit=2) for address in (QUEUE, "/queues/other")]
    ids = [delivery.id for link in links for delivery in link.all()]
    session.dispose(p.Released(), min(ids), max(ids))
    assert [numbers(link.all()) for link in links] == [[], []]
    assert (left(bench), left(bench, "other")) == ([0, 1], [0, 1])


def test_a_second_outcome_for_the_same_delivery_is_passed_over() -> None:
    bench = mourned(1)
    link = receiver(bench)
    delivery = link.get()
    link.answer(p.Accepted(), delivery)
    link.answer(p.Rejected(), delivery)
    link.session.dispose(p.Rejected(), delivery.id, delivery.id + 1000)
    assert reasons(bench) == []
    assert bench.queue("q").unsettled == 0


# Settlement.


@pytest.mark.parametrize(
    "outcome", [p.Accepted(), p.Rejected(), p.Released(), p.Modified(delivery_failed=True)]
)
def test_x070_an_unsettled_outcome_is_acted_upon_and_settled_by_us(outcome: p.DeliveryState) -> None:
    bench = mourned(1)
    link = receiver(bench, credit=1)
    delivery = link.get()
    link.answer(outcome, delivery, settled=False)
    [disposition] = link.peer.taken(p.Disposition)
    assert (disposition.role, disposition.settled, disposition.first) == (False, True, delivery.id)
    assert disposition.state == outcome
    assert bench.queue("q").unsettled == 0
    link.answer(outcome, delivery)  # the peer forgets it as well
    assert bench.queue("q").unsettled == 0
    assert link.detached is None


def test_x070_a_range_is_settled_in_one_disposition() -> None:
    bench = filled(100)
    link = receiver(bench, credit=100)
    ids = [delivery.id for delivery in link.all()]
    link.peer.taken()
    link.session.dispose(p.Accepted(), ids[0], ids[-1], settled=False)
    [disposition] = link.peer.taken(p.Disposition)
    assert (disposition.first, disposition.last, disposition.settled) == (ids[0], ids[-1], True)
    assert bench.queue("q").unsettled == 0


def test_s174_a_receiver_that_settles_second_is_served() -> None:
    """The receiver says the outcome, we act and settle, and it forgets (part 2, section 2.6.12)."""
    bench = filled(2)
    link = receiver(bench, credit=2, rcv_settle_mode=SECOND)
    assert link.attached.rcv_settle_mode == SECOND
    first, second = link.all()
    link.answer(p.Accepted(), first, settled=False)
    assert link.session.told[first.id] == p.Accepted()
    link.answer(p.Released(), second, settled=False)
    assert link.session.told[second.id] == p.Released()
    assert left(bench) == [1]
    assert bench.queue("q").unsettled == 0


def test_a_state_that_is_no_outcome_decides_nothing() -> None:
    bench = filled(1)
    link = receiver(bench, credit=1)
    delivery = link.get()
    link.answer(p.Received(section_number=UInt(0), section_offset=ULong(0)), delivery, settled=False)
    link.answer(None, delivery, settled=False)
    assert bench.queue("q").unsettled == 1
    link.accept(delivery)
    assert bench.queue("q").unsettled == 0


# Silence.


@pytest.mark.parametrize("state", [None, p.Received(section_number=UInt(0), section_offset=ULong(0))])
def test_what_is_settled_without_an_outcome_is_released(state: p.DeliveryState | None) -> None:
    """The default outcome that our attach tells of (part 3, section 3.5.3)."""
    bench = filled(1)
    link = receiver(bench, credit=1)
    link.answer(state, link.get())
    assert left(bench) == [0]
    link.want(1)
    assert flags(link.get()) == (False, 0)


@pytest.mark.parametrize(
    ("default", "waits", "dead"),
    [
        (p.Accepted(), [], []),
        (p.Rejected(), [], ["0 rejected", "1 rejected"]),
        (p.Released(), [0, 1], []),
        (FAILED, [0, 1], []),
        (HERE, [0, 1], []),
    ],
)
def test_a_receiver_may_choose_the_default_outcome(
    default: p.DeliveryState, waits: list[int], dead: list[str]
) -> None:
    """It holds for what is settled without an outcome, and for what the link leaves behind."""
    bench = mourned(2)
    link = receiver(bench, credit=2, source=source(default_outcome=default))
    assert link.attached.source.default_outcome == default
    first, _ = link.all()
    link.answer(None, first)
    link.detach()
    assert left(bench) == waits
    assert reasons(bench) == dead
    assert bench.queue("q").unsettled == 0
    if default == FAILED:
        assert [flags(delivery) for delivery in receiver(bench).all()] == [(False, 1), (False, 1)]


# What is no outcome.


@pytest.mark.parametrize("state", [p.Declared(txn_id=b"1"), Described(Symbol("amqp:strange:list"), [])])
@pytest.mark.parametrize("settled", [True, False])
def test_x069_an_unknown_state_ends_the_session(state: p.DeliveryState, settled: bool) -> None:
    bench = filled(2)
    link = receiver(bench, credit=2)
    link.answer(state, settled=settled)
    refusal = link.session.refusal()
    assert refusal.startswith("amqp:invalid-field Unrecognised state: ")
    assert refusal.endswith(" in DISPOSITION")
    assert left(bench) == [0, 1]
    assert bench.queue("q").unsettled == 0


# Annotations.


def modified(**values: Value) -> p.Modified:
    names = {Symbol(name.replace("_", "-")): value for name, value in values.items()}
    return p.Modified(message_annotations=names)


def test_x068_annotations_of_modified_are_merged_into_the_message() -> None:
    bench = declared(ClientBench(), ["q"])
    session_of(bench).sender(QUEUE).send(annotations({"x-kept": "a", "x-changed": 1}), data(b"0"))
    link = receiver(bench)
    first = link.get()
    reasons = [Symbol("one"), "two"]
    link.answer(
        modified(x_changed=ULong(2), x_new=reasons, x_who=array_of([Symbol("a"), Symbol("b")])), first
    )
    second = link.get()
    assert second.bare == first.bare
    assert (second.annotations["x-kept"], second.annotations["x-new"]) == ("a", reasons)
    changed = second.annotations["x-changed"]
    assert (changed, type(changed)) == (2, ULong)
    assert isinstance(second.annotations["x-who"], Array)
    link.answer(modified(x_new=None, x_changed=True), second)
    third = link.get()
    assert third.annotations["x-changed"] is True
    assert third.annotations["x-new"] is None
    assert third.annotations["x-exchange"] == ""


def test_x068_other_copies_of_the_message_stay_as_they_were() -> None:
    bench = filled(0)
    filled(0, bench, "other")
    channel = channel_of(bench)
    channel.bind("q", "amq.fanout")
    channel.bind("other", "amq.fanout")
    channel.publish("amq.fanout", "", b"0")
    link = receiver(bench)
    link.answer(modified(x_seen=True), link.get())
    assert link.get().annotations["x-seen"] is True
    assert "x-seen" not in session_of(bench).receiver("/queues/other", credit=1).get().annotations


def test_x068_annotations_go_with_the_dead() -> None:
    bench = mourned(1, 'compat.undeliverable_here = "dead-letter"')
    why = modified(x_why="no customer")
    why.undeliverable_here = True
    receiver(bench).answer(why)
    dead = session_of(bench).receiver("/queues/dead", credit=1).get()
    assert dead.annotations["x-why"] == "no customer"


def test_x068_a_0_9_1_consumer_sees_them_as_headers() -> None:
    bench = filled(1)
    link = receiver(bench, credit=1)
    link.answer(modified(x_why="busy", x_count=UInt(3)), link.get())
    content = channel_of(bench).get("q")
    assert content is not None
    assert content.properties.headers["x-why"] == "busy"
    assert content.properties.headers["x-count"] == 3


@pytest.mark.parametrize("settled", [True, False])
def test_x068_reserved_annotations_end_the_session_and_change_nothing(settled: bool) -> None:
    bench = filled(1)
    link = receiver(bench, credit=1)
    link.answer(p.Modified(message_annotations={Symbol("why"): "busy"}), settled=settled)
    refusal = link.session.refusal()
    assert refusal == "amqp:invalid-field reserved annotation key 'why' in a modified outcome"
    again = receiver(bench, credit=1).get()
    assert "why" not in again.annotations
    assert flags(again) == (False, 0)


def test_outcomes_change_nothing_in_a_stream() -> None:
    bench = stream(3)
    link = session_of(bench).receiver(source(filter={"rabbitmq:stream-offset-spec": "first"}), credit=3)
    link.answer(p.Rejected())
    link.answer(modified(x_why="busy"))
    link.answer(p.Released())
    assert taken(link) == [0, 1, 2]
    assert left(bench) == [0, 1, 2]
    assert bench.queue("q").unsettled == 0
    fill(bench, range(3, 4))
    link.want(1)
    assert taken(link) == [3]


def test_an_annotation_that_is_no_time_is_kept_and_delays_nothing() -> None:
    link = receiver(filled(1))
    link.answer(modified(x_opt_delivery_time="soon"), link.get())
    assert link.get().annotations["x-opt-delivery-time"] == "soon"


def test_a_receiver_says_when_a_message_is_to_come_again() -> None:
    bench = filled(1)
    link = receiver(bench)
    due_ms = int(bench.clock.wall() * 1000) + 3000
    link.answer(modified(x_opt_delivery_time=ULong(due_ms)), link.get())
    queue = bench.queue("q")
    assert (queue.ready, queue.delayed) == (0, 1)
    bench.advance(2.9)
    assert queue.delayed == 1
    bench.advance(0.1)
    assert link.get().annotations["x-opt-delivery-time"] == due_ms
