"""The messages of QoS 1 and 2 that a session has sent, by packet identifier, until they are acknowledged (section 4.3).

    take ──> SENT ──PUBACK──────────────────────────> done      QoS 1
               └────PUBREC──> RELEASED ──PUBCOMP────> done      QoS 2; PUBREL is sent when it is RELEASED
               └────PUBREC with an error────────────> done, as refused

A session outlives its connections, and so do its flights: they are sent again, in their order, with the same
identifiers (MQTT-4.4.0-1). `token` is what the owner keeps with each.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Generic, TypeVar

from leveret.protocols.mqtt.codec.errors import ProtocolError
from leveret.protocols.mqtt.codec.properties import PUBACK, PUBCOMP, PUBREC
from leveret.protocols.mqtt.codec.reason_codes import UNSPECIFIED_ERROR
from leveret.protocols.shared.machine.numbered_table import NumberedTable

T = TypeVar("T")

IDS_MAX: Final = 0xFFFF


# The stage of a message on its way to the client: a number, as the hash of an Enum's member is a call of plain Python.
SENT: Final = 0
RELEASED: Final = 1


class Fate(Enum):
    """The consequence of an acknowledgement for the message."""

    ACCEPTED = "accepted"  # it is the client's now, and its identifier is free, or will be after PUBCOMP
    REFUSED = "refused"  # the client does not want it, and its identifier is free
    COMPLETED = "completed"  # its identifier is free; it was accepted before
    REPEATED = "repeated"  # PUBREC came again: PUBREL is to be sent again
    UNKNOWN = "unknown"  # there is no such identifier


REFUSED: Final = Fate.REFUSED
UNKNOWN: Final = Fate.UNKNOWN
COMPLETED: Final = Fate.COMPLETED
ACCEPTED: Final = Fate.ACCEPTED
REPEATED: Final = Fate.REPEATED


class Flight(Generic[T]):
    """One message on its way."""

    __slots__ = ("packet_id", "qos", "stage", "token")

    def __init__(self, packet_id: int, qos: int, token: T, stage: int = SENT) -> None:
        self.packet_id = packet_id
        self.qos = qos
        self.token = token
        self.stage = stage


class Flights(Generic[T]):
    """The flights of one session, the oldest first."""

    __slots__ = ("_next", "by_id")

    def __init__(self) -> None:
        self.by_id: NumberedTable[Flight[T]] = NumberedTable()
        self._next = 1

    def __len__(self) -> int:
        return len(self.by_id)

    def take(self, qos: int, token: T) -> Flight[T]:
        """Return a new flight with a free identifier. There must be one: fewer than 65,535 may be on their way."""
        assert len(self.by_id) < IDS_MAX, "the receive maximum is below"
        packet_id = self._next
        while packet_id in self.by_id:
            packet_id = packet_id % IDS_MAX + 1
        self._next = packet_id % IDS_MAX + 1
        flight = Flight(packet_id, qos, token)
        self.by_id.add(packet_id, flight)
        return flight

    def restore(self, flight: Flight[T]) -> None:
        """Put a flight back that was there before a restart."""
        self.by_id.add(flight.packet_id, flight)

    def acknowledge(self, kind: int, packet_id: int, reason_code: int) -> tuple[Fate, Flight[T] | None]:
        """Take a PUBACK, PUBREC or PUBCOMP. Raises ProtocolError for one that does not go with the message's QoS."""
        flight = self.by_id.get(packet_id)
        if flight is None:
            return UNKNOWN, None
        fate = NEXT.get((flight.qos, flight.stage, kind))
        if fate is None:
            raise ProtocolError(f"packet {kind} does not acknowledge message {packet_id} of QoS {flight.qos}")
        if fate is ACCEPTED and reason_code >= UNSPECIFIED_ERROR:
            fate = REFUSED
        if fate is ACCEPTED and kind == PUBREC:
            flight.stage = RELEASED
        elif fate is not REPEATED:
            self.by_id.pop(packet_id)
        return fate, flight

    def drop(self, packet_id: int) -> Flight[T] | None:
        """Forget a flight, as its message is gone, or could not be sent."""
        return self.by_id.pop(packet_id)


NEXT: Final = {
    (1, SENT, PUBACK): Fate.ACCEPTED,
    (2, SENT, PUBREC): Fate.ACCEPTED,
    (2, RELEASED, PUBREC): Fate.REPEATED,
    (2, RELEASED, PUBCOMP): Fate.COMPLETED,
}
