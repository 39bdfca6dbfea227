"""A volatile queue stands for a client that waits for direct replies; it keeps nothing.

    requester ── attach, consume ──> a hidden queue ``amq.rabbitmq.reply-to.<token>``, with this consumer alone
    responder ── publish to it by name ──> delivered in the same batch, or dropped

As in RabbitMQ's documentation of direct reply-to, a reply that its consumer cannot take at once is dropped: for lack of
credit, of a window, or of room in its outbox.
"""

from __future__ import annotations

from base64 import b64encode
from secrets import token_bytes
from typing import TYPE_CHECKING, Final

from leveret.limits import QueueLimits
from leveret.queues.contract import QueueTerms
from leveret.queues.work_queue import WorkQueue
from leveret.virtual_host import generated_name

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.message import Message

REPLY_TO: Final = "amq.rabbitmq.reply-to"  # the names of such queues begin with it and a dot


class VolatileQueue(WorkQueue):
    """A work queue without waiting messages."""

    __slots__ = ()

    def push(self, message: Message) -> bool:
        if self.rings:
            return super().push(message)
        self.count_passed_over()  # its consumer has no credit
        return True

    def takes_of(self, messages: list[Message]) -> int:
        return 0  # one by one

    def dispatch(self) -> None:
        super().dispatch()
        if self.ready:
            self.purge()


def reply_name() -> str:
    """Return a name for direct replies, with the two parts of RabbitMQ's, of which some clients look for the second."""
    return f"{generated_name(f'{REPLY_TO}.')}.{b64encode(token_bytes(16)).decode()}"


def own_terms(client: Client) -> QueueTerms:
    """Return the terms of a hidden queue that ends with its client."""
    return QueueTerms(exclusive=True, auto_delete=True, owner=client)


def volatile_queue(client: Client) -> VolatileQueue:
    """Return a new volatile queue of this client, reachable by its name and not listed."""
    name = reply_name()
    queue = VolatileQueue(client.host, name, QueueLimits(), own_terms(client))
    client.host.add_hidden_queue(queue)
    return queue
