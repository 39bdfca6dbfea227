"""AMQP 1.0 address strings to targets and sources, and names to address strings. Pure functions without the broker.

| address                        | as a target                            | as a source                              |
|--------------------------------|----------------------------------------|------------------------------------------|
| `/exchanges/:exchange/:key`    | that exchange, that key                | (a new queue, bound with the key)        |
| `/exchanges/:exchange`         | that exchange, the empty key           | (a new queue, bound with the empty key)  |
| `/queues/:queue`               | that queue, which must exist           | that queue, which must exist             |
| v1: `/exchange/:exchange/:key` | that exchange, that key                | a new queue, bound with the key          |
| v1: `/exchange/:exchange`      | that exchange, each message's subject  | a new queue, bound with the empty key    |
| v1: `/topic/:key`              | amq.topic, that key                    | a new queue, bound with the key          |
| v1: `/amq/queue/:queue`        | that queue, which must exist           | that queue, which must exist             |
| v1: `/queue/:queue`, `:queue`  | that queue, declared if it is missing  | that queue, declared if it is missing    |
| v1: `/queue`                   | the queue named by the subject         | -                                        |
| v1: `/reply-queue/:queue`      | as `/amq/queue/:queue`, but a `/` does not end the name                           |
| v1: `/temp-queue/:queue`       | that queue, which must exist           | that queue, declared for this connection |

Entries in parentheses are only for sources that ask for a subscription (subscriptions.py, S196).

Names and keys of v2 are percent-encoded (RFC 3986); v1 knows `%2F` alone (S222). An address that is valid in v2 is v2
(S225). A refusal keeps the keyword that users of RabbitMQ know.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import attrs

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError

EXCHANGES: Final = "/exchanges/"
QUEUES: Final = "/queues/"
DEFAULT_EXCHANGE: Final = ("", "amq.default")  # its names; its address is `/queues/` (S191)
NAME_SIZE_MAX: Final = 255  # bytes of a name or key: other protocols cannot express more
SHOWN_MAX: Final = 255  # characters of an address in a refusal

ENCODED: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*")  # S188


@attrs.frozen
class TargetAddress:
    """The destination of messages: an exchange and a key."""

    exchange: str
    key: str = ""
    by_subject: bool = False  # each message's subject is its key; empty if it has none
    queue: str | None = None  # it must exist when a link attaches ...
    declares: bool = False  # ... or is declared then


@attrs.frozen
class SourceAddress:
    """The origin of messages: a queue, or a new queue that is to be bound to an exchange."""

    queue: str = ""  # unless there is an exchange
    declares: bool = False  # the queue is declared if it is missing
    temporary: bool = False  # exclusively for this connection
    exchange: str | None = None
    key: str = ""  # of the binding


def target(address: object, v1: bool) -> TargetAddress:
    """Parse a target's address. The null address, the anonymous terminus, is not handled here.

    Raises AmqpError amqp:invalid-field (S189, S197, S223). `v1`: addresses of that kind are permitted.
    """
    if type(address) is str and address.startswith((EXCHANGES, QUEUES)):
        if (found := _target_v2(address)) is None:
            raise _refused(f"bad_address_string {_shown(address)}")
        return found
    return _target_v1(_v1_words(address, v1), address)


def source(address: object, v1: bool) -> SourceAddress:
    """Parse a source's address, unless the source is dynamic.

    Raises AmqpError amqp:invalid-field (S194, S195, S197, S223). `v1`: addresses of that kind are permitted.
    """
    if type(address) is str and address.startswith(QUEUES):
        if not (queue := _decoded(address.removeprefix(QUEUES))):
            raise _refused(f"bad_address {_shown(address)}")
        return SourceAddress(queue)
    if type(address) is not str:
        raise _refused(f"bad_address {_shown(address)}")
    return _source_v1(_v1_words(address, v1))


def subscription(address: object, v1: bool) -> SourceAddress:
    """Parse the address of a source that asks for a subscription: as `source`, but an exchange of v2 is valid, too."""
    if type(address) is not str or not address.startswith(EXCHANGES):
        return source(address, v1)
    if (found := _target_v2(address)) is None:
        raise _refused(f"bad_address {_shown(address)}")
    return SourceAddress(exchange=found.exchange, key=found.key)


def to(address: str) -> TargetAddress:
    """Parse the `to` of a message to the anonymous terminus (S200). Raises amqp:precondition-failed (S202)."""
    if (found := _target_v2(address)) is None:
        raise AmqpError(p.PRECONDITION_FAILED, f"bad 'to' address string: {address[:SHOWN_MAX]}")
    return found


def queue_named(address: str) -> str | None:
    """Return the queue that an address such as a reply-to names, or None if it names none."""
    if not address.startswith(QUEUES):
        return None
    return _decoded(address.removeprefix(QUEUES)) or None


def is_address(text: str) -> bool:
    """Return whether a text is an address of version 2, of a queue or an exchange."""
    return _target_v2(text) is not None


def queue_address(name: str) -> str:
    """Return the v2 address of a queue."""
    return QUEUES + encoded(name)


def exchange_address(name: str, key: str = "") -> str:
    """Return the v2 address of an exchange with a routing key. The default exchange has none."""
    return EXCHANGES + encoded(name) + (f"/{encoded(key)}" if key else "")


def _target_v2(address: str) -> TargetAddress | None:
    if address.startswith(QUEUES):
        queue = _decoded(address.removeprefix(QUEUES))
        return TargetAddress("", queue, queue=queue) if queue else None
    if not address.startswith(EXCHANGES):
        return None
    encoded, _, encoded_key = address.removeprefix(EXCHANGES).partition("/")
    exchange, key = _decoded(encoded), _decoded(encoded_key)
    if exchange is None or key is None or exchange in DEFAULT_EXCHANGE:
        return None
    return TargetAddress(exchange, key)


def _decoded(text: str) -> str | None:
    """Decode a percent-encoded name, or return None if it is malformed or too long. Invalid UTF-8 keeps its bytes."""
    if ENCODED.fullmatch(text) is None:
        return None
    octets = unquote_to_bytes(text)
    return octets.decode("utf-8", "surrogateescape") if len(octets) <= NAME_SIZE_MAX else None


def encoded(name: str) -> str:
    """Percent-encode a name."""
    return quote(name, safe="", errors="surrogateescape")


def _v1_words(address: object, v1: bool) -> list[str]:
    """Split an address at its slashes; a bare name is short for `/queue/:queue`."""
    if not v1:
        raise _refused(f"amqp_address_v1_not_permitted {_shown(address)}")
    if type(address) is not str or address == "" or len(address) > 3 * NAME_SIZE_MAX:
        raise _refused(f"unknown_destination {_shown(address)}")
    if "/" not in address:
        return ["queue", address]
    before, *words = address.split("/")
    if before:
        raise _refused(f"unknown_destination {_shown(address)}")
    if words[:2] == ["amq", "queue"]:
        return ["amq/queue", *words[2:]]
    if words[0] == "reply-queue":
        return ["reply-queue", "/".join(words[1:])]
    return words


def _target_v1(words: list[str], address: object) -> TargetAddress:
    match words:
        case ["queue"]:
            return TargetAddress("", by_subject=True)
        case ["exchange", *_]:
            exchange, key = _exchange_and_key(words)
            return TargetAddress(exchange, key, by_subject=not key)
        case ["topic", *_]:
            return TargetAddress("amq.topic", _only_name(words))
        case ["queue", *_]:
            queue = _only_name(words)
            return TargetAddress("", queue, queue=queue, declares=True)
        case ["amq/queue" | "reply-queue" | "temp-queue", *_]:
            queue = _only_name(words)
            return TargetAddress("", queue, queue=queue)
    raise _refused(f"unknown_destination {_shown(address)}")


def _source_v1(words: list[str]) -> SourceAddress:
    match words:
        case ["exchange", *_]:
            exchange, key = _exchange_and_key(words)
            return SourceAddress(exchange=exchange, key=key)
        case ["topic", *_]:
            return SourceAddress(exchange="amq.topic", key=_only_name(words))
        case ["queue" | "temp-queue", *_]:
            return SourceAddress(_only_name(words), declares=True, temporary=words[0] == "temp-queue")
        case ["amq/queue" | "reply-queue", *_]:
            return SourceAddress(_only_name(words))
    raise _refused(f"unknown_destination {_shown('/' + '/'.join(words))}")


def _exchange_and_key(words: list[str]) -> tuple[str, str]:
    match words:
        case [_, exchange] if exchange:
            return _unescaped(words, exchange), ""
        case [_, exchange, key] if exchange:
            return _unescaped(words, exchange), _unescaped(words, key)
    raise _invalid(words)


def _only_name(words: list[str]) -> str:
    match words:
        case [_, name] if name:
            return _unescaped(words, name)
    raise _invalid(words)


def _unescaped(words: list[str], text: str) -> str:
    """Decode a name of v1 (S222). Names with line ends or more than 255 bytes are refused."""
    name = text.replace("%2F", "/")
    if len(name.encode("utf-8", "surrogateescape")) > NAME_SIZE_MAX or "\r" in name or "\n" in name:
        raise _invalid(words)
    return name


def _invalid(words: list[str]) -> AmqpError:
    rest = "".join(f"/{word}" for word in words[1:])
    return _refused(f"invalid_destination {words[0]} {_shown(rest)}")


def _refused(why: str) -> AmqpError:
    return AmqpError(p.INVALID_FIELD, f"Attach refused: {why}")


def _shown(address: object) -> str:
    """Return an address as refusals show it; anything but a string is shown as undefined."""
    return f"'{address[:SHOWN_MAX]}'" if isinstance(address, str) else "undefined"
