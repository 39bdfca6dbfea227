"""Faults that a test asks for: what happens to clients, messages and confirms on a bad day.

    broker.faults.nack(queue="orders", after=3, count=1)
    broker.faults.disconnect(exchange="events", probability=0.1, seed=7)
    with broker.faults.fill_disk():
        ...

A fault strikes at what matches it: messages to a queue or an exchange, or that a connection publishes. It lets the
first `after` pass, then strikes with a `probability`, by a generator of its own seed, `count` times at most. `hits`
tells how often it has struck.

    hear ── bytes of a client ──> held by `block` and `delay_connection`, else to its front-end, byte by byte where a
            │                     fault ends connections or confirms, so that it strikes between two messages
            └─ publish ── Interceptors of the node ──> `FaultChain`: refuses, delays, duplicates, notes what is dropped

Both are put into the node with the first fault, and taken out with the last one: no other message or byte pays for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import attrs

from leveret.errors import LimitReached, PreconditionFailed
from leveret.interceptors.chain import Chain
from leveret.limits import VirtualHostLimits
from leveret.message import Message
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.broker import Broker, Publisher
    from leveret.exchanges.exchange_type import Exchange
    from leveret.queues.queue import Queue
    from leveret.server.node.transport import Transport
    from leveret.testing.driven_node import DrivenNode

LOW_ON_DISK: Final = "low on disk"
LOW_ON_MEMORY: Final = "low on memory"
OF_MESSAGES: Final = ("nack", "drop_confirm", "disconnect", "drop", "duplicate", "delay")


class Fault:
    """One fault, until `clear` or the end of its `with` block. Made by `Faults`."""

    def __init__(
        self,
        plan: FaultPlan,
        virtual_host: str,
        kind: str,
        queue: str | None = None,
        exchange: str | None = None,
        connection: str | None = None,
        after: int = 0,
        count: int | None = None,
        probability: float = 1.0,
        seed: int = 0,
        seconds: float = 0.0,
    ) -> None:
        if after < 0 or (count is not None and count < 0):
            raise ValueError("after and count are 0 or more")
        if not 0 <= probability <= 1:
            raise ValueError("a probability is between 0 and 1")
        if seconds < 0:
            raise ValueError("a delay is 0 seconds or more")
        self.virtual_host = virtual_host
        self.kind = kind
        self.queue = queue
        self.exchange = exchange
        self.connection = connection
        self.hits = 0  # times that it has struck
        self.seconds = seconds
        self._plan = plan
        self._after = after
        self._count = count
        self._probability = probability
        self._random = Random(seed)

    def strikes(self) -> bool:
        """Return whether it strikes at something that matches it."""
        if self._after > 0:
            self._after -= 1
            return False
        if self._count is not None and self.hits >= self._count:
            return False
        if self._probability < 1 and self._random.random() >= self._probability:
            return False
        self.hits += 1
        return True

    def clear(self) -> None:
        """End the fault. What it held back goes on: bytes that were not read, confirms that were not sent."""
        self._plan.remove([self])

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()


class Where(TypedDict, total=False):
    """The messages that a fault matches, and how often it strikes at them."""

    queue: str  # messages that are routed to it
    exchange: str  # messages that are published to it
    connection: str  # messages of the connection with this name
    after: int  # messages that pass before
    count: int  # times that it strikes at most
    probability: float  # with which it strikes
    seed: int  # of the generator for that


class Faults:
    """The faults of one broker of tests (`LeveretBroker.faults`). All end with it, or with `clear`.

    `queue`, `exchange` and `connection` say what a fault matches; without them it matches every message that a client
    publishes. A connection is known by the name that its client gave it (`connection_name`, in AMQP 1.0 its container
    id). Each method returns the `Fault`, and raises ValueError for a number that makes no sense.
    """

    def __init__(self, plan: FaultPlan, virtual_host: str) -> None:
        self._plan = plan
        self._virtual_host = virtual_host

    def drop(self, **where: Unpack[Where]) -> Fault:
        """Lose messages: they are confirmed, and never arrive in the queue, or in any queue of the exchange.

        Streams lose nothing.
        """
        return self._set("drop", **where)

    def duplicate(self, **where: Unpack[Where]) -> Fault:
        """Have messages arrive twice, in the queue or in all that they are routed to."""
        return self._set("duplicate", **where)

    def delay(self, seconds: float, **where: Unpack[Where]) -> Fault:
        """Have messages wait for so long before consumers get them; `broker.clock.advance` ends it."""
        return self._add(Fault(self._plan, self._virtual_host, "delay", **where, seconds=seconds))

    def nack(self, **where: Unpack[Where]) -> Fault:
        """Refuse messages: `basic.nack`, the outcome rejected, an exception of 0-10; without confirms they vanish."""
        return self._set("nack", **where)

    def drop_confirm(self, **where: Unpack[Where]) -> Fault:
        """Take a message, and send no confirm of it, nor of those that follow it on its channel, link or session.

        It is in its queue. The confirms are sent when the fault is cleared, unless the connection has ended.
        """
        return self._set("drop_confirm", **where)

    def disconnect(self, **where: Unpack[Where]) -> Fault:
        """Take a message, then cut the connection that has published it, before the confirm."""
        return self._set("disconnect", **where)

    def refuse(
        self, after: int = 0, count: int | None = None, probability: float = 1.0, seed: int = 0
    ) -> Fault:
        """Refuse connections: logging in succeeds, and opening the virtual host fails, as at its limit."""
        return self._add(
            Fault(self._plan, self._virtual_host, "refuse", None, None, None, after, count, probability, seed)
        )

    def block(self, connection: str | None = None) -> Fault:
        """Read nothing more from connections, as if the network had swallowed what they send, until it is cleared."""
        return self._add(Fault(self._plan, self._virtual_host, "block", connection=connection))

    def delay_connection(self, seconds: float, connection: str | None = None) -> Fault:
        """Read what connections send so much later, as over a slow network."""
        return self._add(
            Fault(self._plan, self._virtual_host, "delay_connection", connection=connection, seconds=seconds)
        )

    def cut(self, connection: str | None = None) -> int:
        """Cut the connections that are open now, without a goodbye. Return how many there were."""
        return self._plan.cut(self._virtual_host, connection)

    def fill_disk(self) -> Fault:
        """Raise the alarm of a full disk: publishers are held back, and told so where their protocol can."""
        return self._set("fill_disk")

    def fill_memory(self) -> Fault:
        """Raise the alarm of too little memory, which does the same."""
        return self._set("fill_memory")

    def clear(self) -> None:
        """End all faults of this broker."""
        self._plan.remove_all(self._virtual_host)

    def _set(self, kind: str, **where: Unpack[Where]) -> Fault:
        return self._add(Fault(self._plan, self._virtual_host, kind, **where))

    def _add(self, fault: Fault) -> Fault:
        self._plan.add(fault)
        return fault


@attrs.define
class HeldBytes:
    """Bytes that a connection has sent and its front-end has not got."""

    transport: Transport
    data: bytes
    due_at: float  # monotonic seconds


class FaultPlan:
    """The faults of one node, in all its virtual hosts. Its methods are called in the test's thread."""

    def __init__(self, node: DrivenNode) -> None:
        self._node = node
        self._faults: list[Fault] = []
        self._held: list[HeldBytes] = []
        self._silenced: dict[Publisher, Fault] = {}
        self._chain: FaultChain | None = None

    def faults(self, virtual_host: str) -> Faults:
        """Return what sets the faults of a virtual host."""
        return Faults(self, virtual_host)

    def add(self, fault: Fault) -> None:
        self._node.call(self._add, fault)

    def remove(self, faults: list[Fault]) -> None:
        self._node.call(self._remove, faults)

    def remove_all(self, virtual_host: str) -> None:
        self._node.call(self.forget, virtual_host)

    def cut(self, virtual_host: str, connection: str | None) -> int:
        def cut() -> list[Transport]:
            found = [each for each in self._transports() if is_of(each, virtual_host, connection)]
            for each in found:
                each.hang_up()
            return found

        found = self._node.call(cut)
        while any(each in found for each in self._node.call(self._transports)):
            pass  # each call lets the node go on with its tasks
        return len(found)

    # In the node's thread.

    def forget(self, virtual_host: str) -> None:
        """End all faults of a virtual host; called in the node's thread."""
        self._remove([each for each in self._faults if each.virtual_host == virtual_host])

    def of(self, virtual_host: str, *kinds: str) -> Iterator[Fault]:
        """Yield the faults of these kinds in a virtual host."""
        return (each for each in self._faults if each.virtual_host == virtual_host and each.kind in kinds)

    def heard(self) -> Transport | None:
        """Return the connection whose bytes are being processed; None if there is none."""
        fed = self._node.node.fed
        return next((each for each in self._transports() if each is fed), None)

    @property
    def _broker(self) -> Broker:
        return self._node.node.broker

    def _transports(self) -> list[Transport]:
        return list(self._node.node.transports.values())

    def _add(self, fault: Fault) -> None:
        if not self._faults:
            self._install()
        self._faults.append(fault)
        if fault.kind == "refuse":
            host = self._broker.virtual_host(fault.virtual_host)
            host.limits = Refusing.of(host.limits, fault)
        elif fault.kind == "fill_disk":
            self._broker.alarms.set(LOW_ON_DISK)
        elif fault.kind == "fill_memory":
            self._broker.alarms.set(LOW_ON_MEMORY)

    def _remove(self, faults: list[Fault]) -> None:
        for fault in faults:
            if fault not in self._faults:
                continue
            self._faults.remove(fault)
            self._undo(fault)
        if not self._faults and self._chain is not None:
            self._uninstall()

    def _undo(self, fault: Fault) -> None:
        kinds = {each.kind for each in self._faults}
        if (
            fault.kind == "refuse"
            and (host := self._broker.virtual_hosts.get(fault.virtual_host)) is not None
        ):
            host.limits = Refusing.without(host.limits, fault)
        if fault.kind == "fill_disk" and "fill_disk" not in kinds:
            self._broker.alarms.clear(LOW_ON_DISK)
        if fault.kind == "fill_memory" and "fill_memory" not in kinds:
            self._broker.alarms.clear(LOW_ON_MEMORY)
        told = [publisher for publisher, by in self._silenced.items() if by is fault]
        for publisher in told:
            del self._silenced[publisher]
        self._broker.publishers.extend(told)
        if fault.kind in ("block", "delay_connection"):
            self._hear_held()

    def _install(self) -> None:
        node = self._node.node
        self._chain = FaultChain(self, node.broker)
        node.broker.intercept(self._chain)
        node.hears_instead = self._hear

    def _uninstall(self) -> None:
        node = self._node.node
        assert self._chain is not None
        node.broker.intercept(self._chain.before)
        self._chain = None
        node.hears_instead = None

    # Bytes.

    def _hear(self, transport: Transport, data: bytes) -> float:
        """Called in the place of `Node.hear` while there are faults."""
        facts = None if transport.front is None else transport.front.facts()
        if facts is None:
            return self._node.node.hear(transport, data)
        host, now = facts.virtual_host, self._broker.tick()
        due_at = now
        for fault in self.of(host, "block", "delay_connection"):
            if is_of(transport, host, fault.connection):
                fault.hits += 1
                due_at = float("inf") if fault.kind == "block" else max(due_at, now + fault.seconds)
        if due_at > now or any(each.transport is transport for each in self._held):
            self._held.append(HeldBytes(transport, data, due_at))
            if due_at < float("inf"):
                self._broker.timers.at(due_at, self._hear_due)
            return now
        return self._hear_now(transport, data, host)

    def _hear_now(self, transport: Transport, data: bytes, host: str) -> float:
        now = self._broker.now
        if not any(self.of(host, "drop_confirm", "disconnect", "drop")):
            return self._node.node.hear(transport, data)
        assert self._chain is not None
        # Without bytes a connection goes on with what it has left, after the turns of others.
        for piece in [data[at : at + 1] for at in range(len(data))] or [data]:
            now = self._node.node.hear(transport, piece)
            if self._chain.has_published:
                self._chain.has_published = False
                if not self._after_publish(transport):
                    break
                self._node.node.conclude()
        return now

    def _after_publish(self, transport: Transport) -> bool:
        """Let faults strike at the message that was just published. Return False if its connection is cut."""
        chain, publishers = self._chain, self._broker.publishers
        assert chain is not None
        chain.lose()
        if chain.silencing is not None:
            fault, chain.silencing = chain.silencing, None
            self._silenced |= dict.fromkeys(publishers, fault)
        if chain.cutting:
            chain.cutting = False
            publishers.clear()
            transport.hang_up()
            return False
        publishers[:] = [each for each in publishers if each not in self._silenced]
        return True

    def _hear_due(self, now: float) -> None:
        """Hear what was delayed, in the order in which it came; nothing overtakes what is held of its connection."""
        waiting: set[Transport] = set()
        held, self._held = self._held, []
        for each in held:
            if each.transport in waiting or each.due_at > now:
                waiting.add(each.transport)
                self._held.append(each)
            elif each.transport.outbox in self._node.node.transports:
                self._node.node.hear(each.transport, each.data)

    def _hear_held(self) -> None:
        for each in self._held:
            each.due_at = self._broker.now
        self._hear_due(self._broker.now)


