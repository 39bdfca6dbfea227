"""The client of client.py in memory: against a real broker and no socket."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.frontend import Peer as Address
from broker_core.outbox import Outbox
from protocols.amqp010.broker.adapter import Connection010
from tests.amqp091.peer import ELSEWHERE, LOOPBACK, World

from .client import Client, ClientSession

__all__ = ["ELSEWHERE", "LOOPBACK", "Peer", "World", "session_of"]


class Peer(Client):
    """One connection to the broker of a world."""

    def __init__(self, world: World | None = None, address: Address = LOOPBACK) -> None:
        super().__init__()
        self.world = world = world or World()
        limits = world.config.limits
        self.outbox = Outbox(world.ready, limits.outbox_size_max, limits.message_size_max)
        self.front = Connection010(world.broker, world.config, self.outbox, address, world.broker.tick())
        self._unread: list[bytes] = []  # sent while the broker did not read from us
        world.peers.append(self)

    def transmit(self, octets: bytes, settle: bool = True) -> None:
        if self.front.blocked:
            self._unread.append(octets)
            return
        self.front.receive(octets, self.world.broker.tick())
        if settle:
            self.world.settle()
        if self.front.halted and not self.outbox.full:
            self.transmit(b"", settle)

    def read_on(self) -> None:
        """What was sent while the broker did not read from us, as far as it reads now."""
        unread, self._unread = self._unread, []
        for octets in unread:
            self.transmit(octets)

    def take_bytes(self) -> bytes:
        """Everything sent since the last time; as if the operating system had taken it."""
        octets = b"".join(self.outbox.take())
        if self.outbox in self.world.ready:
            self.world.ready.remove(self.outbox)
        if self.outbox.sent(len(octets)):
            self.front.drained()
        return octets

    def read(self) -> None:
        while octets := self.take_bytes():
            self.hear(octets)
            self.world.settle()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """In memory everything that will come without time passing has come."""
        self.read()
        assert condition() or self.is_over, f"there is no {what}; last came {self.heard[-3:]}"

    def lose(self) -> None:
        """The transport ends."""
        self.front.lost()
        self.world.settle()


def session_of(world: World, name: str = "session", user: str = "guest") -> ClientSession:
    """A session on a connection of its own; everybody's password is his name."""
    return Peer(world).open(user, user).attach(name)
