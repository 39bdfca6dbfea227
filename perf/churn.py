"""Open and close connections, channels or queues again and again, and measure how long that takes.

Each publisher of the plan is a thread that does so at its rate; it waits for the broker nearly all the time. With a
rate, the clock of an opening starts when it was due.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Final

from leveret.perf import report
from leveret.perf.amqp091 import Setup091
from leveret.perf.ends import ENDLESS
from leveret.perf.errors import PerfError
from leveret.perf.histogram import Histogram
from leveret.perf.pace import SECOND, Pace
from leveret.perf.plan import Plan
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire

LOOK_S: Final = 0.1  # between two looks whether to end


class Churner:
    """A thread's work: `_turn` opens one thing, and returns the function that closes it."""

    def __init__(self, plan: Plan, what: str, number: int) -> None:
        self._plan = plan
        self._number = number
        self._turn: Callable[[int], Callable[[], object]] = getattr(self, f"_{what}")
        self._talk = None if what == "connections" else Setup091(plan.url)
        self._channel = 0 if self._talk is None else self._talk.open_channel()
        self.opening = Histogram()
        self.closing = Histogram()
        self.error: PerfError | None = None

    def run(self, until: Callable[[], bool], started: int) -> None:
        pacing = Pace(self._plan.rate) if self._plan.rate else None
        try:
            for number in count():
                due = started + pacing.time_of(number) if pacing else time.monotonic_ns()
                while not until() and (ahead := due - time.monotonic_ns()) > 0:
                    time.sleep(min(ahead / SECOND, LOOK_S))
                if until() or number >= (self._plan.messages or ENDLESS):
                    return
                self._once(number, due)
        except PerfError as error:
            self.error = error
        except OSError as error:
            self.error = PerfError(f"the connection was lost: {error}")

    def _once(self, number: int, due: int) -> None:
        close = self._turn(number)
        opened = time.monotonic_ns()
        self.opening.add(opened - due)
        close()
        self.closing.add(time.monotonic_ns() - opened)

    def end(self) -> None:
        if self._talk is not None:
            self._talk.close()

    def _connections(self, number: int) -> Callable[[], object]:
        return Setup091(self._plan.url).close

    def _channels(self, number: int) -> Callable[[], object]:
        talk, channel = self._talk, self._channel + 1
        assert talk is not None
        talk.call(m.ChannelOpen(), m.ChannelOpenOk, channel)
        return lambda: talk.call(m.ChannelClose(200), m.ChannelCloseOk, channel)

    def _queues(self, number: int) -> Callable[[], object]:
        plan, talk = self._plan, self._talk
        assert talk is not None
        name = f"{plan.queue_name.replace('%d', str(self._number))}-churn-{number}"
        arguments: wire.FieldTable = {**plan.arguments}
        durable = plan.persistent or plan.arguments.get("x-queue-type", "classic") != "classic"
        talk.call(m.QueueDeclare(name, durable=durable, arguments=arguments), m.QueueDeclareOk, self._channel)
        return lambda: talk.call(m.QueueDelete(name), m.QueueDeleteOk, self._channel)


def churn(plan: Plan, what: str) -> tuple[report.Told, int]:
    """Open and close until the time, the count or Ctrl-C ends it. Raises PerfError."""
    churners = [Churner(plan, what, number) for number in range(plan.publishers)]
    started = time.monotonic_ns()
    ends = started + int(plan.time_s * SECOND) if plan.time_s else ENDLESS
    stopped = threading.Event()

    def is_over() -> bool:
        return stopped.is_set() or time.monotonic_ns() >= ends

    threads = [threading.Thread(target=each.run, args=(is_over, started), daemon=True) for each in churners]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        stopped.set()
        for thread in threads:
            thread.join()
    seconds = (time.monotonic_ns() - started) / SECOND
    for each in churners:
        each.end()
        if each.error is not None:
            raise each.error
    return _told(plan, what, churners, seconds, not stopped.is_set()), 0


def _told(plan: Plan, what: str, churners: list[Churner], seconds: float, whole: bool) -> report.Told:
    opening, closing = Histogram(), Histogram()
    for each in churners:
        opening.merge(each.opening)
        closing.merge(each.closing)
    return {
        "schema": report.SCHEMA,
        "plan": report.plan_told(plan),
        "churn": what,
        "whole": whole,
        "seconds": round(seconds, 6),
        "count": opening.count,
        "rate": round(opening.count / seconds, 1),
        "open_us": report.percentiles(opening),
        "close_us": report.percentiles(closing),
    }