class FaultChain(Chain):
    """The node's interceptors, and after them the faults of what is published."""

    def __init__(self, plan: FaultPlan, broker: Broker) -> None:
        before = broker.interceptors
        super().__init__(before.links if before is not None else (), broker.clock, broker.slow_call_s)
        self.before = before
        self.has_published = False  # something was, by the connection that is being heard
        self.silencing: Fault | None = None
        self.cutting = False
        self._plan = plan
        self._broker = broker
        self._losing: list[tuple[WorkQueue, Message]] = []

    def incoming(self, exchange: Exchange, message: Message) -> Message:
        message = super().incoming(exchange, message)
        self.has_published = True
        faults = list(self._plan.of(exchange.virtual_host.name, *OF_MESSAGES))
        struck = [each for each in faults if self._matches(each, exchange, message) and each.strikes()]
        if any(each.kind == "nack" for each in struck):
            raise PreconditionFailed("refused by a fault of the test")
        for fault in struck:
            self._strike(fault, exchange, message)
        return message

    def _matches(self, fault: Fault, exchange: Exchange, message: Message) -> bool:
        if fault.exchange is not None and fault.exchange != exchange.name:
            return False
        if fault.connection is not None:
            transport = self._plan.heard()
            if transport is None or not is_of(transport, fault.virtual_host, fault.connection):
                return False
        return fault.queue is None or any(
            queue.name == fault.queue for queue in self._queues(exchange, message)
        )

    def _queues(self, exchange: Exchange, message: Message) -> tuple[Queue, ...]:
        return self._broker.route(exchange, message).queues

    def _strike(self, fault: Fault, exchange: Exchange, message: Message) -> None:
        if fault.kind == "delay":
            due_ms = round((self._broker.clock.wall() + fault.seconds) * 1000)
            message.facts = message.facts.due_at(due_ms)
        elif fault.kind == "drop_confirm":
            self.silencing = fault
        elif fault.kind == "disconnect":
            self.cutting = True
        else:
            queues = [each for each in self._queues(exchange, message) if fault.queue in (None, each.name)]
            if fault.kind == "duplicate":
                self._broker.deliver(message, queues)
            else:
                self._losing += [(each, message) for each in queues if isinstance(each, WorkQueue)]

    def lose(self) -> None:
        """Take the messages that are to be lost out of the queues that have just got them."""
        losing, self._losing = self._losing, []
        for queue, message in losing:
            last = next((each for each in queue.waiting() if each.message is message), None)
            if last is not None and (taken := queue.acquire(last.position)) is not None:
                queue.accept(taken)


