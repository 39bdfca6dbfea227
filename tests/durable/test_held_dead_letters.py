"""Held dead letters and the disk: over restarts, in one commit with what they come from and go to, and paged out."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.delivery import Delivery
from leveret.durable.paging import Paging
from leveret.message import Facts, Message
from leveret.policy import Policy
from leveret.queues.held_dead_letters import FIRST_PAUSE_S, PREFETCH, HeldDeadLetters
from leveret.queues.queue import Queue
from leveret.queues.stream import StreamQueue
from leveret.queues.undelivered import STEP_S
from leveret.values import Value
from tests.core.fakes import FakeConsumer, waiting
from tests.durable.paged import small_pages
from tests.durable.site import Site, held_site, land_all
from tests.harness.bench import ENCODING

FULL: dict[str, Value] = {"x_max_length": 1, "x_overflow": "reject-publish"}


def source(site: Site, **said: Value) -> Queue:
    arguments: dict[str, Value] = {
        "x_dead_letter_exchange": "dlx",
        "x_dead_letter_strategy": "at-least-once",
        "x_overflow": "reject-publish",
        **said,
    }
    return site.queue("q", **arguments)


def dlx(site: Site, *targets: Queue) -> None:
    exchange = site.exchange("dlx")
    for target in targets:
        site.host.bind(exchange, target, "")


def reject_all(site: Site) -> None:
    consumer = FakeConsumer(site.host.queues["q"])
    site.settle()
    for delivery in list(consumer.held):
        consumer.reject(delivery)
    consumer.leave()
    site.settle()


def held(site: Site) -> HeldDeadLetters:
    found = site.host.queues["q"].dead_letters
    assert found is not None
    return found


def drained(site: Site, name: str) -> str:
    consumer = FakeConsumer(site.host.queues[name])
    site.settle()
    consumer.accept_all()
    site.settle()
    consumer.leave()
    return consumer.bodies()


@pytest.mark.parametrize("clean", [False, True])
def test_what_is_held_is_still_dead_after_a_restart_and_knows_whom_it_has_reached(clean: bool) -> None:
    site = Site()
    source(site)
    dlx(site, site.queue("one"), site.queue("two", **FULL))
    site.publish("", "q", b"a", b"b", b"c")
    died_at = int(site.clock.wall())
    reject_all(site)
    assert held(site).count == 2
    site = site.again(clean=clean, away_s=100)
    assert (site.host.queues["q"].ready, held(site).count, held(site).octets) == (0, 2, 2)
    assert held(site).why == "queue 'two' is full"
    assert waiting(site.host.queues["one"]) == "a b c"
    assert drained(site, "two") == "a b c"
    assert held(site).count == 0
    site = site.again()
    assert (held(site).count, site.host.queues["q"].ready) == (0, 0)
    [*_, last] = site.host.queues["one"].waiting()
    assert last.message.notes is not None
    assert [(d.reason, d.last_time) for d in last.message.notes.deaths] == [("rejected", died_at)]


def test_a_death_that_is_taken_at_once_writes_nothing_but_its_copy() -> None:
    site = Site()
    source(site)
    dlx(site, site.queue("dead"))
    site.publish("", "q", b"a")
    entries = site.journal.next_entry
    reject_all(site)
    assert site.journal.next_entry == entries + 1
    assert site.journal.known.live == 1


def test_the_death_and_the_arrivals_are_in_one_commit_also_in_a_stream_and_several_queues() -> None:
    site = held_site()
    source(site)
    stream = site.queue("log", x_queue_type="stream")
    dlx(site, site.queue("one"), site.queue("two"), stream)
    site.publish("", "q", b"a")
    land_all(site)
    reject_all(site)
    before, after = site.again(), None
    land_all(site)
    after = site.again()
    for there, ready, copies in ((before, "a", ""), (after, "", "a")):
        land_all(there)
        assert waiting(there.host.queues["q"]) == ready
        assert [waiting(there.host.queues[name]) for name in ("one", "two")] == [copies, copies]
        log = there.host.queues["log"]
        assert isinstance(log, StreamQueue)
        assert log.log.next == len(copies)


def test_the_last_target_gets_it_in_the_commit_that_lets_it_go() -> None:
    site = held_site()
    source(site)
    dlx(site, site.queue("one"), site.queue("two", **FULL))
    site.publish("", "q", b"a", b"b")
    land_all(site)
    reject_all(site)
    land_all(site)
    consumer = FakeConsumer(site.host.queues["two"])
    site.settle()
    consumer.accept_all()
    consumer.leave()
    site.settle()
    before = site.again()
    land_all(site)
    after = site.again()
    for there, count, copies in ((before, 1, "a"), (after, 0, "")):
        land_all(there)
        assert held(there).count == count
        assert waiting(there.host.queues["two"]) == copies


def test_a_deleted_queue_leaves_nothing_in_the_store() -> None:
    site = Site()
    queue = source(site)
    site.publish("", "q", *[b"%d" % number for number in range(2 * PREFETCH)])
    reject_all(site)
    assert held(site).count == 2 * PREFETCH
    site.host.delete_queue(queue)
    site.settle()
    assert site.journal.known.live == 0


def test_they_are_paged_out_behind_those_in_hand_and_come_back_in_order() -> None:
    restore = small_pages()
    try:
        site = Site()
        source(site)
        bodies = [b"%03d" % number for number in range(100)]
        site.publish("", "q", *bodies)
        reject_all(site)
        site.broker.paging = Paging(site.broker, 0, resident=lambda: 1 << 30, give_back=lambda: None)
        site.broker.paging._base = 0
        for _ in range(20):
            site.advance(1)
        assert held(site).backlog is not None
        assert held(site).backlog.messages == 100 - PREFETCH
        site.broker.paging = None
        dlx(site, site.queue("dead"))
        for _ in range(40):
            site.advance(STEP_S)
        assert waiting(site.host.queues["dead"]).encode().split() == bodies
        assert held(site).count == 0
    finally:
        restore()


def test_transient_messages_and_queues_are_held_as_long_as_the_node_lives() -> None:
    site = Site()
    source(site)
    site.broker.publish(site.host.default_exchange, Message(ENCODING, "", "q", b"", b"a", Facts()))
    reject_all(site)
    assert held(site).count == 1
    assert held(site.again()).count == 0


TARGETS = ("a", "b", "c")


class Deaths(RuleBasedStateMachine):
    """Any sequence of deaths, refusals, changes of topology and restarts: held, or in all targets, once, in order.

    Bodies are numbers. `dead` has them in the order of their deaths."""

    @initialize()
    def begin(self) -> None:
        self.site = Site()
        source(self.site, x_message_ttl=5_000)
        for name in TARGETS:
            self.site.queue(name, x_overflow="reject-publish")
        self.last = 0
        self.alive: list[int] = []
        self.dead: list[int] = []
        self.left: set[int] = set()
        self.got: dict[str, list[int]] = {name: [] for name in TARGETS}
        self.bound: set[str] = set()

    # What happens.

    @rule(count=st.integers(1, 40))
    def publish(self, count: int) -> None:
        bodies = list(range(self.last + 1, self.last + 1 + count))
        self.last += count
        self.site.publish("", "q", *[b"%d" % body for body in bodies])
        self.alive += bodies
        self.look()

    @rule(count=st.integers(1, 40))
    def reject(self, count: int) -> None:
        consumer = FakeConsumer(self.site.host.queues["q"], credit=count)
        self.site.settle()
        for delivery in list(consumer.held):
            self.die(delivery)
            consumer.reject(delivery)
        consumer.leave()
        self.look()

    def die(self, delivery: Delivery) -> None:
        body = int(delivery.message.body)
        self.alive.remove(body)
        self.dead.append(body)

    @rule()
    def expire(self) -> None:
        self.site.advance(5.001)
        self.dead += self.alive
        self.alive = []
        self.look()

    @rule(name=st.sampled_from(TARGETS), count=st.integers(1, 10))
    def consume(self, name: str, count: int) -> None:
        for _ in range(count):
            delivery = self.site.host.queues[name].take_one(settled=True)
            if delivery is not None:
                self.got[name].append(int(delivery.message.body))
            self.site.settle()
        self.look()

    @rule(name=st.sampled_from(TARGETS))
    def purge(self, name: str) -> None:
        queue = self.site.host.queues[name]
        self.got[name] += bodies_in(queue)
        queue.purge()
        self.look()

    @rule(name=st.sampled_from(TARGETS), length=st.integers(0, 30))
    def limit(self, name: str, length: int) -> None:
        self.site.broker.policies.set(Policy(name, "/", f"^{name}$", {"max-length": length}))
        self.site.host.apply_policies()
        self.look()

    @rule(name=st.sampled_from(TARGETS))
    def bind(self, name: str) -> None:
        dlx(self.site, self.site.host.queues[name])
        self.bound.add(name)
        self.look()

    @rule(name=st.sampled_from(TARGETS))
    def unbind(self, name: str) -> None:
        if name in self.bound:
            self.site.host.unbind(self.site.host.exchange("dlx"), self.site.host.queues[name], "")
            self.bound.remove(name)
            self.look()

    @rule()
    def delete_exchange(self) -> None:
        if "dlx" in self.site.host.exchanges:
            self.site.host.delete_exchange("dlx")
            self.bound.clear()
            self.look()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.site = self.site.again(clean=clean)
        self.look()

    @rule(seconds=st.sampled_from([STEP_S, FIRST_PAUSE_S]))
    def wait(self, seconds: float) -> None:
        self.look(seconds)

    # What must be so.

    def look(self, seconds: float = STEP_S) -> None:
        """See what has left since, and that every target of now has that."""
        self.site.settle()
        waited = self.site.host.queues["q"].ready
        self.site.advance(seconds)
        if self.site.host.queues["q"].ready < waited:
            here = set(bodies_in(self.site.host.queues["q"]))
            self.dead += [body for body in self.alive if body not in here]
            self.alive = [body for body in self.alive if body in here]
        now_held = set(self.held())
        gone = set(self.dead) - now_held - self.left
        self.left |= gone
        reached: set[int] = set()
        for name in TARGETS:
            has = set(self.got[name]) | set(bodies_in(self.site.host.queues[name]))
            assert name not in self.bound or gone <= has, f"{gone - has} did not reach '{name}'"
            reached |= has
        assert gone <= reached
        assert not self.left & now_held

    def held(self) -> list[int]:
        found = self.site.host.queues["q"].dead_letters
        if found is None:
            return []
        bodies = [int(letter.delivery.message.body) for letter in found._letters] + bodies_in(found)
        assert (len(bodies), len(found._letters)) == (found.count, found.in_hand)
        assert found.in_hand <= PREFETCH
        return bodies

    @invariant()
    def nothing_is_lost_or_comes_twice_or_overtakes(self) -> None:
        held_now = self.held()
        order = {body: place for place, body in enumerate(self.dead)}
        assert set(held_now) | self.left == set(self.dead)
        for name in TARGETS:
            came = self.got[name] + bodies_in(self.site.host.queues[name])
            assert len(set(came)) == len(came)
            assert [order[body] for body in came] == sorted(order[body] for body in came)
        assert sorted(bodies_in(self.site.host.queues["q"])) == sorted(self.alive)


def bodies_in(queue: Queue) -> list[int]:
    return [int(delivery.message.body) for delivery in queue.waiting()]


TestDeaths = Deaths.TestCase
