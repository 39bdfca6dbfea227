"""The sections `[store]` and `[store.postgres]`: where durable data is kept."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import attrs

from leveret.config.records import Record, RecordOf, key
from leveret.config.types import FilePath, Flag, OneOf, Problem, Secret, Text

POSTGRES: Final = "postgres"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PostgresSettings(Record):
    """The database of the engine `postgres`; libpq's variables (PGHOST and so on) say what `dsn` does not."""

    dsn: str | None = key(
        Secret("a connection string of libpq's"),
        "How to connect, such as `host=pg-a,pg-b dbname=leveret user=leveret`, or a URI; of several hosts the primary "
        "is taken. A pooler on the way has to keep a session for each client.",
        None,
    )
    dsn_file: Path | None = key(
        FilePath(), "The file with the connection string, for one with a password.", None
    )
    schema: str = key(
        Text("a name of 1 to 40 letters, digits and underscores", r"[A-Za-z_][A-Za-z0-9_]{0,39}"),
        "The schema with the tables, which `leveret store init` makes. One for each cluster, where several share a "
        "database.",
        "leveret",
    )
    require_replicated: bool = key(
        Flag(),
        "Whether nothing is confirmed while the database has no synchronous standby (`synchronous_standby_names` is "
        "empty). False for a single server, and for services that replicate their disks.",
        True,
    )

    def contradictions(self) -> Iterator[Problem]:
        if self.dsn is not None and self.dsn_file is not None:
            yield Problem("dsn_file", "dsn as well", "one of the two")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StoreSettings(Record):
    """The store of durable queues, streams and messages."""

    engine: str = key(
        OneOf("sqlite", POSTGRES),
        "`sqlite` keeps them in `node.data_dir`. `postgres` keeps them in a database, which replicates them to other "
        "machines; `node.data_dir` then has a copy for reading, which each start makes anew.",
        "sqlite",
    )
    postgres: PostgresSettings = key(
        RecordOf(PostgresSettings), "The database of the engine `postgres`.", PostgresSettings()
    )

    def contradictions(self) -> Iterator[Problem]:
        if self.engine == POSTGRES and find_spec("psycopg") is None:
            yield Problem(
                "engine", f'"{POSTGRES}" without its driver', "pip install 'leveret[postgres]' before that"
            )
        if self.engine != POSTGRES and self.postgres != PostgresSettings():
            yield Problem(
                "postgres", f'settings for the engine "{POSTGRES}"', f'store.engine = "{POSTGRES}" with them'
            )
