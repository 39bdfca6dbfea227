"""An adapter from the outbox of a connection to the `Writer` of its machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.broker import Broker
from leveret.outbox import Outbox
from leveret.protocols.shared.machine.contract import Writer

if TYPE_CHECKING:
    from leveret.front_end import FrontEnd


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
