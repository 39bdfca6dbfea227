"""Sessions in any order of events: two that talk over a transport which gets lost, and one whose peer says anything.

Ids begin close to their wrap.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command, Control
from leveret.protocols.amqp010.codec.sequences import HALF, MASK, Id, SequenceSet, distance
from leveret.protocols.amqp010.machine.contract import SessionError, SessionLimits

from .session_ends import NAME, End, Joined, transfer_octets

STARTS = [0, MASK, MASK - 4, MASK - 20, HALF - 3]


class Lossy(RuleBasedStateMachine):
    """Two sessions, neither of which may ever notice more than a delay."""

    ends = st.integers(0, 1)

    @initialize(start=st.sampled_from(STARTS), soft=st.sampled_from([40, 200, 100_000]))
    def begin(self, start: Id, soft: int) -> None:
        self.joined = Joined(start, SessionLimits(replay_soft_bytes=soft, complete_every=3))
        self.marks = [session.execution.first_incomplete for session in self.joined.sessions]
        self.connected = True

    @rule(end=ends, sync=st.booleans())
    def send(self, end: int, sync: bool) -> None:
        self.joined.send(end, sync)

    @rule(end=ends)
    def send_barrier(self, end: int) -> None:
        """Its id is completed as any other, and nobody is told of it."""
        self.joined.sessions[end].send(c.ExecutionSync(), sync=True)

    @rule(end=ends, packets=st.integers(1, 8))
    def carry(self, end: int, packets: int) -> None:
        for _ in range(packets):
            self.joined.carry(end)

    @rule(end=ends)
    def settle(self, end: int) -> None:
        self.joined.sessions[end].settle()

    @rule(end=ends, hold=st.booleans())
    def hold(self, end: int, hold: bool) -> None:
        self.joined.owners[end].hold = hold

    @rule(end=ends, pick=st.integers(0, 30))
    def complete(self, end: int, pick: int) -> None:
        had = self.joined.owners[end].had
        if had:
            self.joined.sessions[end].complete(had[pick % len(had)][0])

    @rule(end=ends, expected=st.booleans())
    def flush(self, end: int, expected: bool) -> None:
        session = self.joined.sessions[1 - end]
        if session.line is not None:
            session.on_control(c.SessionFlush(expected=expected, confirmed=True, completed=True))

    @precondition(lambda self: self.connected)
    @rule()
    def lose(self) -> None:
        self.joined.cut()
        self.connected = False

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        self.joined.connect()
        self.connected = True

    @invariant()
    def is_sound(self) -> None:
        if not hasattr(self, "joined"):
            return
        for end, (session, owner) in enumerate(zip(self.joined.sessions, self.joined.owners, strict=True)):
            assert not session.ended
            bodies = [body for _, body in owner.had]
            assert bodies == self.joined.sent[1 - end][: len(bodies)]
            assert len(set(owner.completed)) == len(owner.completed)
            assert distance(self.marks[end], session.execution.first_incomplete) >= 0
            self.marks[end] = session.execution.first_incomplete

    def teardown(self) -> None:
        if not hasattr(self, "joined"):
            return
        if not self.connected:
            self.joined.connect()
        self.joined.drain()
        for owner in self.joined.owners:
            owner.hold = False
            for id, _ in owner.had:
                owner.session.complete(id)
        self.joined.drain()
        for end, (session, owner) in enumerate(zip(self.joined.sessions, self.joined.owners, strict=True)):
            other = self.joined.sessions[1 - end]
            assert [body for _, body in owner.had] == self.joined.sent[1 - end]
            assert session.sending.first_incomplete == session.next_id == other.execution.next_id
            assert len(owner.completed) == len(set(owner.completed))


TestLossy = Lossy.TestCase


# A peer that says anything.

near: st.SearchStrategy[Id] = st.integers(-6, 12).map(lambda number: number & MASK)
far = st.sampled_from([HALF - 1, HALF, HALF + 1, MASK // 4, 1000])
lengths = st.one_of(st.integers(0, 5), st.sampled_from([HALF - 1, HALF - 5, 1000]))


@st.composite
def sets(draw: st.DrawFn) -> SequenceSet:
    found = SequenceSet()
    for _ in range(draw(st.integers(0, 4))):
        lower = draw(st.one_of(near, near, far))
        try:
            found.add_range(lower, (lower + draw(lengths)) & MASK)
        except ValueError:
            continue
    return found


optional = st.one_of(st.none(), sets())
bits = st.booleans()
controls: st.SearchStrategy[Control] = st.one_of(
    st.builds(c.SessionAttach, st.sampled_from([NAME, b"other", None])),
    st.builds(c.SessionAttached, st.just(NAME)),
    st.builds(c.SessionDetach, st.sampled_from([NAME, b"other", None])),
    st.builds(c.SessionDetached, st.just(NAME), st.integers(0, 4)),
    st.builds(c.SessionRequestTimeout, st.sampled_from([None, 0, 30, MASK])),
    st.builds(c.SessionTimeout, st.sampled_from([None, 0])),
    st.builds(c.SessionCommandPoint, st.one_of(st.none(), near, far), st.sampled_from([None, 0, 0, 1])),
    st.builds(c.SessionExpected, optional),
    st.builds(c.SessionConfirmed, optional),
    st.builds(c.SessionCompleted, optional, bits),
    st.builds(c.SessionKnownCompleted, optional),
    st.builds(c.SessionFlush, bits, bits, bits),
    st.builds(c.SessionGap, optional),
)
commands: st.SearchStrategy[Command] = st.one_of(
    st.just(c.MessageTransfer("x")),
    st.just(c.TxSelect()),
    st.just(c.ExecutionSync()),
    st.builds(c.ExecutionResult, st.one_of(st.none(), near, far), st.just(c.Acquired(SequenceSet()))),
    st.builds(c.ExecutionException, st.just(c.ERROR_CODE_NOT_FOUND), st.one_of(st.none(), near)),
)
REFUSED = SessionError(c.ERROR_CODE_NOT_FOUND, "nothing here")
step = st.one_of(
    controls,
    controls,
    st.tuples(commands, bits, st.one_of(st.none(), st.just(b"")), st.one_of(st.none(), st.just(b"body"))),
    st.sampled_from(["send", "complete", "hold", "refuse", "settle", "lose", "attach", "room"]),
)


class Watched:
    """One session, as a strict peer sees it."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.told: list[SequenceSet] = []
        self.detached = False

    def watch(self) -> None:
        for packet in self.end.heard():
            assert not self.detached, "nothing after detach but detached"
            if isinstance(packet, c.SessionCompleted):
                assert packet.commands is not None
                self.check_completed(packet.commands)
            self.detached = isinstance(packet, c.SessionDetach)
        if self.end.session.line is None:
            self.detached = False

    def check_completed(self, told: SequenceSet) -> None:
        """Nothing that has not come or was skipped, and nothing that failed."""
        execution = self.end.session.execution
        if told:
            assert distance(execution.next_id, told.last) < 0


