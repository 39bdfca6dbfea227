"""The pipelines of the configuration file, by virtual host and name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from leveret.features.pipelines.supervised_pipeline import RUNNING, SupervisedPipeline
from leveret.guests import Guest
from leveret.observability.metric import COUNTER, GAUGE, Metric

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.config.sections import PipelineEntry


class SupervisedPipelines(Guest):
    """The pipelines that a node runs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._found: dict[tuple[str, str], SupervisedPipeline] = {}

    def set(self, entries: Iterable[PipelineEntry]) -> None:
        """Run these pipelines: others end, those that are new or have changed begin, and the rest goes on."""
        wanted = {(entry.virtual_host, entry.title): entry for entry in entries}
        ending: dict[str, SupervisedPipeline] = {}  # by target
        for key, running in list(self._found.items()):
            if wanted.get(key) != running.entry:
                running.stop()
                ending[running.entry.target] = running
                del self._found[key]
        for key, entry in wanted.items():
            if key not in self._found:
                self._found[key] = made = SupervisedPipeline(self._broker, entry)
                before = ending.get(entry.target)
                if before is None:
                    made.begin()
                else:
                    made.begin_after(before)

    def of(self, virtual_host: str) -> Iterator[SupervisedPipeline]:
        """Yield the pipelines of a virtual host, by name."""
        return (each for (host, _), each in sorted(self._found.items()) if host == virtual_host)

    def metrics(self) -> Iterator[Metric]:
        """Yield whether each pipeline runs, and how often it was started."""
        found = [({"vhost": host, "pipeline": name}, each) for (host, name), each in self._found.items()]
        if not found:
            return
        text, states = (
            "1 while the process of a pipeline runs.",
            [(labels, int(each.state == RUNNING)) for labels, each in found],
        )
        yield Metric("leveret_pipeline_running", GAUGE, text, states)
        text, starts = (
            "How often the process of a pipeline was started.",
            [(labels, each.starts) for labels, each in found],
        )
        yield Metric("leveret_pipeline_starts_total", COUNTER, text, starts)

    def stop(self) -> None:
        """Have all processes end, when the node ends."""
        for each in self._found.values():
            each.stop()
