"""Stand-ins to test an exchange type without a broker: queues that are lists, and a clock moved by hand.

    bench = Bench(Longest)
    jobs = bench.bind("jobs", key="a")
    bench.publish("some.key")
    assert len(jobs.messages) == 1

The exchange on the bench is a real `Exchange`; only its surroundings are fake. There is no routing beyond it: a
destination that is an exchange collects messages like a queue, and there are no alternates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import attrs

from leveret.broker import Broker
from leveret.clock import ManualClock, Timers
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import HANDLED, Binding, Exchange, ExchangeType, Handled
from leveret.exchanges.selection import Selection, ends
from leveret.exchanges.standard import STANDARD
from leveret.message import Encoding, Facts, Message
from leveret.values import Properties, Table

if TYPE_CHECKING:
    from leveret.catalogue import Catalogue
    from leveret.durable.journal import Journal
    from leveret.exchanges.contract import Host


class FakeEncoding(Encoding):
    """An encoding without bytes: each message has its own instance, which holds the properties."""

    name = "fake"

    def __init__(self, properties: Properties) -> None:
        self._properties = properties

    def headers(self, properties: bytes) -> Table:
        return self._properties.headers or {}

    def read(self, properties: bytes) -> Properties:
        return self._properties

    def write(self, properties: Properties) -> bytes:
        return b""


def fake_message(
    key: str = "",
    headers: Table | None = None,
    body: bytes = b"",
    cc: tuple[str, ...] = (),
    properties: Properties | None = None,
    exchange: str = "",
) -> Message:
    """Return a message with these properties, for an exchange type to route."""
    properties = attrs.evolve(properties or Properties(), headers=headers)
    facts = Facts(cc=cc, has_headers=headers is not None)
    return Message(FakeEncoding(properties), exchange, key, b"", body, facts)


class FakeDestination(Destination):
    """A queue, or with `is_exchange` another exchange, that keeps its messages in a list."""

    def __init__(self, name: str, is_exchange: bool = False) -> None:
        self.name = name
        self.is_exchange = is_exchange
        self.durable = False
        self.messages: list[Message] = []

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r} with {len(self.messages)} messages>"


class FakeBroker(Broker):
    """A broker with only those attributes and methods that an exchange type may use."""

    def __init__(self, exchange_types: Mapping[str, type[ExchangeType]] = STANDARD) -> None:
        self.clock = self.hands = ManualClock()
        self.timers = Timers()
        self.exchange_types = exchange_types
        self.interceptors = None
        self.journal: Journal | None = None
        self.catalogue: Catalogue | None = None

    def deliver(self, message: Message, destinations: Iterable[Destination]) -> None:
        """Put a message straight into queues; each gets one copy."""
        met, _ = Selection(message).divided(list(destinations))
        for destination in dict.fromkeys(ends(met)):
            assert isinstance(destination, FakeDestination)
            destination.messages.append(message)

    def release_delayed(self, exchange: Exchange, message: Message) -> None:
        """Route a held message as if it were published now."""
        publish(exchange, message)

    def report_route_error(self, exchange: Exchange, error: BaseException, what: str = "") -> None:
        """Raise the error, so that a test cannot overlook it."""
        raise error


class FakeVirtualHost:
    def __init__(self, broker: FakeBroker, name: str = "/") -> None:
        self.broker = broker
        self.name = name
        self.revision = 0


def publish(exchange: Exchange, message: Message) -> None:
    """Route a message, deliver it, and let the type keep it, as the broker does."""
    answer = exchange.type.route(message)
    if answer is not HANDLED:
        exchange.broker.deliver(message, answer)
    exchange.type.keep(message)


class Bench:
    """An exchange of the type under test, with methods to use it; they validate as the broker does."""

    def __init__(
        self,
        type_class: type[ExchangeType],
        arguments: Table | None = None,
        exchange_types: Mapping[str, type[ExchangeType]] = STANDARD,
    ) -> None:
        """Declare the exchange. Raises PreconditionFailed if the type refuses the arguments.

        `exchange_types` are the registered types, for a type that is built on others.
        """
        self.broker = FakeBroker(exchange_types)
        self._type_class = type_class
        self._arguments = arguments
        self.exchange = self._declared()
        self._destinations: dict[tuple[bool, str], FakeDestination] = {}

    def _declared(self) -> Exchange:
        self._type_class.validate(self._arguments or {})
        host = cast("Host", FakeVirtualHost(self.broker))
        return Exchange(host, "bench", self._type_class, arguments=self._arguments)

    def destination(self, name: str, is_exchange: bool = False) -> FakeDestination:
        """Return the queue (or exchange) of that name, always the same one."""
        return self._destinations.setdefault((is_exchange, name), FakeDestination(name, is_exchange))

    def binding(self, name: str, key: str, arguments: Table | None, is_exchange: bool) -> Binding:
        """Return a binding to the destination of that name, which is not in force."""
        return Binding(self.exchange, self.destination(name, is_exchange), key, arguments or {})

    def bind(
        self, name: str, key: str = "", arguments: Table | None = None, is_exchange: bool = False
    ) -> FakeDestination:
        """Bind the queue (or exchange) of that name and return it. Raises PreconditionFailed if the type refuses."""
        binding = self.binding(name, key, arguments, is_exchange)
        if binding.identity not in self.exchange.bindings_by_identity:
            self.exchange.type.validate_binding(key, binding.arguments)
            binding.select(self.exchange.type.binding_selector(binding.arguments))
            self.exchange.bindings_by_identity[binding.identity] = binding
            try:
                self.exchange.type.bind(binding)
            except BaseException:
                del self.exchange.bindings_by_identity[binding.identity]
                raise
        return self.destination(name, is_exchange)

    def unbind(
        self, name: str, key: str = "", arguments: Table | None = None, is_exchange: bool = False
    ) -> None:
        """Remove a binding, which must exist."""
        wanted = self.binding(name, key, arguments, is_exchange)
        self.exchange.type.unbind(self.exchange.bindings_by_identity.pop(wanted.identity))

    def route(self, message: Message) -> set[str] | Handled:
        """Return the names of the destinations that the type answers with, or HANDLED; nothing is delivered."""
        answer = self.exchange.type.route(message)
        return HANDLED if answer is HANDLED else {destination.name for destination in answer}

    def publish(self, key: str = "", headers: Table | None = None, body: bytes = b"") -> Message:
        """Publish through the exchange; the `messages` of its destinations show the effect."""
        message = fake_message(key, headers, body)
        publish(self.exchange, message)
        return message

    def restart(self) -> None:
        """Simulate a restart of the node. The exchange gets back the messages that it held, as if all were durable."""
        before, self.exchange = self.exchange, self._declared()
        self.broker.timers = Timers()
        for binding in before.bindings:
            self.bind(binding.end.name, binding.key, binding.arguments, binding.end.is_exchange)
        if before.holding is not None:
            self.exchange.hold_again(list(before.holding.held))

    def advance(self, seconds: float) -> None:
        """Advance the clock, and run the timers that are due."""
        self.broker.hands.advance(seconds)
        self.broker.timers.run(self.broker.clock.now())
