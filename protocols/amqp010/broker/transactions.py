"""The transaction of one session (class tx): transfers and accepts, held until it is committed or rolled back.

    tx.select ──> open ──commit────> messages to their queues, accepted deliveries gone; it begins anew
                   └────rollback──> messages forgotten, deliveries unsettled as before; it begins anew

Messages are routed when they come (S122). A transfer completes when it is held: its completion only means that it will
take part. A commit is all or nothing: if a queue has no room for all the messages that it would get, or a message has
lost all its queues since (S125), nothing takes effect and the session ends, as it does for a single message. Reject
and release are not part of a transaction: they take effect at once, and cancel an accept of the same delivery in it.
After a rollback the session still holds the deliveries that it had accepted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from leveret.protocols.amqp010.broker.unsettled import Sent
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.contract import SessionError
from leveret.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.delivery import Delivery
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message
    from leveret.protocols.amqp010.broker.session import ServedSession
    from leveret.protocols.amqp010.codec.sequences import Id, SequenceSet

HELD_SIZE_MAX: Final = 1 << 28  # bytes of one session's transaction; sixteen of the largest messages
OVERHEAD: Final = 512  # bytes that a message or an accepted delivery takes besides its content, roughly


class Work(ABC):
    """Takes a session's transfers and accepts while it works in a transaction."""

    __slots__ = ()

    @abstractmethod
    def publish(self, exchange: Exchange, message: Message) -> bool:
        """Hold a checked message; return False if it is unroutable at present. Raises SessionError."""

    @abstractmethod
    def accept(self, deliveries: dict[Id, Delivery]) -> None:
        """Hold these deliveries, by the ids of their transfers; the session has dropped them already. Raises
        SessionError."""

    def take_back(self, ids: SequenceSet) -> dict[Id, Delivery]:
        """Remove the deliveries of these transfers that are held here for the session, and return them."""
        return {}


class LocalTransaction(Work):
    """The transaction of a session that has called tx.select."""

    __slots__ = ("_accepted", "_session", "_size", "_size_max", "_tx")

    def __init__(self, session: ServedSession, size_max: int = HELD_SIZE_MAX) -> None:
        self._session = session
        self._size_max = size_max
        self._size = 0
        self._tx = Transaction()
        self._accepted: Sent[Delivery] = Sent()

    def publish(self, exchange: Exchange, message: Message) -> bool:
        self._grow(message.size + len(message.properties) + OVERHEAD)
        return self._tx.publish(self._session.broker, exchange, message)

    def accept(self, deliveries: dict[Id, Delivery]) -> None:
        self._accepted.put_back(deliveries)
        self._grow(OVERHEAD * len(deliveries))

    def take_back(self, ids: SequenceSet) -> dict[Id, Delivery]:
        return self._accepted.take(ids, self._session.last_sent)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._size_max:
            raise SessionError(
                c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, f"a transaction holds more than {self._size_max} octets"
            )

    def commit(self) -> None:
        """Let everything take effect. Raises SessionError if it cannot; then it is to be rolled back."""
        if (full := self._tx.obstacle()) is not None:
            raise SessionError(
                c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, f"{full.described} has no room for the transaction"
            )
        if not self._tx.fits_on_disk(self._session.broker):
            raise SessionError(
                c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, "the disk has no room for the transaction"
            )
        if stray := self._tx.stray():
            raise SessionError(c.ERROR_CODE_NOT_FOUND, stray)
        for delivery in self._accepted.table.values():
            self._tx.settle(delivery.accept)
        self._accepted.table.clear()
        self._size = 0
        refused = self._tx.commit()
        self._session.broker.hold_answer()
        if refused:  # by an exchange that holds messages: no queue refuses after `obstacle`
            raise SessionError(c.ERROR_CODE_INTERNAL_ERROR, f"{refused} messages were not taken")

    def roll_back(self) -> None:
        """Forget the messages and give the deliveries back to the session, unsettled."""
        self._tx.rollback()
        self._session.unsettled.put_back(dict(self._accepted.table.items()))
        for delivery in self._accepted.table.values():
            self._session.timeouts.watch(delivery)
        self._accepted.table.clear()
        self._size = 0


def tx_select(session: ServedSession, id: Id, command: c.TxSelect) -> None:
    """Make the session transactional, which is possible once."""
    if session.tx is not None or session.distributed is not None:
        raise SessionError(c.ERROR_CODE_ILLEGAL_STATE, "the session is transactional already")
    session.tx = LocalTransaction(session)
    session.complete(id)


def tx_commit(session: ServedSession, id: Id, command: c.TxCommit) -> None:
    """Commit. The completion is sent when everything that must be on disk is there."""
    _local(session).commit()
    session.complete(id)


def tx_rollback(session: ServedSession, id: Id, command: c.TxRollback) -> None:
    """Roll back. The session keeps the deliveries that were accepted in the transaction, and may release them."""
    _local(session).roll_back()
    session.complete(id)


def session_ended(session: ServedSession) -> None:
    """Roll back an open transaction."""
    if isinstance(session.tx, LocalTransaction):
        session.tx.roll_back()


def _local(session: ServedSession) -> LocalTransaction:
    if not isinstance(session.tx, LocalTransaction):
        raise SessionError(c.ERROR_CODE_ILLEGAL_STATE, "the session has not selected transactions")
    return session.tx


HANDLERS: Final[dict[type[c.Command], Callable[..., None]]] = {
    c.TxSelect: tx_select,
    c.TxCommit: tx_commit,
    c.TxRollback: tx_rollback,
}
