"""Password checks: at once where the hash is quick or the password was checked before, otherwise in a thread.

    check ─ quick hash, and right ────────────────────────────> user
          ├ cached: this password matched this hash ──────────> user
          └ a job in a thread (shared by equal requests) ─────> Waiting ─> user, or None

As soon as one user has a slow hash, every refusal takes as long as a slow check, also for unknown names, so that timing
does not reveal which users exist. The cache maps an HMAC of name and password, under a key that never leaves this
process, to the hash that matched; an entry is stale when the user has another hash. A job is skipped if all its waiters
have gone by the time it would begin, or if its place has failed too often meanwhile.

Threads are few. Jobs wait in queues, one for each place that requests come from, which take turns: a client that sends
a thousand wrong passwords at once delays only itself.
"""

from __future__ import annotations

import hmac
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import attrs

from leveret.errors import LimitReached
from leveret.security.passwords import NOBODYS, PasswordHash, nobodys

if TYPE_CHECKING:
    from leveret.security.users import Accounts, User

log: Final = logging.getLogger("leveret.security")
T = TypeVar("T")

REMEMBERED_MAX: Final = 10_000  # cached passwords; the least recently used one is dropped
JOBS_MAX: Final = 1000  # waiting for a thread; at a quarter of a second each, more would wait too long
LINE_MAX: Final = 200  # of them, from one place
RUNNING_MAX: Final = 4  # jobs in threads at once


class OffThread(Protocol):
    """A function that runs work in a thread and hands the result to a callback, as `Operations.off_thread` does."""

    def __call__(self, work: Callable[[], T], then: Callable[[T], None], /) -> None: ...


def inline(work: Callable[[], T], then: Callable[[T], None]) -> None:
    """Do the work at once; used without a node, which has the threads."""
    then(work())


@attrs.frozen
class CheckOrigin:
    """An origin of password checks; `may_try` says, when a thread is free, whether the check is still allowed."""

    name: str
    may_try: Callable[[], bool]


ANYWHERE: Final = CheckOrigin("", lambda: True)


class Waiting:
    """A pending check. At its end `user` is the user or None; `was_tried` is False if the password was not checked,
    `has_answer` if a server that decides has not answered."""

    __slots__ = ("_leave", "_told", "has_answer", "is_there", "user", "was_tried")

    def __init__(self, leave: Callable[[Waiting], object]) -> None:
        """`leave` is called with this when the result is given up."""
        self.is_there = False
        self.was_tried = self.has_answer = True
        self.user: User | None = None
        self._leave = leave
        self._told: Callable[[], None] | None = None

    def tell(self, told: Callable[[], None]) -> None:
        """Have `told` called in the broker's thread when the check has ended; at once if it has."""
        self._told = told
        if self.is_there:
            told()

    def drop(self) -> None:
        """Give up the result."""
        self._told = None
        self._leave(self)

    def end(self, user: User | None) -> None:
        self.is_there = True
        self.user = user
        if self._told is not None:
            self._told()


