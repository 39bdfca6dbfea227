"""The interfaces that the AMQP 1.0 machine needs from outside: owners for its calls, and its limits.

    Connection ── Handler        login, open, begin                 (the adapter's connection)
      Session  ── SessionOwner   attach, room to send, end          (one for each begin)
        IncomingLink ── IncomingOwner    messages from the peer
        OutgoingLink ── OutgoingOwner    credit, and the outcomes of sent messages

The machine knows frames, windows, credit and settlement; its owners know addresses, queues and permissions. Links are
named from the broker's side: the peer's sender is our `IncomingLink`, its receiver our `OutgoingLink`.

An owner may refuse every request by raising `AmqpError`; its `ends` is the scope that ends. Inside an owner's method,
every method of connection, session and link may be called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.protocols.amqp10.codec.errors import LINK, AmqpError, Ends

if TYPE_CHECKING:
    from leveret.protocols.amqp10.codec import performatives as p
    from leveret.protocols.amqp10.codec.types import Value
    from leveret.protocols.amqp10.machine.incoming_link import IncomingLink, Unsettled
    from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink
    from leveret.protocols.amqp10.machine.session import Session
    from leveret.protocols.shared.machine.contract import Wait


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(ABC):
    """The owner of a connection."""

    __slots__ = ()

    @abstractmethod
    def on_sasl_init(self, mechanism: str, response: bytes) -> bytes | Wait | None:
        """Called when the peer has chosen a mechanism. Return the next challenge, or None once the login has succeeded.

        Raises AmqpError to refuse the login: outcome code 1 (auth), or 2 to 4 if the condition says so, then the end
        (S164). After `Wait` the connection calls `on_sasl_checked` each time it receives something, which may be no
        bytes at all, and handles none of it before it gets another answer.
        """

    @abstractmethod
    def on_sasl_response(self, response: bytes) -> bytes | Wait | None:
        """Called when the peer has answered the challenge. Return a value as on_sasl_init does."""

    def on_sasl_checked(self) -> bytes | Wait | None:
        """Return the result of the password check, as on_sasl_init does."""
        raise NotImplementedError

    def last_words(self) -> bytes | None:
        """Return the mechanism's data for the outcome of a successful login, or None."""
        return None

    @abstractmethod
    def on_open(self, open: p.Open) -> dict[str, Value]:
        """Called with the peer's open. Return the properties for ours; it is sent after the call."""

    @abstractmethod
    def on_begin(self, session: Session) -> SessionOwner:
        """Called when a session begins. Return its owner; our begin is sent after the call."""

    def release_some(self) -> bool:
        """Release a part of what the connection holds; return whether there was any. It has ended, apart from that.

        Called until it returns False, after all sessions and before `on_closed`, which releases everything else.
        """
        return False

    @abstractmethod
    def on_closed(self) -> None:
        """Called once when the connection has ended in any way, after its sessions and before the peer is told."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionOwner(ABC):
    """The owner of a session."""

    __slots__ = ()

    @abstractmethod
    def on_attach_incoming(self, link: IncomingLink, attach: p.Attach) -> IncomingOwner:
        """Called when the peer wants to send. Before it returns, the owner must call `link.attach`."""

    @abstractmethod
    def on_attach_outgoing(self, link: OutgoingLink, attach: p.Attach) -> OutgoingOwner:
        """Called when the peer wants to receive. Before it returns, the owner must call `link.attach`."""

    @abstractmethod
    def on_window(self) -> None:
        """Called when the peer has room for transfers again, after it had none: see `Sending.room`."""

    @abstractmethod
    def on_ended(self) -> None:
        """Called once when the session has ended, whatever ended it, after its links."""


@mypyc_attr(allow_interpreted_subclasses=True)
class IncomingOwner(ABC):
    """The owner of a link on which the peer sends."""

    __slots__ = ()

    @abstractmethod
    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        """Called with a whole message. Unless `settled`, `link.accept` or `link.answer` must follow, now or later.

        `state` is the sender's state for it: a TransactionalState, or None. AmqpError with `Ends.LINK` detaches the
        link.
        """

    def on_unsupported(
        self, delivery_id: int, tag: bytes, settled: bool, state: p.DeliveryState | None, error: AmqpError
    ) -> None:
        """Called in place of `on_message` for a message that is not in the format of AMQP. By default the link ends."""
        raise error

    def on_run(self, delivery_ids: list[int], payloads: list[bytes], settled: bool) -> int:
        """Take whole messages without a state from the sender, in order. Return how many are dealt with, perhaps none.

        The effect is that of `on_message` for each, from the front, as long as nothing prevents it. The others are left
        untouched, and come in `on_message`. It raises nothing, and sends nothing to the peer.
        """
        return 0

    def on_aborted(self, tag: bytes) -> None:
        """Called when the sender has settled a delivery of an earlier link, by aborting it."""

    def on_settled(self, deliveries: list[Unsettled]) -> None:
        """Called when the sender has settled these, on a link with rcv-settle-mode second and `tells_settled`."""

    @abstractmethod
    def on_detached(self, closed: bool) -> None:
        """Called once when the link has ended, whatever ended it. If `closed` is false, the peer may want to resume it.

        It is false after each end that the peer did not ask for, including an error of ours.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class OutgoingOwner(ABC):
    """The owner of a link on which we send."""

    __slots__ = ()

    @abstractmethod
    def on_credit(self, link: OutgoingLink) -> None:
        """Called when the peer has changed `link.credit` or `link.drain`, or requested a flow: set `available`.

        If the peer drains: send the available messages, now or when the broker has settled, then call `link.drained()`.
        """

    @abstractmethod
    def on_outcomes(
        self, ids: Sequence[int], tokens: list[object], state: p.DeliveryState | None, settled: bool
    ) -> None:
        """Called with the outcome of deliveries: their ids, and the tokens given to `link.send`, in the order of
        sending.

        `settled`: the peer has forgotten them, and so has the link. Otherwise `link.settle(ids)` ends them, once the
        owner has done what the state asks for (X070); None as state asks for nothing.
        """

    @abstractmethod
    def on_detached(self, tokens: list[object], closed: bool) -> None:
        """Called once when the link has ended, whatever ended it. `tokens` are its unsettled deliveries, in the order
        of sending.

        `closed` is that of IncomingOwner.on_detached.
        """


