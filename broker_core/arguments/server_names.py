"""The argument `x-name-prefix`: how the names begin that the broker gives to queues which are declared without one.

    queue.declare("", {"x-name-prefix": "billing"})  ->  billing-bWluZS4u...

As in RabbitMQ, it belongs to the declaration, and is not kept with the queue or compared when that is declared again; a
declaration with a name ignores it, and so does anything that is no text, or empty.
"""

from __future__ import annotations

from typing import Final

from leveret.arguments.checks import text
from leveret.arguments.row import Row
from leveret.errors import PreconditionFailed
from leveret.values import Table

SIZE_MAX: Final = 64  # bytes

NAME_PREFIX: Final = Row(
    name="x-name-prefix",
    about="The name that the broker gives to the queue begins with this and a hyphen.",
)


def prefix_in(arguments: Table, otherwise: str) -> str:
    """Return how a generated name begins. Raises PreconditionFailed if more is asked for than `SIZE_MAX` bytes."""
    word = text(arguments.get(NAME_PREFIX.name))
    if not word:
        return otherwise
    prefix = word.replace("\r", "").replace("\n", "")
    if len(word.encode("utf-8", "surrogateescape")) > SIZE_MAX:
        raise PreconditionFailed(f"Queue name prefix '{prefix}' exceeds the {SIZE_MAX}-byte limit")
    return f"{prefix}-"


def without_prefix(arguments: Table) -> Table:
    """Return the arguments that belong to the queue."""
    if NAME_PREFIX.name not in arguments:
        return arguments
    return {name: value for name, value in arguments.items() if name != NAME_PREFIX.name}
