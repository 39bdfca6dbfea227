"""What is killed in mid-batch: one driver with four queries, each of which carries messages once. See rounds.py.

stream "events" ──> table "stream"        queue "for-table" ────> table "queue"
stream "events" ──> exchange "copies"     queue "for-copies" ───> exchange "taken"
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from leveret.pipeline.jobs.archive import Target, archive_messages
from leveret.pipeline.jobs.run import patiently
from leveret.pipeline.jobs.table import table
from leveret.pipeline.session import session
from tests.pipeline.installation import SETTINGS

BATCH: Final = 200  # messages
ALL_IS_READ: Final = "all is read"
QUERIES: Final = ("stream-to-table", "stream-to-exchange", "queue-to-table", "queue-to-exchange")


class Bridge:
    """The queries of one folder at one broker."""

    def __init__(self, spark: SparkSession, endpoint: str, folder: Path) -> None:
        self._spark = spark
        self._endpoint = endpoint
        self._folder = folder
        self._running: dict[str, StreamingQuery] = {}

    def begin(self, name: str) -> StreamingQuery:
        """It ends when it has read what is there now."""
        query = self._running[name] = self._begun(name)
        return query

    def end(self, name: str) -> None:
        """Wait for a query; where its Python was late, and it is gone, it begins again."""
        query = self._running.pop(name, None) or self._begun(name)
        query.awaitTermination()

    def _begun(self, name: str) -> StreamingQuery:
        source, target = name.split("-to-")
        if target == "table":
            return self._table(name)
        said = self._of_stream() if source == "stream" else self._of_queue(target)
        rows = self._spark.readStream.format("amqp").options(**said).load()
        return self._exchange(name, rows, "copies" if source == "stream" else "taken")

    def _of_stream(self) -> dict[str, str]:
        return self._reading(subscribe="events", startingOffsets="earliest")

    def _of_queue(self, target: str) -> dict[str, str]:
        return self._reading(subscribe="for-table" if target == "table" else "for-copies", readerName=target)

    def _reading(self, **options: str) -> dict[str, str]:
        given = {"endpoints": self._endpoint, "maxOffsetsPerTrigger": str(BATCH), "minPartitions": "2"}
        return {**given, **options}

    def _table(self, name: str) -> StreamingQuery:
        """An archive, as `leveret pipeline archive` makes it."""
        source, target = name.split("-to-")
        said = self._of_stream() if source == "stream" else self._of_queue(target)
        place = Target(str(self._folder / name / "table"))
        return archive_messages(self._spark, said, place, str(self._folder / name / "checkpoint"))[0]

    def rows(self, where: str) -> list[int]:
        """What Spark reads in a table."""
        return [int(row.body) for row in table(self._spark, where).select("body").collect()]

    def _exchange(self, name: str, rows: DataFrame, exchange: str) -> StreamingQuery:
        writer = rows.select("body").writeStream.format("amqp").option("endpoints", self._endpoint)
        return self._started(name, writer.option("exchange", exchange))

    def _started(self, name: str, writer: DataStreamWriter) -> StreamingQuery:
        checkpoint = str(self._folder / name / "checkpoint")
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def main() -> None:
    """For each line of input: run until everything is read, and say so. A query that fails ends it.

    A line with the name of a table is answered with what Spark reads in it.
    """
    endpoint, folder, *names = sys.argv[1:]
    spark = session("bridge", "local[2,4]", SETTINGS)  # a task that dies is repeated
    spark.sparkContext.setLogLevel("OFF")
    bridge = Bridge(spark, endpoint, Path(folder))
    for line in sys.stdin:
        if line.startswith("/"):
            print(json.dumps(bridge.rows(line.strip())), flush=True)
            continue
        for name in names:
            query = bridge.begin(name)
            while query.isActive and query.lastProgress is None:
                # Spark gives each query's Python 10 s to start, also where four do at a time
                time.sleep(0.05)
        for name in names:
            patiently(partial(bridge.end, name))
        print(ALL_IS_READ, flush=True)


if __name__ == "__main__":
    main()
