"""The conformance kit finds what it promises to find: each of these types breaks one rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import pytest

from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, Handled, LooksAt
from leveret.exchanges.held_messages import HeldMessage
from leveret.message import Message
from leveret.testing.conformance import check_exchange_type
from leveret.values import Table


class Good(ExchangeType):
    """To every destination bound; the rest differ from it in one thing."""

    name = "x-good"

    def route(self, message: Message) -> Iterable[Destination] | Handled:
        return [binding.destination for binding in self.exchange.bindings]


class BadlyNamed(Good):
    name = "bad"


class ForgetsToUnbind(Good):
    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.bound: list[Destination] = []

    def bind(self, binding: Binding) -> None:
        self.bound.append(binding.destination)

    def route(self, message: Message) -> Iterable[Destination]:
        return self.bound


class UnbindsTooMuch(ForgetsToUnbind):
    """Two bindings of one queue are both gone when one is."""

    def unbind(self, binding: Binding) -> None:
        self.bound = [d for d in self.bound if d is not binding.destination]


class Crashes(Good):
    def validate_binding(self, key: str, arguments: Table) -> None:
        if arguments.get("x-odd"):
            raise ValueError("odd")


class CrashesAtDeclaration(Good):
    argument_names = ("x-length",)

    @classmethod
    def validate(cls, arguments: Table) -> None:
        if arguments.get("x-length", 1) != 1:
            raise KeyError("x-length")


class ClaimsToLookAtTheKey(Good):
    looks_at = LooksAt.KEY

    def route(self, message: Message) -> Iterable[Destination]:
        return [binding.destination for binding in self.exchange.bindings] if message.body else []


class ClaimsToLookAtNothing(Good):
    looks_at = LooksAt.NOTHING

    def route(self, message: Message) -> Iterable[Destination]:
        return [b.destination for b in self.exchange.bindings if b.key == message.key]


class ChangesTheMessage(Good):
    def route(self, message: Message) -> Iterable[Destination]:
        message.key += "."
        return []


class CountsInRoute(Good):
    """Must be done in `keep`: `route` is also asked for dry runs."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.count = 0

    def route(self, message: Message) -> Iterable[Destination]:
        destinations = sorted({b.destination.name: b.destination for b in self.exchange.bindings}.items())
        self.count += 1
        return [destinations[self.count % len(destinations)][1]] if destinations else []


class LosesBindingsInAReload(Good):
    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.fresh = not list(exchange.bindings)

    def route(self, message: Message) -> Iterable[Destination]:
        return [binding.destination for binding in self.exchange.bindings] if self.fresh else []


class LeavesATimer(Good):
    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        exchange.virtual_host.broker.timers.at(5.0, lambda now: None)


class CrashesInKeep(Good):
    def keep(self, message: Message) -> None:
        message.headers["missing"]


class HoldsButNotAgain(Good):
    def keep(self, message: Message) -> None:
        self.exchange.hold(message)

    def hold_again(self, held: HeldMessage) -> None:
        raise LookupError(held.position)


class RefusesItsSamples(Good):
    def validate_binding(self, key: str, arguments: Table) -> None:
        raise PreconditionFailed("never")


class Names(Good):
    def route(self, message: Message) -> Iterable[Destination]:
        return [binding.destination.name for binding in self.exchange.bindings]  # type: ignore[misc]


class Fails(Good):
    def route(self, message: Message) -> Iterable[Destination]:
        raise KeyError(message.key)


class Leaves(Good):
    def route(self, message: Message) -> Iterable[Destination]:
        raise SystemExit(message.key)


BROKEN: list[tuple[type[ExchangeType], type[Exception], str]] = [
    (BadlyNamed, AssertionError, "BadlyNamed: BadlyNamed: the name 'bad' does not start with 'x-'"),
    (ForgetsToUnbind, AssertionError, "not bound"),
    (UnbindsTooMuch, AssertionError, "after unbinding or reloading"),
    (Crashes, ValueError, "odd"),
    (CrashesAtDeclaration, KeyError, "x-length"),
    (ClaimsToLookAtTheKey, AssertionError, "looks at more than LooksAt.KEY"),
    (ClaimsToLookAtNothing, AssertionError, "looks at more than LooksAt.NOTHING"),
    (
        Names,
        AssertionError,
        r"Names: route\(\) returned 'q1' among its destinations: no queue and no exchange: key",
    ),
    (Fails, AssertionError, r"Fails: route\(\) raised KeyError: '': key ''"),
    (Leaves, AssertionError, r"Leaves: route\(\) raised SystemExit: : key ''"),
    (ChangesTheMessage, AssertionError, r"route\(\) changed the message"),
    (CountsInRoute, AssertionError, r"route\(\) answers .* one way, then another"),
    (LosesBindingsInAReload, AssertionError, "after unbinding or reloading"),
    (LeavesATimer, AssertionError, "a timer is left behind"),
    (CrashesInKeep, KeyError, "missing"),
    (HoldsButNotAgain, LookupError, "0"),
    (RefusesItsSamples, PreconditionFailed, "never"),
]


def test_a_good_type_passes() -> None:
    check_exchange_type(Good)


@pytest.mark.parametrize(("type_class", "error", "text"), BROKEN)
def test_a_broken_rule_is_found(type_class: type[ExchangeType], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        check_exchange_type(type_class)


class LooksForAWord(Good):
    """Claims what no odd header or body would disprove: only the right one does."""

    looks_at = LooksAt.KEY

    def route(self, message: Message) -> Iterable[Destination]:
        found = message.headers.get("urgency") == "sesame" or message.body.startswith(b"{")
        return [binding.destination for binding in self.exchange.bindings] if found else []


@pytest.mark.parametrize(
    "samples",
    [[("a", {"urgency": "sesame"})], [("a", {}, b'{"a": 1}')]],
    ids=["headers", "body"],
)
def test_one_sample_of_what_matters_is_enough_to_find_a_false_looks_at(
    samples: list[tuple[str, Table] | tuple[str, Table, bytes]],
) -> None:
    with pytest.raises(AssertionError, match=r"looks at more than LooksAt\.KEY"):
        check_exchange_type(LooksForAWord, messages=samples)


def test_bodies_of_samples_reach_the_type() -> None:
    class Json(Good):
        name = "x-json"
        seen: ClassVar[set[bytes]] = set()

        def route(self, message: Message) -> Iterable[Destination]:
            Json.seen.add(message.body)
            return []

    check_exchange_type(Json, messages=[("a", {}, b'{"a": 1}')], examples=5)
    assert b'{"a": 1}' in Json.seen
