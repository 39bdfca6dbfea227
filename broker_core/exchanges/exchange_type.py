"""Exchanges and the contract of their types: each exchange has a type, which maps a message to destinations.

`ExchangeType` is the contract for plugins. An exchange owns one instance of its type; the bindings belong to the
exchange, so that a type can be replaced while the node runs: the new instance is told every binding again.

Alternate exchanges, exchange-to-exchange hops, CC/BCC and protection against cycles are the core's work *around* the
type (`routing.py`); a type only returns the destinations of one message from one exchange.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr

from leveret.arguments.exchange_arguments import ExchangeArgument
from leveret.arguments.row import Row
from leveret.arguments.warnings import binding_warnings, exchange_warnings
from leveret.catalogue import BINDING, EXCHANGE
from leveret.clock import NEVER
from leveret.errors import PLUGIN_MISTAKES, PreconditionFailed
from leveret.exchanges.binding_selector import NOTHING, selector_in
from leveret.exchanges.destination import Destination
from leveret.exchanges.held_messages import HeldMessage, HeldMessages
from leveret.values import Table, frozen

if TYPE_CHECKING:
    from leveret.exchanges.contract import Host, Surroundings
    from leveret.exchanges.decorator import ExchangeDecorator
    from leveret.exchanges.duplicates import Duplicates
    from leveret.exchanges.routing import Route
    from leveret.message import Encoding, Message
    from leveret.selectors.parser import Selector

log: Final = logging.getLogger("leveret.exchanges")


class Handled(Enum):
    """The answer of a type whose exchange takes the message itself (`keep`): no destination, and no alternate."""

    HANDLED = "handled"


HANDLED: Final = Handled.HANDLED


class LooksAt(Enum):
    """The part of a message that a type's answer depends on, besides the bindings; decides if routes are cached."""

    NOTHING = "nothing"  # the same for every message (fanout)
    KEY = "key"  # the same for every message with the same routing key (direct, topic)
    # The same for every message with the same key and the same of the headers that `header_names` returns (headers).
    HEADERS = "headers"
    MESSAGE = "message"  # anything else: headers, body, chance, time


LOOKS_AT_HEADERS: Final = LooksAt.HEADERS


class Selected(Destination):
    """The end of a binding with a selector, as its exchange's type sees it. Routing replaces it by the real end."""

    __slots__ = ("durable", "end", "is_exchange", "name", "selector")

    def __init__(self, end: Destination, selector: Selector) -> None:
        self.end = end
        self.selector = selector
        self.name = end.name
        self.is_exchange = end.is_exchange
        self.durable = end.durable

    def __repr__(self) -> str:
        return f"<Selected {self.kind} {self.name!r}>"


class Binding:
    """A binding: source --key, arguments--> end. `identity` tells the bindings of one source apart.

    Types route to the `destination`: the end itself, or a `Selected` if the binding has a selector.
    """

    __slots__ = ("arguments", "destination", "end", "identity", "key", "number", "source")

    def __init__(self, source: Exchange, destination: Destination, key: str, arguments: Table) -> None:
        self.source = source
        self.end = destination
        self.destination = destination
        self.key = key
        self.arguments = arguments
        self.identity = (destination.is_exchange, destination.name, key, frozen(arguments))
        self.number = 0  # in the store

    @property
    def stored_as(self) -> tuple[str, ...]:
        return BINDING, self.source.virtual_host.name, str(self.number)

    @property
    def frozen_arguments(self) -> object:
        """The arguments as `frozen` makes them, to be compared with others quickly."""
        return self.identity[3]

    @property
    def selector(self) -> Selector | None:
        """The condition that messages have to meet; None: there is none."""
        return self.destination.selector if isinstance(self.destination, Selected) else None

    def select(self, selector: Selector | None) -> None:
        """Let only messages through that meet a condition, or all of them. The exchange's type must not have it yet."""
        self.destination = self.end if selector is None else Selected(self.end, selector)

    @property
    def durable(self) -> bool:
        """True if both ends are durable: a binding lasts as long as they do (S059)."""
        return self.source.durable and self.end.durable

    def warnings(self) -> list[str]:
        """Return sentences about the arguments that have no effect."""
        type_ = self.source.type
        return (
            told_by(type_.binding_warnings, self.arguments)
            if self.arguments or type_.binding_arguments
            else []
        )

    def told(self) -> Table:
        """Return the binding's facts for events."""
        return {
            "source_name": self.source.name,
            "source_kind": "exchange",
            "destination_name": self.end.name,
            "destination_kind": self.end.kind,
            "routing_key": self.key,
            "arguments": self.arguments,
        }

    def __repr__(self) -> str:
        return f"<Binding {self.source.name!r} --{self.key!r}--> {self.end.kind} {self.end.name!r}>"


