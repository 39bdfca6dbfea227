"""WebSockets without a node: which requests are let in, and what the stream makes of frames."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.frame_protocol import FrameProtocol, Opcode

from leveret.server.node.websocket import FRAMES_MAX, READ_FIRST, WebSocketStream, is_opening, opened

# Requests.


def request(path: str = "/ws", **headers: str | None) -> bytes:
    """A request for a WebSocket; a header that is None is left out."""
    named = {
        "Host": "broker.example:15672",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "amqp",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{name}: {value}" for name, value in named.items() if value is not None]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


SUBPROTOCOLS = ("amqp", "AMQPWSB10", "other")


def answered(head: bytes, *origins: str, own_name: str | None = None) -> tuple[int, bytes]:
    found = opened(head, origins, own_name, SUBPROTOCOLS)
    status = int(found.answer.split()[1])
    assert (status == 101) is (found.connection is not None) is not bool(found.reason)
    return status, found.answer


def test_the_sample_of_the_rfc_is_answered_as_there():
    status, answer = answered(request())
    assert status == 101
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer
    assert b"sec-websocket-protocol: amqp\r\n" in answer.lower()


@pytest.mark.parametrize(
    ("offered", "status", "chosen"),
    [
        (None, 101, None),
        ("amqp", 101, b"amqp"),
        ("binary, AMQPWSB10, amqp", 101, b"amqp"),
        ("binary, AMQPWSB10", 101, b"AMQPWSB10"),
        ("other", 101, b"other"),
        ("unknown", 400, None),
    ],
)
def test_the_subprotocol_is_one_of_those_that_are_served(
    offered: str | None, status: int, chosen: bytes | None
):
    found, answer = answered(request(Sec_WebSocket_Protocol=offered))
    assert found == status
    if found == 101:
        named = re.findall(rb"(?i)\r\nsec-websocket-protocol: *(\S+)\r\n", answer)
        assert named == ([chosen] if chosen else [])


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://broker.example:15672", 101),
        ("HTTPS://Broker.Example:15672", 101),
        ("https://app.example", 101),
        ("http://app.example", 403),
        ("https://app.example.evil.example", 403),
        ("http://broker.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_pages_of_other_sites_need_to_be_named(origin: str, status: int):
    assert answered(request(Origin=origin), "https://app.example")[0] == status


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:15672", 101), ("127.0.0.1:15672", 101), ("mine.example", 101), ("evil.example", 421)],
)
def test_on_this_machine_a_foreign_name_is_refused(host: str, status: int):
    """A page may have given this machine a name of its own, and then its origin is that of the host."""
    assert answered(request(Host=host, Origin=f"http://{host}"), own_name="mine.example")[0] == status


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Upgrade": None}, 400),
        ({"Upgrade": "h2c"}, 400),
        ({"Connection": "close"}, 400),
        ({"Sec_WebSocket_Key": None}, 400),
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Host": None}, 400),
        ({"Origin": "\u00e4"}, 403),
    ],
)
def test_what_is_no_request_for_a_websocket_is_refused(change: dict[str, str | None], status: int):
    assert answered(request(**change))[0] == status


@pytest.mark.parametrize(
    "head",
    [b"POST /ws HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /ws\r\n\r\n", b"\r\n\r\n", b"GET \xff HTTP/1.1\r\n\r\n"],
)
def test_what_cannot_be_read_is_refused(head: bytes):
    assert answered(head)[0] == 400


def test_nothing_is_compressed():
    _, answer = answered(request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"))
    assert b"extensions" not in answer.lower()


@pytest.mark.parametrize(
    ("data", "is_one"),
    [
        (b"", None),
        (b"GET /w", None),
        (b"GET /ws", None),
        (b"GET /ws ", True),
        (b"GET /ws?x", True),
        (b"GET /ws/amqp", True),
        (b"GET /wsx", False),
        (b"GET /api", False),
        (b"POST /ws ", False),
    ],
)
def test_beside_http_the_path_tells(data: bytes, is_one: bool | None):
    assert is_opening(data) is is_one


# Frames.


class Pair:
    """A stream, and a client at the other end of its socket."""

    def __init__(self, behind: bytes = b"") -> None:
        ours, self.socket = socket.socketpair()
        ours.setblocking(False)
        self.socket.setblocking(False)
        self.client = Connection(ConnectionType.CLIENT)
        self.stream = WebSocketStream(ours, Connection(ConnectionType.SERVER), behind)

    def say(self, *events: Event) -> None:
        self.socket.sendall(b"".join(self.client.send(event) for event in events))

    def heard(self) -> list[Event]:
        try:
            while data := self.socket.recv(1 << 20):
                self.client.receive_data(data)
        except BlockingIOError:
            pass
        return list(self.client.events())

    def received(self, size: int = 1 << 18) -> bytes:
        """Everything up to now."""
        pieces = []
        try:
            while piece := self.stream.recv(size):
                pieces.append(piece)
        except BlockingIOError:
            pass
        return b"".join(pieces)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.stream.close()
    pair.socket.close()


def test_fragments_are_handed_on_as_they_come_with_pings_between(pair: Pair):
    pair.say(BytesMessage(b"AM", message_finished=False), Ping(b"there?"))
    assert pair.stream.recv(100) == b"AM"
    assert pair.heard() == [Pong(b"there?")]
    pair.say(BytesMessage(b"QP", message_finished=False), BytesMessage(b"", message_finished=True), Pong(b""))
    assert pair.received() == b"QP"


def test_of_a_frame_that_says_it_is_huge_nothing_is_kept(pair: Pair):
    pair.socket.sendall(b"\x82\xff" + (1 << 62).to_bytes(8) + bytes(4) + b"x" * 1000)
    assert pair.received() == b"x" * 1000
    pair.socket.sendall(b"y" * 1000)
    assert pair.received() == b"y" * 1000


def test_what_came_with_the_request_is_read_first():
    behind = Connection(ConnectionType.CLIENT).send(BytesMessage(b"AMQP\x00\x00\x09\x01"))
    pair = Pair(behind)
    assert pair.stream.has_more
    assert pair.stream.recv(100) == b"AMQP\x00\x00\x09\x01"
    assert not pair.stream.has_more
    pair.stream.close()
    pair.socket.close()


def test_a_write_is_one_frame(pair: Pair):
    assert pair.stream.send(memoryview(b"x" * 200_000)) == 200_000
    pair.socket.setblocking(True)
    data = b""
    while len(data) < 200_010:
        data += pair.socket.recv(1 << 20)
    assert (len(data), data[:2]) == (200_010, b"\x82\x7f")


def test_a_frame_that_is_not_accepted_at_once_is_continued_and_counted_once(pair: Pair):
    sent, piece, got = 0, memoryview(b"x" * 4_000_000), b""
    while piece:
        try:
            count = pair.stream.send(piece)
        except BlockingIOError:
            pair.say(Ping(b"meanwhile"))
            pair.received()
            got += b"".join(each.data for each in pair.heard() if isinstance(each, BytesMessage))
            continue
        sent, piece = sent + count, piece[count:]
    got += b"".join(each.data for each in pair.heard() if isinstance(each, BytesMessage))
    assert sent == len(got) == 4_000_000


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"\x81\x82\0\0\0\0hi", 1003),  # text
        (b"\x82\x02hi", 1002),  # not masked
        (b"\x83\x80\0\0\0\0", 1002),  # an opcode that there is not
        (b"\xc2\x80\0\0\0\0", 1002),  # compressed
        (b"\x80\x80\0\0\0\0", 1002),  # continues nothing
        (b"\x89\xfe\x01\x00" + bytes(260), 1002),  # a long ping
        (b"\x88\x82\0\0\0\0\x03\xe8", 1000),  # a close
        (b"\x88\x80\0\0\0\0", 1005),  # a close without a code
    ],
)
def test_the_end_has_the_code_that_fits(pair: Pair, said: bytes, code: int):
    pair.socket.sendall(said)
    assert pair.stream.recv(100) == b""
    assert pair.stream.has_more  # the end, again
    assert pair.stream.recv(100) == b""
    with pytest.raises(BrokenPipeError):
        pair.stream.send(memoryview(b"late"))
    (close,) = pair.heard()
    assert isinstance(close, CloseConnection)
    assert close.code == code


def test_what_came_before_a_close_is_not_lost(pair: Pair):
    pair.say(BytesMessage(b"last words"), CloseConnection(1000))
    assert pair.stream.recv(100) == b"last words"
    assert pair.stream.recv(100) == b""


def test_our_own_end_is_a_close_frame(pair: Pair):
    pair.stream.send(memoryview(b"bye"))
    pair.stream.shutdown(socket.SHUT_WR)
    message, close = pair.heard()
    assert (message.data, close.code) == (b"bye", 1000)
    assert not pair.stream.has_more
    pair.socket.close()


def test_pings_whose_answers_nobody_reads_end_the_connection(pair: Pair):
    ping = pair.client.send(Ping(b"x" * 125))

    def flood() -> None:
        for _ in range(100_000):
            pair.socket.send(ping * 100)
            pair.received()

    with pytest.raises(ConnectionAbortedError, match="answers to its pings"):
        flood()


def test_tiny_frames_are_read_in_small_portions(pair: Pair):
    """Each costs some microseconds, whatever is in it."""
    tiny = FrameProtocol(client=True, extensions=[])
    pair.socket.sendall(b"".join(tiny._serialize_frame(Opcode.BINARY, b"x", fin=True) for _ in range(20_000)))
    sizes = []
    while sum(sizes) < 20_000:
        sizes.append(len(pair.stream.recv(1 << 18)))
    assert max(sizes) <= READ_FIRST // 7
    assert max(sizes[5:]) <= 2 * FRAMES_MAX


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 50))
def test_bytes_come_as_they_were_sent_however_they_are_divided(parts: list[bytes], step: int):
    pair = Pair()
    try:
        events = [BytesMessage(part, message_finished=False) for part in parts]
        data = b"".join(pair.client.send(each) for each in (*events, BytesMessage(b"")))
        found = b""
        for at in range(0, len(data), step):
            pair.socket.sendall(data[at : at + step])
            found += pair.received(64)
        assert found == b"".join(parts)
    finally:
        pair.stream.close()
        pair.socket.close()


def test_text_that_is_cut_off_is_refused_all_the_same(pair: Pair):
    pair.say(TextMessage("hi", message_finished=False))
    assert pair.stream.recv(100) == b""
