"""A reader that writes down what it hears."""

from __future__ import annotations

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.reader import Reader
from tests.harness.machine import Pieces

from .samples import GREETING, Sample


class Ear(Reader):
    """The connection is open, with sessions on all channels but those named deaf. `hear` feeds it."""

    def __init__(self, body_size_max: int = 1 << 20, deaf: frozenset[int] = frozenset()) -> None:
        super().__init__(body_size_max, Pieces(), 0.0, 10.0)
        self._opened()
        self.deaf = set(deaf)
        self.greeted: list[bytes] = []
        self.welcome = True
        self.full = False
        self.said: list[Sample] = []
        self.wrong: list[tuple[int, int, c.MalformedError]] = []
        self.large: list[tuple[int, int]] = []
        self.lost = ""

    def hear(self, octets: bytes) -> None:
        self._take(octets)

    def forget(self, channel: int) -> None:
        self._forget(channel)

    def _check(self) -> None:
        raise AssertionError("nobody logs in")

    def _on_end(self) -> None:
        raise AssertionError("it does not end")

    def _is_enough(self) -> bool:
        return self.full

    def _may_assemble(self, channel: int) -> bool:
        return channel not in self.deaf

    def _on_greeting(self, octets: bytes) -> bool:
        self.greeted.append(octets)
        return self.welcome

    def _on_control(self, channel: int, control: c.Control) -> None:
        self.said.append(Sample(control, b"", channel))

    def _on_command(
        self, channel: int, command: c.Command, sync: bool, header: bytes | None, body: bytes | None
    ) -> None:
        self.said.append(Sample(command, b"", channel, sync, header, body))

    def _on_malformed(self, channel: int, track: int, error: c.MalformedError) -> None:
        self.wrong.append((channel, track, error))

    def _on_too_large(self, channel: int, of: int, size: int) -> None:
        self.large.append((channel, size))

    def _on_begun(self, channel: int, transfer: c.MessageTransfer) -> None:
        pass

    def _on_too_many(self, channel: int) -> None:
        self.large.append((channel, self.unfinished.size))

    def _on_framing_error(self, why: str) -> None:
        assert not self.lost, "told twice"
        self.lost = why


def heard(octets: bytes, step: int = 0) -> list[Sample]:
    """What is heard in these frames, read in pieces of `step` octets."""
    ear = Ear()
    octets = GREETING + octets
    for at in range(0, len(octets), step or len(octets)):
        ear.hear(octets[at : at + (step or len(octets))])
    assert (ear.wrong, ear.large, ear.lost) == ([], [], "")
    return ear.said