class SharedCheck:
    """A check under way, which equal requests share."""

    __slots__ = ("name", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: dict[Waiting, None] = {}

    def join(self) -> Waiting:
        """Wait for this check, too."""
        waiting = Waiting(self._leave)
        self.waiting[waiting] = None
        return waiting

    def end(self, user: User | None, was_tried: bool = True, has_answer: bool = True) -> None:
        """Tell everyone who waits."""
        waiting, self.waiting = self.waiting, {}
        for each in waiting:
            each.was_tried, each.has_answer = was_tried, has_answer
            each.end(user)

    def _leave(self, waiting: Waiting) -> None:
        self.waiting.pop(waiting, None)


class Job(SharedCheck):
    """A check in a thread."""

    __slots__ = ("mark", "password", "place", "tested")

    def __init__(
        self, mark: bytes, name: str, password: bytes, tested: PasswordHash, place: CheckOrigin = ANYWHERE
    ) -> None:
        super().__init__(name)
        self.place = place
        self.mark = mark
        self.password = password
        self.tested = tested


def mark_of(key: bytes, name: str, secret: bytes) -> bytes:
    """Return what stands for a user's name and secret in a cache: an HMAC under a key of this process."""
    octets = name.encode("utf-8", "surrogatepass")
    return hmac.digest(key, len(octets).to_bytes(4) + octets + secret, "sha256")


class Checks:
    """The checks of one `Access`."""

    def __init__(self, access: Accounts, key: bytes) -> None:
        self._access = access
        self._key = key
        self._remembered: dict[bytes, PasswordHash] = {}  # by mark, the most recently used last
        self._jobs: dict[bytes, Job] = {}  # by mark
        self._lines: dict[str, deque[Job]] = {}  # by place, the next one to be served first
        self._running = 0
        self._completing: set[str] = set()  # users whose SCRAM verifier is being computed

    @property
    def remembered(self) -> int:
        """The number of passwords that are remembered."""
        return len(self._remembered)

    def forget(self) -> int:
        """Forget every password that was right, and return how many there were."""
        forgotten = len(self._remembered)
        self._remembered.clear()
        return forgotten

    def check(self, name: str, password: bytes, place: CheckOrigin = ANYWHERE) -> User | Waiting | None:
        """Return the user if the password is right, None if not, or `Waiting`. Raises LimitReached."""
        if not password:
            return None
        user = self._access.user(name)
        known = None if user is None else user.password
        if known is not None and not known.is_slow and known.matches(password):
            self._complete(name, password, known)
            return user
        if not self._access.has_slow_hashes:
            if known is None:
                NOBODYS.matches(password)
            return None
        mark = mark_of(self._key, name, password)
        if known is not None and self._remembers(mark, known):
            return user
        return self._wait(mark, name, password, known, place)

    def _complete(self, name: str, password: bytes, known: PasswordHash) -> None:
        """Compute the SCRAM verifier in a thread while the password is at hand, unless there is one."""
        hashing = self._access.hashing
        if hashing.scram_iterations is None or known.scram is not None or name in self._completing:
            return
        self._completing.add(name)

        def then(completed: PasswordHash) -> None:
            self._completing.discard(name)
            self._access.note_verifier(name, completed)

        self._access.off_thread(partial(hashing.with_scram, known, password), then)

    def _remembers(self, mark: bytes, known: PasswordHash) -> bool:
        fitted = self._remembered.pop(mark, None)
        if fitted != known:
            return False
        self._remembered[mark] = known
        return True

    def _remember(self, mark: bytes, known: PasswordHash) -> None:
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[mark] = known

    def _wait(
        self, mark: bytes, name: str, password: bytes, known: PasswordHash | None, place: CheckOrigin
    ) -> User | Waiting | None:
        slow = known is not None and known.is_slow
        tested = known if slow and known is not None else nobodys(self._access.hashing.cost)
        job = self._jobs.get(mark)
        if job is not None and job.tested == tested:
            return job.join()
        line = self._lines.get(place.name, deque())
        if len(self._jobs) >= JOBS_MAX or len(line) >= LINE_MAX:
            raise LimitReached("too many passwords are being checked; try again later")
        job = self._jobs[mark] = Job(mark, name, password, tested, place)
        waiting = job.join()
        line.append(job)
        self._lines[place.name] = line
        self._serve()
        return waiting.user if waiting.is_there else waiting

    def _serve(self) -> None:
        """Hand jobs to threads, one from each place in turn."""
        while self._lines and self._running < RUNNING_MAX:
            place, line = next(iter(self._lines.items()))
            del self._lines[place]
            job = line.popleft()
            if line:
                self._lines[place] = line
            if job.waiting and job.place.may_try():
                self._begin(job)
            else:
                self._give_up(job)

    def _give_up(self, job: Job) -> None:
        if self._jobs.get(job.mark) is job:
            del self._jobs[job.mark]
        job.end(None, was_tried=False)

    def _begin(self, job: Job) -> None:
        self._running += 1
        self._access.off_thread(partial(self._test, job), partial(self._ended, job))

    def _test(self, job: Job) -> PasswordHash | bool:
        """In a thread, return the hash, perhaps with a verifier; False: wrong password; True: all waiters have left."""
        if not job.waiting:
            return True
        if not job.tested.matches(job.password):
            return False
        return self._access.hashing.with_scram(job.tested, job.password)

    def _ended(self, job: Job, found: PasswordHash | bool) -> None:
        self._running -= 1
        self._conclude(job, found)
        self._serve()

    def _conclude(self, job: Job, found: PasswordHash | bool) -> None:
        if found is True and job.waiting:  # another request has joined since the job was skipped
            self._begin(job)
            return
        if self._jobs.get(job.mark) is job:
            del self._jobs[job.mark]
        job.end(self._owner(job, found) if isinstance(found, PasswordHash) else None)

    def _owner(self, job: Job, found: PasswordHash) -> User | None:
        """Return the user whose password was checked; None if the user is gone, or has another password by now."""
        user = self._access.user(job.name)
        if user is None or user.password != found:
            return None
        self._remember(job.mark, found)
        self._access.note_verifier(job.name, found)
        return self._access.user(job.name)
