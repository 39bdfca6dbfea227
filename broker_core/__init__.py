"""The core of Leveret. Programs that embed a broker import what they need from here: `from leveret import Node`.

The names below are loaded on first use, so that importing a part of the core costs that part only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.config.config import Config, ConfigError, load, parse
    from leveret.server.node.node import Node
    from leveret.server.node.threaded import ThreadedNode, embedded
    from leveret.server.plugin_loader import exchange_type

__all__ = ["Config", "ConfigError", "Node", "ThreadedNode", "embedded", "exchange_type", "load", "parse"]

HOMES: Final = {
    "Config": "leveret.config.config",
    "ConfigError": "leveret.config.config",
    "Node": "leveret.server.node.node",
    "ThreadedNode": "leveret.server.node.threaded",
    "embedded": "leveret.server.node.threaded",
    "exchange_type": "leveret.server.plugin_loader",
    "load": "leveret.config.config",
    "parse": "leveret.config.config",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
