"""The chain of interceptors of a node: asks one after the other, and keeps their mistakes from harming the node."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from leveret.errors import PLUGIN_MISTAKES, Failure, PreconditionFailed
from leveret.exchanges.answer import file_of
from leveret.interceptors.contract import Interceptor
from leveret.message import Message
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.clock import Clock
    from leveret.exchanges.exchange_type import Exchange

log: Final = logging.getLogger("leveret.broker")


class Link:
    """An interceptor with what it has done."""

    __slots__ = ("errors", "interceptor", "options", "refused", "slow_calls", "slowest_s")

    def __init__(self, interceptor: Interceptor, options: Table) -> None:
        self.interceptor = interceptor
        self.options = options
        self.refused = 0  # messages, those included that met an error
        self.errors = 0  # exceptions other than refusals, and answers that are no message
        self.slow_calls = 0  # the node waited for each
        self.slowest_s = 0.0

    def refuses(self, by_mistake: bool = False) -> None:
        """Count a message that it refuses."""
        self.refused += 1
        self.errors += by_mistake

    def go_on(self, before: Link) -> None:
        """Go on with the counters of another one."""
        self.refused, self.errors = before.refused, before.errors
        self.slow_calls, self.slowest_s = before.slow_calls, before.slowest_s


class Chain:
    """The interceptors of a node, in the order of its settings."""

    __slots__ = ("_clock", "links", "slow_call_s")

    def __init__(self, links: Sequence[Link], clock: Clock, slow_call_s: float) -> None:
        self.links = tuple(links)
        self._clock = clock
        self.slow_call_s = slow_call_s  # the longest call that is not reported

    def incoming(self, exchange: Exchange, message: Message) -> Message:
        """Return the message to be routed. Raises PreconditionFailed if it is refused."""
        wall, peer = self._clock.wall(), message.peer
        for link in self.links:
            message = self._asked(link, exchange, message, wall)
        message.peer = peer  # copies do not have it
        return message

    def go_on(self, before: Chain) -> None:
        """Go on with the counters of another chain, as far as its interceptors are of the same code and options."""
        left = list(before.links)
        for link in self.links:
            kind = type(link.interceptor)
            same = [old for old in left if type(old.interceptor) is kind and old.options == link.options]
            if same:
                link.go_on(same[0])
                left.remove(same[0])

    def _asked(self, link: Link, exchange: Exchange, message: Message, wall: float) -> Message:
        began = self._clock.now()
        try:
            answer: object = link.interceptor.incoming(message, exchange, wall)
            if not isinstance(answer, Message):
                raise TypeError(f"incoming() returned an object of {type(answer).__name__}, not a message")
            return answer
        except Failure as refusal:
            link.refuses()
            raise PreconditionFailed(str(refusal)) from None
        except PLUGIN_MISTAKES as error:
            link.refuses(by_mistake=True)
            if link.errors == 1:
                log.error(
                    "interceptor %s failed; it refuses what it fails at (%s)",
                    link.interceptor.name,
                    file_of(type(link.interceptor)),
                    exc_info=error,
                )
            raise PreconditionFailed(f"interceptor '{link.interceptor.name}' failed") from None
        finally:
            took_s = self._clock.now() - began
            if took_s > self.slow_call_s:
                self._report_slow(link, took_s)

    def _report_slow(self, link: Link, took_s: float) -> None:
        link.slow_calls += 1
        if took_s > 2 * link.slowest_s:  # the first one, and one that is worse by far
            name, file = link.interceptor.name, file_of(type(link.interceptor))
            log.warning("interceptor %s held the node up for %.0f ms (%s)", name, took_s * 1000, file)
        link.slowest_s = max(link.slowest_s, took_s)


def chain_of(
    entries: Sequence[tuple[str, Table]],
    registered: Mapping[str, type[Interceptor]],
    node: str,
    clock: Clock,
    slow_call_s: float,
) -> Chain | None:
    """Return the chain that the settings ask for; None if they ask for none.

    Raises BadEntry for a name that is not registered, and for options that the interceptor does not take.
    """
    made: list[Link] = []
    for index, (name, options) in enumerate(entries):
        if (kind := registered.get(name)) is None:
            raise BadEntry(
                index, f"there is no interceptor '{name}'; there are {', '.join(sorted(registered))}"
            )
        try:
            made.append(Link(kind(options, node), options))
        except PLUGIN_MISTAKES as error:
            text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise BadEntry(index, text) from None
    return Chain(made, clock, slow_call_s) if made else None


class BadEntry(Exception):  # noqa: N818 - `raise BadEntry` says it
    """An entry of the settings cannot be followed. `index` is its place among them; the text says why."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
