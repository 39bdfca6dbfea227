"""A node in a thread, listening on a port of its own, for clients over real sockets.

The fixture `node` gives one per test; `node_with(toml)` gives one with other settings. A test fails if the
broker logged an error meanwhile. `need_module` and `need_command` decide what a missing client means."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import NoReturn, Protocol

import pytest

from leveret.queues.queue import Queue
from leveret.server.node.threaded import embedded
from leveret.testing.driven_node import DrivenNode

TIMEOUT_S = 60  # for anything that should happen soon, on a busy machine


# Clients that may be missing.


def missing(what: str, remedy: str) -> NoReturn:
    """A client is not installed: a skip that says what to do, on a build server a failure."""
    text = f"{what} is missing: {remedy}"
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text, allow_module_level=True)


def need_module(name: str) -> ModuleType:
    """The module of a Python client."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        missing(name, "run `make test`, or pip install -e '.[interop]'")


def need_command(name: str, package: str) -> str:
    """The path of a command from a Debian package."""
    return shutil.which(name) or missing(name, f"apt-get install {package}")


# Waiting.


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Return as soon as the condition holds; fail if it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s} s in vain: {what}")
        time.sleep(0.005)


# The node.


class RunningNode(DrivenNode):
    """A node in a thread of its own, whose time goes on by itself or as it is told, and what tests ask it."""

    def __init__(self, toml: str = "", port: int = 0) -> None:
        settings = {"listeners": [{"address": f"127.0.0.1:{port}"}], **tomllib.loads(toml)}
        super().__init__(embedded(settings))

    def url_with(self, password: str) -> str:
        return self.url.replace(":guest@", f":{password}@")

    def close_connections(self) -> int:
        """As an operator would: 320 CONNECTION_FORCED to everybody."""
        return self.call(lambda: self.node.admin.close_connections("an operator asked for it"))

    def raise_alarm(self, reason: str) -> None:
        """Raise a resource alarm, as an operator would."""
        self.call(lambda: self.node.broker.alarms.set(reason))

    def clear_alarm(self, reason: str) -> None:
        self.call(lambda: self.node.broker.alarms.clear(reason))

    def clients(self) -> int:
        """How many connections have logged in and opened a virtual host."""
        return self.call(lambda: len(self.node.broker.clients))

    def declare(self, name: str, **properties: object) -> str:
        """A queue in the default virtual host."""
        self.call(lambda: self.node.broker.virtual_hosts["/"].declare_queue(name, **properties))  # type: ignore[arg-type]
        return name

    def delete(self, name: str) -> None:
        """Delete a queue, and let its consumers hear of it."""

        def deleted() -> None:
            host = self.node.broker.virtual_hosts["/"]
            host.delete_queue(host.queues[name])

        self.call(deleted)

    def queue_names(self) -> list[str]:
        return self.call(lambda: list(self.node.broker.virtual_hosts["/"].queues))

    def find(self, name: str) -> Queue | None:
        return self.call(lambda: self.node.broker.virtual_hosts["/"].queues.get(name))

    def ready(self, name: str) -> int:
        """Messages waiting in a queue; -1 if there is no such queue."""
        found = self.find(name)
        return -1 if found is None else found.ready

    def unsettled(self, name: str) -> int:
        found = self.find(name)
        return -1 if found is None else found.unsettled

    def consumers(self, name: str) -> int:
        found = self.find(name)
        return -1 if found is None else len(found.consumers)


class Start(Protocol):
    """Starts a node with these settings, at any free port or at this one."""

    def __call__(self, toml: str = "", port: int = 0) -> RunningNode: ...


class Errors(logging.Handler):
    """Gathers what the broker logs at level ERROR: mistakes of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@contextlib.contextmanager
def running_nodes() -> Iterator[Start]:
    """Nodes that run until the block ends, where their logs must hold no error."""
    nodes: list[RunningNode] = []
    errors = Errors()
    logger = logging.getLogger("leveret")
    logger.addHandler(errors)

    def start(toml: str = "", port: int = 0) -> RunningNode:
        node = RunningNode(toml, port)
        node.start()
        nodes.append(node)
        return node

    try:
        yield start
    finally:
        for node in nodes:
            node.stop()
        logger.removeHandler(errors)
    assert errors.texts == []


@pytest.fixture
def node_with() -> Iterator[Start]:
    """A function from settings (TOML) to a node that runs until the test ends."""
    with running_nodes() as start:
        yield start


@pytest.fixture
def node(node_with: Start) -> RunningNode:
    """A node with the default settings."""
    return node_with()
