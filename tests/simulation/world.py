"""The world of a simulation: a broker with a store whose disk is led by hand, clients, and the model of their messages.

The model knows where each message is, and by which commit it got there. A commit is on the disk or it is not: a crash
takes the world back to the last one that is, and everything has to be where it was then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

import attrs

from broker_core.clock import NEVER
from broker_core.durability import recovery
from broker_core.durability.journal import Journal
from broker_core.durability.restore import restore
from broker_core.store.contract import NoSpaceError, StoreError
from broker_core.store.memory import MemoryStore
from broker_core.testing.simulation import World
from protocols.amqp010.broker.encoding import ENCODING as ENCODING010
from protocols.amqp091.broker.encoding import ENCODING as ENCODING091
from protocols.amqp10.broker.encoding import ENCODING as ENCODING10
from protocols.amqp10.broker.registration import restored
from tests.harness.bench import ClientBench

from .clients import PREFETCH, Client, Client010, Client091, Client10, Given

TTL_S: Final = 60.0
DEAD: Final = "dead"
TO_DEAD: Final[Mapping[str, object]] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
QUEUES: Final[Mapping[str, Mapping[str, object]]] = {
    "plain": {},
    "rejecting": TO_DEAD,
    "ageing": {**TO_DEAD, "x-message-ttl": round(TTL_S * 1000)},
    DEAD: {},
}
ENDED: Final = ""  # the place of what was settled
CLIENTS_MAX: Final = 4


class Disk(MemoryStore):
    """A store whose commits reach the disk when the simulation says so."""

    def __init__(self) -> None:
        super().__init__(held=True)
        self.landed = 0  # number of the last commit that is on disk

    def land(self) -> None:
        assert self.flying is not None
        self.landed = self.flying.number
        super().land()

    def again(self) -> Disk:
        """Return the disk as the next start finds it."""
        disk, found = Disk(), self.reopened()
        disk.content, disk.was_clean = found.content, found.was_clean
        return disk


class SimulatedNode(ClientBench):
    """A broker on a disk, with the time that the world has."""

    def __init__(self, disk: Disk, now: float, wall: float) -> None:
        super().__init__()
        self.clock._now, self.clock._wall = now, wall
        self.broker.tick()
        known = (ENCODING010, ENCODING091, ENCODING10)
        encodings = {each.name: lambda each=each: each for each in known}  # type: ignore[misc]
        self.disk = disk
        self.journal = Journal(disk, self.broker, encodings)
        restore(self.broker, self.journal)
        recovery.messages(self.broker, self.journal)
        restored(self.broker)
        self.journal.start(lambda told: told())
        self.settle()


@attrs.frozen
class Place:
    """A queue in which a message is, or none: from which commit on, in which order, and until when."""

    name: str
    commit: int
    order: int  # of arrival
    ends_at: float = NEVER  # when it expires there, in the broker's seconds


@attrs.define(eq=False)
class Record:
    """One message, and all places where it has been."""

    body: bytes
    publisher: Client
    places: list[Place] = attrs.field(factory=list)
    holder: Client | None = None
    given: Given | None = None
    was_given: bool = False
    confirmed: bool = False

    @property
    def place(self) -> str:
        return self.places[-1].name if self.places else ENDED

    @property
    def ends_at(self) -> float:
        return self.places[-1].ends_at


class Messaging(World):
    """Clients of three protocols, queues that keep, dead-letter and expire, and a disk that is slow, full or gone."""

    weights: Mapping[str, int] = {
        "connect": 8,
        "publish": 20,
        "consume": 10,
        "accept": 14,
        "reject": 5,
        "requeue": 5,
        "land": 22,
        "no_space": 3,
        "wait": 6,
        "age": 2,
        "alarm": 2,
        "drop": 4,
        "silence": 2,
        "policy": 2,
        "forbid": 2,
        "crash": 3,
        "io_error": 1,
        "restart": 2,
    }

    def __init__(self) -> None:
        self.node = SimulatedNode(Disk(), 0.0, 1_000_000_000.0)
        self.clients: list[Client] = []
        self.silent: set[Client] = set()
        self.records: dict[bytes, Record] = {}
        self.lines: dict[str, list[Record]] = {name: [] for name in QUEUES}  # in order, those given included
        self._number = 0
        self._alarmed = False
        for name, arguments in QUEUES.items():
            self.node.host.declare_queue(name, durable=True, arguments=dict(arguments))
        self.node.settle()
        self._land_all()

    # The model.

    @property
    def _commit(self) -> int:
        """The number of the commit in which what happens now will be."""
        return self.node.journal.open

    def _move(self, record: Record, place: str, commit: int) -> None:
        if record.place:
            self.lines[record.place].remove(record)
        self._number += 1
        ends_at = self.node.broker.now + TTL_S if place == "ageing" else NEVER
        record.places.append(Place(place, commit, self._number, ends_at))
        record.holder = record.given = None
        if place:
            self.lines[place].append(record)
            record.was_given = False

    def _come_back(self, record: Record, commit: int) -> None:
        """A message that was given waits again, unless its time is over."""
        record.holder = record.given = None
        if record.ends_at <= self.node.broker.now:
            self._move(record, DEAD, commit)

    def _hear_all(self) -> None:
        for client in self.clients:
            if client not in self.silent:
                client.hear()
                self._note(client)

    def _note(self, client: Client) -> None:
        confirmed, client.confirmed = client.confirmed, []
        for body in confirmed:
            record = self.records[body]
            is_safe = record.places[0].commit <= self.node.disk.landed or record.place == ENDED
            assert is_safe, f"{body!r} is confirmed, neither on disk nor done with"
            assert not record.confirmed, f"{body!r} is confirmed twice"
            record.confirmed = True
        assert not client.refused, f"{client.refused} were refused"
        given, client.given = client.given, []
        last: dict[str, int] = {}
        for each in given:
            self._check_given(client, each, last)
        held = [record for record in self.records.values() if record.holder is client]
        for queue in client.consumes:
            count = sum(record.place == queue for record in held)
            assert count <= PREFETCH, f"{count} messages of '{queue}' are out, {PREFETCH} may be"

    def _check_given(self, client: Client, given: Given, last: dict[str, int]) -> None:
        record = self.records.get(given.body)
        assert record is not None, f"{given.body!r} was never published"
        assert record.place == given.queue, (
            f"{given.body!r} of '{record.place}' is given from '{given.queue}'"
        )
        assert record.holder is None, f"{given.body!r} is given twice"
        assert given.redelivered or not record.was_given, f"{given.body!r} is given again without saying so"
        if not given.redelivered:  # what came back belongs anywhere
            at = self.lines[given.queue].index(record)
            assert at > last.get(given.queue, -1), f"{given.body!r} of '{given.queue}' is given out of order"
            last[given.queue] = at
        record.holder, record.given, record.was_given = client, given, True

    # Checks.

    def check(self) -> None:
        self._hear_all()
        for name, line in self.lines.items():
            self._check_queue(name, line)

    def _check_queue(self, name: str, line: list[Record]) -> None:
        queue = self.node.queue(name)
        waiting = [bytes(self._body(each.message)) for each in queue.waiting()]
        expected = [record.body for record in line if record.holder is None]
        out = sum(record.holder is not None for record in line)
        unheard = [body for body in expected if body not in set(waiting)]
        if unheard and any(name in client.consumes for client in self.silent):
            expected = [body for body in expected if body not in set(unheard)]
            out += len(unheard)
        assert waiting == expected, f"'{name}' holds {waiting}, not {expected}"
        assert queue.ready == len(waiting), f"'{name}' counts {queue.ready}, and holds {len(waiting)}"
        assert queue.unsettled == out, f"'{name}' counts {queue.unsettled} that are out, not {out}"

    @staticmethod
    def _body(message: object) -> bytes:
        _, body = message.encoding.convert(message)  # type: ignore[attr-defined]
        return bytes(body)

    def finish(self) -> None:
        """Everything that was published is confirmed in the end, and can be taken once."""
        if self._alarmed:
            self.step_alarm(Random(0))
        self.silent.clear()
        self._settle_disk()
        self.check()
        for record in self.records.values():
            if record.publisher in self.clients:
                assert record.confirmed, f"{record.body!r} is never confirmed"
        for client in list(self.clients):
            self._lose(client)
        self.check()
        client = self._connect(Client091)
        for name in QUEUES:
            client.consume(name)
        while any(self.lines.values()):
            self.check()
            held = [record for record in self.records.values() if record.holder is client]
            assert held, f"{[r.body for line in self.lines.values() for r in line]} are not given"
            for record in held:
                self._answer(record, "accept")
        self._settle_disk()
        self.check()

    # The disk.

    def step_land(self, random: Random) -> None:
        if self.node.disk.flying is not None:
            self.node.disk.land()
            self.node.settle()

    def step_no_space(self, random: Random) -> None:
        if self.node.disk.flying is not None:
            self.node.disk.fail(NoSpaceError("the disk is full"))
            self.node.settle()

    def _land_all(self) -> None:
        while self.node.disk.flying is not None:
            self.step_land(Random(0))

    def _settle_disk(self) -> None:
        """Let the disk get well and write all there is."""
        for _ in range(3):
            self._pass(1.5)
            self._land_all()

    def step_crash(self, random: Random) -> None:
        """The node is killed; the commit in flight has reached the disk, or has not."""
        if self.node.disk.flying is not None and random.random() < 0.5:
            self.node.disk.landed = self.node.disk.flying.number
            self.node.disk.content.take(self.node.disk.flying)
        self._start_again(self.node.disk.landed)

    def step_io_error(self, random: Random) -> None:
        """A write fails for good: the node ends, and starts on what is there."""
        if self.node.disk.flying is not None:
            self.node.disk.fail(StoreError("input/output error"))
            self._start_again(self.node.disk.landed)

    def step_restart(self, random: Random) -> None:
        """The node is stopped properly, and starts again."""
        self._settle_disk()
        self._hear_all()
        for client in list(self.clients):
            self._lose(client)
        self._land_all()
        self.node.journal.close()
        self._start_again(None)

    def _start_again(self, landed: int | None) -> None:
        """Go back to commit `landed`; None: nothing is lost."""
        self.clients.clear()
        self.silent.clear()
        self._alarmed = False
        for record in self.records.values():
            kept = [each for each in record.places if landed is None or each.commit <= landed]
            record.places = [attrs.evolve(place, commit=0) for place in kept[-1:]]
            record.holder = record.given = None
        self.records = {body: record for body, record in self.records.items() if record.places}
        now, wall = self.node.clock.now(), self.node.clock.wall()
        self.node = SimulatedNode(self.node.disk.again(), now, wall)
        self._line_up()
        self._permit(".*")  # what was taken may be on disk, and that it was given back not yet

    def _line_up(self) -> None:
        """Compare what is in the queues after a start with what has to be there."""
        for name, line in self.lines.items():
            there = [record for record in self.records.values() if record.place == name]
            line[:] = sorted(there, key=lambda record: record.places[-1].order)
        self._bury_expired(1)  # what has expired meanwhile does so in the first commit
        for name, line in self.lines.items():
            found = [self._body(each.message) for each in self.node.queue(name).waiting()]
            expected = [record.body for record in line]
            assert found == expected, f"after a start '{name}' holds {found}, not {expected}"

    # Time.

    def step_wait(self, random: Random) -> None:
        self._pass(random.choice((0.1, 1.5, 5.0)))

    def step_age(self, random: Random) -> None:
        for client in list(self.silent):
            self._lose(client)  # missing heartbeats tell
        self._pass(TTL_S / 2)

    def _pass(self, seconds: float) -> None:
        """Let time pass: messages that nobody has, and whose time is over, become dead letters."""
        for client in self.clients:
            if client not in self.silent:
                client.beat()
        commit = self._commit
        self.node.advance(seconds)
        self._bury_expired(commit)

    def _bury_expired(self, commit: int) -> None:
        for record in list(self.lines["ageing"]):
            if record.holder is None and record.ends_at <= self.node.broker.now:
                self._move(record, DEAD, commit)

    # Clients.

    def _connect(self, kind: Callable[..., Client]) -> Client:
        self._number += 1
        client = Client010(self.node, f"session-{self._number}") if kind is Client010 else kind(self.node)
        self.clients.append(client)
        return client

    def _lose(self, client: Client) -> None:
        commit = self._commit
        client.peer.drop()
        self.clients.remove(client)
        self.silent.discard(client)
        for record in list(self.records.values()):
            if record.holder is client:
                self._come_back(record, commit)

    def _any(self, random: Random) -> Client | None:
        able = [each for each in self.clients if each not in self.silent and not each.peer.front.blocked]
        return random.choice(able) if able else None

    def step_connect(self, random: Random) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self._connect(random.choice((Client091, Client10, Client010)))

    def step_publish(self, random: Random) -> None:
        client = self._any(random)
        if client is None or self.node.broker.alarms.reason:
            return  # it would be held back after the first
        for _ in range(random.randint(1, 4)):
            self._number += 1
            record = Record(b"m%d" % self._number, client)
            queue = random.choice(("plain", "rejecting", "ageing"))
            self.records[record.body] = record
            commit = self._commit
            client.publish(queue, record.body)
            self._move(record, queue, commit)

    def step_consume(self, random: Random) -> None:
        client = self._any(random)
        queue = random.choice(list(QUEUES))
        if client is not None and queue not in client.consumes:
            client.consume(queue)

    def step_accept(self, random: Random) -> None:
        for _ in range(random.randint(1, 3)):
            self._answer_one(random, "accept")

    def step_reject(self, random: Random) -> None:
        self._answer_one(random, "reject")

    def step_requeue(self, random: Random) -> None:
        self._answer_one(random, "requeue")

    def _answer_one(self, random: Random, outcome: str) -> None:
        self._hear_all()
        held = [
            record
            for record in self.records.values()
            if record.holder is not None
            and record.holder not in self.silent
            and not record.holder.peer.front.blocked
        ]
        if held:
            self._answer(random.choice(held), outcome)

    def _answer(self, record: Record, outcome: str) -> None:
        client, given, commit = record.holder, record.given, self._commit
        assert client is not None
        assert given is not None
        place = record.place
        if outcome == "requeue":
            self._come_back(record, commit)
        else:
            is_buried = outcome == "reject" and place in ("rejecting", "ageing")
            self._move(record, DEAD if is_buried else ENDED, commit)
        client.answer(given, outcome)  # type: ignore[arg-type]

    def step_drop(self, random: Random) -> None:
        """A connection breaks off."""
        if self.clients:
            self._lose(random.choice(self.clients))

    def step_silence(self, random: Random) -> None:
        """A client is there and hears nothing any more: its connection is half open."""
        client = self._any(random)
        if client is not None and "ageing" not in client.consumes:
            self.silent.add(client)

    # What operators do.

    def step_alarm(self, random: Random) -> None:
        self._alarmed = not self._alarmed
        if self._alarmed:
            self.node.broker.alarms.set("low on memory")
        else:
            self.node.broker.alarms.clear("low on memory")
            for client in self.clients:
                client.peer.read_on()

    def step_policy(self, random: Random) -> None:
        """A policy that changes nothing for these messages is set."""
        self.node.policy("plain|dead", {"max-length": random.randint(10_000, 20_000)})

    def step_forbid(self, random: Random) -> None:
        """The permission to write is taken from a user, whose publish is refused, and given back."""
        if self.node.broker.alarms.reason or len(self.clients) >= CLIENTS_MAX:
            return
        client = self._connect(Client091)
        self._permit("nothing")
        client.publish("plain", b"forbidden")
        self._permit(".*")
        self._lose(client)

    def _permit(self, write: str) -> None:
        self.node.broker.access.set_permissions("guest", "/", ".*", write, ".*")
        self.node.settle()
