"""A branch of a distributed transaction (X/Open XA): the work of sessions in it, and its outcome.

    active ──end──> idle ──prepare──> prepared ──commit, roll back──> gone
       │              ├──commit in one phase, roll back──> gone
       │ time, fail   │ time                 └──by an operator──> heuristic ──forget──> gone
       v              v
    failed ──end──> doomed ──prepare, commit in one phase──> reported ──roll back, a while──> gone

Several sessions may work in a branch. When all have ended their work, the coordinator commits it in one phase, or in
two. A prepared branch is kept whatever happens (`prepared.py`); any other fails when its time is over, or when its
session ends. Then it is doomed: its work is undone already, and it can only be rolled back.

Messages are routed when they are published, and reach their queues at the commit. A branch with a message whose queues
are all gone cannot be prepared; one that loses them later is routed anew. Accepted deliveries belong to the
branch: a rollback puts them back in their places in the queue, marked as redelivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from leveret.errors import IllegalState, NotAllowed
from leveret.exchanges.routing import drops, identity_at
from leveret.features.xa.prepared import Prepared
from leveret.transaction import Transaction

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.delivery import Delivery
    from leveret.durable.store.contract import Span
    from leveret.exchanges.exchange_type import Exchange
    from leveret.exchanges.routing import Route
    from leveret.features.xa.branches import Branches
    from leveret.message import Message

UNUSED_S: Final = 24 * 3600.0  # an unprepared branch without a session is dropped after that
REPORTED_S: Final = 60.0  # an undone branch is remembered so long after that was reported
OVERHEAD: Final = 512  # bytes that a message takes besides its content, roughly
COPY: Final = 64  # bytes for each further queue


class Xid(NamedTuple):
    """The name of a branch. Both parts have up to 64 bytes."""

    format: int
    global_id: bytes
    branch_id: bytes

    def __str__(self) -> str:
        return f"{self.format}-{self.global_id.hex()}-{self.branch_id.hex()}"


def xid_in(text: str) -> Xid:
    """Parse the name that `str` has written. Raises ValueError if it is malformed."""
    try:
        format_, global_id, branch_id = text.split("-")
        return Xid(int(format_), bytes.fromhex(global_id), bytes.fromhex(branch_id))
    except ValueError:
        raise ValueError(f"'{text}' is no name of a branch") from None


class BranchState(Enum):
    """The states of a branch."""

    ACTIVE = "active"  # sessions work in it, or have suspended their work
    FAILED = "failed"  # the same, but its work is undone
    IDLE = "idle"  # all sessions have ended their work
    DOOMED = "doomed"  # the same, but its work is undone
    REPORTED = "reported"  # doomed, and that was reported
    PREPARED = "prepared"  # kept until it is committed or rolled back
    # Completed by an operator, or the store lost some of it: kept until it is forgotten.
    HEURISTIC = "heuristic"


class Verb(Enum):
    """The requests to a branch."""

    JOIN = "join"  # by a further session
    RESUME = "resume"  # by a session that has suspended its work
    END = "end"  # of a session's work
    PREPARE = "prepare"
    COMMIT = "commit"  # the second phase
    COMMIT_AT_ONCE = "commit in one phase"
    ROLL_BACK = "roll back"
    FORGET = "forget"


class Verdict(Enum):
    """The answers to a request."""

    OK = "ok"
    ROLLED_BACK = "rolled back"  # undone, because a session failed, or a queue has no room
    TIMED_OUT = "timed out"  # undone, because its time was over
    COMMITTED_BY_OPERATOR = "committed by an operator"
    ROLLED_BACK_BY_OPERATOR = "rolled back by an operator"
    MIXED = "mixed"  # some of it could not be read after a restart


class Branch:
    """A branch of one virtual host."""

    __slots__ = (
        "_abandoned",
        "_branches",
        "_deadline",
        "accepted",
        "octets",
        "prepared",
        "sessions",
        "state",
        "timeout_s",
        "transaction",
        "user",
        "verdict",
        "xid",
    )

    def __init__(self, branches: Branches, xid: Xid, user: str) -> None:
        self._branches = branches
        self.xid = xid
        self.user = user  # the owner; empty: it was deleted
        self.state = BranchState.ACTIVE
        self.verdict = Verdict.OK  # why it is undone, or how it ended
        self.sessions = 0  # that work in it, or have suspended their work
        self.timeout_s = 0  # 0: none
        self.transaction = Transaction()  # the published messages
        self.accepted: list[Delivery] = []
        self.octets = 0  # its size in memory, roughly
        self.prepared = Prepared(self)
        self._deadline: Timer | None = None
        self._abandoned: Timer | None = None

    @property
    def described(self) -> str:
        """The branch as error texts name it."""
        return f"branch '{self.xid}' in vhost '{self._branches.host.name}'"

    @property
    def branches(self) -> Branches:
        return self._branches

    @property
    def published(self) -> int:
        """The number of messages that it will publish."""
        return len(self.transaction.publications)

    def publish(self, exchange: Exchange, message: Message) -> bool:
        """Route a message for delivery at the commit. Returns False if it is unroutable now. Raises LimitReached."""
        broker = self._branches.host.broker
        if self.state is BranchState.FAILED:
            return not broker.route(exchange, message).unroutable
        copies = self.transaction.copies
        self._grow(octets_of(message))
        routed = self.transaction.publish(broker, exchange, message)
        self._grow(COPY * (self.transaction.copies - copies))
        return routed

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Take over a session's deliveries. Raises LimitReached, and then they are returned to their queues."""
        if self.state is BranchState.FAILED:
            give_back(deliveries)
            return
        for delivery in deliveries:
            delivery.queue.bring((delivery,))
        self.accepted += deliveries
        self._grow(sum([octets_of(each.message) for each in deliveries]))

    def _grow(self, octets: int) -> None:
        try:
            self._branches.take(octets)
        except NotAllowed:
            self.fail(Verdict.ROLLED_BACK)
            raise
        self.octets += octets

    def do(self, verb: Verb) -> Verdict:
        """Carry out a request. Raises IllegalState if the state does not permit it."""
        step = STEPS.get((self.state, verb))
        if step is None:
            raise IllegalState(f"{self.described} is {self.state.value}: it cannot {verb.value}")
        return step(self)

    def join(self) -> Verdict:
        self.sessions += 1
        self.state = BranchState.ACTIVE
        self._watch(None)
        return Verdict.OK

    def resume(self) -> Verdict:
        return Verdict.OK

    def end(self) -> Verdict:
        self.sessions -= 1
        if not self.sessions:
            self.state = BranchState.IDLE if self.state is BranchState.ACTIVE else BranchState.DOOMED
            self._watch(UNUSED_S)
        return self.verdict

    def tell(self) -> Verdict:
        return self.verdict

    def prepare(self) -> Verdict:
        if not self._can_commit():
            self.fail(Verdict.ROLLED_BACK)
            return self.report()
        self._has_no_deadline()
        self._watch(None)
        self.prepared.keep()
        self.state = BranchState.PREPARED
        return Verdict.OK

    def report(self) -> Verdict:
        """Report that the branch is undone; it may be rolled back, or is dropped after a while."""
        self.state = BranchState.REPORTED
        self._watch(REPORTED_S)
        return self.verdict

    def _can_commit(self) -> bool:
        is_possible = self.transaction.fits_on_disk(self._branches.host.broker)
        return is_possible and self.transaction.obstacle() is None and not self.transaction.stray()

    def commit_at_once(self) -> Verdict:
        if not self._can_commit():
            self.fail(Verdict.ROLLED_BACK)
            return self.report()
        self._take_effect()
        self.drop()
        return Verdict.OK

    def commit(self) -> Verdict:
        lost = self.prepared.lost
        self._take_effect()
        return self._over(lost)

    def roll_back(self) -> Verdict:
        lost = self.prepared.lost
        self._undo()
        return self._over(lost)

    def _over(self, lost: int) -> Verdict:
        if lost and self.state is BranchState.PREPARED:
            self._end_heuristically(Verdict.MIXED)
            return Verdict.MIXED
        self.drop()
        return Verdict.OK

    def confirm(self) -> Verdict:
        """Drop the branch, whose work is undone already."""
        self.drop()
        return self.verdict if self.verdict is Verdict.TIMED_OUT else Verdict.OK

    def forget(self) -> Verdict:
        self.drop()
        return Verdict.OK

    def complete(self, commit: bool) -> None:
        """Commit or roll back on an operator's request. Raises IllegalState unless the branch is prepared."""
        if self.state is not BranchState.PREPARED:
            raise IllegalState(
                f"{self.described} is {self.state.value}: only a prepared one can be completed"
            )
        if commit:
            self._take_effect()
        else:
            self._undo()
        self._end_heuristically(Verdict.COMMITTED_BY_OPERATOR if commit else Verdict.ROLLED_BACK_BY_OPERATOR)

    def _take_effect(self) -> None:
        """Publish to the queues that exist now, even to full ones: they had room when the branch was prepared."""
        for each in self.transaction.publications:
            self._fulfil(each.route_now(), each.message)
        for delivery in self.accepted:
            delivery.queue.accept(delivery)
        self._let_go()

    def _fulfil(self, route: Route, message: Message) -> None:
        """Publish a message, unless its exchange drops it as a duplicate."""
        host = self._branches.host
        exchange = host.exchanges.get(message.exchange)
        identity = None if exchange is None else identity_at(exchange, message)
        if exchange is None or exchange.deduplication is None or identity is None:
            route.fulfil(message)
        elif not drops(exchange, identity):
            route.fulfil(message)
            exchange.deduplication.remember(identity, message.facts.durable and route.is_durable)

    def _undo(self) -> None:
        if self.state is BranchState.PREPARED:
            self.prepared.put_back()
        else:
            give_back(self.accepted)
        self._let_go()

    def _let_go(self) -> None:
        self.transaction.rollback()
        self.accepted = []
        self._branches.octets -= self.octets
        self.octets = 0

    def fail(self, why: Verdict) -> None:
        """Undo the work unless it is prepared; the branch can only be rolled back then."""
        if self.state in (BranchState.ACTIVE, BranchState.IDLE):
            self._undo()
            self._has_no_deadline()
            self.verdict = why
            self.state = BranchState.FAILED if self.state is BranchState.ACTIVE else BranchState.DOOMED

    def _end_heuristically(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.state = BranchState.HEURISTIC
        self.prepared.completed()

    def drop(self) -> None:
        """Remove the branch and everything that it holds."""
        self._has_no_deadline()
        self._watch(None)
        self._let_go()
        self.prepared.forget()
        self._branches.remove(self)

    def set_timeout(self, seconds: int) -> None:
        """Start a new timeout; 0: none. A prepared branch has none."""
        self._has_no_deadline()
        self.timeout_s = seconds
        if seconds and self.state in (BranchState.ACTIVE, BranchState.IDLE):
            broker = self._branches.host.broker
            self._deadline = broker.timers.at(broker.now + seconds, self._time_is_over)

    def _time_is_over(self, now: float) -> None:
        self.fail(Verdict.TIMED_OUT)

    def _has_no_deadline(self) -> None:
        self._branches.host.broker.timers.cancel(self._deadline)
        self._deadline = None

    def _watch(self, seconds: float | None) -> None:
        """Drop the branch after so many seconds; None: never."""
        broker = self._branches.host.broker
        broker.timers.cancel(self._abandoned)
        self._abandoned = None
        if seconds is not None:
            self._abandoned = broker.timers.at(broker.now + seconds, self._is_abandoned)

    def _is_abandoned(self, now: float) -> None:
        self.fail(Verdict.ROLLED_BACK)
        self.drop()

    def begin(self, spans: Iterable[Span]) -> None:
        """Recover the branch at a start, after its queues; `spans` are the segments of its log."""
        if self.prepared.is_there:
            self.state, self.verdict = BranchState.PREPARED, Verdict.OK
            self.prepared.read(spans)
            messages = [each.message for each in self.transaction.publications]
            messages += [delivery.message for delivery in self.accepted]
            self.octets = sum(map(octets_of, messages))
            self._branches.octets += self.octets
        elif self.verdict is Verdict.OK:
            self.drop()
        else:
            self._end_heuristically(self.verdict)


def octets_of(message: Message) -> int:
    """Return the size of a message in memory, roughly."""
    return message.size + len(message.properties) + OVERHEAD


def give_back(deliveries: Iterable[Delivery]) -> None:
    """Release deliveries to their queues."""
    for each in deliveries:
        each.queue.release(each)


# an absent row is an illegal state
STEPS: Final[dict[tuple[BranchState, Verb], Callable[[Branch], Verdict]]] = {
    (BranchState.ACTIVE, Verb.JOIN): Branch.join,
    (BranchState.IDLE, Verb.JOIN): Branch.join,
    (BranchState.FAILED, Verb.JOIN): Branch.tell,
    (BranchState.DOOMED, Verb.JOIN): Branch.tell,
    (BranchState.ACTIVE, Verb.RESUME): Branch.resume,
    (BranchState.FAILED, Verb.RESUME): Branch.tell,
    (BranchState.ACTIVE, Verb.END): Branch.end,
    (BranchState.FAILED, Verb.END): Branch.end,
    (BranchState.IDLE, Verb.PREPARE): Branch.prepare,
    (BranchState.DOOMED, Verb.PREPARE): Branch.report,
    (BranchState.REPORTED, Verb.PREPARE): Branch.report,
    (BranchState.PREPARED, Verb.COMMIT): Branch.commit,
    (BranchState.HEURISTIC, Verb.COMMIT): Branch.tell,
    (BranchState.IDLE, Verb.COMMIT_AT_ONCE): Branch.commit_at_once,
    (BranchState.DOOMED, Verb.COMMIT_AT_ONCE): Branch.report,
    (BranchState.REPORTED, Verb.COMMIT_AT_ONCE): Branch.report,
    (BranchState.IDLE, Verb.ROLL_BACK): Branch.roll_back,
    (BranchState.PREPARED, Verb.ROLL_BACK): Branch.roll_back,
    (BranchState.DOOMED, Verb.ROLL_BACK): Branch.confirm,
    (BranchState.REPORTED, Verb.ROLL_BACK): Branch.confirm,
    (BranchState.HEURISTIC, Verb.ROLL_BACK): Branch.tell,
    (BranchState.HEURISTIC, Verb.FORGET): Branch.forget,
}
