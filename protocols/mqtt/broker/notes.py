"""The notes of a session that are in one commit with its messages: the names under which they stand in its record.

received 7            a message with QoS 2 and this packet identifier was published; PUBREL has not come
sent 7 mqtt-...qos1   a message of this queue, at the noted position, was sent with QoS 2; PUBREC has not come
released 7            PUBREC has come for it, and PUBCOMP has not
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RECEIVED: Final = "received"
SENT: Final = "sent"
RELEASED: Final = "released"


def received(packet_id: int) -> str:
    return f"{RECEIVED} {packet_id}"


def sent(packet_id: int, queue: str) -> str:
    return f"{SENT} {packet_id} {queue}"


def released(packet_id: int) -> str:
    return f"{RELEASED} {packet_id}"


class Noted:
    """The notes of a session as they were found at a start."""

    __slots__ = ("received", "released", "sent")

    def __init__(self, notes: Mapping[str, int]) -> None:
        """Read the notes. Raises ValueError for a note that is none, which is damage."""
        self.received: set[int] = set()
        self.released: set[int] = set()
        self.sent: dict[str, dict[int, int]] = {}  # packet identifiers by position, for each queue
        for name, number in notes.items():
            word, packet_id, *queue = name.split(" ", 2)
            if word == RECEIVED:
                self.received.add(int(packet_id))
            elif word == RELEASED:
                self.released.add(int(packet_id))
            elif word == SENT and queue:
                self.sent.setdefault(queue[0], {})[number] = int(packet_id)
            else:
                raise ValueError(f"note {name!r} is unknown")
