"""Branches of several sessions beside a model, with timeouts, dying sessions and starts: no message lost or doubled."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.errors import Failure, NotAllowed, NotFound
from leveret.features.xa.branch import REPORTED_S, IllegalState, Verb, Verdict, Xid
from leveret.features.xa.branches import TIMEOUT_S, Branches, Participant
from tests.core.fakes import waiting
from tests.durable.site import Site
from tests.features.xa.branching import ALICE, mail, xid

SESSIONS = 3
XIDS = [xid(name) for name in "ab"]
ONLY_PREPARED = (Verb.COMMIT,)
ONLY_UNPREPARED = (Verb.PREPARE, Verb.COMMIT_AT_ONCE)
BACK, LATE = Verdict.ROLLED_BACK, Verdict.TIMED_OUT

sessions = st.integers(0, SESSIONS - 1)
xids = st.sampled_from(XIDS)


@attrs.define
class Known:
    """What the model knows of a branch."""

    here: set[int] = attrs.Factory(set)  # sessions that work in it
    away: set[int] = attrs.Factory(set)  # sessions that have suspended that
    accepted: set[int] = attrs.Factory(set)
    published: list[int] = attrs.Factory(list)
    undone: Verdict | None = None
    prepared: bool = False
    reported_at: float | None = None
    due: float | None = None


class Branching(RuleBasedStateMachine):
    """Bodies are numbers, which rise: so what waits in `q` is always in their order."""

    @initialize()
    def begin(self) -> None:
        self.site = Site()
        self.site.queue("q")
        self.site.queue("r")
        self.known: dict[Xid, Known] = {}
        self.waiting: set[int] = set()
        self.arrived: list[int] = []
        self.last = 0
        self.enter()

    def enter(self) -> None:
        self.participants = [Participant(self.site.host, ALICE) for _ in range(SESSIONS)]

    def next_body(self) -> int:
        self.last += 1
        return self.last

    def works_in(self, session: int) -> Known | None:
        return next((known for known in self.known.values() if session in known.here), None)

    def undo(self, known: Known, why: Verdict) -> None:
        if known.undone is None and not known.prepared:
            self.empty(known)
            known.undone = why
            known.due = None

    def empty(self, known: Known) -> None:
        self.waiting |= known.accepted
        known.accepted, known.published = set(), []

    def look(self, expected: Verdict | type[Failure], told: object) -> None:
        assert told is expected
        self.site.settle()

    def ask(self, act: object, *said: object) -> object:
        """What somebody is told, or how it is refused."""
        try:
            return act(*said)  # type: ignore[operator]
        except Failure as failure:
            return type(failure)

    # What arrives, and what sessions do.

    @rule(count=st.integers(1, 3))
    def publish_plainly(self, count: int) -> None:
        bodies = [self.next_body() for _ in range(count)]
        self.site.publish("", "q", *[b"%d" % body for body in bodies])
        self.waiting.update(bodies)

    @rule(session=sessions)
    def publish(self, session: int) -> None:
        current, known = self.participants[session].current, self.works_in(session)
        assert (current is None) == (known is None)
        if current is not None and known is not None:
            body = self.next_body()
            assert current.publish(self.site.host.default_exchange, mail("r", b"%d" % body))
            if known.undone is None:
                known.published.append(body)

    @rule(session=sessions)
    def accept(self, session: int) -> None:
        current, known = self.participants[session].current, self.works_in(session)
        if current is None or known is None or not self.waiting:
            return
        delivery = self.site.host.queues["q"].take_one(settled=False)
        assert delivery is not None
        body = int(delivery.message.body)
        assert body == min(self.waiting)
        current.accept([delivery])
        if known.undone is None:
            self.waiting.remove(body)
            known.accepted.add(body)
        self.site.settle()

    @rule(session=sessions, name=xids, join=st.booleans())
    def start(self, session: int, name: Xid, join: bool) -> None:
        told = self.ask(self.participants[session].start, name, join)
        known = self.known.get(name)
        if self.works_in(session) is not None or (known is not None and session in known.away):
            expected: Verdict | type[Failure] = IllegalState
        elif join == (known is None) and (known is None or known.reported_at is None):
            expected = NotAllowed
        elif join and known is not None and (known.prepared or known.reported_at is not None):
            expected = IllegalState
        elif join and known is not None:
            expected = known.undone or Verdict.OK
            if known.undone is None:
                known.here.add(session)
        else:
            expected = Verdict.OK
            self.known[name] = Known(here={session}, due=self.site.broker.now + TIMEOUT_S)
        self.look(expected, told)

    @rule(session=sessions, name=xids, prepares=st.booleans())
    def work(self, session: int, name: Xid, prepares: bool) -> None:
        """All of it in one step: else few branches would ever come to their end."""
        if name not in self.known and self.works_in(session) is None:
            self.publish_plainly(2)
            self.start(session, name, False)
            self.accept(session)
            self.publish(session)
            self.end(session, name, False)
            if prepares:
                self.decide(name, Verb.PREPARE)

    @rule(session=sessions, name=xids)
    def resume(self, session: int, name: Xid) -> None:
        told = self.ask(self.participants[session].start, name, False, True)
        known = self.known.get(name)
        if self.works_in(session) is not None:
            expected: Verdict | type[Failure] = IllegalState
        elif known is None:
            expected = NotAllowed
        elif session not in known.away:
            expected = IllegalState
        else:
            expected = known.undone or Verdict.OK
            if known.undone is None:
                known.away.remove(session)
                known.here.add(session)
        self.look(expected, told)

    @rule(session=sessions, name=xids, fail=st.booleans())
    def end(self, session: int, name: Xid, fail: bool) -> None:
        told = self.ask(self.participants[session].end, name, fail)
        known = self.known.get(name)
        if known is None or session not in known.here | known.away:
            self.look(IllegalState, told)
            return
        known.here.discard(session)
        known.away.discard(session)
        if fail:
            self.undo(known, BACK)
        self.look(known.undone or Verdict.OK, told)

    @rule(session=sessions, name=xids)
    def suspend(self, session: int, name: Xid) -> None:
        told = self.ask(self.participants[session].end, name, False, True)
        known = self.known.get(name)
        if known is None or session not in known.here:
            self.look(IllegalState, told)
            return
        known.here.remove(session)
        known.away.add(session)
        self.look(known.undone or Verdict.OK, told)

    @rule(session=sessions)
    def die(self, session: int) -> None:
        self.participants[session].ended()
        self.participants[session] = Participant(self.site.host, ALICE)
        for known in self.known.values():
            if session in known.here | known.away:
                self.undo(known, BACK)
                known.here.discard(session)
                known.away.discard(session)
        self.site.settle()

    # What coordinators do.

    @rule(name=xids, verb=st.sampled_from([Verb.PREPARE, Verb.COMMIT, Verb.COMMIT_AT_ONCE, Verb.ROLL_BACK]))
    def decide(self, name: Xid, verb: Verb) -> None:
        told = self.ask(lambda: self.site.host.guest(Branches).find(name, ALICE).do(verb))
        known = self.known.get(name)
        if known is None:
            self.look(NotFound, told)
        elif known.here or known.away or verb in (ONLY_UNPREPARED if known.prepared else ONLY_PREPARED):
            self.look(IllegalState, told)
        else:
            self.look(self.decided(name, known, verb), told)

    def decided(self, name: Xid, known: Known, verb: Verb) -> Verdict:
        if known.undone is not None and verb is not Verb.ROLL_BACK:
            known.reported_at = self.site.broker.now
            return known.undone
        if verb is Verb.PREPARE:
            known.prepared, known.due = True, None
            return Verdict.OK
        del self.known[name]
        if verb is Verb.ROLL_BACK:
            self.empty(known)
            return LATE if known.undone is LATE else Verdict.OK
        self.arrived += known.published
        return Verdict.OK

    @rule(name=xids, seconds=st.integers(0, 40))
    def set_timeout(self, name: Xid, seconds: int) -> None:
        if (known := self.known.get(name)) is not None:
            self.site.host.guest(Branches).find(name, ALICE).set_timeout(seconds)
            if known.undone is None and not known.prepared:
                known.due = self.site.broker.now + seconds if seconds else None

    # Time, and starts.

    @rule(seconds=st.integers(1, 50))
    def advance(self, seconds: int) -> None:
        self.site.advance(seconds)
        now = self.site.broker.now
        for name, known in list(self.known.items()):
            if known.due is not None and known.due <= now:
                self.undo(known, LATE)
            if known.reported_at is not None and known.reported_at + REPORTED_S <= now:
                del self.known[name]

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.site = self.site.again(clean=clean)
        self.enter()
        for name, known in list(self.known.items()):
            if not known.prepared:
                self.empty(known)
                del self.known[name]

    @invariant()
    def every_message_is_where_it_belongs(self) -> None:
        queues, branches = self.site.host.queues, self.site.host.guest(Branches)
        assert waiting(queues["q"]) == " ".join(map(str, sorted(self.waiting)))
        assert waiting(queues["r"]) == " ".join(map(str, self.arrived))
        assert queues["q"].unsettled == sum(len(known.accepted) for known in self.known.values())
        assert {each.xid for each in branches.all()} == set(self.known)
        assert set(branches.in_doubt(ALICE)) == {name for name, known in self.known.items() if known.prepared}
        assert branches.octets == sum(each.octets for each in branches.all())
        assert bool(branches.octets) == any(
            known.accepted or known.published for known in self.known.values()
        )


TestBranching = Branching.TestCase
