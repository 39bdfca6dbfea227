"""The other end of a connection under test, joined in memory: it says methods and reads what comes back."""

from struct import unpack_from

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import FieldTable, Method, content_frames, method_at, method_frame
from leveret.protocols.amqp091.machine.connection import (
    AmqpError,
    Connection,
    Handler,
    State,
    Traffic,
    Tuning,
)
from leveret.protocols.amqp091.machine.contract import Run
from leveret.protocols.shared.machine.contract import Wait
from tests.harness.machine import Logins, Notes, Pieces

HEADER = b"AMQP\x00\x00\x09\x01"
CAPABLE: FieldTable = {"capabilities": {"authentication_failure_close": True, "connection.blocked": True}}
Frame = tuple[int, int, bytes]


class Recorder(Notes, Logins, Handler):
    """Notes every call."""

    wait = Wait.WAIT

    def __init__(self) -> None:
        Notes.__init__(self)
        Logins.__init__(self)

    def on_start_ok(
        self, mechanism: str, response: bytes, client_properties: FieldTable
    ) -> bytes | Wait | None:
        self.note("start_ok", mechanism, response, client_properties)
        return self.next_answer()

    def on_secure_ok(self, response: bytes) -> bytes | Wait | None:
        self.note("secure_ok", response)
        return self.next_answer()

    def on_checked(self) -> bytes | Wait | None:
        if self.checking:
            return Wait.WAIT
        self.note("checked")
        return self.next_answer()

    def on_open(self, virtual_host: str) -> None:
        self.note("open", virtual_host)

    def on_update_secret(self, secret: bytes, reason: str) -> Wait | None:
        self.note("update_secret", secret, reason)
        return Wait.WAIT if self.checking else None

    def on_channel_open(self, channel: int) -> None:
        self.note("channel_open", channel)

    def on_channel_closed(self, channel: int) -> None:
        self.note("channel_closed", channel)

    def on_method(self, channel: int, method: Method) -> None:
        self.note("method", channel, method)

    def on_publish(self, channel: int, publish: bytes, properties: bytes, body: bytes) -> None:
        self.note("publish", channel, publish, properties, body)

    def on_run(self, channel: int, run: Run, first: int) -> int:
        return 0

    def on_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        self.note("ack", channel, delivery_tag, multiple)

    def on_closed(self) -> None:
        self.note("closed")


class Heard(Traffic):
    """The traffic of a connection, told to its recorder: one object cannot have two compiled contracts."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def on_publish(self, channel: int, publish: bytes, properties: bytes, body: bytes) -> None:
        self.recorder.on_publish(channel, publish, properties, body)

    def on_run(self, channel: int, run: Run, first: int) -> int:
        return self.recorder.on_run(channel, run, first)

    def on_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        self.recorder.on_ack(channel, delivery_tag, multiple)


class Unheeding(Traffic):
    """Takes all traffic and notes none, for tests that count what the machine itself does."""

    def on_publish(self, channel: int, publish: bytes, properties: bytes, body: bytes) -> None:
        pass

    def on_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        pass

    def on_acks(self, channel: int, tags: list[int]) -> None:
        pass


class Peer:
    """A client's end: `says` methods or bytes, `hears` methods."""

    def __init__(
        self, tuning: Tuning | None = None, handler: Recorder | None = None, traffic: Traffic | None = None
    ) -> None:
        self.handler = handler or Recorder()
        self.outbox = Pieces()
        self.now = 0.0
        self.connection = Connection(
            self.handler, traffic or Heard(self.handler), tuning or Tuning(), self.outbox, self.now
        )

    def says(self, *what: bytes | tuple[int, Method]) -> "Peer":
        data = b"".join(
            item if isinstance(item, bytes) else method_frame(item[0], item[1].encode()) for item in what
        )
        self.connection.receive(data, self.now)
        return self

    def gone(self) -> bool:
        return self.connection.closed

    def frames(self) -> list[Frame]:
        data = self.outbox.take()
        found = []
        while data:
            kind, channel, size = unpack_from(">BHI", data)
            assert data[7 + size] == 0xCE
            found.append((kind, channel, data[7 : 7 + size]))
            data = data[8 + size :]
        return found

    def hears(self) -> list[tuple[int, Method]]:
        return [
            (channel, method_at(payload, 0, len(payload)))
            for kind, channel, payload in self.frames()
            if kind == 1
        ]

    def close_heard(self) -> m.ConnectionClose:
        """The connection.close that must be the only thing said."""
        [(channel, method)] = self.hears()
        assert channel == 0
        assert isinstance(method, m.ConnectionClose)
        return method

    def channel_close_heard(self, channel: int = 1) -> m.ChannelClose:
        """The channel.close that must be the only thing said."""
        [(number, method)] = self.hears()
        assert number == channel
        assert isinstance(method, m.ChannelClose)
        return method


