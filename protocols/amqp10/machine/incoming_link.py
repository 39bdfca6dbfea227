"""Links on which the peer of an AMQP 1.0 session sends: credit, messages from their transfers, and our answers.

Credit is counted in deliveries. We grant it, and grant it again when half is used up, but not while as many messages as
that are still unanswered (X055). A message is answered once; where the receiver settles second, the answer is kept
until the peer has settled (part 2, section 2.6.12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.wire import MASK, TAG_SIZE_MAX, distance
from leveret.protocols.amqp10.machine.contract import ENDED_INCOMING, IncomingOwner
from leveret.protocols.amqp10.machine.link import Link, SourceLike, States, TargetLike, map_of, size_exceeded
from leveret.protocols.shared.machine.contract import SIZE_SETTING

if TYPE_CHECKING:
    from leveret.protocols.amqp10.codec.types import Value
    from leveret.protocols.amqp10.machine.session import Session

SECOND: Final = p.RECEIVER_SETTLE_MODE_SECOND
MODES: Final = {p.SENDER_SETTLE_MODE_UNSETTLED: "unsettled", p.SENDER_SETTLE_MODE_SETTLED: "settled"}
FORBIDDEN: Final = {p.SENDER_SETTLE_MODE_UNSETTLED: True, p.SENDER_SETTLE_MODE_SETTLED: False}  # as `settled`
ACCEPTED: Final = p.Accepted()
TXN_ID_SIZE_MAX: Final = 32  # bytes; ours have 8
UNLIMITED: Final = 1 << 62
TOGETHER_MIN: Final = 2  # messages passed on together: few, until they are found to be alike
TOGETHER_MAX: Final = 1024


class Unfinished:
    """A delivery of which some transfers have been received."""

    __slots__ = ("body", "format", "id", "second", "settled", "state", "tag")

    def __init__(self, delivery_id: int, tag: bytes, settled: bool, second: bool, format: int) -> None:
        self.format = format  # of the message: 0, or one that is not that of AMQP
        self.id = delivery_id
        self.tag = tag
        self.settled = settled
        self.second = second  # we settle it after the peer has settled it (part 2, section 2.6.12)
        self.state: p.DeliveryState | None = None
        # A single growing array, not a list of parts: a million tiny transfers must not cost more than their bytes.
        self.body = bytearray()

    def check(self, transfer: p.Transfer) -> None:
        """Check that another transfer belongs to this delivery (X056). Aborting settles it (part 2, section 2.7.5)."""
        for name, ours, theirs in (
            ("delivery-id", self.id, transfer.delivery_id),
            ("delivery-tag", self.tag, transfer.delivery_tag),
            ("settled", self.settled, None if transfer.aborted else transfer.settled),
        ):
            if theirs is not None and theirs != ours:
                text = f"{name} of a transfer differs from the first of the same delivery: {theirs!s}, not {ours!s}"
                raise AmqpError(p.INVALID_FIELD, text)


class Unsettled:
    """A delivery on a link with rcv-settle-mode second, until the peer has settled it."""

    __slots__ = ("second", "settled", "state", "tag")

    def __init__(self, tag: bytes, second: bool) -> None:
        self.tag = tag
        self.second = second  # whether the mode is that of the delivery, too
        self.settled = False  # the peer has settled it, or forgotten it
        self.state: p.DeliveryState | None = None  # our answer, if there is one


class IncomingLink(Link):
    """A link on which the peer sends."""

    __slots__ = (
        "_forbidden",
        "_low",
        "_plain",
        "_together",
        "_unfinished",
        "counted_from",
        "credit_max",
        "hungry",
        "owner",
        "second",
        "size_max",
        "tells_settled",
        "unanswered",
        "unsettled",
    )

    owner: IncomingOwner

    def __init__(self, session: Session, attach: p.Attach) -> None:
        super().__init__(session, attach)
        tuning = session.connection.tuning
        self.delivery_count = int(attach.initial_delivery_count or 0)
        # The initial delivery-count, advanced by the credit that the peer has skipped.
        self.counted_from = self.delivery_count
        self.unanswered = 0  # messages that we have not settled
        self.credit_max = tuning.link_credit
        self._low = tuning.link_credit // 2
        self.hungry = False  # the session will check whether to grant credit
        self.second = self.rcv_settle_mode == SECOND
        self.size_max = tuning.message_size_max or UNLIMITED
        self.tells_settled = False  # the owner wants to know what the peer has settled
        self._forbidden = FORBIDDEN.get(self.snd_settle_mode)
        self._plain = not self.second  # not second, nothing unfinished, and not for resumed deliveries alone
        self._together = TOGETHER_MIN
        self._unfinished: Unfinished | None = None
        # Deliveries by id, if the link is `second`; also while the owner is told of the end.
        self.unsettled: dict[int, Unsettled] = {}

    def _find_owner(self, attach: p.Attach) -> None:
        if attach.initial_delivery_count is None:
            raise AmqpError(p.INVALID_FIELD, "a sender attaches without an initial-delivery-count")
        self.owner = self.session.owner.on_attach_incoming(self, attach)

    def _tell_owner(self) -> None:
        self._forget_unfinished()
        owner, self.owner = self.owner, ENDED_INCOMING
        owner.on_detached(self._closed)
        self.unsettled.clear()

    def _begin(self) -> None:
        self._plain = not self.second and self.tells_all
        self.grant()

    def _attach(
        self,
        source: SourceLike,
        target: TargetLike,
        properties: Mapping[str, Value] | None,
        offered_capabilities: Sequence[str],
        unsettled: States | None,
    ) -> p.Attach:
        return p.Attach(
            name=self.name,
            handle=self.handle,
            role=p.ROLE_RECEIVER,
            snd_settle_mode=self.snd_settle_mode,
            rcv_settle_mode=self.rcv_settle_mode,
            source=source,
            target=target,
            unsettled=map_of(unsettled),
            max_message_size=self.session.connection.tuning.message_size_max,
            offered_capabilities=offered_capabilities,
            properties=properties,
        )

    def settle_first(self) -> None:
        """Answer with rcv-settle-mode first to a sender that asks for second. Called before our attach."""
        self.rcv_settle_mode = p.RECEIVER_SETTLE_MODE_FIRST
        self.second, self._plain = False, True

    def credit_told(self) -> int:
        return min(self.credit, self.credit_max)

    def drain_told(self) -> bool:
        return False

    def want(self, credit: int) -> None:
        """Set the credit to grant from now on; 0 grants none. Messages for earlier credit may still come."""
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
                self.counted_from += passed_over
                self.credit = max(0, self.credit - passed_over)
                self._look_at_credit()

    @property
    def received(self) -> int:
        """The number of messages that have begun to come."""
        return self.delivery_count - self.counted_from & MASK

    def take(self, delivery_id: int, tag: bytes, settled: bool | None, more: bool, payload: bytes) -> None:
        """Take a transfer with the usual fields. Raises no AmqpError."""
        credit = self.credit - 1
        is_settled = settled is True
        if (
            more or not self._plain or credit < 0
            or is_settled is self._forbidden or len(payload) > self.size_max
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

    def run_max(self, settled: bool) -> int:
        """Return how many whole messages may be taken at once, if the sender settles them like this."""
        return 0 if not self._plain or settled is self._forbidden else min(self.credit, self._together)

    def take_run(self, delivery_ids: list[int], payloads: list[bytes], settled: bool) -> int:
        """Take whole messages, up to `run_max`. Return how many were taken; the others are taken one by one."""
        count = self.owner.on_run(delivery_ids, payloads, settled)
        is_all = count == len(payloads)
        self._together = min(2 * self._together, TOGETHER_MAX) if is_all else TOGETHER_MIN
        credit = self.credit
        self.credit = credit - count
        self.delivery_count = self.delivery_count + count & MASK
        if not settled:
            self.unanswered += count
        if credit > self._low >= self.credit:
            self.session.is_hungry(self)
        return count

    def take_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        """Take any transfer. Raises no AmqpError."""
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
            if transfer.resume:
                self.owner.on_aborted(delivery.tag)
            return
        if transfer.state is not None:
            delivery.state = _what_counts(transfer.state)
        size = len(delivery.body) + len(payload)
        if size > self.size_max:
            raise size_exceeded(
                size, self.size_max, self.session.connection.tuning.link_errors_end, SIZE_SETTING
            )
        if transfer.more:
            self._keep(delivery, payload)
            return
        if delivery.body:
            payload = bytes(delivery.body + payload)
        self._forget_unfinished()
        self._hand_on(delivery, payload)

    def _first_of(self, transfer: p.Transfer) -> Unfinished:
        """Return the delivery that a transfer begins, and use up a credit for it. Raises AmqpError."""
        delivery_id, tag = transfer.delivery_id, transfer.delivery_tag
        if delivery_id is None or tag is None or len(tag) > TAG_SIZE_MAX:
            text = (
                f"a delivery begins without a delivery-id, or a delivery-tag of up to {TAG_SIZE_MAX} octets"
            )
            raise AmqpError(p.INVALID_FIELD, text)
        if not self.credit:
            raise AmqpError(p.LINK_TRANSFER_LIMIT_EXCEEDED, f"the sender of link '{self.name}' has no credit")
        settled = transfer.settled is True
        if settled is self._forbidden and not (transfer.resume or transfer.aborted):
            text = f"sender settle mode is '{MODES[self.snd_settle_mode]}' but transfer settled flag is interpreted"
            raise AmqpError(p.INVALID_FIELD, f"{text} as being '{str(settled).lower()}'")
        if transfer.rcv_settle_mode == SECOND and not self.second:
            raise AmqpError(
                p.INVALID_FIELD, "rcv-settle-mode of a transfer is second, that of its link is first"
            )
        if transfer.resume and tag not in self.told_unsettled:
            raise AmqpError(p.NOT_IMPLEMENTED, "Link recovery not supported")
        if not (transfer.resume or self.tells_all):
            text = "a new delivery, before the sender has been told of all that are unsettled"
            raise AmqpError(p.NOT_ALLOWED, text)
        self.credit -= 1
        self.delivery_count = self.delivery_count + 1 & MASK
        self._look_at_credit()
        second = self.second and transfer.rcv_settle_mode in (None, SECOND)
        return Unfinished(int(delivery_id), tag, settled, second, int(transfer.message_format or 0))

    def _keep(self, delivery: Unfinished, payload: bytes) -> None:
        self._unfinished = delivery
        self._plain = False
        delivery.body += payload
        connection = self.session.connection
        if not connection.unfinished.add(self, len(payload), connection.heard_at):
            text = f"unfinished messages of the connection exceed {connection.unfinished.size_max} octets"
            raise AmqpError(p.RESOURCE_LIMIT_EXCEEDED, text)

    def _forget_unfinished(self) -> None:
        if self._unfinished is not None:
            self.session.connection.unfinished.remove(self)
            self._unfinished = None
            self._plain = not self.second and self.tells_all

    def _hand_on(self, delivery: Unfinished, payload: bytes) -> None:
        if not delivery.settled:
            self.unanswered += 1
            if self.second:
                self.unsettled[delivery.id] = Unsettled(delivery.tag, delivery.second)
        if delivery.format:
            text = f"message-format 0x{delivery.format:08x} is not supported"
            error = AmqpError(p.NOT_IMPLEMENTED, text)
            self.owner.on_unsupported(delivery.id, delivery.tag, delivery.settled, delivery.state, error)
            return
        self.owner.on_message(delivery.id, delivery.tag, payload, delivery.settled, delivery.state)

    @property
    def partial_state(self) -> p.DeliveryState | None:
        """The peer's state for the unfinished message, or None if it sent none, or there is no such message."""
        return None if self._unfinished is None else self._unfinished.state

    def accept(self, delivery_id: int) -> None:
        """Accept a message, as its only answer. The next flush sends it."""
        self.accept_all((delivery_id,))

    def accept_all(self, delivery_ids: Sequence[int]) -> None:
        """Accept a batch of messages, which saves two calls per message."""
        if self.second or self.ended:
            for delivery_id in delivery_ids:
                self.answer(delivery_id, ACCEPTED)
            return
        self.unanswered -= len(delivery_ids)
        self.session.accept(delivery_ids)

    def answer(self, delivery_id: int, state: p.DeliveryState | None, settled: bool = True) -> None:
        """Answer a message. Unless `settled`, another answer must follow.

        Where the peer settles first (rcv-settle-mode second), `settled` is ignored.
        """
        if self.ended:
            return
        if self.second:
            delivery = self.unsettled.get(delivery_id)
            if delivery is None:
                return
            delivery.state = state
            settled = settled and not delivery.second
        if settled:
            self.unanswered -= 1
            self.unsettled.pop(delivery_id, None)
        self.session.answer(p.ROLE_RECEIVER, delivery_id, settled, state)

    def peer_settled(self, first: int, count: int) -> None:
        """Forget deliveries that the peer has settled, on a link with rcv-settle-mode second."""
        settled: list[Unsettled] = []
        for delivery_id in [each for each in self.unsettled if each - first & MASK < count]:
            delivery = self.unsettled.pop(delivery_id)
            delivery.settled = True
            settled.append(delivery)
            self.unanswered -= 1
        if settled and self.tells_settled:
            self.owner.on_settled(settled)
        self._look_at_credit()


def _what_counts(state: p.DeliveryState) -> p.DeliveryState | None:
    """Return a transactional state reduced to its id, or None for any other state, which is ignored."""
    if not isinstance(state, p.TransactionalState):
        return None
    if len(state.txn_id) > TXN_ID_SIZE_MAX:
        raise AmqpError(p.TRANSACTION_UNKNOWN_ID, f"no transaction has an id of {len(state.txn_id)} octets")
    return p.TransactionalState(txn_id=state.txn_id)
