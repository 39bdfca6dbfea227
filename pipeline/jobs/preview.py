"""Read messages of streams and queues as rows without consuming them.

A queue is read through a lease, which is deleted afterwards: its messages return to their places, marked as
redelivered. Consumers do not get the reserved messages in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from leveret.pipeline.broker_client import BrokerClient
from leveret.pipeline.client import Client
from leveret.pipeline.errors import NoStream
from leveret.pipeline.jobs.dead_letters import COLUMNS
from leveret.pipeline.jobs.endpoint import BrokerEndpoint
from leveret.pipeline.jobs.lag import LEASES
from leveret.pipeline.leases import MESSAGES_MAX, OCTETS_MAX, LeasedBlocks
from leveret.pipeline.offsets import Range
from leveret.pipeline.options import Options
from leveret.pipeline.reader import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READER: Final = "leveret-dead-letters"
Times = tuple[int | None, int | None]  # ms since 1970: from, until


def sorted_out(reach: BrokerEndpoint, sources: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the streams, and the queues, among these names. Raises PipelineError."""
    streams, queues = [], []
    client = reach.client()
    try:
        for source in sources:
            try:
                client.partitions(source)
            except NoStream:
                queues.append(source)
            else:
                streams.append(source)
    finally:
        client.close()
    return streams, queues


def rows(
    spark: SparkSession,
    reach: BrokerEndpoint,
    streams: Sequence[str],
    queues: Sequence[str],
    times: Times,
    most: int,
    tell: Callable[[str], None],
) -> DataFrame:
    """Return the columns that dead letters need, of the messages that are there now. Raises PipelineError."""
    found = [_of_streams(spark, reach, streams, times)] if streams else []
    found += [_of_queue(spark, reach, queue, most, tell) for queue in queues]
    return reduce(lambda a, b: a.unionByName(b), found)


def _of_streams(
    spark: SparkSession, reach: BrokerEndpoint, streams: Sequence[str], times: Times
) -> DataFrame:
    since, until = times
    more = {} if since is None else {"startingTimestamp": str(since)}
    more |= {} if until is None else {"endingTimestamp": str(until)}
    return spark.read.format("amqp").schema(COLUMNS).options(**reach.reading(streams, more)).load()


def _of_queue(
    spark: SparkSession, reach: BrokerEndpoint, queue: str, most: int, tell: Callable[[str], None]
) -> DataFrame:
    import pyarrow as pa  # type: ignore[import-untyped]

    from leveret.pipeline.arrow import schema_of
    from leveret.pipeline.decode import Decoder

    columns = spark.createDataFrame([], COLUMNS).schema
    schema = schema_of(columns)
    with leased(reach, queue, most, tell) as (options, client, wanted):
        assert wanted.fence is not None
        decoder = Decoder(schema, options.columns, queue, 0)
        found = list(read(options, LeasedBlocks(client, wanted.fence), decoder, wanted))
    return spark.createDataFrame(pa.Table.from_batches(found, schema), columns)


@contextmanager
def leased(
    reach: BrokerEndpoint, queue: str, most: int, tell: Callable[[str], None]
) -> Iterator[tuple[Options, Client, Range]]:
    """Reserve the messages of a queue, at most `most`, until the end of the block. Raises PipelineError."""
    options = reach.checked([queue], {"readerName": READER})
    client, asker = Client(options), BrokerClient(options)
    try:
        lease, fence = client.open_lease(queue)
        try:
            lease = client.reserve(queue, fence, lease.first, min(most, MESSAGES_MAX), OCTETS_MAX)
            tell(
                f"queue '{queue}' is no stream: {lease.messages:,} of its messages are reserved, read,"
                f" and put back marked as redelivered; {lease.ready:,} more wait there"
            )
            yield options, client, Range(queue, 0, queue, lease.incarnation, lease.first, lease.next, fence)
        finally:
            asker.ask(
                "DELETE", "/".join((LEASES + quote(reach.vhost, safe=""), quote(queue, safe=""), READER))
            )
    finally:
        client.close()
        asker.close()
