"""What a test submits to a cluster: a super stream goes on to an exchange, and is read as a table."""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession

import pyspark_amqp

spark = SparkSession.builder.getOrCreate()
pyspark_amqp.register(spark)  # what comes with --py-files, Spark does not find by itself
endpoint, folder = sys.argv[1:]


def source() -> DataFrame:
    return (
        spark.readStream.format("amqp")
        .option("endpoints", endpoint)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .load()
    )


def where(number: int) -> str:
    """Which executor does a task: each has a folder of its own."""
    return os.getcwd()


places = spark.sparkContext.parallelize(range(8), 8).map(where).collect()
print(f"executors={len(set(places))}")
bridge = source().writeStream.format("amqp").option("endpoints", endpoint)
bridge = bridge.option("exchange", "bridge").option("checkpointLocation", f"{folder}/bridge-checkpoint")
bridge.trigger(availableNow=True).start().awaitTermination()
table = spark.read.format("amqp").option("endpoints", endpoint).option("subscribe", "orders").load()
rows, different = table.selectExpr("count(*)", "count(distinct partition, offset)").first() or (0, 0)
print(f"rows={rows}\ndifferent={different}")
