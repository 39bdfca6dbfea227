"""A searched lane lets cursors go through waiting messages, one step at a time: `peek`, then `pass_by` or `take_out`.

    parts    [m1 m2 -- m4]  [on disk]  [m9 m10]     fresh    m11 m12
              ^        ^                        ^
              front    a cursor                 a cursor at the end

Messages that the foremost cursor has reached stand in slots; a slot stays empty when its message is taken. A message
that comes back gets no slot: it is pushed onto the heap of every cursor. So each cursor meets the messages in order,
each once, and once more after it came back. The head of the lane is a cursor that takes whatever it meets.

Slots are in parts of a page each, in memory or on disk. A cursor that comes to a part on disk has to wait until it is
read; when the last cursor leaves a part that came from disk, its memory is freed again. So a search needs at most a
page of memory for each cursor besides what was in memory before, however long the lane is.

From the first part on disk to the last, every message is stored, so that memory can be freed at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush, merge
from itertools import accumulate, chain
from typing import Final

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.durability import Page
from leveret.queues.backlog import PAGE_MESSAGES, PAGE_OCTETS, POSITION, Backlog, first_run
from leveret.queues.lane import Lane, Pages, marked

GAPS: Final = 64  # empty slots, or old entries of a heap, that are not worth removing
BEYOND: Final = 1 << 62  # a position that no message has


class LevelPart:
    """Consecutive slots, a page's worth at most."""

    __slots__ = ("filled", "from_disk", "next", "octets", "page", "slots")

    def __init__(self, deliveries: list[Delivery] | None = None, page: Page | None = None) -> None:
        self.slots: list[Delivery | None] = [*deliveries] if deliveries else []
        self.page = page  # its messages, if they are on disk
        self.filled = len(self.slots) if page is None else len(page)
        self.octets = 0  # bytes of the messages that were put into it from `fresh`
        self.from_disk = page is not None
        self.next: LevelPart | None = None

    @property
    def has_room(self) -> bool:
        """Return whether one more slot may be added at the end."""
        full = len(self.slots) >= PAGE_MESSAGES or self.octets >= PAGE_OCTETS
        return not (full or self.from_disk or self.page is not None)

    def deliveries(self) -> list[Delivery]:
        """Return the messages in memory."""
        return [*filter(None, self.slots)]

    @property
    def end(self) -> int:
        """Return the position of the last message; -1 if there is none."""
        if self.page is not None:
            return self.page.last
        return next((each.position for each in reversed(self.slots) if each is not None), -1)

    def look(self, backlog: Backlog | None) -> list[Delivery]:
        """Return the messages, which stay where they are."""
        return self.deliveries() if self.page is None or backlog is None else backlog.look(self.page)

    def put_away(self, backlog: Backlog) -> bool:
        """Free the memory, if the messages are on disk. Return False if they are not written yet."""
        self.page = backlog.put_away(self.deliveries())
        if self.page is None:
            backlog.have_written(self.deliveries())
            return False
        self.slots, self.from_disk = [], True
        return True

    def put_into(self, lane: Lane, backlog: Backlog) -> None:
        """Append the messages to a plain lane, before its arrivals."""
        if lane.pages is None and self.page is None:
            lane.fresh.extend(self.deliveries())
            return
        if self.page is None and self.filled:
            self.put_away(backlog)
        if self.page is not None:
            backlog.give_up(self.page)
            if lane.pages is None:
                lane.pages = Pages(backlog, self.page)
            else:
                lane.pages.add(self.page)


class Cursor:
    """A position in a lane: the next slot to look at, and the messages that came back and are still to be met."""

    __slots__ = ("at", "avoids", "mark", "met", "part", "returned")

    def __init__(self, part: LevelPart, returned: list[Delivery], mark: object = None) -> None:
        self.part = part
        self.at = 0  # the next slot to look at
        self.met = -1  # the position of the last message that it has left behind
        self.returned = returned  # heap by position; some may not wait any more, or be in it twice
        self.mark = mark  # a browser's cursor marks messages that it has seen with this; None: it takes them
        self.avoids: object = mark  # passes by messages that bear this mark

    @property
    def lacks(self) -> bool:
        """Return whether the next message has to be read from disk first, after `peek` found nothing."""
        page = self.part.page
        return page is not None and self.met < page.last

    @property
    def position(self) -> int:
        """Return a position not above any that follows in slots. The cursor is at the end of those in memory."""
        page = self.part.page
        return BEYOND if page is None or self.met >= page.last else max(page.position, self.met + 1)


