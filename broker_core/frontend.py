"""What a protocol must be to plug in: its first bytes, and a machine for one connection.

The node owns the socket. It reads, calls `receive`, lets the broker settle what the bytes caused, and sends what has
gathered in the outboxes. Nothing here waits; nothing here knows trio. A protocol is registered through the entry point
group `leveret.protocols`, with `register_protocol`, or from a file in a plugin folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.config.load import Config
    from broker_core.message import Encoding
    from broker_core.observability.connection_stats import ChannelFacts, ConnectionFacts
    from broker_core.outbox import Outbox
    from broker_core.security.password_checks import Waiting


@attrs.frozen
class TlsFacts:
    """What a handshake has agreed on, and who the client is by a certificate that was verified."""

    version: str  # such as TLSv1.3
    cipher: str
    subject: str | None = None  # distinguished name (RFC 4514); None: the client showed no certificate
    login: str | None = (
        None  # the user whom EXTERNAL logs in; None: the certificate has no such name, or there is none
    )


@attrs.frozen
class Peer:
    """Who is at the other end of a connection, as far as the socket, a proxy before it and TLS tell."""

    host: str
    port: int
    local_host: str
    local_port: int
    loopback: bool
    served: tuple[str, ...] | None = None  # names of the protocols it may speak there; None: unknown
    tls: TlsFacts | None = None  # None: a plain connection

    @property
    def certified(self) -> str | None:
        """The user's name by a verified certificate, for EXTERNAL."""
        return None if self.tls is None else self.tls.login

    @property
    def name(self) -> str:
        """`client -> server`, the way operators know connections."""
        return f"{self.host}:{self.port} -> {self.local_host}:{self.local_port}"


class FrontEnd(ABC):
    """One connection of one protocol.

    `receive`, `on_deadline`, `drained` and `lost` are called by the node, never concurrently. None of them may raise
    for anything a peer did; an exception is taken for a mistake of ours: it is logged and ends this connection only.
    """

    outbox: Outbox
    closed: bool = False  # send what is in the outbox, then close the socket
    blocked: bool = (
        False  # it published while an alarm was raised: the node stops reading until `alarm(None)`
    )
    halted: bool = False  # it has input left, for after others' turns: it goes on when `receive` gets b""
    waits: bool = (
        False  # for work in a thread, such as a password's check: it is given little input until `wake`
    )
    on_wake: Callable[[], None] | None = None  # set by the node
    is_stranger: bool = False  # its user has not logged in yet: little time, little room
    expires_at: float | None = None  # monotonic seconds: when what its user has logged in with runs out
    description: str = ""  # for logs: user and virtual host once known

    @abstractmethod
    def receive(self, data: bytes, now: float) -> None:
        """Bytes from the peer, in any division. `now` is monotonic seconds."""

    @abstractmethod
    def lost(self) -> None:
        """The transport has ended, whoever ended it. Called once, last; release everything held."""

    def deadline(self) -> float | None:
        """When `on_deadline` wants to be called, or None. Asked after every call into the front-end."""
        return None

    def on_deadline(self, now: float) -> None:
        """The time given by `deadline` has come."""

    def due_at(self) -> float | None:
        """When `on_due` has to be called: the deadline, or when what the user has logged in with runs out."""
        deadline, expires_at = self.deadline(), self.expires_at
        return (
            deadline if expires_at is None or (deadline is not None and deadline < expires_at) else expires_at
        )

    def on_due(self, now: float) -> None:
        """What is due by now."""
        if self.expires_at is not None and self.expires_at <= now:
            self.expires_at = None
            self.on_expired()
        deadline = self.deadline()
        if deadline is not None and deadline <= now:
            self.on_deadline(now)

    def on_expired(self) -> None:
        """The time given by `expires_at` has come, and nothing fresh: say goodbye."""
        self.shut_down("credential expired")

    def drained(self) -> None:
        """The outbox was full and has been sent: deliveries may go on."""

    def alarm(self, reason: str | None) -> None:
        """A resource alarm was raised (reason such as `low on memory`) or, with None, the last one cleared."""

    def facts(self) -> ConnectionFacts | None:
        """What operators are told of the connection; None until its user has logged in, or if it is not of messages."""
        return None

    def channel_facts(self) -> Iterable[ChannelFacts]:
        """What operators are told of its channels, or sessions."""
        return ()

    def wait_for(self, waiting: Waiting) -> None:
        """Take little input until that is there, which may be at once."""
        self.waits = True
        waiting.tell(self.wake)

    def wake(self) -> None:
        """What it waited for is there. It is `halted` then, and goes on when `receive` gets b""."""
        self.waits = False
        if self.on_wake is not None:
            self.on_wake()

    def shut_down(self, reason: str) -> None:
        """The node or an operator ends the connection: say goodbye in the protocol's way, then be `closed`."""
        self.closed = True


Factory = Callable[["Broker", "Config", "Outbox", Peer, float], FrontEnd]


@attrs.frozen
class Protocol:
    """A front-end's registration.

    `first_bytes` are the prefixes (1 to 8 octets each) by which a listener that serves several protocols recognises
    this one. `factory(broker, config, outbox, peer, now)` makes the machine for one connection; it is then fed
    everything from the first byte on. Its own settings are `config.protocols.others.get(name, {})`.
    `fallback` marks the protocol that answers first bytes nobody recognises. A protocol that is not `shared` is served
    only by listeners that name it. `title` is what people call it; without one, they are told the name.
    `encoding` gives the encoding of its messages, which is how those in the store are read again: a protocol without
    it cannot have durable messages. `restored(broker)` is called at a start, if there is a store, once everything that
    the store has is in its place: for what the front-end has noted of queues (`VirtualHost.note`). `prepare()` imports
    what the factory would import with the first connection; called in a thread, once a node has been up for a while.
    """

    name: str
    first_bytes: tuple[bytes, ...]
    factory: Factory
    fallback: bool = False
    shared: bool = True
    title: str = ""
    encoding: Callable[[], Encoding] | None = None
    restored: Callable[[Broker], None] | None = None
    prepare: Callable[[], object] | None = None


def encodings_of(protocols: Iterable[Protocol]) -> Mapping[str, Callable[[], Encoding]]:
    """By name, how messages of each of these are read."""
    return {each.name: each.encoding for each in protocols if each.encoding is not None}
