"""What is wrong with a plugin, in words for its author; said at boot, before the first message finds out (X014)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Final

from broker_core.exchanges.exchange import ExchangeType, LooksAt
from broker_core.frontend import Protocol

FIRST_BYTES_MAX: Final = 8
DRAFTED: Final = ("system",)  # exchange types that a draft of AMQP has, and no version

# what the broker calls on an instance, and with how many arguments
METHODS: Final = {
    "route": 1,
    "keep": 1,
    "hold_again": 1,
    "validate_binding": 2,
    "bind": 1,
    "unbind": 1,
    "close": 0,
    "state": 0,
    "restore": 1,
    "equivalent": 1,
}


def faults(plugin: object) -> Iterable[str]:
    """Everything that keeps `plugin` from being an exchange type or a protocol; nothing if it is fine."""
    if isinstance(plugin, Protocol):
        return protocol_faults(plugin)
    if isinstance(plugin, type) and issubclass(plugin, ExchangeType):
        return exchange_type_faults(plugin)
    return [f"{plugin!r} is neither a subclass of ExchangeType nor a Protocol"]


def protocol_faults(protocol: Protocol) -> Iterable[str]:
    if not protocol.name:
        yield "the protocol has no name"
    if not protocol.first_bytes and not protocol.fallback:
        yield f"protocol '{protocol.name}' has no first bytes to be recognised by"
    for prefix in protocol.first_bytes:
        if not 1 <= len(prefix) <= FIRST_BYTES_MAX:
            yield f"protocol '{protocol.name}': first bytes {prefix!r} are not 1 to {FIRST_BYTES_MAX} octets"


def exchange_type_faults(cls: type[ExchangeType]) -> Iterable[str]:
    name: object = getattr(cls, "name", None)
    if not isinstance(name, str):
        yield f"{cls.__name__} has no name"
    elif name not in DRAFTED and (not name.startswith("x-") or name == "x-"):
        yield f"{cls.__name__}: the name '{name}' does not start with 'x-'"
    # A contract that is compiled does not know of its abstract methods.
    missing = {"route"} if cls.route is ExchangeType.route else set()
    if inspect.isabstract(cls):
        missing |= cls.__abstractmethods__
    if missing:
        yield f"{cls.__name__} does not define {', '.join(sorted(missing))}"
    looks_at: object = cls.looks_at
    if not isinstance(looks_at, LooksAt):
        yield f"{cls.__name__}: looks_at is {looks_at!r}, not a LooksAt"
    yield from call_faults(cls)


def call_faults(cls: type[ExchangeType]) -> Iterable[str]:
    """Methods that cannot be called the way the broker calls them."""
    if not can_be_called(cls, 1):
        yield f"{cls.__name__}: the constructor does not take just the exchange"
    if not can_be_called(cls.validate, 1):
        yield f"{cls.__name__}.validate is not a classmethod with one argument"
    for name, count in METHODS.items():
        method = getattr(cls, name)
        if not can_be_called(method, count + 1):  # and self
            yield f"{cls.__name__}.{name} does not take {count} argument{'' if count == 1 else 's'} besides self"
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            yield f"{cls.__name__}.{name} is async; the broker calls it without waiting"


def can_be_called(callee: object, count: int) -> bool:
    """Whether `callee` takes `count` arguments by position."""
    if not callable(callee):
        return False
    try:
        inspect.signature(callee).bind(*[None] * count)
    except TypeError:
        return False
    return True
