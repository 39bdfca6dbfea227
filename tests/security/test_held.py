"""What a peer that has not logged in makes a front-end hold: measured, with everything that Python adds to it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from leveret.front_end import FrontEnd
from leveret.outbox import Outbox
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.broker.adapter import PROPERTIES_MAX
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import method_frame
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.http.server.adapter import ControlAdapter
from leveret.protocols.shared.machine.pieces import PIECE, keep
from leveret.server.node.listener import BITE
from leveret.server.node.transport import WAITING_MAX
from tests.amqp010.client import frame as frame_010
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import Peer
from tests.amqp10.parts import SASL
from tests.amqp10.parts import frame as frame_10
from tests.amqp10.peer import Peer as Peer10
from tests.harness.bench import ClientBench
from tests.harness.peer import ELSEWHERE

KIB = 1024
MOST = 8 * KIB
AROUND = 2 * KIB  # of Python's own: lists, and a bytes object for each piece
CHALLENGING = '[protocols.{}]\nmechanisms = ["RABBIT-CR-DEMO"]\n'
Make = Callable[[ClientBench], FrontEnd]


def front_091(bench: ClientBench) -> FrontEnd:
    peer = Peer(bench, ELSEWHERE)
    peer.start()
    return peer.front


def front_10(bench: ClientBench) -> FrontEnd:
    peer = Peer10(bench, ELSEWHERE)
    peer.greet()
    return peer.front


def front_010(bench: ClientBench) -> FrontEnd:
    peer = Peer010(bench, ELSEWHERE)
    peer.greet()
    return peer.front


def front_http(bench: ClientBench) -> FrontEnd:
    return ControlAdapter(bench.broker, bench.config, Outbox([]), ELSEWHERE, 0.0)


def held(bench: ClientBench, make: Make, said: bytes, piece: int) -> tuple[int, FrontEnd]:
    """Octets that one of them holds more than before, and the front-end; all that it has said has been sent.

    Much may be somebody else's, as threads of the test run are at work meanwhile: then it is measured again.
    """
    for _ in range(3):
        octets, front = measured(bench, make, said, piece)
        if octets <= MOST + AROUND:
            break
    return octets, front


def measured(bench: ClientBench, make: Make, said: bytes, piece: int) -> tuple[int, FrontEnd]:
    make(bench).receive(said, 0.0)  # what is made once, for all of them, is made now
    fronts = [make(bench) for _ in range(2)]
    gc.collect()
    tracemalloc.start()
    try:
        for front in fronts:
            for at in range(0, len(said), piece):
                front.receive(bytes(bytearray(said[at : at + piece])), 0.0)
            front.outbox.sent(sum(map(len, front.outbox.take())))
        gc.collect()
        return tracemalloc.get_traced_memory()[0] // len(fronts), fronts[0]
    finally:
        tracemalloc.stop()


HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
UNFINISHED: dict[str, tuple[Make, bytes]] = {
    "0-9-1, a frame": (front_091, b"\x01\x00\x00" + (8184).to_bytes(4) + b"\x00\x0a\x00\x0b" + b"x" * 8170),
    "1.0, a frame": (front_10, (8192).to_bytes(4) + b"\x02\x01\x00\x00" + b"x" * 8170),
    "0-10, a frame": (front_010, b"\x0f\x00" + (8192).to_bytes(2) + bytes(8) + b"x" * 8170),
    "0-10, controls": (
        front_010,
        b"".join(frame_010(b"\x01\x02" + b"x" * 1000, channel, 0x0E) for channel in range(5)),
    ),
    "http, a long line": (front_http, b"GET /" + b"x" * 6000),
    "http, many short lines": (front_http, HEAD + b"a:\r\n" * 1400),
    "http, a body": (front_http, HEAD + b"a:\r\n" * 60 + b"Content-Length: 2048\r\n\r\n" + b"x" * 2047),
}


@pytest.mark.parametrize("piece", [1, 2, 7, BITE])
@pytest.mark.parametrize("how", UNFINISHED)
def test_what_is_not_whole_is_kept_as_it_came_however_it_came(how: str, piece: int):
    make, said = UNFINISHED[how]
    octets, front = held(ClientBench(), make, said, piece)
    assert not front.closed
    assert octets <= MOST + AROUND


TOO_MUCH: dict[str, tuple[Make, bytes]] = {
    "0-9-1, a frame": (front_091, b"\x01\x00\x00" + (8193).to_bytes(4) + b"\x00"),
    "1.0, a frame": (front_10, (8193).to_bytes(4) + b"\x02\x01\x00\x00"),
    "0-10, a frame": (front_010, b"\x0f\x00" + (8193).to_bytes(2) + bytes(8)),
    "0-10, controls": (
        front_010,
        b"".join(frame_010(b"\x01\x02" + b"x" * 1000, channel, 0x0E) for channel in range(6)),
    ),
    "http, a long line": (front_http, b"GET /" + b"x" * 6140),
    "http, many headers": (front_http, HEAD + b"a:\r\n" * 64 + b"\r\n"),
    "http, a body": (front_http, HEAD + b"Content-Length: 2049\r\n\r\n"),
    "http, a body of unknown size": (
        front_http,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n801\r\n" + b"x" * 2049,
    ),
}


@pytest.mark.parametrize("how", TOO_MUCH)
def test_what_would_be_more_ends_the_connection_before_it_is_there(how: str):
    make, said = TOO_MUCH[how]
    assert held(ClientBench(), make, said, BITE)[1].closed


def test_who_is_challenged_is_kept_with_what_he_said_of_himself():
    """It is what a client can make most of: each of these fields takes three octets on the wire."""
    said = dict.fromkeys((f"{number:x}" for number in range(PROPERTIES_MAX - 1)), None)
    start_ok = m.ConnectionStartOk(said, "RABBIT-CR-DEMO", b"guest", "en_US")
    octets, front = held(
        ClientBench(CHALLENGING.format("amqp091")), front_091, method_frame(0, start_ok.encode()), BITE
    )
    assert not front.closed
    assert octets <= MOST + AROUND


def test_more_properties_than_any_client_has_are_refused():
    said = dict.fromkeys((f"{number:x}" for number in range(PROPERTIES_MAX)), None)
    peer = Peer(ClientBench(), ELSEWHERE)
    peer.start()
    start_ok = m.ConnectionStartOk(said, "PLAIN", b"\0guest\0guest", "en_US")
    assert peer.closed_with(0, start_ok) == f"502 SYNTAX_ERROR - more than {PROPERTIES_MAX} client properties"
    assert peer.front.wire.client_properties == {}


def test_of_who_is_challenged_in_1_0_nothing_is_kept_and_in_0_10_a_little():
    init = frame_10(0, p.SaslInit(mechanism="RABBIT-CR-DEMO", initial_response=b"guest"), kind=SASL)
    assert held(ClientBench(CHALLENGING.format("amqp10")), front_10, init, BITE)[0] <= AROUND
    said = {f"property {number}": "x" * 100 for number in range(50)}
    start_ok = frame_010(c.ConnectionStartOk(said, "RABBIT-CR-DEMO", b"guest", "en_US").encode())
    assert held(ClientBench(CHALLENGING.format("amqp010")), front_010, start_ok, BITE)[0] <= MOST


def test_while_a_password_is_checked_little_more_is_read():
    assert BITE + WAITING_MAX <= MOST


def test_small_pieces_are_gathered_and_large_ones_are_not_copied():
    pieces: list[bytes] = []
    for _ in range(3 * PIECE):
        keep(pieces, b"x")
    assert [len(piece) for piece in pieces] == [PIECE] * 3
    large = bytes(100_000)
    keep(pieces, large)
    assert pieces[-1] is large
    keep(pieces, b"y")
    assert pieces[-2] is large
