"""Links that ask for the durability `unsettled-state`: what is unsettled outlives the node (part 3, section 3.5.5)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.features.unsettled_maps.unsettled_map import NAMES_MAX, unsettled_maps_of
from leveret.protocols.amqp10.broker.recorded_deliveries import UNSETTLED_MAX
from leveret.protocols.amqp10.broker.termini import termini_of
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp10.client import SENDER, SETTLED, Receiver, Sender, Session
from tests.amqp10.consuming import QUEUE, source
from tests.amqp10.controller import Control, bodies_of, in_tx
from tests.amqp10.parts import Delivery, data
from tests.amqp10.peer import FIRST, SECOND, Peer, declare, session_of
from tests.amqp10.test_recovery import known_to, resume, tag
from tests.harness.bench import StoredBench

NONE, CONFIGURATION, STATE = 0, 1, 2  # durabilities
PATIENT = "[protocols.amqp10]\nidle_timeout_s = 0\n"

Unsettled = dict[bytes, p.DeliveryState | None]


def bench_of(count: int = 0) -> StoredBench:
    """A node with a store, and the queue q with the durable messages 0, 1, 2, ..."""
    bench = StoredBench(PATIENT)
    declare(bench, "q", durable=True)
    fill(bench, count)
    return bench


def fill(bench: StoredBench, count: int, durable: bool = True) -> None:
    sender = session_of(bench).sender(QUEUE)
    for number in range(count):
        sender.publish(p.Header(durable=durable), data(b"%d" % number))


def stored(bench: StoredBench) -> list[str]:
    """The links of which something is in the store."""
    return [key for key, _ in bench.store.objects() if key.startswith('["unsettled-map"')]


def notes(bench: StoredBench) -> int:
    """How many deliveries are noted in the store."""
    return len(list(bench.store.producers()))


def sender_of(
    session: Session,
    unsettled: Unsettled | None = None,
    durable: int = STATE,
    expiry: str = "never",
    timeout: int = 0,
    mode: int = SECOND,
    name: str = "s",
) -> Sender:
    target = p.Target(address=QUEUE, durable=durable, expiry_policy=Symbol(expiry), timeout=timeout)
    return session.sender(target, name=name, rcv_settle_mode=mode, unsettled=unsettled)


def send(sender: Sender, number: int, **fields: object) -> int:
    return sender.send(p.Header(durable=True), data(b"%d" % number), tag=tag(number), **fields)


def receiver_of(
    session: Session,
    unsettled: Unsettled | None = None,
    credit: int = 10,
    durable: int = STATE,
    expiry: str = "connection-close",
    timeout: int = 60,
    mode: int = SECOND,
    name: str = "r",
    **fields: object,
) -> Receiver:
    of = source(durable=durable, expiry_policy=Symbol(expiry), timeout=timeout, **fields)
    return session.receiver(of, credit, name, rcv_settle_mode=mode, unsettled=unsettled)


# Senders.


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, STATE),
        ({"expiry": "link-detach", "timeout": 30}, STATE),
        ({"expiry": "link-detach"}, CONFIGURATION),  # over as soon as the link is
        ({"mode": FIRST}, CONFIGURATION),
        ({"durable": CONFIGURATION}, CONFIGURATION),
        ({"durable": NONE}, NONE),
        ({"name": "s" * NAMES_MAX}, CONFIGURATION),  # no key of the store
    ],
)
def test_a_target_tells_what_outlives_the_node(fields: dict[str, object], told: int) -> None:
    bench = bench_of()
    assert sender_of(session_of(bench), **fields).attached.target.durable == told
    bench.settle()
    assert len(stored(bench)) == (told == STATE)


def test_after_a_restart_a_sender_is_told_what_was_accepted_and_sends_only_the_rest() -> None:
    bench = bench_of()
    sender = sender_of(session_of(bench))
    for number in range(3):
        assert sender.outcome(send(sender, number)) == p.Accepted()
    after = bench.again()
    session = session_of(after)
    sender = sender_of(session, {tag(0): None, tag(2): p.Accepted(), tag(3): None})
    assert known_to(sender) == {tag(0): p.Accepted(), tag(2): p.Accepted()}
    assert sender.outcome(resume(sender, tag(0))) == p.Accepted()
    resume(sender, tag(2), settled=True)
    assert sender.outcome(send(sender, 3)) == p.Accepted()
    assert bodies_of(after, "q") == [b"0", b"1", b"2", b"3"]
    assert notes(after) == 2  # 1 and 2 are settled


def test_what_the_sender_has_settled_or_forgotten_is_not_in_the_store_any_more() -> None:
    bench = bench_of()
    session = session_of(bench)
    sender = sender_of(session)
    ids = [send(sender, number) for number in range(3)]
    assert notes(bench) == 3
    session.dispose(p.Accepted(), ids[0], role=SENDER)
    bench.settle()
    assert notes(bench) == 2
    session.peer.drop()
    sender = sender_of(session_of(bench), {tag(1): None})
    bench.settle()
    assert notes(bench) == 1
    sender.detach(closed=True)
    bench.settle()
    assert (notes(bench), stored(bench)) == (0, [])


def test_only_accepted_deliveries_are_noted_and_all_others_are_tried_again() -> None:
    bench = bench_of()
    declare(bench, "full", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    target = p.Target(durable=STATE, expiry_policy=Symbol("never"))
    sender = session_of(bench).sender(target, name="s", rcv_settle_mode=SECOND)
    for number, to in enumerate(("/queues/q", "/queues/gone", "/queues/full")):
        sender.send(p.Properties(to=to), data(b""), tag=tag(number))
    session = session_of(bench.again())
    unsettled = {tag(number): None for number in range(3)}
    again = session.sender(target, name="s", rcv_settle_mode=SECOND, unsettled=unsettled)
    assert known_to(again) == {tag(0): p.Accepted()}


def test_also_a_transient_message_is_accepted_when_its_note_is_on_disk() -> None:
    bench = bench_of()
    sender = sender_of(session_of(bench))
    bench.store.held = True
    id = sender.send(data(b"0"), tag=tag(0))
    assert sender.outcome(id) is None
    land(bench)
    assert (sender.outcome(id), notes(bench)) == (p.Accepted(), 1)


@pytest.mark.parametrize("commit", [True, False])
def test_what_a_transaction_has_published_is_noted_with_it(commit: bool) -> None:
    bench = bench_of()
    session = session_of(bench)
    control = Control(session)
    tx, sender = control.declare(), sender_of(session)
    send(sender, 0, state=in_tx(tx))
    bench.settle()
    assert notes(bench) == 0
    control.commit(tx) if commit else control.roll_back(tx)
    after = bench.again()
    assert known_to(sender_of(session_of(after), {tag(0): None})) == (
        {tag(0): p.Accepted()} if commit else None
    )
    assert bodies_of(after, "q") == ([b"0"] if commit else [])


def test_a_sender_whose_lost_connection_is_not_noticed_takes_over() -> None:
    bench = bench_of()
    first = sender_of(session_of(bench))
    send(first, 0)
    again = sender_of(session_of(bench), {tag(0): None})
    assert first.refusal() == "amqp:link:stolen link 's' was attached elsewhere"
    assert known_to(again) == {tag(0): p.Accepted()}


def test_a_sender_that_does_not_come_back_in_time_is_forgotten_for_good() -> None:
    bench = bench_of()
    sender = sender_of(session_of(bench), expiry="session-end", timeout=30)
    send(sender, 0)
    after = bench.again()
    after.advance(29)
    assert len(stored(after)) == notes(after) == 1
    after.advance(2)
    assert (stored(after), notes(after)) == ([], 0)
    assert known_to(sender_of(session_of(after), {tag(0): None})) is None


def test_a_link_that_had_nothing_unsettled_leaves_nothing_at_a_start() -> None:
    bench = bench_of()
    sender_of(session_of(bench))
    receiver_of(session_of(bench))
    bench.settle()
    assert len(stored(bench)) == 2
    assert stored(bench.again()) == []


def test_a_link_that_comes_back_without_asking_for_it_leaves_nothing_in_the_store() -> None:
    bench = bench_of(1)
    send(sender_of(session_of(bench)), 5)
    receiver_of(session_of(bench))
    after = bench.again()
    sender = sender_of(session_of(after), {tag(5): None}, durable=CONFIGURATION)
    assert known_to(sender) == {tag(5): p.Accepted()}
    receiver_of(session_of(after), durable=NONE)
    after.settle()
    assert (stored(after), notes(after)) == ([], 0)


# Receivers.


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, STATE),
        ({"mode": FIRST}, STATE),
        ({"expiry": "never", "timeout": 0}, STATE),
        ({"timeout": 0}, NONE),  # over as soon as the connection is
        ({"durable": CONFIGURATION}, NONE),
        ({"distribution_mode": Symbol("copy")}, NONE),
        ({"name": "r" * NAMES_MAX}, NONE),
    ],
)
def test_a_source_tells_what_outlives_the_node(fields: dict[str, object], told: int) -> None:
    bench = bench_of()
    assert receiver_of(session_of(bench), **fields).attached.source.durable == told
    bench.settle()
    assert len(stored(bench)) == (told == STATE)


@pytest.mark.parametrize("arguments", [{"x-queue-type": "stream"}, {"x-message-group-key": "g"}, None])
def test_a_queue_that_cannot_give_deliveries_back_after_a_restart_says_so(
    arguments: dict[str, object] | None,
) -> None:
    """A stream, a queue with groups, and one that is gone by then."""
    bench = StoredBench(PATIENT)
    declare(bench, "q", durable=arguments is not None, arguments=arguments or {})
    assert receiver_of(session_of(bench)).attached.source.durable == NONE


@pytest.mark.parametrize(("mode", "told"), [(FIRST, CONFIGURATION), (SECOND, STATE)])
def test_a_durable_subscription_keeps_deliveries_for_receivers_that_settle_second(
    mode: int, told: int
) -> None:
    """Those of JMS, which do not resume, pay nothing for it."""
    bench = StoredBench(PATIENT)
    news = source("/exchanges/amq.fanout", durable=STATE, expiry_policy=Symbol("never"))
    link = session_of(bench).receiver(news, 1, "news", rcv_settle_mode=mode)
    assert link.attached.source.durable == told
    session_of(bench).sender("/exchanges/amq.fanout").publish(p.Header(durable=True), data(b"x"))
    got = link.get()
    after = bench.again()
    again = session_of(after).receiver(news, 1, "news", rcv_settle_mode=mode, unsettled={got.tag: None})
    assert again.attached.unsettled == ({got.tag: None} if told == STATE else None)
    assert again.bodies() == [b"x"]


def test_after_a_restart_unsettled_messages_are_kept_for_their_receiver_and_resumed() -> None:
    bench = bench_of(4)
    got = receiver_of(session_of(bench), credit=3).all()
    after = bench.again()
    other = session_of(after).receiver(QUEUE, 1, snd_settle_mode=SETTLED)
    assert other.bodies() == [b"3"]
    assert after.queue("q").unsettled == 3
    session = session_of(after)
    again = receiver_of(session, {got[0].tag: p.Accepted(), got[1].tag: None})
    assert again.attached.unsettled == {got[0].tag: None, got[1].tag: None}
    first, second, third = again.all()
    assert (first.tag, first.settled, first.octets) == (got[0].tag, True, b"")
    assert (second.tag, second.body) == (got[1].tag, b"1")
    assert third.body == b"2"  # it had not arrived
    assert third.tag not in {each.tag for each in got}
    again.answer(p.Accepted(), second, settled=False)
    assert session.told[second.id] == p.Accepted()
    after.settle()
    assert notes(after) == 1


def test_what_was_answered_does_not_come_again_and_what_our_map_leaves_out_is_settled() -> None:
    bench = bench_of(2)
    link = receiver_of(session_of(bench))
    first, second = link.all()
    link.answer(p.Accepted(), first, settled=False)
    again = receiver_of(session_of(bench.again()), {first.tag: p.Accepted(), second.tag: None})
    assert again.attached.unsettled == {second.tag: None}
    assert again.bodies() == [b"1"]


@pytest.mark.parametrize("outcome", [p.Rejected(), p.Released(), p.Modified(delivery_failed=True)])
def test_any_outcome_takes_the_note_with_it(outcome: p.DeliveryState) -> None:
    bench = bench_of(1)
    session = session_of(bench)
    link = receiver_of(session, credit=1)
    link.answer(outcome, link.get(), settled=False)
    bench.settle()
    assert notes(bench) == 0
    again = receiver_of(session_of(bench.again()))
    assert again.bodies() == ([] if isinstance(outcome, p.Rejected) else [b"0"])


def test_a_delivery_is_sent_when_its_note_is_on_disk() -> None:
    bench = StoredBench(PATIENT)
    declare(bench, "q", durable=True)
    link = receiver_of(session_of(bench), credit=1)
    bench.store.held = True
    send(session_of(bench).sender(QUEUE), 0)
    bench.settle()
    assert link.get() is None
    link.want(1, drain=True)
    assert not link.drained
    land(bench)
    assert (link.get().body, notes(bench)) == (b"0", 1)
    link.want(5, drain=True)
    land(bench)
    link.peer.read()
    assert link.drained


def test_a_message_that_waits_for_the_disk_when_its_link_ends_goes_back() -> None:
    bench = bench_of()
    link = receiver_of(session_of(bench), credit=1)
    bench.store.held = True
    session_of(bench).sender(QUEUE).send(p.Header(durable=True), data(b"0"))
    link.peer.drop()
    land(bench)
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (1, 0)
    assert (notes(bench), stored(bench)) == (0, [])


def test_the_answer_to_an_outcome_and_to_an_attach_wait_for_the_disk() -> None:
    """The node holds back what a connection is told when this is set."""
    bench = bench_of(1)
    session = session_of(bench)
    link = receiver_of(session)
    bench.journal.holds = False
    link.answer(p.Accepted(), link.get(), settled=False)
    assert bench.journal.holds
    session.peer.drop()
    bench.journal.holds = False
    receiver_of(session_of(bench))
    assert bench.journal.holds


def test_a_link_has_only_so_many_unsettled_deliveries() -> None:
    bench = bench_of(UNSETTLED_MAX + 2)
    session = session_of(bench)
    link = receiver_of(session, credit=2 * UNSETTLED_MAX)
    got = link.all()
    assert len(got) == notes(bench) == UNSETTLED_MAX
    link.answer(p.Accepted(), got[0], settled=False)
    assert link.bodies() == [b"%d" % UNSETTLED_MAX]
    link.want(5, drain=True)
    assert link.drained


def test_transient_messages_cost_nothing_in_the_store() -> None:
    bench = bench_of()
    link = receiver_of(session_of(bench))
    fill(bench, 2, durable=False)
    assert link.bodies() == [b"0", b"1"]
    assert notes(bench) == 0


def test_what_nobody_comes_back_for_is_requeued_as_failed() -> None:
    bench = bench_of(1)
    receiver_of(session_of(bench))
    after = bench.again()
    after.advance(59)
    assert after.queue("q").ready == 0
    after.advance(2)
    assert (stored(after), notes(after)) == ([], 0)
    got = session_of(after).receiver(QUEUE, 1).get()
    assert (got.body, got.header.delivery_count) == (b"0", 1)


def test_a_deleted_queue_takes_what_is_kept_of_it_along() -> None:
    bench = bench_of(2)
    receiver_of(session_of(bench))
    after = bench.again()
    after.host.delete_queue(after.queue("q"))
    after.settle()
    assert (stored(after), notes(after)) == ([], 0)
    assert not termini_of(after.host).receivers


def test_an_outcome_in_a_transaction_takes_the_note_with_it_once_it_is_committed() -> None:
    bench = bench_of(1)
    session = session_of(bench)
    control, link = Control(session), receiver_of(session)
    tx = control.declare()
    link.answer(in_tx(tx, p.Accepted()), link.get(), settled=False)
    bench.settle()
    assert notes(bench) == 1
    control.commit(tx)
    bench.settle()
    assert (notes(bench), bench.again().queue("q").ready) == (0, 0)


def test_what_cannot_be_read_is_delivered_anew_and_hinders_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of(1)
    receiver_of(session_of(bench))
    (key,) = stored(bench)
    number = unsettled_maps_of(bench.host)[next(iter(unsettled_maps_of(bench.host)))].number
    bench.store.content.objects[key] = f'{{"number":{number},"terms":{{"policy":5}}}}'
    after = bench.again()
    assert (
        "unsettled deliveries of receiver 'r' of container 'test', user 'guest' cannot be read" in caplog.text
    )
    assert (stored(after), after.queue("q").ready) == ([], 1)


# Any order: the node dies at any moment, and each message is taken, and worked at, exactly once.


def land(bench: StoredBench) -> None:
    """All that was gathered is on disk."""
    bench.settle()
    while bench.store.flying is not None:
        bench.store.land()
        bench.settle()


def died(bench: StoredBench) -> StoredBench:
    """The next start: what was not on disk is gone."""
    bench.settle()
    after = StoredBench(PATIENT, bench.store.reopened(held=True))
    land(after)
    return after


class Client(ABC):
    """A client that comes back after whatever ends its connection."""

    def __init__(self, bench: StoredBench) -> None:
        self.bench = bench
        self.session = session_of(bench)

    @abstractmethod
    def come_back(self) -> None:
        """Begin another session, with what is unsettled."""

    def lose(self) -> None:
        """The connection is cut."""
        self.session.peer.drop()
        self.come_back()

    def die(self) -> None:
        self.bench = died(self.bench)
        self.come_back()


class Publishing(Client):
    """A client that sends 0, 1, 2, ... and sends again what the broker does not know of."""

    def __init__(self) -> None:
        super().__init__(bench_of())
        self.sent = 0
        self.unsettled: dict[int, tuple[int, p.DeliveryState | None]] = {}  # ids and states, by number
        self.sender = sender_of(self.session)
        self.bench.store.held = True

    def send(self) -> None:
        self.unsettled[self.sent] = send(self.sender, self.sent), None
        self.sent += 1

    def hear(self) -> None:
        for number, (id, _) in self.unsettled.items():
            self.unsettled[number] = id, self.sender.outcome(id)

    def settle(self) -> None:
        self.hear()
        for number, (id, state) in list(self.unsettled.items()):
            if state is not None:
                del self.unsettled[number]
                self.session.dispose(state, id, role=SENDER)

    def land(self) -> None:
        land(self.bench)

    def come_back(self) -> None:
        self.session = session_of(self.bench)
        unsettled = {tag(number): state for number, (_, state) in self.unsettled.items()}
        self.sender = sender_of(self.session, unsettled)
        self.land()
        known = known_to(self.sender) or {}
        for number, (_, state) in self.unsettled.items():
            if tag(number) in known:
                self.unsettled[number] = resume(self.sender, tag(number)), known[tag(number)]
            else:
                assert state is None, "what was told to be accepted is known"
                self.unsettled[number] = send(self.sender, number), None


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(["send", "send", "hear", "settle", "land", "lose", "die"]), max_size=20))
def test_whenever_the_node_dies_a_sender_publishes_each_message_exactly_once(steps: list[str]) -> None:
    client = Publishing()
    for step in [*steps, "die", "land", "settle", "die"]:
        getattr(client, step)()
    assert not client.unsettled
    assert sorted(map(int, bodies_of(client.bench, "q"))) == list(range(client.sent))
    assert notes(client.bench) == 0


class Working(Client):
    """A client that works at what it gets, and comes back with what it has not heard to be settled."""

    def __init__(self) -> None:
        super().__init__(bench_of(6))
        self.done: Counter[bytes] = Counter()
        self.unsettled: dict[bytes, tuple[Delivery, bool]] = {}  # by tag; whether it has worked at it
        self.link = receiver_of(self.session, credit=0)
        self.bench.store.held = True
        self.link.want(3)

    def hear(self) -> None:
        for each in self.link.all():
            if each.settled:
                del self.unsettled[each.tag]
            else:
                worked = each.tag in self.unsettled and self.unsettled[each.tag][1]
                self.unsettled[each.tag] = each, worked

    def work(self) -> None:
        self.hear()
        for each, worked in self.unsettled.values():
            if not worked:
                self.done[each.body] += 1
                self.unsettled[each.tag] = each, True
                self.link.answer(p.Accepted(), each, settled=False)
                return

    def other(self) -> None:
        """Somebody else takes a message, and works at it."""
        other = session_of(self.bench).receiver(QUEUE, 1)
        if (got := other.get()) is not None:
            other.accept(got)
            self.land()
            self.done[got.body] += 1
        other.peer.drop()

    def land(self) -> None:
        """What the broker has answered is let through when it is on disk."""
        land(self.bench)
        self.hear()
        for name, (each, worked) in list(self.unsettled.items()):
            if worked and each.id in self.session.told:
                del self.unsettled[name]

    def more(self) -> None:
        self.hear()
        self.link.want(self.link.credit + 1)

    def come_back(self) -> None:
        self.session = session_of(self.bench)
        said: Unsettled = {
            tag: p.Accepted() if worked else None for tag, (_, worked) in self.unsettled.items()
        }
        self.link = receiver_of(self.session, said, credit=0)
        land(self.bench)
        told = self.link.attached.unsettled or {}
        for name in [name for name in self.unsettled if name not in told]:
            del self.unsettled[name]
        self.link.want(3 + len(told))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(["work", "work", "other", "land", "more", "hear", "lose", "die"]), max_size=20)
)
def test_whenever_the_node_dies_each_message_is_worked_at_exactly_once(steps: list[str]) -> None:
    client = Working()
    for step in [*steps, "die", *6 * ("land", "more", "work"), "land", "die", "land"]:
        getattr(client, step)()
    assert client.done == Counter(b"%d" % number for number in range(6))
    assert not client.unsettled
    assert (client.bench.queue("q").ready, client.bench.queue("q").unsettled) == (0, 0)
    assert notes(client.bench) == 0


def test_containers_have_their_own() -> None:
    bench = bench_of(1)
    got = receiver_of(session_of(bench)).get()
    after = bench.again()
    other = Peer(after).open(container_id="other").begin()
    assert receiver_of(other, {got.tag: None}).attached.unsettled is None
    assert receiver_of(session_of(after), {got.tag: None}).get().tag == got.tag


def test_maps_go_with_their_virtual_host() -> None:
    bench = bench_of()
    send(sender_of(session_of(bench)), 0)
    bench.settle()
    assert len(stored(bench)) == 1
    bench.broker.delete_virtual_host("/")
    bench.settle()
    assert (stored(bench), notes(bench)) == ([], 0)
