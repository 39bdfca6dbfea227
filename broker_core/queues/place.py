"""Pack a delivery's place in its queue into one number, with what consumers know of it, for logs that hold it.

    attempts (15 bits) | position (47 bits) | delivered before (1 bit)

More failed attempts than fit count as the most that do.
"""

from __future__ import annotations

from typing import Final

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.message import Message
from leveret.queues.queue import Queue

ATTEMPTS_AT: Final = 48
ATTEMPTS_MAX: Final = (1 << 15) - 1
POSITION_MAX: Final = (1 << (ATTEMPTS_AT - 1)) - 1


def packed_place(delivery: Delivery) -> int:
    """Return the number for a delivery."""
    place = delivery.position * 2 + delivery.redelivered
    attempts = delivery.attempts
    return place if not attempts else min(attempts, ATTEMPTS_MAX) << ATTEMPTS_AT | place


def delivery_at(place: int, message: Message, queue: Queue) -> Delivery:
    """Return a delivery that is not in the store, as it was when its place was packed."""
    delivery = Delivery(message, queue, place >> 1 & POSITION_MAX, NEVER)
    delivery.redelivered = bool(place & 1)
    delivery.attempts = place >> ATTEMPTS_AT
    return delivery
