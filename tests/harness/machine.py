"""What stands around a protocol's machine in its tests: an outbox that keeps what was written, and notes of its calls.

Each protocol's machine.py has the owners that note what the machine tells them, and the client's end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from leveret.protocols.shared.machine.contract import Writer

Call = tuple[object, ...]


class Pieces(Writer):
    """A writer that keeps everything until it is taken; it is full when told so."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.count = 0
        self.is_full = False

    def write(self, data: bytes) -> None:
        self.pieces.append(data)
        self.count += len(data)

    def open(self) -> list[bytes]:
        return self.pieces

    def wrote(self, count: int) -> None:
        self.count += count

    def written(self) -> int:
        return self.count

    def is_enough(self) -> bool:
        return self.is_full

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def take(self) -> bytes:
        data = self.data
        self.pieces.clear()
        return data


class Notes:
    """What was called, in order; and what is to come of that.

    A call raises what `refusals` has for its name, after it has done what `doings` has.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.refusals: dict[str, Exception] = {}
        self.refused: Counter[str] = Counter()  # calls that were answered with a refusal
        self.doings: dict[str, Callable[[], object]] = {}

    def note(self, *call: object) -> None:
        self.calls.append(call)
        name = str(call[0])
        doing = self.doings.get(name)
        if doing is not None:
            doing()
        refusal = self.refusals.get(name)
        if refusal is not None:
            self.refused[name] += 1
            raise refusal

    def taken(self) -> list[Call]:
        calls, self.calls = self.calls, []
        return calls


class Logins:
    """Answers logins with the next of `challenges`; while `checking`, a password is being checked."""

    wait: ClassVar[Any]  # the protocol's answer that is still to come

    def __init__(self) -> None:
        self.challenges: list[bytes] = []
        self.checking = False

    def next_answer(self) -> Any:
        if self.checking:
            return self.wait
        return self.challenges.pop(0) if self.challenges else None


def must_end_at(peer: Any, deadline: float) -> None:
    """The connection lasts until then, and no longer."""
    assert peer.connection.deadline() == deadline
    peer.connection.on_deadline(deadline - 0.1)
    assert not peer.gone()
    peer.connection.on_deadline(deadline)
    assert peer.gone()
