"""An adapter from the outbox of a connection to the `Writer` of its machine."""

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

    def full(self) -> bool:
        return self._outbox.full

    def room(self) -> int:
        return self._outbox.room()
