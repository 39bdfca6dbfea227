"""Slow consumers: those that take less than a queue asks of them, while messages wait that they have no room for.

x-slow-consumer-threshold      the messages that each consumer has to take in a minute
x-slow-consumer-check-period   how often that is looked at, in milliseconds
x-slow-consumer-policy         notify: an event, a line in the log, a mark; close: the consumer is ended, too

A consumer is judged between two checks at both of which messages wait for it and it can take none: its credit is used
up, or its client does not read. So a consumer with little to do is never slow, and neither is one that waits to be the
single active one, whose client has paused it (`channel.flow`), whose queue is paused, or whose selector fits nothing.

What counts are deliveries, which the queue notes once a batch. A timer runs only while the queue has consumers.

Source: Apache ActiveMQ Artemis, "Detecting Slow Consumers"; Apache Qpid Broker-J, "Slow Consumer Detection".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from leveret.delivery import Consumer, consumer_fields
from leveret.limits import CLOSE

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.queues.queue import Queue

CHECK_PERIOD_MS: Final = 60_000

log: Final = logging.getLogger("leveret.broker")


class SlowConsumers:
    """The watch over the consumers of one queue."""

    __slots__ = ("_held_up", "_obeyed", "_queue", "_since", "_timer", "found", "slow")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._timer: Timer | None = None
        self._obeyed: object = None  # the limits that hold
        self._since = 0.0  # of the last check, in monotonic seconds
        self._held_up: dict[Consumer, int] = {}  # what those had taken then that could take no more
        self.slow: dict[Consumer, None] = {}  # those that the last check found
        self.found = 0  # how often a consumer became slow, since the queue was declared

    def obey(self) -> None:
        """Begin anew with the queue's present limits, if they have changed."""
        limits = self._queue.limits
        settings = limits.slow_threshold, limits.slow_check_period_ms, limits.slow_policy
        if settings != self._obeyed:
            self._obeyed = settings
            self.stop()
        self.watch()

    def watch(self) -> None:
        """Look at the consumers after the next period, unless that is planned, or there is no need."""
        queue = self._queue
        if self._timer is not None or not queue.consumers or queue.limits.slow_threshold is None:
            return
        self._since = queue.settling.now
        period_ms = queue.limits.slow_check_period_ms or CHECK_PERIOD_MS
        self._timer = queue.settling.later(period_ms / 1000, self._check)

    def stop(self) -> None:
        self._queue.settling.timers.cancel(self._timer)
        self._timer = None
        self._held_up.clear()
        self.slow.clear()

    def forget(self) -> None:
        """Judge no consumer by what it has taken so far, as the queue gave out nothing for a while."""
        self._held_up.clear()

    def _check(self, now: float) -> None:
        queue, before, was_slow = self._queue, self._held_up, self.slow
        threshold = queue.limits.slow_threshold or 0
        self._timer = None
        self._held_up, self.slow = {}, {}
        seconds, self._since = now - self._since, now
        for consumer in list(queue.consumers):
            if not consumer.attached or not is_held_up(queue, consumer):
                continue
            self._held_up[consumer] = consumer.given
            if consumer not in before:
                continue
            taken = consumer.given - before[consumer]
            if taken * 60 < threshold * seconds and consumer.facts().connection:
                self.slow[consumer] = None
                if consumer not in was_slow:
                    self._tell(consumer, taken, seconds)
        self.watch()

    def _tell(self, consumer: Consumer, taken: int, seconds: float) -> None:
        queue, facts, limits = self._queue, consumer.facts(), self._queue.limits
        why = (
            f"{queue.described}: consumer '{facts.tag}' took {taken} messages in {round(seconds)} s "
            f"while others waited, and should take {limits.slow_threshold} a minute"
        )
        closes = limits.slow_policy == CLOSE
        self.found += 1
        log.warning("%s: %s%s", facts.connection, why, "; it is ended" if closes else "")
        fields = {
            **consumer_fields(consumer, queue.name),
            "taken": taken,
            "seconds": seconds,
            "closed": closes,
        }
        queue.settling.events.happened("consumer.slow", queue.virtual_host.name, fields)
        if closes:
            self._held_up.pop(consumer, None)
            self.slow.pop(consumer, None)
            consumer.end_as_slow(why)


def is_held_up(queue: Queue, consumer: Consumer) -> bool:
    """Return whether messages wait for a consumer because it takes no more at present."""
    if queue.paused or consumer.suspended or not queue.serves(consumer) or not queue.available_to(consumer):
        return False
    return min(consumer.credit, consumer.window.credit) <= 0 or consumer.room() <= 0


def is_slow(queue: Queue, consumer: Consumer) -> bool:
    """Return whether the last check has found that a consumer takes too little."""
    return queue.slow_consumers is not None and consumer in queue.slow_consumers.slow


def watch_consumers(queue: Queue) -> None:
    """Watch for slow consumers of a queue as its limits say. Called after `Queue.apply`."""
    if queue.slow_consumers is None and queue.limits.slow_threshold is not None:
        queue.slow_consumers = SlowConsumers(queue)
    if queue.slow_consumers is not None:
        queue.slow_consumers.obey()
