"""A 0-10 client without a transport: controls and commands to bytes, bytes to what the broker said.

client = Peer().open()                        # in memory, see peer.py; over a socket, see over_socket.py
session = client.attach("s1")                 # attach and command-point
session.declare("q")
session.publish("q", b"hello")                -> the command's id; completed once `id in session.completed`
session.sync()
inbox = session.subscribe("q", messages=10)   # window mode, unlimited octets
inbox.get().body == b"hello"
session.accept(inbox.taken)                   # or release, reject
session.call(c.QueueQuery("q"))               -> its result; SessionEnded if the broker has ended the session
session.detach(); client.close()

Whatever comes is worked in as it arrives. `client.heard` has all of it in order, as (channel, control or command);
`session.taken()` what came for the session since the last look.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from struct import pack, unpack_from

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command, Control
from leveret.protocols.amqp010.codec.frames import append_frames, control_frame
from leveret.protocols.amqp010.codec.sequences import SequenceSet

HEADER = b"AMQP\x01\x01\x00\x0a"
FOREVER = 0xFFFF_FFFF  # as credit
FIRST_FRAME, LAST_FRAME, FIRST_SEGMENT, LAST_SEGMENT = 2, 1, 8, 4
WHOLE = 0x0F


def frame(
    payload: bytes, channel: int = 0, flags: int = WHOLE, segment: int = 0, track: int | None = None
) -> bytes:
    """One frame as it is said; controls go on track 0, all else on track 1, unless it is said."""
    number = (0 if segment == 0 else 1) if track is None else track
    return pack(">BBHBBHI", flags, segment, 12 + len(payload), 0, number, channel, 0) + payload


def ids(*ranges: int | tuple[int, int]) -> SequenceSet:
    return SequenceSet.of(*((each, each) if isinstance(each, int) else each for each in ranges))


def each(sequence_set: SequenceSet | None) -> list[int]:
    return [] if sequence_set is None else list(sequence_set)


class SessionEnded(Exception):  # noqa: N818
    """The broker has ended the session; `exception` is the execution.exception, if one came."""

    def __init__(self, exception: c.ExecutionException | None, detached: c.SessionDetached | None) -> None:
        super().__init__(str(exception or detached))
        self.exception = exception
        self.detached = detached

    @property
    def code(self) -> int | None:
        return None if self.exception is None else self.exception.error_code


class ConnectionEnded(Exception):  # noqa: N818
    """The broker has closed the connection, or left it."""

    def __init__(self, close: c.ConnectionClose | None) -> None:
        super().__init__(str(close))
        self.close = close


class Received:
    """A message that has come."""

    def __init__(
        self, id: int, transfer: c.MessageTransfer, structs: list[object], body: bytes | None
    ) -> None:
        self.id = id
        self.transfer = transfer
        self.structs = structs
        self.body = body or b""
        self.has_body = body is not None

    def _struct(self, kind: type) -> object:
        return next((struct for struct in self.structs if isinstance(struct, kind)), kind())

    @property
    def delivery(self) -> c.DeliveryProperties:
        found = self._struct(c.DeliveryProperties)
        assert isinstance(found, c.DeliveryProperties)
        return found

    @property
    def properties(self) -> c.MessageProperties:
        found = self._struct(c.MessageProperties)
        assert isinstance(found, c.MessageProperties)
        return found

    @property
    def headers(self) -> dict:
        return self.properties.application_headers or {}

    def __repr__(self) -> str:
        return f"Received({self.id}, {self.transfer.destination!r}, {self.structs}, {self.body!r})"


class Inbox:
    """What has come for one subscription."""

    def __init__(self, session: ClientSession, name: str) -> None:
        self.session = session
        self.name = name
        self.waiting: deque[Received] = deque()
        self.taken: list[int] = []  # ids of what `get` gave and nobody has settled here

    def get(self) -> Received:
        """The next message. Fails if there is none."""
        self.session.until(lambda: bool(self.waiting), f"a message for {self.name!r}")
        message = self.waiting.popleft()
        self.taken.append(message.id)
        return message

    def all(self) -> list[Received]:
        """What is there."""
        self.session.client.read()
        found = list(self.waiting)
        self.waiting.clear()
        self.taken += [message.id for message in found]
        return found

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.all()]

    def __iter__(self) -> Iterator[Received]:
        return iter(self.all())


class ClientSession:
    """One session, seen from the client."""

    def __init__(self, client: Client, channel: int, name: bytes) -> None:
        self.client = client
        self.channel = channel
        self.name = name
        self.next_id = 0  # of the next command we send
        self.next_incoming = 0  # of the next command that comes
        self.completed = SequenceSet()  # of ours, as told
        self.results: dict[int, object] = {}
        self.inboxes: dict[str, Inbox] = {}
        self.executed = SequenceSet()  # of theirs
        self.attached = False
        self.exception: c.ExecutionException | None = None
        self.detached: c.SessionDetached | None = None
        self.answers = True  # a detach with detached
        self.heard: list[Control | Command | Received] = []

    # Sending.

    def control(self, control: Control) -> None:
        self.client.send_bytes(control_frame(self.channel, control.encode()))

    def send(
        self,
        command: Command,
        sync: bool = False,
        structs: Iterable[object] | None = None,
        body: bytes | None = None,
    ) -> int:
        """A command; with header structs and a body it is a transfer. Answers its id."""
        header = None if structs is None else b"".join(each.encode() for each in structs)
        pieces: list[bytes] = []
        append_frames(pieces, self.channel, command.encode(sync), header, body, self.client.frame_max)
        self.client.send_bytes(b"".join(pieces))
        id = self.next_id
        self.next_id = (id + 1) & 0xFFFF_FFFF
        return id

    def call(self, command: Command) -> object:
        """Send it with sync and wait until it is complete; answers its result, or None."""
        id = self.send(command, sync=True)
        self.wait(id)
        return self.results.pop(id, None)

    def wait(self, id: int) -> None:
        """Until the broker says that the command is complete."""
        self.until(lambda: id in self.completed, f"completion of {id}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.client.until(lambda: condition() or self.is_over, what)
        if self.is_over and not condition():
            raise SessionEnded(self.exception, self.detached)

    @property
    def is_over(self) -> bool:
        return self.exception is not None or self.detached is not None

    def sync(self) -> None:
        """Wait until everything is complete."""
        self.call(c.ExecutionSync())

    def ended(self) -> SessionEnded:
        """How the broker has ended it."""
        self.client.until(lambda: self.is_over, "the end of the session")
        return SessionEnded(self.exception, self.detached)

    # Verbs.

    def declare(self, queue: str, arguments: dict | None = None, **options: object) -> None:
        self.call(c.QueueDeclare(queue=queue, arguments=arguments, **options))

    def exchange(self, name: str, type: str, arguments: dict | None = None, **options: object) -> None:
        self.call(c.ExchangeDeclare(exchange=name, type=type, arguments=arguments, **options))

    def bind(self, queue: str, exchange: str, key: str = "", arguments: dict | None = None) -> None:
        self.call(c.ExchangeBind(queue=queue, exchange=exchange, binding_key=key, arguments=arguments))

    def publish(
        self,
        key: str,
        body: bytes = b"",
        exchange: str = "",
        properties: c.MessageProperties | None = None,
        delivery: c.DeliveryProperties | None = None,
        accept_mode: int = c.ACCEPT_MODE_NONE,
        sync: bool = False,
    ) -> int:
        """A transfer; `delivery` replaces the delivery properties that have the key only."""
        structs: list[object] = [delivery or c.DeliveryProperties(routing_key=key)]
        if properties is not None:
            structs.append(properties)
        transfer = c.MessageTransfer(exchange, accept_mode, c.ACQUIRE_MODE_PRE_ACQUIRED)
        return self.send(transfer, sync, structs, body)

    def subscribe(
        self,
        queue: str,
        destination: str | None = None,
        messages: int | None = FOREVER,
        octets: int = FOREVER,
        accept_mode: int = c.ACCEPT_MODE_EXPLICIT,
        acquire_mode: int = c.ACQUIRE_MODE_PRE_ACQUIRED,
        flow_mode: int = c.FLOW_MODE_WINDOW,
        **options: object,
    ) -> Inbox:
        """Subscribe and give credit; with messages=None there is no credit yet."""
        name = queue if destination is None else destination
        inbox = self.inboxes[name] = Inbox(self, name)
        self.call(
            c.MessageSubscribe(
                queue=queue, destination=name, accept_mode=accept_mode, acquire_mode=acquire_mode, **options
            )
        )
        self.call(c.MessageSetFlowMode(name, flow_mode))
        if messages is not None:
            self.flow(name, messages, octets)
        return inbox

    def flow(self, destination: str, messages: int, octets: int = FOREVER) -> None:
        self.send(c.MessageFlow(destination, c.CREDIT_UNIT_BYTE, octets))
        self.call(c.MessageFlow(destination, c.CREDIT_UNIT_MESSAGE, messages))

    def accept(self, *transfers: int | list[int]) -> None:
        self.call(c.MessageAccept(_set_of(transfers)))

    def release(self, *transfers: int | list[int], redelivered: bool = False) -> None:
        self.call(c.MessageRelease(_set_of(transfers), redelivered))

    def reject(self, *transfers: int | list[int], code: int = 0, text: str = "") -> None:
        self.call(c.MessageReject(_set_of(transfers), code, text))

    def acquire(self, *transfers: int | list[int]) -> list[int]:
        result = self.call(c.MessageAcquire(_set_of(transfers)))
        assert isinstance(result, c.Acquired), result
        return each(result.transfers)

    def complete(self, *transfers: int | list[int]) -> None:
        """session.completed for what came, with all that was completed before; without ids: for all of it."""
        if not transfers and self.next_incoming:
            self.executed.add_range(0, self.next_incoming - 1)
        for id in _flat(transfers):
            self.executed.add(id)
        self.control(c.SessionCompleted(self.executed, False))

    def point(self) -> None:
        """Say where our commands begin."""
        self.control(c.SessionCommandPoint(self.next_id, 0))

    def detach(self) -> None:
        self.control(c.SessionDetach(self.name))
        self.client.until(lambda: self.detached is not None, "detached")

    def taken(self, *kinds: type) -> list:
        """What came since the last look, in order; of these kinds only, the others are passed over."""
        self.client.read()
        heard, self.heard = self.heard, []
        return [what for what in heard if not kinds or isinstance(what, kinds)]

    # Hearing.

    def hear_control(self, control: Control) -> None:
        self.heard.append(control)
        if isinstance(control, c.SessionAttached):
            self.attached = True
        elif isinstance(control, c.SessionDetached):
            self.attached, self.detached = False, control
        elif isinstance(control, c.SessionDetach) and self.answers:
            self.detached = c.SessionDetached(self.name, c.DETACH_CODE_NORMAL)
            self.control(self.detached)
        elif isinstance(control, c.SessionCommandPoint):
            self.next_incoming = control.command_id or 0
        elif isinstance(control, c.SessionCompleted):
            for lower, upper in (control.commands or SequenceSet()).ranges:
                self.completed.add_range(lower, upper)

    def hear_command(self, command: Command, structs: list[object], body: bytes | None) -> None:
        id = self.next_incoming
        self.next_incoming = (id + 1) & 0xFFFF_FFFF
        if isinstance(command, c.MessageTransfer):
            message = Received(id, command, structs, body)
            self.heard.append(message)
            name = command.destination or ""
            self.inboxes.setdefault(name, Inbox(self, name)).waiting.append(message)
            return
        self.heard.append(command)
        self.executed.add(id)
        if isinstance(command, c.ExecutionResult):
            self.results[command.command_id or 0] = command.value
        elif isinstance(command, c.ExecutionException):
            self.exception = command


def _flat(transfers: Iterable[int | list[int]]) -> Iterator[int]:
    for one in transfers:
        yield from [one] if isinstance(one, int) else one


def _set_of(transfers: Iterable[int | list[int]]) -> SequenceSet:
    return ids(*sorted(_flat(transfers)))


class Client(ABC):
    """One connection, seen from the client. Whoever has a transport subclasses it."""

    def __init__(self) -> None:
        self.header = b""  # the protocol header, or whatever came that is no frame
        self.start: c.ConnectionStart | None = None
        self.tune: c.ConnectionTune | None = None
        self.secure: c.ConnectionSecure | None = None
        self.open_ok: c.ConnectionOpenOk | None = None
        self.closed: c.ConnectionClose | None = None  # by the broker
        self.close_ok: c.ConnectionCloseOk | None = None
        self.answers = True  # a close with close-ok
        self.heartbeats = 0
        self.frame_max = 65535
        self.sessions: dict[int, ClientSession] = {}
        self.heard: list[tuple[int, object]] = []
        self._buffer = b""
        self._segments: dict[tuple[int, int], list[tuple[int, bytes]]] = {}

    @abstractmethod
    def send_bytes(self, octets: bytes) -> None:
        """Send."""

    @abstractmethod
    def read(self) -> None:
        """Work in what has come."""

    @abstractmethod
    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Read until that is so, which fails if it will not be; or until the connection is over."""

    # Hearing.

    def hear(self, octets: bytes) -> None:
        buffer, at = self._buffer + octets, 0
        if not self.header and len(buffer) >= 8:
            self.header, at = buffer[:8], 8
        while self.header and len(buffer) - at >= 12:
            flags, segment, size, _, track, channel, _ = unpack_from(">BBHBBHI", buffer, at)
            if len(buffer) - at < size:
                break
            assert size >= 12
            self._frame(flags, segment, track, channel, buffer[at + 12 : at + size])
            at += size
        self._buffer = buffer[at:]

    def _frame(self, flags: int, segment: int, track: int, channel: int, payload: bytes) -> None:
        segments = self._segments.setdefault((channel, track), [])
        assert bool(flags & FIRST_SEGMENT) is (not segments or segments[0][0] == segment)
        if flags & FIRST_FRAME:
            segments.append((segment, payload))
        else:
            assert segments[-1][0] == segment
            segments[-1] = (segment, segments[-1][1] + payload)
        if flags & LAST_FRAME and flags & LAST_SEGMENT:
            del self._segments[channel, track]
            self._assembly(channel, dict(segments))

    def _assembly(self, channel: int, segments: dict[int, bytes]) -> None:
        if 0 in segments:
            control = c.control_at(segments[0], 0, len(segments[0]))
            self.heard.append((channel, control))
            if control.CLASS_CODE == c.ConnectionStart.CLASS_CODE:
                assert channel == 0
                self._connection_control(control)
            elif channel in self.sessions:
                self.sessions[channel].hear_control(control)
            return
        command, _ = c.command_at(segments[1], 0, len(segments[1]))
        self.heard.append((channel, command))
        structs, header, at = [], segments.get(2, b""), 0
        while at < len(header):
            struct, at = c.struct_at(header, at, len(header))
            structs.append(struct)
        if channel in self.sessions:
            self.sessions[channel].hear_command(command, structs, segments.get(3))

    def _connection_control(self, control: Control) -> None:
        if isinstance(control, c.ConnectionHeartbeat):
            self.heartbeats += 1
        elif isinstance(control, c.ConnectionStart):
            self.start = control
        elif isinstance(control, c.ConnectionSecure):
            self.secure = control
        elif isinstance(control, c.ConnectionTune):
            self.tune = control
        elif isinstance(control, c.ConnectionOpenOk):
            self.open_ok = control
        elif isinstance(control, c.ConnectionCloseOk):
            self.close_ok = control
        elif isinstance(control, c.ConnectionClose):
            self.closed = control
            if self.answers:
                self.control(c.ConnectionCloseOk())

    @property
    def is_over(self) -> bool:
        return self.closed is not None or self.close_ok is not None

    # Saying.

    def control(self, control: Control, channel: int = 0) -> None:
        self.send_bytes(control_frame(channel, control.encode()))

    def greet(self) -> c.ConnectionStart:
        """Our header; theirs, and what they begin with."""
        self.send_bytes(HEADER)
        self.until(lambda: self.start is not None, "start")
        assert self.header == HEADER
        assert self.start is not None
        return self.start

    def log_in(self, user: str = "guest", password: str = "guest") -> c.ConnectionTune:
        self.greet()
        response = f"\0{user}\0{password}".encode()
        self.control(c.ConnectionStartOk({"product": "test"}, "PLAIN", response, "en_US"))
        self.until(lambda: self.tune is not None, "tune")
        if self.tune is None:
            raise ConnectionEnded(self.closed)
        return self.tune

    def open(
        self,
        user: str = "guest",
        password: str = "guest",
        virtual_host: str = "",
        heartbeat: int = 0,
        frame_max: int = 65535,
    ):
        self.log_in(user, password)
        self.frame_max = frame_max
        self.control(c.ConnectionTuneOk(32767, frame_max, heartbeat))
        self.control(c.ConnectionOpen(virtual_host, [], True))
        self.until(lambda: self.open_ok is not None, "open-ok")
        if self.open_ok is None:
            raise ConnectionEnded(self.closed)
        return self

    def attach(self, name: str | bytes = "session", channel: int | None = None, force: bool = False):
        """A session, on the lowest free channel from 1 on. Raises SessionEnded if it is refused."""
        octets = name.encode() if isinstance(name, str) else name
        number = next(n for n in range(1, 65536) if n not in self.sessions) if channel is None else channel
        session = self.sessions[number] = ClientSession(self, number, octets)
        session.control(c.SessionAttach(octets, force))
        session.point()
        session.until(lambda: session.attached, "attached")
        return session

    def close(self) -> None:
        self.control(c.ConnectionClose(c.CLOSE_CODE_NORMAL, "bye"))
        self.until(lambda: self.close_ok is not None, "close-ok")
