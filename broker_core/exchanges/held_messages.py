"""Messages that an exchange holds for later, on disk too where they have to survive a restart.

    hold ──> held ──let_go──> gone           the exchange's type comes back to what it holds
    node ends and starts again ──> `ExchangeType.hold_again`, for each that was held on disk

A message is held on disk if message and exchange are durable. In the store it is an entry like those of a queue, under
a number that the exchange has for this, and its expiry is the time when it is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from leveret.durability import PENDING, Entry

if TYPE_CHECKING:
    from leveret.durability import Page, WaitingRow
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message


class HeldMessage(Entry):
    """A message that is held. Its `expires_at` is the time when it is due, its `position` its order of arrival."""

    __slots__ = ("holding",)

    def __init__(self, message: Message, holding: HeldMessages, position: int, due: float) -> None:
        super().__init__(message, position, due)
        self.holding = holding

    def holder(self) -> HeldMessages:
        return self.holding


class HeldMessages:
    """The messages that one exchange holds, oldest first. It is a `Holder` for the store."""

    __slots__ = ("_position", "exchange", "held", "number")
    ranked: ClassVar[bool] = False

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.number = 0  # in the store; 0: not in the store
        self.held: dict[HeldMessage, None] = {}
        self._position = 0  # of the next

    @property
    def described(self) -> str:
        """The exchange as error texts name it."""
        return f"exchange '{self.exchange.name}' in vhost '{self.exchange.virtual_host.name}'"

    def hold(self, message: Message, due: float) -> HeldMessage:
        held = HeldMessage(message, self, self._position, due)
        self._position += 1
        self.held[held] = None
        journal = self.exchange.broker.journal
        if journal is not None and self.number and message.facts.durable:
            held.stored = PENDING
            journal.arrivals.append(held)
        return held

    def drop(self, held: Iterable[HeldMessage]) -> None:
        """Hold these messages no longer; those that it does not hold are ignored."""
        journal = self.exchange.broker.journal
        for each in held:
            if self.held.pop(each, self) is None and each.stored:
                assert journal is not None, "what is stored is in the store"
                journal.settled.append(each)

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        """Read the messages that were held when the node ended into memory, and pass them to the exchange's type."""
        journal = self.exchange.broker.journal
        assert journal is not None, "only what was kept can be restored"
        for page in pages:
            again: list[HeldMessage] = []
            stored = journal.fetch(self, page)
            if len(stored) < len(page):
                journal.missed(self, page, stored)
            for number, position, due, message in stored:
                if number <= journal.redelivered_to:
                    message = message.repeated()
                again.append(held := HeldMessage(message, self, position, due))
                held.stored = number
            self.exchange.hold_again(again)

    def rank(self, priority: int) -> int:
        return 0

    def restore_schedule(self, rows: Sequence[WaitingRow], set_back: bool) -> None:
        raise AssertionError("held messages are due when they expire")

    def reread(self) -> int:
        """Return 0: what could not be read is read again at the next start."""
        return 0

    def marked(self) -> Iterable[tuple[int, int]]:
        """Return nothing: held messages were never delivered."""
        return ()

    def take_back(self, held: HeldMessage) -> None:
        """Hold a message that was held when the node ended. Called in their order."""
        self.held[held] = None
        self._position = held.position + 1
