"""Peers that misbehave, over real sockets: each gets a clear answer, and nobody else notices."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, wait_until

pytestmark = pytest.mark.interop

MIB = 1 << 20
HEADER = b"AMQP\x00\x00\x09\x01"
AMQP_1_0_SASL = b"AMQP\x03\x01\x00\x00"


def dial(node: RunningNode, sent: bytes = b"") -> socket.socket:
    """A connected socket over which some bytes have been sent."""
    connected = socket.create_connection(("127.0.0.1", node.port), timeout=TIMEOUT_S)
    connected.sendall(sent)
    return connected


def answer(node: RunningNode, sent: bytes) -> bytes:
    """Everything that comes back until the broker hangs up."""
    with dial(node, sent) as connected:
        parts = []
        while part := connected.recv(65536):
            parts.append(part)
        return b"".join(parts)


def login() -> bytes:
    """What a client says until its virtual host is open, all at once; no heartbeats."""
    return HEADER + b"".join(
        wire.method_frame(0, method.encode())
        for method in (
            m.ConnectionStartOk({"product": "test"}, "PLAIN", b"\0guest\0guest", "en_US"),
            m.ConnectionTuneOk(2047, 131_072, 0),
            m.ConnectionOpen("/"),
        )
    )


def wait_open(connected: socket.socket) -> None:
    """Read up to the open-ok, the last of the answers."""
    open_ok = wire.method_frame(0, m.ConnectionOpenOk().encode())
    received = b""
    while not received.endswith(open_ok):
        part = connected.recv(65536)
        assert part, f"the broker hung up after {received!r}"
        received += part


@contextlib.contextmanager
def client(node: RunningNode) -> Iterator[BlockingChannel]:
    with BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
        yield connection.channel()


def round_trip(channel: BlockingChannel, body: bytes) -> None:
    """Out and in again through an exclusive queue."""
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, body)
    method, _, got = next(channel.consume(queue, auto_ack=True, inactivity_timeout=TIMEOUT_S))
    assert method is not None, "nothing came"
    same = got == body
    assert same  # pytest would print the difference of two bodies, megabytes of it
    channel.cancel()
    channel.queue_delete(queue)


# First bytes.


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_an_http_client_is_told_that_this_is_amqp(node: RunningNode, method: str):
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=TIMEOUT_S)
    connection.request(method, "/api/overview")
    response = connection.getresponse()
    assert response.status == 400
    assert response.read() == (b"" if method == "HEAD" else b"This port speaks AMQP.\r\n")
    connection.close()


def test_a_tls_client_gets_an_alert(node: RunningNode):
    context = ssl.create_default_context()
    with dial(node) as connected, pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version"):
        context.wrap_socket(connected, server_hostname="localhost")


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"AMQP\x00\x00\x09\x02", HEADER),
        (b"AMQP\x01\x01\x08\x00", HEADER),
        (b"AMQP\x00\x00\x08\x00", HEADER),
        (b"AMQP\x07\x01\x00\x00", AMQP_1_0_SASL),
        (b"\x00" * 8, AMQP_1_0_SASL),
        (b"SSH-2.0-OpenSSH_9.2\r\n", AMQP_1_0_SASL),
        (Random(1).randbytes(4096), AMQP_1_0_SASL),
    ],
    ids=["0-9-2", "0-8", "0-8 in the spelling of 0-9-1", "1.0 of some kind", "zeros", "ssh", "noise"],
)
def test_another_first_header_is_answered_with_one_we_speak(node: RunningNode, sent: bytes, answered: bytes):
    assert answer(node, sent) == answered


def test_peers_that_fall_silent_in_their_greeting_are_dropped(node_with: Start):
    node = node_with("limits.handshake_timeout_s = 1")
    beginnings = (b"", b"A", b"AMQP\x00\x00", HEADER, login()[:40])
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda sent: answer(node, sent), beginnings))
    assert [len(said) > 0 for said in answers] == [False, False, False, True, True]


@pytest.mark.parametrize(
    "sent",
    [b"", b"AMQ", HEADER, login(), login() + b"\x01\x00\x01\x00"],
    ids=["nothing", "half a header", "a header", "a login", "half a frame"],
)
def test_connecting_and_going_away_leaves_nothing_behind(node: RunningNode, sent: bytes):
    for _ in range(20):
        dial(node, sent).close()
    with client(node) as channel:
        round_trip(channel, b"as usual")
    wait_until(lambda: node.clients() == 0, "nobody is left")


def test_garbage_after_the_login_ends_that_connection_with_its_code(node: RunningNode):
    with client(node) as channel:
        said = answer(node, login() + b"\x01\x00\x00\x00\x00\x00\x02hi\x00")
        assert b"FRAME_ERROR - type 1, channel 0: the frame does not end with 0xce" in said
        round_trip(channel, b"as usual")


# Slow, many, gone.


def test_a_peer_that_never_reads_does_not_disturb_another(node: RunningNode):
    """Its messages stay in the queue but for what fits its outbox and the socket; later it gets every one."""
    body = bytes(MIB)
    with client(node) as publisher, client(node) as slow, client(node) as other:
        publisher.queue_declare("slow")
        publisher.confirm_delivery()
        slow.basic_consume("slow", lambda *message: received.append(message), auto_ack=True)
        received: list[object] = []
        for _ in range(64):
            publisher.basic_publish("", "slow", body)
        assert node.ready("slow") > 32
        for _ in range(100):
            round_trip(other, b"as usual")
        while len(received) < 64:
            slow.connection.process_data_events(time_limit=TIMEOUT_S)
        assert node.ready("slow") == 0


def test_a_peer_that_leaves_with_unread_messages_is_let_go(node: RunningNode):
    """It says goodbye while more waits to be sent than its socket takes."""
    with client(node) as channel:
        channel.queue_declare("q")
        channel.confirm_delivery()
        for _ in range(32):
            channel.basic_publish("", "q", bytes(MIB))
        leaving = [
            wire.method_frame(number, method.encode())
            for number, method in (
                (1, m.ChannelOpen()),
                (1, m.BasicConsume("q")),
                (0, m.ConnectionClose(200, "bye", 0, 0)),
            )
        ]
        with dial(node, login() + b"".join(leaving)):
            wait_until(lambda: (node.clients(), node.ready("q")) == (1, 32), "its messages go back")
            round_trip(channel, b"as usual")


def test_a_thousand_idle_connections(node: RunningNode):
    with many_files(2200), contextlib.ExitStack() as stack:
        idle = [stack.enter_context(dial(node, login())) for _ in range(1000)]
        for connected in idle:
            wait_open(connected)
        assert node.clients() == 1000
        with client(node) as channel:
            for _ in range(20):
                round_trip(channel, b"among a thousand")
    wait_until(lambda: node.clients() == 0, "all have left")


@contextlib.contextmanager
def many_files(count: int) -> Iterator[None]:
    """Let this process open that many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"{count} open files are needed, {hard} allowed: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


