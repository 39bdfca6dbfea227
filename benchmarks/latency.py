"""Measure how long a confirm takes when messages come at a fixed rate, whatever the broker does: an open loop.

Message i is due at i / rate after the start, and that is where its clock begins, even if the socket is full or the
client was late: a broker that stands still for 50 ms makes all messages of these 50 ms wait, not just the one that was
under way. The client's own lateness counts against the broker, too; it wakes every half millisecond.
"""

from __future__ import annotations

import time
from array import array

import attrs

from benchmarks.flood import Consumer, Publisher, declare_afresh, turn

PACE_S = 0.0005  # between two checks of what is due
WARM_UP_S = 1.0  # not counted
BEHIND_S = 5.0  # so much later than due, the last confirm is not waited for


@attrs.frozen
class Latencies:
    """Milliseconds from when a message was due to its confirm."""

    rate: float
    p50: float
    p99: float
    worst: float


def confirm_latency(
    port: int, rate: float, seconds: float, size: int = 100, prefetch: int = 200, durable: bool = True
) -> Latencies:
    """Publish so many messages per second for so many seconds, with a consumer that acknowledges."""
    queue = "latency"
    messages = int(rate * (WARM_UP_S + seconds))
    declare_afresh(port, queue, durable)
    consumer = Consumer(port, queue, messages, size, durable, prefetch)
    publisher = Publisher(port, queue, messages, size, durable)
    confirmed_at = array("d", bytes(8 * (messages + 1)))  # by tag
    started = now = time.perf_counter()
    until = started + messages / rate + BEHIND_S
    while publisher.confirms.count < messages and now < until:
        confirmed = turn(publisher, consumer, int((now - started) * rate) + 1, PACE_S)
        now = time.perf_counter()
        for tags in confirmed:
            for tag in tags:
                confirmed_at[tag] = confirmed_at[tag] or now
    for end in (publisher, consumer):
        end.wire.socket.close()
    declare_afresh(port, queue, durable)
    return _summed_up(rate, confirmed_at, started, now, first=int(rate * WARM_UP_S))


def _summed_up(
    rate: float, confirmed_at: array[float], started: float, ended: float, first: int
) -> Latencies:
    waited = sorted(
        ((confirmed_at[tag] or ended) - started - (tag - 1) / rate) * 1000
        for tag in range(first + 1, len(confirmed_at))
    )
    return Latencies(rate, waited[len(waited) // 2], waited[int(len(waited) * 0.99)], waited[-1])
