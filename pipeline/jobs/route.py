"""Pass messages through SQL or a function, and publish them to an exchange."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipeline.errors import BadOption
from leveret.pipeline.progress import PUBLISHED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

VIEW: Final = "messages"


def routed(rows: DataFrame, how: str | Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return the result of a SQL query of the view `messages`, or of a function of the rows. Raises BadOption."""
    if isinstance(how, str):
        rows.createOrReplaceTempView(VIEW)
        return rows.sparkSession.sql(how)
    made: object = how(rows)
    if not hasattr(made, "writeStream"):
        raise BadOption(f"the function returns a {type(made).__name__}, not a DataFrame")
    return made  # type: ignore[return-value]


def function_named(name: str) -> Callable[[DataFrame], DataFrame]:
    """Return the function `MODULE:NAME`; the module may be a file in the current folder. Raises BadOption."""
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadOption(f"there is no function '{name}': {error}") from None
    if not callable(found):
        raise BadOption(f"'{name}' is no function")
    return found


def route(
    rows: DataFrame, sink: Mapping[str, str], checkpoint: str, every: str | None = None
) -> StreamingQuery:
    """Start a query that publishes rows. `sink` has options of `format("amqp")`; for `every` see `archive`."""
    from pyspark.sql.functions import count, lit

    counted = rows.observe(PUBLISHED, count(lit(1)).alias("rows"))
    writing = counted.writeStream.format("amqp").options(**sink).option("checkpointLocation", checkpoint)
    triggered = writing.trigger(processingTime=every) if every else writing.trigger(availableNow=True)
    return triggered.start()
