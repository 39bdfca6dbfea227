"""Threads that begin and end when told, for passwords that take long to check."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

import attrs

from leveret.observability.events import Event, EventListener
from leveret.security.access import Access
from leveret.security.passwords import Cost, Hashing, PasswordHash
from leveret.security.users import User

from .bench import ClientBench
from .peer import JoinedPeer

T = TypeVar("T")
CHEAP = Cost(memory_kib=8, passes=1, lanes=1)  # a hash takes 30 us


class Threads:
    """As many as there is work, which is done by `run`."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()
        self.done = 0

    def __call__(self, work: Callable[[], T], then: Callable[[T], None], /) -> None:
        self.jobs.append(lambda: then(work()))

    def run(self) -> int:
        """Do all that waits; answer how much it was."""
        count = 0
        while self.jobs:
            self.jobs.popleft()()
            count += 1
        self.done += count
        return count


def slow_access(**passwords: str) -> tuple[Access, Threads]:
    """Users with slow hashes, which are made cheaply, and threads to check them in."""
    access, threads = Access(), Threads()
    make_slow(access, **passwords)
    access.off_thread = threads
    return access, threads


def make_slow(access: Access, **passwords: str) -> None:
    """Give users, who may be there, slow hashes that are made cheaply."""
    access.hashing = Hashing(cost=CHEAP)
    for name, password in passwords.items():
        user = access.user(name) or User(name)
        access.put_user(attrs.evolve(user, password=PasswordHash.argon2id(password, CHEAP)))


def slow_bench(toml: str = "") -> tuple[ClientBench, Threads]:
    """A bench with `ann`, whose password is `secret`, and threads that work when told."""
    bench = ClientBench(toml)
    bench.user("ann")
    make_slow(bench.broker.access, ann="secret")
    bench.broker.access.off_thread = threads = Threads()
    return bench, threads


def woken(peer: JoinedPeer) -> None:
    """The node gives a connection that was woken its turn."""
    assert (peer.front.waits, peer.front.halted) == (False, True)
    peer.send_bytes(b"")
    peer.read()


class LoginEvents(EventListener):
    """The events of logins."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        if event.name.startswith("user.authentication"):
            self.events.append(event)
