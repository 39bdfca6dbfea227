"""The contract of protocols: how one is registered, and the front-end that serves one connection.

The node owns the socket. It reads, calls `receive`, lets the broker settle what the bytes caused, and sends what has
gathered in the outboxes. Nothing here waits; nothing here knows trio. A protocol is registered through the entry point
group `leveret.protocols`, with `register_protocol`, or from a file in a plugin folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from typing import Protocol as TypingProtocol

import attrs

from leveret.intake import FrontEndIntake, Intake
from leveret.security.remote_permissions import HeldInputs

if TYPE_CHECKING:
    from leveret.arguments.row import Row, Section
    from leveret.broker import Broker
    from leveret.config.amqp_uri import Uri
    from leveret.config.config import Config
    from leveret.config.records import Record
    from leveret.delivery import Delivery
    from leveret.message import Encoding
    from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
    from leveret.observability.listing import Listing
    from leveret.outbox import Outbox
    from leveret.security.password_checks import Waiting

READ_ALL: Final = 1 << 30


@attrs.frozen
class TlsFacts:
    """The results of a TLS handshake, and the client's identity by its verified certificate."""

    version: str  # such as TLSv1.3
    cipher: str
    subject: str | None = None  # distinguished name (RFC 4514); None: the client showed no certificate
    # The name of the user that EXTERNAL logs in; None: no certificate, or none with such a name.
    login: str | None = None


@attrs.frozen
class ProcessFacts:
    """The process at the other end of a Unix domain socket when it connected (SO_PEERCRED of unix(7))."""

    pid: int
    uid: int
    gid: int


@attrs.frozen
class Peer:
    """The other end of a connection, as far as the socket, a proxy in front of it and TLS tell.

    On a Unix domain socket `host` is `unix`, `port` a running number, `local_host` its address and `local_port` 0.
    """

    host: str
    port: int
    local_host: str
    local_port: int
    loopback: bool
    served: tuple[str, ...] | None = None  # names of the protocols that the listener serves; None: unknown
    tls: TlsFacts | None = None  # None: a plain connection
    websocket: bool = False  # the protocol is in the frames of a WebSocket
    process: ProcessFacts | None = None  # None: not on a Unix domain socket, or behind a proxy, or unknown
    # Of clients that name none, as the listener has it; None: it says nothing.
    virtual_host: str | None = None

    @property
    def certified(self) -> str | None:
        """The user's name in the verified certificate, for EXTERNAL; None if there is none."""
        return None if self.tls is None else self.tls.login

    @property
    def name(self) -> str:
        """The connection's name for operators: `client -> server`, each as address and port if it has one."""
        local = self.local_host if self.is_unix else f"{self.local_host}:{self.local_port}"
        return f"{self.host}:{self.port} -> {local}"

    @property
    def is_unix(self) -> bool:
        """Return whether the connection is on a Unix domain socket, and no proxy names its client."""
        return self.local_host.startswith("unix:")


