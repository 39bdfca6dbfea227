"""Outcomes of a receiver for its deliveries, and their effect on the queue (S227).

| outcome                          | the queue                                                       |
|----------------------------------|-----------------------------------------------------------------|
| accepted                         | removes them                                                    |
| rejected                         | dead-letters or drops them                                      |
| released                         | requeues them; that is no failed attempt                        |
| modified                         | requeues them; a failed attempt if `delivery-failed`            |
| modified, `undeliverable-here`   | requeues them for other receivers (part 3, section 3.4.5)       |

What is undeliverable at a link that has it to itself, for direct replies or a subscription that is not shared, is
rejected, as no other can ever take it; and all of it by the compat row `undeliverable_here`, as in RabbitMQ. A link
that has ended is no receiver any more: what it leaves is for all, also for the same client.

A modified message keeps its publisher's annotations, except for those that the receiver has changed (X068). With the
annotation `x-opt-delivery-time`, in milliseconds since 1970, it is not delivered again before that time (RabbitMQ's
documentation of quorum queues, explicit delivery time).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from mypy_extensions import trait

from leveret.protocols.amqp10.broker.encoding import annotated
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import SESSION, AmqpError
from leveret.queues.queue import BY_BACKOFF

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.protocols.amqp10.codec.types import Value
    from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink
    from leveret.queues.queue import Queue


DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_TIME_MAX: Final = 1 << 53  # ms since 1970; clocks count in floats

Outcome: TypeAlias = p.Accepted | p.Rejected | p.Released | p.Modified


@trait
class Retiring(ABC):
    """The owner of an OutgoingLink, which can apply outcomes to its deliveries."""

    __slots__ = ()

    link: OutgoingLink
    default_outcome: Outcome  # of the attach's source, for deliveries that are settled without an outcome

    @abstractmethod
    def outcome_in(self, state: p.DeliveryState) -> Outcome:
        """Return the outcome in a state, if `retire` can apply it. Raises AmqpError."""

    @abstractmethod
    def retire(self, tokens: list[object], outcome: Outcome) -> None:
        """Apply an outcome to deliveries, also when the link has ended. The caller settles them with the peer."""

    @abstractmethod
    def avoid(self, deliveries: list[Delivery]) -> bool:
        """Let deliveries that are about to be released never come to this link again.

        Return False, with nothing done, if no other can ever take them.
        """


def outcome_in(state: p.DeliveryState) -> Outcome:
    """Return the outcome in a disposition's state. Raises AmqpError, which ends the session (X068, X069)."""
    if not isinstance(state, Outcome):
        raise _invalid(f"Unrecognised state: {state!r:.100} in DISPOSITION")
    if isinstance(state, p.Modified):
        reserved = next((key for key in state.message_annotations or () if not key.startswith("x-")), None)
        if reserved is not None:
            raise _invalid(f"reserved annotation key '{reserved:.100}' in a modified outcome")
    return state


def apply(deliveries: list[Delivery], outcome: Outcome, link: Retiring | None) -> None:
    """Apply an outcome from `outcome_in` to deliveries of one queue, in their order. `link`: where they were sent."""
    ACTS[type(outcome)](deliveries, outcome, link)


def _accept(deliveries: list[Delivery], outcome: Outcome, link: Retiring | None) -> None:
    deliveries[0].queue.accept_run(deliveries)


def _reject(deliveries: list[Delivery], outcome: Outcome, link: Retiring | None) -> None:
    for delivery in deliveries:
        delivery.queue.reject(delivery)


def _release(deliveries: list[Delivery], outcome: Outcome, link: Retiring | None) -> None:
    for delivery in deliveries:
        delivery.queue.release(delivery, failed=False)


def _modify(deliveries: list[Delivery], outcome: Outcome, link: Retiring | None) -> None:
    assert isinstance(outcome, p.Modified)
    if outcome.message_annotations:
        _annotate(deliveries, outcome.message_annotations)
    queue = deliveries[0].queue
    if outcome.undeliverable_here and (
        queue.virtual_host.compat.dead_letters_undeliverable
        or (link is not None and not link.avoid(deliveries))
    ):
        _reject(deliveries, outcome, link)
        return
    until = _delivery_time(queue, outcome)
    for delivery in deliveries:
        queue.release(delivery, failed=outcome.delivery_failed is True, until=until)


def _delivery_time(queue: Queue, outcome: p.Modified) -> float:
    """Return when modified messages are to be delivered again, in monotonic seconds; BY_BACKOFF if it is not said."""
    due_ms = (outcome.message_annotations or {}).get(DELIVERY_TIME)
    clock = queue.virtual_host.broker.clock
    if not isinstance(due_ms, int) or isinstance(due_ms, bool) or due_ms <= clock.wall() * 1000:
        return BY_BACKOFF
    return clock.now() + min(due_ms, DELIVERY_TIME_MAX) / 1000 - clock.wall()


def _annotate(deliveries: list[Delivery], annotations: Mapping[str, Value]) -> None:
    for delivery in deliveries:
        delivery.queue.bring((delivery,))
        delivery.queue.revise(delivery, annotated(delivery.message, annotations))


ACTS: Final[dict[type[object], Callable[[list[Delivery], Outcome, Retiring | None], None]]] = {
    p.Accepted: _accept,
    p.Rejected: _reject,
    p.Released: _release,
    p.Modified: _modify,
}


def _invalid(why: str) -> AmqpError:
    return AmqpError(p.INVALID_FIELD, why, SESSION)
