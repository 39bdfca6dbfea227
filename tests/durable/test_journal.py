"""The journal: what is in a commit, when publishers hear of it, and what the next start finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker import Publisher
from leveret.durable import compaction, merge_candidates, recovery
from leveret.durable.journal import LOW_ON_DISK, RETRY_S, Journal
from leveret.durable.one_by_one import BATCHES, FEW, ROW
from leveret.durable.store.contract import Commit, NoSpaceError, StoreError
from leveret.durable.store.memory import MemoryStore
from leveret.message import Facts, Message
from leveret.queues.queue import Queue
from tests.core.fakes import FakeConsumer, fetched, waiting
from tests.harness.bench import ENCODING, CoreBench

DURABLE = Facts(durable=True)
TRANSIENT = Facts()


class Told(Publisher):
    """A publisher that counts what it publishes, and what of it is safe."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.persistent = False
        self.published = self.safe = 0

    def publish(self, key: str, body: bytes, facts: Facts = DURABLE) -> None:
        self.kept.publish(key, body, facts=facts)
        self.published += 1
        self.persistent |= facts.durable
        if self not in self.kept.broker.publishers:
            self.kept.broker.publishers.append(self)

    def mark(self) -> int:
        self.persistent = False
        return self.published

    def taken(self, mark: int) -> None:
        assert mark >= self.safe, "marks rise"
        self.safe = mark


class Kept(CoreBench):
    """A bench with a store. What the store has to say is said when `hear` is called."""

    def __init__(self, store: MemoryStore, *names: str, **limits: int) -> None:
        super().__init__()
        self.store = store
        self.said: list[Callable[[], None]] = []
        self.failure: StoreError | None = None
        self.journal = Journal(store, self.broker, {ENCODING.name: lambda: ENCODING})
        self.journal.on_failed = self._on_failed
        self.q: dict[str, Queue] = {}
        for number, name in enumerate(names, 1):
            queue = self.q[name] = self.queue(name, **limits)
            queue.number, queue.journal = number, self.journal
        self.recovered = recovery.messages(self.broker, self.journal)
        self.journal.start(self.said.append)

    def _on_failed(self, error: StoreError) -> None:
        self.failure = error

    def publish(self, key: str, *bodies: bytes, facts: Facts = DURABLE) -> None:  # type: ignore[override]
        """Nothing is settled."""
        for body in bodies:
            self.broker.publish(self.host.default_exchange, Message(ENCODING, "", key, b"", body, facts))

    def hear(self) -> None:
        while self.said:
            self.said.pop(0)()

    def serve(self) -> None:
        """Give consumers what there is, on disk too."""
        self.settle()
        while self.said:
            self.hear()
            self.settle()

    def land(self) -> None:
        """Everything gathered becomes durable."""
        self.settle()
        while self.store.flying is not None or self.said:
            if self.store.flying is not None:
                self.store.land()
            self.hear()

    def crash(self) -> Kept:
        """The next start, without a goodbye."""
        return Kept(self.store.reopened(held=True), *self.q)


@pytest.fixture
def kept() -> Kept:
    return Kept(MemoryStore(held=True), "q", "r")


def test_a_publisher_is_told_when_its_message_is_on_disk_and_not_before(kept: Kept) -> None:
    publisher = Told(kept)
    publisher.publish("q", b"a")
    kept.settle()
    kept.hear()
    assert publisher.safe == 0
    kept.store.land()
    assert publisher.safe == 0
    kept.hear()
    assert publisher.safe == 1


def test_what_is_published_while_a_commit_is_in_flight_waits_for_the_next(kept: Kept) -> None:
    publisher = Told(kept)
    publisher.publish("q", b"a")
    kept.settle()
    publisher.publish("q", b"b")
    kept.settle()
    kept.store.land()
    kept.hear()
    assert (publisher.safe, publisher.published) == (1, 2)
    assert kept.store.flying is not None
    kept.store.land()
    kept.hear()
    assert publisher.safe == 2


