"""Read from all plain connections in one task: each that has sent something is read in turn, then all is settled.

    poll ─> small talkers: each is read from, some settled together ─> large talkers: some, one by one ─> poll

A task for each connection costs more than a small message does: a switch, a read that finds nothing, and telling the
operating system again what to wait for. Here a read costs a read. A connection that sent much last time comes last in
each round, and those share a millisecond: however many they are, the others wait for one read of one of them.

Only the plain next read is done here. For anything else (closing, an alarm, a peer that does not read, work that waits
for a thread) the connection is dismissed, and its own task, which waits in `attend`, continues.
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
AT_ONCE: Final = 256  # connections returned by one poll
TOGETHER: Final = 64  # connections read from before their effects are settled
TOGETHER_S: Final = 0.001  # the longest time before settling, which peers wait for
MUCH: Final = 32_768  # bytes in one read: a peer that sends so many usually has more


class Rounds:
    """Reads from the attending connections in turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._poll = select.epoll()
        self._attending: dict[int, tuple[Transport, trio.Event]] = {}  # by file descriptor
        self._talkers: dict[
            int, None
        ] = {}  # connections with more to read than one read takes, in the order of their turns

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
        """Return a connection to its own task; harmless if that has it already."""
        attending = self._attending.pop(number, None)
        if attending is not None:
            self._talkers.pop(number, None)
            self._poll.unregister(number)
            attending[0].dismissed = True
            attending[1].set()

    async def go(self) -> None:
        """Run rounds for ever."""
        number = self._poll.fileno()
        while True:
            await trio.lowlevel.wait_readable(number)
            self.go_round()

    def close(self) -> None:
        """Close the poll object; no connection attends any more."""
        self._poll.close()

    def go_round(self) -> None:
        """Read once from every connection that has sent something, and settle."""
        heard: list[Transport] = []
        began = 0.0
        talkers, attending = self._talkers, self._attending
        for number, _ in self._poll.poll(0, AT_ONCE):
            found = attending.get(number)
            if found is None:  # dismissed during this round
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
        """Settle what the input has caused, and dismiss the connections that cannot be read from next."""
        self._node.conclude(len(heard) == 1)
        for transport in heard:
            if not transport.goes_on():
                self.dismiss(transport.number)
