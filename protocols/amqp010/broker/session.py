"""The broker's side of one session: it executes the peer's commands, completes them, and keeps the session's state.

| commands                                         | module                          |
|--------------------------------------------------|---------------------------------|
| message.transfer                                 | publishing.py                   |
| message.subscribe, cancel, flow, flush, stop     | subscriptions.py                |
| message.accept, reject, release, acquire         | unsettled.py                    |
| exchange.*, queue.*                              | declarations.py                 |
| tx.*                                             | transactions.py                 |
| dtx.*                                            | distributed.py                  |
| file.*, stream.*, message.resume                 | none: answered not-implemented  |

Before a command other than a transfer is executed, everything before it has taken effect. Its handler completes it, at
once or later. A transfer completes when the broker has taken responsibility for the message: when its queues have it,
and the disk where it has to be there. This is the publisher confirm of 0-10; where the peer asked for acceptance too,
message.accept is sent first.

The session outlives its connection, and so keeps of it only the user and the peer's address. The core refuses by
raising a `Failure`; here it becomes the exception that ends the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from leveret.broker import Publisher
from leveret.errors import Failure
from leveret.protocols.amqp010.broker import declarations, distributed, subscriptions, transactions, unsettled
from leveret.protocols.amqp010.broker.ack_timeouts import Timeouts
from leveret.protocols.amqp010.broker.errors import refusal
from leveret.protocols.amqp010.broker.publishing import Publishing
from leveret.protocols.amqp010.broker.unsettled import Browsed, Sent
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.sequences import MASK, SequenceSet
from leveret.protocols.amqp010.machine.contract import SessionError, SessionOwner
from leveret.security.users import Permission

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.delivery import Delivery
    from leveret.protocols.amqp010.broker.connection_parts import ConnectionParts
    from leveret.protocols.amqp010.broker.subscription import Grant, Subscription
    from leveret.protocols.amqp010.broker.transactions import Work
    from leveret.protocols.amqp010.codec.commands import Command, MessageTransfer, Struct
    from leveret.protocols.amqp010.codec.sequences import Id
    from leveret.protocols.amqp010.machine.session import Session

READ: Final = Permission.READ

LAST_ID: Final = 0xFFFF_FFFF
LOOKS: Final = 8  # at bindings, messages, ... that take as long as the copy of a message
COMMAND: Final = 10  # copies that take as long as a command
WINDOWED_MAX: Final = 1 << 20  # transfers in windows that the peer may leave incomplete


class ServedSession(SessionOwner, Publisher):
    """The broker's side of one session."""

    __slots__ = (
        "_accepting",
        "_announced",
        "_marked",
        "_marks",
        "_pending",
        "_received",
        "accepted",
        "at_end",
        "broker",
        "browsed",
        "client",
        "config",
        "confirmed",
        "delivered",
        "delivered_settled",
        "distributed",
        "ended",
        "executing",
        "host",
        "name",
        "persistent",
        "published",
        "publishing",
        "session",
        "subscriptions",
        "timeout_max_s",
        "timeouts",
        "tx",
        "unsettled",
        "windowed",
        "windowed_max",
    )

    session: Session  # set by `Sessions`, which makes both

    def __init__(self, parts: ConnectionParts, name: bytes) -> None:
        self.name = name
        self.broker = parts.broker
        self.config = parts.config
        self.client = parts.client.part()
        self.host = self.client.host
        self.timeout_max_s = parts.config.protocols.amqp010.session_timeout_max_s
        # by destination; the one served longest ago comes first
        self.subscriptions: dict[str, Subscription] = {}
        self.unsettled: Sent[Delivery] = Sent()
        self.timeouts = Timeouts(self)
        self.windowed: Sent[Grant] = Sent()  # transfers whose credit comes back when the peer completes them
        self.windowed_max = WINDOWED_MAX
        self.browsed = Browsed()
        self.publishing = Publishing(self)
        self.tx: Work | None = None  # takes transfers and accepts while the session is transactional
        self.distributed: object | None = None  # its `Participant` after dtx.select
        self.at_end: list[Callable[[], object]] = []  # called when the session ends, before its client leaves
        self.ended = False
        self.executing: Command | None = None  # the command whose handler runs
        self.persistent = False
        # Counts for operators, in messages.
        self.published = self.confirmed = 0  # received, and of these, those that are complete
        self.delivered = self.delivered_settled = 0  # sent, and of these, those that need no accept
        self.accepted = 0  # by the peer
        self._pending: set[Id] = set()  # commands that are not complete, transfers apart
        self._received: list[Id] = []  # transfers since the last mark,
        self._accepting: list[Id] = []  # and those among them that are to be accepted
        self._announced = False  # on the broker's list of publishers for this settle
        self._marked = 0  # the last mark
        self._marks: deque[tuple[int, list[Id], list[Id]]] = deque()  # each with its transfers

    def may_be_of(self, client: Client) -> bool:
        """Return whether the returning user may resume: under other token scopes, only if they may read its queues."""
        if client.user.scopes is self.client.user.scopes:
            return True
        access, host = client.broker.access, self.client.host.name
        queues = (subscription.queue.name for subscription in self.subscriptions.values())
        return all(access.allowed(client.user, host, READ, name) for name in queues)

    def came_in_by(self, client: Client) -> None:
        """Move the session to a new connection, whose user has the same name but may have other rights by now."""
        self.client.change_user(client.user)
        self.client.peer = self.publishing.peer = client.peer
        for subscription in self.subscriptions.values():
            subscription.peer = client.peer
        distributed.moved(self)

    # Input from the peer.

    def on_begun(self, transfer: MessageTransfer) -> None:
        try:
            self.publishing.check(transfer)
        except Failure as failure:
            self.broker.settle()
            raise refusal(failure) from None

    def on_transfer(
        self, id: Id, transfer: MessageTransfer, header: bytes | None, body: bytes | None, sync: bool
    ) -> None:
        try:
            self.publishing.publish(transfer, header or b"", body)
        except Failure as failure:
            self.broker.settle()  # the commands before it have taken effect and are reported
            raise refusal(failure) from None
        self._received.append(id)
        if transfer.accept_mode == c.ACCEPT_MODE_EXPLICIT:  # Python clients leave it out and want none
            self._accepting.append(id)
        if not self._announced:
            self._announced = True
            self.broker.publishers.append(self)

    def on_run(self, first: Id, transfer: MessageTransfer, headers: list[bytes], bodies: list[bytes]) -> int:
        taken = self.publishing.publish_run(transfer, headers, bodies)
        if taken:
            ids = [(first + number) & MASK for number in range(taken)]
            self._received += ids
            if transfer.accept_mode == c.ACCEPT_MODE_EXPLICIT:
                self._accepting += ids
            if not self._announced:
                self._announced = True
                self.broker.publishers.append(self)
        return taken

    def on_command(self, id: Id, command: Command, sync: bool) -> None:
        act = COMMANDS.get(type(command))
        if act is None:
            raise SessionError(c.ERROR_CODE_NOT_IMPLEMENTED, f"{command.NAME} is not implemented")
        if act is not unsettled.message_accept:  # its deliveries can only have been sent before
            self.broker.work += COMMAND
            self.broker.settle()
            if self.ended:
                return
        self._pending.add(id)
        self.executing = command
        try:
            act(self, id, command)
        except Failure as failure:
            raise refusal(failure) from None
        finally:
            self.executing = None

    def on_completed(self, ids: SequenceSet) -> None:
        subscriptions.completed(self, ids)

    # Answers.

    def complete(self, id: Id) -> None:
        """Complete a command other than a transfer."""
        self._pending.discard(id)
        self.session.complete(id)

    def result(self, id: Id, value: Struct) -> None:
        """Send the result of a command, before it is completed."""
        self.session.result(id, value)

    def send(self, command: Command) -> Id:
        return self.session.send(command)

    def has_looked_at(self, count: int) -> None:
        """Count looking at `count` bindings, messages, ... as work: after so much of it others have their turn."""
        self.broker.work += count // LOOKS

    def fail_soon(self, error: SessionError) -> None:
        """End the session later, as a queue may be dispatching now."""
        self.broker.timers.at(self.broker.now, lambda now: self._fail(error))

    def _fail(self, error: SessionError) -> None:
        if not self.ended:
            self.session.fail(error)

    @property
    def last_sent(self) -> Id:
        """The id of the last command sent to the peer."""
        return (self.session.next_id - 1) & LAST_ID

    def mark(self) -> int:
        self._announced = self.persistent = False
        self._marked += 1
        self.published += len(self._received)
        self._marks.append((self._marked, self._received, self._accepting))
        self._received, self._accepting = [], []
        return self._marked

    def taken(self, mark: int) -> None:
        """Accept and complete every transfer before the mark, in this order."""
        marks = self._marks
        while marks and marks[0][0] <= mark:
            _, received, accepting = marks.popleft()
            self.confirmed += len(received)
            self.broker.confirmed += len(received)
            if self.ended:
                continue
            if accepting:
                self.session.send(c.MessageAccept(set_of(accepting)))
            self._complete_all(received)
        if not self.ended:
            self.session.settle()

    def _complete_all(self, ids: list[Id]) -> None:
        if not self._pending:
            self.session.complete_through(ids[-1])
            return
        for id in ids:
            self.session.complete(id)

    # The transport.

    def wake_all(self) -> None:
        for subscription in list(self.subscriptions.values()):
            subscription.wake()

    def on_room(self) -> None:
        self.wake_all()

    def on_attached(self) -> None:
        self.wake_all()

    def on_detached(self) -> None:
        """End flushes: without a line no subscription has room, so nothing more can be delivered."""
        for subscription in list(self.subscriptions.values()):
            subscription.finish_flush()

    def in_portions(self, step: Callable[[], bool]) -> None:
        self.broker.long_work.begin(step)

    def release_some(self) -> bool:
        """Release unaccepted deliveries, and end subscriptions and exclusive queues, one with each call.

        In this order: a queue that is deleted with its last subscriber sends its messages to its alternate exchange.
        """
        if not self.ended:
            self._end()
            return True
        if self.subscriptions:
            _, subscription = self.subscriptions.popitem()
            subscription.end()
            return True
        return self.client.abandon_queue()

    def _end(self) -> None:
        self.ended = True
        self.timeouts.end()
        transactions.session_ended(self)
        for act in self.at_end:
            act()
        self.at_end.clear()
        unsettled.release_all(self)

    def on_ended(self) -> None:
        self.client.leave()


def set_of(ids: list[Id]) -> SequenceSet:
    """Return ids, in the order in which they came, as ranges."""
    first, last = ids[0], ids[-1]
    if last - first == len(ids) - 1:
        return SequenceSet.of((first, last))
    found = SequenceSet()
    for id in ids:
        found.add(id)
    return found


COMMANDS: Final[Mapping[type[Command], Callable[..., None]]] = {
    c.MessageAccept: unsettled.message_accept,
    c.MessageReject: unsettled.message_reject,
    c.MessageRelease: unsettled.message_release,
    c.MessageAcquire: unsettled.message_acquire,
    **subscriptions.HANDLERS,
    **transactions.HANDLERS,
    **declarations.HANDLERS,
    **distributed.HANDLERS,
}
