"""A shard's row in memory, in place of PostgreSQL's."""

from __future__ import annotations

import attrs


class AwayError(Exception):
    """The database is away."""


@attrs.frozen
class Row:
    epoch: int
    beat: int
    number: int
    owner: str | None
    address: str | None = None
    session: bool = True


class RowInMemory:
    """The row, which several shards (one a node) refer to."""

    def __init__(self) -> None:
        self.row = Row(0, 0, 0, None)
        self.is_away = False


class ShardInMemory:
    """One node's view of the row."""

    def __init__(self, shared: RowInMemory) -> None:
        self._shared = shared
        self.closed = False

    def _reach(self) -> None:
        if self._shared.is_away:
            raise AwayError("the database is away")

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

    def release(self, epoch: int, heir: str = "") -> bool:
        self._reach()
        if self._shared.row.epoch != epoch:
            return False
        self._shared.row = attrs.evolve(self._shared.row, owner=None, address=heir)
        return True

    def close(self) -> None:
        self.closed = True
