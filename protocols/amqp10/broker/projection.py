"""A projection is what the broker knows of a message once it is read, and tells for which other messages that holds.

Messages of one application differ in their ids, times and values, and have the same form: the same fields and names
with the same types and sizes. To read the sections of such a message costs more than all else that is done with it. So
once two in a row have been read that have as many bytes in front of their bodies, a mask tells the bits that the next
ones must have in common with them: those of everything but values, of which texts must be ASCII. One comparison then
takes the place of the reading. The values that the broker itself looks at, such as `to` and `reply-to`, are not left
out: the facts of a message with the same form are the same.
"""

from __future__ import annotations

from typing import Final

from leveret.protocols.amqp10.broker.encoding import PRIORITY, Facts10, expiry_of, project
from leveret.protocols.amqp10.codec.section_scan import mask_of
from leveret.protocols.amqp10.codec.sections import APPLICATION, PROPERTIES, SHAPES, WORD, bounds

REMEMBERED_MAX: Final = 1024  # bytes in front of a body; longer beginnings hardly repeat
TIME: Final = b"\x83"  # the format code of a timestamp
TYPE_SIZE: Final = 4  # bytes: a body section's descriptor, and the format code of its value


class Projection:
    """The facts of a message, which also hold for messages that differ only in their body, or have the same form."""

    __slots__ = (
        "_begin",
        "_common",
        "_form_held",
        "_mask",
        "_size_bytes",
        "body_at",
        "delay_ms",
        "expires",
        "facts",
        "properties",
        "subject",
        "to",
    )

    def __init__(
        self, payload: bytes, like: Projection | None = None, default_priority: int = PRIORITY
    ) -> None:
        """Project the message; one that has the form of another gets what is known of that. Raises AmqpError, as
        `project` does."""
        self.expires: bool  # its absolute-expiry-time counts, which each message of the form has
        self.facts: Facts10
        self.body_at: int
        self.to: str | None
        self.subject: str | None
        self._size_bytes: int  # of the size of the body's only section; 0: this holds for no other message
        self._mask = 0  # of the bits that messages of this form have in common; 0: the form is not known
        self._common = 0
        self._form_held = False
        if like is not None:
            at = self.body_at = like.body_at
            self.facts, self.to, self.subject = like.facts, like.to, like.subject
            self.properties = payload[:at]
            self.expires = like.expires
            self._size_bytes = like._size_bytes
            self._mask, self._common, self._form_held = like._mask, like._common, like._form_held
        else:
            self.facts, self.properties, body, self.to, self.subject = project(payload, 0, default_priority)
            self.expires = (
                self.facts.ttl_ms is None
                and TIME in self.properties
                and expiry_of(self.properties) is not None
            )
            at = self.body_at = len(payload) - len(body)
            self._size_bytes = 0
            if at <= REMEMBERED_MAX and len(body) > TYPE_SIZE:
                shape = SHAPES.get(WORD.unpack_from(body)[0])
                if shape is not None:
                    self._size_bytes = shape[0]
        self.delay_ms = self.facts.envelope.delay_ms
        self._begin = payload[: at + TYPE_SIZE]

    @property
    def may_hold(self) -> bool:
        """Return whether this may hold for other messages."""
        return self._size_bytes > 0

    def properties_of(self, payload: bytes) -> bytes | None:
        """Return the sections in front of a message's body if all else that is known of this message holds for it,
        else None.

        That is so if it begins like this one, or has its form, and ends with the section that its body begins with.
        """
        if not self._size_bytes:
            return None
        at = self.body_at + TYPE_SIZE
        size = len(payload) - at
        if self._size_bytes == 1:
            if size <= 0 or payload[at] != size - 1:
                return None
        elif size < 4 or WORD.unpack_from(payload, at)[0] != size - 4:
            return None
        begin = payload[:at]
        if begin == self._begin:
            return self.properties
        if not self._mask or int.from_bytes(begin, "big") & self._mask != self._common:
            return None
        self._form_held = True
        return payload[: self.body_at]

    def learn_form(self, last: Projection) -> None:
        """Find the mask of this message's form, if the last one seems to have had the same.

        A message whose form was of no use is not followed by another that learns its own: where two kinds of messages
        take turns, each is read anyway.
        """
        at = self.body_at
        if (
            not self._size_bytes
            or at != last.body_at
            or self.facts is not last.facts
            or len(self.properties) != at  # there are delivery-annotations, which are dropped
            or (last._mask and not last._form_held)
        ):
            return
        where = bounds(self._begin[:at])
        mask = mask_of(self._begin, where[PROPERTIES], where[APPLICATION], at)
        if mask is not None:
            self._mask = int.from_bytes(mask, "big")
            self._common = int.from_bytes(self._begin, "big") & self._mask