class Refusing(VirtualHostLimits):
    """The limits of a virtual host that refuses connections while faults say so."""

    faults: tuple[Fault, ...] = ()

    @classmethod
    def of(cls, limits: VirtualHostLimits, fault: Fault) -> Refusing:
        faults = limits.faults if isinstance(limits, cls) else ()
        return cls.with_faults(limits, (*faults, fault))

    @classmethod
    def without(cls, limits: VirtualHostLimits, fault: Fault) -> VirtualHostLimits:
        left = tuple(each for each in limits.faults if each is not fault) if isinstance(limits, cls) else ()
        if left:
            return cls.with_faults(limits, left)
        return VirtualHostLimits(limits.max_connections, limits.max_queues, limits.max_publish_rate)

    @classmethod
    def with_faults(cls, limits: VirtualHostLimits, faults: tuple[Fault, ...]) -> Refusing:
        made = cls(limits.max_connections, limits.max_queues, limits.max_publish_rate)
        object.__setattr__(made, "faults", faults)
        return made

    def require_connection(self, virtual_host: str, user: str, open_now: int) -> None:
        if any(fault.strikes() for fault in self.faults):
            raise LimitReached(
                f"access to vhost '{virtual_host}' refused for user '{user}': a fault of the test"
            )
        super().require_connection(virtual_host, user, open_now)


def is_of(transport: Transport, virtual_host: str, connection: str | None) -> bool:
    """Return whether a connection is in a virtual host, and has the name that its client gave it; None: any name."""
    facts = None if transport.front is None else transport.front.facts()
    if facts is None or facts.virtual_host != virtual_host:
        return False
    return connection is None or connection in (
        facts.client_properties.get("connection_name"),
        facts.container_id,
    )
