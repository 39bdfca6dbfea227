"""What a test submits to a cluster: a super stream becomes a table and goes on to an exchange. See test_cluster.py."""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession

from pipeline.source import AmqpSource

spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(AmqpSource)  # what comes with --py-files, Spark does not find by itself
endpoint, folder = sys.argv[1:]


def source(**options: int) -> DataFrame:
    return (
        spark.readStream.format("amqp")
        .option("endpoints", endpoint)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )


def where(number: int) -> str:
    """Which executor does a task: each has a folder of its own."""
    return os.getcwd()


places = spark.sparkContext.parallelize(range(8), 8).map(where).collect()
print(f"executors={len(set(places))}")
table = source().select("partition", "offset", "body").writeStream.format("parquet")
table = table.option("path", f"{folder}/table").option("checkpointLocation", f"{folder}/table-checkpoint")
bridge = source(maxOffsetsPerTrigger=200).writeStream.format("amqp").option("endpoints", endpoint)
bridge = bridge.option("exchange", "bridge").option("checkpointLocation", f"{folder}/bridge-checkpoint")
for query in (table, bridge):
    query.trigger(availableNow=True).start().awaitTermination()
found = spark.read.parquet(f"{folder}/table")
rows, different = found.selectExpr("count(*)", "count(distinct partition, offset)").first() or (0, 0)
print(f"rows={rows}\ndifferent={different}")
