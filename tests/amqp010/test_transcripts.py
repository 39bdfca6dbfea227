"""Conversations of the clients in the field, against a broker: whatever they say works, and all they wait for comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command
from leveret.protocols.amqp010.codec.frames import append_frames, control_frame
from leveret.protocols.amqp010.codec.sequences import SequenceSet
from tests.harness.bench import ClientBench

from .client import HEADER, ClientSession, Received
from .peer import Peer
from .transcripts import CONVERSATIONS, PASSED_OVER, Done, Expected, Message, Said, Turn

Transmit = Callable[[Peer, bytes], None]


def in_one_go(peer: Peer, octets: bytes) -> None:
    peer.send_bytes(octets)


def octet_by_octet(peer: Peer, octets: bytes) -> None:
    for at in range(len(octets)):
        peer.send_bytes(octets[at : at + 1], settle=False)
    peer.bench.settle()


def in_threes(peer: Peer, octets: bytes) -> None:
    for at in range(0, len(octets), 3):
        peer.send_bytes(octets[at : at + 3])


class Player:
    """Every client of a conversation, and what has come for each and was not looked at."""

    def __init__(self, transmit: Transmit) -> None:
        self.bench = ClientBench()
        self.transmit = transmit
        self.peers: dict[int, Peer] = {}
        self.seen: dict[int, int] = {}  # of what each has heard, how much was looked at
        self.left: dict[int, list[object]] = {}

    def play(self, turn: Turn) -> None:
        peer = self.peers.get(turn.connection) or self._connect(turn.connection)
        octets = b"".join(self._octets(peer, turn.channel, said) for said in turn.says)
        self.transmit(peer, octets)
        for number in self.peers:
            self._listen(number)
        for number, expected in turn.sees:
            self._expect(number, turn.channel, expected)
        for number, left in self.left.items():
            assert not left, f"after {turn} {number} has read besides: {left}"

    def _connect(self, number: int) -> Peer:
        peer = self.peers[number] = Peer(self.bench)
        peer.answers = False
        self.transmit(peer, HEADER)
        peer.read()
        assert peer.header == HEADER
        assert isinstance(peer.start, c.ConnectionStart)
        assert {"PLAIN", "ANONYMOUS"} <= set(peer.start.mechanisms)
        self.seen[number], self.left[number] = 1, []
        return peer

    def _octets(self, peer: Peer, channel: int, said: Said) -> bytes:
        if not isinstance(said.what, Command):
            if isinstance(said.what, c.SessionAttach):
                peer.sessions[channel] = ClientSession(peer, channel, said.what.name)
            return control_frame(channel, said.what.encode())
        header = None if said.structs is None else b"".join(struct.encode() for struct in said.structs)
        pieces: list[bytes] = []
        append_frames(pieces, channel, said.what.encode(said.sync), header, said.body, 65535)
        return b"".join(pieces)

    def _listen(self, number: int) -> None:
        """What came, and that each result came before its command was complete."""
        peer = self.peers[number]
        done = {channel: SequenceSet.of(*s.completed.ranges) for channel, s in peer.sessions.items()}
        peer.read()
        for channel, what in peer.heard[self.seen[number] :]:
            if isinstance(what, c.SessionCompleted):
                for lower, upper in (what.commands or SequenceSet()).ranges:
                    done[channel].add_range(lower, upper)
            elif isinstance(what, c.ExecutionResult):
                assert what.command_id not in done[channel], f"{what} after its completion"
            if not isinstance(what, PASSED_OVER):
                self.left[number].append(what)
        self.seen[number] = len(peer.heard)

    def _expect(self, number: int, channel: int, expected: Expected) -> None:
        peer, left = self.peers[number], self.left[number]
        if isinstance(expected, Done):
            completed = peer.sessions[channel].completed
            missing = [id for id in range(expected.first, expected.last + 1) if id not in completed]
            assert not missing, f"{number} was not told that {missing} are complete, only {completed}"
            return
        kind = c.MessageTransfer if isinstance(expected, Message) else type(expected)
        found = next((what for what in left if isinstance(what, kind)), None)
        assert found is not None, f"{number} has not read {expected}; but {left}"
        left.remove(found)
        if isinstance(expected, Message):
            self._compare(peer, expected)
        else:
            assert_says(found, expected)

    def _compare(self, peer: Peer, expected: Message) -> None:
        session = next(s for s in peer.sessions.values() if expected.destination in s.inboxes)
        message: Received = session.inboxes[expected.destination].waiting.popleft()
        assert message.body == expected.body
        assert message.delivery.routing_key == expected.key
        assert (message.transfer.accept_mode or 0) == expected.accept_mode
        assert (message.transfer.acquire_mode or 0) == c.ACQUIRE_MODE_PRE_ACQUIRED
        if expected.headers is not None:
            assert message.headers == expected.headers


def assert_says(found: object, expected: object) -> None:
    """All fields that are expected to be something are that; structs in them likewise."""
    assert type(found) is type(expected)
    for name, value in expected.fields().items():
        said = found.fields()[name]
        if hasattr(value, "fields"):
            assert_says(said, value)
        elif value is not None:
            assert (said or type(value)()) == value, f"{name} of {found} is not {value!r}"


@pytest.mark.parametrize("transmit", [in_one_go, octet_by_octet, in_threes])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_goes_as_the_client_expects(name: str, transmit: Transmit) -> None:
    player = Player(transmit)
    for turn in CONVERSATIONS[name]:
        player.play(turn)
    assert all(peer.front.closed for peer in player.peers.values())


def test_what_is_asked_for_and_not_there_has_nothing_but_absent_fields() -> None:
    """Which is how the Python client tells: its result is an empty struct."""
    player = Player(in_one_go)
    for turn in CONVERSATIONS["the Python messaging client"][:3]:
        player.play(turn)
    results = [what for _, what in player.peers[7].heard if isinstance(what, c.ExecutionResult)]
    assert results[1].value.fields() == c.QueueQueryResult().fields()
