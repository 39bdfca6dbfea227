"""A laned queue keeps its waiting messages in lanes, one for each priority, and keeps its limits.

    push ──> waiting ──> taken (work_queue.py) ──> due: waiting again, at its old place
               └─expired, over limit──> dead

A lane (`lane.py`) is a deque of arrivals plus a heap of those that came back, so a message returns to its old place in
O(log n); messages that do not fit into memory are on disk only. Messages that are for later, or were given back for a
time, wait in a schedule (`schedule.py`).

Expiry, limits and dead-lettering cost a message one attribute test each where they are not in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.clock import NEVER
from leveret.delivery import Delivery, read_back
from leveret.durability import PENDING
from leveret.limits import QueueLimits
from leveret.queues import runs
from leveret.queues.auto_delete import AutoDelete
from leveret.queues.backlog import PAGE_MESSAGES, Backlog
from leveret.queues.backoff import backoff_of, within
from leveret.queues.contract import NO_TERMS, QueueHost, QueueTerms
from leveret.queues.lane import Lane
from leveret.queues.overflow import NEVER_FULL, is_local, refuses, repeats, turned_away
from leveret.queues.queue import EXPIRED, Queue
from leveret.queues.schedule import Schedule, put_off
from leveret.queues.scheduled import NOTHING_SCHEDULED, ScheduledMessages

if TYPE_CHECKING:
    from leveret.durability import Page, Stored, WaitingRow
    from leveret.message import Message
    from leveret.queues.held_dead_letters import HeldDeadLetters
    from leveret.queues.overfull import Overfull
    from leveret.queues.round_robin import RoundRobin

USUAL: Final = (0, 4)  # priorities that are of the usual level of a quorum queue


@mypyc_attr(allow_interpreted_subclasses=True)
class LanedQueue(Queue):
    """A queue whose waiting messages stand in lanes, the highest priority first."""

    __slots__ = (
        "auto_deletion",
        "awaited",
        "backlog",
        "expiring",
        "lanes",
        "overfull",
        "position",
        "reads_delays",
        "rings",
        "rises",
        "schedule",
        "ttl_s",
        "watched",
    )

    def __init__(
        self, virtual_host: QueueHost, name: str, limits: QueueLimits, terms: QueueTerms = NO_TERMS
    ) -> None:
        super().__init__(virtual_host, name, limits, terms)
        self.lanes: list[Lane] = []  # one per priority, the lowest first; none before the first message
        self.backlog: Backlog | None = None  # created with the first page on disk
        self.schedule: Schedule | None = None  # created with the first message that waits for a time
        self.rings: list[RoundRobin] = []  # of consumers that can take messages, highest priority first
        self.position = 0  # position of the next message to arrive
        self.expiring = 0  # waiting messages that will expire
        self.rises = False  # a priority may make a difference, for which there is only one lane yet
        self.watched = False  # each arrival is compared with limits, or with what is known
        self.reads_delays = False  # headers of messages may say that these are for later
        self.ttl_s = NEVER
        self.awaited: dict[HeldDeadLetters, int] | None = None  # refused here: the size of the first of each
        self.auto_deletion: AutoDelete | None = None  # created when the queue may be deleted for lack of use
        self.overfull: Overfull | None = None  # created when the queue is over a limit that refuses nothing

    # Lanes.

    def open_lanes(self) -> None:
        """Create the lanes, if there are none yet."""
        if not self.lanes:
            self.lanes = [Lane() for _ in range((self.limits.max_priority or 0) + 1)]

    def rank(self, priority: int) -> int:
        self.open_lanes()
        return max(0, min(priority - self.limits.priority_base, len(self.lanes) - 1))

    def lane_of(self, delivery: Delivery) -> Lane:
        """Return the lane of a delivery, by the priority of its message."""
        self.open_lanes()
        lanes = self.lanes
        return lanes[0] if len(lanes) == 1 else lanes[self.rank(delivery.message.facts.priority)]

    def head_message(self) -> Message | None:
        lane = next((lane for lane in reversed(self.lanes) if lane), None)
        return lane.head().message if lane is not None and lane.at_hand() else None

    def waiting(self) -> Iterable[Delivery]:
        return (delivery for lane in reversed(self.lanes) for delivery in lane)

    def marked(self) -> Iterable[tuple[int, int]]:
        later = () if self.schedule is None else self.schedule.marked()
        back = () if self.absent is None else self.absent.marked()
        return chain(later, back, *(lane.marked() for lane in self.lanes))

    @property
    def is_searched(self) -> bool:
        """Return whether consumers look for messages that suit them, or browse."""
        return False

    # Limits.

    def over_limit(self, more: int = 0, more_bytes: int = 0) -> bool:
        """Return whether the queue would be over its limits with so many more messages and bytes of bodies."""
        longest, largest = self.limits.max_length, self.limits.max_bytes
        if self.schedule is not None:
            more += len(self.schedule)
            more_bytes += self.schedule.octets
        if (held := self.dead_letters) is not None and self.limits.at_least_once:
            more += held.count
            more_bytes += held.octets
        is_long = longest is not None and self.ready + more > longest
        return is_long or (largest is not None and self.ready_bytes + more_bytes > largest)

    def lacks_room_for(self, message: Message) -> bool:
        """Return whether one more message would put the queue over its limits."""
        return self.over_limit(1, message.size)

    def has_room(self, messages: int, octets: int) -> bool:
        if not self.watched or self.limits.overflow in NEVER_FULL:
            return True
        self.dispatch()
        if self.dead_letters is not None:
            self.dead_letters.dispatch()
        return not self.over_limit(messages, octets)

    def would_take(self, message: Message) -> bool:
        if not self.watched or self.limits.overflow in NEVER_FULL or not self.lacks_room_for(message):
            return True
        if self.deduplication is not None and not self.deduplication.admits(message):
            return True  # a duplicate needs no room
        self.dispatch()
        return not self.lacks_room_for(message)

    def begin_auto_deletion(self) -> AutoDelete:
        """Return the queue's deletion rules for lack of use, created on the first call."""
        if self.auto_deletion is None:
            self.auto_deletion = AutoDelete(self)
        return self.auto_deletion

    # Arrival.

    def push(self, message: Message) -> bool:
        if self.watched and refuses(self, message):
            return turned_away(self, message)
        if (message.facts.due_ms or self.reads_delays) and put_off(self, message):
            return True
        delivery = Delivery(message, self, self.position, NEVER)
        self.position += 1
        if self.journal is not None and message.facts.durable and self.number:
            delivery.stored = PENDING
            self.journal.arrivals.append(delivery)
        if self.entering is not None:
            self.entering.entered(delivery)
        if message.facts.ttl_ms is not None or self.ttl_s != NEVER:
            delivery.expires_at = self.end_of(message)
            self.expiring += 1
        lanes = self.lanes
        ranked = len(lanes) != 1 or (self.rises and message.facts.priority not in USUAL)
        lane = self.lane_of(delivery) if ranked else lanes[0]
        lane.arrivals.append(delivery)
        if message.notes is not None and message.notes.is_repeat:
            delivery.redelivered = self.came_back = True
        self.ready += 1
        self.ready_bytes += message.size
        self.published += 1
        if not self.touched and (self.rings or self.expiring):
            self.touch()
        if self.watched and self.over_limit():
            self.dispatch()  # a message that a consumer takes at once does not count towards the limit
        return True

    def takes_of(self, messages: list[Message]) -> int:
        if self.reads_delays or messages[0].facts.due_ms:
            return 0  # each is put off by itself
        return runs.takes_of(self, messages) if self.watched else len(messages)

    def takes_runs(self, first: Message) -> bool:
        return not self.watched and self.takes_of([first]) == 1

    def push_run(self, messages: list[Message]) -> int:
        count = self.takes_of(messages)
        if not count:
            return 0
        expires_at, first = NEVER, messages[0]
        if first.facts.ttl_ms is not None or self.ttl_s != NEVER:
            expires_at = self.end_of(first)
            self.expiring += count
        self.ready_bytes += runs.line_up(self, messages[:count], expires_at)
        self.ready += count
        self.position += count
        self.published += count
        if not self.touched and (self.rings or self.expiring):
            self.touch()
        return count

    def admit(self, message: Message) -> None:
        if self.limits.no_local and is_local(self, message):
            return
        if self.deduplication is not None and repeats(self, message):
            return
        watched, self.watched = self.watched, False
        try:
            self.push(message)
        finally:
            self.watched = watched
        if watched:
            self.touch()

    def end_of(self, message: Message) -> float:
        """Return when a message expires whose time to live begins now; NEVER if it has none."""
        own_ms = message.facts.ttl_ms
        return self.settling.now + min(self.ttl_s, NEVER if own_ms is None else own_ms / 1000)

    # Messages for later, and those that come back.

    def scheduled(self) -> Schedule:
        """Return the messages that wait for a time, created on the first call."""
        if self.schedule is None:
            self.schedule = Schedule(self)
        return self.schedule

    def count_scheduled(self) -> None:
        """Count a message that was published for later, and has just been scheduled."""
        self.published += 1
        if self.watched:
            self.touch()  # it counts towards the limits

    @property
    def later(self) -> ScheduledMessages:
        return NOTHING_SCHEDULED if self.schedule is None else self.schedule

    def due(self, delivery: Delivery) -> None:
        """Let a message wait at the place where it arrived, as it came back or its time has come."""
        self.lane_of(delivery).put_back(delivery)
        self.ready += 1
        self.ready_bytes += delivery.message.size
        if delivery.expires_at != NEVER:
            self.expiring += 1
        if delivery.redelivered:
            self.came_back = True
        self.touch()

    # What is on disk.

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        self.open_lanes()
        lane, books = self.lanes[priority], self.books()
        for page in pages:
            books.add(page)
            lane.add_page(books, page)
            self.found(page)
        self.touch()

    def restore_schedule(self, rows: Sequence[WaitingRow], set_back: bool) -> None:
        backoff = backoff_of(self.limits) if set_back else None
        self.scheduled().restore(rows if backoff is None else within(backoff, rows, self.settling.now))
        self.go_on_from(max([row[1] for row in rows]) + 1)

    def books(self) -> Backlog:
        """Return the backlog of pages on disk, created on the first call."""
        if self.backlog is None:
            self.journal = self.settling.journal  # a queue that is not durable has none yet
            assert self.journal is not None, "pages need a journal"
            self.backlog = Backlog(self, self.journal)
        return self.backlog

    def on_disk(self) -> tuple[int, int]:
        return (0, 0) if self.backlog is None else (self.backlog.messages, self.backlog.octets)

    def page_out(self, keep: int) -> bool:
        """Free the memory of a page of messages, from those to be delivered last, if the store has them.

        The first `keep` messages of each priority stay. Return False if there is nothing to put on disk now.
        """
        if self.schedule is not None and self.schedule.page_out(PAGE_MESSAGES):
            return True
        return any(lane.page_out(self.books(), keep) for lane in self.lanes)

    def reread(self) -> int:
        held = 0 if self.dead_letters is None else self.dead_letters.reread()
        return held + (0 if self.journal is None else self.journal.read_unreadable(self, self._read_again))

    def _read_again(self, page: Page, stored: list[Stored]) -> None:
        """Let messages wait at their places that could not be read before."""
        for delivery in read_back(self, page, stored):
            self.due(delivery)

    def asks_for(self, lane: Lane | None) -> bool:
        """Return whether a lane's first message has to come from another machine first, and ask for it then."""
        page = None if lane is None else lane.page_at_head()
        if lane is None or page is None or self.journal is None or not self.journal.is_far(page):
            return False
        lane.ask()
        return True

    # Departure.

    def die(self, delivery: Delivery, reason: str) -> None:
        """Settle a message in the store, and dead-letter it for a reason (`REJECTED` and the others)."""
        if self.present is not None:
            self.present.dies(delivery, reason)
        self.forget((delivery,))
        self.settling.dead_letter(self, self.leaving(delivery), reason)

    def leaving(self, delivery: Delivery) -> Message:
        """Return a message that leaves for another queue, where it may have been before the node ended suddenly."""
        journal = self.journal
        if journal is None or not 0 < delivery.stored <= journal.redelivered_to:
            return delivery.message
        return delivery.message.repeated()

    def expire(self, delivery: Delivery) -> None:
        """Let a message die that had expired when it was taken out of its lane."""
        self.left(delivery)
        self.die(delivery, EXPIRED)

    def purge(self) -> int:
        """Drop all waiting messages, not those with consumers (S074), and return how many.

        Messages that wait for a time are dropped, too, as RabbitMQ drops those whose retry is delayed.
        """
        count = self.ready
        if self.present is not None:
            self.present.purged()
        for lane in self.lanes:
            for pile in lane.emptied():
                self.forget(pile)
                self.settling.discarded.add(pile, self.settling.now)
        self.ready = self.ready_bytes = self.expiring = 0
        if self.journal is not None:
            count += self.journal.settle_unreadable(self)
        if self.schedule is not None:
            count += self.schedule.purge()
        if self.awaited or self.overfull is not None:
            self.touch()
        return count

    # Only queues change their counts of waiting messages: where they move single ones, and in these methods.

    def left(self, delivery: Delivery) -> None:
        """Count off a message that was taken out of its lane."""
        self.ready -= 1
        self.ready_bytes -= delivery.message.size
        if delivery.expires_at != NEVER:
            self.expiring -= 1

    def found(self, page: Page) -> None:
        """Count a page that was on disk when the node started."""
        self.ready += len(page)
        self.ready_bytes += page.octets
        self.expiring += page.expiring
        self.go_on_from(page.last + 1)
        self.came_back |= page.redelivered or bool(page.marks)

    def count_passed_over(self) -> None:
        """Count a message that was published, and that the queue did not take in."""
        self.published += 1

    def removed(self, count: int, octets: int, expiring: int) -> None:
        """Count off messages that have left the queue together, with the bytes of their bodies."""
        self.ready -= count
        self.ready_bytes -= octets
        self.expiring -= expiring

    def go_on_from(self, position: int) -> None:
        """Assign no position below this one from now on."""
        self.position = max(self.position, position)
