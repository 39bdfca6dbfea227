"""Messages that can be told from each other and from any others: what is in one follows from its name.

A name is `publisher/number`; numbers of a publisher rise in the order in which it publishes."""

from __future__ import annotations

import random

import attrs

from leveret.protocols.amqp091.codec.wire import BasicProperties

NAME_OCTETS_MAX = 64


@attrs.frozen
class Message:
    """A message that somebody has published or is about to."""

    publisher: str
    number: int
    size: int = 64
    priority: int | None = None
    expiration: str = ""
    persistent: bool = True

    @property
    def name(self) -> str:
        return f"{self.publisher}/{self.number}"

    @property
    def body(self) -> bytes:
        start = f"{self.name} ".encode()
        return start + random.Random(self.name).randbytes(self.size)

    @property
    def properties(self) -> BasicProperties:
        return BasicProperties(
            content_type="application/x-test",
            headers={"number": self.number, "publisher": self.publisher},
            delivery_mode=2 if self.persistent else 1,
            priority=self.priority,
            expiration=self.expiration or None,
            message_id=self.name,
        )


def name_in(body: bytes) -> str:
    """The name that a body begins with; what is no name at all names nothing."""
    return body[:NAME_OCTETS_MAX].partition(b" ")[0].decode("ascii", "replace")


@attrs.frozen
class Found:
    """A message as a client got it."""

    queue: str
    body: bytes
    properties: BasicProperties
    redelivered: bool
    tag: int = 0

    @property
    def headers(self) -> dict[str, object]:
        return dict(self.properties.headers or {})
