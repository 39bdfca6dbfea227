"""The thread of a store that writes commits in their order, until it is to end or has failed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from leveret.durable.store.contract import Commit, StoreError

Soon = Callable[[Callable[[], None]], None]


class End:
    """The last order: a commit, and a note that the store was closed properly; with None, neither."""

    __slots__ = ("last",)

    def __init__(self, last: Commit | None) -> None:
        self.last = last


class WriterThread(ABC):
    """Takes orders from the journal's thread, and obeys them in its own."""

    _soon: Soon
    _failed_with: Callable[[Exception], None]

    def __init__(self) -> None:
        self._orders: SimpleQueue[Commit | End] = SimpleQueue()
        self._thread = Thread(target=self._run, name="leveret-writer", daemon=True)
        self._failed: StoreError | None = None
        # Held by the thread that writes: this one, unless it waits for an order.
        self._turn = Lock()
        self._turn.acquire()
        self.commits = 0

    # Called by the journal's thread.

    def put(self, commit: Commit) -> None:
        """Have a commit written. After a failure it is ignored, without another report."""
        self._orders.put(commit)

    def end(self, last: Commit | None) -> None:
        """Write all that was put, and the last commit, and end the thread. Raises StoreError."""
        self._orders.put(End(last))
        self._thread.join()
        if self._failed is not None and last is not None:
            raise self._failed

    # The thread.

    def _run(self) -> None:
        failed = self._failed_with
        try:
            self._begin()
            while isinstance(order := self._next(), Commit):
                self._keep(order)
        except StoreError as error:
            self._failed = fatal = error
            self._soon(lambda: failed(fatal))
            return
        if order.last is not None:
            self._finish(order.last)

    def _wait(self, wait_s: float | None) -> Commit | End | None:
        """Wait for an order, and let the journal's thread write meanwhile. None: there was none."""
        self._turn.release()
        try:
            with suppress(Empty):
                return self._orders.get(timeout=wait_s)
        finally:
            self._turn.acquire()
        with suppress(Empty):
            return self._orders.get_nowait()  # it may have come in this moment
        return None

    def _begin(self) -> None:
        """Called once, before the first order. Raises StoreError."""

    @abstractmethod
    def _next(self) -> Commit | End:
        """Return the next order; while there is none, do what else is to be done. Raises StoreError."""

    @abstractmethod
    def _keep(self, commit: Commit) -> None:
        """Write a commit, and report the outcome. Raises StoreError."""

    @abstractmethod
    def _finish(self, last: Commit) -> None:
        """Write the last commit, and the note that the store was closed properly; keep a failure for `end`."""