class SearchedLane(Lane):
    """A lane while it is searched. `fresh` and `arrivals` hold the messages that no cursor has reached."""

    __slots__ = ("acquirer", "back", "backlog", "cursors", "filled", "first", "front", "last", "lookers")

    def __init__(self, lane: Lane) -> None:
        super().__init__()
        self.first = self.last = LevelPart()
        self.filled = 0  # slots, or messages on disk, of all parts
        # The waiting messages that came back, by position. Other entries of the heaps are obsolete, also where
        # another delivery has come back to the same position since.
        self.back = {each.position: each for each in lane.returned}
        self.front = Cursor(self.first, lane.returned)
        self.cursors = [self.front]
        self.lookers: list[Cursor] = []  # those of browsers, which take nothing
        self.acquirer: Cursor | None = None  # where a message was acquired last: the next one is near
        self.fresh = self.arrivals = lane.arrivals
        self.backlog: Backlog | None = None  # set if there are, or were, messages on disk
        if lane.pages is not None:
            self.backlog = lane.pages.backlog
            self.backlog.give_up(lane.pages.on_disk[0])
            while lane.fresh:
                self._append(LevelPart(first_run(lane.fresh)))
            for page in lane.pages.on_disk:
                self._append(LevelPart(page=page))

    def _append(self, part: LevelPart) -> None:
        self.last.next = self.last = part
        self.filled += part.filled

    def plain(self) -> Lane:
        """Return a plain lane with the same messages, for a queue whose search has ended."""
        lane = Lane()
        lane.returned = self._returned(self.front.returned)
        lane.fresh = lane.arrivals = self.fresh
        parts = [*self.parts()]
        while parts and parts[-1].page is None:
            lane.arrivals.extendleft(reversed(parts.pop().deliveries()))
        if parts:
            assert self.backlog is not None, "something is on disk"
            lane.fresh = deque()
            for part in parts:
                part.put_into(lane, self.backlog)
        return lane

    def enter(self, mark: object = None) -> Cursor:
        """Return a new cursor at the beginning. `mark` identifies a browser, whose cursor takes nothing."""
        cursor = Cursor(self.first, self._returned(self.front.returned), mark)
        self.cursors.append(cursor)
        if mark is not None:
            self.lookers.append(cursor)
        return cursor

    def leave(self, cursor: Cursor) -> None:
        """Remove a cursor."""
        self.cursors.remove(cursor)
        if cursor.mark is not None:
            self.lookers.remove(cursor)
        self._left_alone(cursor.part)

    def parts(self) -> Iterator[LevelPart]:
        part: LevelPart | None = self.first
        while part is not None:
            yield part
            part = part.next

    # Going through the lane.

    def peek(self, cursor: Cursor) -> Delivery | None:
        """Return the message at the cursor; None at the end, and where the next message is on disk (`Cursor.lacks`)."""
        returned = cursor.returned
        while returned and self.back.get(returned[0].position) is not returned[0]:
            heappop(returned)
        arrived = self._slot(cursor)
        if returned:
            place = arrived.position if arrived is not None else cursor.position
            if returned[0].position < place:
                return returned[0]
        return arrived

    def _slot(self, cursor: Cursor) -> Delivery | None:
        """Return the message of the next slot that is not empty, if that is in memory."""
        while True:
            part = cursor.part
            slots, at, end = part.slots, cursor.at, len(part.slots)
            while at < end and slots[at] is None:
                at += 1
            cursor.at = at
            if at < end:
                return slots[at]
            if part.page is not None and cursor.met < part.page.last:
                return None
            if part.next is None and not self._grow():
                return None
            if part.next is not None:
                self._go_on(cursor, part.next)

    def _grow(self) -> bool:
        """Move the first message that no cursor has reached into a slot. Return False if there is none."""
        if not self.fresh:
            return False
        if not self.last.has_room:
            self._append(LevelPart())
        last = self.last
        last.slots.append(delivery := self.fresh.popleft())
        last.filled += 1
        last.octets += delivery.message.size + len(delivery.message.properties)
        self.filled += 1
        return True

    def _go_on(self, cursor: Cursor, following: LevelPart) -> None:
        """Move a cursor to the next part, and drop empty parts on the way."""
        before = cursor.part
        while following.next is not None and not following.filled:
            before.next = following.next
            self._move(following, following.next)
            following = following.next
        cursor.part, cursor.at = following, 0
        self._left_alone(before)
        while self.first.next is not None and not self.first.filled:
            self._move(self.first, self.first.next)
            self.first = self.first.next

    def _move(self, empty: LevelPart, following: LevelPart) -> None:
        """Move the cursors of an empty part to the beginning of the next one."""
        for cursor in self.cursors:
            if cursor.part is empty:
                cursor.part, cursor.at = following, 0

    def _left_alone(self, part: LevelPart) -> None:
        """Free a part that was read from disk, if the last cursor has left it."""
        if part.from_disk and part.page is None and part.filled and self.backlog is not None:
            if all(cursor.part is not part for cursor in self.cursors):
                part.put_away(self.backlog)

    def pass_by(self, cursor: Cursor, delivery: Delivery) -> None:
        """Leave the peeked message where it is, and go on."""
        returned = cursor.returned
        if delivery.position not in self.back:
            cursor.at += 1
            cursor.met = delivery.position
        elif cursor.mark is not None and cursor.mark not in delivery.seen_by:
            delivery.seen_by += (cursor.mark,)
        while returned and returned[0] is delivery:
            heappop(returned)

    def take_out(self, cursor: Cursor, delivery: Delivery) -> None:
        """Take the peeked message, and go on."""
        self.pass_by(cursor, delivery)
        if delivery.position in self.back:
            del self.back[delivery.position]
            return
        for each in self.lookers:
            if each.met >= delivery.position:
                delivery.seen_by += (each.mark,)
        part = cursor.part
        part.slots[cursor.at - 1] = None
        part.filled -= 1
        self.filled -= 1
        if len(part.slots) > 2 * part.filled + GAPS:
            self._close_up(part)

    def _close_up(self, part: LevelPart) -> None:
        """Drop the empty slots of a part, and adjust its cursors."""
        filled = list(accumulate(map(bool, part.slots), initial=0))
        for cursor in self.cursors:
            if cursor.part is part:
                cursor.at = filled[cursor.at]
        part.slots = [*filter(None, part.slots)]

    # Out of order.

    def take_at(self, position: int) -> Delivery | None:
        if (delivery := self.back.pop(position, None)) is not None:
            return delivery
        cursor = self.acquirer
        if cursor is None:
            cursor = self.acquirer = Cursor(self.first, [])
            self.cursors.append(cursor)
        cursor.returned.clear()
        if cursor.met >= position or not self._is_near(cursor, position):
            self.place(cursor, position)
        while (delivery := self._slot(cursor)) is None and cursor.lacks:
            self.load_for(cursor)
        while delivery is not None and delivery.position < position:
            self.pass_by(cursor, delivery)
            delivery = self._slot(cursor)
        if delivery is None or delivery.position != position:
            return None
        self.take_out(cursor, delivery)
        return delivery

    def _is_near(self, cursor: Cursor, position: int) -> bool:
        """Return whether a cursor's next message has this position."""
        delivery = self._slot(cursor)
        return delivery is not None and delivery.position == position

    def place(self, cursor: Cursor, position: int) -> None:
        """Move a cursor to a position, forwards or backwards."""
        before = cursor.part
        part = next((part for part in self.parts() if position <= part.end), self.last)
        cursor.part, cursor.met = part, position - 1
        cursor.at = next(
            (at for at, each in enumerate(part.slots) if each is not None and each.position >= position),
            len(part.slots),
        )
        if before is not part:
            self._left_alone(before)

    def go_back(self, cursor: Cursor, position: int) -> None:
        """Let a cursor meet again what it has passed by from a position on, and all messages that came back."""
        cursor.returned = self._returned([*self.back.values()])
        if cursor.met >= position:
            self.place(cursor, position)

    def weed(self, is_dead: Callable[[Delivery], bool]) -> None:
        alive = [each for each in self.fresh if not is_dead(each)]
        self.fresh.clear()
        self.fresh.extend(alive)
        for position in [position for position, each in self.back.items() if is_dead(each)]:
            del self.back[position]
        for part in self.parts():
            dead = [at for at, each in enumerate(part.slots) if each is not None and is_dead(each)]
            for at in dead:
                part.slots[at] = None
            part.filled -= len(dead)
            self.filled -= len(dead)
            if dead:
                self._close_up(part)

    # Between memory and disk.

    def ask(self) -> None:
        self.seek(self.front)

    def seek(self, cursor: Cursor) -> None:
        """Request the part that a cursor lacks. The queue is touched when it has been read."""
        part = cursor.part
        assert self.backlog is not None, "something is on disk"
        assert part.page is not None, "something is lacking"
        self.backlog.read_soon(part.page, partial(self._take_in_part, part))

    def _take_in_part(self, part: LevelPart, deliveries: list[Delivery]) -> None:
        """Fill a part with the messages read, which may be fewer than it had if some were damaged."""
        self.filled -= part.filled - len(deliveries)
        part.slots, part.filled = [*deliveries], len(deliveries)
        part.page, part.from_disk = None, True
        for cursor in self.cursors:
            if cursor.part is part:
                cursor.at = bisect_right(deliveries, cursor.met, key=POSITION)
        self._left_alone(part)

    def page_out(self, backlog: Backlog, keep: int) -> bool:
        self.backlog = backlog
        parts = [*self.parts()]
        away = [at for at, part in enumerate(parts) if part.page is not None]
        if not away:
            while self.filled < keep and self._grow():
                pass
            parts = [*self.parts()]
        kept = parts_of(parts, keep)
        begin, end = (away[0], away[-1] + 1) if away else (kept, kept)
        return (
            put_first_away(parts[end:], backlog)
            or self._put_fresh_away(backlog, parts[end:])
            or put_first_away(parts[kept:begin][::-1], backlog)
            or put_first_away(parts[begin:end], backlog)
        )

    def _put_fresh_away(self, backlog: Backlog, before: list[LevelPart]) -> bool:
        """Put a page of messages that no cursor has reached on disk, unless messages before them are in memory."""
        if not self.fresh or any(part.filled for part in before):
            return False
        run = first_run(self.fresh)
        if (page := backlog.put_away(run)) is None:
            self.fresh.extendleft(reversed(run))
            backlog.have_written(self.fresh)
            return False
        self._append(LevelPart(page=page))
        return True

    # The interface of a lane.

    def __bool__(self) -> bool:
        return bool(self.filled or self.back or self.fresh)

    def __iter__(self) -> Iterator[Delivery]:
        standing = chain.from_iterable(part.look(self.backlog) for part in [*self.parts()])
        return merge(self._returned(self.front.returned), chain(standing, list(self.fresh)))

    def marked(self) -> Iterator[tuple[int, int]]:
        parts = [*self.parts()]
        here = (delivery for part in parts for delivery in part.deliveries())
        return marked((*self._returned(self.front.returned), *here, *self.fresh), self.away())

    def away(self) -> Iterable[Page]:
        return [part.page for part in self.parts() if part.page is not None]

    def at_hand(self) -> bool:
        return self.peek(self.front) is not None or not self.front.lacks

    def due_at(self) -> float:
        if (delivery := self.peek(self.front)) is not None:
            return delivery.expires_at
        page = self.front.part.page
        if page is None or self.backlog is None:
            return NEVER
        if page.due > self.backlog.now:
            return page.due
        self.seek(self.front)
        return NEVER

    def page_at_head(self) -> Page | None:
        return None if self.at_hand() else self.front.part.page

    def drop_page(self) -> None:
        part = self.front.part
        assert self.backlog is not None, "something is on disk"
        assert part.page is not None, "it is what comes first"
        self.backlog.settle([part.page])
        self.filled -= part.filled
        part.page, part.filled = None, 0

    def load(self) -> None:
        self.load_for(self.front)

    def load_for(self, cursor: Cursor) -> None:
        """Read the part that a cursor lacks at once."""
        part = cursor.part
        assert self.backlog is not None, "something is on disk"
        assert part.page is not None, "something is lacking"
        self._take_in_part(part, self.backlog.read(part.page))

    def head(self) -> Delivery:
        delivery = self.peek(self.front)
        assert delivery is not None, "only a lane with messages has a head"
        return delivery

    def take(self) -> Delivery:
        delivery = self.head()
        self.take_out(self.front, delivery)
        return delivery

    def emptied(self) -> Iterable[deque[Delivery] | list[Delivery]]:
        parts = [*self.parts()]
        standing = [delivery for part in parts for delivery in part.deliveries()]
        piles = standing, self.fresh, self._returned(self.front.returned)
        if self.backlog is not None:
            self.backlog.settle([part.page for part in parts if part.page is not None])
        self.first = self.last = LevelPart()
        self.filled = 0
        self.fresh = self.arrivals = deque()
        self.back.clear()
        for cursor in self.cursors:
            cursor.part, cursor.at, cursor.returned = self.first, 0, []
        return piles

    def put_back(self, delivery: Delivery) -> None:
        self.back[delivery.position] = delivery
        for cursor in self.cursors:
            heappush(cursor.returned, delivery)
            if len(cursor.returned) > 2 * len(self.back) + GAPS:
                cursor.returned = self._returned(cursor.returned)

    def _returned(self, heap: list[Delivery]) -> list[Delivery]:
        """Return the heap without obsolete entries, each message once."""
        return sorted({each for each in heap if self.back.get(each.position) is each}, key=POSITION)


def parts_of(parts: list[LevelPart], keep: int) -> int:
    """Return how many parts the first `keep` messages occupy."""
    for kept, part in enumerate(parts):
        if keep <= 0:
            return kept
        keep -= part.filled
    return len(parts)


def put_first_away(parts: list[LevelPart], backlog: Backlog) -> bool:
    """Put the first of these parts on disk that has messages in memory."""
    part = next((part for part in parts if part.page is None and part.filled), None)
    return part is not None and part.put_away(backlog)
