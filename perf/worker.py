"""Run many connections in one thread: send what is due, handle what arrives, and report to a conductor."""

from __future__ import annotations

import heapq
import select
import time
from collections.abc import Callable
from enum import Enum
from typing import Final, cast

import attrs

from leveret.perf.connection import Connection, Inbox
from leveret.perf.dial import TIMEOUT_S
from leveret.perf.drivers import DRIVERS
from leveret.perf.ends import ConsumerEnd, Tally
from leveret.perf.histogram import Histogram
from leveret.perf.pace import SECOND
from leveret.perf.plan import Plan
from leveret.perf.shares import SeenBy

TICK_NS: Final = 50_000_000
REST_NS: Final = 200_000  # at least, between two looks at what is due, so that messages are sent together
BLOCK_MAX: Final = 128 << 10  # bytes of a block
BLOCKS_MAX: Final = 16 << 20  # bytes of all blocks
SELECT_MAX: Final = 1024
READY: Final = select.POLLIN
ROOM: Final = select.POLLIN | select.POLLOUT


class Order(Enum):
    """The conductor's order to a worker. STOP: publish no more; END: finish."""

    GO = "go"
    STOP = "stop"
    END = "end"


@attrs.frozen
class Sample:
    """The state of a worker; the histograms cover the time since the sample before."""

    worker: int
    now_ns: int
    sent: int
    received: int
    confirmed: int
    refused: int
    returned: int
    first_ns: int
    last_ns: int
    done: bool  # publishers have sent all their messages, and all are settled
    delivery_times: Histogram
    confirm_times: Histogram


@attrs.frozen
class Sight:
    """A worker's view of the messages at the end: how many each publisher sent, and what came out of each queue."""

    sent: dict[int, int]
    seen: list[tuple[str, tuple[dict[int, bytes], int, int]]]


