"""Read about a cluster from its database: the nodes that stand by, the replication, the last takeovers.

Which nodes there are is not written anywhere: each has a session at the database that has its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from leveret.durable.store.postgres.session import Database, Session, application_name, standby_name
from leveret.values import Json

TAKEOVERS_SHOWN: Final = 10
STANDBYS: Final = """
select substr(application_name, %s), host(client_addr), extract(epoch from min(backend_start))::float8
from pg_stat_activity where starts_with(application_name, %s) and datname = current_database()
group by 1, 2 order by 1
"""
REPLICATION: Final = """
select application_name, coalesce(state, 'unknown'), coalesce(sync_state, 'unknown'),
  pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint
from pg_stat_replication order by 1
"""
TAKEOVERS: Final = """
select epoch, node, why, extract(epoch from at)::float8, seconds from {s}.takeovers
where shard = %s order by epoch desc limit %s
"""
TAKEN_OVER: Final = """
insert into {s}.takeovers (shard, epoch, node, why, seconds) values (%s, %s, %s, %s, %s) on conflict do nothing
"""
FORGOTTEN: Final = "delete from {s}.takeovers where shard = %s and epoch < %s"
TAKEOVERS_KEPT: Final = 100


def of_cluster(session: Session, shard: str) -> dict[str, Json]:
    """Return the nodes that stand by, the database's standbys and the last takeovers. Raises what a session raises.

    Times are seconds since 1970; how far a standby is behind is bytes.
    """
    prefix = standby_name(session.database, "")
    return {
        "standby": [
            {"name": _text(name), "host": _text(host), "since": _number(since)}
            for name, host, since in session.rows(STANDBYS, len(prefix) + 1, prefix)
        ],
        "replication": [
            {"name": _text(name), "state": _text(state), "sync_state": _text(sync), "behind": _number(behind)}
            for name, state, sync, behind in session.rows(REPLICATION)
        ],
        "takeovers": [
            {
                "epoch": _number(epoch),
                "node": _text(node),
                "why": _text(why),
                "at": _number(at),
                "took_s": round(float(str(seconds)), 3),
            }
            for epoch, node, why, at, seconds in session.rows(TAKEOVERS, shard, TAKEOVERS_SHOWN)
        ],
    }


def note_takeover(session: Session, shard: str, epoch: int, node: str, why: str, seconds: float) -> None:
    """Write down a takeover, for people. Raises what a session raises."""
    session.done(TAKEN_OVER, shard, epoch, node, why, str(round(seconds, 3)))
    session.done(FORGOTTEN, shard, epoch - TAKEOVERS_KEPT)


def status_in(database: Database, shard: str) -> dict[str, Json]:
    """Return the state of a cluster as the database alone shows it. Raises UnreachableError, BadDatabase."""
    from leveret.durable.store.postgres.shard import Shard  # the command line alone needs it here

    observer = Shard(database, "", shard)
    try:
        row = observer.observe()
    finally:
        observer.close()
    session = Session(database, application_name(database, "look", 0))
    try:
        return {"owner": row.owner, "epoch": row.epoch, **of_cluster(session, shard)}
    finally:
        session.close()


def nodes(status: Mapping[str, Json]) -> Sequence[Mapping[str, Json]]:
    """Return all nodes of a status, the owner first, each with its state."""
    owner, standby = status.get("owner"), status.get("standby")
    others = [each for each in standby if isinstance(each, dict)] if isinstance(standby, list) else []
    serving: list[Mapping[str, Json]] = [{"name": owner, "state": "serving"}] if owner else []
    return [*serving, *({**each, "state": "standby"} for each in others if each.get("name") != owner)]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: object) -> float | int | None:
    return value if isinstance(value, int | float) else None
