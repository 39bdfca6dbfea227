"""One task that reads from all plain connections: who has said something is heard in turn, then all is settled.

    poll ─> who said little last time: each is read from, some settled together ─> of those who said much, some ─> poll

A task for each connection costs more than a small message does: a switch, a read that finds nothing, and telling the
operating system again what to wait for. Here a read costs a read. Who says much at a time comes last in each
round, for a millisecond in all: however many of them there are, everybody else waits for one read of one of them.

Whatever is not just the next read is not done here. The connection is dismissed, and its own task, which waits in
`attend`, does it: a goodbye, an alarm, a peer that does not read, work that waits for a thread.
"""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from broker_core.node.node import Node
    from broker_core.node.transport import Transport

HAS_ROUNDS: Final = sys.platform == "linux"  # elsewhere each connection's own task reads
AT_ONCE: Final = 256  # connections asked for in one poll
TOGETHER: Final = 64  # connections read from before what they caused is settled
TOGETHER_S: Final = 0.001  # and no longer than this: it is waited for
MUCH: Final = 32_768  # octets in one read: whoever has so many has more, as a rule


class Rounds:
    """Connections that are read from in turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._poll = select.epoll()
        self._attending: dict[int, tuple[Transport, trio.Event]] = {}  # by the number of the socket
        self._talkers: dict[
            int, None
        ] = {}  # who have more to say than fits one read, in the order of their turns

    async def attend(self, transport: Transport) -> None:
        """Have a connection read from until it is dismissed."""
        number = transport.number
        dismissed = trio.Event()
        self._attending[number] = transport, dismissed
        self._poll.register(number, select.EPOLLIN)
        try:
            await dismissed.wait()
        finally:
            self.dismiss(number)
            transport.dismissed = False

    def dismiss(self, number: int) -> None:
        """Its own task goes on with it; harmless if it does already."""
        attending = self._attending.pop(number, None)
        if attending is not None:
            self._talkers.pop(number, None)
            self._poll.unregister(number)
            attending[0].dismissed = True
            attending[1].set()

    async def go(self) -> None:
        """Go round for ever."""
        number = self._poll.fileno()
        while True:
            await trio.lowlevel.wait_readable(number)
            self.go_round()

    def close(self) -> None:
        """Nobody attends any more."""
        self._poll.close()

    def go_round(self) -> None:
        """Hear everybody who has said something."""
        heard: list[Transport] = []
        began = 0.0
        talkers, attending = self._talkers, self._attending
        for number, _ in self._poll.poll(0, AT_ONCE):
            found = attending.get(number)
            if found is None:  # dismissed meanwhile
                continue
            transport = found[0]
            if transport.says_much:
                talkers[number] = None
                continue
            now = transport.hear()
            heard.append(transport)
            if len(heard) == 1:
                began = now
            elif now - began > TOGETHER_S or len(heard) == TOGETHER:
                self._conclude(heard)
                heard = []
        if heard:
            self._conclude(heard)
        began = self._node.broker.tick()
        while talkers:
            number = next(iter(talkers))
            del talkers[number]
            transport = attending[number][0]
            transport.hear()
            self._conclude([transport])
            if self._node.broker.tick() - began > TOGETHER_S:
                break

    def _conclude(self, heard: list[Transport]) -> None:
        """Settle what they caused, and see who goes on."""
        self._node.conclude(len(heard) == 1)
        for transport in heard:
            if not transport.goes_on():
                self.dismiss(transport.number)
