"""The contract of decorators, which see what happens to exchanges of all types, and may add to where messages go.

A decorator is asked for each exchange what it wants to hear of (`attention`): when the exchange appears, and whenever
its policies are applied. So one that concerns few exchanges costs the others nothing. An exchange type decides how its
own exchanges route; a decorator goes on top of any type.

Source: RabbitMQ's exchange decorators, which hear of the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from mypy_extensions import mypyc_attr

from leveret.errors import PLUGIN_MISTAKES

if TYPE_CHECKING:
    from leveret.exchanges.destination import Destination
    from leveret.exchanges.exchange_type import Binding, Exchange
    from leveret.message import Message
    from leveret.values import Table


class Attention(Enum):
    """The part of what happens to one exchange that a decorator wants to hear of."""

    NOTHING = "nothing"
    EVENTS = "events"  # all but its messages
    ROUTES = "routes"  # its messages, too: routes from it are no longer remembered


@mypyc_attr(allow_interpreted_subclasses=True)
class ExchangeDecorator(ABC):
    """A decorator of exchanges. `name` begins with `x-` in plug-ins; a node has one instance of each that it loads.

    Every method is called from the broker's one thread and must not wait, nor change the topology: what has to follow
    is done later, by a timer of the broker (`exchange.broker.timers`). Whatever a method raises is logged
    and counted among the exchange's `route_errors`, and changes nothing.
    """

    name: ClassVar[str]

    @abstractmethod
    def attention(self, exchange: Exchange, definition: Table) -> Attention:
        """Return what to be told about an exchange whose policies say `definition` (keys and values) now."""

    def created(self, exchange: Exchange) -> None:
        """Called when an exchange is there that has the decorator's attention: declared, restored, or by a policy."""

    def deleted(self, exchange: Exchange) -> None:
        """Called when such an exchange was deleted, or has lost the decorator's attention by a policy."""

    def policy_changed(self, exchange: Exchange) -> None:
        """Called when policies were applied to such an exchange, which may say what they said before."""

    def bound(self, binding: Binding) -> None:
        """Called after a binding from such an exchange was made, or restored."""

    def unbound(self, binding: Binding) -> None:
        """Called after a binding from such an exchange was removed. Not for those that go with the exchange."""

    def route(self, exchange: Exchange, message: Message, answer: list[Destination]) -> Iterable[Destination]:
        """Return more destinations of a message than the exchange's type has answered.

        Called with `Attention.ROUTES`, also for dry runs: it must not change anything.
        """
        return ()


def told(exchange: Exchange, tell: Callable[[], object]) -> None:
    """Tell a decorator something; its mistake is logged, and changes nothing."""
    try:
        tell()
    except PLUGIN_MISTAKES as error:
        exchange.route_errors += 1
        exchange.broker.report_route_error(exchange, error, "has a decorator that failed")


def decorate(exchange: Exchange, decorators: Iterable[ExchangeDecorator], definition: Table) -> None:
    """Ask decorators for their attention to an exchange, whose policies say `definition`, and tell them of it."""
    before = exchange.decorators
    answers = [(each, _attention(each, exchange, definition)) for each in decorators]
    exchange.decorators = tuple(each for each, attention in answers if attention is not Attention.NOTHING)
    exchange.rerouting = tuple(each for each, attention in answers if attention is Attention.ROUTES)
    for each in before:
        if each not in exchange.decorators:
            told(exchange, partial(each.deleted, exchange))
    for each in exchange.decorators:
        told(exchange, partial(each.policy_changed if each in before else each.created, exchange))


def _attention(decorator: ExchangeDecorator, exchange: Exchange, definition: Table) -> Attention:
    found: list[Attention] = []
    told(exchange, lambda: found.append(Attention(decorator.attention(exchange, definition))))
    return found[0] if found else Attention.NOTHING
