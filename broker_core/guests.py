"""The contract of guests: features that have state in a broker or in a virtual host, and hear of what happens there.

    Broker, VirtualHost ── guests ──> Guests ──> Guest

The core names none of them. A guest is one object of its class for each home, made when something first asks for it
(`guest`), or put there when the node is set up (`put`). All guests of a home hear of each event, one after the other by
`rank` and then in the order of coming, those of the virtual host before those of the broker:

    virtual_host_added    it is empty, and its clients have not come
    exchange_changed      an exchange is there, or policies were applied to it
    exchange_deleted      its name is free, and its bindings are gone
    queue_changed         a queue is there, or policies were applied to it
    queue_deleted         its name is free, its bindings are gone, and its messages are still there
    virtual_host_deleted  its clients are gone, and everything in it is still there
    user_deleted          its name is free, and its clients are still there
    stop                  the node begins to end: the clients are still there
    close                 the home has ended, and nothing else is called after it
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from mypy_extensions import mypyc_attr

from leveret.errors import PLUGIN_MISTAKES
from leveret.observability.metric import COUNTER, GAUGE, Metric

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Exchange
    from leveret.queues.contract import QueueHost
    from leveret.queues.queue import Queue
    from leveret.values import Table


__all__ = ["COUNTER", "GAUGE", "G", "Guest", "Guests", "Metric"]

log: Final = logging.getLogger("leveret.broker")


@mypyc_attr(native_class=False)
class Guest:
    """A feature's state in one home. To be subclassed; every method does nothing by default."""

    name: ClassVar[str] = ""  # of a plug-in's guest, for operators; it begins with `x-`
    rank: ClassVar[int] = 50  # guests with a lower one hear of events first

    def __init__(self, home: object) -> None:
        """Called with the broker or the virtual host; a subclass says which of them it wants."""

    def virtual_host_added(self, host: QueueHost) -> None:
        """Called when a virtual host has been created or restored. Guests of virtual hosts do not hear of it."""

    def virtual_host_deleted(self, name: str) -> None:
        """Called when a virtual host is being deleted, for guests of the broker; those in it are told to close."""

    def exchange_changed(self, exchange: Exchange, definition: Table) -> None:
        """Called when an exchange is there, and when policies were applied to it: `definition` has what they say."""

    def exchange_deleted(self, exchange: Exchange) -> None:
        """Called once for each deleted exchange."""

    def queue_changed(self, queue: Queue, definition: Table) -> None:
        """Called when a queue is there, and when policies were applied to it: `definition` has what they say."""

    def queue_deleted(self, queue: Queue) -> None:
        """Called once for each deleted queue."""

    def user_deleted(self, name: str) -> None:
        """Called when an account has been deleted: what is kept for it must not pass to the next of that name.

        It is called in the middle of the deletion: what changes the topology waits for a timer.
        """

    def reserved(self, queue: Queue) -> int:
        """Return how many unsettled messages of a queue this guest has: with any, the queue is in use."""
        return 0

    def metrics(self) -> Iterable[Metric]:
        """Return what a guest of the broker measures, for those who watch the node. Called at each scrape."""
        return ()

    def all_metrics(self) -> list[Metric]:
        """Return what `metrics` says, as a whole."""
        return list(self.metrics())

    def stop(self) -> None:
        """Called when the node begins to end. What the guest has in the store stays."""

    def close(self) -> None:
        """Called when the node has ended, and its clock goes still; or, in a virtual host, when it is deleted.

        It may wait, for a file or a collector: nothing else is left to be done.
        """


G = TypeVar("G", bound=Guest)


@mypyc_attr(native_class=False)
class ForeignGuest(Guest):
    """A plug-in's guest of the broker. What a method raises is logged the first time, and harms nothing."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.rank = guest.rank  # type: ignore[misc]  # of this one
        self._failed: set[str] = set()

    def _tell(self, method: str, *arguments: object) -> object:
        try:
            return getattr(self.guest, method)(*arguments)
        except PLUGIN_MISTAKES as error:
            if method not in self._failed:
                self._failed.add(method)
                log.error("guest %s failed in %s()", self.guest.name, method, exc_info=error)
            return None

    def virtual_host_added(self, host: QueueHost) -> None:
        self._tell("virtual_host_added", host)

    def virtual_host_deleted(self, name: str) -> None:
        self._tell("virtual_host_deleted", name)

    def exchange_changed(self, exchange: Exchange, definition: Table) -> None:
        self._tell("exchange_changed", exchange, definition)

    def exchange_deleted(self, exchange: Exchange) -> None:
        self._tell("exchange_deleted", exchange)

    def queue_changed(self, queue: Queue, definition: Table) -> None:
        self._tell("queue_changed", queue, definition)

    def queue_deleted(self, queue: Queue) -> None:
        self._tell("queue_deleted", queue)

    def user_deleted(self, name: str) -> None:
        self._tell("user_deleted", name)

    def reserved(self, queue: Queue) -> int:
        count = self._tell("reserved", queue)
        return count if isinstance(count, int) else 0

    def metrics(self) -> Iterable[Metric]:
        found = self._tell("all_metrics")
        return found if isinstance(found, list) else ()

    def stop(self) -> None:
        self._tell("stop")

    def close(self) -> None:
        self._tell("close")


@mypyc_attr(native_class=False)
class Guests:
    """The guests of one broker or virtual host."""

    __slots__ = ("_found", "_home", "_order")

    def __init__(self, home: object) -> None:
        self._home = home
        self._found: dict[type[Guest], Guest] = {}
        self._order: tuple[Guest, ...] = ()

    def of(self, kind: type[G]) -> G:
        """Return the guest of this class, made on the first call."""
        guest = self.find(kind)
        if guest is None:
            guest = kind(self._home)
            self.put(guest)
        return guest

    def find(self, kind: type[G]) -> G | None:
        """Return the guest of this class, if there is one."""
        guest = self._found.get(kind)
        if isinstance(guest, ForeignGuest):
            guest = guest.guest
        return guest if isinstance(guest, kind) else None

    def put(self, guest: Guest) -> None:
        """Let a guest in, in place of an earlier one of its class."""
        self._found[type(guest)] = guest
        self._sort()

    def remove(self, kind: type[Guest]) -> None:
        """Let a guest go, which hears of nothing more."""
        self._found.pop(kind, None)
        self._sort()

    def foreign(self) -> list[ForeignGuest]:
        """Return the guests of plug-ins."""
        return [guest for guest in self._order if isinstance(guest, ForeignGuest)]

    def let_in(self, kind: type[Guest]) -> None:
        """Make a plug-in's guest. Raises what its constructor raises."""
        self._found[kind] = ForeignGuest(kind(self._home))
        self._sort()

    def _sort(self) -> None:
        self._order = tuple(sorted(self._found.values(), key=lambda guest: guest.rank))

    def __iter__(self) -> Iterator[Guest]:
        return iter(self._order)
