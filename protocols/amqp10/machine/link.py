"""The part that both kinds of links of an AMQP 1.0 session share: attach, detach, and failing.

    attaching ──our attach──> attached ──detach of either side──> ended
        └──refused: our attach without a terminus, then our detach──┘

A link lives from the peer's attach until the first detach of either side. After a detach of ours the session drops
input for the handle until the peer's detach. Everything that belongs to a link ends before the peer is told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import LINK, AmqpError, Ends
from leveret.protocols.amqp10.codec.types import encode
from leveret.protocols.amqp10.codec.wire import FRAME_OVERHEAD

if TYPE_CHECKING:
    from leveret.protocols.amqp10.codec.types import Described, Value
    from leveret.protocols.amqp10.machine.session import Session


LINK_NAME_MAX: Final = 1024  # characters; every link keeps its name

SourceLike: TypeAlias = "p.Source | Described | None"
States: TypeAlias = "Mapping[bytes, p.DeliveryState | None]"  # by delivery tag
TargetLike: TypeAlias = "p.Target | p.Coordinator | Described | None"


def size_exceeded(size: int, size_max: int, ends: Ends, setting: str = "") -> AmqpError:
    """Return the error for a message that is too large for the receiver of a link, whichever side that is (S172)."""
    text = f"message size ({size} bytes) > maximum message size ({size_max} bytes){setting}"
    return AmqpError(p.LINK_MESSAGE_SIZE_EXCEEDED, text, ends)


class Link(ABC):
    """A link, as far as both directions are alike."""

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
        "tells_all",
        "told_unsettled",
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
        self.available = 0  # messages that wait at the sender for credit, as sent in flows
        self.told_unsettled: frozenset[bytes] = frozenset()  # the delivery tags in our attach
        self.tells_all = True  # these are all that we know
        self._owned = False
        self._closed = False

    @abstractmethod
    def _find_owner(self, attach: p.Attach) -> None:
        """Ask the session's owner for an owner. Raises AmqpError."""

    @abstractmethod
    def _begin(self) -> None:
        """Called when both sides have attached."""

    @abstractmethod
    def _tell_owner(self) -> None:
        """Notify the owner that the link has ended."""

    @abstractmethod
    def _take_flow(self, flow: p.Flow) -> None:
        """Handle a flow of the peer. Raises AmqpError."""

    @abstractmethod
    def credit_told(self) -> int:
        """Return the link-credit for our flows."""

    @abstractmethod
    def drain_told(self) -> bool:
        """Return the drain flag for our flows."""

    def open(self, attach: p.Attach) -> None:
        """Find the link's owner, after the peer has attached. Raises no AmqpError.

        The attach is not kept: a frame takes up to a hundred times its bytes in memory, and there are many links.
        """
        try:
            if len(attach.name) > LINK_NAME_MAX:
                text = f"the name of a link has more than {LINK_NAME_MAX} characters"
                raise AmqpError(p.INVALID_FIELD, text)
            self._find_owner(attach)
        except AmqpError as error:
            self.fail(error)
            return
        self._owned = True
        if self.ended:  # the session's owner has ended the link before it returned the link's owner
            self._tell_owner()
        else:
            assert self.attached
            self._begin()

    def take_flow(self, flow: p.Flow) -> None:
        """Handle the peer's flow about this link. Raises no AmqpError."""
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
        """Send our attach, once. For the owner of the session, while it is asked for an owner of the link.

        `unsettled` holds the delivery tags that may be resumed, with the states that we know. If not all of them fit
        into a frame that the peer accepts, the first ones are sent (`told_unsettled`), and that they are incomplete.
        Raises AmqpError if the attach is larger than that without any.
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
        """Return our attach."""

    def _say_attach(self, attach: p.Attach) -> None:
        size_max = self.session.connection.frame_size_max
        unsettled = dict(attach.unsettled or {})
        while unsettled and (excess := FRAME_OVERHEAD + len(attach.encode()) - size_max) > 0:
            while unsettled and excess > 0:
                entry = unsettled.popitem()
                excess -= len(encode(entry[0])) + len(encode(entry[1]))
            attach.unsettled, attach.incomplete_unsettled = unsettled or None, True
        self.told_unsettled = frozenset(tag for tag in unsettled if isinstance(tag, bytes))
        self.tells_all = not attach.incomplete_unsettled
        size = FRAME_OVERHEAD + len(attach.encode())
        if size > size_max:
            text = f"the attach takes {size} octets, and a frame may have {size_max}"
            raise AmqpError(p.FRAME_SIZE_TOO_SMALL, text)
        self.attached = True
        self.session.say(attach)

    def fail(self, error: AmqpError) -> None:
        """End what the error ends: this link, the session, or the connection."""
        if error.ends is LINK:
            self.detach(error)
        else:
            self.session.fail(error)

    def detach(self, error: AmqpError | None = None, closed: bool = True) -> None:
        """End the link. Do nothing if it has ended. If our attach has not been sent, the link is refused (S177)."""
        session = self.session
        if self.ended:
            return
        session.tell_outcomes()
        if not self.attached:
            try:
                self._say_attach(self._attach(None, None, None, (), None))
            except AmqpError as too_large:  # its name alone is longer than the peer's frames
                session.end(too_large)
                return
        session.forget_link(self)
        session.detaching.add(self.handle)
        self.end(closed and error is None)  # after an error, the peer may resume the link
        session.say(p.Detach(handle=self.handle, closed=closed, error=session.error_of(error)))

    def peer_detached(self, closed: bool) -> None:
        """End the link after the peer's detach, and answer that."""
        session = self.session
        session.tell_outcomes()
        session.forget_link(self)
        self.end(closed)
        session.say(p.Detach(handle=self.handle, closed=closed))

    def end(self, closed: bool) -> None:
        """End the link, which the session has forgotten already, and notify its owner."""
        self.ended = True
        self._closed = closed
        if self._owned:
            self._tell_owner()


def map_of(unsettled: States | None) -> dict[Value, Value] | None:
    """Return the `unsettled` field of an attach."""
    return dict(unsettled.items()) if unsettled else None
