"""Read from all connections in one task: each that has sent something is read in turn, then all is settled.

    poll ─> small talkers: each is read from, some settled together ─> large talkers: some, one by one ─> poll

A process may be stopped, and go on much later, at any place: above all in the poll, where it spends its time. So the
owner of a cluster looks at its lease after the poll and before each read. To do so before it settles is not enough: for
some methods a front-end settles what others have sent before.

A task for each connection costs more than a small message does: a switch, a read that finds nothing, and telling the
operating system again what to wait for. Here a read costs a read. A connection that sent much last time comes last in
each round, and those share a millisecond: however many they are, the others wait for one read of one of them. So does
a connection of whose input something is left, of which the operating system cannot tell: because its TLS has decrypted
more than one read took, or because its front-end has halted, as its turn was over (`Broker.is_turn_over`).

What the store's threads report is heard at the end of a round, too, and not by way of trio: a client that waits for a
confirm of each message would wait for two polls and a dozen system calls more.

Methods of a node and of a connection are called by their classes (`Batches.read(node, ...)`): both objects are of
classes that are not compiled, so that a call by the object would look for each method in Python. No subclass has a
method of its own in the place of one that is called so.

Only the plain next read is done here. For anything else (closing, an alarm, a peer that does not read, work that waits
for a thread) the connection is dismissed, and its own task, which waits in `attend`, continues.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final

from leveret.server.node.batches import Batches
from leveret.server.node.gathering import PAUSE_S, SPIN_S, Gathering
from leveret.server.node.socket_io import SocketIO

if TYPE_CHECKING:
    import trio

    from leveret.server.node.readers import Poll
    from leveret.server.node.transport import Transport

READABLE: Final = select.POLLIN  # the same number for epoll(7)
ONE: Final = (1).to_bytes(8, sys.byteorder)  # what adds one to the number in an eventfd(2)
AT_ONCE: Final = 256  # connections returned by one poll
TOGETHER: Final = 64  # connections read from before their effects are settled
TOGETHER_S: Final = 0.001  # the longest time before settling, which peers wait for
STAY_S: Final = 0.001  # the shortest time that `epoll` can wait
# The longest time before tasks that accept connections, and signals, have their turn.
STAY_MAX_S: Final = 0.005


class Poller:
    """Reads from the attending connections in turn."""

    def __init__(self, node: Batches, poll: Poll, reported: int, has_others: bool) -> None:
        """`reported`: an eventfd(2). `has_others`: clients may have another processor. `close` closes what is given."""
        self._node = node
        self._poll = poll
        self._attending: dict[int, tuple[Transport, trio.Event]] = {}  # by file descriptor
        # connections with more to read than one read takes, in the order of their turns
        self._talkers: dict[int, None] = {}
        self._goes_on = False  # input kept coming until the turn was over
        self.gathering = Gathering(wakes=has_others)
        self._reports: deque[Callable[[], None]] = deque()  # of other threads
        self._reported = reported  # readable: there are some
        self._is_closed = False
        # Held to report, and to close: the number of what is closed may be another file's by then.
        self._reporting = Lock()
        self._poll.register(reported, READABLE)

    def attend(self, transport: Transport, dismissed: trio.Event) -> None:
        """Read from a connection from now on, until `dismissed` is set."""
        number = transport.number
        self._attending[number] = transport, dismissed
        self._poll.register(number, READABLE)

    def dismiss(self, number: int) -> None:
        """Return a connection to its own task; harmless if that has it already."""
        attending = self._attending.pop(number, None)
        if attending is not None:
            self._talkers.pop(number, None)
            self._poll.unregister(number)
            attending[0].dismissed = True
            attending[1].set()

    def fileno(self) -> int:
        """Return the descriptor that is readable if there is something to read from a connection."""
        return self._poll.fileno()

    @property
    def has_more(self) -> bool:
        """Return whether to run another turn without waiting for anything in between."""
        return self._goes_on or bool(self._talkers)

    def turn(self) -> None:
        """Run one round, and those that follow at once."""
        self._goes_on = False
        self.go_round()
        until = self._node.broker.now + STAY_MAX_S
        while self._stays():
            if self._node.broker.now >= until:
                self._goes_on = self.gathering.is_awake
                break
            readable = self._awaited()
            if not readable:
                if self.gathering.is_awake:
                    self.gathering.heard(0, self._node.broker.now)
                break
            if len(readable) == 1 and readable[0][0] == self._reported:
                self._hear_reports()
            else:
                self._gather(readable)

    def _awaited(self) -> list[tuple[int, int]]:
        """Wait for input for a moment, asleep or awake. Return what is readable, perhaps nothing."""
        if not self.gathering.is_awake:
            return self._poll.poll(STAY_S, AT_ONCE)
        clock = self._node.broker.clock
        until = clock.now() + SPIN_S
        while True:
            readable = self._poll.poll(0, AT_ONCE)
            if readable or clock.now() >= until:
                return readable

    def _gather(self, readable: list[tuple[int, int]]) -> None:
        """Run a round, after a pause if that has turned out to be of use."""
        node, gathering = self._node, self.gathering
        if gathering.pauses:
            time.sleep(PAUSE_S)
        before, is_measured = node.octets_heard, gathering.measures
        began = node.broker.tick() if is_measured else 0.0
        self._go_round(readable)
        now = node.broker.tick() if is_measured else node.broker.now
        gathering.heard(node.octets_heard - before, now, now - began)

    def report(self, report: Callable[[], None]) -> None:
        """Have the node hear a report at the end of the next round; after `close` it is dropped.

        Any thread may call it: one that waits for a database that does not answer may outlive the node.
        """
        with self._reporting:
            if not self._is_closed:
                self._reports.append(report)
                os.write(self._reported, ONE)

    def _hear_reports(self) -> None:
        os.read(self._reported, len(ONE))
        for _ in range(len(self._reports)):
            self._node.hear_report(self._reports.popleft())

    def _stays(self) -> bool:
        """Return whether to wait for input here, for a moment, instead of giving way to other tasks.

        A client that was answered usually sends something at once. To wait for it in trio takes two system calls more
        and 20 us. No other task must have anything to do meanwhile but accept connections: none reads, sends, or
        waits for a time.
        """
        node = self._node
        if (
            not node.owns_loop
            or self._talkers
            or len(self._attending) != len(node.transports)
            or Batches.has_work_left(node)
        ):
            return False
        now = node.broker.tick()
        due = node.broker.timers.next_at()
        return due is None or now + (SPIN_S if self.gathering.is_awake else STAY_S) < due

    def close(self) -> None:
        """Close the poll object; no connection attends any more."""
        with self._reporting:
            self._is_closed = True
            self._poll.close()
            os.close(self._reported)

    def go_round(self) -> None:
        """Read once from every connection that has sent something, and settle."""
        self._go_round(self._poll.poll(0, AT_ONCE))

    def _go_round(self, readable: list[tuple[int, int]]) -> None:
        heard: list[Transport] = []
        began = 0.0
        has_reports = False
        talkers, attending = self._talkers, self._attending
        node = self._node
        in_cluster = node.term is not None
        for number, _ in readable:
            if number == self._reported:
                has_reports = True
                continue
            if in_cluster and node.has_lapsed():
                break
            found = attending.get(number)
            if found is None:  # dismissed during this round
                continue
            transport = found[0]
            line: SocketIO = transport
            if line.says_much or line.halted:
                talkers[number] = None
                continue
            now = Batches.read(node, transport)
            heard.append(transport)
            if len(heard) == 1:
                began = now
            elif now - began > TOGETHER_S or len(heard) == TOGETHER:
                self._conclude(heard)
                heard = []
        if heard:
            self._conclude(heard)
        if has_reports:
            self._hear_reports()
        if talkers:
            self._hear_talkers(in_cluster)

    def _hear_talkers(self, in_cluster: bool) -> None:
        """Read from those that have more, in turn, and settle after each, for a millisecond."""
        node, talkers = self._node, self._talkers
        began = node.broker.tick()
        while talkers:
            if in_cluster and node.has_lapsed():
                break
            number = next(iter(talkers))
            del talkers[number]
            transport = self._attending[number][0]
            Batches.read(node, transport)
            self._conclude([transport])
            if node.broker.tick() - began > TOGETHER_S:
                break

    def _conclude(self, heard: list[Transport]) -> None:
        """Settle what the input has caused, and dismiss the connections that cannot be read from next."""
        node = self._node
        Batches.conclude(node, len(heard) == 1)
        for transport in heard:
            line: SocketIO = transport
            if node.suspended or not SocketIO.goes_on(line):
                self.dismiss(line.number)
            elif (line.halted or line.has_more) and line.number in self._attending:
                self._talkers[line.number] = None  # unless it was hung up meanwhile
