"""The world of a simulation: a node with a store whose disk is led by hand, clients, and the model of their messages.

The model knows where each message is, and by which commit it got there. A commit is on the disk or it is not: a crash
takes the world back to the last one that is, and everything has to be where it was then.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from hashlib import sha256
from random import Random
from typing import Final, TypeVar

import attrs

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.durable import compaction, merge_candidates
from leveret.durable.store.contract import NoSpaceError, StoreError
from leveret.features.leases.lease import leases_of
from leveret.message import Message
from leveret.protocols.amqp091.codec import methods as m
from leveret.queues import absent
from leveret.queues.stream import StreamQueue
from leveret.queues.work_queue import WorkQueue
from leveret.testing.simulation import World
from leveret.values import Table
from tests.amqp091.peer import Content
from tests.amqp091.peer import Peer as Peer091

from .clients import PREFETCH, Client, Client010, Client091, Client10, Given
from .held import Disk, MemoryDisk, Reached
from .node import Connection, SimulatedNode
from .plugin import MOODS, Moody
from .replacing import replaced

TTL_S: Final = 60.0
BESIDE_S: Final = 0.0004  # no message expires at the very time of a step: on disk are whole milliseconds
ROUNDED_S: Final = 0.01  # times, to whole ms
# Never at the end of a step of time: a start rounds times that are on disk up to whole ms.
WAIT_S: Final = 2.05
DEAD: Final = "dead"
TO_DEAD: Final[Mapping[str, object]] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
POLICY_TO_DEAD: Final[Table] = {"dead-letter-exchange": "", "dead-letter-routing-key": DEAD}
RETRY_MS: Final = round(WAIT_S * 1000)
NARROW_MAX: Final = 2  # messages that wait in the queue for dead letters that has little room
NARROW: Final = "narrow"
PASSING: Final = "passing"  # a queue that comes and goes
GOVERNED: Final = "governed"  # a queue whose policy changes
QUEUES: Final[Mapping[str, Mapping[str, object]]] = {
    "plain": {},
    "rejecting": TO_DEAD,
    "ageing": {**TO_DEAD, "x-message-ttl": round(TTL_S * 1000)},
    "careful": {**TO_DEAD, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
    "delaying": {"x-delayed-message": True},
    "retrying": {"x-delayed-retry-min": RETRY_MS, "x-delayed-retry-max": RETRY_MS},
    "brimming": {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": NARROW,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    },
    NARROW: {"x-max-length": NARROW_MAX, "x-overflow": "reject-publish"},
    GOVERNED: {},
    DEAD: {},
}
HELD: Final = "the dead letters of brimming"  # where they wait for room
BURIED: Final = {
    "rejecting": DEAD,
    "ageing": DEAD,
    "careful": DEAD,
    "brimming": HELD,
}  # where dead letters go
TAKING: Final = (
    "plain",
    "rejecting",
    "ageing",
    "careful",
    "delaying",
    "retrying",
    "brimming",
)  # queues that are published to, in transactions too
FETCHED: Final = ("plain", "rejecting", "careful", "delaying")  # queues whose messages transactions settle
BOUNDED: Final = frozenset((NARROW, GOVERNED, PASSING))  # where what happens depends on what is out just then
# where what comes back unheard would depend on when
TIMED: Final = frozenset(("ageing", "retrying", *BOUNDED))
STREAM: Final = "log"
MOODY: Final = "moody"
LEASE: Final = "the lease of plain"
READER: Final = "reader"
ENDED: Final = ""  # the place of what was settled
CLIENTS_MAX: Final = 4
MEANWHILE: Final = (
    "accept",
    "publish",
    "land",
    "land",
    "consume",
    "reject",
)  # steps while reads are on their way

T = TypeVar("T")


@attrs.frozen
class Place:
    """A queue in which a message is, or none: from which commit on, in which order, and until when."""

    name: str
    commit: int
    order: int  # of arrival
    ends_at: float = NEVER  # when it expires there, in the broker's seconds
    due: float = -NEVER  # when it is ready, likewise
    offset: float = 0.0  # of the wall clock, when these times were written
    expires: float = NEVER  # when it expires there, by the wall clock of its arrival
    arrived: float = 0.0  # by that clock, where a start has found it
    # A client had it when its queue was deleted: a start finds it until the queue's record is removed.
    is_last: bool = (
        False  # on disk once the commit is whole, as the removal of a queue is, and another in its place
    )


@attrs.frozen
class Rule:
    """The policy of `GOVERNED`: the most messages that wait, and whether those that are dropped become dead letters."""

    most: int = 1000
    buries: bool = False

    @property
    def definition(self) -> Table:
        return {"max-length": self.most, **(POLICY_TO_DEAD if self.buries else {})}


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
    avoided: set[Client] = attrs.field(factory=set)  # clients to whose links it must not come again

    @property
    def place(self) -> str:
        return self.places[-1].name if self.places else ENDED

    @property
    def is_fetched(self) -> bool:
        """Return whether its holder has fetched it, to answer it in a transaction."""
        return self.given is not None and self.given.is_fetched

    @property
    def ends_at(self) -> float:
        return self.places[-1].ends_at

    @property
    def due(self) -> float:
        return self.places[-1].due


class Messaging(World):
    """Clients of three protocols, queues that keep, bury and delay messages, and a disk that is slow, full or gone."""

    weights: Mapping[str, int] = {
        "connect": 8,
        "publish": 20,
        "consume": 10,
        "accept": 14,
        "reject": 5,
        "requeue": 5,
        "transact": 16,
        "land": 22,
        "look_after": 1,
        "no_space": 3,
        "tick": 6,
        "wait": 6,
        "age": 2,
        "jump": 1,
        "alarm": 2,
        "page_out": 3,
        "rewrite": 3,
        "drop": 4,
        "silence": 2,
        "delay": 3,
        "arrive": 4,
        "policy": 1,
        "govern": 4,
        "come_or_go": 5,
        "fill": 6,
        "brim": 3,
        "relieve": 3,
        "reload": 1,
        "forbid": 2,
        "misbehave": 3,
        "read_stream": 2,
        "reserve": 2,
        "settle_lease": 1,
        "release": 1,
        "crash": 3,
        "io_error": 1,
        "restart": 2,
    }

    def __init__(self) -> None:
        self.history: list[str] = []
        self._digest = sha256()
        self.node = SimulatedNode(self._disk(), 0.0, 1_000_000_000.0)
        self.clients: list[Client] = []
        self.silent: set[Client] = set()  # hear nothing: their connections are half open
        self.late: set[Client] = set()  # hear nothing yet
        self.records: dict[bytes, Record] = {}
        self.lines: dict[str, list[Record]] = {}  # in order, those given included
        for name in (*QUEUES, STREAM, LEASE, HELD, PASSING):
            self.lines[name] = []
        self.rules = [(0, Rule())]  # of `GOVERNED`, each with the commit of its beginning
        self.passing = [(0, False)]  # whether `PASSING` is there, likewise
        # By queue, the answers that wait for their messages to be read: each with the number of the place that follows.
        self.answered_late: dict[str, list[tuple[Record, int]]] = {}
        self._number = 0
        self._alarmed = False
        self._reloaded = False
        host = self.node.host
        for name, arguments in QUEUES.items():
            host.declare_queue(name, durable=True, arguments=dict(arguments))
        host.declare_queue(STREAM, durable=True, arguments={"x-queue-type": "stream"})
        moody = host.declare_exchange(
            MOODY, Moody.name, durable=True, arguments={"alternate-exchange": "amq.fanout"}
        )
        host.bind(moody, host.queues["plain"], "")
        host.bind(host.exchanges["amq.fanout"], host.queues["plain"], "")
        self.node.settle()
        self._land_all()

    def _disk(self) -> Disk:
        return MemoryDisk()

    def close(self) -> None:
        """Leave nothing behind."""

    def say(self, text: str) -> None:
        self.history.append(f"  {self.node.broker.now:8.3f} s  commit {self.node.journal.open}: {text}")

    @property
    def digest(self) -> str:
        """A digest of all bytes that clients got."""
        whole = self._digest.copy()
        for each in self.node.connections:
            whole.update(each.digest.digest())
        return whole.hexdigest()

    # The model.

    @property
    def _commit(self) -> int:
        """The number of the commit in which what happens now will be."""
        return self.node.journal.open

    @property
    def _queues(self) -> tuple[str, ...]:
        """The work queues that are there."""
        return (*QUEUES, PASSING) if self.passing[-1][1] else tuple(QUEUES)

    @property
    def _offset(self) -> float:
        return self.node.clock.wall() - self.node.clock.now()

    def _move(
        self, record: Record, place: str, commit: int, wait_s: float = 0.0, is_last: bool = False
    ) -> None:
        if record.place:
            self.lines[record.place].remove(record)
        self._number += 1
        now = self.node.broker.now
        ends_at = now + TTL_S if place == "ageing" else NEVER
        due = now + wait_s if wait_s else -NEVER
        offset = self._offset
        expires = ends_at + offset
        is_last = is_last or (place == PASSING and self._is_renewed(commit))
        record.places.append(
            Place(place, commit, self._number, ends_at, due, offset, expires, is_last=is_last)
        )
        record.holder = record.given = None
        record.avoided.clear()
        if place:
            self.lines[place].append(record)
            record.was_given = False

    def _come_back(self, record: Record, commit: int) -> None:
        """A message that was given waits again, unless its time is over."""
        record.holder = record.given = None
        now = self.node.broker.now
        if record.ends_at <= now:
            self._move(record, DEAD, commit)
        elif record.place == "retrying":
            place = record.places[-1]
            record.places.append(attrs.evolve(place, commit=commit, due=now + WAIT_S, offset=self._offset))

    def _spill(self, commit: int) -> None:
        """Have dead letters go where there is room now, and the oldest messages of a queue that is too long dropped.

        What has been given by now is out of the way. `commit` is that of the step that has made room, or the queue
        longer.
        """
        if not (self.lines[HELD] or self.lines[GOVERNED]):
            return
        out = {(each.queue, each.body) for client in self._hearing() for each in client.given}
        while self.lines[HELD] and len(self._waiting(NARROW, out)) < NARROW_MAX:
            self._move(self.lines[HELD][0], NARROW, commit)
        rule = self.rules[-1][1]
        for oldest in self._waiting(GOVERNED, out)[: -rule.most]:
            self._move(oldest, DEAD if rule.buries else ENDED, commit)
        self._hear_all()

    def _waiting(self, name: str, out: Container[tuple[str, bytes]]) -> list[Record]:
        line = self.lines[name]
        return [record for record in line if record.holder is None and (name, record.body) not in out]

    def _held_by(self, client: Client) -> list[Record]:
        return [record for line in self.lines.values() for record in line if record.holder is client]

    def _consumed_by(self, client: Client) -> list[Record]:
        """The messages that a client has as a consumer."""
        return [record for record in self._held_by(client) if not record.is_fetched]

    def _hear_all(self) -> None:
        for client in self._hearing():
            self._note(client)

    def _hearing(self) -> list[Client]:
        """The clients that hear what is sent to them, which have heard it now."""
        hearing = [each for each in self.clients if each not in self.silent and each not in self.late]
        for client in hearing:
            client.hear()
        return hearing

    def _note(self, client: Client) -> None:
        confirmed, client.confirmed = client.confirmed, []
        safe_to = max(self.node.disk.landed, client.promised())
        for body in confirmed:
            record = self.records[body]
            is_safe = record.places[0].commit <= safe_to or record.place == ENDED
            assert is_safe, f"{body!r} is confirmed, neither on disk nor done with"
            assert not record.confirmed, f"{body!r} is confirmed twice"
            record.confirmed = True
        assert not client.refused, f"{client.refused} were refused"
        given, client.given = client.given, []
        for is_fetched in (False, True):  # each by a connection of its own
            last: dict[str, int] = {}
            for each in given:
                if each.is_fetched is is_fetched:
                    self._check_given(client, each, last)
        if given:
            held = self._consumed_by(client)
            for queue in client.consumes:
                count = sum(record.place == queue for record in held)
                assert count <= PREFETCH, f"{count} messages of '{queue}' are out, {PREFETCH} may be"

    def _check_given(self, client: Client, given: Given, last: dict[str, int]) -> None:
        record = self.records.get(given.body)
        assert record is not None, f"{given.body!r} was never published"
        assert record.place == given.queue, (
            f"{given.body!r} of '{record.place}' is given from '{given.queue}'"
        )
        assert record.due <= self.node.broker.now, f"{given.body!r} is given before its time"
        assert record.holder is None, f"{given.body!r} is given twice"
        assert given.is_fetched or client not in record.avoided, (
            f"{given.body!r} is given to a link again at which it is undeliverable"
        )
        assert given.redelivered or not record.was_given, f"{given.body!r} is given again without saying so"
        if not given.redelivered and given.queue != "delaying":  # what came back, or waited, belongs anywhere
            at = self.lines[given.queue].index(record)
            assert at > last.get(given.queue, -1), f"{given.body!r} of '{given.queue}' is given out of order"
            last[given.queue] = at
        record.holder, record.given, record.was_given = client, given, True
        self.say(f"{client.name} gets {given.body.decode()} of {given.queue}")

    # Checks.

    def check(self) -> None:
        assert not self.node.failed, f"the store has failed: {self.node.failed[0]}"
        self._hear_all()
        for name in self._queues:
            self._check_queue(name, self.lines[name])
        self._check_stream()
        self._check_lease()

    def _check_queue(self, name: str, line: list[Record]) -> None:
        queue = self.node.queue(name)
        now = self.node.broker.now
        waiting = [self._body(each.message) for each in queue.waiting()]
        expected = [record.body for record in line if record.holder is None and record.due <= now]
        out = sum(record.holder is not None for record in line)
        unheard = {name for client in (*self.silent, *self.late) for name in client.consumes | client.fetches}
        if waiting != expected and name in unheard:
            there = set(waiting)
            heard = [body for body in expected if body in there]
            out += len(expected) - len(heard)
            expected = heard
        if name == "plain":
            out += len(self.lines[LEASE])
        assert waiting == expected, f"'{name}' holds {waiting}, not {expected}"
        if name == "ageing":
            for each in queue.waiting():
                body = self._body(each.message)
                late_s = each.expires_at - self.records[body].ends_at
                assert abs(late_s) < ROUNDED_S, f"{body!r} would expire {late_s:.3f} s late"
        assert queue.ready == len(waiting), f"'{name}' counts {queue.ready}, and holds {len(waiting)}"
        assert queue.unsettled == out, f"'{name}' counts {queue.unsettled} that are out, not {out}"
        assert out or not queue.unsettled_bytes, f"'{name}' counts {queue.unsettled_bytes} bytes of none"
        assert isinstance(queue, WorkQueue)
        later = sum(record.due > now for record in line if record.holder is None)
        assert queue.delayed == later, f"'{name}' counts {queue.delayed} that wait, not {later}"
        held = 0 if queue.dead_letters is None else queue.dead_letters.count
        expected_held = len(self.lines[HELD]) if name == "brimming" else 0
        assert held == expected_held, f"'{name}' holds {held} dead letters, not {expected_held}"

    def _check_stream(self) -> None:
        stream, line = self.node.queue(STREAM), self.lines[STREAM]
        assert isinstance(stream, StreamQueue)
        landed = sum(record.places[0].commit <= self.node.disk.landed for record in line)
        log = stream.log
        assert log.next == len(line), f"the stream counts {log.next}, not {len(line)}"
        assert log.committed == landed, f"the stream counts {log.committed} as written, not {landed}"

    def _check_lease(self) -> None:
        lease, line = leases_of(self.node.host).get(("plain", READER)), self.lines[LEASE]
        there = 0 if lease is None else lease.messages
        assert there == len(line), f"the lease counts {there}, not {len(line)}"

    @staticmethod
    def _body(message: Message) -> bytes:
        _, body = message.encoding.convert(message)
        return bytes(body)

    def finish(self) -> None:
        """Everything that was published is confirmed in the end, and can be taken once."""
        if self._alarmed:
            self.step_alarm(Random(0))
        self.late.clear()
        for client in list(self.silent):
            self._lose(client)
        self._settle_disk()
        self.check()
        for client in self.clients:
            if client.is_in_transaction:
                self._end_transaction(client, True)
        self._settle_disk()
        self.check()
        for record in self.records.values():
            if record.publisher in self.clients:
                assert record.confirmed, f"{record.body!r} is never confirmed"
        for client in list(self.clients):
            self._lose(client)
        self.step_release(Random(0))
        due = max([record.due for line in self.lines.values() for record in line], default=0.0)
        self._pass(max(0.0, due - self.node.broker.now) + 1.0)
        self._settle_disk()
        self.check()
        self._read_stream()
        client = self._connect(Client091, Random(0))
        for name in self._queues:
            client.consume(name)
        commit = self._commit
        while any(self.lines[name] for name in (*self._queues, HELD)):
            self._spill(commit)
            self.check()
            held = self._held_by(client)
            left = [record.body for name in (*self._queues, HELD) for record in self.lines[name]]
            assert held, f"{left} are not given"
            for record in held:
                self._answer(record, "accept")
        self._settle_disk()
        self.check()

    # The disk.

    def step_land(self, random: Random) -> None:
        if self.node.disk.flying is not None:
            number = self.node.disk.flying.number
            self.node.disk.land()
            self.node.settle()
            self.say(f"commit {number} is on disk")

    def step_look_after(self, random: Random) -> None:
        self.node.disk.look_after()

    def step_no_space(self, random: Random) -> None:
        if self.node.disk.flying is not None:
            self.say("the disk is full")
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
        self.say("the node is killed")
        self._start_again(self.node.disk.cut(random))

    def step_io_error(self, random: Random) -> None:
        """A write fails for good: the node ends, and starts on what is there."""
        if self.node.disk.flying is not None:
            self.say("input/output error")
            self.node.disk.fail(StoreError("input/output error"))
            self._start_again(self.node.disk.cut(random))

    def step_restart(self, random: Random) -> None:
        """The node is stopped properly, and starts again."""
        self.say("the node is stopped")
        self._settle_disk()
        self._hear_all()
        for client in list(self.clients):
            self._lose(client)
        self._land_all()
        self.node.persistence.close()
        self._start_again((Reached.whole(None),))

    def _start_again(self, landed: tuple[Reached, ...]) -> None:
        """Go back to one of these, whichever is the last on disk."""
        self._digest.update(self.digest.encode())
        self.clients.clear()
        self.silent.clear()
        self.late.clear()
        self._alarmed = self._reloaded = False
        now, wall = self.node.clock.now(), self.node.clock.wall()
        self._closed_at, self._started_at = self.node.closed_at, wall
        self.node = SimulatedNode(self.node.disk.again(), now, wall)
        before = {record: record.places for record in self.records.values()}
        rules, passing = self.rules, self.passing
        differences = []
        for each in landed:
            self.rules, self.passing = _last(rules, each.objects), _last_there(passing, each)
            self._go_back(before, each)
            differences.append(self._difference())
            if not differences[-1]:
                break
        else:
            raise AssertionError(differences[0])
        self.records = {body: record for body, record in self.records.items() if record.places}
        self._permit(".*")  # what was taken may be on disk, and that it was given back not yet
        self.say("the node has started")

    def _go_back(self, before: Mapping[Record, list[Place]], reached: Reached) -> None:
        """Have every message where it was in a commit."""
        for record, places in before.items():
            kept = [each for each in places if _is_reached(each, reached)]
            record.places = [self._found(place) for place in kept[-1:]]
            record.holder = record.given = None
        for name, line in self.lines.items():
            there = [record for record in before if record.place == name]
            line[:] = sorted(there, key=lambda record: record.places[-1].order)
        self._bury_expired(1)  # what has expired meanwhile does so in the first commit,
        self._spill(1)  # as does what there is room for now

    def _found(self, place: Place) -> Place:
        """Return a place as a start finds it: by the clock on the wall, or with the time that it had at its arrival, if
        the clock was set back since."""
        arrived = self._closed_at.get(place.commit, self._started_at) if place.commit else place.arrived
        ahead = max(0.0, arrived - self._started_at)
        ends_at = place.expires - self._offset - ahead
        due = place.due + place.offset - self._offset
        return attrs.evolve(place, commit=0, ends_at=ends_at, due=due, offset=self._offset, arrived=arrived)

    def _difference(self) -> str:
        """Return how what is in the queues after a start differs from what has to be there."""
        now = self.node.broker.now
        if (PASSING in self.node.host.queues) != self.passing[-1][1]:
            return f"after a start '{PASSING}' is {'not ' * self.passing[-1][1]}there"
        limits = self.node.queue(GOVERNED).limits
        rule = Rule(limits.max_length or Rule().most, limits.dead_letter_exchange is not None)
        if rule != self.rules[-1][1]:
            return f"after a start '{GOVERNED}' obeys {rule}, not {self.rules[-1][1]}"
        for name in self._queues:
            found = [self._body(each.message) for each in self.node.queue(name).waiting()]
            if name == DEAD:
                self._line_up_dead(found)
            expected = [record.body for record in self.lines[name] if record.due <= now]
            if found != expected:
                return f"after a start '{name}' holds {found}, not {expected}"
            queue, later = self.node.queue(name), len(self.lines[name]) - len(expected)
            assert isinstance(queue, WorkQueue)
            if queue.delayed != later:
                return f"after a start {queue.delayed} wait in '{name}', not {later}"
        try:
            self._check_stream()
            self._check_lease()
        except AssertionError as error:
            return f"after a start {error}"
        return ""

    def _line_up_dead(self, found: list[bytes]) -> None:
        """Have the dead letters that a start has made in the order in which they are found, if each queue's own are.

        Whether what has expired in one queue goes before what is too much in another, or after that, is not promised.
        """
        line = self.lines[DEAD]
        old = [record for record in line if len(record.places) == 1]
        new = {record.body: record for record in line if len(record.places) > 1}
        came = [new[body] for body in found if body in new]
        if len(came) != len(new) or found[: len(old)] != [record.body for record in old]:
            return
        for queue in {record.places[-2].name for record in came}:
            own = [record for record in line if record in came and record.places[-2].name == queue]
            if own != [record for record in came if record.places[-2].name == queue]:
                return
        orders = sorted(record.places[-1].order for record in came)
        for record, order in zip(came, orders, strict=True):
            record.places[-1] = attrs.evolve(record.places[-1], order=order)
        line[:] = [*old, *came]

    # Time.

    def step_tick(self, random: Random) -> None:
        """As much time as a commit is put off passes."""
        self._pass(0.003)

    def step_wait(self, random: Random) -> None:
        self._pass(random.choice((0.1, 1.5, 5.0)))

    def step_age(self, random: Random) -> None:
        for client in list(self.silent):
            self._lose(client)  # missing heartbeats tell
        self._pass(TTL_S / 2 + BESIDE_S)

    def step_jump(self, random: Random) -> None:
        """The clock on the wall jumps. What was written before has its times by the old one.

        What was ready once may wait again after a start, if the clock was set back.
        """
        self._settle_disk()
        seconds = random.choice((-3600.0, -7.0, 7.0, 3600.0))
        waits = any(record.due > -NEVER for line in self.lines.values() for record in line)
        held = any(queue == "ageing" for each in self.clients for queue, _ in each.held_back)
        if (waits or held) and seconds < 0:
            return
        self.say(f"the clock jumps by {seconds:.0f} s")
        self.node.clock.jump(seconds)

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

    def step_page_out(self, random: Random, name: str = "") -> None:
        """Memory is short: messages that are on disk leave it, those that wait and those that clients have."""
        queue = self.node.queue(name or random.choice(list(QUEUES)))
        assert isinstance(queue, WorkQueue)
        queue.page_out(random.choice((0, 0, 1, 3)))
        self._put_away()
        self.node.settle()

    def _put_away(self) -> None:
        """What clients have and did not answer is on disk only."""
        for each in self.node.broker.virtual_hosts["/"].queues.values():
            for consumer in each.consumers if isinstance(each, WorkQueue) else ():
                held = [found for found in consumer.unanswered().values() if isinstance(found, Delivery)]
                absent.put_away(each, [found for found in held if found.queue is each])

    def step_rewrite(self, random: Random) -> None:
        """Chunks of which little is left are rewritten, as if there were many of them; looked for between commits.

        Where the thread that reads is slow, other things happen between the moments of what it reads and the results.
        """
        disk = self.node.disk
        if disk.flying is not None:
            return
        if is_slow := random.random() < 0.5:
            if "page_out" in self.weights:
                for name in QUEUES:
                    self.step_page_out(Random(0), name)
            self._land_all()
            disk.late = []
        with replaced(compaction, "YOUNG_MS", 0), replaced(merge_candidates, "SMALL_MANY", 2):
            self.node.rewrite()
        if is_slow:
            self._read_late(random)

    def _read_late(self, random: Random) -> None:
        self.say("the thread that reads is slow")
        for _ in range(random.randint(2, 8)):
            getattr(self, f"step_{random.choice(MEANWHILE)}")(random)
        late, self.node.disk.late = self.node.disk.late or [], None
        self.say(f"{len(late)} reads are done")
        for each in late:
            commit = self._commit
            before = {name: self._waiting_answers(name) for name in self.answered_late}
            each()
            self.node.settle()
            for name, count in before.items():
                self._answered(name, count - self._waiting_answers(name), commit)
        self.answered_late.clear()

    def _waiting_answers(self, name: str) -> int:
        """Return how many answers of clients wait in a queue for their messages to be read."""
        queue = self.node.host.queues.get(name)
        return queue.absent.answers if isinstance(queue, WorkQueue) and queue.absent is not None else 0

    def _answered(self, name: str, count: int, commit: int) -> None:
        """The first answers that waited in a queue have been worked off in this commit, and not when they came."""
        answers = self.answered_late[name]
        for record, number in answers[:count]:
            if number < len(record.places):  # else it has gone nowhere
                record.places[number] = attrs.evolve(record.places[number], commit=commit)
        del answers[:count]

    # Clients.

    def _connect(self, kind: Callable[..., Client], random: Random) -> Client:
        self._number += 1
        name = f"{kind.__name__[6:]}-{self._number}"
        client = kind(self.node, name, random)
        self.clients.append(client)
        self.say(f"{name} connects")
        return client

    def _lose(self, client: Client) -> None:
        self.say(f"{client.name} goes")
        commit = self._commit
        client.go()
        self.clients.remove(client)
        self.silent.discard(client)
        self.late.discard(client)
        for record in self._held_by(client):
            self._come_back(record, commit)
        self._spill(commit)

    def _able(self) -> Iterator[Client]:
        for each in self.clients:
            if each not in self.silent and each not in self.late and not each.waits:
                yield each

    def _any(self, random: Random) -> Client | None:
        able = list(self._able())
        return random.choice(able) if able else None

    def step_connect(self, random: Random) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self._connect(random.choice((Client091, Client10, Client010)), random)

    def step_publish(self, random: Random) -> None:
        client = self._any(random)
        if client is None or self.node.broker.alarms.reason:
            return  # it would be held back after the first
        for _ in range(random.randint(1, 4)):
            queue = self._chosen(random.choice((*TAKING, STREAM)))
            self._publish(client, queue, WAIT_S if queue == "delaying" and random.random() < 0.6 else 0.0)

    def _chosen(self, queue: str) -> str:
        """Return another queue instead of one that has messages which would outlast a new one after a start.

        The clock on the wall has been set back since they came. The new one would expire when it comes to the head.
        What is on disk counts: the clock may be set forward before the next start.
        """
        now = self.node.broker.now
        older = [record.places[-1] for record in self.lines["ageing"]]
        outlast = any(each.expires - self._offset > now + TTL_S for each in older)
        return "plain" if queue == "ageing" and outlast else queue

    def _publish(self, client: Client, queue: str, wait_s: float = 0.0) -> None:
        record, commit = self._new(client), self._commit
        self.say(f"{client.name} publishes {record.body.decode()} to {queue}")
        client.publish(queue, record.body, round(wait_s * 1000))
        self._move(record, queue, commit, wait_s)
        self._spill(commit)

    def _new(self, client: Client) -> Record:
        self._number += 1
        record = Record(b"m%d" % self._number, client)
        self.records[record.body] = record
        return record

    def step_transact(self, random: Random) -> None:
        """A transaction begins, goes on, or ends."""
        client = self._any(random)
        if client is None or self.node.broker.alarms.reason:
            return
        if not client.is_in_transaction:
            client.begin()
            client.is_in_transaction, client.held_back, client.answers = True, [], {}
        elif random.random() < 0.5:
            self._answer_held(client, random)
            self._end_transaction(client, random.random() < 0.7)
            return
        if full := [name for name in FETCHED if self._waiting(name, ())]:
            self._fetch(client, random.choice(full))
            self._answer_held(client, random)
        for _ in range(random.randint(0, 2)):
            queue = self._chosen(random.choice((*TAKING, STREAM)))
            if queue == "plain" and self.passing[-1][1] and isinstance(client, Client091):
                queue = PASSING  # which may be gone, or another, when it is committed
            self._hold_back(client, queue)

    def _hold_back(self, client: Client, queue: str) -> None:
        self._number += 1
        body = b"t%d" % self._number
        self.say(f"{client.name} publishes {body.decode()} to {queue} in a transaction")
        client.publish_held(queue, body)
        client.held_back.append((queue, body))

    def _fetch(self, client: Client, queue: str) -> None:
        """Have a client ask for messages, of which the first may come later, as it comes over a new link."""
        for _ in range(2):
            self.say(f"{client.name} fetches a message of {queue}")
            client.fetch(queue)
        self._hear_all()

    def _answer_held(self, client: Client, random: Random) -> None:
        """Have a client answer some of what it has fetched, in its transaction."""
        for record in self._held_by(client):
            if not record.is_fetched or record.body in client.answers or random.random() < 0.3:
                continue
            assert record.given is not None
            only_accepts = isinstance(client, Client010)
            outcome = "accept" if only_accepts else random.choice(("accept", "accept", "reject", "requeue"))
            self.say(f"{client.name} answers {record.body.decode()} in a transaction: {outcome}")
            client.answers[record.body] = outcome  # type: ignore[assignment]
            client.answer_held(record.given, outcome)  # type: ignore[arg-type]

    def _end_transaction(self, client: Client, is_committed: bool) -> None:
        self.say(f"{client.name} {'commits' if is_committed else 'rolls back'}")
        commit = self._commit
        for queue, body in client.held_back if is_committed else ():
            record = self.records[body] = Record(body, client)
            self._move(record, queue if queue in self._queues or queue == STREAM else ENDED, commit)
        for body, outcome in sorted(client.answers.items(), key=self._goes_last):
            record = self.records[body]
            assert record.given is not None
            if is_committed:
                self._settle(record, outcome, commit)
            elif client.is_given_up(record.given):
                self._come_back(record, commit)
        client.end(is_committed)
        client.is_in_transaction, client.held_back, client.answers = False, [], {}
        self._spill(commit)

    def _goes_last(self, answer: tuple[bytes, str]) -> bool:
        """Return whether an answer makes a dead letter that goes at least once: it goes when all else has gone."""
        body, outcome = answer
        return outcome == "reject" and self.records[body].place == "careful"

    def step_consume(self, random: Random) -> None:
        client = self._any(random)
        queue = random.choice(self._queues)
        if client is not None and (queue not in BOUNDED or isinstance(client, Client091)):
            # elsewhere an answer and the credit for the next message are two steps
            self._consume(client, queue)

    def _consume(self, client: Client, queue: str) -> None:
        if queue not in client.consumes:
            commit = self._commit
            self.say(f"{client.name} consumes {queue}")
            client.consume(queue)
            self._spill(commit)

    def step_accept(self, random: Random) -> None:
        for _ in range(random.randint(1, 3)):
            self._answer_one(random, "accept")

    def step_reject(self, random: Random) -> None:
        self._answer_one(random, "reject")

    def step_requeue(self, random: Random) -> None:
        self._answer_one(random, "requeue")

    def _answer_one(self, random: Random, outcome: str) -> None:
        self._hear_all()
        able = set(self._able())
        held = [
            record
            for line in self.lines.values()
            for record in line
            if record.holder in able and not record.is_fetched
        ]
        if held:
            self._answer(random.choice(held), outcome)

    def _answer(self, record: Record, outcome: str) -> None:
        client, given, commit, queue = record.holder, record.given, self._commit, record.place
        assert client is not None
        assert given is not None
        self.say(f"{client.name} answers {record.body.decode()} of {queue}: {outcome}")
        waiting, places = self._waiting_answers(queue), len(record.places)
        self._settle(record, outcome, commit)
        if outcome == "requeue" and client.avoids(given):
            record.avoided.add(client)
        client.answer(given, outcome)  # type: ignore[arg-type]
        if self._waiting_answers(queue) > waiting:
            self.answered_late.setdefault(queue, []).append((record, places))
        self._spill(commit)

    def _settle(self, record: Record, outcome: str, commit: int) -> None:
        if outcome == "requeue":
            self._come_back(record, commit)
        else:
            self._move(record, self._buried_in(record.place) if outcome == "reject" else ENDED, commit)

    def _buried_in(self, place: str) -> str:
        """Return where what is rejected in a queue goes."""
        if place == GOVERNED and self.rules[-1][1].buries:
            return DEAD
        return BURIED.get(place, ENDED)

    def step_drop(self, random: Random) -> None:
        """A connection breaks off."""
        if self.clients:
            self._lose(random.choice(self.clients))

    def step_silence(self, random: Random) -> None:
        """A client is there and hears nothing any more: its connection is half open."""
        client = self._any(random)
        if client is not None and not TIMED & client.consumes:
            self.say(f"{client.name} falls silent")
            self.silent.add(client)

    def step_delay(self, random: Random) -> None:
        """What is sent to a client does not arrive yet, and it sends nothing: the network is cut, or slow."""
        client = self._any(random)
        if client is not None and not TIMED & client.consumes:
            self.say(f"nothing gets to {client.name}")
            self.late.add(client)

    def step_arrive(self, random: Random) -> None:
        """The network is whole again."""
        self.late.clear()

    # Streams.

    def step_read_stream(self, random: Random) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self._read_stream()

    def _read_stream(self) -> None:
        """A new reader gets what is on disk of the stream, all of it, in order."""
        peer = Peer091(self.node)
        connection = Connection(self.node, peer, Random(0))
        channel = peer.open().channel()
        channel.prefetch(100)
        channel.send(m.BasicConsume(STREAM, "r", arguments={"x-stream-offset": "first"}))
        found: list[bytes] = []
        while contents := [each for each in channel.all() if isinstance(each, Content)]:
            found += [each.body for each in contents]
            for each in contents:
                assert isinstance(each.method, m.BasicDeliver)
                channel.ack(each.method.delivery_tag)
        landed = self.node.disk.landed
        expected = [each.body for each in self.lines[STREAM] if each.places[0].commit <= landed]
        assert found == expected, f"the stream gives {found}, not {expected}"
        connection.end()

    # Leases.

    def step_reserve(self, random: Random) -> None:
        """Somebody reserves the first messages of a queue."""
        self._settle_disk()
        self._hear_all()
        count = random.randint(1, 4)
        ready = [record for record in self.lines["plain"] if record.holder is None]
        if not ready or self.silent or self.late:
            return
        commit = self._commit
        self.node.reserve(READER, count)
        self._land_all()
        for record in ready[:count]:
            self.say(f"{record.body.decode()} is reserved")
            order = record.places[-1].order
            self._move(record, LEASE, commit)
            record.places[-1] = attrs.evolve(record.places[-1], order=order)
        self._hear_all()

    def step_settle_lease(self, random: Random) -> None:
        """The reader of the lease settles some."""
        line = self.lines[LEASE]
        if line:
            count = random.randint(1, len(line))
            commit = self._commit
            self.node.settle_lease(READER, count)
            for record in line[:count]:
                self.say(f"{record.body.decode()} is settled in the lease")
                self._move(record, ENDED, commit)

    def step_release(self, random: Random) -> None:
        """The reader of the lease gives all back, to where it was."""
        if not self.lines[LEASE]:
            return
        self._settle_disk()
        self.node.release(READER, self._land_all)
        for record in list(self.lines[LEASE]):
            self.say(f"{record.body.decode()} is released")
            order = record.places[-1].order
            self._move(record, "plain", 0)
            record.places[-1] = attrs.evolve(record.places[-1], order=order)
        self.lines["plain"].sort(key=lambda record: record.places[-1].order)
        self._hear_all()

    # Queues that are full, that a policy bounds, and that come and go.

    def step_fill(self, random: Random) -> None:
        """Messages come to a queue that a policy bounds, or that comes and goes."""
        client = self._any(random)
        queue = random.choice((GOVERNED, PASSING, PASSING))
        if client is None or self.node.broker.alarms.reason or queue not in self._queues:
            return
        if queue == GOVERNED or not isinstance(client, Client10):  # a link ends with its queue
            for _ in range(random.randint(1, 3)):
                self._publish(client, queue)

    def step_brim(self, random: Random) -> None:
        """Dead letters come to a queue that has no room for all of them."""
        client = self._any(random)
        if client is None or self.node.broker.alarms.reason:
            return
        for _ in range(random.randint(1, 3)):
            self._publish(client, "brimming")
        self._consume(client, "brimming")
        self._answer_all(client, "brimming", "reject")

    def step_relieve(self, random: Random) -> None:
        """The queue for these dead letters gets room."""
        able = [each for each in self._able() if isinstance(each, Client091)]
        if able:
            client = random.choice(able)
            self._consume(client, NARROW)
            self._answer_all(client, NARROW, "accept")

    def _answer_all(self, client: Client, queue: str, outcome: str) -> None:
        """Have a client answer what it has of a queue, as long as the broker reads from it."""
        for record in self._consumed_by(client):
            if record.place == queue and not client.waits:
                self._answer(record, outcome)

    # What operators do, and plug-ins.

    def step_alarm(self, random: Random) -> None:
        self._alarmed = not self._alarmed
        if self._alarmed:
            self.node.broker.alarms.set("low on memory")
        else:
            self.node.broker.alarms.clear("low on memory")
            self.node.read_on()
        self.say(f"memory is {'low' if self._alarmed else 'free again'}")

    def step_policy(self, random: Random) -> None:
        """A policy that changes nothing for these messages is set."""
        self.node.policy("plain|dead", {"max-length": random.randint(10_000, 20_000)})

    def step_govern(self, random: Random) -> None:
        """A policy is set that has the oldest messages of a queue dropped, or become dead letters."""
        rule, commit = Rule(random.choice((1, 2, 3, 1000)), random.random() < 0.5), self._commit
        self.say(f"at most {rule.most} messages are to wait in {GOVERNED}{', the others die' * rule.buries}")
        self.rules.append((commit, rule))
        self.node.policy(f"^{GOVERNED}$", rule.definition)
        self._spill(commit)

    def step_come_or_go(self, random: Random) -> None:
        """A queue is declared, or deleted with all that is in it."""
        self._hear_all()
        was_there = self.passing[-1][1]
        if not was_there or random.random() >= 0.6:
            self._come_or_go(not was_there)
        else:
            self._go_before_commit(random)

    def _go_before_commit(self, random: Random) -> None:
        """A transaction has a message for a queue that is deleted, and maybe declared again, before the commit."""
        able = [each for each in self._able() if isinstance(each, Client091) and not each.is_in_transaction]
        if not able or self.node.broker.alarms.reason:
            return
        client = random.choice(able)
        client.begin()
        client.is_in_transaction, client.held_back, client.answers = True, [], {}
        self._hold_back(client, PASSING)
        self._come_or_go(False)
        if random.random() < 0.7:
            self._come_or_go(True)
        if not client.waits:
            self._end_transaction(client, random.random() < 0.8)

    def _is_renewed(self, commit: int) -> bool:
        """Return whether the queue that comes and goes is another one since this commit."""
        return [is_there for at, is_there in self.passing if at == commit][-2:] == [False, True]

    def _come_or_go(self, is_there: bool) -> None:
        commit = self._commit
        self.say(f"{PASSING} is {'declared' if is_there else 'deleted'}")
        self.passing.append((commit, is_there))
        waiting: set[bytes] = set()
        if is_there:
            self.node.host.declare_queue(PASSING, durable=True)
        else:
            queue = self.node.queue(PASSING)
            waiting = {self._body(each.message) for each in queue.waiting()}
            self.node.host.delete_queue(queue)
        self.node.settle()
        for record in list(self.lines[PASSING]):
            self._move(record, ENDED, commit, is_last=record.body not in waiting)
        for client in self.clients:
            client.consumes.discard(PASSING)

    def step_reload(self, random: Random) -> None:
        """The configuration is loaded again, with other values."""
        self._reloaded = not self._reloaded
        self.node.reload(self._reloaded)

    def step_forbid(self, random: Random) -> None:
        """The permission to write is taken from a user, whose publish is refused, and given back."""
        if self.node.broker.alarms.reason or len(self.clients) >= CLIENTS_MAX:
            return
        client = self._connect(Client091, random)
        self._publish(client, "plain")
        self._permit("nothing")
        client.publish("plain", b"forbidden")
        self._permit(".*")
        self._lose(client)

    def _permit(self, write: str) -> None:
        self.node.broker.access.set_permissions("guest", "/", ".*", write, ".*")
        self.node.settle()

    def step_misbehave(self, random: Random) -> None:
        """A plug-in fails to route a message, which takes the alternate exchange; or does its work for once."""
        able = [each for each in self._able() if isinstance(each, Client091)]
        if not able or self.node.broker.alarms.reason:
            return
        client = random.choice(able)
        record, commit, mood = self._new(client), self._commit, random.choice(MOODS)
        self.say(f"{client.name} publishes {record.body.decode()} to a plug-in: {mood}")
        client.publish(mood, record.body, exchange=MOODY)
        self._move(record, "plain", commit)


def _is_reached(place: Place, reached: Reached) -> bool:
    landed = reached.removals if place.is_last else reached.messages
    return landed is None or place.commit <= landed


def _last(states: list[tuple[int, T]], landed: int | None) -> list[tuple[int, T]]:
    """Return the last of some states that was reached by a commit, as the one that a start finds."""
    return [(0, [state for commit, state in states if landed is None or commit <= landed][-1])]


def _last_there(states: list[tuple[int, bool]], reached: Reached) -> list[tuple[int, bool]]:
    """Return, as `_last`, whether something was there; one that was removed in a commit goes once that is whole."""
    first, there = _last(states, reached.removals)[0]
    latest = _last(states, reached.objects)[0][1]
    return [(first, there or latest)]