class Worker:
    """A worker with every `processes`-th connection of the plan, from number `worker` on."""

    def __init__(self, plan: Plan, worker: int = 0) -> None:
        self._plan = plan
        self._worker = worker
        self._tally = Tally(time.monotonic_ns())
        self._inbox = Inbox()
        self._seen: SeenBy = []
        self._poll = _poll()
        self._file = self._poll.fileno() if hasattr(self._poll, "fileno") else None  # for epoll
        self._by_number: dict[int, Connection] = {}  # by file descriptor
        self._publishers: dict[int, Connection] = {}  # by the number of their first publisher
        self._ready: dict[Connection, None] = {}  # may send at once
        self._timers: list[tuple[int, int, Connection, ConsumerEnd | None]] = []
        self._timed: set[int] = set()  # file descriptors of publishers with a timer
        self._made = 0
        self._stopped = False

    def set_up(self) -> None:
        """Open the connections, consumers first, so that they miss nothing. Raises PerfError."""
        plan = self._plan
        shares = [*_shares(plan.consumers, plan.per_connection)]
        publishing = [*_shares(plan.publishers, plan.per_connection)]
        mine = range(self._worker, len(shares) + len(publishing), plan.processes)
        block_max = min(BLOCK_MAX, BLOCKS_MAX * plan.processes // max(plan.publishers, 1))
        ends = DRIVERS[plan.protocol].ends()
        for each in mine:
            if each < len(shares):
                made = ends.consuming(plan, shares[each], self._inbox, self._tally, self._seen)
                self._hold(made)
                self._wait_for(made)
        for each in mine:
            if each >= len(shares):
                numbers = publishing[each - len(shares)]
                made = ends.publishing(plan, numbers, self._inbox, self._tally, block_max)
                self._hold(made)
                self._publishers[numbers[0]] = made

    def _hold(self, made: Connection) -> None:
        self._by_number[made.socket.fileno()] = made
        made.begin(time.monotonic_ns())
        self._poll.register(made.socket.fileno(), READY)

    def _wait_for(self, made: Connection) -> None:
        """Wait until the broker has confirmed the consumers."""
        made.socket.settimeout(TIMEOUT_S)
        while made.unanswered:
            made.receive_once()
        made.socket.setblocking(False)
        self._think(made, time.monotonic_ns())

    def run(self, tick: Callable[[Sample], Order]) -> Sight:
        """Run until the conductor, which gets a sample now and then, orders the end. Raises PerfError."""
        now = time.monotonic_ns()
        for connection in self._publishers.values():
            for source in connection.sources:
                source.start(now)
            self._ready[connection] = None
        next_tick = now + TICK_NS
        while True:
            now = time.monotonic_ns()
            if now >= next_tick:
                if self._tick(tick, now) is Order.END:
                    return self._sight()
                next_tick = now + TICK_NS
            self._run_timers(now)
            for connection in [*self._ready]:
                self._push(connection, now)
            for file, events in self._wait(now, next_tick):
                self._on_event(self._by_number[file], events)

    def _tick(self, tick: Callable[[Sample], Order], now: int) -> Order:
        order = tick(self._sample(now))
        if order is not Order.GO and not self._stopped:
            self._stopped = True
            for connection in self._publishers.values():
                for source in connection.sources:
                    source.limit = source.sent
        for connection in self._by_number.values():
            connection.keep_alive(now)
            for channel, each in connection.subscriptions.items():
                if order is not Order.GO:
                    connection.acknowledge(channel, each, at_least=1)
        return order

    def _sample(self, now: int) -> Sample:
        tally = self._tally
        sample = Sample(
            self._worker,
            now,
            tally.sent,
            tally.received,
            tally.confirmed,
            tally.refused,
            tally.returned,
            tally.first_ns,
            tally.last_ns,
            all(source.done for each in self._publishers.values() for source in each.sources),
            tally.delivery_times,
            tally.confirm_times,
        )
        tally.delivery_times = Histogram()
        tally.confirm_times = Histogram()
        return sample

    def _sight(self) -> Sight:
        sent = {
            first + place: source.sent
            for first, each in self._publishers.items()
            for place, source in enumerate(each.sources)
        }
        return Sight(sent, [(queue, seen.packed()) for queue, seen in self._seen])

    def close(self) -> None:
        for connection in self._by_number.values():
            connection.socket.close()
        if hasattr(self._poll, "close"):
            self._poll.close()

    # A turn of the loop.

    def _push(self, connection: Connection, now: int) -> None:
        if connection.push(now):
            return  # it may send more at once
        self._ready.pop(connection, None)
        self._watch(connection)
        file = connection.socket.fileno()
        due = connection.due_ns()
        if due is not None and file not in self._timed:
            self._timed.add(file)
            self._made += 1
            heapq.heappush(self._timers, (max(due, now + REST_NS), self._made, connection, None))

    def _watch(self, connection: Connection) -> None:
        """Poll for room to send, if the socket is full."""
        if connection.is_full != connection.is_watched:
            connection.is_watched = connection.is_full
            self._poll.modify(connection.socket.fileno(), ROOM if connection.is_full else READY)

    def _run_timers(self, now: int) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, connection, thinker = heapq.heappop(self._timers)
            if thinker is None:
                self._timed.discard(connection.socket.fileno())
                self._ready[connection] = None
                continue
            thinker.timed = False
            for channel, each in connection.subscriptions.items():
                if each is thinker:
                    self._go_on(connection, channel, each, now)

    def _think(self, connection: Connection, now: int) -> None:
        if self._plan.think_s:
            for channel, each in connection.subscriptions.items():
                self._go_on(connection, channel, each, now)

    def _go_on(self, connection: Connection, channel: int, thinker: ConsumerEnd, now: int) -> None:
        again = thinker.think(now)
        connection.acknowledge(channel, thinker)
        self._watch(connection)
        if again is not None and not thinker.timed:
            thinker.timed = True
            self._made += 1
            heapq.heappush(self._timers, (again, self._made, connection, thinker))

    def _wait(self, now: int, until: int) -> list[tuple[int, int]]:
        """Return the sockets that can be read or written."""
        if self._ready:
            return self._poll.poll(0)
        if self._timers and self._timers[0][0] < until:
            self._wait_briefly(max(0, self._timers[0][0] - now) / SECOND)
            return self._poll.poll(0)
        left_s = (until - now) / SECOND
        return self._poll.poll(left_s if self._file is not None else 1000 * left_s)

    def _wait_briefly(self, seconds: float) -> None:
        """Wait for less than the millisecond that a poll can; `select` takes no large file descriptors."""
        if self._file is not None and self._file < SELECT_MAX:
            select.select([self._file], [], [], seconds)
        else:
            time.sleep(min(seconds, REST_NS / SECOND))

    def _on_event(self, connection: Connection, events: int) -> None:
        now = time.monotonic_ns()
        if events != select.POLLOUT:
            connection.receive(now)
            self._think(connection, now)
        if connection.sources:
            self._ready[connection] = None
        elif events & select.POLLOUT:
            self._push(connection, now)
        else:
            self._watch(connection)


def _poll() -> select.poll:
    """Return Linux's epoll, which does not look at each of a thousand sockets, or a poll with the same methods."""
    return cast("select.poll", select.epoll()) if hasattr(select, "epoll") else select.poll()


def _shares(count: int, together: int) -> list[range]:
    return [range(first, min(first + together, count)) for first in range(0, count, together)]
