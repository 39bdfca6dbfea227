"""`x-delayed-message`: holds each message for as long as its header says, then routes it as another type would.

The argument `x-delayed-type` names that other type, which may be any registered one; it is given the exchange's own
bindings and arguments. The header `x-delay` has whole milliseconds. Without it, and with anything but a positive
integer (zero, a negative number, text), the message is routed at once. Any length of delay is kept: there is no wrap at
2^32 ms, where RabbitMQ's plugin stops delaying.

A held message counts as routed: its publisher gets the confirm, and no return. When its time has come it is routed as
if published now: by the bindings of that moment, alternate exchange included. Messages due together keep the order in
which they were published. The header stays as it was, so another delayed exchange on the way delays the message again.

A durable message in a durable exchange is held on disk, too, and survives a restart of the node; messages that became
due meanwhile are routed at once. Deleting the exchange drops the messages that it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.arguments.checks import text_fault
from leveret.arguments.exchange_arguments import ExchangeArgument
from leveret.clock import Timer
from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import HANDLED, Binding, Exchange, ExchangeType, Handled
from leveret.exchanges.held_messages import HeldMessage
from leveret.message import Message
from leveret.queues import delays
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.selectors.parser import Selector

DELAYED_TYPE: Final = "x-delayed-type"


# until when (monotonic seconds), a number that rises, the message
Waiting: TypeAlias = tuple[float, int, HeldMessage]


class DelayedMessage(ExchangeType):
    name = "x-delayed-message"
    arguments = (
        ExchangeArgument(
            name=DELAYED_TYPE,
            about="The exchange type that routes messages whose time has come.",
            check=text_fault,
            example="direct",
        ),
    )

    def __init__(self, exchange: Exchange) -> None:
        """Create the inner type. Raises PreconditionFailed if it is not registered or refuses the arguments."""
        super().__init__(exchange)
        self._inner = inner_type(exchange)(exchange)
        self._held: list[Waiting] = []  # a heap
        self._timer: Timer | None = None  # for the earliest in the heap
        self._released: Message | None = None  # the one being routed because its time has come

    @property
    def held(self) -> int:
        """Return how many messages are held."""
        return len(self._held)

    @classmethod
    def validate(cls, arguments: Table) -> None:
        inner_name_in(arguments)

    def validate_binding(self, key: str, arguments: Table) -> None:
        self._inner.validate_binding(key, arguments)

    def binding_selector(self, arguments: Table) -> Selector | None:
        return self._inner.binding_selector(arguments)

    def bind(self, binding: Binding) -> None:
        self._inner.bind(binding)

    def unbind(self, binding: Binding) -> None:
        self._inner.unbind(binding)

    def route(self, message: Message) -> Iterable[Destination] | Handled:
        return HANDLED if self._wait_ms(message) else self._inner.route(message)

    def keep(self, message: Message) -> None:
        if wait_ms := self._wait_ms(message):
            now = self.exchange.broker.clock.now()
            self.hold_again(self.exchange.hold(message, now + wait_ms / 1000))
        else:
            self._inner.keep(message)

    def hold_again(self, held: HeldMessage) -> None:
        waiting = (held.expires_at, held.position, held)
        heappush(self._held, waiting)
        if self._held[0] is waiting:
            self._wake_at_the_earliest()

    def warnings(self, arguments: Table) -> list[str]:
        return self._inner.warnings({name: each for name, each in arguments.items() if name != DELAYED_TYPE})

    def binding_warnings(self, arguments: Table) -> list[str]:
        return self._inner.binding_warnings(arguments)

    def equivalent(self, arguments: Table) -> str | None:
        return super().equivalent(arguments) or self._inner.equivalent(arguments)

    def close(self) -> None:
        self.exchange.broker.timers.cancel(self._timer)
        self._held.clear()
        self._inner.close()

    def state(self) -> object:
        return list(self._held), self._inner.state()

    def restore(self, state: object) -> None:
        assert isinstance(state, tuple)
        self._held, inner_state = state
        if inner_state is not None:
            self._inner.restore(inner_state)
        self._wake_at_the_earliest()  # last: if something above raises, no timer is left behind

    def _wait_ms(self, message: Message) -> int:
        return 0 if message is self._released else delays.delay_ms(message.header(delays.DELAY))

    def _wake_at_the_earliest(self) -> None:
        timers = self.exchange.broker.timers
        timers.cancel(self._timer)
        self._timer = timers.at(self._held[0][0], self._release_due) if self._held else None

    def _release_due(self, now: float) -> None:
        try:
            while self._held and self._held[0][0] <= now:
                self._release(heappop(self._held)[2])
        finally:
            self._wake_at_the_earliest()

    def _release(self, held: HeldMessage) -> None:
        self._released = held.message
        try:
            self.exchange.broker.release_delayed(self.exchange, held.message)
        finally:
            self._released = None
        self.exchange.let_go(held)


def inner_name_in(arguments: Table) -> str:
    name = arguments.get(DELAYED_TYPE)
    if isinstance(name, str) and name not in ("", DelayedMessage.name):
        return name
    raise PreconditionFailed(f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type")


def inner_type(exchange: Exchange) -> type[ExchangeType]:
    """Return the exchange type that routes messages after their delay. Raises PreconditionFailed if there is none."""
    name = inner_name_in(exchange.arguments)
    found = exchange.broker.exchange_types.get(name)
    if found is None:
        raise PreconditionFailed(
            f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type, not '{name}'"
        )
    found.validate(exchange.arguments)
    return found
