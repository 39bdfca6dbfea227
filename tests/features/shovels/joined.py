"""Two brokers in memory, and the connections that a shovel of the first opens to the second."""

from __future__ import annotations

from leveret.front_end import Dial, FrontEnd
from leveret.outbox import Outbox
from leveret.protocols.amqp091.broker import registration as amqp091
from leveret.protocols.amqp091.broker.adapter import Adapter091
from leveret.protocols.amqp10.broker import registration as amqp10
from leveret.protocols.amqp10.broker.adapter import Adapter10
from leveret.values import Json
from tests.harness.bench import ClientBench
from tests.harness.http import FakeNode
from tests.harness.peer import LOOPBACK

from .yard import Yard

SIZE_MAX = 1 << 20


class Line:
    """A connection: our end, and that of the other broker."""

    def __init__(self, ours: FrontEnd, theirs: FrontEnd) -> None:
        self.ours, self.theirs = ours, theirs


class Network(FakeNode):
    """A node that connects in memory, as long as the other broker is reachable: over AMQP 1.0, if it is `there10`."""

    def __init__(self, here: ClientBench, there: ClientBench) -> None:
        super().__init__()
        self.here, self.there = here, there
        self.lines: list[Line] = []
        self.is_up = True
        self.dialled = 0

    def dial(self, asked: Dial) -> None:
        self.dialled += 1
        if not self.is_up:
            asked.failed("cannot connect: Connection refused")
            return
        ours = asked.front(Outbox(self.here.ready), self.here.broker.now, SIZE_MAX)
        if ours is None:
            return
        limits = self.there.config.limits
        box = Outbox(self.there.ready, limits.outbox_size_max)
        adapter = Adapter10 if asked.uri.host == "there10" else Adapter091
        theirs = adapter(self.there.broker, self.there.config, box, LOOPBACK, self.there.broker.now)
        self.lines.append(Line(ours, theirs))
        ours.receive(b"", self.here.broker.now)

    def carry(self, size: int = 1 << 20) -> bool:
        """Carry what waits on each line, `size` bytes at a time; return whether there was anything."""
        carried = False
        for line in list(self.lines):
            for one, other, bench in (
                (line.ours, line.theirs, self.there),
                (line.theirs, line.ours, self.here),
            ):
                data = b"".join(one.outbox.take())
                one.outbox.sent(len(data))
                carried = carried or bool(data)
                for at in range(0, len(data), size):
                    other.receive(data[at : at + size], bench.broker.now)
                while other.halted:
                    other.receive(b"", bench.broker.now)
            if line.ours.closed or line.theirs.closed:
                self.cut(line)
        return carried

    def cut(self, line: Line) -> None:
        """Let a connection end, as if a side had been killed."""
        if line in self.lines:
            self.lines.remove(line)
            line.ours.lost()
            line.theirs.lost()


class TwoBrokers:
    """`yard` has the shovels, and connects to `there`."""

    def __init__(self) -> None:
        self.there = ClientBench()
        self.yard = Yard(FarBench(self))
        self.network = Network(self.yard.bench, self.there)
        self.yard.broker.operations = self.network
        self.yard.broker.remote_ends = {"amqp091": amqp091.remote_ends, "amqp10": amqp10.remote_ends}

    def set(self, **said: Json) -> None:
        self.yard.set(**said)

    def run(self, seconds: float = 0.1) -> None:
        self.yard.run(seconds)

    def settle(self) -> None:
        """Let both brokers work, and carry what they say, until there is nothing more."""
        while True:
            self.there.broker.tick()
            self.there.broker.settle()
            if not self.network.carry():
                return
            self.yard.broker.settle()

    def bodies(self, queue: str) -> list[bytes]:
        return [delivery.message.body for delivery in self.there.host.queues[queue].waiting()]


class FarBench(ClientBench):
    """A bench whose time is that of the other broker as well."""

    def __init__(self, both: TwoBrokers) -> None:
        super().__init__()
        self._both = both

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self._both.there.advance(seconds)
        for line in list(self._both.network.lines):
            line.ours.on_due(self.broker.now)
            line.theirs.on_due(self._both.there.broker.now)
        self._both.settle()
