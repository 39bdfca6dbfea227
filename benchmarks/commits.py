"""Measure what a commit to a Delta or Iceberg table costs that has thousands of them, which should make no difference.

Of Delta entries of the log are written, and no data files; of Iceberg each commit names a file of ten rows.

    python -m benchmarks.commits 10000
    python -m benchmarks.commits 1000 iceberg              # snapshots of the last day are kept
    python -m benchmarks.commits 1000 iceberg --history 5  # of the last 5 s, as if commits were rarer
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive_columns import COLUMNS
from leveret.pipeline.jobs.archive_log import ArchiveLog
from leveret.pipeline.jobs.data_files import DataFile, Layout, table_schema
from leveret.pipeline.jobs.table_log import TableLog

DAY = "2026-11-22"
ROWS = 10  # of a file
PARTS = 10  # lines of the report


def file_of(batch: int) -> DataFile:
    bounds = {"partition": 0, "offset": batch * ROWS}, {"partition": 0, "offset": batch * ROWS + ROWS - 1}
    stats = f'{{"numRecords":{ROWS},"minValues":{bounds[0]},"maxValues":{bounds[1]}}}'.replace("'", '"')
    return DataFile(f"day={DAY}/batch-{batch}.parquet", {"day": DAY}, 1000, ROWS, 1_795_337_881_497, stats)


def delta_log(where: str) -> TableLog:
    return TableLog(where, ("day",), table_schema(pa.schema(list(COLUMNS.items())), ("day",)))


class IcebergTable:
    """An Iceberg table, and one file of rows that is there under many names."""

    def __init__(self, where: str, history_s: float | None) -> None:
        from leveret.pipeline.jobs import iceberg

        columns = pa.schema(list(COLUMNS.items()))
        self.log = iceberg.IcebergLog(where, None, (), columns)
        if history_s is not None:
            with iceberg.found(where, None).transaction() as change:
                change.set_properties({iceberg.HISTORY: str(int(history_s * 1000))})
        self._where = where
        whole = pa.RecordBatch.from_arrays([pa.nulls(ROWS, field.type) for field in columns], schema=columns)
        (self._file,) = Layout(self.log.data, (), columns, is_whole=True, system=self.log.system).write(
            [whole], "rows"
        )

    def file_of(self, batch: int) -> DataFile:
        name = f"batch-{batch}.parquet"
        folder = Path(self._where) / "data"
        os.link(folder / self._file.path, folder / name)
        return DataFile(name, {}, self._file.octets, ROWS, self._file.written, self._file.stats)

    def told(self) -> str:
        from leveret.pipeline.jobs import iceberg

        table = iceberg.found(self._where, None)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        metadata = iceberg.local_path(table.metadata_location)
        assert metadata is not None
        manifests, octets = len(snapshot.manifests(table.io)), metadata.stat().st_size
        return f"; {len(table.snapshots())} snapshots, {manifests} manifests, {octets:,} bytes of metadata"


def measure(log: ArchiveLog, commits: int, file: Callable[[int], DataFile], told: Callable[[], str]) -> None:
    wall = cpu = 0.0
    for batch in range(commits):
        added = file(batch)
        began, busy = time.perf_counter(), time.process_time()
        assert not log.is_there("benchmark", batch)
        reads = {"leveret x 0 orders": (batch * ROWS, batch * ROWS + ROWS)}
        assert log.append([added], delta.CommittedBatch("benchmark", batch, reads))
        log.upkeep(time.time(), lambda: None)
        wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - busy
        if (batch + 1) % (commits // PARTS) == 0:
            each = 1000 / (commits // PARTS)
            line = (
                f"{batch + 1:>6} commits: {wall * each:.1f} ms each, {cpu * each:.1f} of them the processor's"
            )
            print(line + told(), flush=True)
            wall = cpu = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commits", type=int, nargs="?", default=10_000)
    parser.add_argument("format", choices=("delta", "iceberg"), nargs="?", default="delta")
    parser.add_argument(
        "--history",
        type=float,
        help="s that snapshots of Iceberg are kept; default: a day, or an hour of many",
    )
    parser.add_argument("--folder", help="for the table, such as one on the disk that is to be measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        where = str(Path(folder) / "lake")
        if options.format == "iceberg":
            table = IcebergTable(where, options.history)
            measure(table.log, options.commits, table.file_of, table.told)
            return
        measure(delta_log(where), options.commits, file_of, lambda: "")
        assert len(delta.committed(delta.found(where))) == options.commits


if __name__ == "__main__":
    main()
