"""A site with a branch that swaps messages, and what the next start would find if the node were killed now."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from leveret.features.xa.branch import Branch
from leveret.features.xa.branches import Branches
from tests.core.fakes import waiting
from tests.durable.site import Site
from tests.features.xa.branching import Crew, xid

KEY = '["branch","/","1-61-31"]'
LAST = '["last-number"]'


def steps(site: Site) -> Iterator[None]:
    """One turn, or one landing, after the other, until there is nothing left to do."""
    while True:
        site.settle()
        yield
        if site.store.flying is None:
            return
        site.store.land()
        yield


def swapping(site: Site) -> Crew:
    """A branch that is idle: three messages of `q` are accepted, one is published to `q`, two to `r`."""
    queue = site.queue("q")
    site.queue("r")
    site.publish("", "q", b"1", b"2", b"3", b"4")
    crew = Crew(site.host)
    crew.session.start(xid("a"))
    crew.accept(queue, 3)
    crew.publish(("r", b"x"), ("q", b"y"), ("r", b"z"))
    crew.session.end(xid("a"))
    return crew


def look(site: Site) -> tuple[str, str, str]:
    """What is in `q`, in `r`, and in the branch."""
    branch = site.host.guest(Branches).get(xid("a"))
    return waiting(site.host.queues["q"]), waiting(site.host.queues["r"]), has(branch)


def has(branch: Branch | None) -> str:
    if branch is None:
        return ""
    accepted = b" ".join(each.message.body for each in branch.accepted).decode()
    return (
        accepted + " -> " + b" ".join(each.message.body for each in branch.transaction.publications).decode()
    )


def killed(site: Site) -> tuple[str, str, str]:
    """What the next start would find, if the node were killed now."""
    return look(Site(site.store.reopened()))


def changes(found: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Each once, as long as it lasts."""
    return [each for each, _ in groupby(found)]


BEFORE = ("1 2 3 4", "", "")
PREPARED = ("4", "", "1 2 3 -> x y z")
COMMITTED = ("4 y", "x z", "")
