"""The world of roles: queues that serve one consumer at a time, and consumers that may hang.

A queue has a single active consumer, or an exclusive one. A consumer that has not answered in time loses its role to
one that waits, or its place; what it was late with comes back at its place. The model knows each holder of a role, and
so the consumer that each message has to go to: nothing may go to another, and nothing waits while the holder has room.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from hashlib import sha256
from random import Random
from typing import Final

import attrs

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp10.codec import performatives as p
from leveret.testing.simulation import World
from tests.amqp091.peer import Content
from tests.amqp091.peer import Peer as Peer091
from tests.amqp10.parts import Delivery as Delivery10
from tests.amqp10.peer import Peer as Peer10
from tests.harness.bench import ClientBench

from .clients import EMPTY_FRAME

TIMEOUT_S: Final = 10  # in which a delivery has to be answered; steps of time are whole seconds
PREFETCH: Final = 2
TAKERS_MAX: Final = 4  # of a queue
SINGLE: Final = {
    "x-consumer-timeout": 1000 * TIMEOUT_S,
    "x-single-active-consumer": True,
    "x-delivery-limit": 1000,
}
EXCLUSIVE: Final = "exclusive"
QUEUES: Final[Mapping[str, Mapping[str, object]]] = {
    "classic": {**SINGLE, "x-queue-type": "classic"},
    "quorum": {**SINGLE, "x-queue-type": "quorum"},
    EXCLUSIVE: {"x-consumer-timeout": 1000 * TIMEOUT_S},
}


@attrs.define(eq=False)
class Job:
    """A message, and the time when the consumer got it that has it."""

    body: bytes
    number: int
    was_given: bool = False
    given_at: float = 0.0


class Taker(ABC):
    """A consumer with a connection of its own, and what the model knows of it."""

    def __init__(self, name: str, queue: str, priority: int) -> None:
        self.name, self.queue, self.priority = name, queue, priority
        self.room = PREFETCH  # messages that it may still be given
        self.late_at = 0.0
        self.held: dict[bytes, Job] = {}
        self.late: dict[bytes, object] = {}  # what it was late with and has not answered: the tokens
        self.tokens: dict[bytes, object] = {}  # of what it holds
        self.is_cancelled = False

    @abstractmethod
    def heard(self) -> Iterator[tuple[bytes, bool, object]]:
        """Yield each delivery that has come: the body, whether it is redelivered, and the token."""

    @abstractmethod
    def accept(self, token: object) -> None:
        """Accept a delivery."""

    @abstractmethod
    def requeue(self, token: object) -> None:
        """Give a delivery back."""

    @abstractmethod
    def answer_late(self, token: object) -> None:
        """Answer a delivery that was taken back: its room is there again."""

    @abstractmethod
    def beat(self) -> None:
        """Send a heartbeat."""

    @abstractmethod
    def go(self) -> None:
        """Break off."""


class Taker091(Taker):
    def __init__(self, bench: ClientBench, name: str, queue: str, priority: int) -> None:
        super().__init__(name, queue, priority)
        self._peer = Peer091(bench)
        self._channel = self._peer.open().channel()
        self._channel.prefetch(PREFETCH)
        self._channel.consume(
            queue, name, exclusive=queue == EXCLUSIVE, arguments={"x-priority": priority} if priority else {}
        )

    def heard(self) -> Iterator[tuple[bytes, bool, object]]:
        for what in self._channel.all():
            if isinstance(what, m.BasicCancel):
                self.is_cancelled = True
                continue
            assert isinstance(what, Content), what
            assert isinstance(what.method, m.BasicDeliver), what
            yield what.body, what.method.redelivered, what.method.delivery_tag

    def accept(self, token: object) -> None:
        assert isinstance(token, int)
        self._channel.ack(token)

    def requeue(self, token: object) -> None:
        assert isinstance(token, int)
        self._channel.nack(token)

    def answer_late(self, token: object) -> None:
        self.accept(token)

    def beat(self) -> None:
        """Nothing is agreed on."""

    def go(self) -> None:
        self._peer.drop()


class Taker10(Taker):
    def __init__(self, bench: ClientBench, name: str, queue: str) -> None:
        super().__init__(name, queue, 0)
        self._peer = Peer10(bench)
        self._receiver = self._peer.open("guest").begin().receiver(f"/queues/{queue}", PREFETCH)

    def heard(self) -> Iterator[tuple[bytes, bool, object]]:
        for each in self._receiver.all():
            redelivered = bool(each.header.delivery_count) or not each.header.first_acquirer
            yield each.body, redelivered, each

    def accept(self, token: object) -> None:
        self._answer(token, p.Accepted())

    def requeue(self, token: object) -> None:
        self._answer(token, p.Modified(delivery_failed=True))

    def _answer(self, token: object, state: p.DeliveryState) -> None:
        assert isinstance(token, Delivery10)
        self._receiver.answer(state, token)

    def answer_late(self, token: object) -> None:
        """The broker has settled it; what is left is the credit."""

    def grant(self) -> None:
        self._receiver.want(self._receiver.credit + 1)

    def beat(self) -> None:
        self._peer.send_bytes(EMPTY_FRAME)

    def go(self) -> None:
        self._peer.drop()


class Roles(World):
    """Consumers that come, answer, hang and leave; time that passes; messages for the one that has the role."""

    weights: Mapping[str, int] = {
        "come": 8,
        "publish": 16,
        "accept": 14,
        "requeue": 5,
        "leave": 4,
        "pause": 6,
        "time_out": 8,
    }

    def __init__(self) -> None:
        self.history: list[str] = []
        self._digest = sha256()
        self.bench = ClientBench()
        self.publisher = Peer091(self.bench).open().channel()
        self.takers: dict[str, list[Taker]] = {}  # by queue, in the order of their coming
        self.active: dict[str, Taker | None] = {}
        self.waiting: dict[str, list[Job]] = {}
        self._number = 0
        for name, arguments in QUEUES.items():
            self.bench.host.declare_queue(name, durable=True, arguments=dict(arguments))
            self.takers[name], self.active[name], self.waiting[name] = [], None, []

    @property
    def digest(self) -> str:
        """A digest of all that was delivered."""
        return self._digest.hexdigest()

    def say(self, text: str) -> None:
        self.history.append(f"  {self.bench.broker.now:8.3f} s: {text}")

    def _all(self) -> list[Taker]:
        return [each for takers in self.takers.values() for each in takers]

    # The model.

    def _elect(self, queue: str) -> None:
        """Give the role to one that was never late, or longest ago; of these to the highest priority, or the first."""
        takers = self.takers[queue]
        self.active[queue] = min(takers, key=lambda each: (each.late_at, -each.priority), default=None)

    def _put_back(self, queue: str, jobs: list[Job]) -> None:
        self.waiting[queue] = sorted([*self.waiting[queue], *jobs], key=lambda job: job.number)

    def _serve(self) -> None:
        """What waits goes to the holder of the role, as far as it has room, and to no other."""
        expected: dict[Taker, list[tuple[bytes, bool]]] = {each: [] for each in self._all()}
        for queue, waiting in self.waiting.items():
            active = self.active[queue]
            while active is not None and waiting and active.room:
                job = waiting.pop(0)
                expected[active].append((job.body, job.was_given))
                active.room -= 1
                active.held[job.body] = job
                job.was_given, job.given_at = True, self.bench.broker.now
        for taker, jobs in expected.items():
            heard = []
            for body, redelivered, token in taker.heard():
                self._digest.update(b"%b %b %d " % (taker.name.encode(), body, redelivered))
                heard.append((body, redelivered))
                taker.tokens[body] = token
            assert heard == jobs, f"{taker.name} gets {heard} of '{taker.queue}', not {jobs}"
            if jobs:
                self.say(f"{taker.name} gets {b' '.join(body for body, _ in jobs).decode()}")

    def check(self) -> None:
        self.bench.settle()
        self._serve()
        for name, waiting in self.waiting.items():
            queue = self.bench.queue(name)
            there = [each.message.body for each in queue.waiting()]
            assert there == [job.body for job in waiting], f"'{name}' holds {there}"
            out = sum(len(each.held) for each in self.takers[name])
            assert queue.unsettled == out, f"'{name}' counts {queue.unsettled} that are out, not {out}"
            assert len(queue.consumers) == len(self.takers[name]), f"'{name}' has other consumers"

    def finish(self) -> None:
        """A consumer that answers everything gets all that is there."""
        for taker in self._all():
            self._leave(taker)
            self.check()  # another has the role now, and gets what waits
        for name in QUEUES:
            left = len(self.waiting[name])
            taker = self._come(name, Random(0))
            for _ in range(left):
                self.check()
                self._accept(taker, next(iter(taker.held)))
            self.check()
            assert self.waiting[name] == []

    # Steps.

    def step_publish(self, random: Random) -> None:
        queue = random.choice(list(QUEUES))
        for _ in range(random.randint(1, 3)):
            self._number += 1
            job = Job(b"m%d" % self._number, self._number)
            self.say(f"{job.body.decode()} is published to {queue}")
            self.waiting[queue].append(job)
            self.publisher.publish("", queue, job.body)
            self._serve()

    def step_come(self, random: Random) -> None:
        queue = random.choice(list(QUEUES))
        if len(self.takers[queue]) < (1 if queue == EXCLUSIVE else TAKERS_MAX):
            self._come(queue, random)

    def _come(self, queue: str, random: Random) -> Taker:
        self._number += 1
        name = f"taker {self._number}"
        priority = random.choice((0, 0, 0, 1, 2))
        self.say(f"{name} consumes {queue}")
        if queue != EXCLUSIVE and random.random() < 0.4:
            taker: Taker = Taker10(self.bench, name, queue)
        else:
            taker = Taker091(self.bench, name, queue, priority)
        self.takers[queue].append(taker)
        active = self.active[queue]
        if active is None or active.late_at:
            self._elect(queue)
        return taker

    def step_accept(self, random: Random) -> None:
        takers = [each for each in self._all() if each.held or each.late]
        if not takers:
            return
        taker = random.choice(takers)
        body = random.choice([*taker.held, *taker.late])
        if body in taker.held:
            self._accept(taker, body)
            return
        self.say(f"{taker.name} answers {body.decode()}, too late")
        taker.answer_late(taker.late.pop(body))
        self._has_room(taker)

    def _accept(self, taker: Taker, body: bytes) -> None:
        self.say(f"{taker.name} accepts {body.decode()}")
        del taker.held[body]
        taker.accept(taker.tokens.pop(body))
        self._has_room(taker)

    def _has_room(self, taker: Taker) -> None:
        if isinstance(taker, Taker10):
            taker.grant()
        taker.room += 1

    def step_requeue(self, random: Random) -> None:
        takers = [each for each in self._all() if each.held]
        if not takers:
            return
        taker = random.choice(takers)
        body = random.choice(list(taker.held))
        self.say(f"{taker.name} gives {body.decode()} back")
        self._put_back(taker.queue, [taker.held.pop(body)])
        taker.requeue(taker.tokens.pop(body))
        if isinstance(taker, Taker10):
            self._serve()  # before its credit comes
        self._has_room(taker)

    def step_leave(self, random: Random) -> None:
        if takers := self._all():
            self._leave(random.choice(takers))

    def _leave(self, taker: Taker) -> None:
        self.say(f"{taker.name} breaks off")
        self._forget(taker)
        taker.go()

    def _forget(self, taker: Taker) -> None:
        self._put_back(taker.queue, list(taker.held.values()))
        self.takers[taker.queue].remove(taker)
        if self.active[taker.queue] is taker:
            self._elect(taker.queue)

    def step_pause(self, random: Random) -> None:
        self._pass(random.randint(1, 3))

    def step_time_out(self, random: Random) -> None:
        self._pass(TIMEOUT_S + 1)

    def _pass(self, seconds: int) -> None:
        self.say(f"{seconds} s pass")
        for taker in self._all():
            taker.beat()
        self.bench.advance(seconds)
        now = self.bench.broker.now
        for taker in self._all():
            late = [job for job in taker.held.values() if now >= job.given_at + TIMEOUT_S]
            if not late:
                continue
            self.say(f"{taker.name} is late with {b' '.join(job.body for job in late).decode()}")
            if taker.queue == EXCLUSIVE:
                assert list(taker.heard()) == []
                assert taker.is_cancelled, f"{taker.name} keeps others from the queue for ever"
                self._forget(taker)
                continue
            taker.late_at = now
            for job in late:
                del taker.held[job.body]
                taker.late[job.body] = taker.tokens.pop(job.body)
            self._put_back(taker.queue, late)
        for queue, active in self.active.items():
            if active is not None and active.late_at == now:
                self._elect(queue)
