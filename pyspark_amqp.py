"""`spark.read.format("amqp")` without registering anything: PySpark looks for modules of this name (docs/spark.md)."""

from leveret.pipeline.session import register, require_spark

require_spark()

from leveret.pipeline.source import AmqpSource as DefaultSource  # noqa: E402 - it needs a PySpark that is new enough

__all__ = ["DefaultSource", "register"]
