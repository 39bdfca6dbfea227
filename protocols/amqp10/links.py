"""The links of an AMQP 1.0 session: attach and detach, credit, deliveries.

    attaching ──our attach──> attached ──detach of either side──> ended
        └──refused: our attach without a terminus, then our detach──┘

A link lives from the peer's attach until the first detach, whoever sends it. After a detach of ours the session drops
what comes for the handle, until the peer's. What belongs to a link ends before the peer is told.

Credit is counted in deliveries. On an IncomingLink we grant it, and grant it again when half is used up, but not while
as many messages as that are still unanswered (X055). On an OutgoingLink the peer grants it, and `send` uses it up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from protocols.amqp10 import performatives as p
from protocols.amqp10.contract import AmqpError, Ends, IncomingOwner, OutgoingOwner
from protocols.amqp10.wire import (
    CONTINUATION_SIZE_MAX,
    FRAME_OVERHEAD,
    MASK,
    TAG_SIZE_MAX,
    TransferHead,
    continuation,
    cut,
    distance,
)

if TYPE_CHECKING:
    from protocols.amqp10.session import Session
    from protocols.amqp10.types import Described, Value

SourceLike: TypeAlias = "p.Source | Described | None"
TargetLike: TypeAlias = "p.Target | p.Coordinator | Described | None"

SETTLED: Final = p.SENDER_SETTLE_MODE_SETTLED
SECOND: Final = p.RECEIVER_SETTLE_MODE_SECOND
MODES: Final = {p.SENDER_SETTLE_MODE_UNSETTLED: "unsettled", SETTLED: "settled"}
FORBIDDEN: Final = {p.SENDER_SETTLE_MODE_UNSETTLED: True, SETTLED: False}  # what `settled` may not be
ACCEPTED: Final = p.Accepted()
UNLIMITED: Final = 1 << 64


def size_exceeded(size: int, size_max: int) -> AmqpError:
    """A message is too large for the receiver of a link, whichever side that is (S172)."""
    text = f"message size ({size} bytes) > maximum message size ({size_max} bytes)"
    return AmqpError(p.LINK_MESSAGE_SIZE_EXCEEDED, text, Ends.SESSION)


class Link(ABC):
    """What both directions share."""

    __slots__ = (
        "_closed",
        "_owned",
        "attach_request",
        "attached",
        "available",
        "credit",
        "delivery_count",
        "echo",
        "ended",
        "handle",
        "name",
        "rcv_settle_mode",
        "session",
        "snd_settle_mode",
    )

    def __init__(self, session: Session, attach: p.Attach) -> None:
        self.session = session
        self.attach_request = attach
        self.name = attach.name
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
    def _find_owner(self) -> None:
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

    def open(self) -> None:
        """The peer has attached: find who serves the link. Raises no AmqpError."""
        try:
            self._find_owner()
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
        unsettled: Mapping[Value, Value] | None = None,
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
        unsettled: Mapping[Value, Value] | None,
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


class Unfinished:
    """A delivery of which some transfers have come."""

    __slots__ = ("body", "id", "second", "settled", "state", "tag")

    def __init__(self, delivery_id: int, tag: bytes, settled: bool, second: bool) -> None:
        self.id = delivery_id
        self.tag = tag
        self.settled = settled
        self.second = second  # it is settled after the peer has settled it (part 2, section 2.6.12)
        self.state: p.DeliveryState | None = None
        # One growing array, not a list of parts: a million tiny transfers must not cost more than their octets.
        self.body = bytearray()

    def check(self, transfer: p.Transfer) -> None:
        """Another transfer must be one of the same delivery (X056)."""
        for name, ours, theirs in (
            ("delivery-id", self.id, transfer.delivery_id),
            ("delivery-tag", self.tag, transfer.delivery_tag),
            ("settled", self.settled, transfer.settled),
        ):
            if theirs is not None and theirs != ours:
                text = f"{name} of a transfer differs from the first of the same delivery: {theirs!s}, not {ours!s}"
                raise AmqpError(p.INVALID_FIELD, text)


class Unsettled:
    """A delivery of a link with rcv-settle-mode second, until the peer has settled it."""

    __slots__ = ("second", "state", "tag")

    def __init__(self, tag: bytes, second: bool) -> None:
        self.tag = tag
        self.second = second  # the mode is that of the delivery, too
        self.state: p.DeliveryState | None = None  # our answer, if there is one


class IncomingLink(Link):
    """The peer sends, we receive."""

    __slots__ = (
        "_forbidden",
        "_low",
        "_plain",
        "_resumable",
        "_size_max",
        "_unfinished",
        "_unsettled",
        "credit_max",
        "hungry",
        "owner",
        "second",
        "unanswered",
    )

    owner: IncomingOwner

    def __init__(self, session: Session, attach: p.Attach) -> None:
        super().__init__(session, attach)
        tuning = session.connection.tuning
        self.delivery_count = int(attach.initial_delivery_count or 0)
        self.unanswered = 0  # messages that we have not settled
        self.credit_max = tuning.link_credit
        self._low = tuning.link_credit // 2
        self.hungry = False  # the session looks whether it may be granted credit
        self.second = self.rcv_settle_mode == SECOND
        self._size_max = tuning.message_size_max or UNLIMITED
        self._forbidden = FORBIDDEN.get(self.snd_settle_mode)
        self._plain = not self.second  # and nothing unfinished
        self._unfinished: Unfinished | None = None
        self._unsettled: dict[int, Unsettled] = {}  # by id, if the link is `second`
        self._resumable: frozenset[Value] = frozenset()  # tags

    def _find_owner(self) -> None:
        self.owner = self.session.owner.on_attach_incoming(self, self.attach_request)

    def _tell_owner(self) -> None:
        self._forget_unfinished()
        self.owner.on_detached(self._closed)
        self._unsettled.clear()

    def _begin(self) -> None:
        self.grant()

    def _attach(
        self,
        source: SourceLike,
        target: TargetLike,
        properties: Mapping[str, Value] | None,
        offered_capabilities: Sequence[str],
        unsettled: Mapping[Value, Value] | None,
    ) -> p.Attach:
        self._resumable = frozenset(unsettled or ())
        return p.Attach(
            name=self.name,
            handle=self.handle,
            role=p.ROLE_RECEIVER,
            snd_settle_mode=self.snd_settle_mode,
            rcv_settle_mode=self.rcv_settle_mode,
            source=source,
            target=target,
            unsettled=unsettled,
            max_message_size=self.session.connection.tuning.message_size_max,
            offered_capabilities=offered_capabilities,
            properties=properties,
        )

    # Credit.

    def credit_told(self) -> int:
        return min(self.credit, self.credit_max)

    def drain_told(self) -> bool:
        return False

    def want(self, credit: int) -> None:
        """Grant so much from now on; 0: nothing any more. What is under way because of an earlier grant still comes."""
        self.credit_max = credit
        self._low = credit // 2
        if self._owned and not self.ended:
            if self.unanswered < credit:
                self.credit = max(self.credit, credit)
            self.session.say_flow(self)
            self._look_at_credit()

    def grant(self) -> None:
        """Give the peer all the credit there is, unless too much is unanswered."""
        self.hungry = False
        if self.unanswered < self.credit_max and self.credit <= self._low:
            self.credit = self.credit_max
            self.session.say_flow(self)
        else:
            self._look_at_credit()

    def _look_at_credit(self) -> None:
        if self.credit <= self._low and self.credit_max:
            self.session.is_hungry(self)

    def _take_flow(self, flow: p.Flow) -> None:
        if flow.available is not None:
            self.available = int(flow.available)
        if flow.delivery_count is not None:
            passed_over = distance(flow.delivery_count, self.delivery_count)
            if passed_over > 0:
                self.delivery_count = int(flow.delivery_count)
                self.credit = max(0, self.credit - passed_over)
                self._look_at_credit()

    # Messages.

    def take(self, delivery_id: int, tag: bytes, settled: bool | None, more: bool, payload: bytes) -> None:
        """A transfer with the fields that most have. Raises no AmqpError."""
        credit = self.credit - 1
        is_settled = settled is True
        if (
            more or not self._plain or credit < 0
            or is_settled is self._forbidden or len(payload) > self._size_max
        ):  # fmt: skip
            self.take_transfer(
                p.Transfer(
                    handle=self.handle, delivery_id=delivery_id, delivery_tag=tag, settled=settled, more=more
                ),
                payload,
            )
            return
        self.credit = credit
        self.delivery_count = self.delivery_count + 1 & MASK
        if credit == self._low:
            self.session.is_hungry(self)
        if not is_settled:
            self.unanswered += 1
        try:
            self.owner.on_message(delivery_id, tag, payload, is_settled, None)
        except AmqpError as error:
            self.fail(error)

    def take_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        """Any transfer. Raises no AmqpError."""
        try:
            self._take_transfer(transfer, payload)
        except AmqpError as error:
            self.fail(error)

    def _take_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        delivery = self._unfinished
        if delivery is None:
            delivery = self._first_of(transfer)
        else:
            delivery.check(transfer)
        if transfer.aborted:
            self._forget_unfinished()
            return
        if transfer.state is not None:
            delivery.state = transfer.state
        size = len(delivery.body) + len(payload)
        if size > self._size_max:
            raise size_exceeded(size, self._size_max)
        if transfer.more:
            self._keep(delivery, payload)
            return
        if delivery.body:
            payload = bytes(delivery.body + payload)
        self._forget_unfinished()
        self._hand_on(delivery, payload)

    def _first_of(self, transfer: p.Transfer) -> Unfinished:
        """The delivery that a transfer begins. Takes the credit for it."""
        delivery_id, tag = transfer.delivery_id, transfer.delivery_tag
        if delivery_id is None or tag is None or len(tag) > TAG_SIZE_MAX:
            text = (
                f"a delivery begins without a delivery-id, or a delivery-tag of up to {TAG_SIZE_MAX} octets"
            )
            raise AmqpError(p.INVALID_FIELD, text)
        if not self.credit:
            raise AmqpError(p.LINK_TRANSFER_LIMIT_EXCEEDED, f"the sender of link '{self.name}' has no credit")
        settled = transfer.settled is True
        if settled is self._forbidden:
            text = f"sender settle mode is '{MODES[self.snd_settle_mode]}' but transfer settled flag is interpreted"
            raise AmqpError(p.INVALID_FIELD, f"{text} as being '{str(settled).lower()}'")
        if transfer.rcv_settle_mode == SECOND and not self.second:
            raise AmqpError(
                p.INVALID_FIELD, "rcv-settle-mode of a transfer is second, that of its link is first"
            )
        if transfer.resume and tag not in self._resumable:
            raise AmqpError(p.NOT_IMPLEMENTED, "Link recovery not supported")
        self.credit -= 1
        self.delivery_count = self.delivery_count + 1 & MASK
        self._look_at_credit()
        second = self.second and transfer.rcv_settle_mode in (None, SECOND)
        return Unfinished(int(delivery_id), tag, settled, second)

    def _keep(self, delivery: Unfinished, payload: bytes) -> None:
        connection = self.session.connection
        connection.partial_size += len(payload)
        self._unfinished = delivery
        self._plain = False
        delivery.body += payload
        if connection.partial_size > connection.tuning.partial_size_max:
            text = f"unfinished messages of the connection exceed {connection.tuning.partial_size_max} octets"
            raise AmqpError(p.RESOURCE_LIMIT_EXCEEDED, text)

    def _forget_unfinished(self) -> None:
        if self._unfinished is not None:
            self.session.connection.partial_size -= len(self._unfinished.body)
            self._unfinished = None
            self._plain = not self.second

    def _hand_on(self, delivery: Unfinished, payload: bytes) -> None:
        if not delivery.settled:
            self.unanswered += 1
            if self.second:
                self._unsettled[delivery.id] = Unsettled(delivery.tag, delivery.second)
        self.owner.on_message(delivery.id, delivery.tag, payload, delivery.settled, delivery.state)

    @property
    def partial_state(self) -> p.DeliveryState | None:
        """What the peer has said of the message of which some transfers have come; None: nothing, or there is none."""
        return None if self._unfinished is None else self._unfinished.state

    # Answers.

    @property
    def unsettled(self) -> dict[int, Unsettled]:
        """By id, what the peer has not settled of a link with rcv-settle-mode second; also while its end is told."""
        return self._unsettled

    def accept(self, delivery_id: int) -> None:
        """Answer a message, once: it is taken. The peer is told by the next flush."""
        if self.second or self.ended:
            self.answer(delivery_id, ACCEPTED)
            return
        self.unanswered -= 1
        self.session.accept(delivery_id)

    def answer(self, delivery_id: int, state: p.DeliveryState | None, settled: bool = True) -> None:
        """Answer a message. Unless `settled`, another answer must follow.

        Where the peer settles first (rcv-settle-mode second), so does that: `settled` is not heeded.
        """
        if self.ended:
            return
        if self.second:
            delivery = self._unsettled.get(delivery_id)
            if delivery is None:
                return
            delivery.state = state
            settled = settled and not delivery.second
        if settled:
            self.unanswered -= 1
            self._unsettled.pop(delivery_id, None)
        self.session.answer(p.ROLE_RECEIVER, delivery_id, settled, state)

    def peer_settled(self, first: int, count: int) -> None:
        """The peer has settled what it sent, on a link with rcv-settle-mode second."""
        for delivery_id in [each for each in self._unsettled if each - first & MASK < count]:
            del self._unsettled[delivery_id]
            self.unanswered -= 1
        self._look_at_credit()


class OutgoingLink(Link):
    """We send, the peer receives."""

    __slots__ = (
        "_head",
        "_outbox",
        "_whole_max",
        "drain",
        "message_size_max",
        "owner",
        "settled",
        "tag_prefix",
        "unsettled",
    )

    owner: OutgoingOwner

    def __init__(self, session: Session, attach: p.Attach) -> None:
        super().__init__(session, attach)
        self.drain = False
        self.settled = self.snd_settle_mode == SETTLED  # the peer wants everything settled
        self.message_size_max = int(attach.max_message_size or 0)  # the peer's; 0 is no limit
        self.unsettled: dict[
            int, object
        ] = {}  # by delivery id: the token given to `send`, in the order of sending
        self.tag_prefix = b""  # up to four octets, to be set before `attach` by who resumes links
        self._outbox = session.connection.outbox

    def _find_owner(self) -> None:
        self.owner = self.session.owner.on_attach_outgoing(self, self.attach_request)

    def _tell_owner(self) -> None:
        self.owner.on_detached(list(self.unsettled.values()), self._closed)

    def _begin(self) -> None:
        """Nothing is sent before the peer's first flow."""

    def _attach(
        self,
        source: SourceLike,
        target: TargetLike,
        properties: Mapping[str, Value] | None,
        offered_capabilities: Sequence[str],
        unsettled: Mapping[Value, Value] | None,
    ) -> p.Attach:
        self._head = TransferHead(self.session.channel, self.handle, self.tag_prefix)
        self._whole_max = self.session.connection.frame_size_max - self._head.size
        return p.Attach(
            name=self.name,
            handle=self.handle,
            role=p.ROLE_SENDER,
            snd_settle_mode=self.snd_settle_mode,
            rcv_settle_mode=self.rcv_settle_mode,
            source=source,
            target=target,
            unsettled=unsettled,
            initial_delivery_count=self.delivery_count,
            offered_capabilities=offered_capabilities,
            properties=properties,
        )

    # Credit.

    def credit_told(self) -> int:
        return self.credit

    def drain_told(self) -> bool:
        return self.drain

    def _take_flow(self, flow: p.Flow) -> None:
        if flow.properties is not None and "txn-id" in flow.properties:
            raise AmqpError(p.NOT_IMPLEMENTED, "transactional acquisition is not supported")
        before = self.credit, self.drain
        if flow.link_credit is not None:
            # the receiver that has not seen our attach counts from the beginning
            sent = distance(self.delivery_count, flow.delivery_count or 0)
            self.credit = min(max(0, flow.link_credit - sent), MASK)
        self.drain = flow.drain
        if before != (self.credit, self.drain) or self.drain or flow.echo:
            self.owner.on_credit(self)

    def drained(self) -> None:
        """There is nothing (more) to send: the credit that is left is void, and the peer hears so (S180)."""
        if not self.ended:
            self.delivery_count = self.delivery_count + self.credit & MASK
            self.credit = 0
            self.session.say_flow(self)

    # Messages.

    def send(self, token: object, pieces: list[bytes], size: int, settled: bool) -> int:
        """Send a message, the octets of `pieces`, `size` in all; answer its delivery id. It takes one credit.

        Unless `settled`, `token` comes back with its outcome. What is over the peer's window waits in the session.
        """
        session = self.session
        delivery_id = session.next_delivery_id
        session.next_delivery_id = delivery_id + 1 & MASK
        self.credit -= 1
        self.delivery_count = self.delivery_count + 1 & MASK
        if not settled:
            session.unsettled[delivery_id] = self
            self.unsettled[delivery_id] = token
        if size > self._whole_max or session.window < 1 or session.backlog:
            self._send_parts(self._head.body(delivery_id, settled, more=size > self._whole_max), pieces, size)
            return delivery_id
        session.window -= 1
        session.next_outgoing_id = session.next_outgoing_id + 1 & MASK
        head = self._head
        octets = size + head.size
        out = self._outbox.open()
        out.append(
            head.pack(octets, head.start, delivery_id, head.tag, delivery_id, 0x4341 if settled else 0x4342)
        )
        out += pieces
        self._outbox.wrote(octets)
        return delivery_id

    def resume(
        self,
        token: object,
        tag: bytes,
        pieces: list[bytes],
        size: int,
        settled: bool = False,
        state: p.DeliveryState | None = None,
    ) -> int:
        """Send a message again that the peer has as unsettled, under the tag it knows. Otherwise as `send`."""
        session = self.session
        delivery_id = session.next_delivery_id
        session.next_delivery_id = delivery_id + 1 & MASK
        self.credit -= 1
        self.delivery_count = self.delivery_count + 1 & MASK
        if not settled:
            session.unsettled[delivery_id] = self
            self.unsettled[delivery_id] = token
        transfer = p.Transfer(
            handle=self.handle, delivery_id=delivery_id, delivery_tag=tag, message_format=0,
            settled=settled, state=state, resume=True,
        )  # fmt: skip
        whole = transfer.encode()
        transfer.more = size + FRAME_OVERHEAD + len(whole) > session.connection.frame_size_max
        self._send_parts(transfer.encode() if transfer.more else whole, pieces, size)
        return delivery_id

    def _send_parts(self, first: bytes, pieces: list[bytes], size: int) -> None:
        """Send a message in as many frames as it takes, or as the peer's window lets; `first` is how it begins."""
        session = self.session
        frame_size_max = session.connection.frame_size_max
        at = frame_size_max - FRAME_OVERHEAD - len(first)
        session.send(self, first, cut(pieces, 0, min(at, size)))
        step = frame_size_max - FRAME_OVERHEAD - CONTINUATION_SIZE_MAX
        while at < size:
            after = min(at + step, size)
            session.send(self, continuation(self.handle, more=after < size), cut(pieces, at, after))
            at = after

    def tag(self, delivery_id: int) -> bytes:
        """The delivery tag that `send` gave it."""
        return self.tag_prefix + delivery_id.to_bytes(4)

    # Outcomes.

    def take_outcomes(self, ids: Sequence[int], state: p.DeliveryState | None, settled: bool) -> None:
        """What the peer says of deliveries, all of them unsettled ones of this link. Raises no AmqpError."""
        if self.ended:
            return
        if settled:
            tokens = [self.unsettled.pop(each) for each in ids]
            self.session.forget_deliveries(ids)
        else:
            tokens = [self.unsettled[each] for each in ids]
        try:
            self.owner.on_outcomes(ids, tokens, state, settled)
        except AmqpError as error:
            self.fail(error)

    def settle(self, ids: Sequence[int], state: p.DeliveryState | None = None) -> None:
        """End deliveries that the peer left unsettled; it is told by the next flush. Those that have ended are not."""
        for delivery_id in ids:
            if self.unsettled.pop(delivery_id, self) is not self:
                self.session.forget_deliveries((delivery_id,))
                self.session.answer(p.ROLE_SENDER, delivery_id, True, state)
