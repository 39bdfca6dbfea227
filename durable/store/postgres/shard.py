"""Observe and claim a shard: the row in PostgreSQL that says which node serves, and in which epoch.

    observe ─> quiet for too long ─> claim(epoch) ─> epoch + 1: commits of all earlier epochs fail from here on

Nothing here compares the clocks of machines. An observer sees, on its own clock, that `epoch`, `beat` and `number` stay
the same, and whether the owner has a connection; safety is the epoch alone, which each commit checks (schema.py).
"""

from __future__ import annotations

import secrets
from typing import Final

import attrs

from leveret.durable.store.contract import NoSpaceError, StoreError
from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.pooler import require_own_sessions
from leveret.durable.store.postgres.session import (
    BadDatabase,
    Database,
    Session,
    UnreachableError,
    application_name,
    standby_name,
)

OBSERVE: Final = """
select s.epoch, s.owner, s.address, {beat}, {number}, a.found, a.waits
from {s}.shard s, lateral (
  select count(*) > 0 as found, coalesce(bool_or(wait_event = 'SyncRep'), false) as waits from pg_stat_activity
  where application_name = %s || s.epoch and datname = current_database()) a
where s.id = %s
"""
OF_COMMITS: Final = OBSERVE.replace("{beat}", "(select last_value from {s}.beats)").replace(
    "{number}", "{s}.committed(s.id, s.epoch)"
)
OF_ROW: Final = OBSERVE.replace("{beat}", "s.beat").replace("{number}", "s.number")  # in format 1
END_SESSIONS: Final = """
select pg_terminate_backend(pid) from pg_stat_activity
where application_name = %s and datname = current_database() and pid <> pg_backend_pid()
"""
CLAIM: Final = """
update {s}.shard set epoch = epoch + 1, owner = %s, address = %s, claim = %s, beat = 0, number = 0
where id = %s and epoch = %s
"""
MINE: Final = "select from {s}.barrier(%s, %s, %s)"
BEAT: Final = "select from {s}.barrier(%s, %s, null)"
BEQUEATH: Final = "update {s}.shard set address = %s where id = %s and epoch = %s"
RELEASE: Final = "update {s}.shard set owner = null where id = %s and epoch = %s"


@attrs.frozen
class ShardRow:
    """The row of a shard, as one observer sees it."""

    epoch: int
    owner: str | None  # the node that serves; None: it has ended properly, or there never was one
    # where it accepts connections of other nodes; of a released shard: the node to claim it
    address: str | None
    beat: int
    number: int  # of its last commit
    session: bool  # whether it has a connection to the database
    waits: bool = False  # whether a commit of it waits for the synchronous standby, as any other would


class Shard:
    """One shard, seen through a connection of its own, which is opened on demand. For one thread at a time."""

    def __init__(self, database: Database, node: str = "", name: str = schema.SHARD) -> None:
        """`node` is the observing node's name, shown to the database's operators."""
        self._database = database
        self._node = node
        self._name = name
        self._session: Session | None = None
        self._format = schema.VERSION

    def observe(self) -> ShardRow:
        """Return the row as it is now. Raises UnreachableError, BadDatabase."""
        found = self._ask(
            self._observation(), application_name(self._database, self._name, 0)[:-1], self._name
        )
        if found is None:
            raise BadDatabase(f"{self._database} has no shard '{self._name}': `leveret store init` makes it")
        epoch, owner, address, beat, number, session, waits = found
        return ShardRow(
            int(str(epoch)),
            None if owner is None else str(owner),
            None if address is None else str(address),
            int(str(beat)),
            int(str(number)),
            bool(session),
            bool(waits),
        )

    def _observation(self) -> str:
        """Return the statement that observes, by the format of the schema. Raises UnreachableError, BadDatabase."""
        session = self._opened()
        if self._format < schema.VERSION:  # until an owner has changed it
            self._format = schema.check(session)
        return OF_ROW if self._format == 1 else OF_COMMITS

    def claim(self, epoch: int, node: str, address: str | None) -> int | None:
        """Take the shard over from `epoch`: end its sessions, and begin the next one. Return that.

        Returns None if another node was faster. What is read after it has returned is replicated, as the claim itself
        is: it waits for the synchronous standby, and again as long as that wait was cancelled. Raises UnreachableError:
        then the claim may have succeeded, and counts for nothing; `observe` shows it, and it is claimed again.
        """
        mine = secrets.token_hex(16)
        self._ask(END_SESSIONS, application_name(self._database, self._name, epoch))
        try:
            if self._change(CLAIM, node, address, mine, self._name, epoch) == 0:
                return None
            self._upgrade()
            sure = not self._is_in_doubt()
        except UnreachableError:
            if self._format < schema.VERSION:  # the owner may be a node that knows that format only
                raise
            sure = False
        while not sure:  # a commit of our own: when it is replicated, so is all before it
            if self._change(MINE, self._name, epoch + 1, mine) == 0:
                return None
            sure = not self._is_in_doubt()
        return epoch + 1

    def _upgrade(self) -> None:
        """Change the schema to the present format, as the owner. Raises UnreachableError, BadDatabase."""
        if self._format < schema.VERSION:
            try:
                schema.upgrade(self._opened())
            except BaseException:
                self.close()
                raise
            self._format = schema.VERSION

    def beat(self, epoch: int) -> bool:
        """Show that the owner of an epoch is alive. Return whether the epoch lasts. Raises UnreachableError."""
        return self._change(BEAT, self._name, epoch) == 1

    def release(self, epoch: int) -> bool:
        """Give the shard up, for others to claim at once. Return whether the epoch lasted. Raises UnreachableError."""
        return self._change(RELEASE, self._name, epoch) == 1

    def bequeath(self, epoch: int, heir: str) -> bool:
        """Name the node that is to claim the shard once it is released. Return whether the epoch lasted."""
        return self._change(BEQUEATH, heir, self._name, epoch) == 1

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _ask(self, text: str, *values: str | int | None) -> tuple[object, ...] | None:
        session = self._opened()
        try:
            return session.row(text, *values)
        except (UnreachableError, StoreError, NoSpaceError) as error:
            self.close()
            raise self._unable(error) from None

    def _change(self, text: str, *values: str | int | None) -> int:
        session = self._opened()
        session.was_doubtful()
        try:
            return session.done(text, *values)
        except (UnreachableError, StoreError, NoSpaceError) as error:
            self.close()
            raise self._unable(error) from None

    def _unable(self, error: Exception) -> Exception:
        """Return an error as one that this class raises."""
        if isinstance(error, UnreachableError):
            return error
        if isinstance(error, NoSpaceError):
            return UnreachableError(str(error))
        return BadDatabase(f"{self._database}: {error}")

    def _is_in_doubt(self) -> bool:
        return self._session is not None and self._session.was_doubtful()

    def _opened(self) -> Session:
        if self._session is None:
            require_own_sessions(self._database)
            opened = Session(self._database, standby_name(self._database, self._node))
            try:
                self._format = schema.check(opened)
            except BaseException:
                opened.close()
                raise
            self._session = opened
        return self._session
