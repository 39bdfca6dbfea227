"""Define the tables of the store in PostgreSQL, and the function that is one commit; create them, and check them.

All rows have the name of their shard first: what one node at a time serves. Names and values that may have any
character are bytea, as PostgreSQL's text has no NUL. What is in the columns is as in SQLite (docs/store-format.md).

A commit is one statement, so that no client that stops in its middle can hold the lock of the shard's row. That row
orders all commits and takeovers: a commit of an epoch that is over finds another epoch, and changes nothing. The token
of the claim is compared, too: a claim that was lost in a failover of the database may have left its epoch to another.

PostgreSQL keeps every version of a row that an open transaction of anybody could still see, and each look at the row
passes all of them. So no row is changed by every commit: the shard's is only locked, which makes no version, each
commit adds its number as a row of its own, and a beat is the next value of a sequence, which has no versions and needs
no room. Rows of streams that each commit changes have a `part`, which is another after some commits: a look at the
highest part passes the versions of that part alone.

A deleted row stays as long, and so does its entry in the index. So each row is deleted by a statement of its own, with
its whole key: one statement for an array of keys may be planned as a scan of all rows of the shard, also of those that
are dead, as long as PostgreSQL takes the table for a small one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import psycopg

from leveret.durable.store.contract import NoSpaceError, StoreError
from leveret.durable.store.postgres.session import FENCED, BadDatabase, Session, UnreachableError, failure

VERSION: Final = 3
COMMITS_A_PART: Final = 64  # after which rows that each commit changes have another part
LEAST_SERVER: Final = 140000
SHARD: Final = "main"

COMMITS: Final = """create table {s}.commits (
  shard text, epoch bigint, number bigint, primary key (shard, epoch, number)
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000)"""
# Large columns are not compressed (EXTERNAL): what is in them is often compressed already, or small.
TABLES: Final = (
    "create schema if not exists {s}",
    "create table {s}.format (version integer not null)",
    """create table {s}.shard (
      id text primary key, epoch bigint not null default 0, owner text, address text, claim text,
      beat bigint not null default 0, number bigint not null default 0, clean boolean not null default true
    ) with (fillfactor = 20)""",
    "create sequence {s}.places",
    "create sequence {s}.beats",
    COMMITS,
    """create table {s}.objects (
      shard text, key bytea, place bigint not null default nextval({places}), value bytea not null,
      primary key (shard, key)
    )""",
    """create table {s}.chunks (
      shard text, first bigint, octets integer not null, entries bytea not null, messages bytea not null,
      primary key (shard, first)
    )""",
    "alter table {s}.chunks alter entries set storage external, alter messages set storage external",
    "create table {s}.settled (shard text, chunk bigint, bits bytea not null, primary key (shard, chunk))",
    "create table {s}.marks (shard text, entry bigint, tries bigint not null, primary key (shard, entry))",
    """create table {s}.segments (
      shard text, stream bigint, first bigint, next bigint not null, octets bigint not null, bodies bigint not null,
      begun bigint not null, last bigint not null, part bigint not null default 0,
      primary key (shard, stream, first, part)
    )""",
    """create table {s}.blocks (
      shard text, stream bigint, segment bigint, at bigint, octets bytea not null,
      primary key (shard, stream, segment, at)
    )""",
    "alter table {s}.blocks alter octets set storage external",
    """create table {s}.producers (
      shard text, stream bigint, producer bytea, sequence bigint not null, part bigint not null default 0,
      primary key (shard, stream, producer, part)
    )""",
    """create table {s}.takeovers (
      shard text, epoch bigint, node text not null, why text not null, seconds real not null,
      at timestamptz not null default clock_timestamp(), primary key (shard, epoch)
    )""",
    # Rows of chunks come and go by the thousand; only their index and their dead rows need care, and soon.
    """alter table {s}.chunks set (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000,
      toast.autovacuum_vacuum_scale_factor = 0.0, toast.autovacuum_vacuum_threshold = 20000)""",
)

# A commit waits for a standby only if one is named here at that moment: a failover manager may take it out.
IS_REPLICATED: Final = "current_setting('synchronous_standby_names') <> ''"

# First deletes, with the marks of the entries of dropped chunks (those up to the next chunk), then inserts, then
# updates of what is there; of streams the ends last, which take all that there is with them. Null arrays are skipped.
COMMIT: Final = f"""
create or replace function {{s}}.commit(
  shard_ text, epoch_ bigint, claim_ text, number_ bigint, last_ boolean, narrow_ boolean, old_numbers_ bigint[],
  keys_ bytea[], values_ bytea[],
  dropped_ bigint[], replaced_ bigint[],
  firsts_ bigint[], octets_ integer[], entries_ bytea[], messages_ bytea[],
  chunks_ bigint[], bits_ bytea[],
  marked_ bigint[], tries_ bigint[],
  cut_streams_ bigint[], cut_firsts_ bigint[],
  segments_ bigint[],
  block_places_ bigint[], blocks_ bytea[],
  producing_ bigint[], producers_ bytea[], sequences_ bigint[],
  ended_ bigint[]
) returns boolean language plpgsql as $$
declare
  part_ constant bigint := (epoch_ << 40) + number_ / {COMMITS_A_PART};
  newest_ bigint;
  first_ bigint;
  stream_ bigint;
  key_ bytea;
