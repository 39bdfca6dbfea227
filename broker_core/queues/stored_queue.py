"""The contract of a stored queue, which is what the journal, recovery and the cluster need of a queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr

from leveret.catalogue import QUEUE
from leveret.errors import Unsupported
from leveret.queues.sink import Sink

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.durability import Durability, Page, WaitingRow
    from leveret.message import Message
    from leveret.queues.contract import QueueHost

ALL: Final = 1 << 62  # messages


@mypyc_attr(allow_interpreted_subclasses=True)
class StoredQueue(Sink):
    """A sink whose messages may outlive the node, and may be on disk or on another machine at the moment."""

    ranked: ClassVar[bool] = True  # messages may be ordered by priority
    has_entries: ClassVar[bool] = True  # each message has a number in the store; False: they are in a log

    __slots__ = ("journal", "name", "number", "virtual_host")

    def __init__(self, virtual_host: QueueHost, name: str) -> None:
        self.virtual_host = virtual_host
        self.name = name
        self.journal: Durability | None = None  # set at the declaration, if the queue outlives the node
        self.number = 0  # its number in the store; 0: it is not stored

    @property
    def described(self) -> str:
        """Return the queue's name as it stands in error texts."""
        return f"queue '{self.name}' in vhost '{self.virtual_host.name}'"

    @property
    def stored_as(self) -> tuple[str, ...]:
        return QUEUE, self.virtual_host.name, self.name

    def keep_in(self, journal: Durability, number: int) -> None:
        """Keep the queue and its messages in the store, under this number. Called before the queue is used."""
        self.journal, self.number = journal, number

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        """Take back what waited when the node ended, oldest first. Called once per priority, before anything else.

        Raises Unsupported if this kind of queue keeps no messages.
        """
        raise Unsupported(f"{self.described} keeps no messages")

    def restore_schedule(self, rows: Sequence[WaitingRow], set_back: bool) -> None:
        """Take back messages that waited for a time when the node ended. Called before anything else.

        Raises Unsupported if none can wait here.
        """
        raise Unsupported(f"{self.described} keeps no messages for later")

    def marked(self) -> Iterable[tuple[int, int]]:
        """Yield store number and mark of each message that waits for a time, or waits and was delivered before."""
        return ()

    def take_stored(self, positions: Sequence[int]) -> list[Delivery]:
        """Return the messages at these positions, which ascend, as delivered and not answered, in any order.

        Called at a start, for clients that had them before it, and so also for those that have expired since.
        """
        return []

    def set_aside(self, count: int, octets: int, position: int) -> None:
        """Count restored messages, all below `position`, that a guest holds, and their bytes. Called at a start."""
        raise Unsupported(f"{self.described} does not set messages aside")

    def set_one_aside(self, delivery: Delivery) -> None:
        """Count one restored message as set aside, which a consumer had accepted and a guest has. Called at a start."""
        self.set_aside(1, delivery.message.size, delivery.position + 1)

    def on_disk(self) -> tuple[int, int]:
        """Return how many messages are on disk only, and the bytes of their bodies."""
        return 0, 0

    def take_back(self, delivery: Delivery) -> None:
        """Let a message wait again that was removed from the queue and from the store's record of it."""
        raise Unsupported(f"{self.described} does not take messages back")

    def head_message(self) -> Message | None:
        """Return the next message, None if there is none or that is not known without reading it."""
        return None

    def asks_for_first(self, count: int = ALL) -> bool:
        """Return whether some of the first messages have to come from another machine first. They are brought then.

        `ALL` are those that wait for a time, and dead letters that are held, too. A caller asks again in a moment:
        once it is False nothing that looks at these messages, or takes them, waits for the network.
        """
        return False

    @property
    def unreadable(self) -> int:
        """Return how many of its messages cannot be read from the store, in which they stay."""
        return 0 if self.journal is None else self.journal.unreadable_of(self)

    def reread(self) -> int:
        """Have messages and dead letters that could not be read be read again, and return how many."""
        return 0

    def let_go(self) -> None:
        """Forget the waiting messages without settling them. Called when the node has ended."""

    def revise(self, delivery: Delivery, message: Message) -> None:
        """Replace the message of a delivery whose properties the consumer changed before it releases or rejects it."""
        delivery.message = message
        if delivery.stored and self.journal is not None:
            self.journal.revised(delivery)
