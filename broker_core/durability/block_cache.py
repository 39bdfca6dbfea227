"""What of all streams is in memory besides being on disk: runs of messages, and the least recently used ones go.

A run is what was committed lately, or was read. There is one cache for all streams, so that many of them need no more
memory than one; and one line of readings, so that what comes in together is bounded, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from broker_core.queues.stream_log import numbered, unnumbered

if TYPE_CHECKING:
    from broker_core.message import Message
    from broker_core.store.contract import Reader, Store

BUDGET: Final = 64 << 20  # octets
MESSAGE_OCTETS: Final = 400  # that a message takes besides properties and body, roughly
READINGS_MAX: Final = 16  # at a time; each brings a quarter of a MiB, and a block

T = TypeVar("T")


class RunHolder(Protocol):
    """Whose runs they are."""

    def let_go(self, run: Run) -> None:
        """The cache has no room for it any more."""


class Run:
    """Messages of one stream that follow each other."""

    __slots__ = ("first", "holder", "messages", "next", "numbered", "octets")

    def __init__(self, holder: RunHolder, first: int, messages: list[Message], noted: bool) -> None:
        """`noted`: the messages have their offsets noted on them."""
        self.holder = holder
        self.first = first
        self.messages = messages
        self.next = first + len(messages)
        self.numbered = len(messages) if noted else 0  # so many of them have
        self.octets = sum(map(octets_of, messages))

    def extend(self, messages: list[Message]) -> None:
        """These follow."""
        self.messages += messages
        self.next += len(messages)
        self.octets += sum(map(octets_of, messages))

    def shown(self, start: int, end: int) -> list[Message]:
        """Some of the messages, with their offsets noted on them. Who is never read costs no notes."""
        messages = self.messages
        for at in range(self.numbered, end):
            messages[at] = numbered(messages[at], self.first + at)
        self.numbered = max(self.numbered, end)
        return messages[start:end]

    def unnoted(self, start: int, end: int) -> list[Message]:
        """Some of the messages, without offsets."""
        found = self.messages[start:end]
        return list(map(unnumbered, found)) if start < self.numbered else found


def octets_of(message: Message) -> int:
    """What it takes in memory."""
    return message.size + 2 * len(message.properties) + MESSAGE_OCTETS


class BlockCache:
    """Runs, the least recently used first."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.octets = 0
        self._runs: dict[Run, None] = {}

    def hold(self, run: Run) -> None:
        """It is new. Others go for it, if there is no room; it stays, however large."""
        self._runs[run] = None
        self.octets += run.octets
        self._shrink(run)

    def extend(self, run: Run, messages: list[Message]) -> None:
        before = run.octets
        run.extend(messages)
        self.octets += run.octets - before
        self.use(run)
        self._shrink(run)

    def use(self, run: Run) -> None:
        del self._runs[run]
        self._runs[run] = None

    def forget(self, run: Run) -> None:
        """Nobody needs it any more."""
        del self._runs[run]
        self.octets -= run.octets

    def _shrink(self, newest: Run) -> None:
        while self.octets > self.budget:
            run = next(iter(self._runs))
            if run is newest:
                break
            self.forget(run)
            run.holder.let_go(run)


class Readings:
    """Jobs for the store's reading threads, a few at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        """As `Store.read_soon`, in its turn."""

        def arrived(found: T | Exception) -> None:
            self._running -= 1
            try:
                then(found)
            finally:
                self._start()

        self._waiting.append(lambda: self._store.read_soon(job, arrived))
        self._start()

    def _start(self) -> None:
        while self._waiting and self._running < READINGS_MAX:
            self._running += 1
            self._waiting.popleft()()
