"""A front-end that does what the bytes say, and a node that serves it on a free loopback port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from leveret.config.config import Config, parse
from leveret.front_end import FrontEnd, Peer, Protocol
from leveret.outbox import Outbox
from leveret.server.node.node import CLOSING_S, Node

LISTEN = {
    "listeners": [{"address": "127.0.0.1:0", "protocols": ["broken", "script"]}],
    "http": {"enabled": False},
}
MIB = 1 << 20


class Script(FrontEnd):
    """Does what the bytes say: each letter is a command, the connection's last one is kept for the test."""

    last: Script

    def __init__(self, broker: object, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        self.outbox = outbox
        self.peer = peer
        self.received = b""
        self.calls: list[str] = []
        self.sizes: list[int] = []  # of what was received
        self.deadline_at: float | None = None
        self.fails_in: str | None = None
        Script.last = self

    def receive(self, data: bytes, now: float) -> None:
        self.halted = False
        self.received += data
        self.sizes.append(len(data))
        for octet in data:
            COMMANDS.get(octet, Script.ignore)(self)

    def ignore(self) -> None:
        pass

    def echo(self) -> None:
        self.outbox.write(b"echo")

    def shout(self) -> None:
        self.outbox.write(b"x" * (16 * MIB))

    def finish(self) -> None:
        self.outbox.write(b"bye")
        self.closed = True

    def stumble(self) -> None:
        self.outbox.write(b"almost")
        raise RuntimeError("a mistake of ours")

    def halt(self) -> None:
        self.halted = True

    def dawdle(self) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.jump(1.0)

    def hold(self) -> None:
        self.blocked = True

    def finish_soon(self) -> None:
        """Wait for work that ends the connection before its task gets to reading, or just afterwards."""
        self.waits = True
        trio.lowlevel.current_trio_token().run_sync_soon(self._finished)

    def _finished(self) -> None:
        self.finish()
        self.wake()

    def drained(self) -> None:
        self._called("drained")

    def lost(self) -> None:
        self._called("lost")

    def deadline(self) -> float | None:
        return self.deadline_at

    def on_deadline(self, now: float) -> None:
        self.deadline_at = None
        self._called("on_deadline")
        self.finish()

    def alarm(self, reason: str | None) -> None:
        self._called("alarm")
        self.blocked = self.blocked and reason is not None

    def shut_down(self, reason: str) -> None:
        self._called("shut_down")
        self.outbox.write(reason.encode())

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.fails_in == name:
            raise RuntimeError(f"a mistake of ours in {name}")


COMMANDS: dict[int, Callable[[Script], None]] = {
    ord("e"): Script.echo,
    ord("s"): Script.shout,
    ord("f"): Script.finish,
    ord("w"): Script.finish_soon,
    ord("!"): Script.stumble,
    ord("h"): Script.hold,
    ord("t"): Script.halt,
    ord("d"): Script.dawdle,
}


def refuse_to_start(broker: object, config: Config, outbox: Outbox, peer: Peer, now: float) -> FrontEnd:
    raise RuntimeError("a mistake of ours before the first byte")


SCRIPT = Protocol("script", (b"SCRIPT",), Script, fallback=True)
BROKEN = Protocol("broken", (b"BROKEN",), refuse_to_start)


class Scripted(Node):
    """A node that serves the protocols above, and no others."""

    def __init__(
        self, config: Config | None = None, closing_s: float = CLOSING_S, owns_loop: bool = False
    ) -> None:
        super().__init__(config or parse(LISTEN), closing_s=closing_s, owns_loop=owns_loop)

    def _bind(self) -> None:
        self._plugins.protocols.update({"broken": BROKEN, "script": SCRIPT})
        super()._bind()

    async def connect(self, greeting: bytes = b"SCRIPT") -> trio.SocketStream:
        """A peer that has been recognised."""
        host, port = self.addresses[0].split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        if greeting:
            await stream.send_all(greeting)
            await self.quiet()
        return stream

    async def tell(self, stream: trio.SocketStream, data: bytes) -> None:
        """Send, and wait until the node has dealt with it."""
        await stream.send_all(data)
        await self.quiet()


def run(
    test: Callable[[Scripted], Awaitable[None]],
    config: Config | None = None,
    closing_s: float = 0.0,
    owns_loop: bool = False,
) -> None:
    async def with_node() -> None:
        async with Scripted(config, closing_s, owns_loop) as node:
            await test(node)

    with_timeout = trio.fail_after(60)

    async def main() -> None:
        with with_timeout:
            await with_node()

    trio.run(main)


async def read_all(stream: trio.SocketStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.lowlevel.checkpoint()
