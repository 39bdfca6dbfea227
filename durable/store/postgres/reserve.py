"""Keep room in the database for commits that make room: tables of zeros, which are dropped one by one when it is full.

    filled ── the database is full ──> a part is dropped, and the commit is sent again ──> short
       ^───────── all parts are there again, and as many besides, which are dropped ─────────┘

While the reserve is short, publishers are held back: what was on its way when the database became full has to fit into
it, and then acknowledgements. To drop a table needs no room, and gives its own back with that commit. A part at a time
is given up, so that others who fill the disk do not get all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

import psycopg

from leveret.durable.store.contract import UNLIMITED, NoSpaceError, StoreError
from leveret.durable.store.postgres.session import failure, line_of

if TYPE_CHECKING:
    from leveret.durable.store.postgres.session import Session

log: Final = logging.getLogger("leveret.store")

PARTS: Final = 8
PART_OCTETS: Final = 4 << 20  # together four times what waits to be committed when publishers are held back
ROW_OCTETS: Final = 8000  # as many as fill a page
AGAIN_S: Final = 5.0  # before a part is filled for which there was no room
LOCK_WAIT: Final = "500ms"  # for a dump, say, that reads the table

FOUND: Final = """
select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname ~ '^reserve_[0-9]+$'
"""
FILL: Final = "insert into {{s}}.{} select decode(repeat('00', {}), 'hex') from generate_series(1, {})"


class DatabaseReserve:
    """The reserve of one shard's owner, for the thread that writes. Any thread may ask for `is_short` and `room`."""

    def __init__(
        self, connect: Callable[[], Session], parts: int = PARTS, part_octets: int = PART_OCTETS
    ) -> None:
        """`connect` opens a session, as psycopg forgets what is prepared in one in which a table is dropped."""
        self._connect = connect
        self._parts = parts
        self._part_octets = part_octets
        # Tables; None: they were not looked for, or others may have changed them.
        self._there: set[str] | None = None
        self._try_at = 0.0
        self._said = ""  # the last problem that was logged
        self.is_short = False  # it was needed, and is not whole again

    @property
    def room(self) -> int:
        """Return the bytes that are left of it while it is short; else there is no telling."""
        return len(self._there or ()) * self._part_octets if self.is_short else UNLIMITED

    @property
    def is_whole(self) -> bool:
        """Return whether there is nothing to look after."""
        return not self.is_short and self._there is not None and len(self._there) == self._parts

    def give_up_part(self, now: float) -> bool:
        """Give a part up, and return whether there was one. Raises UnreachableError."""
        self.is_short = True
        self._try_at = now + AGAIN_S
        with closing(self._connect()) as session:
            there = self._found(session)
            for name in sorted(there):
                try:
                    self._drop(session, [name])
                except (NoSpaceError, StoreError) as error:
                    log.warning(
                        "the database is full, and a part of the reserve cannot be given up: %s", error
                    )
                    continue
                there.discard(name)
                return True
        return False

    def look_after(self, now: float) -> None:
        """Fill one part, if one is lacking, and it is time. Raises UnreachableError."""
        if now < self._try_at or self.is_whole:
            return
        with closing(self._connect()) as session:
            there = self._found(session)
            lacking = [name for name in self._names(2 if self.is_short else 1) if name not in there]
            surplus = there.difference(self._names(1))
            try:
                if lacking:
                    self._fill(session, lacking[0])
                    there.add(lacking[0])
                    return
                self._drop(session, sorted(surplus))
                there.difference_update(surplus)
                self.is_short = False
            except NoSpaceError:
                self.is_short = True
                self._try_at = now + AGAIN_S
            except StoreError as error:  # a node that served before may be about the same, or may have been
                if str(error) != self._said:
                    log.warning("there is no reserve for a full database: %s", error)
                self._said, self._there, self._try_at = str(error), None, now + AGAIN_S

    def _names(self, times: int) -> list[str]:
        return [f"reserve_{at}" for at in range(1, times * self._parts + 1)]

    def _found(self, session: Session) -> set[str]:
        """Return the tables that there are. Raises UnreachableError."""
        if self._there is None:
            rows = session.rows(FOUND, session.database.schema)
            self._there = {str(name) for (name,) in rows}
        return self._there

    def _fill(self, session: Session, name: str) -> None:
        """Create a table with a part's room, or none. Raises UnreachableError, NoSpaceError, StoreError."""
        _change(
            session,
            f"create table {{s}}.{name} (octets bytea)",
            f"alter table {{s}}.{name} alter octets set storage plain",
            FILL.format(name, ROW_OCTETS, self._part_octets // ROW_OCTETS),
        )

    def _drop(self, session: Session, names: Sequence[str]) -> None:
        """Drop tables, or none of them. Raises UnreachableError, NoSpaceError, StoreError."""
        _change(
            session,
            f"set local lock_timeout = '{LOCK_WAIT}'",
            *[f"drop table if exists {{s}}.{name}" for name in names],
        )


def _change(session: Session, *texts: str) -> None:
    """Run statements in a transaction. Raises UnreachableError, NoSpaceError, StoreError: a lock that others have."""
    try:
        with session.connection.transaction():
            for text in texts:
                session.connection.execute(session.statement(text))
    except psycopg.errors.LockNotAvailable as error:
        raise StoreError(line_of(error)) from None
    except psycopg.Error as error:
        raise failure(error) from None
