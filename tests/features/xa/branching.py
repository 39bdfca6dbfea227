"""Sessions that work in branches, as tests use them.

crew = Crew(bench.host)
crew.work("a", takes=[queue], sends=["b"])      # start, take and accept what waits, publish, end
crew.ask("a", Verb.PREPARE)
"""

from __future__ import annotations

from collections.abc import Iterable

from leveret.delivery import Delivery
from leveret.features.xa.branch import Branch, BranchState, Verb, Verdict, Xid
from leveret.features.xa.branches import Branches, Participant
from leveret.message import Facts, Message
from leveret.queues.queue import Queue
from leveret.security.users import User
from leveret.virtual_host import VirtualHost
from tests.core.fakes import waiting
from tests.harness.bench import ENCODING, CoreBench

ALICE = User("alice")
BOB = User("bob")
ROOT = User("root", ("administrator",))


def xid(name: str) -> Xid:
    return Xid(1, name.encode(), b"1")


def mail(key: str, body: bytes, durable: bool = True) -> Message:
    return Message(ENCODING, "", key, b"", body, Facts(durable=durable))


def taken(queue: Queue, count: int = 1) -> list[Delivery]:
    """What a session has of a queue, unsettled."""
    found = [queue.take_one(settled=False) for _ in range(count)]
    assert None not in found
    return [each for each in found if each is not None]


class Crew:
    """One session, and whoever coordinates."""

    def __init__(self, host: VirtualHost, user: User = ALICE) -> None:
        self.host = host
        self.user = user
        self.session = Participant(host, user)

    def branch(self, name: str) -> Branch:
        return self.host.guest(Branches).find(xid(name), self.user)

    def ask(self, name: str, verb: Verb) -> Verdict:
        verdict = self.branch(name).do(verb)
        self.host.broker.settle()
        return verdict

    def publish(self, *rows: tuple[str, bytes]) -> None:
        """Keys and bodies, through the default exchange, in the branch that the session works in."""
        assert self.session.current is not None
        for key, body in rows:
            self.session.current.publish(self.host.default_exchange, mail(key, body))

    def accept(self, queue: Queue, count: int = 1) -> None:
        assert self.session.current is not None
        self.session.current.accept(taken(queue, count))

    def work(self, name: str, takes: Iterable[Queue] = (), sends: Iterable[tuple[str, bytes]] = ()) -> Branch:
        """A branch that is idle, with one message of each queue accepted, and others published."""
        assert self.session.start(xid(name)) is Verdict.OK
        branch = self.branch(name)
        for queue in takes:
            self.accept(queue)
        self.publish(*sends)
        self.session.end(xid(name))
        self.host.broker.settle()
        return branch


UNTOUCHED = [("q", "", 1, 0), ("target", "", 0, 0)]
DONE = [("q", "", 0, 1), ("target", "sent", 0, 0)]
UNDONE = [("q", "taken", 0, 0), ("target", "", 0, 0)]


def brought_to(state: BranchState) -> tuple[CoreBench, Branch]:
    """A branch with something published, and something accepted, in that state."""
    bench = CoreBench()
    queue = bench.queue()
    bench.queue("target")
    bench.publish("q", b"taken")
    crew = Crew(bench.host)
    crew.session.start(xid("a"))
    branch = crew.branch("a")
    crew.accept(queue)
    crew.publish(("target", b"sent"))
    if state in (BranchState.FAILED, BranchState.DOOMED, BranchState.REPORTED):
        branch.fail(Verdict.ROLLED_BACK)
    if state not in (BranchState.ACTIVE, BranchState.FAILED):
        crew.session.end(xid("a"))
    if state in (BranchState.PREPARED, BranchState.HEURISTIC):
        branch.do(Verb.PREPARE)
    if state is BranchState.REPORTED:
        branch.do(Verb.PREPARE)
    if state is BranchState.HEURISTIC:
        branch.complete(commit=True)
    assert branch.state is state
    return bench, branch


def shape(bench: CoreBench) -> object:
    queues = bench.host.queues.values()
    return [(queue.name, waiting(queue), queue.unsettled, queue.accepted) for queue in queues]