@mypyc_attr(allow_interpreted_subclasses=True)
class ExchangeType(ABC):
    """An exchange type decides how its exchanges route. One instance per exchange; subclass it, name it, write `route`.

    class Longest(ExchangeType):
        name = "x-longest"

        def route(self, message):
            longest = max((b.key for b in self.exchange.bindings), key=len, default=None)
            return [b.destination for b in self.exchange.bindings if b.key == longest]

    Every method is called from the broker's one thread and must not wait. Whatever `route` raises is counted against
    the exchange and logged once; the message then takes the alternate exchange.
    """

    name: ClassVar[str]
    description: ClassVar[str] = ""  # a line for people; by default the first one of the docstring
    looks_at: ClassVar[LooksAt] = LooksAt.MESSAGE
    arguments: ClassVar[tuple[ExchangeArgument, ...]] = ()  # those of a declaration that have a meaning
    argument_names: ClassVar[tuple[str, ...]] = ()  # more that must be equal when the exchange is redeclared
    binding_arguments: ClassVar[tuple[Row, ...]] = ()  # those of bindings with such an exchange as source
    deduplicates: ClassVar[bool] = False  # its exchanges drop duplicates, without an argument that says so

    def __init__(self, exchange: Exchange) -> None:
        """Called when the exchange is declared, and again when the type is reloaded; `bind` follows per binding."""
        self.exchange = exchange

    @abstractmethod
    def route(self, message: Message) -> Iterable[Destination] | Handled:
        """Return the destinations of `message`, from its `key`, `keys`, `headers`, `body` and `facts`.

        Called for each message (or once for each key and topology, see `looks_at`), and for dry runs: it must not
        change anything. Repeated destinations are fine. `HANDLED` means that there is none, that the alternate is not
        to be asked, and that `keep` takes the message.
        """

    def header_names(self) -> dict[bytes, int]:
        """Return the names, as UTF-8, of the headers that `route` looks at, as keys; for `LooksAt.HEADERS`.

        Other headers must make no difference to `route`. They may change with the bindings only.
        """
        raise NotImplementedError

    def keep(self, message: Message) -> None:
        """Called after a message was really published through this exchange (in a transaction: at commit).

        A type that overrides it may remember the message, or `self.exchange.hold` it, having answered `HANDLED`.
        """

    def hold_again(self, held: HeldMessage) -> None:
        """Called when the node starts, after the bindings, for each message that `Exchange.hold` had on disk.

        In the order in which they were held. A type that does not override it has them routed as if published now.
        """
        self.exchange.broker.release_delayed(self.exchange, held.message)
        self.exchange.let_go(held)

    @classmethod
    def validate(cls, arguments: Table) -> None:
        """Called before an exchange is declared. Raise `PreconditionFailed` to refuse its arguments."""

    def validate_binding(self, key: str, arguments: Table) -> None:
        """Called before a binding with this exchange as source is made. Raise `PreconditionFailed` to refuse it."""

    def binding_selector(self, arguments: Table) -> Selector | None:
        """Called before a binding is made. Return the condition that messages have to meet to go through it, if any.

        Raise `PreconditionFailed` to refuse the arguments. By default it is that of `x-filter-jms-selector`.
        """
        return selector_in(arguments)

    def bind(self, binding: Binding) -> None:
        """Called after a binding was added to `self.exchange.bindings`, and for each of them after a reload.

        Raise `PreconditionFailed`, before anything has changed here, to refuse a destination: the binding is taken out.
        """

    def unbind(self, binding: Binding) -> None:
        """Called after a binding was removed from `self.exchange.bindings`."""

    def close(self) -> None:
        """Called when the exchange is deleted or this instance has been replaced by a reload."""

    def state(self) -> object:
        """Return the state that a newer version takes over in a reload (`restore`); None: the bindings suffice."""
        return None

    def restore(self, state: object) -> None:
        """Called on the new instance after its bindings, with what the old one's `state` returned, if not None."""

    def warnings(self, arguments: Table) -> list[str]:
        """Return sentences about arguments of the exchange that have no effect: by default, those without a row."""
        return exchange_warnings(arguments, self.arguments, self.argument_names)

    def binding_warnings(self, arguments: Table) -> list[str]:
        """Return sentences about arguments of a binding that have no effect: `x-` names without a row, by default."""
        return binding_warnings(arguments, self.binding_arguments)

    def equivalent(self, arguments: Table) -> str | None:
        """Called on redeclaration. Return the name of the first argument that differs in meaning, or None."""
        current = self.exchange.arguments
        names = *(row.name for row in self.arguments), *self.argument_names
        return next((name for name in names if current.get(name) != arguments.get(name)), None)


