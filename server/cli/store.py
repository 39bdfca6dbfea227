"""`leveret store ...`: verify, measure, copy or restore a data folder or a database, whether or not a node runs on it.

`verify`, `stats` and `backup` see one moment of it and change nothing in it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.arguments.names import counted
from leveret.server.cli.command_parser import Add, Command, Environ, parts_of, put
from leveret.server.cli.exit_codes import DONE, REFUSED, failed

if TYPE_CHECKING:
    from leveret.durable.store.backup import Progress
    from leveret.durable.store.postgres.session import Database
    from leveret.durable.store.verification import Owner, Report, StoredContent

PROGRESS_S: Final = 1.0  # before the first line of progress, and between two

LOCATION: Final = "a data folder, or a database: a connection string of libpq's, or @FILE with one in it"
LOCATION_EPILOG: Final = """\
A database is named by a connection string of libpq's, such as "host=pg dbname=leveret" or postgresql://pg/leveret.
Its password does not belong there, where other users of the machine can see it: use ~/.pgpass, PGPASSWORD, or @FILE.
"""
INIT_TEXT: Final = "Make the tables of the store engine `postgres` in a database."
INIT_EPILOG: Final = f"""\
examples:
  leveret store init --dsn "host=pg dbname=leveret user=leveret"

The user is the one that the node will be: it has to be allowed to create a schema in the database. Tables that are
there already stay as they are.

{LOCATION_EPILOG}"""
COPY_TEXT: Final = "Copy a store between a data folder and a database, in either direction."
COPY_EPILOG: Final = f"""\
examples:
  leveret store copy /var/lib/leveret "host=pg dbname=leveret"
  leveret store copy @/etc/leveret/dsn /var/lib/leveret

The target must be empty. No node may use a data folder that is copied, so that nothing is added meanwhile; a database
is copied as of one moment, while a node serves from it or not.

{LOCATION_EPILOG}"""
VERIFY_TEXT: Final = "Compare everything in a data folder or a database with its checksums."
VERIFY_EPILOG: Final = """\
Exit codes: 0 everything is as it was written; 1 something is damaged, or there is no data folder.

Damage is reported by queue as far as the queue can be known. A node that runs on the folder is not disturbed, but its
logs grow while this reads; on a busy node verify a backup instead. A database is copied to a temporary folder for this.
"""
STATS_TEXT: Final = "Show the contents of a data folder or a database, by queue."
STATS_EPILOG: Final = "No message is read, and a node that runs on the folder is not disturbed."
BACKUP_TEXT: Final = (
    "Copy a data folder or a database to a folder, as of one moment, while a node runs on it or not."
)
BACKUP_EPILOG: Final = """\
examples:
  leveret store backup /var/lib/leveret /backup/monday

The new folder is verified. A node can be started on it, but `leveret store restore` makes a copy first.
Messages that were being delivered at that moment count as redelivered when the copy is used.
"""
RESTORE_TEXT: Final = "Make a data folder from a backup."
RESTORE_EPILOG: Final = """\
examples:
  leveret store restore /backup/monday /var/lib/leveret

