"""Message ids as JMS clients write them: texts for what may be a string, a number, bytes or a UUID in AMQP 1.0.

    ID:AMQP_UUID:1b4e28ba-2fa1-11d2-883f-0016d3cca427    a UUID, as the plain text of it
    ID:AMQP_ULONG:42                                     a number, as 42
    ID:AMQP_BINARY:0AFF                                  bytes
    ID:AMQP_STRING:ID:AMQP_ULONG:42                      a string, as what follows
    ID:AMQP_NO_PREFIX:order-7                            a string without `ID:`, as what follows
    ID:order-7, order-7                                  a string

Conditions compare what a client has written, as `plain`, with an id, as `comparable`. A pattern of LIKE is tried on an
id as such and as JMS writes it (`written`). Source: the AMQP 1.0 JMS mapping, section 3.2.1.1.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from leveret.values import Value

ID: Final = "ID:"
BINARY, ULONG, UUID_, STRING = "ID:AMQP_BINARY:", "ID:AMQP_ULONG:", "ID:AMQP_UUID:", "ID:AMQP_STRING:"
NO_PREFIX: Final = "ID:AMQP_NO_PREFIX:"
TYPED: Final = (BINARY, ULONG, UUID_, STRING, NO_PREFIX)


def plain(text: str) -> str | int:
    """Return an id that a client has written, as `comparable` returns it."""
    kind = next((each for each in TYPED if text.startswith(each)), "")
    rest = text.removeprefix(kind)
    if kind == ULONG and rest.isascii() and rest.isdigit():
        return int(rest)
    if kind == BINARY:
        return BINARY + rest.upper()
    if kind == UUID_:
        return rest.lower()
    return rest if kind in (STRING, NO_PREFIX) else text


def comparable(id: Value) -> Value:
    """Return an id so that it equals what `plain` makes of its text: bytes as a text, others as they are."""
    return BINARY + id.hex().upper() if isinstance(id, bytes) else id


def written(id: Value, is_correlation: bool) -> str | None:
    """Return an id as JMS writes it; a correlation id of a string has no prefix of its own. None if it is no id."""
    if isinstance(id, bytes):
        return BINARY + id.hex().upper()
    if isinstance(id, UUID):
        return f"{UUID_}{id}"
    if isinstance(id, int):
        return f"{ULONG}{int(id)}"
    if not isinstance(id, str):
        return None
    if id.startswith(TYPED):
        return STRING + id
    return id if is_correlation or id.startswith(ID) else NO_PREFIX + id
