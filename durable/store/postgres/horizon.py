"""Name what keeps PostgreSQL from removing rows that were deleted: a transaction that others have left open.

    look ── every half minute: what holds rows, since when ──> a warning after a minute ──> an all-clear
                                                              └─> a metric

Rows that a store has deleted stay until no transaction can see them any more: one of a dump, a report, a forgotten
session; a prepared transaction; a replication slot, or a standby that asks for it. Then the tables grow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Final

import attrs

from leveret.durable.store.contract import NoSpaceError, StoreError
from leveret.durable.store.folder import BadFolder
from leveret.durable.store.postgres.session import Database, Session, UnreachableError, boottime
from leveret.observability.metric import GAUGE, Metric

log: Final = logging.getLogger("leveret.store")

LOOK_S: Final = 30.0  # between two looks
LONG_S: Final = 60.0  # that rows are held before it is logged

HELP: Final = "For how long what is named has kept the database from removing rows that were deleted."
# The holder of the oldest rows comes first. A user without pg_read_all_stats sees transactions of its own only.
HOLDERS: Final = """
select * from (
  select 'the transaction' as kind, application_name as name, 'process ' || pid || ', user ' || coalesce(usename, '?'),
    extract(epoch from clock_timestamp() - xact_start)::float8, '',
    greatest(age(backend_xmin), age(backend_xid)) as behind
  from pg_stat_activity where backend_type = 'client backend' and datname = current_database()
    and xact_start is not null and pid <> pg_backend_pid()
  union all
  select 'the prepared transaction', gid, 'of ' || owner, extract(epoch from clock_timestamp() - prepared)::float8, '',
    age(transaction)
  from pg_prepared_xacts where database = current_database()
  union all
  select 'the replication slot', slot_name, coalesce(plugin, slot_type), null, xmin::text, age(xmin)
  from pg_replication_slots where xmin is not null
  union all
  select 'the standby', application_name, coalesce(host(client_addr), 'local'), null, backend_xmin::text,
    age(backend_xmin)
  from pg_stat_replication where backend_xmin is not null
) found where behind is not null order by behind desc
"""


@attrs.frozen
class Holder:
    """Something that keeps deleted rows in the database."""

    kind: str
    name: str  # the name that an application gives itself, or that of a prepared transaction, a slot, or a standby
    which: str
    age_s: float

    def __str__(self) -> str:
        return (
            f"{self.kind} of '{self.name}'"
            if self.kind == "the transaction"
            else f"{self.kind} '{self.name}'"
        )


class Horizon:
    """Remembers what holds rows, from one look to the next. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.oldest: Holder | None = None
        self._since: dict[
            tuple[str, str, str], float
        ] = {}  # of those that have no age: when they were seen first
        self._told: Holder | None = None

    def see(self, rows: Sequence[Sequence[object]], now: float) -> None:
        """Take over what a look has found, and log what has been there for too long."""
        since, self._since = self._since, {}
        found: list[Holder] = []
        for kind, name, which, age_s, place, _ in rows:
            if age_s is None:  # what it holds was passed on if its place is another
                key = str(kind), str(name), str(place)
                self._since[key] = since.get(key, now)
                age_s = now - self._since[key]
            found.append(Holder(str(kind), str(name), str(which), float(str(age_s))))
        self.oldest = max(found, key=lambda each: each.age_s, default=None)
        self._tell()

    def _tell(self) -> None:
        oldest, told = self.oldest, self._told
        if oldest is None or oldest.age_s < LONG_S:
            if told is not None:
                log.info("the database can remove deleted rows again: %s has ended", told)
            self._told = None
        elif told is None or (told.kind, told.name, told.which) != (oldest.kind, oldest.name, oldest.which):
            log.warning(
                "%s (%s) has been open for %.0f s: until it ends the database keeps all rows that were deleted since",
                oldest, oldest.which, oldest.age_s,
            )  # fmt: skip
            self._told = oldest

    def metrics(self) -> Sequence[Metric]:
        """Return the age of the holder, with its name, if there is one."""
        oldest = self.oldest
        labels = (
            {}
            if oldest is None
            else {"kind": oldest.kind.removeprefix("the "), "application_name": oldest.name}
        )
        samples = [] if oldest is None else [(labels, oldest.age_s)]
        return [Metric("leveret_store_rows_held_seconds", GAUGE, HELP, samples)]


class HorizonWatch:
    """A thread that looks from time to time, over a connection for each look."""

    def __init__(
        self, database: Database, name: str, closing: Event, clock: Callable[[], float] = boottime
    ) -> None:
        """`name` is that of the connection, `closing` is set when the thread is to end."""
        self.horizon = Horizon()
        self._database, self._name, self._closing, self._clock = database, name, closing, clock
        self._thread = Thread(target=self._run, name="leveret-horizon", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """Look once. Raises UnreachableError, BadFolder, StoreError, NoSpaceError."""
        session = Session(self._database, self._name)
        try:
            self.horizon.see(session.rows(HOLDERS), self._clock())
        finally:
            session.close()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            try:
                self.look()
            except (UnreachableError, BadFolder, StoreError, NoSpaceError) as error:
                log.debug("what holds rows in the database cannot be told: %s", error)
