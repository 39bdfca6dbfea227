"""A node without threads and sockets: broker, keeper of the store, and connections that hold back what is not on disk.

The journal, the keeper (`server/node/persistence.py`) and the front-ends are the real ones. A `Connection` stands
for the transport: it hands over bytes, whole or in pieces, and holds answers that promise something until their commit
is on disk, as the transport does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Final, cast

from leveret.config.config import parse
from leveret.durable.compaction import LOOK_EVERY
from leveret.errors import Failure
from leveret.features.leases.lease import opened
from leveret.protocols.amqp010.broker.registration import PROTOCOL as PROTOCOL010
from leveret.protocols.amqp091.broker.registration import PROTOCOL as PROTOCOL091
from leveret.protocols.amqp10.broker.registration import PROTOCOL as PROTOCOL10
from leveret.protocols.mqtt.broker.registration import PROTOCOL as PROTOCOL_MQTT
from leveret.server.node.assembly import reload
from leveret.server.node.persistence import Persistence
from tests.harness.bench import ClientBench

from .held import Disk
from .plugin import Moody

if TYPE_CHECKING:
    from leveret.server.node.transport import Transport
    from tests.harness.peer import JoinedPeer

PLENTY: Final = 1 << 30
PROTOCOLS: Final = (PROTOCOL010, PROTOCOL091, PROTOCOL10, PROTOCOL_MQTT)
ANOTHER: Final = """
[limits]
consumer_timeout_ms = 3600000
[flow]
credit = 100000
"""


class SimulatedNode(ClientBench):
    """A broker on a disk, with the time that the world has."""

    def __init__(self, disk: Disk, now: float, wall: float) -> None:
        types = {**ClientBench().broker.exchange_types, Moody.name: Moody}
        super().__init__(exchange_types=types)
        self.clock._now, self.clock._wall = now, wall
        self.broker.tick()
        self.disk = disk
        self.connections: list[Connection] = []
        self.failed: list[Exception] = []
        self.closed_at: dict[int, float] = {}  # the wall's time at which each commit was closed
        self.persistence = Persistence(self.broker, disk, None, PROTOCOLS)
        self.journal = self.persistence.journal
        self.journal.ahead_entries = 1  # where the store takes a second commit before the first is answered
        self.persistence.restore()
        self.persistence.recover()
        self.persistence.start(lambda told: told(), self._fail)
        self.settle()

    def _fail(self, error: Exception) -> None:
        self.failed.append(error)
        self.persistence.feeds.fail()

    def settle(self) -> None:
        super().settle()
        self.flush()
        self._note_closed()

    def advance(self, seconds: float) -> None:
        self._note_closed()
        super().advance(seconds)

    def _note_closed(self) -> None:
        """Note of commits that were closed since the last look, in which no time has passed, when that was."""
        if hasattr(self, "journal"):
            for number in range(max(self.closed_at, default=0) + 1, self.journal.open):
                self.closed_at[number] = self.clock.wall()

    def settle_only(self) -> None:
        """Let the broker settle, as the keeper asks a node to."""
        self.broker.settle()

    def flush(self) -> None:
        for each in self.connections:
            each.flush()

    def _alarm(self, reason: str | None) -> None:
        super()._alarm(reason)
        if hasattr(self, "persistence"):
            self.persistence.feeds.alarm()

    def read_on(self) -> None:
        """Read again from all that waited for an alarm to end."""
        for each in list(self.connections):
            each.peer.read_on()

    def reload(self, is_changed: bool) -> None:
        """Reload the configuration."""
        new = parse(ANOTHER if is_changed else "")
        reload(self.broker, self.config, new)
        self.config = new
        self.settle()

    def rewrite(self) -> None:
        """Look for chunks to rewrite now, which happens every few commits otherwise."""
        rewriter = self.journal._compaction
        rewriter._since = LOOK_EVERY
        rewriter.look()
        self.settle()

    # Leases.

    def reserve(self, reader: str, count: int) -> None:
        """Reserve the first messages of `plain`, which are there."""
        lease = opened(self.queue("plain"), reader)
        lease.reserve(lease.first, lease.messages + count, PLENTY, 0.0, lambda failure: None)
        self._go_on()

    def settle_lease(self, reader: str, count: int) -> None:
        lease = opened(self.queue("plain"), reader)
        lease.settle(lease.first + count)
        self._go_on()

    def release(self, reader: str, land: Callable[[], None]) -> None:
        """Release all that is reserved; `land` writes what is to be written first."""
        told: list[Failure | None] = []
        opened(self.queue("plain"), reader).release(told.append)
        for _ in range(10):
            self._go_on()
            land()
        assert told == [None], f"releasing ends with {told}"

    def _go_on(self) -> None:
        self.settle()
        while self.broker.touched or (
            (at := self.broker.timers.next_at()) is not None and at <= self.broker.now
        ):
            self.settle()


class Connection:
    """The transport of one client."""

    def __init__(self, node: SimulatedNode, peer: JoinedPeer, random: Random) -> None:
        self.node, self.peer = node, peer
        self.ahead = False  # the keeper has it wait for the disk
        self.promised = 0  # the last commit for which bytes are held that the model has heard
        self.digest = sha256()  # of all bytes that the client got
        self._random = random
        self._held: deque[tuple[int, bytearray]] = deque()
        self._sent = bytearray()
        self._take = peer.take_bytes
        peer.send_bytes, peer.take_bytes = self.send, self.take  # type: ignore[method-assign]
        node.connections.append(self)

    # From the client.

    @property
    def waits(self) -> bool:
        """Return whether nothing is read from the client."""
        return bool(self.peer.front.blocked) or self.ahead

    def send(self, octets: bytes, settle: bool = True) -> None:
        while len(octets) > 1 and self._random.random() < 0.1:
            cut = self._random.randint(1, len(octets) - 1)
            self._feed(octets[:cut])
            octets = octets[cut:]
        self._feed(octets)

    def _feed(self, octets: bytes) -> None:
        peer, persistence, node = self.peer, self.node.persistence, self.node
        if self.waits:
            peer._unread.append(octets)
            return
        now = node.broker.tick()
        persistence.feeds.begins()
        peer.front.receive(octets, now)
        persistence.feeds.ends(cast("Transport", self))
        persistence.feeds.conclude(node.settle_only)
        node.flush()
        if peer.front.halted and not peer.outbox.full:
            self._feed(b"")

    # To the client.

    def flush(self) -> None:
        octets = self._take()
        if self._held:
            self._held[-1][1].extend(octets)
        else:
            self._sent += octets

    def take(self) -> bytes:
        """Return what is sent, and after that what will be once its commit is on disk, which the model knows already.

        `promised` is the last such commit.
        """
        self.flush()
        octets = bytes(self._sent)
        self._sent.clear()
        for commit, held in self._held:
            if held:
                octets, self.promised = octets + bytes(held), commit
                held.clear()
        self.digest.update(octets)
        return octets

    # What the keeper asks for.

    def hold(self, commit: int) -> None:
        if not self._held or self._held[-1][0] < commit:
            self._held.append((commit, bytearray()))

    def landed(self, commit: int, behind: bool) -> bool:
        while self._held and self._held[0][0] <= commit:
            self._sent += self._held.popleft()[1]
        if not behind:
            self.keep_reading()
        return bool(self._held) or self.ahead

    def keep_reading(self) -> None:
        if self.ahead:
            self.ahead = False
            self.peer.read_on()

    def drop_held(self) -> None:
        self._held.clear()

    def end(self) -> None:
        """The client has gone."""
        self.peer.drop()
        self.node.connections.remove(self)
        self.node.settle()
