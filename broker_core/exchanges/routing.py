"""Route a message from an exchange to queues, through bound exchanges and alternates, without cycles.

The walk has one worklist and one set of exchanges already asked (S137). An exchange whose own answer is empty sends the
message to its alternate, if that exists and has not been asked (S132-S136); destinations that are exchanges are asked
in turn. `trace` makes the same walk observable, so that an explanation cannot differ from a delivery.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.errors import PLUGIN_MISTAKES
from leveret.exchanges.answer import destinations
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import HANDLED, Exchange, ExchangeType, LooksAt
from leveret.exchanges.selection import Selection, ends, has_selectors
from leveret.queues.queue import Queue

if TYPE_CHECKING:
    from leveret.exchanges.duplicates import Identity
    from leveret.message import Message

BY_KEY: Final = (LooksAt.NOTHING, LooksAt.KEY)
HEADERS_MAX: Final = 128  # bytes of the headers by which a route is cached
ROUTES_MAX: Final = 131_072  # cached keys in a virtual host (0.5 KiB each at most); then the cache is cleared


@mypyc_attr(allow_interpreted_subclasses=True)
class Route:
    """A route: the queues that get a message, and the exchanges on the way that want to see it."""

    __slots__ = ("handled", "holds", "keepers", "lasting", "only", "passed", "queues")

    def __init__(
        self, queues: tuple[Queue, ...], handled: bool, keepers: tuple[Exchange, ...], lasting: bool
    ) -> None:
        self.queues = queues
        self.only = queues[0] if len(queues) == 1 and not keepers else None  # most messages go to one queue
        self.handled = handled  # an exchange on the way takes the message itself
        self.keepers = keepers  # exchanges on the way whose types want to see each message
        self.lasting = lasting  # holds for every message with this key, until the topology changes
        # Holds for every message with this key and the same of the headers that the first exchange looks at.
        self.holds = lasting
        # Exchanges on the way, but for the first, that drop duplicates; True: this message is one there.
        self.passed: tuple[tuple[Exchange, bool], ...] = ()

    def passing(self, passed: tuple[tuple[Exchange, bool], ...]) -> Route:
        """Return this route after noting which exchanges on the way drop duplicates; there are some."""
        self.passed = passed
        self.only = None
        return self

    @property
    def unroutable(self) -> bool:
        return not self.queues and not self.handled

    def give(self, message: Message) -> bool:
        """Put the message into its queues and keepers. False: a queue refused it, or the exchange to hold it failed."""
        taken = True
        for queue in self.queues:
            if not queue.push(message):
                taken = False
        for keeper in self.keepers:
            if not kept_by(keeper, message) and self.handled:
                taken = False  # the exchange that should have held it does not
        if self.passed:
            self.note_passed(message, taken)
        return taken

    def count(self, exchange: Exchange, times: int = 1) -> None:
        """Count published messages of an exchange that take this route; with negative `times`, take that back."""
        if self.queues or self.handled:
            exchange.surplus += times * (len(self.queues) - 1)
        else:
            exchange.unroutable += times

    def note_passed(self, message: Message, taken: bool) -> None:
        """Have the exchanges on the way that drop duplicates remember a message, or count it."""
        for exchange, is_repeated in self.passed:
            if is_repeated or taken:
                _note_passed(exchange, is_repeated, message, self.is_durable)

    @property
    def is_durable(self) -> bool:
        """True if a message that takes this route, and is persistent itself, outlives the node."""
        return self.handled or any(queue.number for queue in self.queues)

    def give_run(self, messages: list[Message]) -> int:
        """Give a run of messages to several queues, as far as every one is sure to take them; return how many went,
        perhaps none."""
        if self.keepers or self.passed or self.handled or not self.queues:
            return 0
        count = min([queue.takes_of(messages) for queue in self.queues])
        if count:
            part = messages if count == len(messages) else messages[:count]
            for queue in self.queues:
                queue.push_run(part)
        return count

    def sharing(self) -> tuple[Queue, ...]:
        """Return the queues, if all that has to be done with a message is to push it to them; else none."""
        return () if self.keepers or self.passed or self.handled else self.queues

    def fulfil(self, message: Message) -> None:
        """Give the message although queues may be full: it was promised when there was room."""
        for queue in self.queues:
            queue.admit(message)
        for keeper in self.keepers:
            kept_by(keeper, message)
        if self.passed:
            self.note_passed(message, taken=True)

    def among(self, queues: tuple[Queue, ...], keepers: tuple[Exchange, ...]) -> Route:
        """Return a route to some of this one's queues and keepers only."""
        route = Route(queues, self.handled, keepers, lasting=False)
        return route.passing(self.passed) if self.passed else route