The backup is verified first. The folder must be empty: move its contents away.
"""


def add_store(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)

    def add(name: str, command: Command, text: str, epilog: str) -> argparse.ArgumentParser:
        added = put(actions, name, text, epilog)
        added.set_defaults(command=command)
        return added

    def add_schema(to: argparse.ArgumentParser) -> None:
        to.add_argument("--schema", default="leveret", help="the schema of the database; default: leveret")

    making = add("init", init, INIT_TEXT, INIT_EPILOG)
    making.add_argument(
        "--dsn", required=True, help="a connection string of libpq's, or @FILE with one in it"
    )
    add_schema(making)
    moving = add("copy", copy, COPY_TEXT, COPY_EPILOG)
    moving.add_argument("source", metavar="FROM", help=LOCATION)
    moving.add_argument("target", metavar="TO", help=LOCATION)
    add_schema(moving)
    verifying = add("verify", verify, VERIFY_TEXT, VERIFY_EPILOG)
    verifying.add_argument("folder", metavar="STORE", help=LOCATION)
    add_schema(verifying)
    verifying.add_argument("--json", action="store_true", help="print JSON")
    measuring = add("stats", stats, STATS_TEXT, STATS_EPILOG)
    measuring.add_argument("folder", metavar="STORE", help=LOCATION)
    add_schema(measuring)
    measuring.add_argument("--json", action="store_true", help="print JSON")
    saving = add("backup", backup, BACKUP_TEXT, BACKUP_EPILOG)
    saving.add_argument("folder", metavar="STORE", help=LOCATION)
    add_schema(saving)
    saving.add_argument("to", metavar="TO", type=Path, help="a folder that is empty or does not exist")
    restoring = add("restore", restore, RESTORE_TEXT, RESTORE_EPILOG)
    restoring.add_argument("backup", metavar="BACKUP", type=Path)
    restoring.add_argument(
        "folder", metavar="DIR", type=Path, help="a folder that is empty or does not exist"
    )


def init(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.durable.store.folder import BadFolder

    try:
        found = location(options.dsn, options.schema)
        if isinstance(found, Path):
            return failed(
                f"{options.dsn} is no connection string: `host=...` or `postgresql://...` is expected"
            )
        from leveret.durable.store.postgres import copying

        with _reached():
            made = copying.made(found)
    except (BadFolder, OSError) as error:
        return failed(str(error))
    print(f"{found}: {'the tables are made' if made else 'the tables are there already'}")
    return DONE


def copy(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.durable.store.contract import StoreError
    from leveret.durable.store.folder import BadFolder

    try:
        source, target = location(options.source, options.schema), location(options.target, options.schema)
        if isinstance(source, Path) and isinstance(target, Path):
            return _copied(source, target, "the folder, and so its copy,")
        from leveret.durable.store.postgres import copying

        with _reached():
            if isinstance(target, Path):
                assert not isinstance(source, Path), "one of the two is a database"
                return _saved(source, target)
            if not isinstance(source, Path):
                return failed("one of the two has to be a data folder")
            copying.to_database(source, target, progress("copied"))
            report = copying.inspected(target, False, progress("counted"))
    except (BadFolder, StoreError, OSError) as error:
        return failed(str(error))
    print(f"{target}: {_summary(report)}")
    return DONE


@contextmanager
def _reached() -> Iterator[None]:
    """Turn the error of a database that does not answer into one that is told as others are."""
    from leveret.durable.store.postgres.session import UnreachableError

    try:
        yield
    except UnreachableError as error:
        raise OSError(str(error)) from None


def location(text: str, schema: str) -> Path | Database:
    """Return the data folder or the database that an argument names. Raises OSError, BadFolder."""
    if text.startswith("@"):
        text = Path(text[1:]).read_text().strip()
    elif not re.match(r"postgres(ql)?://|[a-z_]+\s*=", text):
        return Path(text)
    from leveret.durable.store.postgres.session import Database

    return Database(text, schema)


def verify(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.durable.store.contract import StoreError
    from leveret.durable.store.folder import BadFolder

    try:
        report = _report(options, True)
    except (BadFolder, StoreError, OSError) as error:
        return failed(str(error))
    print(json.dumps(verified_json(report), indent=2) if options.json else verified_text(report))
    return REFUSED if report.problems else DONE


def stats(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.durable.store.contract import StoreError
    from leveret.durable.store.folder import BadFolder

    try:
        report = _report(options, False)
    except (BadFolder, StoreError, OSError) as error:
        return failed(str(error))
    print(json.dumps(content_json(report), indent=2) if options.json else stats_text(report))
    return DONE


def _report(options: argparse.Namespace, verified: bool) -> Report:
    """Return what there is in a folder or a database. Raises BadFolder, StoreError, OSError."""
    from leveret.durable.store import verification

    found = location(options.folder, options.schema)
    if isinstance(found, Path):
        return verification.verify(found, progress("verified")) if verified else verification.measure(found)
    from leveret.durable.store.postgres import copying

    with _reached():
        return copying.inspected(found, verified, progress("read"))


def backup(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.durable.store.contract import StoreError
    from leveret.durable.store.folder import BadFolder

    try:
        found = location(options.folder, options.schema)
        if isinstance(found, Path):
            return _copied(found, options.to, "the folder, and so its copy,")
        with _reached():
            return _saved(found, options.to)
    except (BadFolder, StoreError, OSError) as error:
        return failed(str(error))


def _saved(source: Database, target: Path) -> int:
    """Copy a database to a folder, and verify that. Raises BadFolder, StoreError, OSError, UnreachableError."""
    from leveret.durable.store import verification
    from leveret.durable.store.postgres import copying

    copying.to_folder(source, target, progress("copied"))
    report = verification.verify(target, progress("verified"))
    print(verified_text(report))
    return failed("the database, and so its copy, is damaged") if report.problems else DONE


def restore(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.durable.store import verification
    from leveret.durable.store.folder import BadFolder, Folder

    try:
        found = verification.verify(options.backup, progress("verified"))
        if found.problems:
            return failed(f"{options.backup} is damaged, and nothing was restored\n{_list(found.problems)}")
        folder = Folder(options.folder)  # locks it, so that no node can start on it meanwhile
    except (BadFolder, OSError) as error:
        return failed(str(error))
    try:
        return _copied(options.backup, options.folder, "the restored folder")
    finally:
        folder.release()


def _copied(source: Path, target: Path, what: str) -> int:
    from leveret.durable.store import backup as copying
    from leveret.durable.store import verification
    from leveret.durable.store.folder import BadFolder

    try:
        copying.copy(source, target, progress("copied"))
        report = verification.verify(target, progress("verified"))
    except (BadFolder, OSError) as error:
        return failed(str(error))
    print(verified_text(report))
    if report.problems:
        return failed(f"{what} is damaged; `leveret store verify {target}` says the same")
    return DONE


def progress(done_what: str, now: Callable[[], float] = time.monotonic) -> Progress:
    """Return a function that reports on standard error how far long work has come, from time to time."""
    told = now()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if now() - told >= PROGRESS_S:
            told = now()
            part = f" ({100 * done // total} %)" if total else ""
            print(f"leveret: {done_what} {size(done)} of {size(total)}{part}", file=sys.stderr)

    return tell


def verified_text(report: Report) -> str:
    """Return a report about damage, as text."""
    lines = [
        f"{report.database or report.folder}: {'DAMAGED' if report.problems else 'OK'}; {_summary(report)}"
    ]
    lines += [f"  {problem}" for problem in report.problems]
    damaged = {owner: content for owner, content in report.contents.items() if content.damaged}
    if damaged:
        lines += ["", "messages that cannot be delivered:"]
        lines += [
            f"  {name_of(owner)}: {content.damaged} of {content.messages}"
            for owner, content in sorted(damaged.items())
        ]
    return "\n".join(lines)


def _summary(report: Report) -> str:
    messages = f"{counted(report.messages, 'message')} ({size(report.octets)})"
    segments = f" and {counted(report.segments, 'segment')}" if report.segments else ""
    return f"{counted(report.objects, 'object')}, {messages} in {counted(report.chunks, 'chunk')}{segments}"


def stats_text(report: Report) -> str:
    """Return the contents of a folder, as text."""
    from leveret.server.cli import text

    return text.told("", content_json(report))


def verified_json(report: Report) -> dict[str, object]:
    """Return a report about damage, as `verify --json` prints it."""
    return {"ok": not report.problems, "problems": report.problems, **content_json(report, True)}


def content_json(report: Report, verified: bool = False) -> dict[str, object]:
    """Return the contents of a folder, as `stats --json` prints it. Sizes are bytes, times UTC."""
    return {
        "folder": report.database or str(report.folder),
        "state": _state(report),
        "objects": report.objects,
        "messages": report.messages,
        "octets": report.octets,
        "chunks": report.chunks,
        "segments": report.segments,
        "file_octets": sum(report.files.values()),
        "free_octets": report.free_octets,
        "files": [{"name": name, "octets": octets} for name, octets in report.files.items()],
        "queues": [
            _queue(owner, content) | ({"damaged": content.damaged} if verified else {})
            for owner, content in sorted(report.contents.items())
        ],
    }


def _state(report: Report) -> str:
    if report.owner is not None:
        return f"in use by the node '{report.owner}'"
    if report.node is not None:
        return f"in use by process {report.node}" if report.node else "in use"
    return (
        "closed properly"
        if report.closed
        else "as of a moment while a node ran: a backup, or an unclean shutdown"
    )


def _queue(owner: Owner, content: StoredContent) -> dict[str, object]:
    kind, virtual_host, name = owner
    return {
        "kind": kind or "deleted queue",
        "virtual_host": virtual_host,
        "name": name,
        "messages": content.messages,
        "octets": content.octets,
        "oldest": _time(content.oldest_ms),
    }


def _time(ms: int) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000)) if ms else None


def name_of(owner: Owner) -> str:
    kind, virtual_host, name = owner
    return f"{kind} '{name}' in vhost '{virtual_host}'" if kind else "queues that were deleted"


def size(octets: float) -> str:
    """Return a size for people: `3 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if octets < 1000:
            return f"{octets:.3g} {unit}"
        octets /= 1024
    return f"{octets:.3g} GiB"


def _list(lines: list[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


ADD: Final[Mapping[str, Add]] = {"store": add_store}
