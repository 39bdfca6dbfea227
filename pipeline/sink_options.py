"""The options of `df.write.format("amqp")` and `df.writeStream`: from texts to one checked record, as for the
source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from leveret.pipeline.option_hints import WRITING
from leveret.pipeline.options import Connection, Use, flag, one_of, option, require_known, values_of

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
SHORT_MAX: Final = 255  # bytes of a name in AMQP 0-9-1


def short(given: str) -> str:
    if len(given.encode()) > SHORT_MAX:
        raise ValueError(f"must have no more than {SHORT_MAX} bytes")
    return given


@attrs.frozen(kw_only=True)
class SinkOptions(Connection):
    """The options of a write: its exchange and routing key, and its delivery guarantee."""

    exchange: str | None = option(
        "exchange",
        short,
        None,
        "where all rows go, whatever a column `exchange` says; the empty one is the default exchange, which routes by"
        " queue name",
    )
    routing_key: str | None = option(
        "routingKey", short, None, "the key of all rows, whatever a column `routing_key` or `key` says"
    )
    mandatory: bool = option(
        "mandatory",
        flag,
        True,
        "whether a row that no queue would get ends the query, with nothing of its micro-batch published; otherwise"
        " it is dropped, and the log has the number of such rows",
    )
    delivery: str = option(
        "delivery",
        one_of(EXACTLY_ONCE, AT_LEAST_ONCE),
        EXACTLY_ONCE,
        f"`{EXACTLY_ONCE}`, or `{AT_LEAST_ONCE}`: tasks publish at once, and again when they are repeated",
    )
    persistent: bool = option(
        "persistent", flag, True, "whether messages are durable, where `properties.durable` does not say"
    )


TABLE: Final = {field.metadata["name"].lower(): field for field in attrs.fields(SinkOptions)}
# options of a query that Spark also passes to the sink
SPARKS: Final = frozenset(("checkpointlocation", "queryname"))


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return checked options. Names may be in any case. Raises BadOption, naming the option."""
    ours = {name: value for name, value in given.items() if name.lower() not in SPARKS}
    require_known(ours, TABLE, WRITING)
    return SinkOptions(**values_of(ours, TABLE, Use.ALWAYS))  # type: ignore[arg-type]
