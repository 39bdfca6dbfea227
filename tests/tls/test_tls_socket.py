"""TLS without a network: a client in memory against `TlsSocket`, every division of the octets between them."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections import deque
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.config.config import parse
from leveret.config.tls import TlsSettings
from leveret.front_end import TlsFacts
from leveret.server.node.tls import Certificates
from leveret.server.node.tls_socket import ANSWERS_MAX, SLICE, TlsSocket

from .pki import Pki

EVERYTHING = 1 << 30
MIB = 1 << 20


class Line:
    """A socket whose other end is the test's: what it gives to read, how much it takes."""

    def __init__(self) -> None:
        self.incoming: deque[bytes] = deque()  # what each `recv` gives; an empty one is the end
        self.outgoing = bytearray()
        self.takes = EVERYTHING  # octets until it would block
        self.sends = 0
        self.calls: list[str] = []

    def recv(self, size: int) -> bytes:
        if not self.incoming:
            raise BlockingIOError
        octets = self.incoming.popleft()
        if octets[size:]:
            self.incoming.appendleft(octets[size:])
        return octets[:size]

    def send(self, octets: memoryview) -> int:
        taken = min(len(octets), self.takes)
        if not taken:
            raise BlockingIOError
        self.sends += 1
        self.takes -= taken
        self.outgoing += octets[:taken]
        return taken

    def taken(self) -> bytes:
        octets = bytes(self.outgoing)
        self.outgoing.clear()
        return octets

    def shutdown(self, how: int) -> None:
        self.calls.append(f"shutdown {how}")


class Ends:
    """A client and a secured socket, with nothing between them but the test."""

    def __init__(
        self, certificates: Certificates, context: ssl.SSLContext, name: str | None = "localhost"
    ) -> None:
        self.certificates = certificates
        self.line = Line()
        self.secured = TlsSocket(cast(socket.socket, self.line), certificates.context)
        self.to_client, self.from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self.to_client, self.from_client, server_hostname=name)

    def shake_hands(self, step: int = EVERYTHING) -> Ends:
        """Until both are done, `step` octets at a time in either direction."""
        done = False
        while not done:
            done = self._client_step()
            self._to_server(step)
        while not self._client_step():
            self._to_server(step)
        return self

    def _client_step(self) -> bool:
        try:
            self.client.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _to_server(self, step: int) -> None:
        octets = self.from_client.read()
        for at in range(0, len(octets), step):
            self.secured.handshake(octets[at : at + step])
            self.secured.flush()
        answer = self.line.taken()
        for at in range(0, len(answer), step):
            self.to_client.write(answer[at : at + step])
            self._client_step()

    def facts(self) -> TlsFacts:
        return self.certificates.facts(self.secured.tls)

    def say(self, octets: bytes) -> bytes:
        """What the client says, as records."""
        self.client.write(octets)
        return self.from_client.read()

    def heard(self) -> bytes:
        """What the client has been sent so far, in clear."""
        self.to_client.write(self.line.taken())
        pieces = []
        while True:
            try:
                piece = self.client.read(MIB)
            except ssl.SSLWantReadError:
                return b"".join(pieces)
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece:
                return b"".join([*pieces, b"<goodbye>"])
            pieces.append(piece)


def tls(**settings: object) -> TlsSettings:
    found = parse({"listeners": [{"address": "127.0.0.1:0", "tls": settings}]}).listeners[0].tls
    assert found is not None
    return found


def certificates(settings: dict[str, object]) -> Certificates:
    return Certificates(tls(**settings), "listeners[0].tls")


@pytest.fixture
def ends(pki: Pki) -> Ends:
    return Ends(certificates(pki.settings()), pki.trusting()).shake_hands()


@pytest.fixture
def server(pki: Pki) -> Certificates:
    return certificates(pki.settings())


@pytest.fixture
def trusting(pki: Pki) -> ssl.SSLContext:
    return pki.trusting()


VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("step", [1, 2, 7, 100, EVERYTHING])
def test_hands_are_shaken_in_every_division_of_the_octets(pki: Pki, version: str, step: int):
    context = pki.trusting(pki.client())
    context.maximum_version = VERSIONS[version]
    ends = Ends(certificates(pki.asking()), context).shake_hands(step)
    assert ends.facts().version == version
    assert (ends.facts().subject or "").startswith("CN=shop,")
    ends.line.incoming.append(ends.say(b"hello"))
    assert ends.secured.recv(100) == b"hello"


def test_records_are_read_in_every_division(ends: Ends):
    records = ends.say(b"one") + ends.say(b"two") + ends.say(b"three")
    for at in range(len(records)):
        ends.line.incoming.append(records[at : at + 1])
    found = b""
    while len(found) < 11:
        found += ends.secured.recv(100)
    assert found == b"onetwothree"
    with pytest.raises(BlockingIOError):
        ends.secured.recv(100)


def test_all_records_that_came_together_are_read_together(ends: Ends):
    """A front-end is fed once for each read, and the broker settles once: that must not become once a record."""
    ends.line.incoming.append(b"".join(ends.say(b"x" * 100) for _ in range(500)))
    assert ends.secured.recv(131_072) == b"x" * 50_000


def test_no_more_is_read_than_asked_for_and_the_rest_is_there_without_the_socket(ends: Ends):
    ends.line.incoming.append(ends.say(b"a" * 5000) + ends.say(b"b" * 10))
    assert ends.secured.recv(2000) == b"a" * 2000
    assert ends.secured.has_more
    assert ends.secured.recv(2999) == b"a" * 2999
    assert ends.secured.recv(11) == b"a" + b"b" * 10
    assert not ends.secured.has_more


def test_what_is_sent_arrives_in_order_and_is_counted_in_clear(ends: Ends):
    piece = memoryview(bytes(range(256)) * 40)
    assert ends.secured.send(piece) == len(piece)
    assert ends.secured.send(memoryview(b"more")) == 4
    assert ends.heard() == bytes(piece) + b"more"


def test_a_large_piece_goes_slice_by_slice_each_in_one_send(ends: Ends):
    left, counts, ends.line.sends = memoryview(bytes(3 * SLICE + 5)), [], 0
    while left:
        counts.append(ends.secured.send(left))
        left = left[counts[-1] :]
    assert counts == [SLICE, SLICE, SLICE, 5]
    assert ends.line.sends == 4
    assert ends.heard() == bytes(3 * SLICE + 5)


def test_what_the_system_has_not_taken_is_not_counted_and_not_encrypted_twice(ends: Ends):
    piece, ends.line.takes = memoryview(b"x" * 50_000), 0
    heard, waits = b"", 0
    while True:
        try:
            count = ends.secured.send(piece)
            break
        except BlockingIOError:
            waits += 1
            heard += ends.heard()
            ends.line.takes = 999
    assert count == 50_000
    assert waits > 50
    assert heard + ends.heard() == bytes(piece)


def test_an_empty_piece_is_sent_at_once(ends: Ends):
    assert ends.secured.send(memoryview(b"")) == 0
    assert ends.line.taken() == b""


def test_a_goodbye_is_the_end_and_answers_still_arrive(ends: Ends):
    with pytest.raises(ssl.SSLWantReadError):
        ends.client.unwrap()
    ends.line.incoming.append(ends.from_client.read())
    assert ends.secured.recv(100) == b""
    assert ends.secured.recv(100) == b""
    assert ends.secured.send(memoryview(b"answer")) == 6
    assert ends.line.outgoing


