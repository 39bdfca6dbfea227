"""A node as a process: what `leveret serve` runs until a signal ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Final

import trio

from leveret.clock import CountedClock
from leveret.config.config import Config
from leveret.memory_tuning import give_back_memory, keep_what_is_freed, spare_the_collector
from leveret.server.node import assembly, logs
from leveret.server.node.node import Node
from leveret.server.node.systemd import Handed, Notifier, handed_over, notifier

log: Final = logging.getLogger("leveret.node")


def run(
    config: Config,
    reread: Callable[[], Config],
    source: str = "",
    environ: MutableMapping[str, str] = os.environ,
) -> None:
    """Run a node until SIGINT or SIGTERM; SIGHUP reloads the configuration. Prints where the node listens.

    A service manager's variables are taken out of `environ`: the sockets to listen on, and where to report the state.
    """
    targets = logs.LogTargets(config.log)
    take_all_descriptors()
    if not config.node.core_dumps:
        leave_no_core()
    keep_what_is_freed()
    handed, tells = handed_over(environ, os.getpid()), notifier(environ, os.getpid())
    try:
        trio.run(_runner(config), config, reread, source, handed, tells, targets)
    finally:
        tells.close()
        targets.close()


def _runner(config: Config) -> Callable[..., Coroutine[None, None, None]]:
    if not config.cluster.is_on:
        return _run
    from leveret.server.cluster.process import serve  # most nodes have no cluster

    return serve


async def _run(
    config: Config,
    reread: Callable[[], Config],
    source: str,
    handed: Handed,
    tells: Notifier,
    targets: logs.LogTargets,
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        clock = CountedClock(trio.current_time() - time.perf_counter())  # which trio's own clock is based on
        async with (
            Node(config, reread, handed=handed, owns_loop=True, log_targets=targets, clock=clock) as node,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(feed_watchdog, tells)
            targets.say_whose(node.admin)
            # Perhaps nobody reads it, or its disk is full: the node serves all the same.
            with contextlib.suppress(OSError):
                print(assembly.welcome(node, source, has_links=sys.stdout.isatty()), flush=True)
            spare_the_collector()
            give_back_memory()  # what opening a data folder has freed is 2 of 45 MiB
            tells.ready(_status(node))
            async for received in signals:
                if received != signal.SIGHUP:
                    log.info("%s: shutting down", signal.Signals(received).name)
                    tells.stopping("shutting down")
                    nursery.cancel_scope.cancel()
                    break
                tells.reloading()
                node.admin.reload()
                tells.ready(_status(node))

    log.info("stopped; what was confirmed is %s", "in memory only" if node.persistence is None else "on disk")


def _status(node: Node) -> str:
    return f"listening on {', '.join(node.addresses)}"


async def feed_watchdog(tells: Notifier) -> None:
    """Feed the watchdog from the loop that serves the connections: if it hangs, the node has to be restarted."""
    while tells.feed_every_s is not None:
        await trio.sleep(tells.feed_every_s)
        tells.feed()


def take_all_descriptors() -> None:
    """Raise the limit of open files, one a connection, to the most allowed. Shells set 1024 because of select(2)."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems allow less than they announce
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def leave_no_core() -> None:
    """Have the system keep no core file of a crash, which would have the passwords that clients have sent.

    systemd-coredump and the like keep none, either. An operator can raise the limit again (`prlimit --core`).
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))