def start_ok(properties: FieldTable | None = None, mechanism: str = "PLAIN") -> tuple[int, Method]:
    return 0, m.ConnectionStartOk(
        CAPABLE if properties is None else properties, mechanism, b"\0guest\0guest", "en_US"
    )


def tune_ok(channel_max: int = 2047, frame_max: int = 131_072, heartbeat: int = 60) -> tuple[int, Method]:
    return 0, m.ConnectionTuneOk(channel_max, frame_max, heartbeat)


def opened(
    tuning: Tuning | None = None,
    channels: int = 1,
    handler: Recorder | None = None,
    traffic: Traffic | None = None,
    **tuned: int,
) -> Peer:
    """An open connection with that many channels, nothing noted and nothing unread."""
    peer = Peer(tuning, handler, traffic).says(
        HEADER, start_ok(), tune_ok(**tuned), (0, m.ConnectionOpen("/"))
    )
    for number in range(1, channels + 1):
        peer.says((number, m.ChannelOpen()))
    assert peer.connection.state is State.OPEN
    peer.handler.taken()
    peer.frames()
    return peer


def in_state(state: State) -> Peer:
    """A peer whose connection is in that state; in an open one channel 1 is open."""
    peer = Peer()
    way: dict[State, tuple[bytes | tuple[int, Method], ...]] = {
        State.AWAITING_HEADER: (),
        State.STARTING: (HEADER,),
        State.SECURING: (HEADER, start_ok()),
        State.CHECKING: (HEADER, start_ok()),
        State.TUNING: (HEADER, start_ok()),
        State.OPENING: (HEADER, start_ok(), tune_ok()),
        State.OPEN: (HEADER, start_ok(), tune_ok(), (0, m.ConnectionOpen("/")), (1, m.ChannelOpen())),
    }
    peer.handler.checking = state is State.CHECKING
    if state is State.SECURING:
        peer.handler.challenges.append(b"who?")
    peer.says(*way.get(state, way[State.OPEN]))
    if state is State.CLOSING:
        peer.connection.fail(AmqpError(m.CONNECTION_FORCED, "for the test"))
    elif state is State.CLOSED:
        peer.connection.lost()
    assert peer.connection.state is state
    peer.handler.taken()
    peer.frames()
    return peer


def content(
    body: bytes, properties: bytes = b"\x10\x00\x02", channel: int = 1, frame_max: int = 131_072
) -> bytes:
    return b"".join(content_frames(channel, properties, body, frame_max))


def message(
    body: bytes,
    key: str = "key",
    properties: bytes = b"\x10\x00\x02",
    channel: int = 1,
    frame_max: int = 131_072,
) -> bytes:
    """basic.publish with its content."""
    publish = method_frame(channel, m.BasicPublish("exchange", key).encode())
    return publish + content(body, properties, channel, frame_max)


def publish_arguments(key: str = "key") -> bytes:
    return m.BasicPublish("exchange", key).encode()[4:]
