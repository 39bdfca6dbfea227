"""Declarations of a queue that is there already: they have to ask for what it is (S063-S065)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.arguments.queue_declaration import inequivalent_argument
from leveret.exchanges.exchange_type import inequivalent
from leveret.exchanges.redeclaration import truth

if TYPE_CHECKING:
    from leveret.queues.queue import Queue
    from leveret.values import Table


def require_equivalent(
    current: Queue, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table
) -> None:
    """Raise PreconditionFailed unless a declaration fits the queue that is there."""
    for argument, new, old in (
        ("durable", durable, current.durable),
        ("exclusive", exclusive, current.exclusive),
        ("auto_delete", auto_delete, current.auto_delete),
    ):
        if new != old:
            texts = f"'{truth(new)}'", f"'{truth(old)}'"
            raise inequivalent(argument, "queue", current.name, current.virtual_host.name, *texts)
    if (difference := inequivalent_argument(current.arguments, arguments)) is not None:
        argument, new_text, old_text = difference
        raise inequivalent(argument, "queue", current.name, current.virtual_host.name, new_text, old_text)
