"""Two sessions at one queue, doing whatever clients may: each message is in one place at any time, and none is lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from tests.harness.bench import ClientBench

from .client import ClientSession
from .peer import session_of

STEPS = (
    "publish",
    "accept",
    "release",
    "reject",
    "acquire",
    "cancel",
    "flow",
    "stop",
    "flush",
    "complete",
    "commit",
    "roll back",
    "detach",
)
MODES = st.tuples(  # accepts, browses, in transactions
    st.sampled_from([True, True, False]), st.sampled_from([False, False, True]), st.booleans()
)
OFTEN = ("publish", "flow", "accept", "accept", "release", "roll back")


class Actor:
    """One session, and what the model knows it to hold: bodies by the ids of their transfers."""

    def __init__(self, bench: ClientBench, name: str, modes: tuple[bool, bool, bool]) -> None:
        self.accepts, self.browses, self.transacts = modes
        self.session: ClientSession = session_of(bench, name)
        if self.transacts:
            self.session.call(c.TxSelect())
        self.inbox = self.session.subscribe(
            "q",
            "d",
            messages=2,
            accept_mode=c.ACCEPT_MODE_EXPLICIT if self.accepts else c.ACCEPT_MODE_NONE,
            acquire_mode=int(self.browses),
        )
        self.shown: dict[int, bytes] = {}
        self.held: dict[int, bytes] = {}
        self.accepted: dict[int, bytes] = {}  # in the transaction
        self.published: list[bytes] = []  # in the transaction
        self.subscribed = True


class Model:
    """Where each message must be."""

    def __init__(self, modes: list[tuple[bool, bool, bool]]) -> None:
        self.bench = ClientBench()
        session_of(self.bench, "setup").declare("q", alternate_exchange="amq.fanout")
        setup = session_of(self.bench, "dead")
        setup.declare("dead")
        setup.bind("dead", "amq.fanout")
        self.actors = [Actor(self.bench, f"s{n}", mode) for n, mode in enumerate(modes)]
        self.count = 0
        self.names = len(modes)
        self.waiting: set[bytes] = set()
        self.gone: set[bytes] = set()
        self.dead: set[bytes] = set()
        for _ in range(4):
            self.waiting.add(b"%d" % self.count)
            setup.publish("q", b"%d" % self.count)
            self.count += 1
        setup.sync()

    def step(self, what: str, at: int, share: int) -> None:
        """`share` chooses among what the session holds."""
        actor = self.actors[at % len(self.actors)]
        getattr(self, what.replace(" ", "_"))(actor, [id for id in actor.held if id % 3 <= share])
        self.hear()
        self.check()

    def hear(self) -> None:
        """What has come since."""
        for actor in self.actors:
            for message in actor.inbox.all():
                if actor.browses:
                    actor.shown[message.id] = message.body
                    continue
                self.waiting.remove(message.body)  # it did wait, and nobody else has it
                if actor.accepts:
                    actor.held[message.id] = message.body
                else:
                    self.gone.add(message.body)

    def check(self) -> None:
        queue = self.bench.queue("q")
        held = [body for actor in self.actors for body in (*actor.held.values(), *actor.accepted.values())]
        assert len(held) == len(set(held))
        assert queue.unsettled == len(held)
        assert {delivery.message.body for delivery in queue.waiting()} == self.waiting
        assert queue.ready == len(self.waiting)
        assert {delivery.message.body for delivery in self.bench.queue("dead").waiting()} == self.dead
        inside = [body for actor in self.actors for body in actor.published]
        assert len(self.waiting) + len(held) + len(self.gone) + len(self.dead) + len(inside) == self.count

    # What a client does.

    def publish(self, actor: Actor, _: list[int]) -> None:
        body = b"%d" % self.count
        self.count += 1
        if actor.transacts:
            actor.published.append(body)
        else:
            self.waiting.add(body)
        actor.session.publish("q", body)
        actor.session.sync()

    def accept(self, actor: Actor, ids: list[int]) -> None:
        actor.session.accept(ids)
        accepted = {id: actor.held.pop(id) for id in ids}
        if actor.transacts:
            actor.accepted |= accepted
        else:
            self.gone |= set(accepted.values())

    def release(self, actor: Actor, ids: list[int]) -> None:
        """Also of what is accepted in a transaction, and of what is not held."""
        ids = [*ids, *actor.accepted, *actor.shown]
        for held in (actor.held, actor.accepted):
            self.waiting |= {held.pop(id) for id in ids if id in held}
        actor.session.release(ids)

    def reject(self, actor: Actor, ids: list[int]) -> None:
        self.dead |= {actor.held.pop(id) for id in ids}
        actor.session.reject(ids)

    def acquire(self, actor: Actor, _: list[int]) -> None:
        got = actor.session.acquire(list(actor.shown))
        assert {actor.shown[id] for id in got} == set(actor.shown.values()) & self.waiting
        for id in got:
            body = actor.shown.pop(id)
            self.waiting.remove(body)
            if actor.accepts:
                actor.held[id] = body
            else:
                self.gone.add(body)
        actor.shown.clear()

    def cancel(self, actor: Actor, _: list[int]) -> None:
        if actor.subscribed:
            actor.subscribed = False
            actor.session.call(c.MessageCancel("d"))

    def flow(self, actor: Actor, _: list[int]) -> None:
        if actor.subscribed:
            actor.session.flow("d", 2)

    def stop(self, actor: Actor, _: list[int]) -> None:
        if actor.subscribed:
            actor.session.call(c.MessageStop("d"))

    def flush(self, actor: Actor, _: list[int]) -> None:
        if actor.subscribed:
            actor.session.call(c.MessageFlush("d"))

    def complete(self, actor: Actor, _: list[int]) -> None:
        actor.session.complete()

    def commit(self, actor: Actor, _: list[int]) -> None:
        if actor.transacts:
            self.gone |= set(actor.accepted.values())
            self.waiting |= set(actor.published)
            actor.accepted.clear()
            actor.published.clear()
            actor.session.call(c.TxCommit())

    def roll_back(self, actor: Actor, _: list[int]) -> None:
        if actor.transacts:
            actor.held |= actor.accepted
            self._forget(actor)
            actor.session.call(c.TxRollback())

    def detach(self, actor: Actor, _: list[int]) -> None:
        """And what nobody has accepted is there again."""
        self.waiting |= set(actor.held.values()) | set(actor.accepted.values())
        actor.held.clear()
        self._forget(actor)
        self.actors.remove(actor)
        actor.session.detach()
        self.bench.settle()
        modes = (actor.accepts, actor.browses, actor.transacts)
        self.hear()
        self.names += 1
        self.actors.append(Actor(self.bench, f"s{self.names}", modes))

    def _forget(self, actor: Actor) -> None:
        self.gone |= set(actor.published)
        actor.accepted.clear()
        actor.published.clear()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(MODES, min_size=2, max_size=2),
    st.lists(
        st.tuples(st.sampled_from(STEPS + OFTEN), st.integers(0, 1), st.integers(0, 2)),
        min_size=5,
        max_size=40,
    ),
)
def test_each_message_is_in_one_place_and_none_is_lost(
    modes: list[tuple[bool, bool, bool]], steps: list[tuple[str, int, int]]
) -> None:
    model = Model(modes)
    model.hear()
    for what, at, share in steps:
        model.step(what, at, share)
