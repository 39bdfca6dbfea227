"""The ends of a connection's machine on the node's side: what feeds it, and what takes its output.

node ──bytes──> ServedIntake ──> ConnectionMachine ──> OutboxWriter ──> outbox
                     └─ rates, full queues or an alarm? ──> ServedConnection.heard
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.broker import Broker
from leveret.intake import Intake
from leveret.outbox import Outbox
from leveret.protocols.shared.machine.connection_machine import ConnectionMachine
from leveret.protocols.shared.machine.contract import Writer

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.front_end import FrontEnd
    from leveret.protocols.shared.broker.served_connection import ServedConnection


class OutboxWriter(Writer):
    """A writer that passes everything on to the outbox."""

    __slots__ = ("_outbox",)

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def write(self, data: bytes) -> None:
        self._outbox.write(data)

    def open(self) -> list[bytes]:
        return self._outbox.open()

    def wrote(self, count: int) -> None:
        self._outbox.wrote(count)

    def written(self) -> int:
        return self._outbox.written()

    def room(self) -> int:
        return self._outbox.room()

    def shut(self) -> None:
        self._outbox.shut()


class ServingWriter(OutboxWriter):
    """The writer of a connection that a client has opened, which shares the node with others."""

    __slots__ = ("_broker", "_front")

    def __init__(self, outbox: Outbox, broker: Broker, front: FrontEnd) -> None:
        super().__init__(outbox)
        self._broker = broker
        self._front = front

    def is_enough(self) -> bool:
        return self._outbox.full or self._broker.is_turn_over()

    def in_portions(self, step: Callable[[], bool]) -> None:
        if not self._broker.long_work.begin(step, self._front.wake):
            self._front.waits = True


class ServedIntake(Intake):
    """The way into one connection of any version of AMQP, or of MQTT."""

    __slots__ = ("_broker", "_served", "_wire", "client", "renews")

    def __init__(self, broker: Broker, served: ServedConnection, wire: ConnectionMachine) -> None:
        self._broker = broker
        self._served = served
        self._wire = wire
        self.client: Client | None = None  # while it is in a virtual host
        self.renews = False  # a secret by which its client renews its credential is being checked

    def receive(self, data: bytes, now: float) -> None:
        wire, broker = self._wire, self._broker
        if self.renews:
            self._served.renew_if_checked()
        before = wire.published
        wire.receive(data, now)
        if wire.gathers:
            wire.flush()
        client = self.client
        if client is not None and (client.meter is not None or broker.overfull or broker.alarms.reason):
            self._served.heard(wire.published - before)

    def due_at(self) -> float | None:
        deadline = self._wire.deadline()
        expires_at = self._served.expires_at
        return (
            deadline if expires_at is None or (deadline is not None and deadline < expires_at) else expires_at
        )

    def is_closed(self) -> bool:
        return self._wire.closed

    def is_halted(self) -> bool:
        wire = self._wire
        return wire.halted and not (self._served.waits or wire.closed)
