"""The branches of one virtual host, and the association of sessions with them (X/Open XA).

    none ──start, join──> associated ──suspend──> suspended ──resume──> associated
     ^                        │                       │
     └──────────end───────────┴───────────────────────┘

A session works in one branch at a time, and may have suspended others. All other requests may come from any session of
the user that started the branch, or of an administrator, if it knows the branch's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.errors import AccessRefused, IllegalState, LimitReached, NotAllowed, NotFound
from leveret.features.xa.branch import Branch, BranchState, Verb, Verdict, Xid
from leveret.guests import Guest

if TYPE_CHECKING:
    from leveret.security.users import User
    from leveret.virtual_host import VirtualHost

TIMEOUT_S: Final = 60  # of a branch, by default
BRANCHES_MAX: Final = 1000  # of a virtual host
HELD_SIZE_MAX: Final = 1 << 28  # bytes that they hold together; sixteen of the largest messages
ADMINISTRATOR: Final = "administrator"  # the tag


class Branches(Guest):
    """The branches by name. `held_size_max`: the bytes that all of them together may hold."""

    def __init__(self, host: VirtualHost, held_size_max: int = HELD_SIZE_MAX) -> None:
        self.host = host
        self.octets = 0
        self.size_max = held_size_max
        self._found: dict[Xid, Branch] = {}

    def __len__(self) -> int:
        return len(self._found)

    def all(self) -> list[Branch]:
        """Return all branches in the order in which they were started or recovered."""
        return list(self._found.values())

    def get(self, xid: Xid) -> Branch | None:
        return self._found.get(xid)

    def find(self, xid: Xid, user: User) -> Branch:
        """Return a branch for a user that may decide about it. Raises NotFound, AccessRefused."""
        if (branch := self._found.get(xid)) is None:
            raise NotFound(f"no branch '{xid}' in vhost '{self.host.name}'")
        if not may_decide(branch, user):
            raise AccessRefused(f"{branch.described} was started by another user")
        return branch

    def new(self, xid: Xid, user: User) -> Branch:
        """Create a branch without a session. Raises NotAllowed if the name is taken, AccessRefused, LimitReached."""
        if (known := self._found.get(xid)) is not None and known.state is not BranchState.REPORTED:
            raise NotAllowed(f"{known.described} is known already")
        if known is not None:  # undone and reported, so that the name can be used again
            self.find(xid, user).drop()
        if len(self._found) >= BRANCHES_MAX:
            raise LimitReached(f"vhost '{self.host.name}' has {BRANCHES_MAX} branches, and cannot have more")
        branch = self._found[xid] = Branch(self, xid, user.name)
        branch.set_timeout(TIMEOUT_S)
        return branch

    def add(self, branch: Branch) -> None:
        """Add a branch that was recovered at a start."""
        self._found[branch.xid] = branch

    def remove(self, branch: Branch) -> None:
        """Remove a branch that has ended."""
        if self._found.get(branch.xid) is branch:
            del self._found[branch.xid]

    def in_doubt(self, user: User) -> list[Xid]:
        """Return the branches that wait for a decision, or to be forgotten, if this user may decide about them."""
        return [
            each.xid
            for each in self._found.values()
            if each.state in (BranchState.PREPARED, BranchState.HEURISTIC) and may_decide(each, user)
        ]

    def take(self, octets: int) -> None:
        """Count bytes that a branch is about to hold. Raises LimitReached if that is too much."""
        if self.octets + octets > self.size_max:
            raise LimitReached(
                f"the branches of vhost '{self.host.name}' would hold more than {self.size_max} octets"
            )
        self.octets += octets

    def user_deleted(self, name: str) -> None:
        """Leave the user's branches to administrators, and not to the next user of that name."""
        for branch in self._found.values():
            if branch.user == name:
                branch.user = ""
                if branch.prepared.number:
                    branch.prepared.keep_record()

    def close(self) -> None:
        """Drop all branches, as the virtual host is deleted."""
        for branch in self.all():
            branch.drop()


def may_decide(branch: Branch, user: User) -> bool:
    return user.name == branch.user or ADMINISTRATOR in user.tags


class Participant:
    """A session that works in branches."""

    __slots__ = ("_branches", "_suspended", "current", "user")

    def __init__(self, host: VirtualHost, user: User) -> None:
        self._branches = host.guest(Branches)
        self.user = user
        self.current: Branch | None = None  # the branch that it works in now
        self._suspended: dict[Xid, Branch] = {}

    def start(self, xid: Xid, join: bool = False, resume: bool = False) -> Verdict:
        """Start work in a branch: a new one, an existing one (`join`), or one that was suspended here (`resume`).

        Raises IllegalState, NotAllowed, AccessRefused, LimitReached. Unless the verdict is OK, the session is not
        associated.
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
        """End the work in a branch, or suspend it. `fail`: the branch's work is to be undone.

        Raises IllegalState if the session does not work in it, NotAllowed if both flags are set.
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
        """Fail the branches that the session has not ended; called when the session is over."""
        mine = [*self._suspended.values(), *(() if self.current is None else (self.current,))]
        self.current = None
        self._suspended.clear()
        for branch in mine:
            branch.fail(Verdict.ROLLED_BACK)
            branch.do(Verb.END)
