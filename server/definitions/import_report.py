"""Tell what became of definitions: counts of what was put into a broker, and sentences about the rest.

imported   items that took effect, by section
ignored    what has no effect here
changed    what works, and otherwise than on a RabbitMQ
problems   items that were refused, and why; none of these took effect
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from typing import Final

import attrs

from leveret.arguments.parameters import PARAMETERS
from leveret.arguments.row import Effect
from leveret.broker import Broker
from leveret.config.types import Problem
from leveret.server.definitions.labels import section_of
from leveret.server.definitions.reader import Definitions, is_md5
from leveret.server.definitions.warnings import SECTIONS, Warnings
from leveret.server.definitions.warnings import steps as warning_steps
from leveret.values import Json

PRODUCT: Final = "Leveret"  # in files that a Leveret has exported
PROBLEMS_MAX: Final = 100  # that are listed


@attrs.define
class ImportReport:
    """The report of one file."""

    imported: dict[str, int] = attrs.field(factory=dict)
    ignored: Warnings = attrs.field(factory=Warnings)
    changed: Warnings = attrs.field(factory=Warnings)
    problems: list[Problem] = attrs.field(factory=list)

    def count(self, definitions: Definitions, refused: list[Problem]) -> None:
        """Count what was applied: everything that was read but what the broker `refused`."""
        self.problems += refused
        fewer = Counter(map(section_of, refused))
        for section in SECTIONS:
            done = sum(has_effect(section, item) for item in getattr(definitions, section))
            self.imported[section] = done - fewer[section]

    def look(self, definitions: Definitions, broker: Broker) -> Generator[None, None, None]:
        """Gather what is ignored and what is changed, item by item, after the definitions were applied."""
        yield from warning_steps(definitions, broker, self.ignored)
        for each in definitions.users:
            if is_md5(each):
                self.changed.add(f"user '{each.name}'", [without_password(each.name)])
            yield
        is_ours = definitions.others.get("product_name") == PRODUCT
        for queue in () if is_ours else definitions.queues:
            self.changed.add(f"queue '{queue.name}' in vhost '{queue.vhost}'", alone(queue.all_arguments))
            yield

    def warnings(self) -> list[str]:
        return [*self.ignored.sentences(), *self.changed.sentences()]

    def told(self) -> dict[str, Json]:
        """Return the report as JSON. Of the problems, the first hundred are listed."""
        return {
            "imported": {name: count for name, count in self.imported.items() if count},
            "ignored": [*self.ignored.sentences()],
            "changed": [*self.changed.sentences()],
            "problems": [text_of(each) for each in self.problems[:PROBLEMS_MAX]],
            "problem_count": len(self.problems),
        }


def text_of(problem: Problem) -> str:
    return str(problem) if problem.where else problem.found


def has_effect(section: str, item: object) -> bool:
    """Return whether an item has an effect here; parameters of components that are not here have none."""
    if section != "parameters":
        return True
    row = PARAMETERS.get(str(getattr(item, "component", "")))
    return row is not None and row.effect is Effect.IMPLEMENTED


def without_password(name: str) -> str:
    return (
        "the password is hashed with MD5, which can be reversed, and no login by password is possible until"
        f" `leveret user password {name}` sets a new one"
    )


def alone(arguments: object) -> list[str]:
    """Return what is different of a queue that RabbitMQ replicates."""
    kind = arguments.get("x-queue-type") if isinstance(arguments, Mapping) else None
    if kind not in ("quorum", "stream"):
        return []
    return [f"a {kind} queue has no replicas of its own: it is as available as this node, or its cluster"]
