"""A node as a process: what `leveret serve` runs until a signal ends it."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Callable
from typing import Final

import trio

from broker_core import composition
from broker_core.config import Config
from broker_core.node import Node

log: Final = logging.getLogger("leveret.node")


def run(config: Config, reread: Callable[[], Config], source: str = "") -> None:
    """Run a node until SIGINT or SIGTERM; SIGHUP reloads. Prints where it listens."""
    composition.logging_to_stderr(config)
    trio.run(_run, config, reread, source)


async def _run(config: Config, reread: Callable[[], Config], source: str) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with Node(config, reread) as node:
            print(composition.welcome(node, source), flush=True)
            spare_the_collector()
            async for received in signals:
                if received != signal.SIGHUP:
                    log.info("%s: shutting down", signal.Signals(received).name)
                    return
                node.reload()


def spare_the_collector() -> None:
    """Messages are in no cycles; to look at all of them time and again costs half of a long queue's speed.

    With 10 000 queues and 250 000 messages: 9 us a message with the interpreter's thresholds, 5.6 with these.
    """
    gc.collect()
    gc.freeze()  # what is here now stays
    gc.set_threshold(20_000, 5, 1_000)
