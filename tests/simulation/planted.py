"""Mistakes to plant in the broker, each of which a simulation has to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from broker_core.delivery import Delivery
from broker_core.durability.journal import Journal
from broker_core.queues import on_disk
from broker_core.queues.level import Lane
from broker_core.queues.work_queue import WorkQueue
from broker_core.store.contract import Commit


def confirm_early() -> Iterator[None]:
    """Publishers are told before their messages are on disk."""
    settle = Journal.settle

    def early(self: Journal, publishers: Sequence[Any]) -> None:
        for publisher in publishers:
            publisher.taken(publisher.mark())
        settle(self, ())

    with replaced(Journal, "settle", early):
        yield


def acks_not_written() -> Iterator[None]:
    """What is settled stays on the disk."""
    with replaced(Journal, "_settle_in", lambda self, commit: (self.settled.clear(), self._numbers.clear())):
        yield


def acks_ahead() -> Iterator[None]:
    """What is settled is written one commit too early, without what came with it."""
    append = Journal._closed

    def closed(self: Journal) -> Commit:
        commit = append(self)
        ahead = Commit(commit.number)
        ahead.settled, ahead.dropped = commit.settled, commit.dropped
        self.store.content.take(ahead)  # type: ignore[attr-defined]
        commit.settled, commit.dropped = {}, []
        return commit

    with replaced(Journal, "_closed", closed):
        yield


def commit_given_up() -> Iterator[None]:
    """A commit that had no room is forgotten, and its publishers are told that all is well."""

    def given_up(self: Journal, now: float) -> None:
        if self._flying is not None:
            self._on_durable(self._flying.number)

    with replaced(Journal, "_try_again", given_up):
        yield


def unflagged_after_start() -> Iterator[None]:
    """What a start finds on the disk counts as never delivered."""
    read_back = on_disk.read_back

    def forgetful(*arguments: Any) -> list[Delivery]:
        found = read_back(*arguments)
        for delivery in found:
            delivery.redelivered = False
        return found

    with replaced(on_disk, "read_back", forgetful):
        yield


def unflagged_requeue() -> Iterator[None]:
    """What comes back to a queue is given again as if it were new."""
    put_back = Lane.put_back

    def forgetful(self: Lane, delivery: Delivery) -> None:
        delivery.redelivered = False
        put_back(self, delivery)

    with replaced(Lane, "put_back", forgetful):
        yield


def requeued_last() -> Iterator[None]:
    """What comes back to a queue waits behind all others."""
    with replaced(Lane, "put_back", lambda self, delivery: self.arrivals.append(delivery)):
        yield


def rejected_and_gone() -> Iterator[None]:
    """Rejected messages become no dead letters."""
    with replaced(WorkQueue, "reject", WorkQueue.accept):
        yield


def expired_and_gone() -> Iterator[None]:
    """Messages that expire become no dead letters."""

    def gone(self: WorkQueue, delivery: Delivery) -> None:
        self.left(delivery)
        self.unsettled += 1
        self.accept(delivery)

    with replaced(WorkQueue, "expire", gone):
        yield


def one_too_many() -> Iterator[None]:
    """Requeued messages are in their queue twice."""
    release = WorkQueue.release

    def twice(self: WorkQueue, delivery: Delivery, *rest: Any, **more: Any) -> None:
        release(self, delivery, *rest, **more)
        self.push(delivery.message)

    with replaced(WorkQueue, "release", twice):
        yield


def order_reversed() -> Iterator[None]:
    """What is read from the disk is lined up by the wrong end."""
    taken_in = on_disk.Backlog._taken_in

    def turned(self: on_disk.Backlog, *arguments: Any) -> list[Delivery]:
        return taken_in(self, *arguments)[::-1]

    with replaced(on_disk.Backlog, "_taken_in", turned):
        yield


def retry_in_two() -> Iterator[None]:
    """Half of the chunks of a commit are on disk although the commit is not."""
    closed = Journal._closed

    def halved(self: Journal) -> Commit:
        commit = closed(self)
        if commit.chunks:
            part = Commit(commit.number)
            part.chunks = commit.chunks[:1]
            self.store.content.take(part)  # type: ignore[attr-defined]
            commit.chunks = commit.chunks[1:]
        return commit

    with replaced(Journal, "_closed", halved):
        yield


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


MISTAKES: Final[dict[str, Callable[[], Iterator[None]]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        confirm_early,
        acks_not_written,
        acks_ahead,
        commit_given_up,
        unflagged_after_start,
        unflagged_requeue,
        requeued_last,
        rejected_and_gone,
        expired_and_gone,
        one_too_many,
        order_reversed,
        retry_in_two,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a mistake for a while."""
    with contextmanager(MISTAKES[name])():
        yield
