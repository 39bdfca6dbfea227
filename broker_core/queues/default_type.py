"""The default queue type: what a virtual host, or the node, gives to queues whose declaration names no type.

As RabbitMQ's documentation of virtual hosts has it, the type becomes the argument `x-queue-type` of the new queue,
which is therefore there when the queue is shown, exported, or declared again. A queue that a type does not suit,
because it would not outlive its connection or a restart, is classic, and says so.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import PreconditionFailed
from leveret.limits import QueueType
from leveret.values import Table

ARGUMENT: Final = "x-queue-type"
NONE: Final = (None, "undefined")  # what tools of RabbitMQ write where no type is set


def default_type(value: object) -> QueueType | None:
    """Return the type that a setting names, None if it unsets the type. Raises PreconditionFailed for anything else."""
    if value in NONE:
        return None
    if not isinstance(value, str):
        raise PreconditionFailed(f"{value} is not a valid default_queue_type value")
    if value == "":
        raise PreconditionFailed("default_queue_type must not be an empty string")
    found = next((each for each in QueueType if value in (each.value, each.module)), None)
    if found is None:
        raise PreconditionFailed(f"{value} is not a valid queue type")
    return found


def suits(type_: QueueType, durable: bool, exclusive: bool, auto_delete: bool) -> bool:
    """Return whether a queue with these properties can be of that type."""
    return type_ is QueueType.CLASSIC or (durable and not exclusive and not auto_delete)


def typed(
    arguments: Table, default: QueueType | None, durable: bool, exclusive: bool, auto_delete: bool
) -> Table:
    """Return the arguments of a declaration with the default type, if it names none and there is a default."""
    if default is None or arguments.get(ARGUMENT) is not None:
        return arguments
    fitting = default if suits(default, durable, exclusive, auto_delete) else QueueType.CLASSIC
    return {**arguments, ARGUMENT: fitting.value}
