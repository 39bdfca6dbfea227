"""The branches of one virtual host, and what part a session has in them (X/Open XA).

    none ──start, join──> associated ──suspend──> suspended ──resume──> associated
     ^                        │                       │
     └──────────end───────────┴───────────────────────┘

A session works in one branch at a time, and may have suspended others. Everything else may be asked by anybody who
knows the name of a branch: the user who has started it, or an administrator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_core.errors import AccessRefused, LimitReached, NotAllowed, NotFound
from broker_core.xa.branch import Branch, IllegalState, State, Verb, Verdict, Xid

if TYPE_CHECKING:
    from broker_core.security.access import User
    from broker_core.virtual_host import VirtualHost

TIMEOUT_S: Final = 60  # of a branch, unless somebody says otherwise
BRANCHES_MAX: Final = 1000  # of a virtual host
HELD_SIZE_MAX: Final = 1 << 28  # octets that they hold together; sixteen of the largest messages
ADMINISTRATOR: Final = "administrator"  # the tag


class Branches:
    """By name. `held_size_max`: octets that all of them may hold."""

    __slots__ = ("_found", "host", "octets", "size_max")

    def __init__(self, host: VirtualHost, held_size_max: int = HELD_SIZE_MAX) -> None:
        self.host = host
        self.octets = 0
        self.size_max = held_size_max
        self._found: dict[Xid, Branch] = {}

    def __len__(self) -> int:
        return len(self._found)

    def all(self) -> list[Branch]:
        """In the order in which they were started, or came back."""
        return list(self._found.values())

    def get(self, xid: Xid) -> Branch | None:
        return self._found.get(xid)

    def find(self, xid: Xid, user: User) -> Branch:
        """The branch, for somebody who may decide about it. Raises NotFound, AccessRefused."""
        if (branch := self._found.get(xid)) is None:
            raise NotFound(f"no branch '{xid}' in vhost '{self.host.name}'")
        if not may_decide(branch, user):
            raise AccessRefused(f"{branch.described} was started by another user")
        return branch

    def new(self, xid: Xid, user: User) -> Branch:
        """One without a session. Raises NotAllowed if there is one of that name, AccessRefused, LimitReached."""
        if (known := self._found.get(xid)) is not None and known.state is not State.REPORTED:
            raise NotAllowed(f"{known.described} is known already")
        if known is not None:  # undone, and its user has been told so, who may still ask again
            self.find(xid, user).drop()
        if len(self._found) >= BRANCHES_MAX:
            raise LimitReached(f"vhost '{self.host.name}' has {BRANCHES_MAX} branches, and cannot have more")
        branch = self._found[xid] = Branch(self, xid, user.name)
        branch.set_timeout(TIMEOUT_S)
        return branch

    def add(self, branch: Branch) -> None:
        """It has come back at a start."""
        self._found[branch.xid] = branch

    def remove(self, branch: Branch) -> None:
        """It has ended."""
        if self._found.get(branch.xid) is branch:
            del self._found[branch.xid]

    def in_doubt(self, user: User) -> list[Xid]:
        """Those that somebody has to decide about, or to forget, as far as it is for this user to do so."""
        return [
            each.xid
            for each in self._found.values()
            if each.state in (State.PREPARED, State.HEURISTIC) and may_decide(each, user)
        ]

    def take(self, octets: int) -> None:
        """A branch is about to hold so many more. Raises LimitReached."""
        if self.octets + octets > self.size_max:
            raise LimitReached(
                f"the branches of vhost '{self.host.name}' would hold more than {self.size_max} octets"
            )
        self.octets += octets

    def end(self) -> None:
        """The virtual host is deleted: they go with it."""
        for branch in self.all():
            branch.drop()


def may_decide(branch: Branch, user: User) -> bool:
    return user.name == branch.user or ADMINISTRATOR in user.tags


class Participant:
    """A session that works in branches."""

    __slots__ = ("_branches", "_suspended", "current", "user")

    def __init__(self, host: VirtualHost, user: User) -> None:
        self._branches = host.branches
        self.user = user
        self.current: Branch | None = None  # what it does now is done in this one
        self._suspended: dict[Xid, Branch] = {}

    def start(self, xid: Xid, join: bool = False, resume: bool = False) -> Verdict:
        """Work in a branch: a new one, or one that others work in, or one whose work was suspended here.

        Raises IllegalState, NotAllowed, AccessRefused, LimitReached. If the verdict is not OK, it has no part in it.
        """
        if join and resume:
            raise NotAllowed("a session joins a branch, or resumes it, but not both")
        if self.current is not None:
            raise IllegalState(f"the session works in {self.current.described}")
        if resume:
            return self._resume(xid)
        if xid in self._suspended:
            raise IllegalState(f"the session has suspended its work in {self._suspended[xid].described}")
        branch = self._known(xid) if join else None
        verdict = Verdict.OK
        if branch is None:
            branch = self._branches.new(xid, self.user)
            branch.join()
        else:
            verdict = branch.do(Verb.JOIN)
        if verdict is Verdict.OK:
            self.current = branch
        return verdict

    def _known(self, xid: Xid) -> Branch:
        if self._branches.get(xid) is None:
            raise NotAllowed(f"no branch '{xid}' in vhost '{self._branches.host.name}'")
        return self._branches.find(xid, self.user)

    def _resume(self, xid: Xid) -> Verdict:
        branch = self._suspended.get(xid)
        if branch is None:
            raise IllegalState(f"the session has not suspended its work in {self._known(xid).described}")
        if (verdict := branch.do(Verb.RESUME)) is Verdict.OK:
            del self._suspended[xid]
            self.current = branch
        return verdict

    def end(self, xid: Xid, fail: bool = False, suspend: bool = False) -> Verdict:
        """Work in it no more, or not for now. `fail`: what was done in it is to be undone.

        Raises NotAllowed, IllegalState.
        """
        if fail and suspend:
            raise NotAllowed("a session fails, or suspends its work, but not both")
        branch = self._part_in(xid)
        if suspend:
            if branch is not self.current:
                raise IllegalState(f"the session has suspended its work in {branch.described} already")
            self._suspended[xid] = branch
            self.current = None
            return branch.verdict
        self._leave(branch)
        if fail:
            branch.fail(Verdict.ROLLED_BACK)
        return branch.do(Verb.END)

    def _part_in(self, xid: Xid) -> Branch:
        if self.current is not None and self.current.xid == xid:
            return self.current
        if (branch := self._suspended.get(xid)) is None:
            raise IllegalState(f"the session does not work in branch '{xid}'")
        return branch

    def _leave(self, branch: Branch) -> None:
        if branch is self.current:
            self.current = None
        else:
            del self._suspended[branch.xid]

    def ended(self) -> None:
        """The session is over: what it has not ended will not be committed."""
        mine = [*self._suspended.values(), *(() if self.current is None else (self.current,))]
        self.current = None
        self._suspended.clear()
        for branch in mine:
            branch.fail(Verdict.ROLLED_BACK)
            branch.do(Verb.END)
