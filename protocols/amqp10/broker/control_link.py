"""A control link (AMQP 1.0 part 4, sections 4.2 and 4.3), whose messages declare transactions and discharge them.

    Declare                 -> Declared(txn-id)
    Discharge               -> Accepted, when the committed work is safe
    an invalid request      -> Rejected(error); or the link ends with the error, if its source does not list rejected

The transactions themselves are in transactions.py. The link cannot be resumed, and takes no other messages.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from leveret.protocols.amqp10.broker import resumption
from leveret.protocols.amqp10.broker.transactions import Controller, rejected
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.sections import code_of
from leveret.protocols.amqp10.codec.types import Symbol, skip_at, value_at
from leveret.protocols.amqp10.machine.contract import IncomingOwner
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink

if TYPE_CHECKING:
    from leveret.protocols.amqp10.broker.session import ServedSession

CAPABILITIES: Final = (
    p.TXN_CAPABILITY_LOCAL_TRANSACTIONS,
    p.TXN_CAPABILITY_MULTI_TXNS_PER_SSN,
    p.TXN_CAPABILITY_MULTI_SSNS_PER_TXN,
)
REQUEST_SIZE_MAX: Final = 4096  # bytes of a message to the coordinator


def attach(session: ServedSession, link: IncomingLink, attach: p.Attach) -> ControlLink:
    """Serve a sender whose target is a coordinator (S175). Raises AmqpError."""
    assert isinstance(attach.target, p.Coordinator)
    beyond = [str(wish) for wish in attach.target.capabilities if wish not in CAPABILITIES]
    if beyond:
        raise AmqpError(p.NOT_IMPLEMENTED, f"Transactions not supported: {', '.join(beyond)}")
    resumption.require_none(attach)
    owner = ControlLink(session, link, attach)
    link.attach(attach.source, p.Coordinator(capabilities=[Symbol(name) for name in CAPABILITIES]))
    return owner


class ControlLink(IncomingOwner, Controller):
    """The broker's side of a control link."""

    __slots__ = ("_discharged", "_link", "_marked", "_rejects", "_session", "_transactions")

    def __init__(self, session: ServedSession, link: IncomingLink, attach: p.Attach) -> None:
        self._session = session
        self._link = link
        self._transactions = session.transactions
        outcomes = attach.source.outcomes if isinstance(attach.source, p.Source) else []
        self._rejects = not outcomes or p.Rejected.NAME in outcomes
        self._discharged: list[int] = []  # to be answered when the broker has settled
        self._marked: deque[list[int]] = deque()  # the deliveries before each mark

    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        if settled:
            raise AmqpError(p.NOT_ALLOWED, "a message to the coordinator is sent unsettled")
        if state is not None:
            raise AmqpError(p.NOT_ALLOWED, "a message to the coordinator is not part of a transaction")
        try:
            self._perform(delivery_id, request_in(payload))
        except AmqpError as error:
            if not self._rejects:
                raise
            self._link.answer(delivery_id, rejected(error))

    def _perform(self, delivery_id: int, request: p.Declare | p.Discharge) -> None:
        if isinstance(request, p.Discharge):
            self._discharge(delivery_id, request)
        elif request.global_id is not None:
            raise AmqpError(p.NOT_IMPLEMENTED, "Transactions not supported: distributed ones")
        else:
            self._link.answer(delivery_id, p.Declared(txn_id=self._transactions.declare(self)))

    def _discharge(self, delivery_id: int, request: p.Discharge) -> None:
        if self._is_partly_posted(request.txn_id):
            error = "a message of the transaction has come in part only"
            self.terminate(AmqpError(p.TRANSACTION_ROLLBACK, error))
            return
        self._transactions.discharge(self, request.txn_id, bool(request.fail))
        if not self._discharged:
            self._session.published(self)
        self._discharged.append(delivery_id)

    def _is_partly_posted(self, txn_id: bytes) -> bool:
        """Return whether transfers of one of its messages are still to come, which is an error (4.4.1)."""
        links = (
            link for session in self._session.connection.sessions for link in session.wire.links.values()
        )
        states = (link.partial_state for link in links if isinstance(link, IncomingLink))
        return any(isinstance(state, p.TransactionalState) and state.txn_id == txn_id for state in states)

    def mark(self) -> None:
        """Called after the broker has settled. One `answer` follows for each mark."""
        self._marked.append(self._discharged)
        self._discharged = []

    def answer(self) -> None:
        """Accept the discharges before the next mark: their messages are queued; the outbox waits for the disk."""
        for delivery_id in self._marked.popleft():
            self._link.accept(delivery_id)

    def terminate(self, error: AmqpError) -> None:
        self._link.detach(error)

    def on_detached(self, closed: bool) -> None:
        self._transactions.abandon(self)


def request_in(payload: bytes) -> p.Declare | p.Discharge:
    """Return the request in a message's amqp-value section; other sections are skipped. Raises AmqpError."""
    if len(payload) > REQUEST_SIZE_MAX:
        raise AmqpError(
            p.LINK_MESSAGE_SIZE_EXCEEDED, f"a message to the coordinator has {len(payload)} octets"
        )
    try:
        return _request_in(payload)
    except AmqpError as error:
        raise AmqpError(error.condition, error.description, Ends.LINK) from None


def _request_in(payload: bytes) -> p.Declare | p.Discharge:
    at, end = 0, len(payload)
    while at < end and payload[at] == 0:
        descriptor, inner = value_at(payload, at + 1, end)
        if code_of(descriptor) == p.AMQP_VALUE:
            request, _ = p.decode(payload, inner, end)
            if isinstance(request, p.Declare | p.Discharge):
                return request
            break
        at = skip_at(payload, inner, end)
    raise AmqpError(p.NOT_IMPLEMENTED, "a message to the coordinator is a declare or a discharge")