class FrontEnd(ABC):
    """A front-end serves one connection of one protocol.

    The node calls its methods, never concurrently. None of them may raise for anything that a peer did; an exception is
    taken for a mistake of ours: it is logged and ends this connection only.
    """

    outbox: Outbox
    closed: bool = False  # send what is in the outbox, then close the socket
    gave_up: bool = False  # its peer was silent for too long: reset the connection, so that the peer notices
    # It published while an alarm was raised: the node stops reading until `alarm(None)`.
    blocked: bool = False
    # It published faster than a rate or a queue allows: the node stops reading until `on_resume`.
    throttled: bool = False
    read_max: int = READ_ALL  # the most bytes to read at once
    on_resume: Callable[[], None] | None = None  # set by the node; called when `throttled` is over
    halted: bool = False  # it has input left and lets others have their turn: `receive` with b"" goes on
    waits: bool = False  # for work in a thread, or in portions: it is given little input until `wake`
    on_wake: Callable[[], None] | None = None  # set by the node
    is_stranger: bool = False  # its user has not logged in yet: tighter limits on time and memory apply
    expires_at: float | None = None  # monotonic seconds: when the user's credential expires
    description: str = ""  # for logs: user and virtual host once known

    @abstractmethod
    def receive(self, data: bytes, now: float) -> None:
        """Handle bytes from the peer, split in any way. `now` is monotonic seconds."""

    def intake(self) -> Intake:
        """Return what the node feeds and asks at each read. Called once, before any input."""
        return FrontEndIntake(self)

    @abstractmethod
    def lost(self) -> None:
        """Release everything held. Called once, last, when the transport has ended, on either side."""

    def deadline(self) -> float | None:
        """Return when to call `on_deadline` (monotonic seconds), or None. Called after every other call."""
        return None

    def on_deadline(self, now: float) -> None:
        """Called when the time given by `deadline` has come."""

    def due_at(self) -> float | None:
        """Return when to call `on_due`: at the deadline, or when the user's credential expires, if that is earlier."""
        deadline, expires_at = self.deadline(), self.expires_at
        return (
            deadline if expires_at is None or (deadline is not None and deadline < expires_at) else expires_at
        )

    def on_due(self, now: float) -> None:
        """Handle an expired credential and a deadline, if they are due by now."""
        if self.expires_at is not None and self.expires_at <= now:
            self.expires_at = None
            self.on_expired()
        deadline = self.deadline()
        if deadline is not None and deadline <= now:
            self.on_deadline(now)

    def on_expired(self) -> None:
        """Close the connection. Called at `expires_at`, unless the credential was renewed."""
        self.shut_down("credential expired")

    def drained(self) -> None:
        """Called when an outbox that was full has been sent: deliveries may go on."""

    def alarm(self, reason: str | None) -> None:
        """Called when a resource alarm is raised (a reason such as `low on memory`) or the last is cleared (None)."""

    def suspend(self) -> None:
        """Called when the node reads from no client any more: their silence means nothing until `resume`."""

    def resume(self, now: float) -> None:
        """Called when the node reads again. `now` is monotonic seconds."""

    def facts(self) -> ConnectionFacts | None:
        """Return what operators see of the connection; None before its user has logged in, or if it has no messages."""
        return None

    def channel_facts(self) -> Iterable[ChannelFacts]:
        """Return what operators see of its channels or sessions, which may end before all have been looked at."""
        return ()

    def counted_channels(self) -> Iterable[ChannelFacts | None]:
        """Return the same of those that have had a message; where they are told at once, None for each other one."""
        return self.channel_facts()

    def unsettled(self, channel: int, tag: int | None = None) -> Iterable[tuple[int, Delivery]]:
        """Return the deliveries of a channel or session that its client has not answered, each with its tag or id.

        With `tag` only that one, if it is there; else all, the oldest first.
        """
        return ()

    def wait_for(self, waiting: Waiting) -> None:
        """Take little input until this result is there, which may be at once."""
        self.waits = True
        waiting.tell(self.wake)

    def wake(self) -> None:
        """End the wait of `wait_for`. The front-end is `halted` then, and goes on when `receive` gets b""."""
        self.waits = False
        if self.on_wake is not None:
            self.on_wake()

    def shut_down(self, reason: str) -> None:
        """End the connection for the node or an operator: close it in the protocol's way, then set `closed`."""
        self.closed = True


@attrs.frozen
class Dial:
    """A request to connect to another broker."""

    uri: Uri
    # Called when the connection is there, with its outbox, the monotonic time in seconds, and the most bytes of a
    # message's body. It returns the front-end, which is `halted` and speaks first; None: it is no longer wanted.
    front: Callable[[Outbox, float, int], FrontEnd | None]
    failed: Callable[[str], None]  # called with the reason if it does not come about


Factory = Callable[["Broker", "Config", "Outbox", Peer, float], FrontEnd]


