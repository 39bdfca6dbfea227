"""Delays that publishers ask for: the names by which they do, and when a message is due.

    x-delay                 ms from now, as RabbitMQ's plug-in for delayed messages and LavinMQ have it
    x-opt-delivery-delay    the same, as an annotation of AMQP 1.0
    x-opt-delivery-time     ms since 1970, the delivery time of JMS

Sources: the AMQP 1.0 JMS mapping, and ActiveMQ's documentation of AMQP scheduling. A time wins over a delay. As headers
they hold only where an exchange or a queue has been asked to read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.values import Timestamp, Value

DELAY: Final = "x-delay"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
DELIVERY_TIME: Final = "x-opt-delivery-time"
DELAY_MAX: Final = 2**53  # ms, 285 000 years; longer ones are cut, since clocks count in floats


def delay_ms(value: object) -> int:
    """Return a delay in ms from 0 to `DELAY_MAX`; 0 for a value that is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return min(max(value, 0), DELAY_MAX)


def time_ms(value: object) -> int:
    """Return a time in ms since 1970, of a whole number or of a timestamp in seconds; 0 for a value that is none."""
    return delay_ms(value * 1000 if isinstance(value, Timestamp) else value)


def due_ms_of(header: Callable[[str], Value], now_ms: float) -> int:
    """Return when headers say that a message is due, in ms since 1970; 0 if they say nothing.

    `header` returns one of them by its name.
    """
    if due_ms := time_ms(header(DELIVERY_TIME)):
        return due_ms
    wait_ms = delay_ms(header(DELIVERY_DELAY)) or delay_ms(header(DELAY))
    return int(now_ms) + wait_ms if wait_ms else 0
