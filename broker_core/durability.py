"""The contract between holders of stored messages and the journal.

Holder       a queue, or the messages that an exchange holds: it has a number in the store
Entry        one of its messages, which has a number there, too, once it is written
Durability   the journal, as holders see it: it records their changes, and reads messages that are on disk only
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from mypy_extensions import mypyc_attr

from leveret.clock import NEVER

if TYPE_CHECKING:
    from leveret.message import Encoding, Message
    from leveret.observability.metric import Metric
    from leveret.publishing.publisher import Publisher
    from leveret.queues.stream_log import Log

UNKNOWN: Final = float("-inf")
PENDING: Final = -1  # the number of an entry that is still to be written
LITTLE_OCTETS: Final = 1 << 16  # bytes not on disk yet, for which no disk is too full: there is a reserve


T = TypeVar("T")


class Holder(Protocol):
    """An object that keeps messages in the store. `restore` is called before any other use."""

    number: int  # in the store
    ranked: ClassVar[bool]  # messages may be ordered by priority; else all have one priority

    @property
    def described(self) -> str:
        """Return the holder's name as it stands in error texts."""

    def rank(self, priority: int) -> int:
        """Return the level at which messages of this priority wait. Each level is restored as a whole."""

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        """Take back what waited when the node ended, oldest first.

        Called once for each level with messages; a holder that is not `ranked` is always called once.
        """

    def restore_schedule(self, rows: Sequence[WaitingRow], set_back: bool) -> None:
        """Take back entries that waited for a time when the node ended, and that are not due yet.

        `set_back` says that the clock by which they were told to wait has been set back since.

        Called for each level that has any, before or without `restore`. Only entries for which `Durability.waits` was
        called wait for a time.
        """

    def reread(self) -> int:
        """Have what could not be read read again (`Durability.read_unreadable`), and return how many entries."""

    def marked(self) -> Iterable[tuple[int, int]]:
        """Return number and mark of each entry that was delivered before, or waits for a time. Called at the end."""


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Entry:
    """A message at its position in a holder, perhaps stored. When compiled, the garbage collector does not track it."""

    __slots__ = ("attempts", "expires_at", "message", "position", "stored")

    def __init__(self, message: Message, position: int, expires_at: float) -> None:
        self.message = message
        self.position = position  # order of arrival with its holder; kept when the message comes back
        self.expires_at = expires_at  # monotonic seconds
        self.attempts = 0  # failed deliveries to consumers
        self.stored = 0  # its number in the store, or PENDING; 0: it is not stored

    def holder(self) -> Holder:
        """Return the holder that has it."""
        raise NotImplementedError


class Page:
    """Waiting messages of one queue and one priority that are on disk only, oldest first."""

    __slots__ = ("due", "expiring", "last", "marks", "numbers", "octets", "position", "redelivered")

    def __init__(
        self,
        numbers: Sequence[int],
        position: int,
        last: int,
        octets: int,
        expiring: int = 0,
        redelivered: bool = False,
        marks: dict[int, int] | None = None,
        due: float | None = None,
    ) -> None:
        self.numbers = numbers  # of entries, ascending; a range if they are consecutive
        self.position = position  # of the first, in the queue
        self.last = last  # position of the last
        self.octets = octets  # bytes of their bodies
        self.expiring = expiring  # how many have an expiry
        self.redelivered = redelivered  # whether all of them may have been delivered before
        self.marks = marks or {}  # failed deliveries of entries that had any
        # When the first expires, in monotonic seconds; without it, unknown if any has an expiry.
        self.due = due if due is not None else UNKNOWN if expiring else NEVER

    def __len__(self) -> int:
        return len(self.numbers)


class ArrivalTimes(Protocol):
    """The times at which entries arrived, by their numbers in the store."""

    def of(self, number: int) -> int | None:
        """Return the time in milliseconds since 1970; None if it is not known."""


class AbsentEntries(Protocol):
    """The entries of a holder that consumers have not answered, and that are on disk only (`queues/absent.py`)."""

    messages: int
    octets: int  # of their bodies

    @property
    def answers(self) -> int:
        """The number of answers that wait for their entries."""

    def accepted(self, entries: Iterable[Any]) -> None:
        """Count off those that are on disk only. Called before they are accepted."""

    def is_gone(self, entry: Any) -> bool:
        """Return whether an entry is on disk only, and count it off: its holder is deleted."""

    def delays(self, entry: Any, answer: Callable[..., None], *terms: object) -> bool:
        """Return whether an answer, with these further arguments, has to wait.

        Then it is given later, after those that came before it.
        """

    def bring(self, entries: Iterable[Any]) -> None:
        """Read entries at once. Those that cannot be read stay away."""

    def give_up(self) -> None:
        """Drop the entries whose answers wait: their holder is deleted, and its messages with it."""

    def marked(self) -> Iterable[tuple[int, int]]:
        """Yield number and failed attempts of each entry that is on its way back to the holder."""


class UnreadableHolders(Protocol):
    """The entries that could not be read, by their holders."""

    @property
    def count(self) -> int:
        """Return how many there are."""

    def of(self, holder: Holder) -> int:
        """Return how many a holder has."""

    def holders(self) -> Iterable[Holder]:
        """Return the holders that have any."""