class EndedIncoming(IncomingOwner):
    """The owner of a link that has ended: nothing comes in any more."""

    __slots__ = ()

    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        """Do nothing."""

    def on_detached(self, closed: bool) -> None:
        """Do nothing."""


class EndedOutgoing(OutgoingOwner):
    """The owner of a link that has ended: nothing is answered any more."""

    __slots__ = ()

    def on_credit(self, link: OutgoingLink) -> None:
        """Do nothing."""

    def on_outcomes(
        self, ids: Sequence[int], tokens: list[object], state: p.DeliveryState | None, settled: bool
    ) -> None:
        """Do nothing."""

    def on_detached(self, tokens: list[object], closed: bool) -> None:
        """Do nothing."""


# In a cycle with their last owners, links would wait for the collector.
ENDED_INCOMING: Final = EndedIncoming()
ENDED_OUTGOING: Final = EndedOutgoing()


class Tuning:
    """The limits that we offer and enforce."""

    __slots__ = (
        "channel_max",
        "container_id",
        "drops_refused_open",
        "frame_size_max",
        "handle_max",
        "handshake_timeout_s",
        "idle_timeout_s",
        "incoming_window",
        "initial_frame_size_max",
        "link_credit",
        "link_errors_end",
        "mechanisms",
        "message_size_max",
        "offered_capabilities",
        "takes_anonymous",
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
        drops_refused_open: bool = False,
        takes_anonymous: bool = False,
        link_errors_end: Ends = LINK,
    ) -> None:
        self.container_id = container_id
        self.frame_size_max = frame_size_max
        self.channel_max = channel_max  # the highest number; there may be one session more than that
        self.handle_max = handle_max
        self.idle_timeout_s = idle_timeout_s  # 0 is none; we advertise half of it (S167)
        self.incoming_window = incoming_window  # transfers of a session that may be on their way to us
        self.link_credit = link_credit  # messages of a link on their way to us, or unanswered (X055)
        self.message_size_max = message_size_max  # bytes of a message, whatever its frames
        self.initial_frame_size_max = initial_frame_size_max  # until the open
        self.handshake_timeout_s = handshake_timeout_s
        self.mechanisms = mechanisms
        self.offered_capabilities = offered_capabilities
        self.drops_refused_open = drops_refused_open  # without a close that tells the error
        self.takes_anonymous = takes_anonymous  # peers that begin without SASL
        self.link_errors_end = link_errors_end  # what the errors of a single link or message end


FRAME_SIZE_MIN: Final = 512  # part 2, section 2.4.1: every peer must accept frames of this size
