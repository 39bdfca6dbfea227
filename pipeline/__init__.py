"""Streams of a broker as tables of Spark: `spark.readStream.format("amqp")` (docs/spark.md)."""
