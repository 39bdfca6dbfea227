"""What the core is to know of a message, remembered for messages that differ from it in their body's octets only."""

from __future__ import annotations

from typing import Final

from broker_core.message import Facts
from protocols.amqp10.broker.encoding import project
from protocols.amqp10.codec.sections import SHAPES
from protocols.amqp10.codec.wire import long_at

REMEMBERED_MAX: Final = 1024  # octets in front of a body; what is longer is hardly the same twice
FORM: Final = 4  # octets: a body section's descriptor, and the format code of its value


class Projection:
    """What was found in one message."""

    __slots__ = ("_begin", "_body_at", "_size_octets", "facts", "properties", "subject", "to")

    def __init__(self, payload: bytes) -> None:
        """Raises AmqpError, as `project` does."""
        self.facts: Facts
        self.facts, self.properties, body, self.to, self.subject = project(payload)
        self._body_at = len(payload) - len(body)
        self._begin = payload[: self._body_at + FORM]
        self._size_octets = self._octets_of_size(payload)

    def _octets_of_size(self, payload: bytes) -> int:
        """How many octets say how long the only section of the body is; 0: no message is said to be like this."""
        at = self._body_at
        if at > REMEMBERED_MAX or len(payload) - at <= FORM:
            return 0
        shape = SHAPES.get(long_at(payload, at))
        return shape[0] if shape is not None and self._ends(payload, shape[0]) else 0

    def _ends(self, payload: bytes, octets: int) -> bool:
        """Whether a section that says in so many octets how long it is ends with the payload."""
        at = self._body_at + FORM
        size = len(payload) - at
        if octets == 1:
            return size > 0 and payload[at] == size - 1
        return size >= 4 and octets == 4 and long_at(payload, at) == size - 4

    @property
    def is_general(self) -> bool:
        """Whether there may be messages like it."""
        return self._size_octets != 0

    def holds_for(self, payload: bytes) -> bool:
        """Whether a message is like the one this was found in."""
        octets = self._size_octets
        return octets != 0 and payload[: self._body_at + FORM] == self._begin and self._ends(payload, octets)

    def body(self, payload: bytes) -> bytes:
        """The body of a message that is like it."""
        return payload[self._body_at :]
