"""The contract of what an exchange or a queue knows to drop duplicates: messages whose ids were taken before.

An id is remembered after its message was taken, never before: a publisher that is told of a failure can publish the
message again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from mypy_extensions import mypyc_attr

from leveret.queues.observer import QueueObserver

if TYPE_CHECKING:
    from leveret.message import Message


class Identity:
    """The id of one message."""

    __slots__ = ("digest", "ttl_ms")

    def __init__(self, digest: bytes, ttl_ms: int) -> None:
        self.digest = digest
        self.ttl_ms = ttl_ms  # how long it is known; 0: without end


@mypyc_attr(allow_interpreted_subclasses=True)
class Duplicates(QueueObserver):
    """The ids that one exchange or queue knows."""

    __slots__ = ("number", "repeated")
    of_present: ClassVar[bool] = False  # it knows the messages in a queue, and hears of those that leave

    def __init__(self) -> None:
        self.number = 0  # in the store; 0: the ids are in memory only
        self.repeated = 0  # duplicates that were dropped

    def identify(self, message: Message) -> Identity | None:
        """Return the id of a message; None if it has none."""
        raise NotImplementedError

    @property
    def header(self) -> str:
        """Return the name of the header that has the id."""
        raise NotImplementedError

    @property
    def entries(self) -> int:
        """Return how many ids are known."""
        raise NotImplementedError

    def found(self, places: Iterable[int]) -> None:
        """Called at a start with the places of messages that are in the queue."""

    def new_in(self, messages: list[Message]) -> list[Identity | None]:
        """Return the ids of the messages at the beginning of a run that are no duplicates, nor of each other."""
        raise NotImplementedError

    def admits(self, message: Message) -> bool:
        """Return whether a queue takes this message in: it is no duplicate, or a dead letter that comes back."""
        raise NotImplementedError

    def knows(self, identity: Identity) -> bool:
        """Return whether a message with this id would be a duplicate now."""
        raise NotImplementedError

    def repeats(self, identity: Identity) -> bool:
        """Return whether a message with this id is a duplicate, which is counted."""
        raise NotImplementedError

    def remember(self, identity: Identity, durable: bool) -> None:
        """Know an id from now on. `durable`: its message is in a durable queue, in the commit that is open now."""
        raise NotImplementedError

    def remember_all(self, identities: list[Identity | None], durable: bool) -> None:
        """Know the ids of a run of messages from now on; None has none. `durable`: as for `remember`."""
        for identity in identities:
            if identity is not None:
                self.remember(identity, durable)
