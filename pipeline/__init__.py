"""The Spark data source of a broker: `spark.readStream.format("amqp")` reads its streams and queues (docs/spark.md)."""
