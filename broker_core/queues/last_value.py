"""A last-value queue keeps only the newest of all waiting messages with the same value in one header.

    a=1  b=7  a=2          a=3 arrives          --  b=7  --  a=3
    (dead) ^   ^                                (dead)   (dead)

A new message is appended. The message that it replaces is settled and counted off at once; its entry in the lane stays,
marked as expired long ago, so that every reader passes it over. When there are more such entries than messages, they
are all removed. A message with a consumer is not replaced: if it comes back while a newer one waits, it is dropped.

The queue holds one dictionary entry for each waiting message. All messages stay in memory: there are no more of them
than values. Messages without the header share one value, the empty text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.delivery import Delivery
from leveret.message import said_in
from leveret.queues.backlog import PAGE_MESSAGES
from leveret.queues.overflow import refuses, turned_away
from leveret.queues.queue import BY_BACKOFF
from leveret.queues.schedule import put_off
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.durability import Page
    from leveret.message import Message
    from leveret.queues.lane import Lane

REPLACED: Final = float("-inf")  # the expiry time of a replaced message
DEAD_MAX: Final = 64  # entries of replaced messages that are not worth removing


class LastValueQueue(WorkQueue):
    """A work queue that keeps the newest message of each value of a header."""

    may_lack: ClassVar[bool] = False
    __slots__ = ("_dead", "_newest", "_values")

    def set_up(self) -> None:
        self._newest: dict[str, Delivery] = {}  # the waiting messages by value
        self._values: dict[int, str] = {}  # their values by position
        self._dead = 0  # entries of replaced messages in the lanes

    def _value_of(self, message: Message) -> str:
        return said_in(message, self.limits.last_value_key or "")

    # Arrival.

    def push(self, message: Message) -> bool:
        if self.watched and refuses(self, message):
            return turned_away(self, message)
        if (message.facts.due_ms or self.reads_delays) and put_off(self, message):
            return True
        value = self._value_of(message)
        if (old := self._newest.get(value)) is not None:
            self._replace(old)
        watched, self.watched = self.watched, False  # no dispatch before the message is in `_newest`
        super().push(message)
        self.watched = watched
        self._know(self.lanes[self.rank(message.facts.priority)].arrivals[-1], value)
        if watched and self.over_limit():
            self.dispatch()
        return True

    def takes_of(self, messages: list[Message]) -> int:
        return 0  # each may replace the one before

    def push_run(self, messages: list[Message]) -> int:
        return 0

    def lacks_room_for(self, message: Message) -> bool:
        """Return whether the queue is full for a message, less the message that it would replace."""
        old = self._newest.get(self._value_of(message))
        if old is None:
            return super().lacks_room_for(message)
        return self.over_limit(0, message.size - old.message.size)

    def _know(self, delivery: Delivery, value: str) -> None:
        self._newest[value] = delivery
        self._values[delivery.position] = value

    def _replace(self, old: Delivery) -> None:
        """Settle and count off a replaced message, whose entry stays in the lane for now."""
        self.left(old)
        self.forget((old,))
        old.expires_at = REPLACED
        self._dead += 1
        if self._dead > self.ready + DEAD_MAX:
            self._close_up()

    def _close_up(self) -> None:
        for lane in self.lanes:
            lane.weed(is_replaced)
        self._dead = 0

    # Departure.

    def _take(self, quota: int, room: int, lanes: list[Lane] | None = None) -> list[Delivery]:
        taken = super()._take(quota, room, lanes)
        for delivery in taken:
            self._forget_value(delivery)
        return taken

    def left(self, delivery: Delivery) -> None:
        if delivery.expires_at == REPLACED:
            self._dead -= 1
        else:
            super().left(delivery)
            self._forget_value(delivery)

    def _forget_value(self, delivery: Delivery) -> None:
        value = self._values.pop(delivery.position, None)
        if value is not None:
            del self._newest[value]

    def die(self, delivery: Delivery, reason: str) -> None:
        if delivery.expires_at != REPLACED:
            super().die(delivery, reason)

    def release(
        self, delivery: Delivery, failed: bool = True, redelivered: bool = True, until: float = BY_BACKOFF
    ) -> None:
        waiting = self._newest.get(self._value_of(delivery.message))
        if waiting is not None and waiting.position > delivery.position:
            self.answered((delivery,))
            self.lost(1, delivery.message.size)
            self.forget((delivery,))
        else:
            super().release(delivery, failed, redelivered, until)

    def due(self, delivery: Delivery) -> None:
        """Let a message wait (again) in the place of an older one; it is dropped if a newer one waits."""
        value = self._value_of(delivery.message)
        waiting = self._newest.get(value)
        if waiting is not None and waiting.position > delivery.position:
            self.forget((delivery,))
            return
        super().due(delivery)
        if waiting is not None:
            self._replace(waiting)
        self._know(delivery, value)

    def purge(self) -> int:
        self._close_up()
        self._newest.clear()
        self._values.clear()
        return super().purge()

    def waiting(self) -> Iterable[Delivery]:
        return (delivery for delivery in super().waiting() if delivery.expires_at != REPLACED)

    # The store.

    def page_out(self, keep: int) -> bool:
        """Page out messages that wait for a time. All others stay in memory, where they can be replaced."""
        return self.schedule is not None and self.schedule.page_out(PAGE_MESSAGES)

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        """Read all pages, and drop replaced messages, which may be there because consumers had them."""
        self.open_lanes()
        books, arrivals = self.books(), self.lanes[priority].arrivals
        for page in pages:
            books.add(page)
            self.found(page)
            for delivery in books.read(page):
                arrivals.append(delivery)
                self._take_in(delivery)
        self._close_up()
        self.touch()

    def _take_in(self, delivery: Delivery) -> None:
        value = self._value_of(delivery.message)
        other = self._newest.get(value)
        if other is None:
            self._know(delivery, value)
        elif other.position > delivery.position:
            self._replace(delivery)
        else:
            self._replace(other)
            self._know(delivery, value)


def is_replaced(delivery: Delivery) -> bool:
    return delivery.expires_at == REPLACED
