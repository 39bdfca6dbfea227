"""Read messages of work queues as rows of a batch, and let them go when the program says so.

    reserved ──> rows, the same however often they are read ──commit──> gone from the queue
                                                            └─release─> back in their places

What is reserved stays reserved if the program ends: the next batch under the same `readerName` begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from leveret.pipeline.client import Client
from leveret.pipeline.errors import BadOption
from leveret.pipeline.leases import MESSAGES_MAX, OCTETS_MAX, Leases
from leveret.pipeline.offsets import Mark
from leveret.pipeline.options import Use, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class QueueBatch:
    """Messages of one or more queues that are reserved for this program. Not to be shared by threads."""

    def __init__(
        self, options: Mapping[str, str], messages: int = MESSAGES_MAX, octets: int = OCTETS_MAX
    ) -> None:
        """Reserve up to so many messages, and bytes of bodies, of each queue.

        `options` are those of `format("amqp")`: `subscribe` names the queues, `readerName` this reader. Raises
        BadOption, Missing, Fenced, and other PipelineErrors.
        """
        checked = read_options(options, Use.BATCH)
        if checked.subscribe is None or checked.reader_name is None:
            raise BadOption("a batch of queues needs the options subscribe and readerName")
        self._options = dict(options)
        self._client = Client(checked)
        self._leases = Leases(self._client)
        self._ends: dict[str, Mark] = {}
        self.messages = 0  # that are reserved
        for queue in checked.subscribe:
            found = self._leases.look(queue)
            until = self._leases.reserve(queue, found.first, messages, octets)
            self._ends[queue] = Mark(until, found.incarnation)
            self.messages += until - found.first

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the messages, with the columns of the source; `stream` has the queue's name."""
        return spark.read.format("amqp").options(**self._options).load()

    def commit(self) -> None:
        """Settle the messages: they are where they should be. Raises Fenced if another program reads them by now."""
        for queue, end in self._ends.items():
            self._leases.settle(queue, end)
        self._client.close()

    def release(self) -> None:
        """Put the messages back to their places in the queues, marked as redelivered. Raises Fenced."""
        for queue in self._ends:
            self._client.release(queue, self._leases.fence(queue))
        self._client.close()
