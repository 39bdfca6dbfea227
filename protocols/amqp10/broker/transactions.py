"""The transactions of one connection (AMQP 1.0 part 4): messages and outcomes, held until they are discharged.

    declare ──> open ──commit──> messages to their queues, then outcomes applied       all of it, or it is rolled back
                 │ └──roll back─> messages forgotten, deliveries as they were before
                 └─ failed: only a rollback is left

A transaction belongs to the control link that declared it, and may be used on every session of the connection. Messages
are routed when they are posted (S122). What was unroutable then, or refused, is no obstacle to a commit: the controller
has been told so, in the outcome that would count. What cannot be held to that any more is one.

An outcome waits for the commit with the delivery unsettled, or settled if the receiver said so. After a rollback an
unsettled delivery is still the receiver's; one that it had settled gets the link's default outcome (4.4.4). Deliveries
are not acquired in transactions: the machine refuses a flow that asks for it (4.4.3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from broker_core.transaction import Transaction
from protocols.amqp10.broker.outcomes import Outcome, Retiring
from protocols.amqp10.codec import performatives as p
from protocols.amqp10.codec.errors import AmqpError
from protocols.amqp10.codec.wire import error_of

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.exchanges.exchange import Exchange
    from broker_core.message import Message

OPEN_MAX: Final = 256  # transactions of one connection: clients have one a session
HELD_SIZE_MAX: Final = 1 << 28  # octets held by them all; sixteen of the largest messages
OVERHEAD: Final = 512  # octets that a message or an outcome takes here besides its own, roughly
DECODED: Final = 64  # octets that a decoded value takes for one on the wire, at worst
ERROR_SIZE_MAX: Final = 256  # octets of an error within an outcome within a disposition

ACCEPTED: Final = p.Accepted()
RELEASED: Final = p.Released()


class Controller(ABC):
    """A control link."""

    __slots__ = ()

    @abstractmethod
    def terminate(self, error: AmqpError) -> None:
        """Detach the link with the error; `Transactions.abandon` follows."""


class Held:
    """The outcome of one delivery, until the transaction is discharged."""

    __slots__ = ("id", "outcome", "owner", "settled", "token", "work")

    def __init__(
        self, work: Work, owner: Retiring, id: int, token: object, outcome: Outcome, settled: bool
    ) -> None:
        self.work = work
        self.owner = owner
        self.id = id
        self.token = token
        self.outcome = outcome
        self.settled = settled  # the receiver has settled it, or its link has gone


class Work:
    """What was asked for in one transaction."""

    __slots__ = ("controller", "failed", "held", "id", "size", "tx", "watchers")

    def __init__(self, id: bytes, controller: Controller) -> None:
        self.id = id
        self.controller = controller
        self.tx = Transaction()  # its messages
        self.held: dict[object, Held] = {}  # its outcomes, by the token of the delivery
        self.size = 0  # octets
        self.failed = ""  # why it can only be rolled back
        self.watchers: list[Callable[[bool], None]] = []  # told at its end whether it was committed


class Transactions:
    """The transactions of one connection. `held_size_max`: octets that all of them may hold."""

    def __init__(self, broker: Broker, held_size_max: int = HELD_SIZE_MAX) -> None:
        self._broker = broker
        self._size_max = held_size_max
        self._open: dict[bytes, Work] = {}
        self._held: dict[object, Held] = {}  # of all of them
        self._size = 0
        self._declared = 0

    # For control links.

    def declare(self, controller: Controller) -> bytes:
        """Begin a transaction; its id. Raises AmqpError amqp:resource-limit-exceeded."""
        if len(self._open) >= OPEN_MAX:
            raise AmqpError(p.RESOURCE_LIMIT_EXCEEDED, f"there are {OPEN_MAX} transactions already")
        self._declared += 1
        work = Work(self._declared.to_bytes(8), controller)
        self._open[work.id] = work
        return work.id

    def discharge(self, controller: Controller, txn_id: bytes, fail: bool) -> None:
        """Commit, or roll back if it `fail`s.

        Raises AmqpError: amqp:transaction:unknown-id, or amqp:transaction:rollback if it could not be committed and
        was rolled back.
        """
        work = self._work(txn_id)
        if work.controller is not controller:
            raise _unknown(txn_id)
        if not fail and not work.failed and (full := work.tx.obstacle()) is not None:
            work.failed = f"{full.described} has no room for all of its messages"
        refused = self._end(work, commit=not fail and not work.failed)
        if work.failed and not fail:
            raise AmqpError(p.TRANSACTION_ROLLBACK, f"the transaction was rolled back: {work.failed}")
        if refused:  # by an exchange that should have held them: no queue does that after `obstacle`
            raise AmqpError(p.INTERNAL_ERROR, f"{refused} messages of the transaction were not taken")

    def abandon(self, controller: Controller) -> None:
        """The control link has gone: what it declared and did not discharge is rolled back."""
        for work in [work for work in self._open.values() if work.controller is controller]:
            self._end(work, commit=False)

    def _end(self, work: Work, commit: bool) -> int:
        del self._open[work.id]
        refused = self._commit(work) if commit else self._roll_back(work)
        for told in work.watchers:
            told(commit)
        return refused

    def _commit(self, work: Work) -> int:
        """Everything in one call of the core. How many messages were refused all the same."""
        held = self._let_go(work)
        work.tx.settle(partial(_retire, held))
        refused = work.tx.commit()
        self._broker.hold_answer()
        for owner, outcome, each in _batches(held):
            owner.link.settle([one.id for one in each], outcome)  # what is settled is passed over
        return refused

    def _roll_back(self, work: Work) -> int:
        work.tx.rollback()
        for owner, _, each in _batches(self._let_go(work)):
            if tokens := [one.token for one in each if one.settled]:
                owner.retire(tokens, owner.default_outcome)
        return 0

    def _let_go(self, work: Work) -> list[Held]:
        """The outcomes of a transaction, which holds nothing any more."""
        held = list(work.held.values())
        for each in held:
            del self._held[each.token]
        work.held.clear()
        self._size -= work.size
        work.size = 0
        return held

    # For links that post messages.

    def publish(self, state: p.TransactionalState, exchange: Exchange, message: Message) -> p.DeliveryState:
        """Hold a message, every check done, until its transaction is discharged.

        Returns what to answer, at once, unless it was sent settled: a TransactionalState with the outcome that counts
        after a commit. Raises AmqpError amqp:transaction:unknown-id: the link ends.
        """
        work = self._work(state.txn_id)
        self._grow(work, message.size + len(message.properties) + OVERHEAD)
        if work.failed:
            return self._answer(work, rejected(AmqpError(p.TRANSACTION_ROLLBACK, work.failed)))
        copies = work.tx.copies
        routed = work.tx.publish(self._broker, exchange, message)
        # A commit is one piece of work, and nobody else has a turn meanwhile.
        self._grow(work, OVERHEAD * max(0, work.tx.copies - copies - 1))
        return self._answer(work, self._unless_failed(work, ACCEPTED if routed else RELEASED))

    def _unless_failed(self, work: Work, outcome: Outcome) -> Outcome:
        """What counts after a commit, if there can be one."""
        return rejected(AmqpError(p.TRANSACTION_ROLLBACK, work.failed)) if work.failed else outcome

    def refuse(self, state: p.TransactionalState, error: AmqpError, settled: bool) -> p.DeliveryState:
        """A message of a transaction was refused. Returns what to answer, at once, unless it was sent settled.

        A controller that settled it will not hear of that, and its transaction cannot be committed. Raises AmqpError
        amqp:transaction:unknown-id: the link ends.
        """
        work = self._work(state.txn_id)
        if settled:
            self._fail(work, error.description)
        return self._answer(work, rejected(error))

    def watch(self, state: p.TransactionalState, told: Callable[[bool], None]) -> None:
        """Tell at the transaction's end whether it was committed; now, if it has ended."""
        if state.txn_id in self._open:
            self._open[state.txn_id].watchers.append(told)
        else:
            told(False)

    def _answer(self, work: Work, outcome: Outcome) -> p.TransactionalState:
        return p.TransactionalState(txn_id=work.id, outcome=outcome)

    # For links whose deliveries are retired.

    def settle(
        self,
        owner: Retiring,
        ids: Sequence[int],
        tokens: Sequence[object],
        state: p.TransactionalState,
        settled: bool,
    ) -> None:
        """A disposition in a transaction: the outcome in `state` waits for the discharge. As on_outcomes.

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
        """None: it says nothing that would count."""
        if state.outcome is None:
            return owner.default_outcome if settled else None
        return owner.outcome_in(state.outcome)

    def _others(self, work: Work, tokens: Sequence[object]) -> set[Controller]:
        """The control links of other transactions that hold outcomes of these deliveries: that must not be (4.4.2)."""
        found = (self._held.get(token) for token in tokens)
        return {held.work.controller for held in found if held is not None and held.work is not work}

    @property
    def hold_outcomes(self) -> bool:
        """Whether there is a reason to ask `plainly`, or `left`."""
        return bool(self._held)

    def plainly(
        self, ids: Sequence[int], tokens: Sequence[object], state: p.DeliveryState | None, settled: bool
    ) -> tuple[list[int], list[object]]:
        """A disposition without a transaction: the ids and tokens of those deliveries that it decides about.

        Where it has an outcome, that counts instead of an earlier one in a transaction. Without, what waits for a
        transaction goes on waiting, and is settled if it says so.
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

    def left(self, tokens: Sequence[object]) -> list[object]:
        """The link of these unsettled deliveries ends: those whose outcome no transaction holds."""
        free = []
        for token in tokens:
            if (held := self._held.get(token)) is None:
                free.append(token)
            else:
                held.settled = True
        return free

    # Bounds.

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
        """Nothing of it will count; only its discharge is waited for."""
        if not work.failed:
            work.failed = why
            self._roll_back(work)


def rejected(error: AmqpError) -> p.Rejected:
    return p.Rejected(error=error_of(error, ERROR_SIZE_MAX))


def _weight(outcome: Outcome) -> int:
    """Octets that an outcome itself takes while it is held."""
    return DECODED * len(outcome.encode()) if isinstance(outcome, p.Modified | p.Rejected) else 0


def _unknown(txn_id: bytes) -> AmqpError:
    return AmqpError(p.TRANSACTION_UNKNOWN_ID, f"no transaction {txn_id[:32].hex()}")


def _retire(held: list[Held]) -> None:
    for owner, outcome, each in _batches(held):
        owner.retire([one.token for one in each], outcome)


def _batches(held: Iterable[Held]) -> Iterator[tuple[Retiring, Outcome, list[Held]]]:
    """What can be done in one go: in the order asked for, by link and outcome."""
    for (owner, outcome), each in groupby(held, key=lambda one: (one.owner, one.outcome)):
        yield owner, outcome, list(each)
