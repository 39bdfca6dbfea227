"""A shard's row in memory, in place of PostgreSQL's."""

from __future__ import annotations

import attrs

from leveret.durable.store.contract import Commit, FencedError
from leveret.durable.store.memory import MemoryContent, MemoryStore
from leveret.durable.store.postgres.session import UnreachableError, boottime


@attrs.frozen
class Row:
    epoch: int
    beat: int
    number: int
    owner: str | None
    address: str | None = None
    session: bool = True
    waits: bool = False


class RowInMemory:
    """The row, which several shards (one a node) refer to."""

    def __init__(self) -> None:
        self.row = Row(0, 0, 0, None)
        self.content = MemoryContent()
        self.is_away = False
        self.cut: set[str] = set()  # nodes that do not reach it


class ShardInMemory:
    """One node's view of the row."""

    def __init__(self, shared: RowInMemory, node: str = "") -> None:
        self._shared = shared
        self._node = node
        self.closed = False

    def _reach(self) -> None:
        if self._shared.is_away or self._node in self._shared.cut:
            raise UnreachableError("the database is away")

    def observe(self) -> Row:
        self._reach()
        return self._shared.row

    def claim(self, epoch: int, node: str, address: str) -> int | None:
        self._reach()
        if self._shared.row.epoch != epoch:
            return None
        self._shared.row = Row(epoch + 1, 0, 0, node, address)
        return epoch + 1

    def beat(self, epoch: int) -> bool:
        self._reach()
        row = self._shared.row
        if row.epoch != epoch:
            return False
        self._shared.row = attrs.evolve(row, beat=row.beat + 1)
        return True

    def bequeath(self, epoch: int, heir: str) -> bool:
        self._reach()
        if self._shared.row.epoch != epoch:
            return False
        self._shared.row = attrs.evolve(self._shared.row, address=heir)
        return True

    def release(self, epoch: int) -> None:
        """Leave the row to others, as the store does with its last commit."""
        if self._shared.row.epoch == epoch:
            self._shared.row = attrs.evolve(self._shared.row, owner=None)

    def close(self) -> None:
        self.closed = True


class LeasedStore(MemoryStore):
    """A store in memory whose commits name an epoch, as PostgreSQL's do. All nodes have one content."""

    def __init__(self, shared: RowInMemory, epoch: int) -> None:
        super().__init__()
        self._node = shared.row.owner
        self.content = shared.content
        self.was_clean = False
        self.renewed_at = boottime()
        self._shared, self._epoch = shared, epoch

    def append(self, commit: Commit, at_once: bool = False) -> bool:
        self.given.append(commit)
        self.settle()
        return False

    def settle(self) -> None:
        """Go on with the commit in flight, if the database is there; without one, beat."""
        if self._shared.is_away or self._node in self._shared.cut:
            return
        if self._shared.row.epoch != self._epoch:
            if self.flying is not None:
                self.fail(FencedError("another node has taken over"))
            return
        row = self._shared.row
        self.renewed_at = boottime()
        if self.flying is None:
            self._shared.row = attrs.evolve(row, beat=row.beat + 1)
            return
        self._shared.row = attrs.evolve(row, number=self.flying.number)
        self.land()

    def close(self, last: Commit | None) -> None:
        if self._shared.row.epoch != self._epoch:
            raise FencedError("another node has taken over")
        super().close(last)
        if last is not None:
            self._shared.row = attrs.evolve(self._shared.row, owner=None)