@attrs.frozen
class Protocol:
    """The registration of a protocol.

    `first_bytes` are the prefixes (1 to 8 bytes each) by which a listener that serves several protocols recognises
    this one. `factory(broker, config, outbox, peer, now)` makes the front-end for one connection, which then receives
    everything from the first byte on. `settings` is the record of its own settings (`leveret.config.records`), which
    the factory gets as `config.protocols.of(name, Settings)`: what it does not name, or does not accept, in the table
    `[protocols.NAME]` keeps a node from starting, and `leveret check` tells it. A protocol that declares none gets all
    keys, unread, as `config.protocols.others.get(name, {})`.
    `relatives` are prefixes by which other versions of it begin: it answers those that the listener does not serve; of
    several, the protocol with the longest prefix does.
    `fallback` marks the protocol that answers first bytes of no known protocol. A protocol that is not `shared` is
    served only by listeners that name it. `title` is its name in texts for people; by default that is `name`.
    `encoding` makes the encoding of its messages, with which those in the store are read again: a protocol without
    it cannot have durable messages. `restored(broker)` is called at a start with a store, once all queues and messages
    are restored, for what the front-end has noted of queues (`VirtualHost.note`). `prepare()` imports what the factory
    would import; it is called in a thread with the first connection that speaks the protocol, or on a node that
    stands by.
    `queue_arguments` are rows of the arguments of queues that the protocol translates into the core's; `sections()`
    returns rows of everything else that its clients can ask for by name, for the documentation. `remote_ends()` returns
    what makes the ends of transfers on brokers that speak it; it is called when the first transfer is set up.
    `listings()` returns what operators may list, and perhaps delete, besides queues and messages.
    `addressed(config, address)` returns the exchange and the routing key of messages that its clients publish to an
    address, where they do not write these themselves; it raises ValueError, with the reason, for one that they cannot
    publish to.
    `subprotocols` are the names by which clients ask for it when they open a WebSocket (RFC 6455, section 1.9).
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
    queue_arguments: tuple[Row, ...] = ()
    sections: Callable[[], Sequence[Section]] | None = None
    remote_ends: Callable[[], object] | None = None
    relatives: tuple[bytes, ...] = ()
    settings: type[Record] | None = None
    subprotocols: tuple[str, ...] = ()
    listings: Callable[[], Sequence[Listing]] | None = None
    addressed: Callable[[Config, str], tuple[str, str]] | None = None

    def kinship(self, data: bytes) -> int:
        """Return the length of the longest prefix of other versions that the data begins with; 0 without any."""
        return max((len(each) for each in self.relatives if data.startswith(each)), default=0)


def queue_arguments_of(protocols: Iterable[Protocol]) -> Mapping[str, Row]:
    """Return the rows of arguments that protocols translate, by name."""
    return {row.name: row for each in protocols for row in each.queue_arguments}


def encodings_of(protocols: Iterable[Protocol]) -> Mapping[str, Callable[[], Encoding]]:
    """Return, by the protocol's name, the function that makes the encoding of its messages."""
    return {each.name: each.encoding for each in protocols if each.encoding is not None}


def remote_ends_of(protocols: Iterable[Protocol]) -> Mapping[str, Callable[[], object]]:
    """Return, by the protocol's name, the function that makes the ends of transfers on other brokers."""
    return {each.name: each.remote_ends for each in protocols if each.remote_ends is not None}


def listings_of(protocols: Iterable[Protocol]) -> Mapping[str, Callable[[], Sequence[Listing]]]:
    """Return, by the protocol's name, the function that returns what operators may list of it."""
    return {each.name: each.listings for each in protocols if each.listings is not None}


def addresses_of(
    protocols: Iterable[Protocol], config: Config
) -> Mapping[str, Callable[[str], tuple[str, str]]]:
    """Return, by the protocol's name, the function from an address to an exchange and a routing key."""
    return {each.name: partial(each.addressed, config) for each in protocols if each.addressed is not None}


class FrontEndInputs(HeldInputs, TypingProtocol):
    """The contract of the node for front-ends whose input stands still in the middle of a call."""

    def receive(self, front: FrontEnd, data: bytes, now: float, /) -> None:
        """Have a front-end receive bytes, now or when its input goes on."""

    def stands(self, front: FrontEnd, /) -> bool:
        """Return whether the input of a front-end stands still."""

    def abandon(self, front: FrontEnd, /) -> None:
        """End what stands still, because the connection ends."""