def test_who_publishes_nothing_persistent_is_told_at_once(kept: Kept) -> None:
    waiting, other = Told(kept), Told(kept)
    waiting.publish("q", b"a")
    other.publish("q", b"b", TRANSIENT)
    kept.settle()
    assert (waiting.safe, other.safe) == (0, 1)


def test_a_later_transient_message_does_not_overtake_an_earlier_persistent_one(kept: Kept) -> None:
    publisher = Told(kept)
    publisher.publish("q", b"a")
    kept.settle()
    publisher.publish("q", b"b", TRANSIENT)
    kept.settle()
    assert publisher.safe == 0
    kept.land()
    assert publisher.safe == 2


def test_a_message_that_is_settled_at_once_is_never_written(kept: Kept) -> None:
    publisher = Told(kept)
    FakeConsumer(kept.q["q"], settled=True)
    publisher.publish("q", b"a")
    kept.settle()
    assert kept.store.flying is None
    assert publisher.safe == 1
    assert kept.store.stats().chunks == 0


def test_only_durable_messages_in_kept_queues_come_back(kept: Kept) -> None:
    kept.publish("q", b"a")
    kept.publish("q", b"b", facts=TRANSIENT)
    kept.publish("q", b"c")
    kept.publish("r", b"d")
    kept.land()
    again = kept.crash()
    assert (waiting(again.q["q"]), waiting(again.q["r"])) == ("a c", "d")
    assert again.recovered.messages == 3


def test_what_was_not_durable_is_gone_after_a_crash(kept: Kept) -> None:
    kept.publish("q", b"a")
    kept.land()
    kept.publish("q", b"b")
    kept.settle()
    assert waiting(kept.crash().q["q"]) == "a"


def test_after_a_crash_everything_counts_as_delivered_before(kept: Kept) -> None:
    kept.publish("q", b"a")
    kept.land()
    again = kept.crash()
    again.publish("q", b"b")
    again.settle()
    consumer = FakeConsumer(again.q["q"])
    again.serve()
    assert [(d.message.body, d.redelivered) for d in consumer.got] == [(b"a", True), (b"b", False)]


def test_after_a_proper_end_flags_and_attempts_are_exact(kept: Kept) -> None:
    kept.publish("q", b"a", b"b", b"c")
    kept.land()
    first, second = fetched(kept.q["q"], settled=False), fetched(kept.q["q"], settled=False)
    kept.q["q"].release(first)
    kept.q["q"].release(second, failed=False)
    kept.settle()
    kept.journal.close()
    again = kept.crash()
    consumer = FakeConsumer(again.q["q"])
    again.serve()
    assert [(d.message.body, d.redelivered, d.attempts) for d in consumer.got] == [
        (b"a", True, 1),
        (b"b", True, 0),
        (b"c", False, 0),
    ]


def test_attempts_are_kept_at_once_where_there_is_a_limit_to_them() -> None:
    kept = Kept(MemoryStore(held=True), "q", x_delivery_limit=5)
    kept.publish("q", b"a")
    for _ in range(3):
        kept.q["q"].release(fetched(kept.q["q"], settled=False))
        kept.land()
    assert fetched(kept.crash().q["q"], settled=False).attempts == 3


@pytest.mark.parametrize(
    ("limits", "order"), [({}, [b"a", b"b", b"c", b"d"]), ({"x_max_priority": 2}, [b"b", b"c", b"d", b"a"])]
)
def test_only_priorities_that_the_queue_tells_apart_change_the_order(
    limits: dict[str, int], order: list[bytes]
) -> None:
    kept = Kept(MemoryStore(held=True), "q", **limits)
    for body, priority in ((b"a", 0), (b"b", 5), (b"c", 2), (b"d", 3)):
        kept.publish("q", body, facts=Facts(durable=True, priority=priority))
    kept.land()
    again = Kept(kept.store.reopened(held=True), "q", **limits)
    assert [delivery.message.body for delivery in again.q["q"].waiting()] == order


def test_an_acknowledgement_that_is_on_disk_holds(kept: Kept) -> None:
    kept.publish("q", b"a", b"b", b"c")
    kept.land()
    consumer = FakeConsumer(kept.q["q"])
    kept.settle()
    consumer.accept(consumer.held[1])
    kept.land()
    consumer.accept(consumer.held[0])
    kept.settle()
    assert waiting(kept.crash().q["q"]) == "a c"


