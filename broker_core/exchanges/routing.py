"""From an exchange and a message to queues: hops between exchanges, alternates, and protection against cycles.

One worklist and one set of exchanges already asked (S137). An exchange whose own answer is empty sends the message to
its alternate, if that exists and has not been asked (S132-S136); destinations that are exchanges are asked in turn.
`trace` makes the same walk observable, so that an explanation cannot differ from a delivery.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from broker_core.exchanges.exchange import HANDLED, Destination, Exchange, ExchangeType, LooksAt
from broker_core.queues.queue import Queue

if TYPE_CHECKING:
    from broker_core.message import Message

ROUTES_MAX: Final = 131_072  # remembered keys in a virtual host (0.5 KiB each at most); then it starts afresh


@mypyc_attr(allow_interpreted_subclasses=True)
class Route:
    """Where a message goes."""

    __slots__ = ("handled", "keepers", "lasting", "only", "queues")

    def __init__(
        self, queues: tuple[Queue, ...], handled: bool, keepers: tuple[Exchange, ...], lasting: bool
    ) -> None:
        self.queues = queues
        self.only = queues[0] if len(queues) == 1 and not keepers else None  # most messages go to one queue
        self.handled = handled  # an exchange on the way takes the message itself
        self.keepers = keepers  # exchanges on the way whose types want to see each message
        self.lasting = lasting  # the same for every message with this key, until the topology changes

    @property
    def unroutable(self) -> bool:
        return not self.queues and not self.handled

    def give(self, message: Message) -> bool:
        """Put the message where it goes. False: at least one queue refused it."""
        taken = True
        for queue in self.queues:
            if not queue.push(message):
                taken = False
        for keeper in self.keepers:
            if not _keep(keeper, message) and self.handled:
                taken = False  # the exchange that should have held it does not
        return taken

    def give_run(self, messages: list[Message]) -> int:
        """As `give` of each in a run, as far as every queue takes it for sure. Returns how many went; perhaps none."""
        if self.only is not None:
            return self.only.push_run(messages)
        if self.keepers or self.handled or not self.queues:
            return 0
        count = min([queue.takes_of(messages) for queue in self.queues])
        if count:
            part = messages if count == len(messages) else messages[:count]
            for queue in self.queues:
                queue.push_run(part)
        return count

    def fulfil(self, message: Message) -> None:
        """Put the message where it goes, however full that is: it was promised when there was room."""
        for queue in self.queues:
            queue.admit(message)
        for keeper in self.keepers:
            _keep(keeper, message)

    def among(self, queues: tuple[Queue, ...], keepers: tuple[Exchange, ...]) -> Route:
        """The same with some of its queues and keepers only."""
        return Route(queues, self.handled, keepers, lasting=False)


@mypyc_attr(allow_interpreted_subclasses=True)
class Trace(ABC):
    """Told what the walk does (see `explain.py`). A traced walk is a dry run: nothing is counted or logged."""

    @abstractmethod
    def asked(self, exchange: Exchange, via: str, answer: list[Destination] | None, error: str) -> None:
        """An exchange was asked. `via`: publish, binding or alternate. `answer` None: it takes the message itself.

        `error`: what the type raised, or empty. What `hop` and `alternate` tell next is about the same exchange.
        """

    @abstractmethod
    def hop(self, source: Exchange, destination: Exchange, followed: bool) -> None:
        """A binding leads to another exchange: asked later, or not because that has been asked or will be."""

    @abstractmethod
    def alternate(self, exchange: Exchange, outcome: str) -> None:
        """What becomes of an exchange's alternate: `followed`, `missing` or `asked before`."""


def route(exchange: Exchange, message: Message) -> Route:
    """The queues for a message published to `exchange`; remembered by key where the types allow it."""
    revision = exchange.virtual_host.revision
    if exchange.routes_revision != revision:
        exchange.forget_routes()
        exchange.routes_revision = revision
    found = walk(exchange, message)
    if found.lasting:
        if exchange.virtual_host.routes_remembered >= ROUTES_MAX:
            for each in exchange.virtual_host.exchanges.values():
                each.forget_routes()
        exchange.remember_route(message.key, found)
    return found


def walk(
    exchange: Exchange,
    message: Message,
    wanted: Callable[[Queue], bool] | None = None,
    trace: Trace | None = None,
) -> Route:
    """The uncached walk. `wanted` leaves out queues that will not do (immediate delivery, S086 and S142)."""
    queues: dict[Queue, None] = {}
    asked = {exchange.name}
    pending: list[tuple[Exchange, str]] = [(exchange, "publish")]
    handled = False
    keepers: list[Exchange] = []
    lasting = wanted is None and not message.facts.cc and not message.facts.bcc
    for current, via in pending:
        answer, error = _ask(current, message, trace)
        lasting = lasting and current.type.looks_at is not LooksAt.MESSAGE and not error
        if type(current.type).keep is not ExchangeType.keep:
            keepers.append(current)
        if trace is not None:
            trace.asked(current, via, answer, error)
        if answer is None:
            handled = True
            continue
        if wanted is not None:
            answer = [d for d in answer if not isinstance(d, Queue) or wanted(d)]
        for destination in answer:
            if isinstance(destination, Queue):
                queues[destination] = None
            elif isinstance(destination, Exchange):
                if trace is not None:
                    trace.hop(current, destination, destination.name not in asked)
                if destination.name not in asked:
                    asked.add(destination.name)
                    pending.append((destination, "binding"))
        if not answer and (alternate := _alternate(current, asked, trace)) is not None:
            asked.add(alternate.name)
            pending.append((alternate, "alternate"))
    tracer = exchange.virtual_host.tracer
    kind = Route if tracer is None else tracer.route
    return kind(tuple(queues), handled, tuple(keepers), lasting)


def _ask(exchange: Exchange, message: Message, trace: Trace | None) -> tuple[list[Destination] | None, str]:
    """The type's own answer. A type that raises has no destinations: the alternate, if any, gets the message."""
    try:
        answer = exchange.type.route(message)
        return (None, "") if answer is HANDLED else (list(answer), "")
    except Exception as error:  # a plugin's mistake is not ours to die of
        if trace is None:
            _failed(exchange, error)
        return [], f"{type(error).__name__}: {error}"


def _keep(exchange: Exchange, message: Message) -> bool:
    try:
        exchange.type.keep(message)
        return True
    except Exception as error:
        _failed(exchange, error)
        return False


def _failed(exchange: Exchange, error: Exception) -> None:
    exchange.route_errors += 1
    exchange.virtual_host.broker.report_route_error(exchange, error)


def _alternate(exchange: Exchange, asked: set[str], trace: Trace | None) -> Exchange | None:
    name = exchange.alternate
    if name is None:
        return None
    alternate = exchange.virtual_host.exchanges.get(name)
    if trace is not None:
        outcome = "missing" if alternate is None else "asked before" if name in asked else "followed"
        trace.alternate(exchange, outcome)
    elif alternate is None:
        exchange.virtual_host.broker.report_missing_alternate(exchange, name)
    return None if alternate is None or name in asked else alternate
