"""Move bytes of one accepted socket: from it to a front-end, and from the outbox to it.

The socket is non-blocking and used directly: `recv` and `send` are plain calls (`socket_io.py`), and the one task of a
connection waits only when there is nothing to read. What the operating system does not accept at once is sent by a
second task that lives as long as the backlog. An idle connection costs one task.

    first bytes ─> converse: read, feed, read, ... ─> lose: the front-end releases all ─> goodbye: last bytes ─> end

A `Handshake` reads what comes before a protocol's first bytes. With TLS, a `TlsSocket` takes the socket's place
after the handshake, and over WebSockets a `WebSocketStream`; the rest is the same.

The time to log in runs from the moment a connection was accepted; nothing that its peer sends extends it. Until then
the peer is a stranger, and is read from in small pieces, so that few of its bytes are kept in memory.

A peer that does not read its answers is not read from either, once more bytes wait for it than deliveries alone can
make. An answer that promises something that is not on disk yet is held, and so is all that follows it. An exception of
a front-end ends only its own connection.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs
import trio

from leveret.errors import MISTAKES
from leveret.front_end import FrontEnd, Peer, Protocol
from leveret.operations import Connected
from leveret.outbox import Outbox
from leveret.server.node.handshake import Handshake
from leveret.server.node.listener import BITE, TLS_HELLO, ListenerRules, NotAdmitted, WebSocketRules
from leveret.server.node.poller import Poller
from leveret.server.node.send_buffer import Line
from leveret.server.node.send_watch import SendWatch
from leveret.server.node.socket_io import SocketIO
from leveret.server.node.tls import reason

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.server.node.node import Node
    from leveret.server.node.tls_socket import TlsSocket

log: Final = logging.getLogger("leveret.connection")

READ_SIZE: Final = 262_144  # bytes asked for in one read: hundreds of small messages, or a few large ones
TURN_S: Final = 0.005  # the limit for processing one read; a publisher to 2000 queues gets smaller reads
RESETS: Final = struct.pack("ii", 1, 0)  # to linger for no time
WAITING_MAX: Final = BITE  # bytes read while the front-end waits for work in a thread
GOODBYE_S: Final = 2.0  # for the peer to take the last bytes, once the disk has what they say, and to hang up


class Transport(SocketIO, Connected):
    """A connection's tasks, and what others ask of it."""

    def __init__(
        self, node: Node, connected: socket.socket | TlsSocket, peer: Peer, entrance: ListenerRules
    ) -> None:
        limits = node.config.limits
        outbox = Outbox(node.ready, limits.outbox_size_max, node.config.message_size_max)
        super().__init__(node.broker, connected, outbox, BITE, READ_SIZE, TURN_S)
        self.node = node
        self.peer = peer
        self.connected_at = node.broker.clock.wall()
        self._entrance = entrance
        self._connected_since = node.broker.clock.now()
        self._log_in_until = self._connected_since + limits.handshake_timeout_s
        self._log_in_timer: Timer | None = None
        self._none_held: trio.Event | None = None  # set when nothing is held, if a task waits for that
        self._scope = trio.CancelScope()
        self._unblocked: trio.Event | None = None
        self._meanwhile: trio.CancelScope | None = None  # of reading while the front-end waits
        self._read_while_waiting = 0
        self._paused = False  # not read from until it has read its answers
        self._is_turned_away = False
        self._is_leaving = False  # its client has been told to go, and may say goodbye
        self._accepted = connected if isinstance(connected, socket.socket) else None
        self._send_watch = SendWatch(self)

    # The connection's task.

    async def serve(self) -> None:
        """Read until either side ends the connection, then release everything."""
        try:
            with self.mistakes_end_it(), self._scope:
                await self._converse()
            self.lose()
            await self._say_goodbye()
        finally:
            self.lose()
            self._end()

    @contextlib.contextmanager
    def mistakes_end_it(self) -> Iterator[None]:
        """Log an exception raised within this block as a mistake of ours, and end this connection only."""
        try:
            yield
        except MISTAKES:
            self.end_by_mistake()

    def end_by_mistake(self) -> None:
        log.exception("%s: closed because of a mistake of ours", self.peer.name)
        self.hang_up()

    async def _converse(self) -> None:
        data = await self._first_bytes()
        if data:
            protocol = recognised(self, data)
            if protocol.prepare is not None:
                await self.node.prepare(protocol.prepare)
            begin(self, front_end(self, protocol))
        while data or (self.front is not None and self.front.halted):
            if self.node.term is not None and self.node.has_lapsed() and not self._is_leaving:
                await wait_unblocked(self)
            (self.node.hears_instead or self.node.hear)(self, data)
            self.node.conclude()
            if self._is_stranger and self.front is not None and not self.front.is_stranger:
                self._acquainted()
            self.processed(len(data))
            if not await self._may_go_on():
                return
            while (poller := self._next_reader()) is not None:
                await self._attend(poller)
                if not await self._may_go_on():
                    return
            data = await self._read()

    async def _may_go_on(self) -> bool:
        """Wait until the connection may be read from. Returns False if it has ended."""
        if self.front is None or self.front.closed:
            return False
        if self.ahead or self.front.blocked or self.front.throttled or is_suspended(self):
            self._read_size = min(self._read_size, self.front.read_max)
            await wait_unblocked(self)
        if self.outbox.full:
            self._paused = True
            await self._nothing_left()
            self._paused = False
        return True

    async def _attend(self, poller: Poller) -> None:
        """Have the poller read from this connection until it is dismissed."""
        dismissed = trio.Event()
        poller.attend(self, dismissed)
        try:
            await dismissed.wait()
        finally:
            poller.dismiss(self.number)
            self.dismissed = False

    def _next_reader(self) -> Poller | None:
        """Return the poller if it reads from this connection next; None if its own task does."""
        poller, front = self.node.poller, self.front
        assert front is not None
        if not isinstance(poller, Poller) or self._has_decrypted() or self.node.suspended:
            return None
        return None if self._ended or self._is_stranger or front.halted or front.waits else poller

    async def _first_bytes(self) -> bytes:
        """Return enough bytes to tell the protocol; empty if the peer left, took too long, or is not admitted."""
        with trio.move_on_at(self._log_in_until):
            try:
                data = b"" if self._entrance.is_plain else await self._enter()
            except NotAdmitted as refusal:
                tell(self, f"refused, {refusal}")
                return b""
            while self._entrance.undecided(data):
                more = await self._read()
                data += more
                if not more:
                    return data
            return data
        if not self._entrance.is_plain:
            limit_s = self.node.config.limits.handshake_timeout_s
            tell(self, f"gave up, it said too little in {limit_s} s")
        return b""

    async def _enter(self) -> bytes:
        """Read what comes before a protocol's first bytes, and return the bytes after it. Raises NotAdmitted."""
        assert isinstance(self._socket, socket.socket)
        line: socket.socket | TlsSocket = self._socket
        handshake = Handshake(self._entrance, self._read)
        if self._entrance.relayed is not None:
            client, self._entrance = await handshake.relayed(self.peer, self._entrance.relayed)
            self.peer = client
            if self._entrance.proxies is None:
                come_from(self, client)
            handshake = Handshake(self._entrance, self._read, handshake.data)
        certificates = self._entrance.certificates
        if self._entrance.proxies is not None:
            come_from(self, await handshake.introduce(self.peer))
        if certificates is not None and (not self._entrance.takes_plain or await handshake.begins_tls()):
            self._socket = line = secured = await handshake.secure(self._socket, certificates)
            self._is_wrapped = True
            self.peer = attrs.evolve(self.peer, tls=certificates.facts(secured.tls))
        if self._entrance.websocket is not None:
            await open_websocket(self, handshake, line, self._entrance.websocket)
        return handshake.data

    async def _read(self) -> bytes:
        """Return the next bytes; empty at the end. Lets other tasks run even if it need not wait."""
        await trio.lowlevel.checkpoint()
        if self.front is not None:
            if self.front.halted or self.front.closed:  # it may have ended meanwhile, by a timer
                return b""
            if self.front.waits:
                return await self._read_meanwhile()
        return await self._receive(self._read_size)

    async def _read_meanwhile(self) -> bytes:
        """Read a little until the front-end is woken; then return nothing: it is halted and has input left."""
        with trio.CancelScope() as self._meanwhile:
            if self._read_while_waiting < WAITING_MAX:
                data = await self._receive(WAITING_MAX - self._read_while_waiting)
                self._read_while_waiting += len(data)
                return data
            await trio.sleep_forever()
        return b""

    def _woken(self) -> None:
        self._read_while_waiting = 0
        if self._meanwhile is not None:
            self._meanwhile.cancel()
        self.node.poller.dismiss(self.number)  # its own task sees whether it has ended, or has input left

    async def _receive(self, size: int) -> bytes:
        while True:
            try:
                data = self._socket.recv(size)
                self.octets_received += len(data)
                self.reads += 1
                return data
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_readable(self._socket)
            except OSError as failure:
                self.broken_off(failure)
                return b""

    def broken_off(self, failure: OSError) -> None:
        if isinstance(failure, ssl.SSLError):
            tell(self, f"broken off, TLS: {reason(failure)}")

    @property
    def octets_sent(self) -> int:
        return self.outbox.gone

    @property
    def octets_waiting(self) -> int:
        return self.outbox.size

    def has_input(self) -> bool:
        """Return whether bytes have arrived that have not been read yet, and will be."""
        if self._paused or self._unblocked is not None:
            return False
        if self.dismissed:
            return True
        halted = self.front is not None and self.front.halted
        return halted or self._has_decrypted() or is_readable(self._socket)

    def alarm(self, reason: str | None) -> None:
        """Called when an alarm was raised or, with None, the last one cleared."""
        if self.front is not None:
            with self.mistakes_end_it():
                self.front.alarm(reason)
            self.watch_deadline()
            self._go_on()

    def _go_on(self) -> None:
        """Read again, unless the front-end or the node has a reason not to."""
        front = self.front
        if front is not None and not (front.blocked or front.throttled or is_suspended(self)):
            self._unblock()

    def suspend(self) -> None:
        """Read nothing more until `resume`, whatever the peer does; its silence does not count."""
        if self.front is not None:
            self.front.suspend()
        self.node.poller.dismiss(self.number)

    def resume(self) -> None:
        """Go on after `suspend`."""
        if self.front is not None:
            self.front.resume(self.node.broker.now)
        self._go_on()

    def _unblock(self) -> None:
        if self._unblocked is not None:
            self._unblocked.set()
            self._unblocked = None

    def shut_down(self, reason: str) -> None:
        """Close the connection in the protocol's way, and wait for the answer; hang up if there is no protocol yet."""
        self._is_leaving = True
        if self.front is not None:
            with self.mistakes_end_it():
                self.node.abandon(self.front)
                self.front.shut_down(reason)
            self.watch_deadline()
            self.ahead = False
            self._unblock()
        if self.front is None or self.front.closed:
            self.hang_up()

    def hang_up(self) -> None:
        """End the connection; what is in the outbox by the end of this batch is still sent."""
        self.node.poller.dismiss(self.number)
        self._scope.cancel()

    def reset(self) -> None:
        """End the connection at once: its peer, which may never read, is told by TCP when it sends or waits."""
        if self._accepted is not None:
            with contextlib.suppress(OSError):
                self._accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
        self._is_turned_away = True
        self._backlog.clear()
        self.hang_up()

    # Time.

    def on_time(self, now: float) -> None:
        if self.front is None or self.node.stands(self.front):  # it is looked at again when the input goes on
            return
        with self.mistakes_end_it():
            expires_at = self.front.expires_at
            self.front.on_due(now)
            if expires_at != self.front.expires_at:  # it sends a close, and has to read the answer
                self.ahead = False
                self._go_on()
        if self.front.closed and self.front.gave_up:
            self.reset()
        elif self.front.closed:
            self.hang_up()
        else:
            self.watch_deadline()

    # Connections that have not logged in.

    def _acquainted(self) -> None:
        """Called when the user has logged in."""
        self._is_stranger = False
        self._read_size = self.read_max()
        leave_strangers(self)

    def turn_away(self) -> None:
        """Hang up at once, without waiting for anything, to make room for others."""
        self._is_turned_away = True
        leave_strangers(self)
        self.hang_up()

    def _took_too_long(self, now: float) -> None:
        """Called when the time to log in is over."""
        if self.front is None or not self.front.is_stranger:
            return
        with self.mistakes_end_it():
            self.node.abandon(self.front)
            self.front.on_deadline(now)
        self.hang_up()

    # Waiting for the disk.

    def hold(self, commit: int) -> None:
        """Hold what is in the outbox now, and all that follows, until `landed` reports that commit."""
        if not self._held or self._held[-1][0] < commit:
            self._held.append((commit, []))

    def landed(self, commit: int, behind: bool) -> bool:
        """Send what was held for commits up to this one, now on disk. Returns whether there is more to wait for."""
        while self._held and self._held[0][0] <= commit:
            self._backlog.add(self._held.pop(0)[1])
        self.send_backlog()
        if not self._held:
            nothing_held(self)
        if not behind:
            self.keep_reading()
        return bool(self._held) or self.ahead

    def keep_reading(self) -> None:
        """Read from the connection again, even if the disk has not caught up."""
        self.ahead = False
        self._go_on()

    def drop_held(self) -> None:
        """Drop the held answers after the disk has failed: they are not true."""
        self._held.clear()
        nothing_held(self)

    # Sending.

    def begin_to_drain(self) -> None:
        self._all_sent = trio.Event()
        self.node.sending += 1
        self._send_watch.begin()
        self.node.start(self._drain)

    async def _nothing_left(self) -> None:
        """Wait until the operating system has accepted everything."""
        await wait_landed(self)
        if self._all_sent is not None:
            await self._all_sent.wait()

    async def _drain(self) -> None:
        while not self.send_some():
            self.node.work()
            try:
                await trio.lowlevel.wait_writable(self._socket)
                self._send_watch.progressed()
            except (OSError, trio.ClosedResourceError):
                self._backlog.clear()
        assert self._all_sent is not None
        self._send_watch.end()
        self._all_sent.set()
        self._all_sent = None
        self.node.sending -= 1
        self.node.work()

    # End.

    def lose(self) -> None:
        if self.front is not None:
            self.node.broker.timers.cancel(self._timer)
            front, self.front, self.intake = self.front, None, None
            front.on_wake = None
            with self.mistakes_end_it():
                self.node.lose(front)

    async def _say_goodbye(self) -> None:
        """Let the peer read our last bytes: closing a socket with unread input would discard them.

        The peer has a moment for them, which begins when the disk has what they say.
        """
        if self._is_turned_away:
            return
        self._paused = True
        await wait_landed(self)
        self._paused = False
        until = trio.current_time() + GOODBYE_S
        with trio.move_on_at(min(until, self._log_in_until) if self._is_stranger else until):
            await self._nothing_left()
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                return
            while await self._read():
                pass

    def _end(self) -> None:
        self._held.clear()
        self.ahead = False
        self._backlog.clear()
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        leave_strangers(self)
        self.node.forget(self)