@given(st.lists(step, max_size=60), st.sampled_from([0, 60]))
def test_s235_a_peer_may_say_anything(
    steps: list[Control | str | tuple[Command, bool, bytes | None, bytes | None]], timeout: int
) -> None:
    """Nothing is raised; marks never go back, nothing is told twice to the owner, and the end comes once."""
    limits = SessionLimits(replay_soft_bytes=60, replay_max_bytes=500, complete_every=2, incomplete_max=6)
    end = End(timeout_max_s=timeout, limits=limits, point=None)
    watched = Watched(end)
    session, owner = end.session, end.owner
    begun = False
    mark = session.execution.first_incomplete
    for said in steps:
        match said:
            case Control():
                end.say(said)
            case tuple():
                session.on_command(*said)
            case _:
                act(end, said)
        if watched.detached and isinstance(said, c.SessionDetach):
            end.wire.sent = [packet for packet in end.wire.sent if not isinstance(packet, c.SessionDetached)]
        watched.watch()
        if begun:
            assert distance(mark, session.execution.first_incomplete) >= 0
        begun = session.execution.begun
        mark = session.execution.first_incomplete
        assert len(set(owner.completed)) == len(owner.completed)
        assert len({id for id, _ in owner.had}) == len(owner.had)
        assert owner.told.count("ended") == session.ended
        assert session.ended or session.timeout_s or session.attached


def act(end: End, what: str) -> None:
    session, owner = end.session, end.owner
    match what:
        case "send":
            session.send_transfer(transfer_octets(), None, b"m" * 40)
        case "complete":
            if owner.had:
                session.complete(owner.had[-1][0])
        case "hold":
            owner.hold = not owner.hold
        case "refuse":
            owner.refuse = None if owner.refuse else REFUSED
        case "settle":
            session.settle()
        case "lose":
            session.detached()
        case "attach":
            if not session.ended and not session.attached:
                end.attach()
        case "room":
            assert session.room() >= 0
