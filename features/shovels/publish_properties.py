"""The properties that a shovel gives to each message in place of its own: `dest-publish-properties` of RabbitMQ.

Source: RabbitMQ's documentation of dynamic shovels, and of properties of AMQP 0-9-1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from leveret.errors import PreconditionFailed
from leveret.features.transfers.parameter_reader import require_known
from leveret.limits import ttl_ms_in
from leveret.message import LOWEST, Message
from leveret.values import Table, Value

NAME: Final = "dest-publish-properties"
TEXT_MAX: Final = 255  # bytes of a short string
TEXTS: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "app_id",
)
NUMBERS: Final = {"delivery_mode": (1, 2), "priority": (0, 255), "timestamp": (0, (1 << 63) - 1)}
EXPIRATION: Final = "expiration"
UNSUPPORTED: Final = {
    "cluster_id": "it means nothing any more",
    "headers": "headers are added by dest-add-forward-headers and dest-add-timestamp-header only",
    "user_id": "it names the publisher of a message, which stays the same",
}
KEYS: Final = (*TEXTS, *NUMBERS, EXPIRATION)


def changes_of(value: Table) -> Mapping[str, Any]:
    """Return the neutral properties that are set, by name. Raises PreconditionFailed for what is wrong first."""
    changes: dict[str, Any] = {}
    for name, given in value.items():
        if name in UNSUPPORTED:
            raise PreconditionFailed(f"property '{name}' of '{NAME}' is not supported: {UNSUPPORTED[name]}")
        require_known(name, KEYS)
        if name in NUMBERS:
            changes[name] = _number(name, given, *NUMBERS[name])
        elif name == EXPIRATION:
            changes["ttl_ms"] = _expiration(given)
        else:
            changes[name] = _text(name, given)
    if "delivery_mode" in changes:
        changes["durable"] = changes.pop("delivery_mode") == 2
    return changes


def _text(name: str, given: Value) -> str:
    if not isinstance(given, str) or len(given.encode()) > TEXT_MAX:
        raise PreconditionFailed(
            f"property '{name}' of '{NAME}' should be a text of at most {TEXT_MAX} bytes"
        )
    return given


def _number(name: str, given: Value, lowest: int, highest: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not lowest <= given <= highest:
        raise PreconditionFailed(
            f"property '{name}' of '{NAME}' should be a number from {lowest} to {highest}"
        )
    return given


def _expiration(given: Value) -> int:
    if (ttl_ms := ttl_ms_in(given)) is None:
        raise PreconditionFailed(
            f"property '{EXPIRATION}' of '{NAME}' should be a text such as \"60000\", in ms"
        )
    return ttl_ms


def with_properties(message: Message, changes: Mapping[str, Any]) -> Message:
    """Return a message with other properties: its bytes are written anew, and what the core reads of them with them."""
    encoding = message.encoding
    properties = encoding.write(attrs.evolve(encoding.read(message.properties), **changes))
    facts = message.facts.copy()
    facts.durable = changes.get("durable", facts.durable)
    facts.ttl_ms = changes.get("ttl_ms", facts.ttl_ms)
    facts.reply_to = changes.get("reply_to", facts.reply_to)
    if "priority" in changes:
        facts.priority = changes["priority"] or LOWEST
    return Message(encoding, message.exchange, message.key, properties, message.body, facts, message.notes)
