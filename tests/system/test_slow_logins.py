"""First logins of a node with real sockets and threads: they work, others go on meanwhile, and little is read."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pika
import pika.exceptions
import pytest
from proton.utils import BlockingConnection

from leveret import ThreadedNode
from leveret.config.config import parse
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import method_frame
from leveret.security.passwords import Hashing
from leveret.security.users import User
from leveret.server.node.transport import READ_SIZE, WAITING_MAX
from tests.amqp091.peer import HEADER, start_ok

pytestmark = pytest.mark.system
T = TypeVar("T")

CONFIG = {
    "listeners": [{"address": "127.0.0.1:0"}],
    "http": {"enabled": False},
    "limits": {"handshake_timeout_s": 300},  # a hash is made in a thread that steps back: it may take long
}
PLAIN = method_frame(0, start_ok("PLAIN", b"\0ann\0secret").encode())


@pytest.fixture
def node() -> Iterator[ThreadedNode]:
    """`ann`, whose password is `secret`, is kept as clients are."""
    kept = Hashing().kept("secret")

    def put() -> None:
        access = running.node.broker.access
        access.put_user(User("ann", password=kept))
        access.set_permissions("ann", "/", ".*", ".*", ".*")

    with ThreadedNode(parse(CONFIG)) as running:
        running.call(put)
        yield running


class Held:
    """Threads that begin their work when they may."""

    def __init__(self, node: ThreadedNode) -> None:
        self.may_begin = threading.Event()
        self.begun = threading.Event()
        self._access = node.node.broker.access
        self._off_thread = self._access.off_thread
        self._access.off_thread = self

    def __call__(self, work: Callable[[], T], then: Callable[[T], None], /) -> None:
        def held() -> T:
            self.begun.set()
            assert self.may_begin.wait(60)
            return work()

        self._off_thread(held, then)


def asking(node: ThreadedNode, more: bytes = b"") -> socket.socket:
    """A client whose password is being checked."""
    client = socket.create_connection((node.host, node.port), timeout=60)
    client.sendall(HEADER)
    assert client.recv(65536)
    client.sendall(PLAIN + more)
    return client


def opened(node: ThreadedNode, user: str, password: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters(node.host, node.port, credentials=credentials))


def test_a_user_with_a_slow_hash_logs_in_over_every_protocol(node: ThreadedNode) -> None:
    opened(node, "ann", "secret").close()
    url = f"amqp://{node.host}:{node.port}"
    BlockingConnection(url, user="ann", password="secret", allowed_mechs="PLAIN").close()
    for user, password in (("ann", "wrong"), ("nobody", "secret")):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            opened(node, user, password)


def test_others_go_on_while_a_password_is_checked(node: ThreadedNode) -> None:
    held = Held(node)
    client = asking(node)
    assert held.begun.wait(60)
    other = opened(node, "guest", "guest")
    other.channel().queue_declare("q")
    other.close()
    client.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.recv(65536)
    held.may_begin.set()
    client.settimeout(60)
    assert client.recv(65536)[7:11] == m.ConnectionTune(0, 0, 0).encode()[:4]
    client.close()


def test_little_is_read_of_who_talks_on_while_his_password_is_checked(node: ThreadedNode) -> None:
    held = Held(node)
    client = asking(node)
    assert held.begun.wait(60)
    client.settimeout(1)
    with pytest.raises(TimeoutError):
        client.sendall(bytes(64 << 20))  # more than both systems take
    [octets] = node.call(lambda: [each.octets_received for each in node.node.admin.connections()])
    assert octets <= len(HEADER) + len(PLAIN) + READ_SIZE + WAITING_MAX
    held.may_begin.set()
    client.close()


def test_who_hangs_up_while_his_password_is_checked_is_gone_at_once(node: ThreadedNode) -> None:
    held = Held(node)
    client = asking(node)
    assert held.begun.wait(60)
    client.close()
    while node.call(lambda: len(node.node.admin.connections())):
        pass
    held.may_begin.set()
    opened(node, "ann", "secret").close()
