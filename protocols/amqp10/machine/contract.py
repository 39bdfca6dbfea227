"""What the AMQP 1.0 machine needs from outside: owners for its calls, its limits.

    Connection ── Handler        login, open, begin                 (the adapter's connection)
      Session  ── SessionOwner   attach, room to send, end          (one for each begin)
        IncomingLink ── IncomingOwner    what the peer sends arrives here
        OutgoingLink ── OutgoingOwner    credit, and what becomes of what was sent

The machine knows frames, windows, credit and settlement; its owners know addresses, queues and permissions. Links are
named from the broker's side: the peer's sender is our `IncomingLink`, its receiver our `OutgoingLink`.

An owner may refuse whatever it is asked by raising `AmqpError`; how much that ends is the error's `ends`. Called from
inside an owner's method, every verb of connection, session and link is allowed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from protocols.amqp10.codec import performatives as p
    from protocols.amqp10.codec.types import Value
    from protocols.amqp10.machine.receiving import IncomingLink
    from protocols.amqp10.machine.sending import OutgoingLink
    from protocols.amqp10.machine.session import Session
    from protocols.shared.machine.contract import Wait


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(ABC):
    """The owner of a connection."""

    __slots__ = ()

    @abstractmethod
    def on_sasl_init(self, mechanism: str, response: bytes) -> bytes | Wait | None:
        """The peer chose a mechanism: answer the next challenge, or None, who it is being settled.

        AmqpError refuses the login: outcome code 1 (auth), or 2 to 4 if the condition says so, then the end (S164).
        After `Wait` the connection asks `on_sasl_checked` each time it receives something, which may be no octets at
        all, and takes nothing of it before there is another answer.
        """

    @abstractmethod
    def on_sasl_response(self, response: bytes) -> bytes | Wait | None:
        """The peer answered the challenge. As on_sasl_init."""

    def on_sasl_checked(self) -> bytes | Wait | None:
        """What has become of the password. As on_sasl_init."""
        raise NotImplementedError

    def last_words(self) -> bytes | None:
        """What a mechanism says with the outcome of a login that ended well."""
        return None

    @abstractmethod
    def on_open(self, open: p.Open) -> dict[str, Value]:
        """The peer's open. Answer the properties for ours; it is sent after the call."""

    @abstractmethod
    def on_begin(self, session: Session) -> SessionOwner:
        """A session begins; our begin is sent after the call."""

    @abstractmethod
    def on_closed(self) -> None:
        """The connection ended, whatever ended it; once, after its sessions and before the peer is told."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionOwner(ABC):
    """The owner of a session."""

    __slots__ = ()

    @abstractmethod
    def on_attach_incoming(self, link: IncomingLink, attach: p.Attach) -> IncomingOwner:
        """The peer wants to send. Before it returns, the owner has called `link.attach(source, target)`."""

    @abstractmethod
    def on_attach_outgoing(self, link: OutgoingLink, attach: p.Attach) -> OutgoingOwner:
        """The peer wants to receive. Before it returns, the owner has called `link.attach(source, target)`."""

    @abstractmethod
    def on_window(self) -> None:
        """The peer has room again for transfers, after it had none: see `Sending.room`."""

    @abstractmethod
    def on_ended(self) -> None:
        """The session ended, whatever ended it; once, after its links."""


@mypyc_attr(allow_interpreted_subclasses=True)
class IncomingOwner(ABC):
    """The owner of a link on which the peer sends."""

    __slots__ = ()

    @abstractmethod
    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        """A whole message. Unless `settled`, `link.accept` or `link.answer` must follow, now or later.

        `state` is what the sender said with it: a TransactionalState, or nothing. AmqpError with `Ends.LINK` detaches.
        """

    def on_messages(self, delivery_ids: list[int], payloads: list[bytes], settled: bool) -> int:
        """Whole messages of which the sender said nothing, in order. Answers how many are dealt with, perhaps none.

        As if each had come by itself, as far as nothing stands in the way: the others have not been touched, and are
        for `on_message`. Raises nothing, and says nothing to the peer.
        """
        return 0

    @abstractmethod
    def on_detached(self, closed: bool) -> None:
        """The link ended, whatever ended it; once. `closed` False: the peer may want to come back to it.

        That is so after each end that was not asked for, an error of ours included.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class OutgoingOwner(ABC):
    """The owner of a link on which we send."""

    __slots__ = ()

    @abstractmethod
    def on_credit(self, link: OutgoingLink) -> None:
        """The peer changed `link.credit` or `link.drain`, or wants a flow: say what is `available`.

        If it drains: send what there is, now or when the broker has settled, then `link.drained()`.
        """

    @abstractmethod
    def on_outcomes(
        self, ids: Sequence[int], tokens: list[object], state: p.DeliveryState | None, settled: bool
    ) -> None:
        """What became of deliveries: their ids, and the tokens given to `link.send`, in the order of sending.

        `settled`: the peer has forgotten them, and so has the link. Otherwise `link.settle(ids)` ends them, once the
        owner has done what the state says (X070); None as state is no statement at all.
        """

    @abstractmethod
    def on_detached(self, tokens: list[object], closed: bool) -> None:
        """The link ended, whatever ended it; once. `tokens` are its unsettled deliveries, in the order of sending.

        `closed` is that of IncomingOwner.on_detached.
        """


class Tuning:
    """What we offer and insist on."""

    __slots__ = (
        "channel_max",
        "container_id",
        "frame_size_max",
        "handle_max",
        "handshake_timeout_s",
        "idle_timeout_s",
        "incoming_window",
        "initial_frame_size_max",
        "link_credit",
        "mechanisms",
        "message_size_max",
        "offered_capabilities",
        "partial_size_max",
    )

    def __init__(
        self,
        container_id: str = "leveret",
        frame_size_max: int = 131_072,
        channel_max: int = 63,
        handle_max: int = 255,
        idle_timeout_s: int = 60,
        incoming_window: int = 400,
        link_credit: int = 170,
        message_size_max: int = 16_777_216,
        initial_frame_size_max: int = 8192,
        handshake_timeout_s: float = 10.0,
        mechanisms: tuple[str, ...] = ("PLAIN",),
        offered_capabilities: tuple[str, ...] = (),
    ) -> None:
        self.container_id = container_id
        self.frame_size_max = frame_size_max
        self.channel_max = channel_max  # the highest number; there may be one session more than that
        self.handle_max = handle_max
        self.idle_timeout_s = idle_timeout_s  # 0: none. We advertise half of it (S167)
        self.incoming_window = incoming_window  # transfers of one session on their way to us
        self.link_credit = link_credit  # messages of one link on their way to us, or not yet answered (X055)
        self.message_size_max = message_size_max  # octets of one message, whatever its frames
        self.initial_frame_size_max = initial_frame_size_max  # until the open
        self.handshake_timeout_s = handshake_timeout_s
        self.mechanisms = mechanisms
        self.offered_capabilities = offered_capabilities
        self.partial_size_max = 4 * max(message_size_max, 1 << 20)  # of all unfinished messages together


FRAME_SIZE_MIN: Final = 512  # part 2, section 2.4.1: what everyone must take
