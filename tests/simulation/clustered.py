"""The same world on a cluster: two nodes, one row that says which of them serves, and a database that has the store.

The lease machine and the observer are the real ones (`server/cluster/lease.py`); database and row are a model, in
which each request is one transaction. The node that serves is cut off, paused or killed, its requests and their answers
are lost or late, and the other one takes over. What a node that has been succeeded still does is looked at, too:
nothing of it may be confirmed that the successor does not have, and nothing delivered once its lease has lapsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

import attrs

from leveret.durable.store.contract import Commit, FencedError, NoSpaceError, StoreError
from leveret.durable.store.memory import MemoryContent
from leveret.server.cluster.contract import HEIR
from leveret.server.cluster.lease import LOOK_S, NodeEvent, NodeLease, NodeState, OwnLease, Watch
from tests.server.cluster.rows import Row

from .clients import Client
from .held import Disk, MemoryDisk, Reached
from .node import SimulatedNode
from .world import Messaging

TTL_S: Final = 5.0
SLICE_S: Final = 0.9  # no multiple of it is a lease's time, which two clocks would round apart
LOST: Final = FencedError("another node has taken over")


class Database:
    """The row, and all that was committed. Each request is one transaction."""

    def __init__(self) -> None:
        self.row = Row(0, 0, 0, None)
        self.content = MemoryContent()

    def claim(self, epoch: int, node: str) -> int | None:
        if self.row.epoch != epoch:
            return None
        self.row = Row(epoch + 1, 0, 0, node)
        return epoch + 1

    def commit(self, epoch: int, commit: Commit) -> bool:
        """Write a commit. One that was written already, and is sent again, counts."""
        if self.row.epoch != epoch:
            return False
        if self.row.number < commit.number:
            self.content.take(commit)
            self.row = attrs.evolve(self.row, number=commit.number)
        return True

    def beat(self, epoch: int) -> bool:
        if self.row.epoch != epoch:
            return False
        self.row = attrs.evolve(self.row, beat=self.row.beat + 1)
        return True

    def release(self, epoch: int, heir: str) -> None:
        if self.row.epoch == epoch:
            self.row = attrs.evolve(self.row, owner=None, address=HEIR + heir)


class LeasedDisk(MemoryDisk):
    """The database as one node writes to it, which gives it a second commit before the first is answered."""

    commits_max = 2

    def __init__(self, database: Database, epoch: int) -> None:
        super().__init__()
        self.database, self.epoch = database, epoch
        self.content = database.content
        self.was_clean = False

    def land(self) -> None:
        """Send the commit in flight, and get the answer."""
        assert self.flying is not None
        if not self.database.commit(self.epoch, self.flying):
            super().fail(LOST)
            return
        number = self.given.pop(0).number
        self.landed = number
        self._soon(lambda: self._durable(number))

    def fail(self, error: NoSpaceError | StoreError) -> None:
        if isinstance(error, NoSpaceError):
            super().fail(error)

    def cut(self, random: Random) -> tuple[Reached, ...]:
        if self.flying is not None and random.random() < 0.5:
            self.database.commit(self.epoch, self.flying)
        return (Reached.whole(self.database.row.number),)

    def close(self, last: Commit | None) -> None:
        if last is not None:
            while self.given:
                self.land()
            assert self.database.commit(self.epoch, last), "it has served until now"

    def again(self) -> Disk:
        return LeasedDisk(self.database, self.database.row.epoch)


class Member:
    """One node of the cluster: its lease, and what it sees of the row."""

    def __init__(self, name: str, began: float) -> None:
        self.name = name
        self.began = began  # its clocks show the time since then
        self.lease, self.watch = NodeLease(), Watch(name, TTL_S)
        self.own: OwnLease | None = None


@attrs.frozen
class Succeeded:
    """A node that does not know yet that another one serves."""

    node: SimulatedNode
    clients: list[Client]
    own: OwnLease
    began: float
    was_silent: bool  # the other has taken over because nothing was heard of it


class Clustered(Messaging):
    """A cluster of two nodes."""

    weights: Mapping[str, int] = {
        **{
            kind: weight for kind, weight in Messaging.weights.items() if kind not in ("io_error", "page_out")
        },
        "beat": 6,
        "look": 6,
        "answer_lost": 4,
        "cut_off": 3,
        "pause": 3,
        "rejoin": 4,
    }

    def __init__(self) -> None:
        self.database = Database()
        self.members = {"a": Member("a", 0.0), "b": Member("b", -1000.0)}
        self.owner = "a"
        self.time = 0.0
        self.succeeded: Succeeded | None = None
        self._late: tuple[int, Commit] | None = None  # a request that is still on its way
        super().__init__()

    def _disk(self) -> Disk:
        epoch = self.database.claim(0, "a")
        assert epoch == 1
        self._claimed("a", epoch)
        return LeasedDisk(self.database, epoch)

    # Leases.

    @property
    def _member(self) -> Member:
        return self.members[self.owner]

    @property
    def _own(self) -> OwnLease:
        own = self._member.own
        assert own is not None
        return own

    @property
    def _other(self) -> str:
        """The name of the node that stands by."""
        return "b" if self.owner == "a" else "a"

    def _now(self, member: Member) -> float:
        return self.time - member.began

    def _claimed(self, name: str, epoch: int) -> None:
        member = self.members[name]
        self.owner = name
        for event in (NodeEvent.DUE, NodeEvent.CLAIMED, NodeEvent.RECOVERED):
            member.lease.on(event)
        member.own = OwnLease(epoch, TTL_S, self._now(member))

    def _renew(self) -> None:
        self._own.renew(self._now(self._member))

    def step_beat(self, random: Random) -> None:
        if self.database.beat(self._own.epoch):
            self._renew()

    def step_look(self, random: Random) -> None:
        assert self._look() is None, "a node that is alive is succeeded"

    def _look(self) -> str | None:
        """Have the node that stands by look at the row. Return why it is to claim it, if it is."""
        other = self.members[self._other]
        return other.watch.see(self.database.row, self._now(other))

    def step_land(self, random: Random) -> None:
        if self.node.disk.flying is not None:
            self._renew()
        super().step_land(random)

    def step_no_space(self, random: Random) -> None:
        """A database has its own ways when its disk is full: it does not answer."""

    def step_answer_lost(self, random: Random) -> None:
        """A commit is written, and the answer is lost: it is sent again later."""
        flying = self.node.disk.flying
        if flying is not None:
            self.say(f"the answer to commit {flying.number} is lost")
            self.database.commit(self._own.epoch, flying)

    def _pass(self, seconds: float) -> None:
        """The node that serves gives signs of life each second, and the other one sees them."""
        left = seconds
        while left > 0:
            some = min(left, 1.0)
            left -= some
            self.time += some
            if self.database.beat(self._own.epoch):
                self._renew()
            assert self._look() is None, "a node that is alive is succeeded"
        super()._pass(seconds)

    # Takeovers.

    def step_cut_off(self, random: Random) -> None:
        """The node that serves does not reach the database, and goes on with its clients for as long as it may."""
        flying = self.node.disk.flying
        self.say("the database is out of reach")
        for _ in range(random.randint(2, 9)):
            self._act(random)
            self.time += SLICE_S
            if (why := self._look()) is not None:
                if flying is not None and random.random() < 0.5:
                    self._late = self._own.epoch, flying
                self._take_over(why)
                return
        self._resume()

    def step_pause(self, random: Random) -> None:
        """The node that serves does nothing for a while, and does not know how long."""
        self.say("the node is paused")
        for _ in range(random.randint(2, 9)):
            self.time += SLICE_S
            if (why := self._look()) is not None:
                self._take_over(why)
                return
        self._resume()

    def _resume(self) -> None:
        """The node goes on before another has taken over. Its first sign of life tells whether it may."""
        if self._is_suspended():
            assert self.database.beat(self._own.epoch)
            self._member.lease.on(NodeEvent.RENEWED)
        self.step_beat(Random(0))

    def _is_suspended(self) -> bool:
        member = self._member
        if member.lease.state is NodeState.SERVING and self._own.has_lapsed(self._now(member)):
            member.lease.on(NodeEvent.LAPSED)
        return member.lease.state is NodeState.SUSPENDED

    def _act(self, random: Random) -> None:
        """Clients of a node that does not reach the database publish, and get what it has."""
        if not self._is_suspended():
            self.step_publish(random)
            self.check()

    def step_crash(self, random: Random) -> None:
        """The node that serves is killed; the other one sees that its session has gone."""
        self.say("the node is killed")
        landed = self.node.disk.cut(random)
        self.database.row = attrs.evolve(self.database.row, session=False)
        self._succeed(landed)

    def step_restart(self, random: Random) -> None:
        self.say("the node is stopped")
        self._settle_disk()
        self._hear_all()
        for client in list(self.clients):
            self._lose(client)
        self._land_all()
        self.node.persistence.close()
        self.database.release(self._own.epoch, self._other)
        self._succeed((Reached.whole(None),))

    def _succeed(self, landed: tuple[Reached, ...]) -> None:
        """Let the other node find that the one that served has gone."""
        for _ in range(100):
            self.time += LOOK_S
            if self._look() is not None:
                self._claim()
                self._start_again(landed)
                return
        raise AssertionError("no node takes over")

    def _claim(self) -> None:
        self._member.lease.on(NodeEvent.ENDED)
        self._member.watch.forget()
        other = self._other
        epoch = self.database.claim(self.database.row.epoch, other)
        assert epoch is not None
        self._claimed(other, epoch)

    def _take_over(self, why: str) -> None:
        """The other node serves, and the one that served does not know it."""
        self.say(f"the other node takes over: {why}")
        landed = self.database.row.number
        own, began = self._own, self._member.began
        self.succeeded = Succeeded(self.node, list(self.clients), own, began, why.startswith("silent"))
        self._claim()
        self._start_again((Reached.whole(landed),))

    def step_rejoin(self, random: Random) -> None:
        """The node that was succeeded goes on, until its next commit is refused."""
        before, self.succeeded = self.succeeded, None
        if self._late is not None:
            epoch, commit = self._late
            self._late = None
            assert not self.database.commit(epoch, commit), (
                "a late commit of a node that was succeeded counts"
            )
        if before is None:
            return
        if not before.own.has_lapsed(self.time - before.began):
            assert not before.was_silent, "a node delivers after another has taken over as it was silent"
        if before.node.disk.flying is not None:
            before.node.disk.land()
            assert before.node.failed, "a node that was succeeded goes on"
        for client in before.clients:
            client.hear()
            for body in client.confirmed:
                assert body in self.records, f"{body!r} is confirmed by a node that was succeeded, and lost"

    def finish(self) -> None:
        self.step_rejoin(Random(0))
        super().finish()
