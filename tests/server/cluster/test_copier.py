"""Bytes between two sockets are copied in order and whole, with little kept, until both sides have ended."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Event, Thread

import attrs
import pytest

from leveret.server.cluster.copier import PIECE, Copier, RelayedPair

PATIENCE_S = 20
LARGE = bytes(range(256)) * (PIECE // 64)  # more than the sockets take at once


@attrs.frozen
class Pair:
    """A client and a server with a copier between them."""

    client: socket.socket
    server: socket.socket
    ends: tuple[socket.socket, socket.socket]  # the copier's
    line: RelayedPair
    over: Event
    told: list[None]


@pytest.fixture
def copier() -> Iterator[Copier]:
    made = Copier()
    yield made
    made.close()
    assert not made._thread.is_alive()


@pytest.fixture
def pair(copier: Copier) -> Iterator[Pair]:
    client, near = socket.socketpair()
    far, server = socket.socketpair()
    for each in (near, far):
        each.setblocking(False)
    for each in (client, server):
        each.settimeout(PATIENCE_S)
    told: list[None] = []
    over = Event()

    def tell() -> None:
        told.append(None)
        over.set()

    line = copier.add(near, far, tell)
    yield Pair(client, server, (near, far), line, over, told)
    copier.drop(line)
    assert over.wait(PATIENCE_S)
    for each in (client, server, near, far):
        each.close()


def all_of(end: socket.socket) -> bytes:
    return b"".join(iter(lambda: end.recv(PIECE), b""))


def test_bytes_go_both_ways(copier: Copier, pair: Pair) -> None:
    pair.client.sendall(b"ping")
    assert pair.server.recv(10) == b"ping"
    pair.server.sendall(b"pong")
    assert pair.client.recv(10) == b"pong"
    assert copier.octets == 8


def test_a_side_that_reads_late_gets_everything_in_order(copier: Copier, pair: Pair) -> None:
    sending = [Thread(target=end.sendall, args=(LARGE,)) for end in (pair.client, pair.server)]
    for each in sending:
        each.start()
    for end in (pair.server, pair.client):
        found = b""
        while len(found) < len(LARGE):
            found += end.recv(PIECE)
        assert found == LARGE
    for each in sending:
        each.join()
    assert copier.octets == 2 * len(LARGE)


def test_a_side_that_has_sent_its_last_byte_is_still_answered(pair: Pair) -> None:
    pair.client.sendall(b"question")
    pair.client.shutdown(socket.SHUT_WR)
    assert all_of(pair.server) == b"question"
    assert not pair.over.is_set()
    pair.server.sendall(b"answer")
    pair.server.shutdown(socket.SHUT_WR)
    assert all_of(pair.client) == b"answer"
    assert pair.over.wait(PATIENCE_S)


def test_the_end_of_a_side_ends_the_pair_where_nobody_reads(pair: Pair) -> None:
    pair.server.close()
    pair.client.sendall(b"lost")
    assert pair.over.wait(PATIENCE_S)


def test_the_end_is_told_once(copier: Copier, pair: Pair) -> None:
    line = pair.line
    copier.drop(line)
    copier.drop(line)
    assert pair.over.wait(PATIENCE_S)
    other = Event()
    copier.drop(copier.add(*pair.ends, other.set))  # orders are obeyed one after the other
    assert other.wait(PATIENCE_S)
    assert pair.told == [None]
