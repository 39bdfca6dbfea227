"""`spark.read.format("amqp")` without registering anything: PySpark looks for modules of this name (docs/spark.md)."""

from pipeline.session import register
from pipeline.source import AmqpSource as DefaultSource

__all__ = ["DefaultSource", "register"]