def test_what_came_before_a_goodbye_is_read_first(ends: Ends):
    records = ends.say(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        ends.client.unwrap()
    ends.line.incoming.append(records + ends.from_client.read())
    assert ends.secured.recv(100) == b"last words"
    assert ends.secured.recv(100) == b""


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_a_stream_that_is_cut_off_is_at_its_end(ends: Ends, cut: int):
    records = ends.say(b"whole") + ends.say(b"half a record")[:cut]
    ends.line.incoming.extend((records, b""))
    assert ends.secured.recv(100) == b"whole"
    assert ends.secured.recv(100) == b""


def test_a_record_that_was_changed_on_its_way_breaks_off_after_what_was_right_before(ends: Ends):
    right, changed = ends.say(b"right"), bytearray(ends.say(b"changed"))
    changed[-1] ^= 1
    ends.line.incoming.append(right + bytes(changed))
    assert ends.secured.recv(100) == b"right"
    for _ in range(2):
        with pytest.raises(ssl.SSLError, match="bad record mac"):
            ends.secured.recv(100)
    assert ends.line.outgoing  # the alert


def test_closing_says_goodbye_and_then_only_waits_for_the_end(ends: Ends):
    ends.secured.send(memoryview(b"bye"))
    ends.secured.shutdown(socket.SHUT_WR)
    assert ends.heard() == b"bye<goodbye>"
    assert ends.line.calls == [f"shutdown {socket.SHUT_WR}"]
    ends.line.incoming.extend((b"whatever it is", b""))
    assert ends.secured.recv(100) == b"whatever it is"
    assert ends.secured.recv(100) == b""


def test_closing_before_the_handshake_is_over_just_closes(pki: Pki):
    ends = Ends(certificates(pki.settings()), pki.trusting())
    ends.secured.shutdown(socket.SHUT_WR)
    assert ends.line.calls == [f"shutdown {socket.SHUT_WR}"]


class Asking:
    """Stands for a TLS whose peer makes it answer, again and again, and does not read the answers."""

    def __init__(self, secured: TlsSocket) -> None:
        self._secured = secured

    def read(self, size: int) -> bytes:
        self._secured._outgoing.write(bytes(ANSWERS_MAX // 4))
        raise ssl.SSLWantReadError

    def pending(self) -> int:
        return 0


def test_a_peer_that_does_not_read_tls_own_answers_is_hung_up_on(ends: Ends):
    ends.line.takes = 0
    ends.secured.tls = cast(ssl.SSLObject, Asking(ends.secured))
    ends.line.incoming.extend([b"?"] * 20)
    with pytest.raises(ConnectionAbortedError):
        ends.secured.recv(100)
    assert len(ends.line.incoming) > 10


# Whatever comes.


@given(st.sampled_from((b"", b"\x16\x03\x01", b"\x16\x03\x01\x00\x05\x01")), st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_octets_get_through_a_handshake_by_chance_or_break_it(
    server: Certificates, start: bytes, rest: bytes
):
    secured = TlsSocket(cast(socket.socket, Line()), server.context)
    with contextlib.suppress(ssl.SSLError):
        assert not secured.handshake(start + rest)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_nothing_that_was_changed_on_its_way_is_believed(
    server: Certificates, trusting: ssl.SSLContext, data: st.DataObject
):
    ends = Ends(server, trusting).shake_hands()
    records = bytearray(ends.say(b"first") + ends.say(b"second"))
    at = data.draw(st.integers(0, len(records) - 1))
    records[at] ^= data.draw(st.integers(1, 255))
    ends.line.incoming.extend((bytes(records), b""))
    found = b""
    with contextlib.suppress(ssl.SSLError):
        while octets := ends.secured.recv(100):
            found += octets
    assert b"firstsecond".startswith(found)
    assert found != b"firstsecond"


# Versions, renegotiation.


def test_nothing_older_than_1_2_is_spoken(pki: Pki):
    context = certificates(pki.settings()).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_1_3_may_be_asked_for(pki: Pki):
    context = pki.trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="unsupported protocol"):
        Ends(certificates(pki.settings(minimum_version="1.3")), context).shake_hands()