class KeptIds(Protocol):
    """The ids on disk that one exchange or queue knows for its deduplication."""

    @property
    def is_behind(self) -> bool:
        """Return whether some of them are not on disk yet."""

    def keep(self, number: int, end_ms: int, digest: bytes) -> None:
        """Write an id in the open commit."""

    @property
    def cleared(self) -> int:
        """Return the number below which ids are forgotten."""

    def confirm_later(self) -> None:
        """Have publishers of this batch wait until what is known now is on disk."""

    def clear(self, following: int) -> None:
        """Forget all ids with numbers below this one."""

    def end(self) -> object:
        """Remove all of it from the store."""


Stored: TypeAlias = "tuple[int, int, float, Message]"
"""An entry read back: its number in the store, position, expiry (monotonic seconds), and message."""

WaitingRow: TypeAlias = "tuple[int, int, int, float, float, int, bool]"
"""An entry that waits for a time: its number, position, bytes of its body, when it is due and when it expires
(monotonic seconds), failed attempts, and whether it was delivered before."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Durability(ABC):
    """The journal as holders use it. All changes of one batch of the broker are on disk together, or not at all."""

    arrivals: list[Entry]  # holders append entries to be written, with PENDING as their number
    settled: list[Entry]  # holders append entries that need not be kept any more
    arrival_times: ArrivalTimes  # of entries that have a number
    written: int  # the number up to which entries are on disk
    redelivered_to: (
        int  # entries up to this number were there before a sudden end: they may have gone on from there
    )

    open: int  # the number of the commit that is being gathered
    durable: int  # the number of the last commit on disk
    holds: bool  # set by changes whose reply waits for commit `open`
    behind: bool  # publishers have to wait
    unreadable: UnreadableHolders  # entries that could not be read; they stay in the store
    stalled: str | None  # why commits wait, for something that may come back by itself

    @abstractmethod
    def offset_ms_of(self, number: int) -> float:
        """Return the milliseconds between monotonic time and that since 1970, as they were for an entry."""

    @abstractmethod
    def work_soon(self, job: Callable[[], T], then: Callable[[T | Exception], None]) -> None:
        """Have a thread that reads do a job; `then` is called in the broker's thread, with the failure if it raises."""

    @property
    def dirty(self) -> bool:
        """Return whether the open commit has anything."""
        return False

    def settle(self, publishers: Sequence[Publisher]) -> None:
        """Close the batch: tell these publishers when all of it is on disk."""

    def metrics(self) -> Sequence[Metric]:
        """Return metrics that the store alone has."""
        return ()

    def has_room_for(self, octets: int) -> bool:
        """Return whether a commit with so many bytes of bodies fits on the disk, besides what is gathered already."""
        return True

    @abstractmethod
    def encoding(self, name: str) -> Encoding | None:
        """Return the encoding of a protocol; None if it is not installed."""

    @abstractmethod
    def settle_numbers(self, numbers: Sequence[int]) -> None:
        """Settle entries that are in pages only, by their numbers."""

    @abstractmethod
    def attempted(self, entry: Entry) -> None:
        """Store the failed attempts of an entry."""

    @abstractmethod
    def waits(self, entry: Entry, mark: int) -> None:
        """Store the mark of an entry that waits for a time, or does so no longer (`broker_core/mark.py`)."""

    @abstractmethod
    def revised(self, entry: Entry) -> None:
        """Write an entry anew, after its message was replaced."""

    @abstractmethod
    def page_out(self, entries: Sequence[Entry]) -> None:
        """Write transient entries, which do not outlive the node, so that they need not stay in memory."""

    @abstractmethod
    def fetch(self, holder: Holder, page: Page) -> list[Stored]:
        """Read the entries of a page at once. Damaged ones are logged and left out."""

    @abstractmethod
    def fetch_soon(self, holder: Holder, page: Page, then: Callable[[list[Stored]], None]) -> None:
        """Have a thread read the entries of a page as `fetch` does; `then` is called in the broker's thread."""

    @abstractmethod
    def missed(self, holder: Holder, page: Page, stored: Sequence[Stored]) -> None:
        """Count the entries of a page as unreadable that `fetch` left out. Called when the page ceases to exist."""

    @abstractmethod
    def unreadable_of(self, holder: Holder) -> int:
        """Return how many entries of a holder could not be read. They stay in the store."""

    @abstractmethod
    def read_unreadable(self, holder: Holder, then: Callable[[Page, list[Stored]], None]) -> int:
        """Have a thread read these entries again, and return how many.

        `then` is called in the broker's thread for each page of which some could be read: the holder has these again.
        """

    @abstractmethod
    def settle_unreadable(self, holder: Holder) -> int:
        """Settle these entries without reading them, and return how many: the holder drops all that it has."""

    @abstractmethod
    def is_far(self, page: Page) -> bool:
        """Return whether some of a page is on another machine still, so that `fetch` would wait for the network."""

    @abstractmethod
    def brings(self, numbers: Sequence[int]) -> bool:
        """Return whether some of these entries, which ascend, are on another machine still, and are on their way then.

        A caller asks again in a moment: `fetch` waits for nobody once this returns False.
        """

    @abstractmethod
    def open_log(self, number: int, described: str, changed: Callable[[], None]) -> Log:
        """Return the log of a stream. `changed` is called after more messages were committed."""