begin
  perform from {{s}}.shard where id = shard_ and epoch = epoch_ and claim = claim_ for no key update;
  if not found then raise exception 'fenced' using errcode = '{FENCED}'; end if;
  if last_ then
    update {{s}}.shard set number = number_, clean = true, owner = null where id = shard_;
  elsif narrow_ then
    update {{s}}.shard set number = number_ where id = shard_;
  else
    insert into {{s}}.commits values (shard_, epoch_, number_) on conflict do nothing;
  end if;
  if old_numbers_ is not null then
    delete from {{s}}.commits
      where shard = shard_ and epoch = epoch_ and number between old_numbers_[1] and old_numbers_[2];
  end if;
  if keys_ is not null then
    for key_ in select u.key from unnest(keys_, values_) u(key, value) where u.value is null loop
      delete from {{s}}.objects where shard = shard_ and key = key_;
    end loop;
    insert into {{s}}.objects (shard, key, value)
      select shard_, u.key, u.value from unnest(keys_, values_) with ordinality u(key, value, place)
      where u.value is not null order by u.place
      on conflict (shard, key) do update set value = excluded.value;
  end if;
  if dropped_ is not null then
    delete from {{s}}.marks m using unnest(dropped_) g(first)
      where m.shard = shard_ and m.entry >= g.first and m.entry < coalesce(
        (select min(c.first) from {{s}}.chunks c where c.shard = shard_ and c.first > g.first), 9223372036854775807);
  end if;
  foreach first_ in array coalesce(dropped_ || replaced_, array[]::bigint[]) loop
    delete from {{s}}.chunks where shard = shard_ and first = first_;
    delete from {{s}}.settled where shard = shard_ and chunk = first_;
  end loop;
  if firsts_ is not null then
    insert into {{s}}.chunks select shard_, * from unnest(firsts_, octets_, entries_, messages_);
  end if;
  if chunks_ is not null then
    insert into {{s}}.settled select shard_, * from unnest(chunks_, bits_)
      on conflict (shard, chunk) do update set bits = excluded.bits;
  end if;
  if marked_ is not null then
    insert into {{s}}.marks select shard_, * from unnest(marked_, tries_)
      on conflict (shard, entry) do update set tries = excluded.tries;
  end if;
  if cut_streams_ is not null then
    for i in 1 .. cardinality(cut_streams_) loop
      delete from {{s}}.blocks where shard = shard_ and stream = cut_streams_[i] and segment = cut_firsts_[i];
      delete from {{s}}.segments where shard = shard_ and stream = cut_streams_[i] and first = cut_firsts_[i];
    end loop;
  end if;
  if segments_ is not null then
    for i in 1 .. cardinality(segments_) by 7 loop
      select part into newest_ from {{s}}.segments
        where shard = shard_ and stream = segments_[i] and first = segments_[i + 1] order by part desc limit 1;
      if newest_ <> part_ then
        delete from {{s}}.segments
          where shard = shard_ and stream = segments_[i] and first = segments_[i + 1] and part = newest_;
      end if;
    end loop;
    insert into {{s}}.segments
      select shard_, segments_[i], segments_[i + 1], segments_[i + 2], segments_[i + 3], segments_[i + 4],
        segments_[i + 5], segments_[i + 6], part_
      from generate_series(1, cardinality(segments_), 7) i
      on conflict (shard, stream, first, part) do update set next = excluded.next, octets = excluded.octets,
        bodies = excluded.bodies, begun = excluded.begun, last = excluded.last;
  end if;
  if blocks_ is not null then
    insert into {{s}}.blocks
      select shard_, block_places_[3 * i - 2], block_places_[3 * i - 1], block_places_[3 * i], blocks_[i]
      from generate_series(1, cardinality(blocks_)) i;
  end if;
  if producing_ is not null then
    for i in 1 .. cardinality(producing_) loop
      if sequences_[i] < 0 then
        delete from {{s}}.producers where shard = shard_ and stream = producing_[i] and producer = producers_[i];
        continue;
      end if;
      select part into newest_ from {{s}}.producers
        where shard = shard_ and stream = producing_[i] and producer = producers_[i] order by part desc limit 1;
      if newest_ <> part_ then
        delete from {{s}}.producers
          where shard = shard_ and stream = producing_[i] and producer = producers_[i] and part = newest_;
      end if;
    end loop;
    insert into {{s}}.producers
      select shard_, u.stream, u.producer, u.sequence, part_
      from unnest(producing_, producers_, sequences_) u(stream, producer, sequence) where u.sequence >= 0
      on conflict (shard, stream, producer, part) do update set sequence = excluded.sequence;
  end if;
  if ended_ is not null then
    foreach stream_ in array ended_ loop
      delete from {{s}}.blocks where shard = shard_ and stream = stream_;
      delete from {{s}}.segments where shard = shard_ and stream = stream_;
      delete from {{s}}.producers where shard = shard_ and stream = stream_;
    end loop;
  end if;
  return {IS_REPLICATED};
