"""The contract of a sink, which is what publishers and routing need of a queue."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from leveret.exchanges.destination import Destination

if TYPE_CHECKING:
    from leveret.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink(Destination):
    """The end of a route, which takes messages in. Every kind of queue is one."""

    __slots__ = ()

    @abstractmethod
    def push(self, message: Message) -> bool:
        """Take a message in. Return False if the queue is full and refuses it (S082)."""

    def takes_of(self, messages: list[Message]) -> int:
        """Return how many messages of a run, from its first on, `push_run` is sure to take now.

        A run is a list of messages from one exchange whose facts are alike.
        """
        return 0

    def push_run(self, messages: list[Message]) -> int:
        """Push the messages of a run, as many as `takes_of` says. Return how many were taken, perhaps none.

        The others are untouched: the next one has to be given to `push`, which may refuse it.
        """
        return 0

    def takes_runs(self, first: Message) -> bool:
        """Return whether `push_run` takes every message like the first, with any key, until the next settle."""
        return False

    def admit(self, message: Message) -> None:
        """Take in a message that was accepted before, however full the queue is now."""
        self.push(message)

    def has_room(self, messages: int, octets: int) -> bool:
        """Return whether so many more messages, with bodies of `octets` bytes in all, would be taken, none refused."""
        return True

    def would_take(self, message: Message) -> bool:
        """Return whether `push` would take this message now, without refusing it."""
        return True

    @abstractmethod
    def can_deliver_now(self, message: Message) -> bool:
        """Return whether `message` would reach a consumer at once if it arrived now (S086)."""

    def rank(self, priority: int) -> int:
        """Return the level at which messages of this priority wait; the highest level is served first."""
        return 0
