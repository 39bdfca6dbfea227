"""What the two kinds of links of an AMQP 1.0 session share: attach, detach, and how they fail.

    attaching ──our attach──> attached ──detach of either side──> ended
        └──refused: our attach without a terminus, then our detach──┘

A link lives from the peer's attach until the first detach, whoever sends it. After a detach of ours the session drops
what comes for the handle, until the peer's. What belongs to a link ends before the peer is told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from protocols.amqp10.codec import performatives as p
from protocols.amqp10.codec.errors import AmqpError, Ends
from protocols.amqp10.codec.wire import FRAME_OVERHEAD

if TYPE_CHECKING:
    from protocols.amqp10.codec.types import Described, Value
    from protocols.amqp10.machine.session import Session

SourceLike: TypeAlias = "p.Source | Described | None"
States: TypeAlias = "Mapping[bytes, p.DeliveryState | None]"  # by delivery tag
TargetLike: TypeAlias = "p.Target | p.Coordinator | Described | None"


def size_exceeded(size: int, size_max: int) -> AmqpError:
    """A message is too large for the receiver of a link, whichever side that is (S172)."""
    text = f"message size ({size} bytes) > maximum message size ({size_max} bytes)"
    return AmqpError(p.LINK_MESSAGE_SIZE_EXCEEDED, text, Ends.SESSION)


class Link(ABC):
    """What both directions share."""

    __slots__ = (
        "_closed",
        "_owned",
        "attached",
        "available",
        "credit",
        "delivery_count",
        "echo",
        "ended",
        "handle",
        "name",
        "rcv_settle_mode",
        "role",
        "session",
        "snd_settle_mode",
    )

    def __init__(self, session: Session, attach: p.Attach) -> None:
        self.session = session
        self.name = attach.name
        self.role = attach.role  # the peer's
        self.handle = int(attach.handle)  # in both directions
        self.snd_settle_mode = int(attach.snd_settle_mode)
        self.rcv_settle_mode = int(attach.rcv_settle_mode)
        self.attached = False  # our attach has been sent
        self.ended = False
        self.echo = False  # the peer waits for a flow
        self.credit = 0
        self.delivery_count = 0
        self.available = 0  # messages that wait at the sender for credit, as flows tell
        self._owned = False
        self._closed = False

    @abstractmethod
    def _find_owner(self, attach: p.Attach) -> None:
        """Ask the session's owner for an owner. Raises AmqpError."""

    @abstractmethod
    def _begin(self) -> None:
        """Both sides have attached."""

    @abstractmethod
    def _tell_owner(self) -> None:
        """The link has ended, and has an owner."""

    @abstractmethod
    def _take_flow(self, flow: p.Flow) -> None:
        """As `take_flow`. Raises AmqpError."""

    @abstractmethod
    def credit_told(self) -> int:
        """What our flows say of link-credit."""

    @abstractmethod
    def drain_told(self) -> bool:
        """What our flows say of drain."""

    def open(self, attach: p.Attach) -> None:
        """The peer has attached: find who serves the link. Raises no AmqpError.

        The attach is not kept: what a frame says takes up to a hundred times its octets here, and there are many links.
        """
        try:
            self._find_owner(attach)
        except AmqpError as error:
            self.fail(error)
            return
        self._owned = True
        if self.ended:  # by its owner, before it was one
            self._tell_owner()
        else:
            assert self.attached
            self._begin()

    def take_flow(self, flow: p.Flow) -> None:
        """The peer tells how its end of the link stands."""
        try:
            self._take_flow(flow)
        except AmqpError as error:
            self.fail(error)

    def attach(
        self,
        source: SourceLike,
        target: TargetLike,
        properties: Mapping[str, Value] | None = None,
        offered_capabilities: Sequence[str] = (),
        unsettled: States | None = None,
    ) -> None:
        """Say our attach, once. For the owner of the session, while it is asked for an owner of the link.

        `unsettled` holds the delivery tags that may be resumed, with the states we know. Raises AmqpError if all that
        is too much for a frame of the peer's.
        """
        if not self.ended:
            self._say_attach(self._attach(source, target, properties, offered_capabilities, unsettled))

    @abstractmethod
    def _attach(
        self,
        source: SourceLike,
        target: TargetLike,
        properties: Mapping[str, Value] | None,
        offered_capabilities: Sequence[str],
        unsettled: States | None,
    ) -> p.Attach:
        """Our attach."""

    def _say_attach(self, attach: p.Attach) -> None:
        size = FRAME_OVERHEAD + len(attach.encode())
        size_max = self.session.connection.frame_size_max
        if size > size_max:
            text = f"the attach takes {size} octets, and a frame may have {size_max}"
            raise AmqpError(p.FRAME_SIZE_TOO_SMALL, text, Ends.SESSION)
        self.attached = True
        self.session.say(attach)

    def fail(self, error: AmqpError) -> None:
        """End what the error ends: this link, the session, or the connection."""
        if error.ends is Ends.LINK:
            self.detach(error)
        else:
            self.session.fail(error)

    def detach(self, error: AmqpError | None = None, closed: bool = True) -> None:
        """End the link; nothing happens if it has ended. If our attach has not been sent, it is refused (S177)."""
        session = self.session
        if self.ended:
            return
        session.tell_outcomes()
        if not self.attached:
            try:
                self._say_attach(self._attach(None, None, None, (), None))
            except AmqpError as too_large:
                session.end(too_large)
                return
        session.forget_link(self)
        session.detaching.add(self.handle)
        self.end(closed and error is None)  # whoever meets with an error may come back
        session.say(p.Detach(handle=self.handle, closed=closed, error=session.error_of(error)))

    def peer_detached(self, closed: bool) -> None:
        """The peer has detached, and is answered."""
        session = self.session
        session.tell_outcomes()
        session.forget_link(self)
        self.end(closed)
        session.say(p.Detach(handle=self.handle, closed=closed))

    def end(self, closed: bool) -> None:
        """The link has ended; the session has forgotten it."""
        self.ended = True
        self._closed = closed
        if self._owned:
            self._tell_owner()


def map_of(unsettled: States | None) -> dict[Value, Value] | None:
    """The field of an attach."""
    return dict(unsettled.items()) if unsettled else None
