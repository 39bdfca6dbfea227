"""What an AMQP 0-9-1 connection needs from outside: a handler for its calls, its limits.

Messages and acks, which are most calls by far, have a contract of their own: `Traffic`.
"""

from abc import ABC, abstractmethod

import attrs
from mypy_extensions import mypyc_attr

from protocols.amqp091.codec.methods import NOT_ALLOWED
from protocols.amqp091.codec.wire import AmqpError, FieldTable, Method
from protocols.shared.machine.contract import Wait


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(ABC):
    """What a connection tells the broker's side. Every call may raise AmqpError but on_channel_closed and on_closed.

    An error ends the channel or the connection, as its code says; on channel 0 always the connection. A handler
    may call `send`, `fail` and `fail_channel` from inside any of these.
    """

    __slots__ = ()

    @abstractmethod
    def on_start_ok(
        self, mechanism: str, response: bytes, client_properties: FieldTable
    ) -> bytes | Wait | None:
        """The client chose an offered mechanism: answer the next challenge, or None, who it is being settled.

        A refusal is AmqpError 403. After `Wait` the connection asks `on_checked` each time it receives something, which
        may be no octets at all, and takes nothing of it before there is another answer.
        """

    @abstractmethod
    def on_secure_ok(self, response: bytes) -> bytes | Wait | None:
        """The client answered the challenge. As on_start_ok."""

    def on_checked(self) -> bytes | Wait | None:
        """What has become of the password. As on_start_ok."""
        raise NotImplementedError

    @abstractmethod
    def on_open(self, virtual_host: str) -> None:
        """The client wants this virtual host. The limits have been agreed; open-ok is sent after the call."""

    @abstractmethod
    def on_update_secret(self, secret: bytes, reason: str) -> Wait | None:
        """The client has a fresh secret; update-secret-ok is sent after the call, or by `secret_updated`."""

    @abstractmethod
    def on_channel_open(self, channel: int) -> None:
        """A channel begins; open-ok is sent after the call. An error ends the connection."""

    @abstractmethod
    def on_channel_closed(self, channel: int) -> None:
        """The channel ended, whatever ended it; once per channel, before the peer is told."""

    @abstractmethod
    def on_method(self, channel: int, method: Method) -> None:
        """Any other method a client may send, on an open channel."""

    @abstractmethod
    def on_closed(self) -> None:
        """The connection ended, whatever ended it; once, after its channels and before the peer is told."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Traffic(ABC):
    """What comes on open channels. As in `Handler`: an AmqpError ends the channel or the connection."""

    __slots__ = ()

    @abstractmethod
    def on_publish(self, channel: int, publish: bytes, properties: bytes, body: bytes) -> None:
        """A whole message. `publish` are the undecoded arguments of basic.publish, unchecked.

        It is the same object for as long as a channel repeats itself. `properties` are the content header from
        its flags on, unchecked as well.
        """

    def on_publish_run(self, channel: int, publish: bytes, properties: bytes, bodies: list[bytes]) -> int:
        """Messages that differ in their bodies only, whose sizes may differ, too. Answers how many were taken.

        Only as many as raise nothing and need no answer of their own: what follows has not been touched, and the next
        one comes in `on_publish`, like all of them if this is 0. Must not call the connection, but to halt it.
        """
        return 0

    @abstractmethod
    def on_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        """basic.ack."""


@attrs.frozen
class Tuning:
    """What the server offers and insists on. A frame_max or channel_max of 0 is no limit, a heartbeat of 0 none."""

    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat_s: int = 60
    frame_min: int = 4096
    initial_frame_max: int = 8192  # until tune-ok
    body_size_max: int = 16_777_216
    handshake_timeout_s: float = 10.0  # for a close-ok as well
    mechanisms: tuple[str, ...] = ("PLAIN",)
    server_properties: FieldTable = attrs.Factory(dict)
    serves_1_0: bool = True  # beside 0-9-1, where the peer came in

    def check(self, channel_max: int, frame_max: int) -> None:
        """Refuse what a client made of our offer if it is out of bounds (S010-S012)."""
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