end $$
"""
# Show that the owner of an epoch lives, in place of a commit: it waits for one that is on its way, and is replicated
# after all that are there. No row comes of it if the epoch is over. Without a claim any of the epoch is meant.
BARRIER: Final = f"""
create or replace function {{s}}.barrier(shard_ text, epoch_ bigint, claim_ text)
returns table (committed bigint, replicated boolean) language plpgsql as $$
begin
  perform from {{s}}.shard where id = shard_ and epoch = epoch_ and (claim_ is null or claim = claim_)
    for no key update;
  if not found then return; end if;
  perform nextval({{beats}});
  update {{s}}.shard set clean = false where id = shard_ and clean;
  return query select {{s}}.committed(shard_, epoch_), {IS_REPLICATED};
end $$
"""
# The number of the last commit of an epoch.
COMMITTED: Final = """
create or replace function {s}.committed(shard_ text, epoch_ bigint) returns bigint language sql stable as $$
  select greatest(s.number, coalesce((
    select c.number from {s}.commits c where c.shard = shard_ and c.epoch = epoch_ order by c.number desc limit 1), 0))
  from {s}.shard s where s.id = shard_
$$
"""
FUNCTIONS: Final = (COMMIT, COMMITTED, BARRIER)

# What gives a schema of an earlier version the tables of the next one; the functions are made anew besides.
UPGRADES: Final[Mapping[int, Sequence[str]]] = {
    1: (  # each commit changed the shard's row
        "create sequence {s}.beats",
        COMMITS,
        "alter table {s}.segments add part bigint not null default 0, drop constraint segments_pkey,"
        " add primary key (shard, stream, first, part)",
        "alter table {s}.producers add part bigint not null default 0, drop constraint producers_pkey,"
        " add primary key (shard, stream, producer, part)",
        "drop function {s}.commit",
    ),
    2: (),  # a commit deleted rows by arrays of their keys
}
PARAMETERS: Final = (
    "text", "bigint", "text", "bigint", "boolean", "boolean", "bigint[]",
    "bytea[]", "bytea[]",
    "bigint[]", "bigint[]",
    "bigint[]", "integer[]", "bytea[]", "bytea[]",
    "bigint[]", "bytea[]",
    "bigint[]", "bigint[]",
    "bigint[]", "bigint[]",
    "bigint[]",
    "bigint[]", "bytea[]",
    "bigint[]", "bytea[]", "bigint[]",
    "bigint[]",
)  # fmt: skip


def version_of(session: Session) -> int | None:
    """Return the version of the schema; None if there is none. Raises UnreachableError, BadDatabase."""
    try:
        if session.row("select to_regclass({name})".replace("{name}", "%s"), _quoted(session, "format")) == (
            None,
        ):
            return None
        row = session.row("select max(version) from {s}.format")
    except (StoreError, NoSpaceError) as error:
        raise BadDatabase(f"{session.database}: {error}") from None
    return int(str(row[0])) if row is not None and row[0] is not None else None


def check(session: Session) -> int:
    """Return the version of the schema, which has to be one that is known. Raises UnreachableError, BadDatabase."""
    number = version_of(session)
    if number is None:
        raise BadDatabase(f"{session.database} has no store yet: `leveret store init` makes one")
    if number > VERSION:
        raise BadDatabase(
            f"{session.database} has format {number}, and this version of Leveret knows formats up to {VERSION}: "
            "it was written by a newer version; use that one"
        )
    return number


def create(session: Session) -> bool:
    """Create the schema, if it is not there yet, at once or not at all. Return whether it was created.

    Raises UnreachableError, BadDatabase.
    """
    if session.connection.info.server_version < LEAST_SERVER:
        raise BadDatabase(f"{session.database}: PostgreSQL 14 or newer is needed")
    if version_of(session) is not None:
        check(session)
        return False
    try:
        with session.connection.transaction():
            run(session, (*TABLES, *FUNCTIONS))
            session.connection.execute(session.statement("insert into {s}.format values (%s)"), (VERSION,))
            session.connection.execute(session.statement("insert into {s}.shard (id) values (%s)"), (SHARD,))
    except psycopg.Error as error:
        why = failure(error)
        if isinstance(why, UnreachableError):
            raise why from None
        raise BadDatabase(f"{session.database}: {why}") from None
    return True


def upgrade(session: Session) -> None:
    """Give a schema of an earlier version the form of this one. Only the owner of the shard may do so.

    Raises UnreachableError, BadDatabase.
    """
    try:
        with session.connection.transaction():
            session.connection.execute(session.statement("lock table {s}.format in exclusive mode"))
            number = version_of(session)
            if number is not None and number < VERSION:
                for earlier in range(number, VERSION):
                    run(session, UPGRADES[earlier])
                run(session, (*FUNCTIONS, f"update {{s}}.format set version = {VERSION}"))
    except psycopg.Error as error:
        why = failure(error)
        if isinstance(why, UnreachableError):
            raise why from None
        raise BadDatabase(f"{session.database} cannot be given format {VERSION}: {why}") from None


def run(session: Session, texts: Sequence[str]) -> None:
    """Run statements that name sequences in braces. Raises psycopg.Error."""
    for text in texts:
        for name in ("places", "beats"):
            text = text.replace(f"{{{name}}}", f"'{_quoted(session, name)}'::regclass")
        session.connection.execute(session.statement(text))


def _quoted(session: Session, name: str) -> str:
    """Return the full name of a table, quoted as in a statement."""
    return f"{psycopg.sql.Identifier(session.database.schema, name).as_string(session.connection)}"