def is_readable(source: Line) -> bool:
    """Return whether reading, or accepting, would return at once."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(0))


async def open_websocket(
    transport: Transport, handshake: Handshake, line: socket.socket | TlsSocket, rules: WebSocketRules
) -> None:
    """Go on with the protocols within a WebSocket, unless the request is for HTTP. Raises NotAdmitted."""
    stream = await handshake.open_websocket(line, rules, transport.peer)
    if stream is not None:
        transport._socket, transport._entrance, transport._is_wrapped = stream, rules.inside, True
        transport.peer = attrs.evolve(transport.peer, served=rules.inside.names, websocket=True)


def recognised(transport: Transport, data: bytes) -> Protocol:
    """Return the protocol that the first bytes are of."""
    protocol = transport._entrance.protocol_of(data)
    if data.startswith(TLS_HELLO) and not protocol.fallback:  # a fallback protocol answers that itself
        tell(transport, "detected TLS, which is not spoken here")
    return protocol


def front_end(transport: Transport, protocol: Protocol) -> FrontEnd:
    """Return a new front-end of a protocol."""
    node = transport.node
    node.broker.tick()
    transport._log_in_timer = node.broker.timers.at(transport._log_in_until, transport._took_too_long)
    return protocol.factory(
        node.broker, node.config, transport.outbox, transport.peer, transport._connected_since
    )


def come_from(transport: Transport, peer: Peer) -> None:
    """Take the client that the proxy names as the peer. Raises NotAdmitted."""
    transport.peer = peer
    admission, limits = transport.node.admission, transport.node.config.limits
    if why := admission.refusal_from(peer.host, peer.loopback, limits, transport.node.broker.clock.now()):
        raise NotAdmitted(why)
    admission.came_from(transport, peer.host, peer.loopback)


def leave_strangers(transport: Transport) -> None:
    """Count a connection no longer as one that has not logged in."""
    transport.node.admission.strangers.leave(transport)
    transport.node.broker.timers.cancel(transport._log_in_timer)


def begin(transport: Transport, front: FrontEnd) -> None:
    """Have a front-end serve a connection, from its next bytes on."""
    transport.front, transport.intake = front, front.intake()
    front.on_wake, front.on_resume = transport._woken, transport._go_on


def nothing_held(transport: Transport) -> None:
    """Let those go on that wait until no answer of a connection is held."""
    if transport._none_held is not None:
        transport._none_held.set()
        transport._none_held = None


async def wait_landed(transport: Transport) -> None:
    """Wait until the disk has what the held answers say, or has failed."""
    if transport._held:
        transport._none_held = trio.Event()
        await transport._none_held.wait()


def tell(transport: Transport, text: str) -> None:
    """Log a line about a connection; of those whose users have not logged in, one is told for many."""
    node = transport.node
    if transport._is_stranger:
        text = node.admission.lines.line(text, node.broker.clock.now())
    if text:
        log.warning("%s: %s", transport.peer.name, text)


def is_suspended(transport: Transport) -> bool:
    """Return whether nothing is read from a connection because its node is suspended."""
    return transport.node.suspended and not transport._is_leaving


async def wait_unblocked(transport: Transport) -> None:
    """Wait until a connection is to be read from again."""
    transport._unblocked = unblocked = trio.Event()
    await unblocked.wait()
