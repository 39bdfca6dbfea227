"""Open the store for a node that works alone: claim the shard, unless another node serves it.

Nodes of a cluster claim by other rules (server/cluster/lease.py), and open the store themselves.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.durable.store.folder import MESSAGES, BadFolder
from leveret.durable.store.postgres.scratch import SCRATCH
from leveret.durable.store.postgres.session import BadDatabase, Database, UnreachableError
from leveret.durable.store.postgres.shard import Shard
from leveret.durable.store.postgres.store import PostgresStore

if TYPE_CHECKING:
    from leveret.config.store import PostgresSettings

log: Final = logging.getLogger("leveret.store")

LOOK_S: Final = 0.1  # between two looks at the row
GONE_S: Final = 0.5  # without a sign of life of an owner that has no connection
QUIET_S: Final = 5.0  # without one of an owner that still has: its machine may be gone
WAIT_S: Final = 30.0  # for a database that does not answer


def opened(settings: PostgresSettings, node: str, folder: Path | None) -> PostgresStore:
    """Claim the shard, and open the store. `folder` is the node's data folder, where the local copy goes.

    Raises BadFolder, and StoreError if another node was quicker.
    """
    database = Database(settings.dsn or "", settings.schema)
    scratch = scratch_in(folder)
    try:
        with closing(Shard(database, node)) as shard:
            epoch = claimed(shard, database, node)
        return PostgresStore(database, epoch, scratch, settings.require_replicated)
    except UnreachableError as error:
        raise BadDatabase(str(error)) from None


def scratch_in(folder: Path | None) -> Path:
    """Return where the local copy goes: in the data folder, or in a temporary one. Raises BadFolder."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="leveret-"))
    if (folder / MESSAGES).exists():
        raise BadFolder(
            f"{folder} has messages of the engine `sqlite`: `leveret store copy` takes them to PostgreSQL, "
            "or node.data_dir names another folder"
        )
    return folder / SCRATCH


def claimed(
    shard: Shard,
    database: Database,
    node: str,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Claim the shard for a node that works alone, and return the epoch. Raises BadDatabase if another node serves it.

    An owner that was killed is gone at once; one whose machine is gone has to be quiet for some seconds.
    """
    began = since = now()
    seen: tuple[int, int, int] | None = None
    told = False
    while True:
        try:
            row = shard.observe()
            found = row.epoch, row.beat, row.number
            if seen is not None and found != seen:
                where = f" at {row.address}" if row.address else ""
                raise BadDatabase(
                    f"{database} is served by the node '{row.owner}'{where}: two nodes need [cluster]"
                )
            if seen is None:
                seen, since = found, now()
            quiet = now() - since
            if row.owner is None or quiet >= QUIET_S or (quiet >= GONE_S and not row.session):
                if (epoch := shard.claim(row.epoch, node, None)) is not None:
                    return epoch
                seen = None
        except UnreachableError as error:
            if now() - began > WAIT_S:
                raise
            if not told:
                told = True
                log.warning("waiting for the database: %s", error)
            seen = None
        sleep(LOOK_S)
