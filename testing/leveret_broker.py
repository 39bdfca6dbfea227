"""A broker under observation by a test: its URL, and the messages published, waiting, or not acknowledged.

    with ThreadedNode() as node, fresh_broker(node) as broker:
        run_the_shop(broker.url)
        [order] = broker.published("orders", count=1)
        assert order.key == "order.created"

Each `LeveretBroker` is a virtual host of its own with a user of its own, in a node that may be shared: creating and
deleting one costs well under a millisecond. Whatever a client has written to its socket before a question is part of
the answer. `count` waits for so many, and fails with a description of what there is instead.

Publishes are noted by exchange types that record what they route; they replace the real ones of these virtual hosts
only. To wait is to be notified after each settle of the broker: there is no polling and no sleep.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from leveret.broker import Broker, Publisher
from leveret.exchanges.exchange_type import Exchange, ExchangeType
from leveret.message import Message
from leveret.queues.queue import Queue
from leveret.server.node.listener import amqp_url
from leveret.server.node.node import Node
from leveret.server.node.threaded import ThreadedNode
from leveret.testing.driven_node import DrivenNode, NodeTime
from leveret.testing.faults import Faults
from leveret.values import Json, Properties, Table
from leveret.virtual_host import VirtualHost

if TYPE_CHECKING:
    import pika  # type: ignore[import-untyped]

T = TypeVar("T")

TIMEOUT_S: Final = 5.0
SHOWN_MAX: Final = 20  # messages in an explanation
BODY_SHOWN_MAX: Final = 200  # bytes of each

_numbers = itertools.count(1)


@attrs.frozen
class PublishedMessage:
    """A message as it was published."""

    exchange: str
    key: str
    body: bytes
    headers: Table
    properties: Properties = attrs.field(repr=False, eq=False)  # all of them, by their neutral names

    @classmethod
    def of(cls, message: Message) -> PublishedMessage:
        properties, body = message.encoding.convert(message)
        return cls(message.exchange, message.key, body, properties.headers or {}, properties)

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    def json(self) -> Json:
        """The body, parsed as JSON."""
        parsed: Json = json.loads(self.body)
        return parsed

    def line(self) -> str:
        """Return the message as a line of an explanation."""
        body = repr(self.body[:BODY_SHOWN_MAX]) + ("..." if len(self.body) > BODY_SHOWN_MAX else "")
        headers = f", headers {dict(self.headers)!r}" if self.headers else ""
        return f"key {self.key!r}, body {body}{headers}"


@contextmanager
def fresh_broker(node: ThreadedNode) -> Iterator[LeveretBroker]:
    """Provide an empty virtual host of a running node, with a user that may do everything there and nothing else."""
    broker = LeveretBroker(node, f"test-{next(_numbers)}")
    node.call(broker.open)
    try:
        yield broker
    finally:
        node.call(broker.close)


class LeveretBroker:
    """A virtual host under observation: its `url`, and `host`, `port`, `user`, `password`, `virtual_host`; its `node`.

    Created by `fresh_broker`, or by the fixture `leveret_broker`. A test calls all but `open` and `close`.
    """

    node: ThreadedNode
    host: str
    port: int
    user: str
    password: str
    virtual_host: str
    url: str

    def __init__(self, node: ThreadedNode, name: str) -> None:
        self.node = node
        self.virtual_host = self.user = self.password = name
        self.host = node.host
        self.port = node.port
        self.url = amqp_url(f"{node.host}:{node.port}", name, name, name)
        self._notes: RecordingTypes

    @property
    def amqp10_hostname(self) -> str:
        """The hostname that a client of AMQP 1.0 opens, which names the virtual host there as a URL's path does."""
        return f"vhost:{self.virtual_host}"

    @property
    def faults(self) -> Faults:
        """The faults that this broker can be asked for. Raises RuntimeError if its node is not a `DrivenNode`."""
        return self._driven().plan.faults(self.virtual_host)

    @property
    def clock(self) -> NodeTime:
        """The time of the node: `broker.clock.advance(3600)`. Raises RuntimeError if it is not a `DrivenNode`."""
        return self._driven().clock

    def _driven(self) -> DrivenNode:
        if not isinstance(self.node, DrivenNode):
            raise RuntimeError("faults and time are those of a DrivenNode (leveret.testing.driven_node)")
        return self.node

    @property
    def parameters(self) -> pika.URLParameters:
        """The URL as a `pika.URLParameters`. Raises ImportError without pika."""
        import pika

        return pika.URLParameters(self.url)

    def open(self) -> None:
        """Create the virtual host and its user; called in the broker's thread."""
        broker = self.node.node.broker
        self._notes = RecordingTypes.of(broker)
        host = broker.add_virtual_host(self.virtual_host)
        host.default_exchange.replace_type(self._notes.noting(type(host.default_exchange.type)))
        broker.access.add_user(self.user, self.password)
        broker.access.set_permissions(self.user, self.virtual_host, ".*", ".*", ".*")

    def close(self) -> None:
        """Disconnect clients and delete everything; called in the broker's thread."""
        broker = self.node.node.broker
        if isinstance(self.node, DrivenNode):
            self.node.plan.forget(self.virtual_host)
        broker.delete_virtual_host(self.virtual_host)
        broker.access.delete_user(self.user)
        self._notes.forget(self.virtual_host)

    def _state(self) -> VirtualHost:
        return self.node.node.broker.virtual_host(self.virtual_host)

    def _published(self, exchange: str) -> list[Message]:
        return list(self._notes.published.get((self.virtual_host, exchange), ()))

    def _queue(self, name: str) -> Queue | None:
        return self._state().queues.get(name)

    def published(
        self, exchange: str, count: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[PublishedMessage]:
        """Return the messages published to an exchange, in order, routed or not, dead letters included.

        With `count` it waits for so many, and raises AssertionError if there are fewer in the end, or more.
        """
        __tracebackhide__ = True

        def found() -> list[Message]:
            return self._published(exchange)

        def known() -> bool:
            return bool(found()) or exchange in self._state().exchanges

        messages = self._counted(found, count, timeout_s, lambda: len(found()) >= (count or 0))
        if messages is None or (count is None and not self._ask(known)):
            what = f"published to {exchange_name(exchange)}"
            missing = "" if self._ask(known) else f"there is no exchange '{exchange}'"
            raise AssertionError(self._explained(what, count, timeout_s, self._ask(found), missing))
        return [PublishedMessage.of(message) for message in messages]

    def queue(
        self, name: str, count: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[PublishedMessage]:
        """Return the messages that wait in a queue, in the order in which they would be delivered.

        With `count` it waits until there are so many, and raises AssertionError if that does not happen.
        """
        __tracebackhide__ = True

        def found() -> list[Message]:
            queue = self._queue(name)
            return [] if queue is None else [delivery.message for delivery in queue.waiting()]

        def reached() -> bool:
            return self._queue(name) is not None and len(found()) == count

        messages = self._counted(found, count, timeout_s, reached)
        missing = "" if self._ask(lambda: self._queue(name) is not None) else f"there is no queue '{name}'"
        if messages is None or missing:
            what = f"waiting in queue '{name}'"
            raise AssertionError(self._explained(what, count, timeout_s, self._ask(found), missing))
        return [PublishedMessage.of(message) for message in messages]

    def unacked(self, queue: str, count: int | None = None, timeout_s: float = TIMEOUT_S) -> int:
        """Return how many messages of a queue are delivered but not acknowledged. `count` as in `queue`."""
        __tracebackhide__ = True
        return self._number(queue, "not acknowledged yet, of queue", lambda q: q.unsettled, count, timeout_s)

    def consumers(self, queue: str, count: int | None = None, timeout_s: float = TIMEOUT_S) -> int:
        """Return how many consumers a queue has. `count` as in `queue`."""
        __tracebackhide__ = True
        return self._number(queue, "consumers of queue", lambda q: len(q.consumers), count, timeout_s)

    def wait_until(
        self, condition: Callable[[VirtualHost], object], timeout_s: float = TIMEOUT_S, what: str = "it"
    ) -> None:
        """Wait until a condition on the virtual host holds. It is evaluated in the broker's thread, after every change.

        Raises AssertionError, naming `what`, if it does not hold in time; and whatever the condition raises.
        """
        __tracebackhide__ = True
        if not self._wait(lambda: bool(condition(self._state())), timeout_s):
            raise AssertionError(f"{what} did not come true within {timeout_s:g} s\n{self._overview()}")

    def _number(
        self, name: str, what: str, number_of: Callable[[Queue], int], count: int | None, timeout_s: float
    ) -> int:
        __tracebackhide__ = True

        def found() -> int | None:
            queue = self._queue(name)
            return None if queue is None else number_of(queue)

        number = self._counted(found, count, timeout_s, lambda: found() == count)
        if number is None:
            there = self._ask(found)
            counted = "" if count is None else f"{count} {what} '{name}' expected within {timeout_s:g} s, "
            missing = f"there is no queue '{name}'" if there is None else f"found {there}"
            raise AssertionError(f"{counted}{missing}\n{self._overview()}")
        return number

    def _ask(self, question: Callable[[], T]) -> T:
        return self.node.call(question)

    def _counted(
        self, found: Callable[[], T], count: int | None, timeout_s: float, reached: Callable[[], bool]
    ) -> T | None:
        """Return what is found once `count` is reached; None if it is not, or if there are more by then."""
        self.node.wait(Node.quiet)
        if count is not None and not self._wait(reached, timeout_s):
            return None
        answer = self._ask(found)
        return None if isinstance(answer, list) and count not in (None, len(answer)) else answer

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        waiter = Waiter(self.node.node.broker, condition)
        self.node.call(waiter.taken, 0)
        try:
            waiter.answer.result(timeout_s)
        except TimeoutError:
            return self.node.call(waiter.give_up)
        return True

    def _explained(
        self, what: str, count: int | None, timeout_s: float, found: list[Message], missing: str
    ) -> str:
        number = "messages" if count is None else "1 message" if count == 1 else f"{count} messages"
        within = "" if count is None else f" within {timeout_s:g} s"
        lines = [f"{number} expected {what}{within}, {missing or f'found {len(found)}'}"]
        lines += [
            f"  {at}. {PublishedMessage.of(message).line()}"
            for at, message in enumerate(found[:SHOWN_MAX], 1)
        ]
        if len(found) > SHOWN_MAX:
            lines.append(f"  and {len(found) - SHOWN_MAX} more")
        return "\n".join([*lines, self._overview()])

    def _overview(self) -> str:
        """Return the exchanges and queues and their counts, for an explanation."""
        return self._ask(lambda: "\n".join([*self._exchange_lines(), *self._queue_lines()]))

    def _exchange_lines(self) -> list[str]:
        host = self._state()
        declared = [name for name in host.exchanges if name and not name.startswith("amq.")]
        counts = {name: len(found) for (of, name), found in self._notes.published.items() if of == host.name}
        shown = [
            f"{exchange_name(n)}: {counts.get(n, 0)} published" for n in dict.fromkeys([*declared, *counts])
        ]
        return ["exchanges:", *(f"  {line}" for line in shown or ["none declared, and nothing published"])]

    def _queue_lines(self) -> list[str]:
        shown = [
            f"queue '{q.name}': {q.ready} waiting, {q.unsettled} not acknowledged, {len(q.consumers)} consumers, "
            f"{q.published} arrived, {q.accepted} acknowledged"
            for q in self._state().queues.values()
        ]
        return ["queues:", *(f"  {line}" for line in shown or ["none declared"])]


def exchange_name(name: str) -> str:
    return f"exchange '{name}'" if name else "the default exchange"


class Waiter(Publisher):
    """Evaluates its condition after every settle until it holds."""

    __slots__ = ("_broker", "_condition", "answer")

    def __init__(self, broker: Broker, condition: Callable[[], bool]) -> None:
        self.answer: Future[None] = Future()
        self._broker = broker
        self._condition = condition

    def mark(self) -> int:
        return 0

    def taken(self, mark: int) -> None:
        try:
            if self._condition():
                self.answer.set_result(None)
            else:
                self._broker.publishers.append(self)  # to be called again after the next settle
        except Exception as error:
            self.answer.set_exception(error)

    def give_up(self) -> bool:
        """Stop waiting. Returns whether the condition has come to hold after all."""
        if self in self._broker.publishers:
            self._broker.publishers.remove(self)
        return self.answer.done()


class RecordingTypes(Mapping[str, type[ExchangeType]]):
    """A node's exchange types, each in a version that records what is published through its exchanges."""

    def __init__(self, exchange_types: Mapping[str, type[ExchangeType]]) -> None:
        # by virtual host and exchange; a dict of messages, because a delayed one passes twice
        self.published: dict[tuple[str, str], dict[Message, None]] = {}
        self._exchange_types = exchange_types
        self._noting: dict[type[ExchangeType], type[ExchangeType]] = {}

    @classmethod
    def of(cls, broker: Broker) -> RecordingTypes:
        """Return the broker's own, installing it on the first call."""
        if not isinstance(broker.exchange_types, cls):
            broker.exchange_types = cls(broker.exchange_types)
        return broker.exchange_types

    def __getitem__(self, name: str) -> type[ExchangeType]:
        return self.noting(self._exchange_types[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._exchange_types)

    def __len__(self) -> int:
        return len(self._exchange_types)

    def noting(self, type_class: type[ExchangeType]) -> type[ExchangeType]:
        """Return the type with a `keep` that records the message first."""
        if type_class not in self._noting:

            def keep(of: ExchangeType, message: Message) -> None:
                self.note(of.exchange, message)
                type_class.keep(of, message)

            members = {"keep": keep, "__module__": type_class.__module__}
            self._noting[type_class] = type(type_class.__name__, (type_class,), members)
        return self._noting[type_class]

    def note(self, exchange: Exchange, message: Message) -> None:
        """Record a message if it was published to this exchange, not if a binding led it here."""
        if message.exchange == exchange.name:
            self.published.setdefault((exchange.virtual_host.name, exchange.name), {})[message] = None

    def forget(self, virtual_host: str) -> None:
        self.published = {where: found for where, found in self.published.items() if where[0] != virtual_host}
