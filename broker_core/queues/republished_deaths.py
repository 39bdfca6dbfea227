"""The deaths that a message tells of itself, which a client has published again, to the broker's notes on it.

RabbitMQ 3 counts further deaths on from there: retry limits that were written for it rely on that. RabbitMQ 4 does not.
Source: the header `x-death` of dead letters, as RabbitMQ documents it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leveret.errors import MISTAKES
from leveret.limits import ttl_ms_in
from leveret.message import Death, Message, Notes
from leveret.values import Value


def notes_told(message: Message) -> Notes | None:
    """Return notes with the deaths that the headers of a message tell; None if they tell none."""
    try:
        told = message.header("x-death")
    except MISTAKES:  # the encoding may raise anything
        return None
    deaths = (
        tuple(filter(None, map(_death, told))) if isinstance(told, Sequence) and not _is_text(told) else ()
    )
    if not deaths:
        return None
    notes = Notes()
    notes.deaths = deaths
    last = deaths[0]
    notes.last_death = last.reason, last.queue, last.exchange
    first = [message.header(f"x-first-death-{what}") for what in ("reason", "queue", "exchange")]
    reason, queue, exchange = (each if isinstance(each, str) else "" for each in first)
    notes.first_death = (reason, queue, exchange) if reason and queue else notes.last_death
    return notes


def _death(told: Value) -> Death | None:
    if not isinstance(told, Mapping):
        return None
    queue, reason, exchange = (told.get(name) for name in ("queue", "reason", "exchange"))
    if not isinstance(queue, str) or not isinstance(reason, str):
        return None
    count, time, keys = told.get("count", 1), told.get("time", 0), told.get("routing-keys")
    listed = keys if isinstance(keys, Sequence) and not _is_text(keys) else ()
    when = time if isinstance(time, int) else 0
    return Death(
        queue,
        reason,
        count if isinstance(count, int) and count > 0 else 1,
        when,
        when,
        exchange if isinstance(exchange, str) else "",
        tuple(key for key in listed if isinstance(key, str)),
        ttl_ms_in(told.get("original-expiration")),
    )


def _is_text(value: Value) -> bool:
    return isinstance(value, str | bytes)
