"""The intake of a served connection: what is done for each read besides the machine's work.

node ──bytes──> ServedIntake ──> ConnectionMachine
                     └─ rates, full queues or an alarm? ──> ServedConnection.heard
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker import Broker
from leveret.intake import Intake
from leveret.protocols.shared.machine.connection_machine import ConnectionMachine

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.protocols.shared.broker.served_connection import ServedConnection


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
