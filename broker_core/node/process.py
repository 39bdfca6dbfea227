"""A node as a process: what `leveret serve` runs until a signal ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
from collections.abc import Callable, Iterable, MutableMapping
from functools import partial
from typing import Final

import trio

from broker_core.config.load import Config
from broker_core.frontend import Protocol
from broker_core.memory_tuning import keep_what_is_freed, spare_the_collector
from broker_core.node import assembly, logs
from broker_core.node.node import Node
from broker_core.node.systemd import Handed, Notifier, handed_over, notifier

log: Final = logging.getLogger("leveret.node")

SETTLED_S: Final = 2.0  # after which a start is over


def run(
    config: Config,
    reread: Callable[[], Config],
    source: str = "",
    environ: MutableMapping[str, str] = os.environ,
) -> None:
    """Run a node until SIGINT or SIGTERM; SIGHUP reloads. Prints where it listens.

    Of the environment it takes what a service manager says: the sockets to listen on, and whom to tell of itself.
    """
    logs.to_stderr(config)
    take_all_descriptors()
    keep_what_is_freed()
    handed, tells = handed_over(environ, os.getpid()), notifier(environ, os.getpid())
    try:
        trio.run(_run, config, reread, source, handed, tells)
    finally:
        tells.close()


async def _run(
    config: Config, reread: Callable[[], Config], source: str, handed: Handed, tells: Notifier
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with Node(config, reread, handed=handed) as node, trio.open_nursery() as nursery:
            nursery.start_soon(partial(_feed_watchdog, tells))
            nursery.start_soon(
                prepare, [each for listener in node.listening for each in listener.entrance.protocols]
            )
            logs.say_whose(node.admin)
            print(assembly.welcome(node, source), flush=True)
            spare_the_collector()
            tells.ready(_status(node))
            async for received in signals:
                if received != signal.SIGHUP:
                    log.info("%s: shutting down", signal.Signals(received).name)
                    tells.stopping("shutting down")
                    nursery.cancel_scope.cancel()
                    return
                tells.reloading()
                node.admin.reload()
                tells.ready(_status(node))


def _status(node: Node) -> str:
    return f"listening on {', '.join(node.addresses)}"


async def _feed_watchdog(tells: Notifier) -> None:
    """In the loop that serves everybody: where it does not come round, the node is of no use."""
    while tells.feed_every_s is not None:
        await trio.sleep(tells.feed_every_s)
        tells.feed()


async def prepare(protocols: Iterable[Protocol]) -> None:
    """Import what the start has left out, unless the node is gone by then: nobody has to wait for it later."""
    await trio.sleep(SETTLED_S)
    for protocol in {each.name: each for each in protocols}.values():
        try:
            if protocol.prepare is not None:
                await trio.to_thread.run_sync(protocol.prepare)
        except Exception:
            log.exception("a mistake of the protocol '%s' while it was prepared", protocol.name)


def take_all_descriptors() -> None:
    """A connection takes one. Shells give 1024, for the sake of programs that use select(2); more may be had."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems give less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
