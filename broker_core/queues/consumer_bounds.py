"""Consumers without a prefetch are held back where they have too much unanswered for the memory of the node.

    look ── do all unanswered messages together take more than allowed? ── no ──> nothing, or bounds end after a while
                                                                        └─ yes ──> each consumer may have its share

First, what is unanswered goes to the disk, as far as the store has it (`absent.py`): a few hundred bytes of each
message stay in memory, and are what counts.

Nothing is counted for this as long as there is memory enough: the queues know how much is unanswered, and only when
that is too much the deliveries are looked at once, to tell whose they are. From then on every consumer may keep an
equal share, and what those do not use that have less is shared by those that have more. A consumer above its share gets
nothing more until it has answered some.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Reversible
from typing import TYPE_CHECKING, Final, cast

from leveret.alarms import MIB
from leveret.delivery import Delivery, Unanswered, weight
from leveret.message import AbsentMessage
from leveret.queues import absent
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.delivery import Consumer, Held
    from leveret.queues.queue import Queue

log: Final = logging.getLogger("leveret.broker")

UNANSWERED: Final = 370  # bytes of an unanswered message besides its body
SPARED: Final = 200  # of them, where the message is on disk only
PILE: Final = 256  # unanswered messages of one client, up to which they stay in memory
ALREADY: Final = 256  # that are on disk only, in a row: those before them are, too
EASE: Final = 3 / 4  # of what is allowed: the bounds end when there was less
EASE_S: Final = 5.0  # for so long
REMARK: Final = "gets nothing more until it acknowledges some: memory is short (memory.unacknowledged_max)"


class ConsumerBounds:
    """The bounds on all consumers, while these together have too much unanswered."""

    def __init__(self) -> None:
        self.are_there = False  # consumers are bounded
        self._bounds: dict[Consumer, Unanswered] = {}
        self._share = 0  # bytes of memory that each may take
        self._eased_at: float | None = None  # since when there is little unanswered, in monotonic seconds

    def look(self, queues: Iterable[Queue], allowed: int | None, now: float) -> None:
        """Bound the consumers of these queues, if all their unanswered messages take more bytes than `allowed`.

        With None nothing is bounded. Called often as long as `are_there`.
        """
        busy = [queue for queue in queues if queue.unsettled]
        taken = sum([memory_of(queue) for queue in busy])
        if allowed is not None and taken > allowed * EASE:
            put_away(consumers_of(busy))
            taken = sum([memory_of(queue) for queue in busy])
        if allowed is None:
            self._end()
        elif taken > allowed or (self.are_there and not self._is_eased(taken <= allowed * EASE, now)):
            self.are_there = True
            self._divide(consumers_of(busy), allowed)
        else:
            self._end()

    def came(self, consumer: Consumer) -> None:
        """Bound a consumer that is about to be attached, if the others are."""
        if self.are_there:
            self._add(consumer, 0)
            self._set(consumer, self._share)

    def _is_eased(self, is_little: bool, now: float) -> bool:
        """Return whether little was unanswered for a while."""
        if not is_little:
            self._eased_at = None
            return False
        if self._eased_at is None:
            self._eased_at = now
        return now - self._eased_at >= EASE_S

    def _divide(self, consumers: list[Consumer], allowed: int) -> None:
        """Give each consumer its share."""
        for consumer in [each for each in self._bounds if not each.attached]:
            del self._bounds[consumer]
        for consumer, octets in held_by([each for each in consumers if each not in self._bounds]).items():
            self._add(consumer, octets)
        taken = {consumer: bound.octets * cost_of(consumer.queue) for consumer, bound in self._bounds.items()}
        self._share = share = share_of(taken.values(), allowed)
        for consumer, memory in taken.items():
            self._set(consumer, share)
            if memory > share and REMARK not in consumer.warnings:
                consumer.warnings = (*consumer.warnings, REMARK)
                tell_of(consumer, memory)

    def _add(self, consumer: Consumer, octets: int) -> None:
        bound = self._bounds[consumer] = Unanswered(0)
        bound.octets = octets
        consumer.bounds = [*consumer.bounds, bound]
        consumer.queue.bounded = True

    def _set(self, consumer: Consumer, share: int) -> None:
        """Allow a consumer as many bytes of bodies as take its share of the memory, and have it ask again."""
        bound = self._bounds[consumer]
        bound.octets_max = int(share / cost_of(consumer.queue))
        bound.answered(0)

    def _end(self) -> None:
        bounds, self._bounds = self._bounds, {}
        self.are_there, self._eased_at = False, None
        for consumer, bound in bounds.items():
            consumer.bounds = [each for each in consumer.bounds if each is not bound]
            consumer.warnings = tuple(each for each in consumer.warnings if each != REMARK)
            bound.octets_max = bound.octets
            bound.answered(0)


def put_away(consumers: Iterable[Consumer]) -> None:
    """Keep what these consumers have not answered on disk only, as far as the store has it: the newest first."""
    for deliveries in piles_of(consumers):
        if len(deliveries) <= PILE:
            continue
        already, by_queue = 0, dict[WorkQueue, list[Delivery]]()
        for delivery in reversed(cast("Reversible[object]", deliveries.values())):
            if not isinstance(delivery, Delivery) or not isinstance(delivery.queue, WorkQueue):
                continue
            if isinstance(delivery.message, AbsentMessage):
                already += 1
                if already == ALREADY:
                    break
            else:
                already = 0
                by_queue.setdefault(delivery.queue, []).append(delivery)
        for queue, found in by_queue.items():
            absent.put_away(queue, found)


def tell_of(consumer: Consumer, memory: float) -> None:
    """Log that a consumer has more than its share."""
    facts = consumer.facts()
    log.warning(
        "consumer '%s' of %s (%s) has messages unacknowledged that take %.1f MiB: it %s",
        facts.tag,
        consumer.queue.described,
        facts.connection,
        memory / MIB,
        REMARK,
    )


def memory_of(queue: Queue) -> int:
    """Return the bytes that the unanswered messages of a queue take."""
    octets = queue.unsettled_bytes + queue.unsettled * UNANSWERED
    return octets if queue.absent is None else octets - queue.absent.octets - queue.absent.messages * SPARED


def cost_of(queue: Queue) -> float:
    """Return the bytes of memory for each byte of the bodies that are unanswered; an empty one counts as one."""
    if not queue.unsettled:
        return float(UNANSWERED)  # until it is known, bodies may be small
    return memory_of(queue) / max(queue.unsettled_bytes, queue.unsettled)


def consumers_of(queues: Iterable[Queue]) -> list[Consumer]:
    """Return the consumers of these queues that have to answer."""
    return [each for queue in queues for each in queue.consumers if not (each.settled or each.browses)]


def held_by(consumers: Iterable[Consumer]) -> dict[Consumer, int]:
    """Return the bytes that each of these consumers has unanswered, as bounds weigh them."""
    octets = dict.fromkeys(consumers, 0)
    for deliveries in piles_of(octets):
        for delivery in deliveries.values():
            if isinstance(delivery, Delivery) and delivery.consumer in octets:
                octets[delivery.consumer] += weight(delivery.message)
    return octets


def piles_of(consumers: Iterable[Consumer]) -> Iterable[Held]:
    """Return the unanswered deliveries of these consumers, those of one channel, link or session once."""
    piles = [consumer.unanswered() for consumer in consumers]
    return {id(pile): pile for pile in piles}.values()


def share_of(memory: Iterable[float], allowed: int) -> int:
    """Return the most bytes that each may take, so that all together take no more than `allowed`."""
    left, ascending = float(allowed), sorted(memory)
    for at, each in enumerate(ascending):
        share = left / (len(ascending) - at)
        if each > share:
            return int(share)
        left -= each
    return allowed // max(1, len(ascending))