@mypyc_attr(allow_interpreted_subclasses=True)
class Exchange(Destination):
    """A declared exchange has properties, an instance of its type, bindings, and remembered routes."""

    __slots__ = (
        "alternate",
        "arguments",
        "auto_delete",
        "bindings_by_identity",
        "broker",
        "by_headers",
        "decorators",
        "deduplication",
        "durable",
        "holding",
        "internal",
        "is_watched",
        "name",
        "prepares",
        "published",
        "reads_delays",
        "rerouting",
        "route_errors",
        "routes",
        "routes_by_headers",
        "routes_revision",
        "selecting",
        "slow_calls",
        "slowest_s",
        "surplus",
        "type",
        "unroutable",
        "virtual_host",
        "warned_alternate",
    )
    is_exchange = True

    def __init__(
        self,
        virtual_host: Host,
        name: str,
        type_class: type[ExchangeType],
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> None:
        self.virtual_host = virtual_host
        self.broker: Surroundings = virtual_host.broker
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments: Table = arguments or {}
        self.bindings_by_identity: dict[tuple[object, ...], Binding] = {}
        self.selecting = 0  # bindings with a selector
        self.reads_delays = False  # headers of messages may say that these are for later
        self.prepares = False  # there is something to do with a message before it is routed
        self.deduplication: Duplicates | None = None  # the ids that it knows, if it drops duplicates
        self.decorators: tuple[ExchangeDecorator, ...] = ()  # that hear of what happens to it
        self.rerouting: tuple[ExchangeDecorator, ...] = ()  # of these, those that add destinations
        self.alternate: str | None = None  # from argument or policy; the exchange need not exist
        self.warned_alternate: str | None = None  # the missing alternate that has been logged
        self.routes: dict[str, Route] = {}  # by routing key; valid for `routes_revision` of the topology
        # By encoding, routing key, and the octets of the headers that count, where the type looks at headers.
        self.routes_by_headers: dict[tuple[Encoding, str, bytes], Route] = {}
        self.routes_revision = -1
        self.published = 0  # messages
        self.surplus = 0  # copies put into queues beyond the first of each routable message
        self.unroutable = 0  # messages that found no queue, alternate included
        self.route_errors = 0  # exceptions raised by this version of the type
        self.slow_calls = 0  # of this version of the type: the node waited for each
        self.slowest_s = 0.0
        self.is_watched = not is_ours(type_class)  # `begins` and `ends` are called around the type's code
        self.holding: HeldMessages | None = None  # the messages it holds; None until it first holds one
        self.type = type_class(self)
        self.by_headers = looks_at_headers(type_class)  # routes are cached by headers
        self.prepare()

    def prepare(self) -> None:
        """Note whether there is anything to do with messages before they are routed."""
        self.prepares = self.reads_delays or self.broker.interceptors is not None

    def told(self) -> Table:
        """Return the exchange's facts for events."""
        return {
            "name": self.name,
            "type": self.type.name,
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "internal": self.internal,
            "arguments": self.arguments,
        }

    @property
    def stored_as(self) -> tuple[str, ...]:
        return EXCHANGE, self.virtual_host.name, self.name

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} type={self.type.name}>"

    @property
    def bindings(self) -> Collection[Binding]:
        """The bindings with this exchange as source, oldest first."""
        return self.bindings_by_identity.values()

    def deduplicate(self, known: Duplicates | None) -> None:
        """Drop duplicates by the ids that `known` knows from now on, or drop none."""
        assert known is None or not known.of_present, "an exchange knows the last ids"
        self.deduplication = known

    @property
    def repeated(self) -> int:
        """The number of duplicates that it has dropped."""
        return 0 if self.deduplication is None else self.deduplication.repeated

    @property
    def routed(self) -> int:
        """The number of copies that queues got from it, computed so that messages for one queue cost no counting."""
        return self.published - self.unroutable + self.surplus

    def count_copies(self, copies: int, messages: int = 1) -> None:
        """Count published messages of which each went to so many queues; with a negative number of messages, take that
        back."""
        self.surplus += messages * (copies - 1)

    def warnings(self) -> list[str]:
        """Return sentences about the arguments that have no effect."""
        return told_by(self.type.warnings, self.arguments) if self.arguments else []

    def remember_route(self, key: str, route: Route) -> None:
        """Cache the route for messages with this key, until the topology changes."""
        self.virtual_host.routes_remembered += key not in self.routes
        self.routes[key] = route

    def remember_route_by_headers(self, message: Message, octets: bytes, route: Route) -> None:
        """Cache the route for messages with this key and these headers, until the topology changes."""
        self.virtual_host.routes_remembered += 1
        self.routes_by_headers[message.encoding, message.key, octets] = route

    def forget_routes(self) -> None:
        self.virtual_host.routes_remembered -= len(self.routes) + len(self.routes_by_headers)
        self.routes.clear()
        self.routes_by_headers.clear()

    def gone(self) -> None:
        """Called when it has been deleted: drop its cached routes, as it may still be referred to; keep its counts."""
        self.forget_routes()
        self.broker.retired.add_exchange(self)

    def hold(self, message: Message, due: float = NEVER) -> HeldMessage:
        """Hold a message for later; on disk too, if it and the exchange are durable, so that it survives a restart.

        To be called by the exchange's type in `keep`. The type comes back to the result by a timer of its own, at `due`
        (monotonic seconds) or at any other time, and then calls `let_go`. A deleted exchange drops what it holds.
        """
        holding = self.holding
        if holding is None:
            holding = self.begin_to_hold()
            catalogue = self.broker.catalogue
            if catalogue is not None and self.virtual_host.exchanges.get(self.name) is self:
                catalogue.keep(self)
        return holding.hold(message, due)

    def begin_to_hold(self) -> HeldMessages:
        """Create and return the record of the messages that it holds."""
        self.holding = HeldMessages(self)
        return self.holding

    def let_go(self, held: HeldMessage) -> None:
        """Hold a message no longer: it was delivered or is not needed any more. Calling this twice is harmless."""
        if self.holding is not None:
            self.holding.drop([held])

    def hold_again(self, held: Iterable[HeldMessage]) -> None:
        """Take back messages that it held on disk before the start, in their order, and pass them to the type."""
        holding = self.holding or self.begin_to_hold()
        for each in held:
            holding.take_back(each)
            self.give_back(each)

    def give_back(self, held: HeldMessage) -> None:
        """Pass a restored message to the type. If the type raises, the message stays on disk for a better version."""
        try:
            self.type.hold_again(held)
        except PLUGIN_MISTAKES as error:
            self.route_errors += 1
            self.broker.report_route_error(self, error, "failed to hold a message again")

    # How long the type's code takes.

    def begins(self) -> float:
        """Return the monotonic time at which code of the type begins."""
        return self.broker.clock.now()

    def ends(self, method: str, began: float) -> None:
        """Report a method of the type that took so long that clients noticed: nothing else runs meanwhile."""
        broker = self.broker
        took_s = broker.clock.now() - began
        if took_s <= broker.slow_call_s:
            return
        self.slow_calls += 1
        if took_s > 2 * self.slowest_s:  # the first one, and one that is worse by far
            broker.report_slow_call(self, method, took_s)
        self.slowest_s = max(self.slowest_s, took_s)

    def replace_type(self, type_class: type[ExchangeType]) -> None:
        """Switch to a newer version of the type. If that raises anywhere, the old instance stays in place."""
        new = type_class(self)
        before = [(binding, binding.destination) for binding in self.bindings if binding.arguments]
        try:
            for binding in self.bindings:
                binding.select(selector_as_far_as_known(new, binding))
                new.bind(binding)
            if (state := self.type.state()) is not None:
                new.restore(state)
        except BaseException:
            for binding, destination in before:
                binding.destination = destination
            raise
        old, self.type = self.type, new
        self.by_headers = looks_at_headers(type_class)
        self.selecting = len([binding for binding in self.bindings if binding.selector is not None])
        self.route_errors = self.slow_calls = 0  # so that the new version's first error is logged
        self.slowest_s, self.is_watched = 0.0, not is_ours(type_class)
        self.virtual_host.revision += 1  # cached routes are the old type's answers
        old.close()