@mypyc_attr(allow_interpreted_subclasses=True)
class Trace(ABC):
    """A trace is told what the walk does (`explain.py`). A traced walk is a dry run: nothing is counted or logged."""

    @abstractmethod
    def asked(self, exchange: Exchange, via: str, answer: list[Destination] | None, error: str) -> None:
        """Called after an exchange was asked. The next calls of `hop`, `unmet` and `alternate` are about the same one.

        `answer` may have destinations with selectors, which the message meets.
        `via`: publish, binding or alternate. `answer` None: it takes the message itself. `error`: the exception, or "".
        """

    @abstractmethod
    def unmet(self, exchange: Exchange, destinations: list[Destination]) -> None:
        """Called for destinations that the type answered, and whose selectors the message does not meet."""

    @abstractmethod
    def repeated(self, exchange: Exchange, via: str) -> None:
        """Called instead of `asked` for an exchange that drops the message as a duplicate."""

    @abstractmethod
    def hop(self, source: Exchange, destination: Exchange, followed: bool) -> None:
        """Called for a binding to another exchange, which is `followed` unless that has been asked or will be."""

    @abstractmethod
    def alternate(self, exchange: Exchange, outcome: str) -> None:
        """Called when an exchange turns to its alternate, which is `followed`, `missing` or `asked before`."""


def route(exchange: Exchange, message: Message) -> Route:
    """Return the route of a message published to `exchange`, and cache it by key where the types allow that."""
    revision = exchange.virtual_host.revision
    if exchange.routes_revision != revision:
        exchange.forget_routes()
        exchange.routes_revision = revision
    found = walk(exchange, message)
    if found.lasting:
        _make_room(exchange)
        exchange.remember_route(message.key, found)
    elif found.holds and (octets := _looked_at(exchange, message)) is not None:
        _make_room(exchange)
        exchange.remember_route_by_headers(message, octets, found)
    return found


def known_by_headers(exchange: Exchange, message: Message) -> Route | None:
    """Return the cached route of a message from an exchange whose type looks at headers; None if there is none."""
    octets = _looked_at(exchange, message)
    return None if octets is None else exchange.routes_by_headers.get((message.encoding, message.key, octets))


def _looked_at(exchange: Exchange, message: Message) -> bytes | None:
    """Return the octets of the headers that an exchange's type looks at, if they are few enough to cache a route by."""
    if not message.facts.has_headers:
        return b""
    return message.encoding.header_octets(message.properties, exchange.type.header_names(), HEADERS_MAX)


def _make_room(exchange: Exchange) -> None:
    """Forget all routes of the virtual host if too many are cached."""
    if exchange.virtual_host.routes_remembered >= ROUTES_MAX:
        for each in exchange.virtual_host.exchanges.values():
            each.forget_routes()


def walk(
    exchange: Exchange,
    message: Message,
    wanted: Callable[[Queue], bool] | None = None,
    trace: Trace | None = None,
) -> Route:
    """Find a route without the cache. `wanted` tells the queues to keep (for immediate delivery, S086 and S142)."""
    queues: dict[Queue, None] = {}
    visited = {exchange.name}
    pending: list[tuple[Exchange, str]] = [(exchange, "publish")]
    handled = False
    keepers: list[Exchange] = []
    passed: list[tuple[Exchange, bool]] = []
    lasting = holds = wanted is None and not message.facts.cc and not message.facts.bcc
    selection: Selection | None = None
    for current, via in pending:
        if current.deduplication is not None and via != "publish":
            lasting = holds = False
            is_repeated = is_duplicate(current, message)
            passed.append((current, is_repeated))
            if is_repeated:
                handled = True
                if trace is not None:
                    trace.repeated(current, via)
                continue
        answer, error = ask(current, message, trace)
        by_key = current.type.looks_at in BY_KEY
        lasting = lasting and by_key and not error
        holds = holds and (by_key or (current is exchange and exchange.by_headers)) and not error
        unmet: list[Destination] = []
        if answer and current.selecting and has_selectors(answer):
            lasting = holds = False
            selection = selection or Selection(message)
            answer, unmet = selection.divided(answer)
        if type(current.type).keep is not ExchangeType.keep:
            keepers.append(current)
        if trace is not None:
            trace.asked(current, via, answer, error)
            if unmet:
                trace.unmet(current, unmet)
        if answer is None:
            handled = True
            continue
        if current.selecting:
            answer = ends(answer)
        if current.rerouting:
            lasting = holds = False
            answer += _added(current, message, answer, trace)
        if wanted is not None:
            answer = [d for d in answer if not isinstance(d, Queue) or wanted(d)]
        for destination in answer:
            if isinstance(destination, Queue):
                queues[destination] = None
            elif isinstance(destination, Exchange):
                if trace is not None:
                    trace.hop(current, destination, destination.name not in visited)
                if destination.name not in visited:
                    visited.add(destination.name)
                    pending.append((destination, "binding"))
        if not answer and (alternate := _alternate(current, visited, trace)) is not None:
            visited.add(alternate.name)
            pending.append((alternate, "alternate"))
    tracer = exchange.virtual_host.tracer
    kind = Route if tracer is None else tracer.route
    found = kind(tuple(queues), handled, tuple(keepers), lasting)
    found.holds = holds
    return found.passing(tuple(passed)) if passed else found


