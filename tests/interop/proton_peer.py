"""What the tests with Qpid Proton share: connections that do not come back by themselves, and containers that end."""

from __future__ import annotations

from typing import Final

import pytest
from proton import Event, Link, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, Handler, LinkOption
from proton.utils import BlockingConnection

from tests.interop.conftest import TIMEOUT_S, RunningNode

LOGIN: Final = {"user": "guest", "password": "guest", "allowed_mechs": "PLAIN", "reconnect": False}


def data(octets: bytes) -> Message:
    """A message whose body is one section of data."""
    return Message(body=octets, inferred=True)


def url_of(node: RunningNode) -> str:
    return f"amqp://127.0.0.1:{node.port}"


def connect(node: RunningNode, virtual_host: str = "vhost:/", **options: object) -> BlockingConnection:
    return BlockingConnection(
        url_of(node), timeout=TIMEOUT_S, virtual_host=virtual_host, **{**LOGIN, **options}
    )


class Capability(LinkOption):
    """Asks of a dynamic source what RabbitMQ asks to be asked of it."""

    def apply(self, link: Link) -> None:
        link.source.capabilities.put_object(symbol("temporary-queue"))


class Script(MessagingHandler):
    """A container's handler: it connects, and what it gathers in `found` is the result of `run`."""

    def __init__(self, node: RunningNode, **options: object) -> None:
        super().__init__(**options)
        self.node = node
        self.found: list[object] = []
        self._deadline: object = None

    def on_start(self, event: Event) -> None:
        self.container = event.container
        self._deadline = event.container.schedule(TIMEOUT_S, Overdue())
        self.connection = event.container.connect(url_of(self.node), virtual_host="vhost:/", **LOGIN)
        self.begin()

    def begin(self) -> None:
        """Attach links; the connection is not open yet."""

    def finish(self) -> None:
        self._deadline.cancel()
        self.connection.close()

    def on_link_error(self, event: Event) -> None:
        self.found.append(event.link.remote_condition)
        self.finish()

    def run(self) -> list[object]:
        Container(self).run()
        return self.found


class Overdue(Handler):
    def on_timer_task(self, event: Event) -> None:
        pytest.fail(f"not done after {TIMEOUT_S} s")
