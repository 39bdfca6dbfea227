"""What was confirmed for each queue, and what a living node hands out of it: what is missing, twice or out of order.

    sent ──> confirmed ──> came ──> settled                      missing: confirmed, and neither held nor settled
                             └────> left ──> came again, flagged

Nothing is restarted between a confirm and the comparison, so what was settled must not come again at all. Complaints
begin with one word: LOST, TWICE, ORDER, FLAG (a redelivery that does not say so, or a first delivery that says it is
one), UNKNOWN, BYTES, DAMAGE (the node says that it cannot read something)."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from zlib import crc32

import attrs

from tests.crash.messages import Message, name_in

Key = tuple[str, str]  # a queue, and the name of a message


class State(enum.Enum):
    """Where a copy is."""

    WAITING = enum.auto()  # in its queue
    HELD = enum.auto()  # with a consumer
    SETTLED = enum.auto()


@attrs.define
class Copy:
    """A message in one queue."""

    message: Message
    checksum: int
    is_old: bool  # it was published before the node began to live, and may count as delivered
    confirmed: bool = False
    was_given: bool = False
    state: State = State.WAITING


class Books:
    """All queues of one round. `shuffled` ones give messages in any order, `ranked` ones by their priorities."""

    def __init__(self, shuffled: Collection[str] = (), ranked: Collection[str] = ()) -> None:
        self.complaints: list[str] = []
        self.arrivals = 0
        self.confirms = 0
        self.wanted: set[Key] = set()  # what is waited for: copies that come are taken off
        self._shuffled = shuffled
        self._ranked = ranked
        self._copies: dict[Key, Copy] = {}
        # by queue, reader, publisher, priority
        self._newest: dict[tuple[str, str, str, int | None], int] = {}
        self._is_old = True  # what is sent now

    # What is sent.

    def sent(self, message: Message, queues: Iterable[str]) -> None:
        """Note that a message is on its way into these queues."""
        checksum = crc32(message.body)
        for queue in queues:
            self._copies[queue, message.name] = Copy(message, checksum, self._is_old)

    def confirmed(self, message: Message, queues: Iterable[str]) -> None:
        """Note that the node has to hand it out in each of these queues."""
        self.confirms += 1
        for queue in queues:
            self._copies[queue, message.name].confirmed = True

    def moved(self, copy: Copy, queue: str) -> None:
        """Note that a copy was rejected, and has to come from this queue."""
        copy.state = State.SETTLED
        self._copies[queue, copy.message.name] = Copy(copy.message, copy.checksum, copy.is_old, True)

    def survived(self) -> None:
        """The node has been replaced: what was held is in its queue again, and what is sent from here on is new."""
        self._is_old = False
        self.left(copy for copy in self._copies.values() if copy.state is State.HELD)

    # What comes.

    def came(self, queue: str, body: bytes, redelivered: bool | None, reader: str = "") -> Copy | None:
        """Note that a reader has got this, and return its copy; None if there is none. `redelivered` None: not said."""
        self.arrivals += 1
        name = name_in(body)
        copy = self._copies.get((queue, name))
        if copy is None:
            return self._complain(f"UNKNOWN: {name!r} in '{queue}'")
        if crc32(body) != copy.checksum:
            return self._complain(f"BYTES: {name} in '{queue}' is not what was published")
        if copy.state is not State.WAITING:
            self._complain(f"TWICE: {name} of '{queue}' was {copy.state.name.lower()}")
        if redelivered is not None:
            self._check_flag(copy, queue, redelivered)
        if not copy.was_given:
            self._check_order(copy.message, queue, reader)
        copy.was_given, copy.state = True, State.HELD
        self.wanted.discard((queue, name))
        return copy

    def _check_flag(self, copy: Copy, queue: str, redelivered: bool) -> None:
        if copy.was_given and not redelivered:
            self._complain(f"FLAG: {copy.message.name} of '{queue}' was given before")
        elif redelivered and not (copy.was_given or copy.is_old):
            self._complain(f"FLAG: {copy.message.name} of '{queue}' was never given before")

    def _check_order(self, message: Message, queue: str, reader: str) -> None:
        """The first from each publisher comes first, of those with the same priority where there are priorities."""
        if queue in self._shuffled:
            return
        key = queue, reader, message.publisher, message.priority if queue in self._ranked else None
        if message.number < self._newest.get(key, 0):
            self._complain(f"ORDER: {message.name} of '{queue}' came after number {self._newest[key]}")
        self._newest[key] = message.number

    def settled(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            copy.state = State.SETTLED

    def left(self, copies: Iterable[Copy]) -> None:
        """Note that copies were given back, and have to come again."""
        for copy in copies:
            copy.state = State.WAITING

    # What is wrong.

    @property
    def copies(self) -> int:
        """The number of copies that were confirmed."""
        return sum(copy.confirmed for copy in self._copies.values())

    def missing(self, queues: Collection[str] | None = None) -> list[Key]:
        """Return what was confirmed and is neither held nor settled, in these queues or in all."""
        return [
            key
            for key, copy in self._copies.items()
            if copy.confirmed and copy.state is State.WAITING and (queues is None or key[0] in queues)
        ]

    def close(self, log: str, waiting: Mapping[str, int]) -> None:
        """Complain of what is missing now, and of what the node's log says of damage.

        `waiting` is how many messages wait in each queue, as the node says.
        """
        missing: dict[str, list[str]] = {}
        for queue, name in self.missing():
            missing.setdefault(queue, []).append(name)
        for queue, names in missing.items():
            said = f"{names[0]} to {names[-1]}; the node says that {waiting.get(queue, 0)} wait there"
            self._complain(f"LOST: {len(names)} messages of '{queue}': {said}")
        for line in damage_in(log):
            self._complain(f"DAMAGE: {line}")

    def _complain(self, text: str) -> None:
        self.complaints.append(text)


DAMAGE: Final = ("cannot be read", "are not rewritten", "Traceback")


def damage_in(log: str) -> list[str]:
    """Return the lines of a node's log that tell of damage or mistakes."""
    return [line for line in log.splitlines() if any(word in line for word in DAMAGE)]
