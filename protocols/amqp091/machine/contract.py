"""The interfaces that an AMQP 0-9-1 connection needs from outside: a handler for its calls, and its limits.

Messages and acks, which are by far most calls, have an interface of their own: `Traffic`.
"""

from abc import ABC, abstractmethod
from typing import Final

import attrs
from mypy_extensions import mypyc_attr

from leveret.protocols.amqp091.codec.methods import NOT_ALLOWED
from leveret.protocols.amqp091.codec.wire import CONTENT_START, FRAME_OVERHEAD, AmqpError, FieldTable, Method
from leveret.protocols.shared.machine.contract import Wait

METHOD_SIZE: Final = 4  # bytes of a method's numbers, in front of its arguments
PUBLISH_AROUND: Final = FRAME_OVERHEAD + METHOD_SIZE  # bytes of a publish's frame besides its arguments
# Bytes of a message's three frames besides the arguments, the properties and the body: the header has a frame's end,
# the body a frame's two.
CONTENT_AROUND: Final = PUBLISH_AROUND + CONTENT_START.size + 1 + FRAME_OVERHEAD


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(ABC):
    """The receiver of a connection's calls. All but on_channel_closed and on_closed may raise AmqpError.

    An error ends the channel or the connection, as its code says; on channel 0 always the connection. A handler may
    call `send`, `fail` and `fail_channel` from inside any of these.
    """

    __slots__ = ()

    @abstractmethod
    def on_start_ok(
        self, mechanism: str, response: bytes, client_properties: FieldTable
    ) -> bytes | Wait | None:
        """Called when the client has chosen an offered mechanism. Return the next challenge, or None once the login has
        succeeded.

        Raises AmqpError 403 for a refused login. After `Wait` the connection calls `on_checked` each time it receives
        something, which may be no bytes at all, and handles none of it before it gets another answer.
        """

    @abstractmethod
    def on_secure_ok(self, response: bytes) -> bytes | Wait | None:
        """Called when the client has answered the challenge. Return a value as on_start_ok does."""

    def on_checked(self) -> bytes | Wait | None:
        """Return the result of the password check, as on_start_ok does."""
        raise NotImplementedError

    @abstractmethod
    def on_open(self, virtual_host: str) -> None:
        """Called when the client opens this virtual host, after the limits were negotiated. open-ok is sent after the
        call."""

    @abstractmethod
    def on_update_secret(self, secret: bytes, reason: str) -> Wait | None:
        """Called with a new secret of the client. update-secret-ok is sent after the call, or by `secret_updated` after
        `Wait`."""

    @abstractmethod
    def on_channel_open(self, channel: int) -> None:
        """Called when a channel opens; open-ok is sent after the call. An error ends the connection."""

    def release_some_of(self, channel: int) -> bool:
        """Release a part of what a channel holds; return whether there was any. It has ended, apart from that.

        Called until it returns False, before `on_channel_closed`, which releases everything else.
        """
        return False

    @abstractmethod
    def on_channel_closed(self, channel: int) -> None:
        """Called once when a channel has ended, whatever ended it, before the peer is told."""

    @abstractmethod
    def on_method(self, channel: int, method: Method) -> None:
        """Called with any other method that a client may send, on an open channel."""

    def release_some(self) -> bool:
        """Release a part of what the connection holds; return whether there was any. It has ended, apart from that.

        Called until it returns False, after all channels and before `on_closed`, which releases everything else.
        """
        return False

    @abstractmethod
    def on_closed(self) -> None:
        """Called once when the connection has ended in any way, after its channels and before the peer is told."""


class Run:
    """A run is the whole messages of one channel that came in one read, in order, each with a body in one frame.

    `bodies` has an entry for each message. So have `publishes` and `properties`, if messages `differ` in more than
    their bodies; else these have one entry for all. Each is what `Traffic.on_publish` gets; what a message repeats is
    the same object.
    """

    __slots__ = ("bodies", "differ", "properties", "publishes")

    def __init__(
        self, publishes: list[bytes], properties: list[bytes], bodies: list[bytes], differ: bool
    ) -> None:
        self.publishes = publishes
        self.properties = properties
        self.bodies = bodies
        self.differ = differ  # in more than their bodies

    def octets(self, first: int) -> int:
        """Return the bytes that the messages from number `first` on have had on the wire."""
        octets = CONTENT_AROUND * (len(self.bodies) - first)
        if not self.differ:
            alike = len(self.publishes[0]) + len(self.properties[0])
            return octets + sum([alike + len(body) for body in self.bodies[first:]])
        for publish, properties, body in zip(
            self.publishes[first:], self.properties[first:], self.bodies[first:], strict=True
        ):
            octets += len(publish) + len(properties) + len(body)
        return octets


@mypyc_attr(allow_interpreted_subclasses=True)
class Traffic(ABC):
    """The receiver of messages and acks on open channels. An AmqpError ends the channel or connection, as in
    `Handler`."""

    __slots__ = ()

    @abstractmethod
    def on_publish(self, channel: int, publish: bytes, properties: bytes, body: bytes) -> None:
        """Called with a whole message. `publish` holds the undecoded arguments of basic.publish, unchecked.

        It is the same object for as long as a channel repeats the same publish. `properties` are the content header
        from its flags on, unchecked as well.
        """

    def on_begun(self, channel: int, publish: bytes) -> None:
        """Called once the header of a message has come, and its body has not: may it be published? An AmqpError refuses
        it before anything of its body is kept."""

    def on_run(self, channel: int, run: Run, first: int) -> int:
        """Take messages of a run, from number `first` on. Return how many were taken.

        Only messages that raise nothing and need no answer of their own are taken, in order. The rest is left
        untouched: the next message comes in `on_publish`, and those after it here again. It must not call the
        connection, except to halt it.
        """
        return 0

    @abstractmethod
    def on_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        """Called with a basic.ack."""

    def on_acks(self, channel: int, tags: list[int]) -> None:
        """Called with several acks that came one after the other, each of one delivery."""
        for tag in tags:
            self.on_ack(channel, tag, False)


@attrs.frozen
class Tuning:
    """The limits that the server offers and enforces. A limit of 0 is none, a heartbeat of 0 is off."""

    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat_s: int = 60
    frame_min: int = 4096
    initial_frame_max: int = 8192  # until tune-ok
    body_size_max: int = 16_777_216
    handshake_timeout_s: float = 10.0  # for a close-ok as well
    mechanisms: tuple[str, ...] = ("PLAIN",)
    server_properties: FieldTable = attrs.Factory(dict)
    serves_1_0: bool = True  # on the same port, beside 0-9-1

    def check(self, channel_max: int, frame_max: int) -> None:
        """Check the limits that a client chose from our offer (S010-S012). Raises AmqpError if they are out of
        bounds."""
        _check("frame_max", self.frame_min, self.frame_max, frame_max)
        _check("channel_max", 1, self.channel_max, channel_max)


def _check(name: str, lowest: int, highest: int, chosen: int) -> None:
    if chosen and chosen < lowest:
        bound = f"lower than the minimum allowed value ({lowest})"
    elif highest and (chosen == 0 or chosen > highest):
        bound = f"higher than the maximum allowed value ({highest})"
    else:
        return
    chosen_text = str(chosen) if chosen else "0 (no limit)"
    raise AmqpError(NOT_ALLOWED, f"negotiated {name} = {chosen_text} is {bound}")
