"""One accepted socket: bytes from it to a front-end, bytes from the outbox to it.

The socket is non-blocking and used directly: `recv` and `send` are plain calls, and the one task of a connection waits
only when there is nothing to read. What the operating system does not take at once is sent by a second task that lives
as long as the backlog. A connection at rest costs one task.

    first bytes ─> converse: read, feed, read, ... ─> lose: the front-end releases all ─> goodbye: last bytes ─> end

What comes before a protocol's first bytes is a `Handshake`'s. Where there is TLS, a `SecuredSocket` takes the socket's
place once they have shaken hands; the rest is the same.

The time to log in runs from the moment a connection was accepted; nothing that its peer sends moves its end. Until then
the peer is a stranger, and read from in bites, so that it cannot have us keep more than a few of them.

A peer that does not read what it asks for is not read from either, once more waits for it than deliveries alone can
make. What says that something has been done, though it is not on disk yet, is held, and all that follows it. Whatever a
front-end raises ends its own connection.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs
import trio

from broker_core.frontend import FrontEnd, Peer
from broker_core.node.handshake import Handshake
from broker_core.node.listener import BITE, TLS_HELLO, Entrance, NotAdmitted
from broker_core.node.poller import HAS_ROUNDS, MUCH
from broker_core.node.send_buffer import Unsent, joined
from broker_core.node.tls import reason
from broker_core.node.tls_socket import SecuredSocket
from broker_core.operations import Connected
from broker_core.outbox import Outbox

if TYPE_CHECKING:
    from broker_core.clock import Timer
    from broker_core.node.node import Node

log: Final = logging.getLogger("leveret.connection")

READ_SIZE: Final = 262_144  # octets asked for in one read: hundreds of small messages, or a few large ones
READ_SIZE_MIN: Final = 1024
WAITING_MAX: Final = BITE  # octets read while the front-end waits for work in a thread
TURN_S: Final = 0.005  # what one read may cost; a publisher to 2000 queues has to take smaller bites
JOINED_MAX: Final = 65_536  # octets of several pieces that are joined even if one of them is large
SENT_MAX: Final = (
    1 << 20
)  # octets sent before others have their turn, to a peer that reads as fast as we send
GOODBYE_S: Final = 2.0  # for the peer to take the last bytes and hang up


class Transport(Connected):
    """A connection's socket, its outbox and, once the first bytes have told which, its front-end."""

    def __init__(self, node: Node, connected: socket.socket, peer: Peer, entrance: Entrance) -> None:
        limits = node.config.limits
        self.node = node
        self.peer = peer
        self.outbox = Outbox(node.ready, limits.outbox_size_max, limits.message_size_max)
        self.front: FrontEnd | None = None
        self.connected_at = node.broker.clock.wall()
        self.octets_received = self.reads = self.writes = 0
        self._socket: socket.socket | SecuredSocket = connected
        self._entrance = entrance
        self._connected_since = node.broker.clock.now()
        self._log_in_until = self._connected_since + limits.handshake_timeout_s
        self._log_in_timer: Timer | None = None
        self._is_stranger = True  # its user has not logged in
        self._read_size = BITE
        self.ahead = False  # it publishes faster than the disk takes it: not read from for now
        self._held: deque[tuple[int, list[memoryview]]] = deque()  # until that commit is on disk
        self._none_held: trio.Event | None = None  # to come: somebody waits for it
        self._backlog = Unsent()
        self._all_sent: trio.Event | None = None  # to come: the second task is sending
        self._timer: Timer | None = None
        self._scope = trio.CancelScope()
        self._unblocked: trio.Event | None = None
        self._meanwhile: trio.CancelScope | None = None  # of reading while the front-end waits
        self._read_while_waiting = 0
        self._paused = False  # not read from until it has read
        self.number = connected.fileno()  # of the socket
        self.says_much = False  # the last time it did
        self.dismissed = False  # its task is about to go on with it
        self._ended = False  # nothing follows
        self._goodbye_s = GOODBYE_S

    # The connection's task.

    async def serve(self) -> None:
        """Read until either side ends the connection, then release everything."""
        try:
            with self.mistakes_end_it(), self._scope:
                await self._converse()
            self._lose()
            await self._say_goodbye()
        finally:
            self._lose()
            self._end()

    @contextlib.contextmanager
    def mistakes_end_it(self) -> Iterator[None]:
        """What is raised here is a mistake of ours: it is logged, and ends this connection only."""
        try:
            yield
        except Exception:
            self.end_by_mistake()

    def end_by_mistake(self) -> None:
        """As `mistakes_end_it`, inside an `except`, where every read comes by: the block above costs 1 us."""
        log.exception("%s: closed because of a mistake of ours", self.peer.name)
        self.hang_up()

    async def _converse(self) -> None:
        data = await self._first_bytes()
        if data:
            self.front = self._recognise(data)
            self.front.on_wake = self._woken
        while data or (self.front is not None and self.front.halted):
            self.node.hear(self, data)
            self.node.conclude()
            if self._is_stranger and self.front is not None and not self.front.is_stranger:
                self._acquainted()
            self._measure_turn(len(data))
            if not await self._may_go_on():
                return
            while self._attends():
                await self.node.rounds.attend(self)
                if not await self._may_go_on():
                    return
            data = await self._read()

    async def _may_go_on(self) -> bool:
        """Wait until it may be read from. False: never."""
        if self.front is None or self.front.closed:
            return False
        if self.ahead or self.front.blocked:
            await self._wait_unblocked()
        if self.outbox.full:
            self._paused = True
            await self._nothing_left()
            self._paused = False
        return True

    def _attends(self) -> bool:
        """Whether it is one of those who are read from in rounds."""
        front = self.front
        assert front is not None
        is_plain = isinstance(self._socket, socket.socket) and HAS_ROUNDS
        return is_plain and not (self._ended or self._is_stranger or front.halted or front.waits)

    def hear(self) -> float:
        """In a round: read once, and have that worked through. Returns when it began."""
        try:
            data = self._socket.recv(self._read_size)
        except (BlockingIOError, InterruptedError):
            self.says_much = False
            return self.node.broker.now
        except OSError:
            data = b""
        self.reads += 1
        size = len(data)
        if not size:
            self._ended = True
            return self.node.broker.now
        self.octets_received += size
        self.says_much = size >= MUCH or size == self._read_size
        now = self.node.hear(self, data)
        if size >= READ_SIZE_MIN:
            self._measure_turn(size)
        return now

    def goes_on(self) -> bool:
        """Whether the next round may read from it, after what it said in this one was worked through."""
        front = self.front
        if front is None or self._ended or front.closed:
            self._lose()
            return False
        return not (self.ahead or self.outbox.full or front.blocked or front.halted or front.waits)

    def _measure_turn(self, size: int) -> None:
        """Read less at a time while working through it takes too long: others want their turn."""
        broker = self.node.broker
        took_s = broker.clock.now() - broker.now
        if took_s > TURN_S:
            self._read_size = max(READ_SIZE_MIN, int(size * TURN_S / took_s))
        elif self._read_size < READ_SIZE and not self._is_stranger:
            self._read_size = min(2 * self._read_size, READ_SIZE)

    async def _first_bytes(self) -> bytes:
        """Enough bytes to tell the protocol; empty: the peer went away, took too long, or is not admitted."""
        with trio.move_on_at(self._log_in_until):
            try:
                data = b"" if self._entrance.is_plain else await self._enter()
            except NotAdmitted as refusal:
                log.warning("%s: refused, %s", self.peer.name, refusal)
                return b""
            while self._entrance.undecided(data):
                more = await self._read()
                data += more
                if not more:
                    return data
            return data
        if not self._entrance.is_plain:
            limit_s = self.node.config.limits.handshake_timeout_s
            log.warning("%s: gave up, it said too little in %s s", self.peer.name, limit_s)
        return b""

    async def _enter(self) -> bytes:
        """Go through what comes before a protocol's first bytes; those that came along. Raises NotAdmitted."""
        handshake, certificates = Handshake(self._entrance, self._read), self._entrance.certificates
        if self._entrance.proxies is not None:
            self._come_from(await handshake.introduce(self.peer))
        if certificates is not None:
            assert isinstance(self._socket, socket.socket)
            self._socket = secured = await handshake.secure(self._socket, certificates)
            self.peer = attrs.evolve(self.peer, tls=certificates.facts(secured.tls))
        return handshake.data

    def _recognise(self, data: bytes) -> FrontEnd:
        protocol = self._entrance.protocol_of(data)
        if data.startswith(TLS_HELLO) and not protocol.fallback:  # one that is knows what to say
            log.warning("%s: detected TLS, which is not spoken here", self.peer.name)
        node = self.node
        node.broker.tick()
        self._log_in_timer = node.broker.timers.at(self._log_in_until, self._took_too_long)
        return protocol.factory(node.broker, node.config, self.outbox, self.peer, self._connected_since)

    async def _read(self) -> bytes:
        """The next bytes; empty at the end. Lets other tasks run whether or not it has to wait."""
        await trio.lowlevel.checkpoint()
        if self.front is not None:
            if self.front.halted:
                return b""
            if self.front.waits:
                return await self._read_meanwhile()
        return await self._receive(self._read_size)

    async def _read_meanwhile(self) -> bytes:
        """A little, until the front-end is woken; then nothing: it is halted, and goes on with what it has."""
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
                if isinstance(failure, ssl.SSLError):
                    log.warning("%s: broken off, TLS: %s", self.peer.name, reason(failure))
                return b""

    async def _wait_unblocked(self) -> None:
        self._unblocked = unblocked = trio.Event()
        await unblocked.wait()

    @property
    def octets_sent(self) -> int:
        return self.outbox.gone

    @property
    def octets_waiting(self) -> int:
        return self.outbox.size

    def has_input(self) -> bool:
        """Whether bytes have arrived that will be read, and have not been yet."""
        if self._paused or self._unblocked is not None:
            return False
        if self.dismissed:
            return True
        has_more = isinstance(self._socket, SecuredSocket) and self._socket.has_more
        halted = self.front is not None and self.front.halted
        return halted or has_more or is_readable(self._socket)

    def alarm(self, reason: str | None) -> None:
        """An alarm was raised or, with None, the last one cleared."""
        if self.front is not None:
            with self.mistakes_end_it():
                self.front.alarm(reason)
            self.watch_deadline()
            self._go_on()

    def _go_on(self) -> None:
        """Read again, unless the front-end has a reason not to."""
        if self.front is not None and not self.front.blocked:
            self._unblock()

    def _unblock(self) -> None:
        if self._unblocked is not None:
            self._unblocked.set()
            self._unblocked = None

    def shut_down(self, reason: str) -> None:
        """Say goodbye in the protocol's way, and listen for the answer; before the protocol is known, just hang up."""
        if self.front is not None:
            with self.mistakes_end_it():
                self.front.shut_down(reason)
            self.watch_deadline()
            self.ahead = False
            self._unblock()
        if self.front is None or self.front.closed:
            self.hang_up()

    def hang_up(self) -> None:
        """End the conversation; what is in the outbox by the end of this batch is still sent."""
        self.node.rounds.dismiss(self.number)
        self._scope.cancel()

    # Time.

    def watch_deadline(self) -> None:
        """Keep a timer on the front-end's deadline. One that moved to later is found out when it fires."""
        try:
            deadline = None if self.front is None else self.front.due_at()
        except Exception:
            self.end_by_mistake()
            return
        timer = self._timer
        if deadline is None or (timer is not None and not timer.cancelled and timer.at <= deadline):
            return
        self.node.broker.timers.cancel(timer)
        self._timer = self.node.broker.timers.at(deadline, self._on_time)

    def _on_time(self, now: float) -> None:
        if self.front is None:
            return
        with self.mistakes_end_it():
            expires_at = self.front.expires_at
            self.front.on_due(now)
            if expires_at != self.front.expires_at:  # it says goodbye, and is to hear the answer
                self.ahead = False
                self._go_on()
        if self.front.closed:
            self.hang_up()
        else:
            self.watch_deadline()

    # Strangers.

    def _come_from(self, peer: Peer) -> None:
        """It is known now who the client is. Raises NotAdmitted."""
        self.peer = peer
        door, limits = self.node.door, self.node.config.limits
        if why := door.refusal_from(peer.host, peer.loopback, limits, self.node.broker.clock.now()):
            raise NotAdmitted(why)
        door.came_from(self, peer.host, peer.loopback)

    def _acquainted(self) -> None:
        """Its user has logged in."""
        self._is_stranger = False
        self._read_size = READ_SIZE
        self._leave_strangers()

    def _leave_strangers(self) -> None:
        self.node.door.strangers.leave(self)
        self.node.broker.timers.cancel(self._log_in_timer)

    def turn_away(self) -> None:
        """Others need the place: hang up, and do not wait for anything."""
        self._goodbye_s = 0.0
        self._leave_strangers()
        self.hang_up()

    def _took_too_long(self, now: float) -> None:
        """The time to log in is over, whatever it does meanwhile."""
        if self.front is None or not self.front.is_stranger:
            return
        with self.mistakes_end_it():
            self.front.on_deadline(now)
        self.hang_up()

    # Waiting for the disk.

    def hold(self, commit: int) -> None:
        """What is in the outbox now, and what follows, is sent when that commit is on disk: `landed` says so."""
        if not self._held or self._held[-1][0] < commit:
            self._held.append((commit, []))

    def landed(self, commit: int, behind: bool) -> bool:
        """All up to a commit is on disk. Whether there is more to wait for; never, if it has ended."""
        while self._held and self._held[0][0] <= commit:
            self._backlog.add(self._held.popleft()[1])
        self._send_backlog()
        if not self._held and self._none_held is not None:
            self._none_held.set()
        if not behind:
            self.keep_reading()
        return bool(self._held) or self.ahead

    def keep_reading(self) -> None:
        """Even if the disk has not caught up."""
        self.ahead = False
        self._go_on()

    def drop_held(self) -> None:
        """The disk has failed: what is held is not true, and will not be."""
        self._held.clear()
        if self._none_held is not None:
            self._none_held.set()

    # Sending.

    def flush(self) -> None:
        """Hand the outbox to the operating system; what it does not take now follows in a task of its own."""
        outbox = self.outbox
        pieces = outbox.take()
        if self._held:
            self._held[-1][1].extend(joined(pieces, self._socket))
        elif self._backlog or self._all_sent is not None or outbox.size > JOINED_MAX:
            self._backlog.add(joined(pieces, self._socket))
            self._send_backlog()
        elif pieces:
            self._send_at_once(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _send_at_once(self, octets: bytes) -> None:
        """Nothing waits before them, and the system takes them all, as a rule. What it leaves is a backlog."""
        piece = memoryview(octets)
        try:
            count = self._socket.send(piece)
        except OSError:  # to be raised again, if the peer has gone
            count = 0
        else:
            self.writes += 1
        if count < len(octets):
            self._backlog.add([piece[count:]])
        if count and self.outbox.sent(count):
            self._drained()
        if self._backlog:
            self._send_backlog()

    def _send_backlog(self) -> None:
        if self._all_sent is None and not self._send():
            self._all_sent = trio.Event()
            self.node.start(self._drain)

    def _send(self) -> bool:
        """Send until nothing is left (True), or the system takes no more, or it is the others' turn (False)."""
        until = self.outbox.gone + SENT_MAX
        while self._backlog:
            if self.outbox.gone >= until:
                return False
            try:
                count = self._backlog.send(self._socket)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                self._backlog.clear()
                self.hang_up()
                return True
            self.writes += 1
            if self.outbox.sent(count):
                self._drained()
        return True

    def _drained(self) -> None:
        """Deliveries may go on."""
        if self.front is not None:
            with self.mistakes_end_it():
                self.front.drained()
            self.watch_deadline()

    async def _nothing_left(self) -> None:
        """Wait until everything is with the operating system."""
        if self._held:
            self._none_held = trio.Event()
            await self._none_held.wait()
            self._none_held = None
        if self._all_sent is not None:
            await self._all_sent.wait()

    async def _drain(self) -> None:
        while not self._send():
            self.node.work()
            try:
                await trio.lowlevel.wait_writable(self._socket)
            except (OSError, trio.ClosedResourceError):
                self._backlog.clear()
        assert self._all_sent is not None
        self._all_sent.set()
        self._all_sent = None
        self.node.work()

    # The end.

    def _lose(self) -> None:
        """The front-end releases what it held, at once: the goodbye may take its time."""
        if self.front is not None:
            self.node.broker.timers.cancel(self._timer)
            front, self.front = self.front, None
            with self.mistakes_end_it():
                self.node.lose(front)

    async def _say_goodbye(self) -> None:
        """Let the peer read our last bytes: a socket closed with unread input would take them back."""
        until = trio.current_time() + self._goodbye_s
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
        self._leave_strangers()
        self.node.forget(self)


def is_readable(source: socket.socket | SecuredSocket) -> bool:
    """Whether reading, or accepting, would not have to wait."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(0))
