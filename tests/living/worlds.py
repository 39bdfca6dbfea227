"""A node that is killed, and the one that lives on: at the same database, or on the same data folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from leveret.durable.store.postgres.session import Session
from tests.crash.node import Node
from tests.ha.scene import HaScene, wait_until
from tests.harness.postgres import Pair

TTL_S: Final = 10.0  # of a lease: nobody takes over from a node that is only slow
LITTLE: Final = {"watermark": "1GiB", "messages_max": "1MiB"}


class World(ABC):
    """Where a round takes place."""

    @property
    @abstractmethod
    def amqp(self) -> int:
        """Return the port of the node that serves."""

    @property
    @abstractmethod
    def http(self) -> int:
        """Return the port of its control endpoint."""

    @property
    @abstractmethod
    def log(self) -> str:
        """Return what it has written."""

    @abstractmethod
    def succeed(self) -> None:
        """Kill the node that serves, and wait for the one that lives from here on."""

    @abstractmethod
    def end(self) -> None:
        """Kill what runs."""


class PostgresWorld(World):
    """Two nodes and a database: the second one takes over."""

    def __init__(
        self, folder: Path, pair: Pair, first: Sequence[str], living: Sequence[str], is_poor: bool
    ) -> None:
        settings = "[memory]\n" + "".join(f'{key} = "{value}"\n' for key, value in LITTLE.items())
        self._scene = HaScene(folder, pair, ttl_s=TTL_S, settings=settings if is_poor else "")
        self._serving, self._heir = self._scene.nodes
        try:
            self._serving.start(first, is_forked=True)
            self._scene.wait_for_owner()
            self._heir.start(living, is_forked=True)
            wait_until(lambda: self._heir.stands_by_for(self._serving), "node that stands by")
        except BaseException:
            self.end()
            raise

    @property
    def amqp(self) -> int:
        return self._serving.amqp.port

    @property
    def http(self) -> int:
        return self._serving.http.port

    @property
    def log(self) -> str:
        return self._serving.text()

    def succeed(self) -> None:
        self._serving.kill()
        self._scene.wait_for_owner(other_than=self._serving.name)
        self._serving = self._heir

    def end(self) -> None:
        self._scene.end()
        session = Session(self._scene.database, "test")
        session.connection.execute(session.statement("drop schema {s} cascade"))
        session.close()


class SqliteWorld(World):
    """A data folder: a node is started on it again."""

    def __init__(self, folder: Path, first: Sequence[str], living: Sequence[str], is_poor: bool) -> None:
        settings = {f"LEVERET_MEMORY__{key.upper()}": value for key, value in LITTLE.items()}
        self._folder = folder / "data"
        self._living = living
        self._settings = settings if is_poor else {}
        self._node = Node(self._folder, first, settings=self._settings)

    @property
    def amqp(self) -> int:
        return self._node.port

    @property
    def http(self) -> int:
        return self._node.http

    @property
    def log(self) -> str:
        return self._node.log

    def succeed(self) -> None:
        self._node.kill()
        self._node = Node(self._folder, self._living, settings=self._settings)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self._node.kill()