def test_a_message_in_two_queues_is_stored_once_and_settled_twice(kept: Kept) -> None:
    exchange = kept.host.declare_exchange("x", "fanout")
    for queue in kept.q.values():
        kept.host.bind(exchange, queue, "")
    kept.broker.publish(exchange, Message(ENCODING, "x", "", b"", b"12345678" * 100, DURABLE))
    kept.land()
    assert kept.store.stats().messages_octets < 1000
    fetched(kept.q["q"], settled=True)
    kept.land()
    again = kept.crash()
    assert (again.q["q"].ready, again.q["r"].ready) == (0, 1)
    fetched(again.q["r"], settled=True)
    again.land()
    assert again.store.stats().chunks == 0


def test_a_purge_is_kept_but_not_for_what_is_with_consumers(kept: Kept) -> None:
    kept.publish("q", b"a", b"b", b"c")
    kept.land()
    fetched(kept.q["q"], settled=False)
    kept.q["q"].purge()
    kept.land()
    assert waiting(kept.crash().q["q"]) == "a"


def test_x040_what_a_deleted_queue_had_is_not_found_again(kept: Kept) -> None:
    kept.publish("q", b"a", b"b")
    kept.land()
    delivery = fetched(kept.q["q"], settled=False)
    kept.host.delete_queue(kept.q["q"])
    kept.land()
    assert kept.store.stats().chunks == 1
    delivery.queue.release(delivery)
    kept.land()
    assert kept.store.stats().chunks == 0


def test_messages_of_a_queue_that_nobody_knows_are_given_up(kept: Kept) -> None:
    kept.publish("r", b"a")
    kept.publish("q", b"b")
    kept.land()
    again = Kept(kept.store.reopened(held=True), "q")
    again.land()
    assert waiting(Kept(again.store.reopened(held=True), "q", "r").q["r"]) == ""


def test_a_revised_message_keeps_its_place_and_what_was_added(kept: Kept) -> None:
    kept.publish("q", b"a", b"b")
    kept.land()
    delivery = fetched(kept.q["q"], settled=False)
    kept.q["q"].revise(delivery, Message(ENCODING, "", "q", b"", b"A", DURABLE))
    kept.q["q"].release(delivery)
    kept.land()
    assert waiting(kept.crash().q["q"]) == "A b"


