"""Commit the micro-batches of Spark whose tasks have decoded bodies: both tables of an archive, as without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import Committer
from leveret.pipeline.jobs.archive_local import read_by
from leveret.pipeline.jobs.archive_source import decoded_in
from leveret.pipeline.jobs.decoding import DecodedFiles, decoding_of
from leveret.pipeline.jobs.decoding_task import DecodingTask, together
from leveret.pipeline.jobs.run import WrittenRows

if TYPE_CHECKING:
    from leveret.pipeline.decoding.decode_options import DecodeOptions
    from leveret.pipeline.jobs.archive import Target
    from leveret.pipeline.offsets import Range
    from leveret.pipeline.options import Options


class DecodedCommitter(Committer):
    """Commits what tasks have decoded. What an earlier run has left undone is done when it is made."""

    def __init__(self, target: Target, options: Options, decode: DecodeOptions) -> None:
        """Make one, with both tables as the log says. Raises PipelineError."""
        self._options = options
        self._decoding = decoding_of(target, options, decode)
        self._decoding.begin()
        self._log = self._decoding.log()
        self.task = DecodingTask(self._decoding.messages, self._decoding.read, self._decoding.known(), decode)
        super().__init__(self.task.layout)

    def _commit(self, query: str, batch: int, done: Sequence[str]) -> WrittenRows | None:
        tasks = decoded_in(done)
        written = together(tasks, self._decoding.known(), self._again)
        reads = delta.CommittedBatch(query, batch, read_by(wanted for wanted, _ in tasks))
        if not self._decoding.commit(self._log, written, reads):
            return None
        return WrittenRows(written.rows, written.undecoded_rows)

    def _again(self, columns: pa.Schema, wanted: Range) -> DecodedFiles:
        """Decode a range in the driver, for a table with some columns."""
        return attrs.evolve(self.task, known=columns).write(self._options, wanted)
