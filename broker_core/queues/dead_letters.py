"""Dead letters: a message that was rejected, has expired or was dropped goes to its queue's dead-letter exchange.

The copy has the same properties and body, a new exchange and routing key, and a note of the death, which consumers see
as `x-death` (X030-X040). `Broker.dead_letter` collects the dead of a batch; the next settle buries them. A target that
refuses its copy does not get it again: this is at most once. At least once is held_dead_letters.py.
"""

from __future__ import annotations

import logging
from typing import Final

from leveret.exchanges.routing import Route, drops, give_anew, give_once, identity_at
from leveret.message import Death, Message, Notes
from leveret.queues.queue import DELETED, REJECTED, Queue
from leveret.queues.republished_deaths import notes_told

log: Final = logging.getLogger("leveret.broker")


def bury(queue: Queue, message: Message, reason: str) -> None:
    """Route a message that died in `queue` to the queue's dead-letter exchange, or unchanged to its alternate.

    It goes nowhere if that exchange does not exist (X038), and not back into a queue in which it has died without being
    rejected since (X037).
    """
    host = queue.virtual_host
    target = queue.limits.dead_letter_exchange
    if reason == DELETED or (target is None and reason == REJECTED):
        _reroute(queue, message)
        return
    exchange = None if target is None else host.exchanges.get(target)
    if exchange is None:
        return  # X038
    notes = notes_of_death(queue, message, reason)
    dead = addressed(message, exchange.name, queue.limits.dead_letter_key, notes)
    identity = None if exchange.deduplication is None else identity_at(exchange, dead)
    if identity is not None and drops(exchange, identity):
        exchange.published += 1
        return
    route = exchange.broker.route(exchange, dead)
    if reason != REJECTED:
        queues = tuple(q for q in route.queues if not (is_cycle(q, dead) and _reported(q)))
        route = Route.among(route, queues, route.keepers)  # not traced
    exchange.published += 1
    exchange.count_copies(len(route.queues))
    if identity is None:
        Route.give(route, dead)
    else:
        give_once(exchange, identity, route, dead)


def _reroute(queue: Queue, message: Message) -> None:
    """Route an unchanged message from the queue's alternate exchange."""
    target = queue.limits.alternate_exchange
    exchange = None if target is None else queue.virtual_host.exchanges.get(target)
    if exchange is not None:
        exchange.published += 1
        give_anew(exchange, message)


def addressed(message: Message, exchange: str, replaced: str | None, notes: Notes) -> Message:
    """Return the dead-letter copy: same properties and body, new exchange and routing key, and notes of its death.

    `replaced`: the queue's key for dead letters, if it has one, which takes the place of all keys of the message.
    """
    return Message(
        message.encoding,
        exchange,
        message.key if replaced is None else replaced,
        message.properties,
        message.body,
        message.facts.without_ttl(keeps_keys=replaced is None),
        notes,
    )


def notes_of_death(queue: Queue, message: Message, reason: str) -> Notes:
    """Return a message's notes with this death: one entry per queue and reason, newest first (X032-X034)."""
    wall, name, before = int(queue.settling.clock.wall()), queue.name, message.notes
    if queue.limits.counts_republished and (before is None or not before.deaths):
        before = notes_told(message) or before
    earlier = before.deaths if before is not None else ()
    same = next((d for d in earlier if d.queue == name and d.reason == reason), None)
    if same is None:
        keys = (message.key, *message.facts.cc)
        death = Death(name, reason, 1, wall, wall, message.exchange, keys, message.facts.ttl_ms)
    else:
        death = Death(
            name, reason, same.count + 1, same.first_time, wall, same.exchange, same.keys, same.ttl_ms
        )
    notes = Notes()
    notes.is_repeat = message.notes is not None and message.notes.is_repeat
    notes.deaths = (death, *(d for d in earlier if d is not same))
    notes.last_death = (reason, name, message.exchange)
    notes.first_death = (
        notes.last_death if before is None or before.first_death is None else before.first_death
    )
    return notes


def is_cycle(queue: Queue, message: Message) -> bool:
    """True if the message has died in this queue before and was not rejected anywhere since (X037)."""
    assert message.notes is not None
    for death in message.notes.deaths:
        if death.reason == REJECTED:
            return False
        if death.queue == queue.name:
            return True
    return False


def _reported(queue: Queue) -> bool:
    """Log a cycle, once for each queue, and return True."""
    if not queue.warned_cycle:
        queue.warned_cycle = True
        log.warning("dead-letter cycle at %s: messages dropped", queue.described)
    return True
