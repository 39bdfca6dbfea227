"""Leveret's core. What programs that embed a broker need can be imported from here: `from broker_core import Node`.

The names below are loaded when they are first asked for, so that importing a part of the core costs that part only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_core.config import Config, ConfigError, load, parse
    from broker_core.node import Node
    from broker_core.threaded import ThreadedNode, embedded

__all__ = ["Config", "ConfigError", "Node", "ThreadedNode", "embedded", "load", "parse"]

HOMES: Final = {
    "Config": "broker_core.config",
    "ConfigError": "broker_core.config",
    "Node": "broker_core.node",
    "ThreadedNode": "broker_core.threaded",
    "embedded": "broker_core.threaded",
    "load": "broker_core.config",
    "parse": "broker_core.config",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
