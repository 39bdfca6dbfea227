"""What a client of Spark Connect runs: it has PySpark, and nothing of Leveret."""

from __future__ import annotations

import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

server, endpoint, folder = sys.argv[1:]
spark = SparkSession.builder.remote(server).getOrCreate()
rows = spark.read.format("amqp").option("endpoints", endpoint).option("subscribe", "orders").load()
print(f"rows={rows.where('offset >= 3').count()}")
query = (
    spark.readStream.format("amqp")
    .option("endpoints", endpoint)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .load()
    .select("body")
    .writeStream.format("amqp")
    .option("endpoints", endpoint)
    .option("exchange", "")
    .option("routingKey", "copies")
    .option("checkpointLocation", folder)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(f"copies={rows.where('offset < 3').count()}")
try:
    spark.read.format("amqp").option("endpoints", endpoint).option("subscribe", "nowhere").load().count()
except PySparkException as error:
    print(f"error={str(error).splitlines()[0]}")
spark.stop()
