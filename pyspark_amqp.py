"""`spark.read.format("amqp")` without registering anything: PySpark looks for modules of this name (docs/spark.md)."""

from leveret.pipeline.session import register
from leveret.pipeline.source import AmqpSource as DefaultSource

__all__ = ["DefaultSource", "register"]
