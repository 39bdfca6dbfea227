"""What whoever publishes has to offer in order to be told when it is safe.

A protocol of types, in a module that is never compiled: front-ends implement it beside other contracts, as in
`class Link(Consumer, Publisher)`. Compiled code finds a method of a compiled class at a fixed place in the object, and
an object has one such layout, not two.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol


class Publisher(Protocol):
    """Somebody who wants to know when what was published so far is safe (confirms, accepted, completion).

    It joins `Broker.publishers`. At the end of the settle it is asked for its `mark`, and with that it is off the list.
    Then it is told: at once if nothing of it is `persistent`, else when all of it is on disk. More may be published
    meanwhile, and several marks be on their way.
    """

    __slots__ = ()
    persistent: bool = False  # whether something published since the last `mark` is to be on disk

    @abstractmethod
    def mark(self) -> int:
        """Where it stands now; never less than before. Its next publish joins the list again."""

    @abstractmethod
    def taken(self, mark: int) -> None:
        """Everything published before it stood at `mark` is with its queues, and on disk where it must be.

        Marks come in order; one may be passed over. It may have ended in the meantime.
        """