def test_a_revised_message_keeps_its_place_among_pages(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PAGE_MESSAGES", 1)
    kept.publish("q", b"a", b"b", b"c")
    kept.land()
    deliveries = [fetched(kept.q["q"], settled=False) for _ in "ab"]
    for delivery, body in zip(deliveries, (b"A", b"B"), strict=True):
        kept.q["q"].revise(delivery, Message(ENCODING, "", "q", b"", body, DURABLE))
        kept.q["q"].release(delivery)
        kept.land()
    again = kept.crash()
    assert [fetched(again.q["q"], settled=True).message.body for _ in "abc"] == [b"A", b"B", b"c"]


def test_who_crashed_once_and_ended_properly_then_knows_which_is_which(kept: Kept) -> None:
    kept.publish("q", b"a")
    kept.land()
    again = kept.crash()
    again.publish("q", b"b")
    again.land()
    again.journal.close()
    flags = [(d.message.body, d.redelivered) for d in again.crash().q["q"].waiting()]
    assert flags == [(b"a", True), (b"b", False)]


def test_no_space_is_an_alarm_and_the_same_commit_is_tried_again(kept: Kept) -> None:
    publisher = Told(kept)
    publisher.publish("q", b"a")
    kept.settle()
    for _ in range(2):
        kept.store.fail(NoSpaceError("full"))
        kept.hear()
        assert kept.broker.alarms.reason == LOW_ON_DISK
        assert kept.store.flying is None
        kept.advance(RETRY_S)
        assert kept.store.flying is not None
    assert publisher.safe == 0
    kept.store.land()
    kept.hear()
    assert (publisher.safe, kept.broker.alarms.reason) == (1, None)
    assert waiting(kept.crash().q["q"]) == "a"


def test_a_commit_tells_what_came_again_after_it_was_removed_from_what_was_written_twice(kept: Kept) -> None:
    for key, values in (
        ("new", ["1", "2"]),
        ("gone", [None]),
        ("renewed", [None, "1"]),
        ("both", ["1", None]),
    ):
        for value in values:
            if value is None:
                kept.journal.remove(key)
            else:
                kept.journal.put(key, value)
    kept.settle()
    commit = kept.store.flying
    assert commit is not None
    assert (commit.objects, commit.renewed) == (
        {"new": "2", "gone": None, "renewed": "1", "both": None},
        {"renewed"},
    )
    kept.land()
    kept.journal.put("renewed", "2")
    kept.settle()
    assert kept.store.flying is not None
    assert kept.store.flying.renewed == set()


def test_after_a_failure_nobody_is_told_anything(kept: Kept) -> None:
    publisher = Told(kept)
    publisher.publish("q", b"a")
    kept.settle()
    kept.store.fail(StoreError("input/output error"))
    kept.hear()
    publisher.publish("q", b"b")
    kept.settle()
    kept.advance(10)
    assert isinstance(kept.failure, StoreError)
    assert (publisher.safe, kept.store.flying) == (0, None)


def test_publishers_had_better_wait_when_too_much_is_not_on_disk(kept: Kept) -> None:
    kept.journal.behind_octets = 1000
    kept.publish("q", bytes(600))
    kept.settle()
    assert not kept.journal.behind
    kept.publish("q", bytes(600))
    kept.settle()
    assert kept.journal.behind
    kept.store.land()
    kept.hear()
    assert not kept.journal.behind


def test_a_commit_has_several_chunks_if_it_is_large(kept: Kept) -> None:
    kept.journal.chunk_octets = 1000
    bodies = [b"%04d" % at + bytes(400) for at in range(20)]
    kept.publish("q", *bodies)
    kept.land()
    assert kept.store.stats().chunks > 5
    again = kept.crash()
    assert [d.message.body for d in again.q["q"].waiting()] == bodies


VERBS = ("publish", "both", "transient", "take", "accept", "release", "reject", "revise", "purge", "settle")
STEPS = st.lists(
    st.tuples(
        st.sampled_from((*VERBS, "publish", "land", "land", "crash", "end")),
        st.sampled_from("qr"),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 2))
def test_confirmed_is_kept_and_settled_is_gone(steps: list[tuple[str, str, int]], commits_max: int) -> None:
    """Whatever happens: confirmed and unsettled is there, settled on disk is not, in order, each once, flagged.

    Chunks and pages are small, and chunks are rewritten whenever that is possible."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "PAGE_MESSAGES", 2)
        patch.setattr(compaction, "LOOK_EVERY", 1)
        patch.setattr(merge_candidates, "SMALL_MANY", 2)
        patch.setattr(compaction, "YOUNG_MS", 0)
        patch.setattr(MemoryStore, "commits_max", commits_max)
        model = Model()
        for verb, name, number in steps:
            getattr(model, verb)(name, number)
        model.crash("q", 0)


def test_what_is_settled_while_chunks_are_rewritten_is_settled(kept: Kept, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compaction, "LOOK_EVERY", 1)
    monkeypatch.setattr(merge_candidates, "SMALL_MANY", 3)
    monkeypatch.setattr(compaction, "YOUNG_MS", 0)
    for bodies in ((b"a",), (b"b", b"c")):
        kept.publish("q", *bodies)
        kept.land()
    assert kept.store.stats().chunks == 2
    consumer = FakeConsumer(kept.q["q"])
    kept.publish("q", b"d")
    kept.settle()
    kept.store.land()
    kept.said.pop(0)()  # the commit is on disk; what the thread read is still on its way
    assert kept.said, "three small chunks are being rewritten"
    consumer.accept(consumer.held[1])
    kept.land()
    assert kept.store.stats().chunks == 1
    again = kept.crash()
    assert waiting(again.q["q"]) == "a c d"
    consumer = FakeConsumer(again.q["q"])
    again.land()  # its pages come
    again.settle()
    consumer.accept_all()
    again.land()
    assert again.store.stats().chunks == 0


def small(kept: Kept) -> Kept:
    """Its chunks are, and commits that are given before another is durable."""
    kept.journal.chunk_entries = 3
    kept.journal.ahead_entries = 1
    return kept


class Model:
    """Runs a kept bench beside what must be true of it."""

    def __init__(self) -> None:
        self.bench = small(Kept(MemoryStore(held=True), "q", "r"))
        self.publisher = Told(self.bench)
        self.count = 0
        self.held: list[tuple[str, object]] = []
        self.live: dict[str, list[bytes]] = {"q": [], "r": []}  # durable and not settled
        self.on_disk: dict[str, list[bytes]] = {"q": [], "r": []}  # as of the last landing
        self.delivered: set[tuple[str, bytes]] = set()

    def publish(self, name: str, number: int) -> None:
        self.count += 1
        body = b"%d" % self.count
        self.publisher.publish(name, body)
        self.live[name].append(body)

    def both(self, name: str, number: int) -> None:
        self.count += 1
        body = b"%d" % self.count
        exchange = self.bench.host.declare_exchange("x", "fanout")
        for queue in self.bench.q.values():
            self.bench.host.bind(exchange, queue, "")
        self.bench.broker.publish(exchange, Message(ENCODING, "x", "", b"", body, DURABLE))
        for bodies in self.live.values():
            bodies.append(body)

    def transient(self, name: str, number: int) -> None:
        self.publisher.publish(name, b"transient", TRANSIENT)

    def take(self, name: str, number: int) -> None:
        for _ in range(number):
            delivery = self.bench.q[name].take_one(settled=False)
            if delivery is not None:
                self.held.append((name, delivery))
                self.delivered.add((name, delivery.message.body))

    def _answer(self, number: int, outcome: Callable[[Queue, object], None], gone: bool) -> None:
        if self.held:
            name, delivery = self.held.pop(number % len(self.held))
            outcome(self.bench.q[name], delivery)
            body = delivery.message.body  # type: ignore[attr-defined]
            if gone and body in self.live[name]:
                self.live[name].remove(body)

    def accept(self, name: str, number: int) -> None:
        self._answer(number, lambda queue, d: queue.accept(d), gone=True)  # type: ignore[arg-type]

    def reject(self, name: str, number: int) -> None:
        self._answer(number, lambda queue, d: queue.reject(d), gone=True)  # type: ignore[arg-type]

    def release(self, name: str, number: int) -> None:
        self._answer(number, lambda queue, d: queue.release(d), gone=False)  # type: ignore[arg-type]

    def revise(self, name: str, number: int) -> None:
        def outcome(queue: Queue, delivery: object) -> None:
            queue.revise(delivery, delivery.message)  # type: ignore[attr-defined, arg-type]
            queue.release(delivery)  # type: ignore[arg-type]

        self._answer(number, outcome, gone=False)

    def purge(self, name: str, number: int) -> None:
        self.bench.q[name].purge()
        kept = [d.message.body for n, d in self.held if n == name]  # type: ignore[attr-defined]
        self.live[name] = [body for body in self.live[name] if body in kept]

    def settle(self, name: str, number: int) -> None:
        self.bench.settle()

    def land(self, name: str, number: int) -> None:
        self.bench.land()
        self.on_disk = {each: list(bodies) for each, bodies in self.live.items()}
        assert self.publisher.safe == self.publisher.published
        content = self.bench.store.content
        assert content.settled.keys() <= content.chunks.keys(), "nothing is left of what has gone"

    def crash(self, name: str, number: int) -> None:
        self.bench.settle()
        self._begin_again(small(self.bench.crash()), self.on_disk)
        self.delivered = {(each, body) for each, bodies in self.live.items() for body in bodies}
        self._check_flags()

    def end(self, name: str, number: int) -> None:
        for owner, delivery in self.held:
            self.bench.q[owner].release(delivery)  # type: ignore[arg-type]
        self.bench.land()
        self.bench.journal.close()
        self._begin_again(small(self.bench.crash()), self.live)
        self._check_flags()

    def _check_flags(self) -> None:
        """Every one that was delivered before says so; after a proper end, no other does."""
        for name, queue in self.bench.q.items():
            for delivery in queue.waiting():
                assert delivery.redelivered is ((name, delivery.message.body) in self.delivered)

    def _begin_again(self, bench: Kept, expected: dict[str, list[bytes]]) -> None:
        """A commit may have been taken by the store that nobody was told of: then more has come back, in full."""
        self.bench, self.publisher, self.held = bench, Told(bench), []
        found = {name: waiting(queue).encode().split() for name, queue in bench.q.items()}
        assert found == expected
        self.live = found
        self.on_disk = {name: list(bodies) for name, bodies in found.items()}


# Commits that are written at once.


class Prompt(MemoryStore):
    """A store that notes of each commit whether it was to be written at once, and then does so."""

    def __init__(self) -> None:
        super().__init__(held=True, prompt=True)
        self.asked: list[bool] = []

    def append(self, commit: Commit, at_once: bool = False) -> bool:
        assert not (at_once and self.given), "those before are durable"
        self.asked.append(at_once)
        return super().append(commit, at_once)


def lone(count: int = ROW + 1) -> tuple[Kept, Told, Prompt]:
    """A publisher that has waited for each of so many messages."""
    store = Prompt()
    kept = Kept(store, "q", "r")
    publisher = Told(kept)
    for _ in range(count):
        step(publisher)
    return kept, publisher, store


def step(publisher: Told, count: int = 1) -> None:
    """The publisher waits for some messages, in a batch of their own."""
    publisher.kept.broker.tick()
    for _ in range(count):
        publisher.publish("q", b"x")
    publisher.kept.land()
    assert publisher.safe == publisher.published


def test_a_publisher_that_waits_for_each_message_has_them_written_at_once_after_a_while() -> None:
    kept, publisher, store = lone(ROW + 3)
    assert store.asked == [False] * (ROW + 1) + [True] * 2
    kept.broker.tick()
    publisher.publish("q", b"y")
    kept.settle()
    assert publisher.safe == publisher.published, "it was told in the same batch"
    assert (kept.said, store.given) == ([], [])
    assert waiting(kept.crash().q["q"]).split() == ["x"] * (ROW + 3) + ["y"]


def test_two_publishers_in_turns_do_not() -> None:
    kept, one, store = lone(0)
    other = Told(kept)
    for _ in range(2 * ROW):
        step(one)
        step(other)
    assert not any(store.asked)


def test_two_publishers_of_one_commit_do_not() -> None:
    kept, one, store = lone()
    other = Told(kept)
    kept.broker.tick()
    one.publish("q", b"x")
    step(other)
    assert store.asked[-1] is False


def test_many_messages_do_not() -> None:
    _, publisher, store = lone()
    step(publisher, FEW)
    assert store.asked[-1] is True
    step(publisher, FEW + 1)
    assert store.asked[-1] is False
    step(publisher)
    assert store.asked[-1] is False, "and it begins anew"


def test_nobody_waits_for_the_disk_in_vain_while_others_have_much_to_do() -> None:
    kept, publisher, store = lone()
    for _ in range(BATCHES):
        kept.settle()
    step(publisher)
    assert store.asked[-1] is False
    kept, publisher, store = lone()
    kept.broker.tick()
    kept.broker.work = FEW + 1
    publisher.publish("q", b"x")
    kept.land()
    assert store.asked[-1] is False


def test_commits_that_no_publisher_waits_for_change_nothing() -> None:
    kept, publisher, store = lone()
    kept.q["q"].purge()
    kept.land()
    assert store.asked[-1] is False
    step(publisher)
    assert store.asked[-1] is True


def test_a_commit_behind_another_is_written_when_that_is_durable() -> None:
    kept, publisher, store = lone()
    kept.q["q"].purge()
    kept.settle()
    assert store.flying is not None
    kept.broker.tick()
    publisher.publish("q", b"x")
    kept.settle()
    assert len(store.asked) == ROW + 2
    kept.land()
    assert publisher.safe == publisher.published
