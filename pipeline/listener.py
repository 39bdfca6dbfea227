"""A listener for Spark that measures how far queries are behind, and tells the broker.

spark.streams.addListener(LagListener({"endpoints": "http://localhost:15672"}))
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from leveret.pipeline.progress import ProgressReporter, QueryProgress, progress_in

log: Final = logging.getLogger("leveret.pipeline")


class LagListener(StreamingQueryListener):
    """Measures every query of a session that reads streams or queues of a broker, after each micro-batch."""

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        tell: Callable[[QueryProgress], None] | None = None,
    ) -> None:
        """Make a listener. With `options` of the connection, as for `format("amqp")`, the broker is told, too; `tell`
        is called with each micro-batch, in a thread of Spark's. Raises BadOption.
        """
        self.progress: dict[str, QueryProgress] = {}  # the last of each query that runs, by its run's id
        self._reporter = None if options is None else ProgressReporter(options)
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        content = progress_in(json.loads(event.progress.json))
        if content is None:
            return
        self.progress[str(event.progress.runId)] = content
        log.info(
            "query %s: batch %d, %d rows; behind: %d in all, %.1f on average, %d at most",
            *(content.name, content.batch, content.rows, content.behind, content.average, content.maximum),
        )
        if self._tell is not None:
            self._tell(content)
        if self._reporter is not None:
            self._reporter.tell(content)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.progress.pop(str(event.runId), None)
