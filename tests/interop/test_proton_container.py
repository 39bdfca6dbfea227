"""Qpid Proton's event-driven Container: credit, drain, transactions, and ends that come unasked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from proton import Delivery, Event, Link, Message
from proton.handlers import TransactionHandler
from proton.reactor import LinkOption, Transaction

from tests.harness.settings import ALL, user
from tests.interop.conftest import RunningNode, Start, wait_until
from tests.interop.proton_peer import Script, connect, data

pytestmark = pytest.mark.interop

COUNT = 1000


def fill(node: RunningNode, queue: str, bodies: Sequence[str]) -> None:
    """A queue with messages in it."""
    node.declare(queue)
    connection = connect(node)
    sender = connection.create_sender(f"/queues/{queue}")
    for body in bodies:
        sender.send(Message(body=body))
    connection.close()


# Credit.


class SendAndReceive(Script):
    """As many messages as credit allows; each is accepted on both sides."""

    def begin(self) -> None:
        self.sent = self.accepted = 0
        self.container.create_receiver(self.connection, "/queues/q")
        self.container.create_sender(self.connection, "/queues/q")

    def on_sendable(self, event: Event) -> None:
        while event.sender.credit and self.sent < COUNT:
            event.sender.send(data(str(self.sent).encode()))
            self.sent += 1

    def on_accepted(self, event: Event) -> None:
        self.accepted += 1
        self._look()

    def on_message(self, event: Event) -> None:
        self.found.append(bytes(event.message.body))
        self._look()

    def _look(self) -> None:
        if self.accepted == len(self.found) == COUNT:
            self.finish()


@pytest.mark.parametrize("prefetch", [4, 10, 5000])
def test_a_thousand_messages_go_through(node: RunningNode, prefetch: int):
    node.declare("q")
    assert SendAndReceive(node, prefetch=prefetch).run() == [str(number).encode() for number in range(COUNT)]
    wait_until(lambda: (node.ready("q"), node.unsettled("q")) == (0, 0), "all are settled")


class Drain(Script):
    """Credit for ten, and what is left of it given back."""

    def begin(self) -> None:
        self.receiver = self.container.create_receiver(self.connection, "/queues/q")

    def on_link_opened(self, event: Event) -> None:
        event.receiver.drain(10)

    def on_message(self, event: Event) -> None:
        self.found.append(event.message.body)

    def on_link_flow(self, event: Event) -> None:
        if event.receiver and not event.receiver.credit:
            self.found.append("drained")
            self.finish()


@pytest.mark.parametrize("waiting", [(), ("a", "b", "c")], ids=["empty", "three"])
def test_a_drained_receiver_gets_what_there_is(node: RunningNode, waiting: tuple[str, ...]):
    fill(node, "q", waiting)
    assert Drain(node, prefetch=0).run() == [*waiting, "drained"]


class NoMoreThanAsked(Script):
    """Credit for two, then for one more."""

    def begin(self) -> None:
        self.container.create_receiver(self.connection, "/queues/q")

    def on_link_opened(self, event: Event) -> None:
        event.receiver.flow(2)

    def on_message(self, event: Event) -> None:
        self.found.append(event.message.body)
        if len(self.found) == 2:
            self.container.schedule(0.1, self)

    def on_timer_task(self, event: Event) -> None:
        self.finish()


def test_credit_is_never_exceeded(node: RunningNode):
    fill(node, "q", "abcd")
    assert NoMoreThanAsked(node, prefetch=0).run() == ["a", "b"]
    wait_until(lambda: node.ready("q") == 2, "two were left")


# Settlement.


class Second(LinkOption):
    """The receiver settles after the sender has."""

    def apply(self, link: Link) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND


class Lasting(Second):
    """The target keeps what it has of deliveries."""

    def apply(self, link: Link) -> None:
        super().apply(link)
        link.target.timeout = 30


class SendSecond(Script):
    def __init__(self, node: RunningNode, option: LinkOption) -> None:
        super().__init__(node)
        self.option = option

    def begin(self) -> None:
        self.container.create_sender(self.connection, "/queues/q", options=self.option)

    def on_link_opened(self, event: Event) -> None:
        self.found.append(event.link.remote_rcv_settle_mode)
        event.sender.send(Message(body="hello"))

    def on_accepted(self, event: Event) -> None:
        self.found.append(event.delivery.settled)
        self.finish()


def test_a_sender_may_settle_first(node: RunningNode):
    node.declare("q")
    assert SendSecond(node, Lasting()).run() == [Link.RCV_SECOND, False]
    assert SendSecond(node, Second()).run() == [Link.RCV_FIRST, True]
    assert node.ready("q") == 2


class ReceiveSecond(Script):
    def begin(self) -> None:
        self.container.create_receiver(self.connection, "/queues/q", options=Second())

    def on_message(self, event: Event) -> None:
        event.delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event: Event) -> None:
        self.found.append(event.message.body if event.message else "settled")
        event.delivery.settle()
        self.finish()


def test_a_receiver_may_settle_last(node: RunningNode):
    fill(node, "q", "a")
    assert ReceiveSecond(node, auto_accept=False).run() == ["settled"]
    wait_until(lambda: (node.ready("q"), node.unsettled("q")) == (0, 0), "it is settled")


class Abort(Script):
    """One message is given up when half of it has gone, and another is sent."""

    def begin(self) -> None:
        self.container.create_sender(self.connection, "/queues/q")

    def on_sendable(self, event: Event) -> None:
        if self.found:
            return
        self.found.append("begun")
        self.delivery = event.sender.delivery("1")
        event.sender.stream(data(bytes(200_000)).encode()[:150_000])
        self.sender = event.sender
        self.container.schedule(0.05, self)

    def on_timer_task(self, event: Event) -> None:
        self.delivery.abort()
        self.sender.send(data(b"whole"))

    def on_accepted(self, event: Event) -> None:
        self.found.append("accepted")
        self.finish()


def test_a_message_is_given_up_halfway(node: RunningNode):
    node.declare("q")
    assert Abort(node).run() == ["begun", "accepted"]
    assert node.ready("q") == 1


# Transactions.


class Transacting(Script, TransactionHandler):
    """Receives one message, accepts it in a transaction that also publishes it elsewhere, and discharges that."""

    def __init__(self, node: RunningNode, commit: bool, settle: bool) -> None:
        super().__init__(node, auto_accept=False, prefetch=1)
        self.commit, self.settle = commit, settle

    def begin(self) -> None:
        self.sender = self.container.create_sender(self.connection, "/queues/done")
        self.container.declare_transaction(self.connection, self, settle_before_discharge=self.settle)

    def on_transaction_declared(self, event: Event) -> None:
        self.transaction: Transaction = event.transaction
        self.container.create_receiver(self.connection, "/queues/q")

    def on_message(self, event: Event) -> None:
        self.transaction.send(self.sender, Message(body=event.message.body))
        self.transaction.accept(event.delivery)
        if self.commit:
            self.transaction.commit()
        else:
            self.transaction.abort()

    def on_transaction_committed(self, event: Event) -> None:
        self.found.append("committed")
        self.finish()

    def on_transaction_aborted(self, event: Event) -> None:
        self.found.append("aborted")
        self.finish()

    def on_transaction_declare_failed(self, event: Event) -> None:
        pytest.fail(str(event.delivery.remote.condition))

    on_transaction_commit_failed = on_transaction_declare_failed


@pytest.mark.parametrize("settle", [False, True])
def test_a_committed_transaction_moves_a_message(node: RunningNode, settle: bool):
    fill(node, "q", "a")
    node.declare("done")
    assert Transacting(node, commit=True, settle=settle).run() == ["committed"]
    wait_until(lambda: (node.ready("q"), node.unsettled("q")) == (0, 0), "the message is taken")
    assert node.ready("done") == 1


@pytest.mark.parametrize("settle", [False, True])
def test_an_aborted_transaction_leaves_everything(node: RunningNode, settle: bool):
    fill(node, "q", "a")
    node.declare("done")
    assert Transacting(node, commit=False, settle=settle).run() == ["aborted"]
    wait_until(lambda: (node.ready("q"), node.unsettled("q")) == (1, 0), "the message is back")
    assert node.ready("done") == 0


class DropTransaction(Transacting):
    """Goes away with the transaction open."""

    def on_message(self, event: Event) -> None:
        self.transaction.send(self.sender, Message(body=event.message.body))
        self.transaction.accept(event.delivery)
        self.finish()


def test_a_transaction_that_is_left_open_is_aborted(node: RunningNode):
    fill(node, "q", "a")
    node.declare("done")
    assert DropTransaction(node, commit=True, settle=False).run() == []
    wait_until(lambda: (node.ready("q"), node.unsettled("q")) == (1, 0), "the message is back")
    assert node.ready("done") == 0


# Ends.


class TooLarge(Script):
    """Sends more than the broker takes."""

    def begin(self) -> None:
        self.container.create_sender(self.connection, "/queues/q")

    def on_sendable(self, event: Event) -> None:
        if not self.found:
            self.found.append(event.sender.remote_max_message_size)
            event.sender.send(data(b"x" * (65 << 10)))

    def on_link_error(self, event: Event) -> None:
        self.found.append(event.link.remote_condition.name)
        self.finish()


def test_a_message_above_the_limit_ends_the_link(node_with: Start):
    """S172."""
    node = node_with('limits.message_size_max = "64KiB"')
    node.declare("q")
    assert TooLarge(node).run() == [64 << 10, "amqp:link:message-size-exceeded"]
    assert node.ready("q") == 0


class Wait(Script):
    """Receives until somebody ends it; `found` is how."""

    def begin(self) -> None:
        self.container.create_receiver(self.connection, "/queues/q")

    def on_link_opened(self, event: Event) -> None:
        self.act()

    def act(self) -> None:
        """Provoke the end."""

    def on_connection_remote_close(self, event: Event) -> None:  # on_connection_error passes over "forced"
        if event.connection.remote_condition:
            self.found.append(event.connection.remote_condition.name)
            self.finish()

    def on_link_error(self, event: Event) -> None:
        self.found.append(event.link.remote_condition.name)
        self.finish()


class DeleteQueue(Wait):
    def act(self) -> None:
        self.node.delete("q")


class CloseConnections(Wait):
    def act(self) -> None:
        self.node.close_connections()


@pytest.mark.parametrize(
    ("script", "condition"),
    [(DeleteQueue, "amqp:resource-deleted"), (CloseConnections, "amqp:connection:forced")],
)
def test_who_is_put_out_is_told_why(node: RunningNode, script: type[Wait], condition: str):
    node.declare("q")
    assert script(node).run() == [condition]


class Held(Script):
    """Sends while an alarm is raised, and clears it once nothing has come back for a while."""

    def begin(self) -> None:
        self.node.raise_alarm("memory")
        self.container.create_sender(self.connection, "/queues/q")

    def on_sendable(self, event: Event) -> None:
        if not self.found:
            self.found.append("sent")
            event.sender.send(Message(body="late"))
            self.container.schedule(0.2, self)

    def on_timer_task(self, event: Event) -> None:
        self.found.append("cleared")
        self.node.clear_alarm("memory")

    def on_accepted(self, event: Event) -> None:
        self.found.append("accepted")
        self.finish()


def test_an_alarm_holds_senders_back(node: RunningNode):
    """S162, S163: the window of a session is closed until the alarm is over."""
    node.declare("q")
    assert Held(node).run() == ["sent", "cleared", "accepted"]


class Quiet(Script):
    """Says nothing for longer than the idle time-outs of both sides."""

    def begin(self) -> None:
        self.container.create_receiver(self.connection, "/queues/q")
        self.container.schedule(3.5, self)

    def on_timer_task(self, event: Event) -> None:
        self.found.append("still here")
        self.finish()

    def on_transport_error(self, event: Event) -> None:
        self.found.append(event.transport.condition)


def test_who_is_idle_stays(node_with: Start):
    node = node_with("protocols.amqp10.idle_timeout_s = 2")
    node.declare("q")
    assert Quiet(node).run() == ["still here"]


class Service(Script):
    """Answers requests where their `reply-to` says, as services do that have all their links in one session."""

    def begin(self) -> None:
        self.container.create_receiver(self.connection, "/queues/q")
        self.sender = self.container.create_sender(self.connection, None)

    def on_message(self, event: Event) -> None:
        self.sender.send(Message(address=event.message.reply_to, body=event.message.body))

    def on_accepted(self, event: Event) -> None:
        self.found.append("accepted")
        self.finish()

    def on_rejected(self, event: Event) -> None:
        self.found.append(event.delivery.remote.condition.name)

    def on_session_error(self, event: Event) -> None:
        self.found.append(event.session.remote_condition)
        self.finish()


def test_s182_a_reply_to_that_the_service_may_not_write_to_is_rejected_and_it_goes_on(node_with: Start):
    node = node_with(user("guest", "guest", {"/": {**ALL, "write": r"^amq\.default$"}}))
    node.declare("q")
    node.declare("answers")
    requests = connect(node).create_sender("/queues/q")
    for reply_to in ("/exchanges/amq.fanout", "/queues/answers"):
        requests.send(Message(body="?", reply_to=reply_to))
    assert Service(node).run() == ["amqp:unauthorized-access", "accepted"]
    assert node.ready("answers") == 1
