"""Check whether a database can carry a cluster: what it is, whether it replicates, what a commit costs.

Each finding is a line for people: what was looked at, whether it is well, and what was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from leveret.durable.store.contract import NoSpaceError, StoreError
from leveret.durable.store.folder import BadFolder
from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.pooler import Pooling, pooling
from leveret.durable.store.postgres.session import Database, Session, UnreachableError, application_name

COMMITS: Final = 200
TRIPS: Final = 100
SLOW_COMMIT_S: Final = 0.1  # p99 beyond which a node is often suspended for nothing
PROBLEMS: Final = (UnreachableError, BadFolder, StoreError, NoSpaceError)

SERVER: Final = """
select pg_is_in_recovery(), current_setting('server_version_num')::int, current_setting('server_version'),
  current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
  current_setting('fsync'), current_setting('full_page_writes')
"""
STANDBYS: Final = "select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')"
SEES_ALL: Final = """
select usesuper or pg_has_role(current_user, 'pg_read_all_stats', 'member') from pg_user where usename = current_user
"""
RIGHTS: Final = """
select has_schema_privilege(%s, 'usage'), has_table_privilege(%s || '.shard', 'update'),
  has_table_privilege(%s || '.chunks', 'insert')
"""
# As a commit does, and changes nothing.
PROBE: Final = "select from {s}.shard where id = %s for no key update"


@attrs.frozen
class CheckResult:
    """One thing that was looked at."""

    what: str
    ok: bool | None  # None: it could not be told, or is for information
    found: str


def inspect(
    database: Database, requires_standby: bool, clock: Callable[[], float] = time.perf_counter
) -> Iterator[CheckResult]:
    """Yield what is found, the first problem that makes the rest pointless last."""
    name = application_name(database, "check", 0)
    try:
        between = pooling(database)
        if between is Pooling.LENT:
            yield CheckResult("pooler", False, between.value)
            return
        session = Session(database, name)
    except PROBLEMS as error:
        yield CheckResult("connection", False, str(error))
        return
    yield CheckResult("connection", True, str(database))
    yield CheckResult("pooler", True, between.value)
    try:
        yield from _server(session, requires_standby)
        yield from _schema(session)
        yield from _times(session, clock)
    except PROBLEMS as error:
        yield CheckResult("the rest", False, str(error))
    finally:
        session.close()


def _server(session: Session, requires_standby: bool) -> Iterator[CheckResult]:
    row = session.row(SERVER)
    assert row is not None, "the statement returns a row"
    recovering, number, version, names, commit, fsync, pages = row
    yield CheckResult("primary", not recovering, "it is the primary" if not recovering else "it is a standby")
    is_new = int(str(number)) >= schema.LEAST_SERVER
    yield CheckResult("version", is_new, f"PostgreSQL {version}")
    wanted = "" if fsync == pages == "on" else "; both have to be on"
    yield CheckResult("durability", not wanted, f"fsync {fsync}, full_page_writes {pages}{wanted}")
    yield CheckResult("synchronous_commit", None, f"{commit}; the store sets it to on for its own sessions")
    yield _standbys(session, str(names), requires_standby)


def _standbys(session: Session, names: str, requires: bool) -> CheckResult:
    what = "synchronous standby"
    if not names:
        free = "a single server, or one whose disk is replicated, needs store.postgres.require_replicated = false"
        return CheckResult(
            what, None if not requires else False, f"synchronous_standby_names is empty: {free}"
        )
    sees = session.row(SEES_ALL)
    if sees is None or not sees[0]:
        more = "to see which are connected, grant pg_read_all_stats to this user"
        return CheckResult(what, None, f"synchronous_standby_names is {names}; {more}")
    row = session.row(STANDBYS)
    count = int(str(row[0])) if row is not None else 0
    value = f"synchronous_standby_names is {names}; {count} connected"
    return CheckResult(what, count > 0, value if count else f"{value}: commits wait until there is one")


def _schema(session: Session) -> Iterator[CheckResult]:
    number = schema.check(session)  # raises what is wrong with it
    name = session.database.schema
    yield CheckResult("schema", True, f"{name}, version {number}")
    row = session.row(RIGHTS, name, name, name)
    is_allowed = row is not None and all(row)
    yield CheckResult(
        "rights", is_allowed, "may read and write" if is_allowed else "may not write the store's tables"
    )


def _times(session: Session, clock: Callable[[], float]) -> Iterator[CheckResult]:
    trips = sorted(_timed(clock, lambda: session.row("select 1")) for _ in range(TRIPS))
    yield CheckResult("round trip", None, f"median {trips[TRIPS // 2] * 1000:.2f} ms")
    commits = sorted(_timed(clock, lambda: session.done(PROBE, schema.SHARD)) for _ in range(COMMITS))
    p99_s = commits[COMMITS * 99 // 100]
    value = f"median {commits[COMMITS // 2] * 1000:.2f} ms, p99 {p99_s * 1000:.1f} ms, of {COMMITS}"
    yield CheckResult("commit", p99_s <= SLOW_COMMIT_S, value)


def _timed(clock: Callable[[], float], work: Callable[[], object]) -> float:
    began = clock()
    work()
    return clock() - began
