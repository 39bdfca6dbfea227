"""Measure what a commit to a Delta table costs that has thousands of them, which should make no difference.

Entries of the log are written, and no data files.

    python -m benchmarks.commits 10000
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive_columns import COLUMNS
from leveret.pipeline.jobs.data_files import DataFile, table_schema
from leveret.pipeline.jobs.table_log import TableLog

DAY = "2026-11-22"
ROWS = 10  # of a file
PARTS = 10  # lines of the report


def file_of(batch: int) -> DataFile:
    bounds = {"partition": 0, "offset": batch * ROWS}, {"partition": 0, "offset": batch * ROWS + ROWS - 1}
    stats = f'{{"numRecords":{ROWS},"minValues":{bounds[0]},"maxValues":{bounds[1]}}}'.replace("'", '"')
    return DataFile(f"day={DAY}/batch-{batch}.parquet", {"day": DAY}, 1000, ROWS, 1_795_337_881_497, stats)


def main() -> None:
    commits = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        where = str(Path(folder) / "lake")
        log = TableLog(where, ("day",), table_schema(pa.schema(list(COLUMNS.items())), ("day",)))
        began, busy = time.perf_counter(), time.process_time()
        for batch in range(commits):
            assert not log.is_there("benchmark", batch)
            reads = {"leveret x 0 orders": (batch * ROWS, batch * ROWS + ROWS)}
            assert log.append([file_of(batch)], delta.CommittedBatch("benchmark", batch, reads))
            if (batch + 1) % (commits // PARTS) == 0:
                each = 1000 / (commits // PARTS)
                wall, cpu = (time.perf_counter() - began) * each, (time.process_time() - busy) * each
                print(
                    f"{batch + 1:>6} commits: {wall:.1f} ms each, {cpu:.1f} of them the processor's",
                    flush=True,
                )
                began, busy = time.perf_counter(), time.process_time()
        assert len(delta.committed(delta.found(where))) == commits


if __name__ == "__main__":
    main()
