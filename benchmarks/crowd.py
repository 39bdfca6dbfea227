"""Run many clients at once, each of which sends everything in one go: they rest, come and go, or dawdle.

    python -m benchmarks.crowd rest PORT COUNT      connects, prints {"seconds": ...}, stays until standard input ends
    python -m benchmarks.crowd devices PORT COUNT   the same over MQTT, each with a subscription of QoS 1
    python -m benchmarks.crowd churn PORT COUNT     connects COUNT times, a hundred clients at a time
    python -m benchmarks.crowd dawdle PORT COUNT    clients that never log in, reconnected when they are closed

A client that has logged in speaks 0-9-1, 1.0 or HTTP in turn; PORT serves all of them.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Iterable
from itertools import cycle
from struct import pack

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from leveret.protocols.mqtt.codec import packets as mqtt

AT_ONCE = 100
QUIET_S = 10.0  # without a byte, a client gives up
PACE_S = 1.0  # between two bytes of a dawdling client
ADDRESSES = 8  # of this machine, so that there are enough ports
GUEST = base64.b64encode(b"guest:guest").decode()


def login_091(leaves: bool) -> bytes:
    frames = [
        (0, m.ConnectionStartOk({"product": "crowd"}, "PLAIN", b"\0guest\0guest", "en_US")),
        (0, m.ConnectionTuneOk(2047, 131072, 0)),
        (0, m.ConnectionOpen("/")),
        (1, m.ChannelOpen()),
    ]
    if leaves:
        frames.append((0, m.ConnectionClose(200, "bye")))
    return b"AMQP\x00\x00\x09\x01" + b"".join(wire.method_frame(ch, each.encode()) for ch, each in frames)


def frame_10(kind: int, performative: p.Open | p.SaslInit | p.Close | p.Begin) -> bytes:
    body = performative.encode()
    return pack(">IBBH", len(body) + 8, 2, kind, 0) + body


def login_10(leaves: bool) -> bytes:
    init = p.SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"\0guest\0guest")
    begin = p.Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
    said = b"AMQP\x03\x01\x00\x00" + frame_10(1, init) + b"AMQP\x00\x01\x00\x00"
    said += frame_10(0, p.Open(container_id="crowd", hostname="localhost")) + frame_10(0, begin)
    return said + frame_10(0, p.Close()) if leaves else said


def request(leaves: bool) -> bytes:
    head = f"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {GUEST}\r\n"
    return (head + ("Connection: close\r\n" if leaves else "") + "\r\n").encode()


# The end of the broker's last answer to each, if it stays.
AMQP: tuple[Callable[[bool], bytes], ...] = (login_091, login_10)
DAWDLERS: tuple[bytes, ...] = (
    b"",  # sends nothing
    b"AMQP\x00\x00\x09",  # nearly a header
    b"AMQP\x00\x00\x09\x01\x01\x00\x00\x7f\xff\xff\xff" + b"x" * 64,  # a frame of two gigabytes
    b"AMQP\x03\x01\x00\x00\xff\xff\xff\xff\x02\x01\x00\x00" + b"x" * 64,  # and of four
    b"AMQP\x00\x00\x09\x01" + wire.method_frame(0, m.ConnectionStartOk({}, "PLAIN", b"", "").encode())[:-4],
    b"\x16\x03\x01\x02\x00\x01\x00",  # TLS, where there is none
    b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"POST /api/definitions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n{",
)


def connected(port: int, number: int, said: bytes) -> socket.socket:
    """Connect a client that sends all its bytes at once."""
    made = socket.socket()
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.bind((f"127.0.0.{2 + number % ADDRESSES}", 0))
    made.connect(("127.0.0.1", port))
    made.sendall(said)
    return made


def answered(client: socket.socket, until: bytes) -> None:
    """Wait until the broker has sent those bytes or, if there are none, has closed the connection."""
    heard = b""
    client.settimeout(QUIET_S)
    while not until or until not in heard:
        octets = client.recv(65536)
        if not octets:
            if until:
                raise SystemExit(f"hung up on: {heard!r}")
            return
        heard = heard[-64:] + octets


LAST_WORDS = (b"\x00\x14\x00\x0b", b"\x00\x53\x11")  # channel.open-ok; begin


def login_mqtt(number: int) -> bytes:
    """Return what a device says: its CONNECT, and a SUBSCRIBE to a topic of its own."""
    name = f"device-{os.getpid()}-{number}"
    login = mqtt.Connect(mqtt.MQTT_311, name, user_name="guest", password=b"guest").encode()
    asked = (mqtt.Subscription(f"devices/{number}/in", 1),)
    return login + mqtt.Subscribe(1, asked).encode(mqtt.MQTT_311)


SUBSCRIBED = mqtt.SubAck(1, (1,)).encode(mqtt.MQTT_311)


def rest(port: int, count: int) -> None:
    kinds = (number % len(AMQP) for number in range(count))
    stay(port, ((AMQP[kind](False), LAST_WORDS[kind]) for kind in kinds))


def devices(port: int, count: int) -> None:
    stay(port, ((login_mqtt(number), SUBSCRIBED) for number in range(count)))


def stay(port: int, clients: Iterable[tuple[bytes, bytes]]) -> None:
    """Connect clients, each with what it says and the end of the broker's last answer, and wait for the end."""
    started = time.perf_counter()
    held = []
    for number, (said, until) in enumerate(clients):
        client = connected(port, number, said)
        answered(client, until)
        held.append(client)
    tell(seconds=time.perf_counter() - started)
    sys.stdin.read()


def churn(port: int, count: int) -> None:
    """Connect and leave: a third closes properly, a third hangs up at once, a third during its login."""
    kinds = cycle((*AMQP, request))
    started = time.perf_counter()
    for first in range(0, count, AT_ONCE):
        clients = []
        for number in range(first, min(first + AT_ONCE, count)):
            said = next(kinds)(True)
            manner = number // 3 % 3
            clients.append((connected(port, number, said if manner < 2 else said[:-9]), manner))
        for client, manner in clients:
            if manner == 0:
                answered(client, b"")
            client.close()
    tell(seconds=time.perf_counter() - started)


def dawdle(port: int, count: int) -> None:
    """Send a byte a second from each client, in turn; a client whose connection is closed is replaced."""
    tell(seconds=0.0)
    numbers = iter(range(1 << 30))
    strangers = [stranger(port, next(numbers)) for _ in range(count)]
    again = 0
    for at in cycle(range(count)):
        if not drips(strangers[at]):
            strangers[at].close()
            strangers[at] = stranger(port, next(numbers))
            again += 1
        if select.select([sys.stdin], [], [], PACE_S / count)[0]:
            break
    tell(again=again)


def stranger(port: int, number: int) -> socket.socket:
    made = connected(port, number, DAWDLERS[number % len(DAWDLERS)])
    made.setblocking(False)
    return made


def drips(client: socket.socket) -> bool:
    """Send a byte; returns whether the connection is still open."""
    try:
        while client.recv(4096):
            pass
        return False
    except BlockingIOError:
        pass
    except OSError:
        return False
    try:
        client.send(b"x")
    except OSError:
        return False
    return True


def tell(**facts: float | str | None) -> None:
    """Print facts as JSON, on a line."""
    sys.stdout.write(json.dumps(facts) + "\n")  # in one piece: the threads of a soak call this
    sys.stdout.flush()


def all_descriptors() -> None:
    """Raise the limit of open files to the most allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    all_descriptors()
    what, port, count = sys.argv[1:]
    {"rest": rest, "devices": devices, "churn": churn, "dawdle": dawdle}[what](int(port), int(count))