def selector_as_far_as_known(type_: ExchangeType, binding: Binding) -> Selector | None:
    """Return the selector of a binding that exists already; if it cannot be read today, one that nothing meets."""
    try:
        return type_.binding_selector(binding.arguments) if binding.arguments else None
    except PreconditionFailed as failure:
        host = binding.source.virtual_host.name
        log.warning("%r in vhost '%s' gets no messages: %s", binding, host, failure)
        return NOTHING


def told_by(warnings: Callable[[Table], list[str]], arguments: Table) -> list[str]:
    """Return what a type says about arguments; its mistake is one more warning."""
    try:
        return list(warnings(arguments))
    except PLUGIN_MISTAKES as error:
        return [f"the type's own look at the arguments failed: {type(error).__name__}: {error}"]


def is_ours(type_class: type[ExchangeType]) -> bool:
    """Return whether a type is part of the core, whose time is not taken."""
    module = str(vars(type_class)["__module__"])  # compiled, it is no attribute
    return module.startswith("leveret.") and not module.startswith("leveret.plugins.")


def inequivalent(
    argument: str, thing: str, name: str, virtual_host: str, new: str, current: str
) -> PreconditionFailed:
    return PreconditionFailed(
        f"inequivalent arg '{argument}' for {thing} '{name}' in vhost '{virtual_host}': "
        f"received {new} but current is {current}"
    )


def looks_at_headers(type_class: type[ExchangeType]) -> bool:
    """Return whether routes may be cached by headers: a type says so, and no class derived from it has its own `route`.

    Such a class may look at more than the one that it is derived from, and its author may know nothing of this.
    """
    if type_class.looks_at is not LOOKS_AT_HEADERS:
        return False
    derived = type_class.__mro__
    return _at(derived, "looks_at") <= _at(derived, "route")


def _at(derived: tuple[type, ...], name: str) -> int:
    """Return the place of the first class that has an attribute of its own."""
    return next(at for at, each in enumerate(derived) if name in each.__dict__)
