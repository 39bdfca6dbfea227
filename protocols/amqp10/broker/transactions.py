"""The transactions of a connection (AMQP 1.0 part 4): messages and outcomes, held until they are discharged.

    declare ──> open ──commit──> messages to their queues, then outcomes applied       all of it, or it is rolled back
                 │ └──roll back─> messages forgotten, deliveries as they were before
                 └─ failed: only a rollback is left

A transaction belongs to the control link that declared it, and may be used on every session of the connection. Messages
are routed when they are posted (S122). A message that was unroutable or refused then does not prevent a commit: the
controller knows, from the outcome in the answer. A message whose promised outcome cannot be kept does prevent it.

An outcome waits for the commit with the delivery unsettled, or settled if the receiver said so. After a rollback an
unsettled delivery still belongs to the receiver; a delivery that it had settled gets the link's default outcome
(4.4.4). Deliveries are not acquired in transactions: the machine refuses a flow that asks for it (4.4.3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from leveret.protocols.amqp10.broker.outcomes import Outcome, Retiring
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.wire import error_of
from leveret.transaction import Transaction

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.delivery import Delivery
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message

OPEN_MAX: Final = 256  # transactions of a connection: clients have one per session
HELD_SIZE_MAX: Final = 1 << 28  # bytes held by them all; sixteen of the largest messages
OVERHEAD: Final = 512  # bytes that a message or an outcome takes besides its content, roughly
DECODED: Final = 64  # bytes of memory for a decoded value per byte on the wire, at worst
ERROR_SIZE_MAX: Final = 256  # bytes of an error within an outcome within a disposition

ACCEPTED: Final = p.Accepted()
RELEASED: Final = p.Released()


class Controller(ABC):
    """A control link."""

    __slots__ = ()

    @abstractmethod
    def terminate(self, error: AmqpError) -> None:
        """Detach the link with the error; `Transactions.abandon` follows."""


class Held:
    """The outcome of a delivery, until the transaction is discharged."""

    __slots__ = ("id", "outcome", "owner", "settled", "token", "work")

    def __init__(
        self, work: Work, owner: Retiring, id: int, token: object, outcome: Outcome, settled: bool
    ) -> None:
        self.work = work
        self.owner = owner
        self.id = id
        self.token = token
        self.outcome = outcome
        self.settled = settled  # the receiver has settled it, or its link has ended


class Work:
    """The messages and outcomes of a transaction."""

    __slots__ = ("controller", "failed", "held", "id", "size", "tx", "watchers")

    def __init__(self, id: bytes, controller: Controller) -> None:
        self.id = id
        self.controller = controller
        self.tx = Transaction()  # its messages
        self.held: dict[object, Held] = {}  # its outcomes, by the token of the delivery
        self.size = 0  # bytes
        self.failed = ""  # the reason why it can only be rolled back
        self.watchers: list[Callable[[bool], None]] = []  # called at its end with whether it was committed


class Transactions:
    """The transactions of a connection. `held_size_max`: bytes that all of them may hold."""

    def __init__(self, broker: Broker, held_size_max: int = HELD_SIZE_MAX) -> None:
        self._broker = broker
        self._size_max = held_size_max
        self._open: dict[bytes, Work] = {}
        self._held: dict[object, Held] = {}  # of all of them
        self._size = 0
        self._declared = 0

    def declare(self, controller: Controller) -> bytes:
        """Begin a transaction and return its id. Raises AmqpError amqp:resource-limit-exceeded."""
        if len(self._open) >= OPEN_MAX:
            raise AmqpError(p.RESOURCE_LIMIT_EXCEEDED, f"there are {OPEN_MAX} transactions already")
        self._declared += 1
        work = Work(self._declared.to_bytes(8), controller)
        self._open[work.id] = work
        return work.id

    def discharge(self, controller: Controller, txn_id: bytes, fail: bool) -> None:
        """Commit, or roll back if `fail` is true.

        Raises AmqpError: amqp:transaction:unknown-id, or amqp:transaction:rollback if it could not be committed and was
        rolled back.
        """
        work = self._work(txn_id)
        if work.controller is not controller:
            raise _unknown(txn_id)
        if not fail and not work.failed and (full := work.tx.obstacle()) is not None:
            work.failed = f"{full.described} has no room for all of its messages"
        if not fail and not work.failed:
            work.failed = work.tx.stray()
        if not fail and not work.failed and not work.tx.fits_on_disk(self._broker):
            work.failed = "the disk has no room for its messages"
        refused = self._end(work, commit=not fail and not work.failed)
        if work.failed and not fail:
            raise AmqpError(p.TRANSACTION_ROLLBACK, f"the transaction was rolled back: {work.failed}")
        if refused:  # by an exchange that should have held them: no queue does that after `obstacle`
            raise AmqpError(p.INTERNAL_ERROR, f"{refused} messages of the transaction were not taken")

    def abandon(self, controller: Controller) -> None:
        """Roll back the undischarged transactions of a control link that has ended."""
        for work in [work for work in self._open.values() if work.controller is controller]:
            self._end(work, commit=False)

    def _end(self, work: Work, commit: bool) -> int:
        del self._open[work.id]
        refused = self._commit(work) if commit else self._roll_back(work)
        for told in work.watchers:
            told(commit)
        return refused

    def _commit(self, work: Work) -> int:
        """Commit everything in one call of the core. Returns how many messages were refused all the same."""
        held = self._let_go(work)
        work.tx.settle(partial(_retire, held))
        refused = work.tx.commit()
        self._broker.hold_answer()
        for owner, outcome, each in _batches(held):
            owner.link.settle([one.id for one in each], outcome)  # settled deliveries are skipped
        return refused

    def _roll_back(self, work: Work) -> int:
        work.tx.rollback()
        for owner, _, each in _batches(self._let_go(work)):
            if tokens := [one.token for one in each if one.settled]:
                owner.retire(tokens, owner.default_outcome)
        return 0

    def _let_go(self, work: Work) -> list[Held]:
        """Return the outcomes of a transaction, which holds nothing any more."""
        held = list(work.held.values())
        for each in held:
            del self._held[each.token]
        work.held.clear()
        self._size -= work.size
        work.size = 0
        return held

    def publish(self, state: p.TransactionalState, exchange: Exchange, message: Message) -> p.DeliveryState:
        """Hold a message, with every check done, until its transaction is discharged.

        Returns the immediate answer, unless the message was sent settled: a TransactionalState with the outcome that
        counts after a commit. Raises AmqpError amqp:transaction:unknown-id: the link ends.
        """
        work = self._work(state.txn_id)
        self._grow(work, message.size + len(message.properties) + OVERHEAD)
        if work.failed:
            return self._answer(work, rejected(AmqpError(p.TRANSACTION_ROLLBACK, work.failed)))
        copies = work.tx.copies
        routed = work.tx.publish(self._broker, exchange, message)
        # A commit is one piece of work, during which no other connection has a turn.
        self._grow(work, OVERHEAD * max(0, work.tx.copies - copies - 1))
        return self._answer(work, self._unless_failed(work, ACCEPTED if routed else RELEASED))

    def _unless_failed(self, work: Work, outcome: Outcome) -> Outcome:
        """Return the outcome that counts after a commit, or rejected if there can be none."""
        return rejected(AmqpError(p.TRANSACTION_ROLLBACK, work.failed)) if work.failed else outcome

    def refuse(self, state: p.TransactionalState, error: AmqpError, settled: bool) -> p.DeliveryState:
        """Note a refused message of a transaction. Returns the immediate answer, unless the message was sent settled.

        A controller that sent it settled gets no answer, so its transaction cannot be committed. Raises AmqpError
        amqp:transaction:unknown-id: the link ends.
        """
        work = self._work(state.txn_id)
        if settled:
            self._fail(work, error.description)
        return self._answer(work, rejected(error))

    def watch(self, state: p.TransactionalState, told: Callable[[bool], None]) -> None:
        """Call `told` at the transaction's end with whether it was committed, or now with False if it has ended."""
        if state.txn_id in self._open:
            self._open[state.txn_id].watchers.append(told)
        else:
            told(False)

    def _answer(self, work: Work, outcome: Outcome) -> p.TransactionalState:
        return p.TransactionalState(txn_id=work.id, outcome=outcome)

    def settle(
        self,
        owner: Retiring,
        ids: Sequence[int],
        tokens: Sequence[object],
        state: p.TransactionalState,
        settled: bool,
    ) -> None:
        """Hold the outcome of a disposition in a transaction until the discharge. The arguments are those of
        on_outcomes.

        Raises AmqpError: amqp:transaction:unknown-id, which ends the link, or what `outcome_in` raises.
        """
        try:
            work = self._work(state.txn_id)
            outcome = self._outcome(owner, state, settled)
        except AmqpError:
            if settled:  # the link has forgotten them
                owner.retire(list(tokens), owner.default_outcome)
            raise
        if outcome is None:
            return
        if others := self._others(work, tokens):
            if settled:
                owner.retire(self.plainly(ids, tokens, None, settled)[1], owner.default_outcome)
            for controller in others | {work.controller}:
                controller.terminate(
                    AmqpError(p.TRANSACTION_ROLLBACK, "a delivery has outcomes of two transactions")
                )
            return
        self._grow(work, OVERHEAD * len(tokens) + _weight(outcome))
        if work.failed:
            if settled:
                owner.retire(list(tokens), owner.default_outcome)
            return
        for id, token in zip(ids, tokens, strict=True):
            work.held[token] = self._held[token] = Held(work, owner, id, token, outcome, settled)

    def _outcome(self, owner: Retiring, state: p.TransactionalState, settled: bool) -> Outcome | None:
        """Return the outcome in a transactional state, or None if it has no effect."""
        if state.outcome is None:
            return owner.default_outcome if settled else None
        return owner.outcome_in(state.outcome)

    def _others(self, work: Work, tokens: Sequence[object]) -> set[Controller]:
        """Return the control links of other transactions with outcomes of these deliveries, which is an error
        (4.4.2)."""
        found = (self._held.get(token) for token in tokens)
        return {held.work.controller for held in found if held is not None and held.work is not work}

    @property
    def hold_outcomes(self) -> bool:
        """True if `plainly` and `left` must be called, because a transaction holds an outcome."""
        return bool(self._held)

    def plainly(
        self, ids: Sequence[int], tokens: Sequence[object], state: p.DeliveryState | None, settled: bool
    ) -> tuple[list[int], list[object]]:
        """Return the ids and tokens of the deliveries that a disposition without a transaction decides about.

        If it has an outcome, that replaces an earlier one in a transaction. If not, deliveries with an outcome in a
        transaction keep waiting, and are settled if the disposition is.
        """
        says_nothing = state is None or isinstance(state, p.Received)
        free: list[tuple[int, object]] = []
        for id, token in zip(ids, tokens, strict=True):
            held = self._held.get(token)
            if held is not None and says_nothing:
                held.settled = held.settled or settled
                continue
            if held is not None:
                del self._held[token], held.work.held[token]
            free.append((id, token))
        return [id for id, _ in free], [token for _, token in free]

    def not_held(self, deliveries: list[tuple[int, Delivery]]) -> list[tuple[int, Delivery]]:
        """Return those of the deliveries, each with its id, that no transaction has an outcome for."""
        held = self._held
        return [each for each in deliveries if each[1] not in held] if held else deliveries

    def left(self, tokens: Sequence[object]) -> list[object]:
        """Return the unsettled deliveries of an ended link that no transaction holds; mark the others as settled."""
        free = []
        for token in tokens:
            if (held := self._held.get(token)) is None:
                free.append(token)
            else:
                held.settled = True
        return free

    def _work(self, txn_id: bytes) -> Work:
        if (work := self._open.get(txn_id)) is None:
            raise _unknown(txn_id)
        return work

    def _grow(self, work: Work, size: int) -> None:
        if work.failed:
            return
        work.size += size
        self._size += size
        if self._size > self._size_max:
            self._fail(work, f"transactions hold more than {self._size_max} octets")

    def _fail(self, work: Work, why: str) -> None:
        """Roll back now; the transaction then only waits for its discharge."""
        if not work.failed:
            work.failed = why
            self._roll_back(work)


def rejected(error: AmqpError) -> p.Rejected:
    return p.Rejected(error=error_of(error, ERROR_SIZE_MAX))


def _weight(outcome: Outcome) -> int:
    """Return the bytes that an outcome itself takes while it is held."""
    return DECODED * len(outcome.encode()) if isinstance(outcome, p.Modified | p.Rejected) else 0


def _unknown(txn_id: bytes) -> AmqpError:
    return AmqpError(p.TRANSACTION_UNKNOWN_ID, f"no transaction {txn_id[:32].hex()}")


def _retire(held: list[Held]) -> None:
    for owner, outcome, each in _batches(held):
        owner.retire([one.token for one in each], outcome)


def _batches(held: Iterable[Held]) -> Iterator[tuple[Retiring, Outcome, list[Held]]]:
    """Group outcomes into batches by link and outcome, in the order of the requests."""
    for (owner, outcome), each in groupby(held, key=lambda one: (one.owner, one.outcome)):
        yield owner, outcome, list(each)
