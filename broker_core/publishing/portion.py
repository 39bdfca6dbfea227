"""A portion of messages that can wait: published in order, until a queue is full or others are to have their turn.

    runs of like messages ──> Broker.publish_run ──what that leaves──> Broker.publish_if_room

What comes by requests that name many messages, or was staged before, is published so: nothing of it is refused for want
of room, and the rest is published later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from leveret.broker import TAKEN, UNROUTABLE, WORK_MAX

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message
    from leveret.virtual_host import VirtualHost

# calls for a run, each of which may look at all that is left, before that is published one by one
TRIES_MAX: Final = 2


class PortionOutcome:
    """The outcome of a portion."""

    __slots__ = ("is_full", "taken", "unroutable")

    def __init__(self) -> None:
        self.taken = 0  # messages that queues took
        self.unroutable = 0  # messages that no queue took
        self.is_full = False  # a queue has no room for the next one

    @property
    def done(self) -> int:
        """The number of messages that need not be published again."""
        return self.taken + self.unroutable


def publish_portion(host: VirtualHost, messages: Sequence[Message]) -> PortionOutcome:
    """Publish messages in order, at least one, until a queue is full or the batch has done enough work."""
    broker, done = host.broker, PortionOutcome()
    exchange: Exchange | None = None
    at = end = tries = 0
    while at < len(messages) and not (at and broker.work > WORK_MAX):
        if at == end:
            end, tries = end_of_run(messages, at), TRIES_MAX
            exchange = host.exchanges.get(messages[at].exchange)
        if tries and exchange is not None:
            taken = broker.publish_run(exchange, list(messages[at:end]), WORK_MAX)
            tries -= 1
            done.taken += taken
            at += taken
            if taken:
                continue
        outcome = UNROUTABLE if exchange is None else broker.publish_if_room(exchange, messages[at])
        if outcome is None:
            done.is_full = True
            break
        done.taken += outcome is TAKEN
        done.unroutable += outcome is not TAKEN
        at += 1
    return done


def end_of_run(messages: Sequence[Message], begin: int) -> int:
    """Return the end of the run from `begin` on: messages of one exchange whose facts are alike."""
    first, end = messages[begin], begin + 1
    exchange, facts = first.exchange, first.facts
    while end < len(messages):
        message = messages[end]
        if message.exchange != exchange or not (message.facts is facts or message.facts.is_like(facts)):
            break
        end += 1
    return end
