"""Run a node in a thread of its own, for programs that do not run trio.

    with ThreadedNode() as node:
        connection = pika.BlockingConnection(pika.URLParameters(node.url))

Everything of the broker belongs to that thread. Other threads talk to it as clients do, over sockets, or hand it a
function with `call`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Final, ParamSpec, TypeVar

import trio

from leveret.clock import Clock
from leveret.config.config import Config, parse
from leveret.config.records import Raw, laid_over
from leveret.config.types import Address, AnyAddress, UnixAddress
from leveret.durable.store.contract import Store
from leveret.server.node.node import Node

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", Address, UnixAddress)

CLOSING_S: Final = 0.5  # for clients to close; they are on this machine, or in this very program and idle

EMBEDDED: Final[Raw] = {
    "listeners": [{"address": "127.0.0.1:0"}],
    "http": {"enabled": False},
    "memory": {"watermark": 0},  # most of the process's memory is not the broker's
}


def embedded(source: Raw | None = None, overrides: Mapping[str, object] | None = None) -> Config:
    """Return a configuration for a node inside another program: 127.0.0.1, any free port, no HTTP, in memory only.

    `source` is laid over that, with the keys of the file: `{"users": [...]}`. `overrides` names keys by their path, as
    in `parse`. Raises ConfigError.
    """
    return parse(laid_over(EMBEDDED, source or {}), overrides=overrides)


class ThreadedNode:
    """A node in a daemon thread. Use it as a context manager, or call `start` and `stop`, as often as you like."""

    node: Node  # for functions handed to `call`; use it in its own thread only

    def __init__(
        self,
        config: Config | None = None,
        closing_s: float = CLOSING_S,
        store: Store | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Without `config` the node is `embedded()`. `closing_s` is how long `stop` waits for clients, in seconds.

        `store` is as for `Node`; the first `stop` closes it. So is `clock`.
        """
        self.config = embedded() if config is None else config
        self._store = store
        self._clock = clock
        self._closing_s = closing_s
        self._thread: threading.Thread | None = None
        self._url = ""  # of a node that has a listener
        self._bound: list[AnyAddress] = []
        self._process = 0  # the id of the one in which the node has its thread

    # Start and end.

    def start(self) -> None:
        """Start the node, and return when it listens. Raises what the start of a `Node` raises."""
        if self._thread is not None:
            raise RuntimeError("the node is running already")
        started: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, args=(started,), name="leveret", daemon=True)
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self._join()
            raise

    def stop(self) -> None:
        """Close every client's connection and every socket, and end the thread. Raises the error that ended the node.

        Does nothing if the node does not run, or runs in the process that this one was forked from.
        """
        if self._thread is None or self._process != os.getpid():
            return
        if self._thread is threading.current_thread():
            raise RuntimeError("the node cannot be stopped by a function that it runs")
        with suppress(trio.RunFinishedError):  # it has ended already; `_ended` has the reason
            self._token.run_sync_soon(self._stopping.set)
        self._join()
        self._ended.result()

    def _join(self) -> None:
        assert self._thread is not None
        self._thread.join()
        self._thread = None

    def __enter__(self) -> ThreadedNode:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, started: Future[None]) -> None:
        try:
            trio.run(self._main, started)
            self._ended.set_result(None)
        except BaseException as error:
            (self._ended if started.done() else started).set_exception(error)

    async def _main(self, started: Future[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stopping = trio.Event()
        async with Node(
            self.config, closing_s=self._closing_s, store=self._store, clock=self._clock
        ) as self.node:
            self._url = self.node.url if self.node.listening else ""
            self._bound = [listener.bound for listener in self.node.listening]
            started.set_result(None)
            await self._stopping.wait()

    # For other threads.

    @property
    def url(self) -> str:
        """Return `amqp://guest:guest@127.0.0.1:PORT/%2F`, or the URL that the configuration yields."""
        self._require_running()
        if not self._url:
            raise RuntimeError("the node has no listener")
        return self._url

    @property
    def host(self) -> str:
        """Return the host of the first listener with a port, as an address to connect to."""
        return self._first(Address).host

    @property
    def port(self) -> int:
        """Return the port of the first listener that has one."""
        return self._first(Address).port

    @property
    def socket_path(self) -> str:
        """Return the path of the first Unix domain socket, or an abstract name after `@`."""
        return self._first(UnixAddress).path

    def _first(self, kind: type[A]) -> A:
        """Return the first address of a kind on which the node listens. Raises RuntimeError if there is none."""
        self._require_running()
        for address in self._bound:
            if isinstance(address, kind):
                return address
        raise RuntimeError(f"the node has no such listener, only {', '.join(map(str, self._bound))}")

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in the broker's thread, let the broker settle its effects, and return its result.

        The function must not block. Raises what the function raises; RuntimeError if the node does not run.
        """

        def called() -> T:
            self.node.broker.tick()
            try:
                return function(*args, **kwargs)
            finally:
                self.node.settle()

        self._require_running()
        try:
            return trio.from_thread.run_sync(called, trio_token=self._token)
        except trio.RunFinishedError:
            raise RuntimeError("the node has ended") from None

    def wait(self, function: Callable[[Node], Awaitable[T]]) -> T:
        """Like `call`, for an async function, which gets the node."""
        self._require_running()
        try:
            return trio.from_thread.run(function, self.node, trio_token=self._token)
        except trio.RunFinishedError:
            raise RuntimeError("the node has ended") from None

    def _require_running(self) -> None:
        if self._thread is None:
            raise RuntimeError("the node is not running")
        if self._process != os.getpid():  # its thread did not come along: whoever waits for it waits for ever
            raise RuntimeError("the node runs in the process that this one was forked from")
