"""Receivers that come back (AMQP 1.0 part 2, section 2.6.13): what they had not settled is kept and resumed."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.protocols.amqp10.broker import kept_deliveries
from leveret.protocols.amqp10.broker.kept_deliveries import DELIVERIES_MAX, Fate, fate
from leveret.protocols.amqp10.broker.termini import termini_of
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import Described, Symbol, ULong, Value
from tests.amqp10.client import SETTLED, Receiver, Session
from tests.amqp10.consuming import DEAD, QUEUE, fill, filled, left, numbers, source, stream, taken
from tests.amqp10.controller import Control, in_tx
from tests.amqp10.parts import Delivery, data
from tests.amqp10.peer import SECOND, Peer, declare, session_of
from tests.harness.bench import ClientBench, StoredBench

DETACH, SESSION, CONNECTION, NEVER = "link-detach", "session-end", "connection-close", "never"
PATIENT = "[protocols.amqp10]\nidle_timeout_s = 0\n"
TX = p.TransactionalState(txn_id=b"t")
REJECTED = p.Rejected(error=p.Error(condition=Symbol("my:reason")))
FAILED = p.Modified(delivery_failed=True)
OUTCOMES = [p.Accepted(), REJECTED, p.Released(), FAILED]
NOTHING_RECEIVED = p.Received(section_number=0, section_offset=0)

Unsettled = dict[bytes, p.DeliveryState | None]


def bench_of(count: int, **properties: object) -> ClientBench:
    return filled(count, ClientBench(PATIENT), **properties)


def lasting(expiry: str = CONNECTION, timeout: int = 60, **fields: object) -> p.Source:
    return source(expiry_policy=Symbol(expiry), timeout=timeout, **fields)


def receiver(
    session: Session,
    credit: int = 10,
    unsettled: Unsettled | None = None,
    of: p.Source | None = None,
    name: str = "r",
    **fields: object,
) -> Receiver:
    return session.receiver(of or lasting(), credit, name, unsettled=unsettled, **fields)


def lost(bench: ClientBench, count: int, **fields: object) -> dict[int, Delivery]:
    """A receiver that has got messages and has settled none when its connection is cut: its deliveries by number."""
    session = session_of(bench)
    deliveries = receiver(session, **fields).all()
    assert numbers(deliveries) == list(range(count))
    session.peer.drop()
    return dict(enumerate(deliveries))


def listed(deliveries: dict[int, Delivery], **states: p.DeliveryState | None) -> Unsettled:
    """An `unsettled` map: `_0=None` lists the delivery of message 0."""
    return {deliveries[int(name[1:])].tag: state for name, state in states.items()}


def resumed(link: Receiver) -> list[tuple[bytes, bool, bool]]:
    """The transfers that resume something, since the last look: tags, and whether they are settled and aborted."""
    transfers = link.peer.taken(p.Transfer)
    return [(bytes(each.delivery_tag), bool(each.settled), each.aborted) for each in transfers if each.resume]


def counts(bench: ClientBench) -> tuple[int, int]:
    queue = bench.queue("q")
    return queue.ready, queue.unsettled


# The table.


@pytest.mark.parametrize(
    ("is_listed", "state", "lists_all", "expected"),
    [
        (False, None, True, Fate.FORGOTTEN),
        (False, None, False, Fate.KEPT),
        *[(True, None, each, Fate.SENT_AGAIN) for each in (True, False)],
        *[(True, TX, each, Fate.SENT_AGAIN) for each in (True, False)],
        *[(True, NOTHING_RECEIVED, each, Fate.CONTINUED) for each in (True, False)],
        *[(True, state, each, Fate.SETTLED) for state, each in product(OUTCOMES, (True, False))],
    ],
)
def test_the_table_of_cases(
    is_listed: bool, state: p.DeliveryState | None, lists_all: bool, expected: Fate
) -> None:
    assert fate(is_listed, state, lists_all) is expected


@pytest.mark.parametrize("value", [7, "text", Described(ULong(0x29), []), Described(ULong(0x33), [b"tx"])])
def test_a_value_that_is_no_state_refuses_the_attach(value: Value) -> None:
    """And what was kept stays for the next one."""
    bench = bench_of(1)
    deliveries = lost(bench, 1)
    session = session_of(bench)
    refused = session.ask_receiver(lasting(), "r", unsettled={deliveries[0].tag: value})
    assert refused.refusal().startswith("amqp:invalid-field Attach refused: unsettled: ")
    assert counts(bench) == (0, 1)
    again = receiver(session, unsettled={deliveries[0].tag: None})
    assert resumed(again) == [(deliveries[0].tag, False, False)]


def test_an_annotation_that_is_reserved_refuses_the_attach() -> None:
    with pytest.raises(AmqpError):
        fate(True, p.Modified(message_annotations={Symbol("mine"): 1}), True)


# One delivery, each case over a cut connection.


def test_unsettled_messages_stay_with_a_lost_link_and_go_to_nobody_else() -> None:
    bench = bench_of(3)
    lost(bench, 3)
    other = receiver(session_of(bench), name="other")
    assert taken(other) == []
    assert counts(bench) == (0, 3)
    fill(bench, range(3, 4))
    assert taken(other) == [3]


def test_null_is_sent_again_with_its_tag_before_anything_new() -> None:
    bench = bench_of(2)
    deliveries = lost(bench, 2)
    fill(bench, range(2, 3))
    again = receiver(session_of(bench), unsettled=listed(deliveries, _0=None, _1=None))
    assert again.attached.unsettled == {deliveries[0].tag: None, deliveries[1].tag: None}
    got = again.all()
    assert numbers(got) == [0, 1, 2]
    assert [each.tag for each in got[:2]] == [deliveries[0].tag, deliveries[1].tag]
    assert [each.octets for each in got[:2]] == [deliveries[0].octets, deliveries[1].octets]
    assert len({each.tag for each in got}) == 3
    for each in got:
        again.accept(each)
    assert counts(bench) == (0, 0)


def test_what_it_does_not_list_is_requeued() -> None:
    """It has not arrived, or was settled and nobody heard of that: at least once."""
    bench = bench_of(2)
    deliveries = lost(bench, 2)
    again = receiver(session_of(bench), unsettled=listed(deliveries, _1=None))
    got = {each.body: each for each in again.all()}
    assert got[b"1"].tag == deliveries[1].tag
    assert got[b"0"].tag not in (deliveries[0].tag, deliveries[1].tag)
    assert got[b"0"].header.first_acquirer is False
    assert not got[b"0"].header.delivery_count


@pytest.mark.parametrize("unsettled", [None, {}])
def test_a_receiver_without_a_map_has_nothing_unsettled(unsettled: Unsettled | None) -> None:
    bench = bench_of(2)
    lost(bench, 2)
    again = receiver(session_of(bench), unsettled=unsettled)
    assert again.attached.unsettled is None
    assert taken(again) == [0, 1]
    assert not termini_of(bench.host).receivers


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_has_effect_and_the_delivery_is_resumed_as_settled(outcome: p.DeliveryState) -> None:
    bench = ClientBench(PATIENT)
    declare(bench, "dead")
    filled(1, bench, arguments=DEAD)
    deliveries = lost(bench, 1)
    session = session_of(bench)
    again = receiver(session, 0, unsettled=listed(deliveries, _0=outcome))
    assert (left(bench), left(bench, "dead")) == {
        p.Accepted: ([], []),
        p.Rejected: ([], [0]),
        p.Released: ([0], []),
        p.Modified: ([0], []),
    }[type(outcome)]
    assert bench.queue("q").unsettled == 0
    session.peer.taken()
    again.want(1)
    assert resumed(again) == [(deliveries[0].tag, True, False)]
    assert again.get().octets == b""


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("offset", [0, 5])
def test_what_came_in_part_goes_on_from_there(number: int, offset: int) -> None:
    """Header, annotations, and the body; also when each part takes several frames."""
    bench = ClientBench(PATIENT)
    declare(bench, "q")
    body = bytes(range(256)) * 8
    session_of(bench).sender(QUEUE).publish(p.Header(durable=True), data(body))
    session = session_of(bench)
    first = receiver(session).get()
    ends = [0]
    for found in first.sections().values():
        ends += [ends[-1] + len(octets) for octets, _ in found]
    session.peer.drop()
    state = p.Received(section_number=number, section_offset=offset)
    peer = Peer(bench).open(max_frame_size=512)
    again = receiver(peer.begin(), unsettled={first.tag: state})
    rest = again.get()
    assert rest.octets == first.octets[ends[number] + offset :]
    assert rest.tag == first.tag
    again.accept(rest)
    assert counts(bench) == (0, 0)


def test_all_but_the_end_was_received() -> None:
    bench = bench_of(1)
    deliveries = lost(bench, 1)
    sections = len(deliveries[0].sections())
    everything = p.Received(section_number=sections, section_offset=0)
    again = receiver(session_of(bench), unsettled=listed(deliveries, _0=everything))
    assert again.get().octets == b""
    assert counts(bench) == (0, 1)


@pytest.mark.parametrize("place", [(99, 0), (0, 9999)])
def test_a_place_that_the_message_has_not_is_refused(place: tuple[int, int]) -> None:
    bench = bench_of(1)
    deliveries = lost(bench, 1)
    state = p.Received(section_number=place[0], section_offset=place[1])
    refused = session_of(bench).ask_receiver(lasting(), "r", unsettled={deliveries[0].tag: state})
    assert refused.refusal().startswith("amqp:invalid-field Attach refused: unsettled: failed to parse")
    assert counts(bench) == (0, 1)


def test_what_only_the_receiver_lists_we_do_not_know() -> None:
    """The acceptance arrived, our settlement did not: it is not delivered again, and the receiver can forget it."""
    bench = bench_of(2)
    session = session_of(bench)
    first = receiver(session)
    got = first.all()
    first.accept(got[0])
    session.peer.drop()
    again = receiver(session_of(bench), unsettled={got[0].tag: p.Accepted(), got[1].tag: None, b"odd": None})
    assert again.attached.unsettled == {got[1].tag: None}
    assert numbers(again.all()) == [1]


def test_with_mode_second_an_outcome_that_was_lost_is_told_again() -> None:
    bench = bench_of(1)
    session = session_of(bench)
    got = receiver(session, rcv_settle_mode=SECOND).get()
    session.peer.drop()
    again = receiver(session_of(bench), unsettled={got.tag: p.Accepted()}, rcv_settle_mode=SECOND)
    assert resumed(again) == [(got.tag, True, False)]
    assert counts(bench) == (0, 0)


def test_the_transaction_of_a_lost_connection_leaves_the_delivery_unsettled() -> None:
    bench = bench_of(1)
    session = session_of(bench)
    control, first = Control(session), receiver(session)
    tx, got = control.declare(), first.get()
    first.answer(in_tx(tx, p.Accepted()), got, settled=False)
    session.peer.drop()
    again = receiver(session_of(bench), unsettled={got.tag: in_tx(tx, p.Accepted())})
    assert taken(again) == [0]


def test_a_transaction_that_outlives_the_link_decides() -> None:
    bench = bench_of(2)
    session = session_of(bench)
    control, first = Control(session), receiver(session)
    tx, got = control.declare(), first.all()
    first.answer(in_tx(tx, p.Accepted()), got[0], settled=False)
    first.detach(closed=False)
    control.commit(tx)
    again = receiver(session, unsettled={got[0].tag: in_tx(tx, p.Accepted()), got[1].tag: None})
    assert again.attached.unsettled == {got[1].tag: None}
    assert numbers(again.all()) == [1]
    assert counts(bench) == (0, 1)


# Credit, more than once, maps that are incomplete.


def test_resumed_deliveries_take_credit_and_new_ones_wait_for_them() -> None:
    bench = bench_of(4)
    deliveries = lost(bench, 3, credit=3)
    unsettled = listed(deliveries, _0=None, _1=p.Accepted(), _2=None)
    again = receiver(session_of(bench), 0, unsettled=unsettled)
    tags = []
    for _ in range(3):
        again.want(1)
        tags += [each.tag for each in again.all()]
    assert tags == [deliveries[number].tag for number in range(3)]
    again.want(1)
    assert taken(again) == [3]


def test_a_link_that_is_lost_again_before_it_could_resume_loses_nothing() -> None:
    bench = bench_of(3)
    deliveries = lost(bench, 3)
    unsettled = listed(deliveries, _0=None, _1=None, _2=None)
    session = session_of(bench)
    receiver(session, 1, unsettled=unsettled).all()
    session.peer.drop()
    assert counts(bench) == (0, 3)
    again = receiver(session_of(bench), unsettled=unsettled)
    assert [each.tag for each in again.all()] == list(unsettled)


def test_a_link_that_is_closed_before_it_could_resume_gives_all_back() -> None:
    bench = bench_of(3)
    deliveries = lost(bench, 3)
    again = receiver(session_of(bench), 1, unsettled=listed(deliveries, _0=None, _1=None, _2=None))
    again.detach(closed=True)
    assert left(bench) == [0, 1, 2]
    assert not termini_of(bench.host).served


def test_with_an_incomplete_map_nothing_new_comes_and_the_others_stay() -> None:
    """Part 2, section 2.7.3. The receiver attaches again with the rest of its map."""
    bench = bench_of(3)
    deliveries = lost(bench, 3)
    fill(bench, range(3, 4))
    session = session_of(bench)
    again = receiver(session, unsettled=listed(deliveries, _0=None), incomplete_unsettled=True)
    got = again.all()
    assert [each.tag for each in got] == [deliveries[0].tag]
    again.accept(got[0])
    again.want(10, drain=True)
    assert again.drained
    assert counts(bench) == (1, 2)
    again.detach(closed=False)
    again = receiver(session, unsettled=listed(deliveries, _1=p.Accepted(), _2=None))
    assert numbers(again.all()[1:]) == [2, 3]
    assert counts(bench) == (0, 2)


def test_what_does_not_fit_into_our_attach_is_resumed_by_the_next() -> None:
    """A peer that takes small frames only."""
    count = 100
    bench = bench_of(count)
    deliveries = lost(bench, count, credit=count)
    unsettled: Unsettled = {each.tag: None for each in deliveries.values()}
    found: list[int] = []
    rounds = 0
    while unsettled:
        rounds += 1
        session = Peer(bench).open(max_frame_size=512).begin()
        parts = dict(list(unsettled.items())[:30])
        again = receiver(session, count, parts, incomplete_unsettled=len(parts) < len(unsettled))
        told = again.attached.unsettled or {}
        assert set(told) <= set(parts)
        for each in again.all():
            again.accept(each)
            del unsettled[each.tag]
            found.append(int(each.body))
        session.peer.drop()
    assert found == list(range(count))
    assert rounds > 3
    assert counts(bench) == (0, 0)


def test_our_own_map_is_incomplete_if_it_does_not_fit() -> None:
    count = 100
    bench = bench_of(count)
    deliveries = lost(bench, count, credit=count)
    unsettled: Unsettled = {each.tag: None for each in deliveries.values()}
    session = Peer(bench).open(max_frame_size=512).begin()
    attach = p.Attach(name="r", handle=0, role=True, source=lasting(), unsettled=unsettled)
    assert len(attach.encode()) < 8192  # what we take in one frame
    again = receiver(session, count, unsettled)
    told = again.attached.unsettled
    assert again.attached.incomplete_unsettled
    assert len(again.attached.encode()) <= 512 - 8
    assert 10 < len(told) < count
    assert len(again.all()) == len(told)
    assert counts(bench) == (0, count)


# Who comes back, and where from.


def test_a_link_that_lost_its_connection_unnoticed_is_stolen() -> None:
    bench = bench_of(2)
    old = session_of(bench)
    first = receiver(old)
    got = first.all()
    again = receiver(session_of(bench), unsettled={each.tag: None for each in got})
    assert first.refusal() == "amqp:link:stolen link 'r' was attached elsewhere"
    assert [each.tag for each in again.all()] == [each.tag for each in got]


def test_two_links_of_one_name_without_maps_do_not_disturb_each_other() -> None:
    bench = bench_of(2)
    links = [receiver(session_of(bench), 1) for _ in range(2)]
    assert [taken(each) for each in links] == [[0], [1]]
    for each in links:
        each.peer.drop()
    assert counts(bench) == (1, 1)  # one name, one place


def test_a_link_of_that_name_on_the_same_session_takes_over() -> None:
    bench = bench_of(1)
    session = session_of(bench)
    got = receiver(session).get()
    again = receiver(session, unsettled={got.tag: None})
    assert again.get().tag == got.tag


@pytest.mark.parametrize("who", ["container", "name", "user"])
def test_nobody_else_gets_them(who: str) -> None:
    bench = bench_of(1)
    bench.user("other")
    deliveries = lost(bench, 1)
    container = "other" if who == "container" else "test"
    session = Peer(bench).open("other" if who == "user" else "guest", container_id=container).begin()
    other = receiver(session, unsettled={deliveries[0].tag: None}, name="x" if who == "name" else "r")
    assert other.attached.unsettled is None
    assert other.all() == []
    assert counts(bench) == (0, 1)


def test_a_receiver_that_comes_back_to_another_queue_gives_them_back() -> None:
    bench = bench_of(1)
    declare(bench, "other")
    deliveries = lost(bench, 1)
    other = lasting()
    other.address = "/queues/other"
    again = receiver(session_of(bench), unsettled={deliveries[0].tag: None}, of=other)
    assert again.attached.unsettled is None
    assert left(bench) == [0]


def test_a_receiver_that_comes_back_for_settled_messages_gives_them_back() -> None:
    bench = bench_of(1)
    lost(bench, 1)
    again = receiver(session_of(bench), unsettled={}, snd_settle_mode=SETTLED)
    assert taken(again) == [0]


def test_a_receiver_that_asks_for_nothing_more_still_resumes() -> None:
    bench = bench_of(1)
    deliveries = lost(bench, 1)
    session = session_of(bench)
    again = receiver(session, unsettled=listed(deliveries, _0=None), of=source())
    assert again.get().tag == deliveries[0].tag
    session.peer.drop()
    assert left(bench) == [0]


def test_a_receiver_that_lost_its_permission_gets_nothing_and_keeps_nothing() -> None:
    bench = bench_of(1)
    bench.user("reader")
    session = Peer(bench).open("reader").begin()
    got = receiver(session).get()
    bench.broker.access.set_permissions("reader", "/", ".*", ".*", "other")
    session.peer.front.change_secret(b"reader")
    bench.settle()
    assert got.body == b"0"
    assert left(bench) == [0]


# How long.


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        ((DETACH, 0), (DETACH, 0)),
        ((SESSION, 0), (DETACH, 0)),  # the default does not count as asking
        ((DETACH, 60), (DETACH, 60)),
        ((SESSION, 60), (SESSION, 60)),
        ((CONNECTION, 0), (CONNECTION, 0)),
        ((CONNECTION, 9999), (CONNECTION, 300)),
        ((NEVER, 0), (DETACH, 300)),
    ],
)
def test_our_source_tells_how_long(asked: tuple[str, int], granted: tuple[str, int]) -> None:
    told = receiver(session_of(bench_of(0)), of=lasting(*asked, durable=2)).attached.source
    assert ((told.expiry_policy, told.timeout), told.durable) == (granted, 0)


@pytest.mark.parametrize("timeout", [0, 60])
@pytest.mark.parametrize("expiry", [DETACH, SESSION, CONNECTION])
def test_they_are_kept_as_long_as_the_source_tells(expiry: str, timeout: int) -> None:
    bench = bench_of(1)
    session = session_of(bench)
    link = receiver(session, of=lasting(expiry, timeout))
    assert taken(link) == [0]
    link.detach(closed=False)
    if expiry != DETACH:
        bench.advance(200)
        assert counts(bench) == ((0, 1) if (expiry, timeout) != (SESSION, 0) else (1, 0))
        session.peer.close() if expiry == CONNECTION else session.end()
    if timeout:
        bench.advance(timeout - 1)
        assert counts(bench) == (0, 1)
        bench.advance(1)
    assert counts(bench) == (1, 0)
    assert not termini_of(bench.host).receivers


def test_however_long_the_connection_lives_they_are_kept_for_so_long_at_most() -> None:
    bench = bench_of(1)
    link = receiver(session_of(bench), of=lasting(CONNECTION, 0))
    assert taken(link) == [0]
    link.detach(closed=False)
    bench.advance(299)
    assert counts(bench) == (0, 1)
    bench.advance(1)
    assert counts(bench) == (1, 0)


def test_what_nobody_came_back_for_counts_as_a_failed_delivery() -> None:
    bench = bench_of(1, durable=True, arguments={"x-queue-type": "quorum"})
    lost(bench, 1)
    bench.advance(60)
    got = receiver(session_of(bench), name="other").get()
    assert (got.header.first_acquirer, got.header.delivery_count) == (False, 1)


def test_a_default_outcome_that_was_asked_for_is_that_of_what_nobody_came_back_for() -> None:
    bench = bench_of(1)
    lost(bench, 1, of=lasting(default_outcome=p.Accepted()))
    bench.advance(60)
    assert counts(bench) == (0, 0)


def test_the_setting_turns_it_off() -> None:
    bench = filled(1, ClientBench("[protocols.amqp10]\nlink_timeout_max_s = 0\n"))
    session = session_of(bench)
    link = receiver(session, of=lasting(NEVER))
    assert (link.attached.source.expiry_policy, link.attached.source.timeout) == (DETACH, 0)
    assert taken(link) == [0]
    session.peer.drop()
    assert left(bench) == [0]


def test_a_link_that_is_closed_keeps_nothing() -> None:
    bench = bench_of(1)
    link = receiver(session_of(bench))
    assert taken(link) == [0]
    link.detach(closed=True)
    assert left(bench) == [0]


def test_what_is_late_is_not_kept() -> None:
    closing = PATIENT + '[compat]\nconsumer_timeout_response = "close-channel"\n'
    bench = filled(1, ClientBench(closing), arguments={"x-consumer-timeout": 60_000})
    link = receiver(session_of(bench), of=lasting(NEVER))
    assert taken(link) == [0]
    bench.advance(200)
    assert link.refusal().startswith("amqp:precondition-failed")
    assert counts(bench) == (1, 0)


@pytest.mark.parametrize("kind", ["stream", "copy", "dynamic", "settled"])
def test_what_is_not_taken_from_a_queue_is_not_kept(kind: str) -> None:
    bench = stream(2, ClientBench(PATIENT)) if kind == "stream" else bench_of(2)
    session = session_of(bench)
    fields: dict[str, object] = {"snd_settle_mode": SETTLED} if kind == "settled" else {}
    of = lasting(NEVER, distribution_mode="copy" if kind == "copy" else None)
    if kind == "dynamic":
        of = p.Source(dynamic=True, capabilities=[Symbol("temporary-queue")], expiry_policy=Symbol(NEVER))
    link = receiver(session, of=of, **fields)
    assert (link.attached.source.expiry_policy, link.attached.source.timeout) == (DETACH, 0)
    link.all()
    session.peer.drop()
    assert not termini_of(bench.host).receivers
    again = receiver(session_of(bench), unsettled={b"\0\0\0\0": None}, of=None if kind == "dynamic" else of)
    assert again.attached.unsettled is None


# How much.


def test_only_so_many_deliveries_are_kept_the_oldest() -> None:
    bench = bench_of(DELIVERIES_MAX + 3)
    lost(bench, DELIVERIES_MAX + 3, credit=DELIVERIES_MAX + 3)
    assert counts(bench) == (3, DELIVERIES_MAX)
    assert left(bench) == [DELIVERIES_MAX + number for number in range(3)]


def test_only_so_many_receivers_are_kept_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_deliveries, "RECEIVERS_MAX", 2)
    bench = bench_of(0)
    for number in range(4):
        fill(bench, range(number, number + 1))
        session = session_of(bench)
        link = receiver(session, name=f"r{number}", of=lasting(NEVER))
        link.all()
        session.peer.drop()
        if number == 2:
            assert left(bench) == [0]
    assert left(bench) == [1]
    assert bench.queue("q").unsettled == 3


def test_only_so_many_bytes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_deliveries, "OCTETS_MAX", 10)
    bench = ClientBench(PATIENT)
    declare(bench, "q")
    session_of(bench).sender(QUEUE).publish(data(b"x" * 20))
    session = session_of(bench)
    assert receiver(session).get() is not None
    session.peer.drop()
    assert counts(bench) == (1, 0)
    assert termini_of(bench.host).octets_kept == 0


def test_a_deleted_queue_takes_what_is_kept_of_it_along() -> None:
    bench = bench_of(2)
    lost(bench, 2)
    bench.host.delete_queue(bench.queue("q"))
    bench.settle()
    assert not termini_of(bench.host).receivers
    assert termini_of(bench.host).octets_kept == 0


def test_a_message_that_the_receiver_takes_no_more_ends_the_link() -> None:
    """S172. It is requeued."""
    bench = ClientBench(PATIENT)
    declare(bench, "q")
    session_of(bench).sender(QUEUE).publish(data(b"x" * 500))
    session = session_of(bench)
    got = receiver(session).get()
    session.peer.drop()
    session = session_of(bench)
    link = receiver(session, unsettled={got.tag: None}, max_message_size=100)
    bench.advance(0)
    assert link.refusal().startswith("amqp:link:message-size-exceeded")
    assert counts(bench) == (1, 0)


def test_a_message_that_cannot_be_encoded_any_more_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(2)
    deliveries = lost(bench, 2)

    def broken(*args: object) -> tuple[bytes, bytes]:
        raise ValueError("no")

    monkeypatch.setattr(kept_deliveries, "pieces", broken)
    again = receiver(session_of(bench), unsettled=listed(deliveries, _0=None, _1=None))
    assert [aborted for _, settled, aborted in resumed(again) if settled] == [True, True]
    assert again.aborted == 2
    assert counts(bench) == (0, 0)


# Subscriptions, restarts.


def test_a_subscription_keeps_unsettled_messages_as_well() -> None:
    bench = ClientBench(PATIENT)
    address = "/exchanges/amq.topic/news"
    news = p.Source(address=address, durable=2, expiry_policy=Symbol(NEVER), capabilities=[Symbol("topic")])
    session = session_of(bench)
    link = receiver(session, of=news)
    assert link.attached.source.durable == 1
    session_of(bench).sender("/exchanges/amq.topic/news").publish(data(b"0"))
    got = link.get()
    session.peer.drop()
    again = receiver(session_of(bench), unsettled={got.tag: None}, of=news)
    assert again.get().tag == got.tag


def test_without_durable_state_what_was_unsettled_is_delivered_anew_after_a_restart() -> None:
    bench = StoredBench(PATIENT)
    declare(bench, "q", durable=True)
    session_of(bench).sender(QUEUE).publish(p.Header(durable=True), data(b"0"))
    got = receiver(session_of(bench), of=lasting(durable=1)).get()
    after = bench.again()
    after.advance(1)
    again = receiver(session_of(after), unsettled={got.tag: p.Accepted()}, of=lasting(durable=1))
    assert again.attached.unsettled is None
    assert again.attached.source.durable == 0
    delivery = again.get()
    assert (delivery.body, delivery.header.first_acquirer) == (b"0", False)
    assert delivery.tag != got.tag


def test_the_tags_of_links_that_ask_for_nothing_are_their_ids() -> None:
    bench = bench_of(1)
    got = session_of(bench).receiver(QUEUE, credit=1).get()
    assert got.tag == b"\0\0\0\0"


# Any order.


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_message_is_lost_or_accepted_twice_however_often_the_link_is_lost(draw: st.DataObject) -> None:
    """The receiver keeps its own map. What it accepts is accepted once; in the end nothing is left."""
    count = draw.draw(st.integers(1, 6))
    bench = bench_of(count)
    unsettled: Unsettled = {}
    bodies: dict[bytes, bytes] = {}
    accepted: list[bytes] = []
    for _ in range(draw.draw(st.integers(1, 5))):
        session = session_of(bench)
        credit = draw.draw(st.integers(0, 8))
        link = receiver(session, credit, dict(unsettled), rcv_settle_mode=SECOND)
        known = link.attached.unsettled or {}
        for tag in [tag for tag in unsettled if tag not in known]:
            if unsettled.pop(tag) is None:
                del bodies[tag]
        for each in link.all():
            if each.settled:
                unsettled.pop(each.tag, None)
                continue
            if each.tag not in unsettled:
                bodies[each.tag] = each.body
            unsettled.setdefault(each.tag, None)
            if draw.draw(st.booleans()):
                if unsettled[each.tag] is None:
                    accepted.append(bodies[each.tag])
                unsettled[each.tag] = p.Accepted()
                if draw.draw(st.booleans()):
                    link.answer(p.Accepted(), each, settled=False)
        session.peer.drop()
    session = session_of(bench)
    link = receiver(session, 100, dict(unsettled), rcv_settle_mode=SECOND)
    for each in link.all():
        if not each.settled:
            accepted.append(each.body)
            link.answer(p.Accepted(), each, settled=False)
    assert sorted(accepted) == [b"%d" % number for number in range(count)]
    assert counts(bench) == (0, 0)
    assert not termini_of(bench.host).receivers