def drops(exchange: Exchange, identity: Identity) -> bool:
    """Return whether an exchange drops a message with this id as a duplicate, which is counted."""
    known = exchange.deduplication
    if known is None or not known.repeats(identity):
        return False
    exchange.count_copies(0)
    return True


def give_once(exchange: Exchange, identity: Identity | None, route: Route, message: Message) -> bool:
    """Give a message to its route, and have its exchange remember its id if all queues have taken it."""
    taken, known = route.give(message), exchange.deduplication
    if taken and identity is not None and known is not None and not route.unroutable:
        known.remember(identity, message.facts.durable and route.is_durable)
    return taken


def give_anew(exchange: Exchange, message: Message) -> None:
    """Route a message that has been published before, and is not traced again."""
    found = walk(exchange, message)
    Route.give(found, message)
    found.count(exchange)


def is_duplicate(exchange: Exchange, message: Message) -> bool:
    """Return whether an exchange that drops duplicates would drop this message. Nothing is counted."""
    known, identity = exchange.deduplication, identity_at(exchange, message)
    return known is not None and identity is not None and known.knows(identity)


def identity_at(exchange: Exchange, message: Message) -> Identity | None:
    """Return the id of a message by which an exchange tells duplicates; None if it does not, or there is none.

    A dead letter that was published here before is the same message, and no duplicate.
    """
    known, notes = exchange.deduplication, message.notes
    if known is None:
        return None
    if notes is not None and any(death.exchange == exchange.name for death in notes.deaths):
        return None
    return known.identify(message)


def _note_passed(exchange: Exchange, is_repeated: bool, message: Message, durable: bool) -> None:
    """Have an exchange on the way count a duplicate, or remember the id of a message that was taken."""
    known, identity = exchange.deduplication, identity_at(exchange, message)
    if known is None or identity is None:
        return
    if is_repeated:
        known.repeats(identity)
    elif not known.knows(identity):
        known.remember(identity, durable and message.facts.durable)


def ask(exchange: Exchange, message: Message, trace: Trace | None) -> tuple[list[Destination] | None, str]:
    """Return the type's own answer and its error. If it raises there are no destinations, so the alternate is asked."""
    began = exchange.begins() if exchange.is_watched else 0.0
    try:
        answer = exchange.type.route(message)
        return (None, "") if answer is HANDLED else (destinations(exchange, answer), "")
    except PLUGIN_MISTAKES as error:  # a plug-in's mistake must not end the connection
        if trace is None:
            _failed(exchange, error)
        return [], f"{type(error).__name__}: {error}"
    finally:
        if began:
            exchange.ends("route", began)


def _added(
    exchange: Exchange, message: Message, answer: list[Destination], trace: Trace | None
) -> list[Destination]:
    """Return the destinations that decorators add to the answer of an exchange's type."""
    added: list[Destination] = []
    for decorator in exchange.rerouting:
        try:
            added += destinations(exchange, decorator.route(exchange, message, list(answer)))
        except PLUGIN_MISTAKES as error:
            if trace is None:
                _failed(exchange, error)
    return added


def kept_by(exchange: Exchange, message: Message) -> bool:
    """Give a message to an exchange on its way that wants to see it. Return False if the exchange fails."""
    began = exchange.begins() if exchange.is_watched else 0.0
    try:
        exchange.type.keep(message)
        return True
    except PLUGIN_MISTAKES as error:
        _failed(exchange, error)
        return False
    finally:
        if began:
            exchange.ends("keep", began)


def _failed(exchange: Exchange, error: BaseException) -> None:
    exchange.route_errors += 1
    exchange.broker.report_route_error(exchange, error)


def _alternate(exchange: Exchange, visited: set[str], trace: Trace | None) -> Exchange | None:
    name = exchange.alternate
    if name is None:
        return None
    alternate = exchange.virtual_host.exchanges.get(name)
    if trace is not None:
        outcome = "missing" if alternate is None else "asked before" if name in visited else "followed"
        trace.alternate(exchange, outcome)
    elif alternate is None:
        exchange.broker.report_missing_alternate(exchange, name)
    return None if alternate is None or name in visited else alternate