HOLDER = """
import sys, pika
channel = pika.BlockingConnection(pika.URLParameters(sys.argv[1])).channel()
channel.queue_declare("mine", exclusive=True)
for number in range(10):
    channel.basic_get("q")
print("holding", flush=True)
sys.stdin.read()
"""


def test_a_killed_client_gives_back_what_it_held(node: RunningNode):
    with client(node) as channel:
        channel.queue_declare("q")
        for number in range(20):
            channel.basic_publish("", "q", str(number).encode())
        command = [sys.executable, "-c", HOLDER, node.url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"holding\n"
            assert (node.ready("q"), node.unsettled("q")) == (10, 10)
            holder.send_signal(signal.SIGKILL)
        wait_until(lambda: (node.ready("q"), node.unsettled("q")) == (20, 0), "the messages come back")
        assert node.find("mine") is None
        got = [channel.basic_get("q", auto_ack=True) for _ in range(20)]
    assert [body for _, _, body in got] == [str(number).encode() for number in range(20)]
    assert [method.redelivered for method, _, _ in got] == [True] * 10 + [False] * 10


# Large.


def test_a_body_of_16_mib_comes_back(node: RunningNode):
    with client(node) as channel:
        round_trip(channel, os.urandom(16 * MIB))


def test_a_body_beyond_the_limit_closes_the_channel_and_no_more(node_with: Start):
    with client(node_with('limits.message_size_max = "1MiB"')) as channel:
        channel.confirm_delivery()
        round_trip(channel, bytes(MIB))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.basic_publish("", "q", bytes(MIB + 1))
        assert caught.value.reply_code == 406
        assert "larger than configured max size 1048576" in caught.value.reply_text
        round_trip(channel.connection.channel(), b"as usual")


def test_a_body_of_128_mib_comes_back_where_it_is_allowed(node_with: Start):
    with client(node_with('limits.message_size_max = "128MiB"')) as channel:
        round_trip(channel, os.urandom(MIB) * 128)
