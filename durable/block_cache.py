"""A cache keeps runs of stream messages in memory that are on disk, and drops the least recently used ones.

A run is a sequence of messages that were committed lately, or read. There is one cache for all streams, so that many of
them need no more memory than one; and one queue of readings, so that the memory for reading is bounded, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from leveret.queues.stream_log import numbered, unnumbered

if TYPE_CHECKING:
    from leveret.durable.store.contract import Reader, Store
    from leveret.message import Message

BUDGET: Final = 64 << 20  # bytes
MESSAGE_OCTETS: Final = 400  # bytes that a message takes besides properties and body, roughly
READINGS_MAX: Final = 16  # at a time; each reads a quarter of a MiB and a block at most

T = TypeVar("T")


class RunHolder(Protocol):
    """The owner of runs: a stream's log."""

    def let_go(self, run: Run) -> None:
        """Forget a run. Called when the cache drops it for lack of room."""


class Run:
    """Consecutive messages of one stream."""

    __slots__ = ("first", "holder", "messages", "next", "numbered", "octets")

    def __init__(self, holder: RunHolder, first: int, messages: list[Message], noted: bool) -> None:
        """Create a run. `noted`: the messages have their offsets noted on them."""
        self.holder = holder
        self.first = first
        self.messages = messages
        self.next = first + len(messages)
        self.numbered = len(messages) if noted else 0  # so many of them have their offsets
        self.octets = sum(map(octets_of, messages))

    def extend(self, messages: list[Message]) -> None:
        """Append the messages that follow."""
        self.messages += messages
        self.next += len(messages)
        self.octets += sum(map(octets_of, messages))

    def shown(self, start: int, end: int) -> list[Message]:
        """Return some of the messages with their offsets noted on them. Messages that are never read get no notes."""
        messages = self.messages
        for at in range(self.numbered, end):
            messages[at] = numbered(messages[at], self.first + at)
        self.numbered = max(self.numbered, end)
        return messages[start:end]

    def unnoted(self, start: int, end: int) -> list[Message]:
        """Return some of the messages without their offsets."""
        found = self.messages[start:end]
        return list(map(unnumbered, found)) if start < self.numbered else found


def octets_of(message: Message) -> int:
    """Return roughly the bytes of memory that a message takes."""
    return message.size + 2 * len(message.properties) + MESSAGE_OCTETS


class BlockCache:
    """A cache of runs, kept in order of their last use. `budget` is in bytes."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.octets = 0
        self._runs: dict[Run, None] = {}

    def hold(self, run: Run) -> None:
        """Add a new run, which stays however large it is, and drop others if there is no room."""
        self._runs[run] = None
        self.octets += run.octets
        self._shrink(run)

    def extend(self, run: Run, messages: list[Message]) -> None:
        """Append messages to a cached run, and drop others if there is no room."""
        before = run.octets
        run.extend(messages)
        self.octets += run.octets - before
        self.use(run)
        self._shrink(run)

    def use(self, run: Run) -> None:
        """Note that a run was used just now."""
        del self._runs[run]
        self._runs[run] = None

    def forget(self, run: Run) -> None:
        """Remove a run that is not needed any more."""
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
    """A queue of jobs for the store's reading threads, which runs a few of them at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        """Have `job` read by a thread (`Store.read_soon`) when its turn comes; `then` gets the result or the error."""

        def arrived(result: T | Exception) -> None:
            self._running -= 1
            try:
                then(result)
            finally:
                self._start()

        self._waiting.append(lambda: self._store.read_soon(job, arrived))
        self._start()

    def _start(self) -> None:
        while self._waiting and self._running < READINGS_MAX:
            self._running += 1
            self._waiting.popleft()()
