"""An adapter from the outbox of a connection to the `Writer` of its machine."""

from broker_core.broker import Broker
from broker_core.outbox import Outbox
from protocols.shared.machine.contract import Writer


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


class ServingWriter(OutboxWriter):
    """The writer of a connection that a client has opened, which shares the node with others."""

    __slots__ = ("_broker",)

    def __init__(self, outbox: Outbox, broker: Broker) -> None:
        super().__init__(outbox)
        self._broker = broker

    def is_enough(self) -> bool:
        return self._outbox.full or self._broker.is_turn_over()
