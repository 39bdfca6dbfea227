"""The log of a Delta table on this machine, kept open by a run that adds to it: a commit costs the same however many
there are.

    opened once with deltalake ──> version, columns, transactions
    commit ── is the next version free? ──> TABLE/_delta_log/00...13.json, linked into place: the first to come has it

deltalake reads the state of a whole table before each commit, which takes longer with each file that is in it. Here
only a version that another program has added has the table opened anew. To tables elsewhere, and such as ask of writers
what archives do not do, deltalake commits.

Source: the Delta transaction log protocol, "Delta Log Entries" and "Actions" (add, txn, commitInfo), writer version 2.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pyarrow import fs  # type: ignore[import-untyped]

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.checkpoints import write_new
from leveret.pipeline.jobs.data_files import key_of, object_store

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from leveret.pipeline.jobs.data_files import DataFile

log: Final = logging.getLogger("leveret.pipeline")

WRITER_MAX: Final = 2  # the version of the protocol up to which an append has to heed nothing more
CHECKPOINT_EVERY: Final = 100  # versions, at least, as deltalake has it: a reader begins at the last of them
# Rows of the last checkpoint for each version until the next, at most: it names all files, at 20 µs, so it is the rarer
# the more they are. A reader takes 10 µs for each of them, and 700 for each version behind it.
CHECKPOINT_SHARE: Final = 25
# Checkpoints: entries older than the log's retention are removed then, for which all are listed.
CLEANED_EVERY: Final = 10
ATTEMPTS: Final = 20  # to be the first with a version


class TableLog:
    """The log of one table. Not to be shared by threads."""

    def __init__(self, where: str, by: Sequence[str], columns: pa.Schema, widens: bool = False) -> None:
        """Make a log. A table that `widens` gets columns that it lacks."""
        self._where = where
        self._by = by
        self._columns = columns
        self._widens = widens
        self._folder = delta.folder_of(where)
        self._table: DeltaTable | None = None  # as it was when it was opened
        self._version = -1  # the newest
        self._noted: dict[str, int] = {}  # numbers of transactions, committed or looked for here since
        self._is_plain = False  # whether an entry can be written here
        self._is_widened = False  # whether it is to have more columns than when it was opened
        self._system: fs.FileSystem | None = None  # of a table that is not on this machine
        self._checkpointed = (0, 0)  # the version of the last checkpoint, and its rows
        self._checkpoints = 0  # that were made here

    def is_there(self, query: str, batch: int) -> bool:
        """Return whether a batch of a query is in the table. Raises PipelineError."""
        self._refresh()
        return self.number(query) >= batch

    def append(self, files: Sequence[DataFile], batch: delta.CommittedBatch) -> bool:
        """Add files to the table, as `delta.append` does. Raises PipelineError."""
        for _ in range(ATTEMPTS):
            self._refresh()
            if self._table is None:
                self._table = delta.prepared(self._where, self._by, self._columns, self._widens)
                delta.sync_log(self._where)
                self._note()
            if not self._is_plain:
                return self._append_elsewhere(files, batch)
            if self.number(batch.query) >= batch.number:
                return False
            delta.require_new(self.number, self._where, batch)
            if self._write(files, batch.numbered(self.number)):
                return True
        raise PipelineError(
            f"{self._where}: batch {batch.number} is not committed: other programs add versions all the time"
        )

    def widen(self, columns: pa.Schema) -> None:
        """Have the table have these columns from the next look at it on."""
        if columns != self._columns:
            self._columns = columns
            self._is_plain, self._is_widened = False, True  # so that it is opened anew

    def upkeep(self, now: float, complete: Callable[[], object]) -> None:
        """Do nothing: the checkpoints of the log come with commits."""

    def number(self, name: str) -> int:
        """Return the number of a transaction that was in the table at the last look; -1 if there was none."""
        if name not in self._noted and self._table is not None:
            known = self._table.transaction_version(name)  # which reads all the log
            self._noted[name] = -1 if known is None else known
        return self._noted.get(name, -1)

    def _refresh(self) -> None:
        """Open the table anew if another program has added to it."""
        if self._is_plain and self._entry(self._version).exists():
            if not self._entry(self._version + 1).exists():
                return
        if self._is_there_elsewhere() and self._is_current():
            return
        before, self._table = self._table, delta.opened(self._where)
        if before is not None and self._table is None:
            raise PipelineError(f"{self._where} was deleted while this run was at work")
        if self._table is not None:
            if self._widens:
                self._table = delta.widened(self._table, self._where, self._by, self._columns)
            else:
                delta.require_alike(self._table, self._where, self._by, self._columns)
            self._note()

    def _is_there_elsewhere(self) -> bool:
        """Return whether the newest entry of a table that is not on this machine is where it was."""
        if self._table is None or self._folder is not None:
            return False
        if self._system is None:
            self._system = object_store(self._where)
        place = f"{key_of(self._where)}/{delta.LOG}/{self._version:020}.json"
        try:
            return bool(self._system.get_file_info(place).type == fs.FileType.File)
        except OSError:
            return False

    def _is_current(self) -> bool:
        """Read the entries that others have added since, and return whether there were none and the columns suffice."""
        return self._newer() == 0 and not self._is_widened

    def _newer(self) -> int | None:
        """Read the entries after the newest that is known, and return their number; None if that fails."""
        from deltalake.exceptions import DeltaError

        assert self._table is not None
        try:
            self._table.update_incremental()
        except (DeltaError, OSError):
            return None
        return self._table.version() - self._version

    def _append_elsewhere(self, files: Sequence[DataFile], batch: delta.CommittedBatch) -> bool:
        """Add files with deltalake, to the table as it is open: to open it reads all the log."""
        assert self._table is not None
        batch, named = batch.numbered(self.number), (self._where, self._by, self._columns)
        if not delta.append_to(self._table, self.number, *named, files, batch):
            return False
        if self._newer() == 1:  # deltalake lets others be first whose commit is in no conflict with this
            self._noted.update(batch.noted)
            self._version = self._table.version()
        return True

    def _note(self) -> None:
        assert self._table is not None
        self._noted = {}
        self._is_widened = False
        self._version = self._table.version()
        protocol = self._table.protocol()
        self._is_plain = self._folder is not None and protocol.min_writer_version <= WRITER_MAX
        if self._is_plain:
            self._checkpointed = self._last_checkpoint()

    def _write(self, files: Sequence[DataFile], batch: delta.CommittedBatch) -> bool:
        """Write the next entry; return False if there is one already."""
        version = self._version + 1
        text = "\n".join(json.dumps(each, separators=(",", ":")) for each in self._actions(files, batch))
        try:
            if not write_new(self._entry(version), text + "\n"):
                return False
        except OSError as error:
            reason = error.strerror or error
            raise PipelineError(
                f"{self._where}: the commit of batch {batch.number} failed: {reason}"
            ) from None
        self._version = version
        self._noted.update(batch.noted)
        at, rows = self._checkpointed
        if version - at >= max(CHECKPOINT_EVERY, rows // CHECKPOINT_SHARE):
            self._checkpoint()
        return True

    def _last_checkpoint(self) -> tuple[int, int]:
        """Return the version of the last checkpoint and its rows; zeros if there is none."""
        assert self._folder is not None
        try:
            content = json.loads((self._folder / delta.LOG / delta.LAST_CHECKPOINT).read_text())
            return int(content["version"]), int(content["size"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # another program may have written it
            return 0, 0

    def _checkpoint(self) -> None:
        """Have readers begin here, and now and then remove entries that are older than the log's retention, 30 days.

        Without a checkpoint readers take longer, and nothing is wrong: the next one makes up for it.
        """
        from deltalake.exceptions import DeltaError

        self._checkpointed = (
            self._version,
            self._checkpointed[1],
        )  # where it fails, the next one is as far away
        try:
            table = delta.found(self._where)
            table.create_checkpoint()
            self._checkpointed = self._last_checkpoint()
            if self._checkpoints % CLEANED_EVERY == 0:
                table.cleanup_metadata()
            self._checkpoints += 1
            delta.sync_log(self._where, self._version)
        except (DeltaError, PipelineError, OSError) as error:
            log.warning("%s: its log has no checkpoint at version %d: %s", self._where, self._version, error)

    def _actions(self, files: Sequence[DataFile], batch: delta.CommittedBatch) -> Iterator[dict[str, object]]:
        now_ms = time.time_ns() // 1_000_000
        parameters = {"mode": "Append", "partitionBy": json.dumps(list(self._by))}
        yield {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": "WRITE",
                "operationParameters": parameters,
                "engineInfo": "leveret",
                **batch.more,
            }
        }
        for file in files:
            yield {
                "add": {
                    "path": quote(file.path, safe="/="),
                    "partitionValues": dict(file.values),
                    "size": file.octets,
                    "modificationTime": file.written,
                    "dataChange": True,
                    "stats": file.stats,
                }
            }
        for name, number in batch.noted.items():
            yield {"txn": {"appId": name, "version": number, "lastUpdated": now_ms}}

    def _entry(self, version: int) -> Path:
        assert self._folder is not None
        return self._folder / delta.LOG / f"{version:020}.json"
