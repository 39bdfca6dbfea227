"""The contract of interceptors: each message that a client publishes passes them, in order, before it is routed.

    publish ─> interceptor ─> interceptor ─> exchange ─> queues
                    └─ raises PreconditionFailed: the message is refused, and its publisher is told

A message passes once: neither dead letters nor messages that were held for later come here again. Interceptors run
while nothing else does, as exchange types do, so that they must not wait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from leveret.values import Table

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message


class Interceptor(ABC):
    """An interceptor of published messages. `name` is how the settings ask for it; those of plug-ins begin with `x-`.

    A node makes one instance for each entry in `[[interceptors]]`, and new ones when the settings are read again.
    """

    name: ClassVar[str]

    def __init__(self, options: Table, node: str) -> None:
        """Take what the entry in the settings says besides the name; `node` is the node's name.

        Raises ValueError for options that it does not take; the text is shown to the operator.
        """
        if options:
            raise ValueError(f"'{next(iter(options))}' is no option of interceptor '{self.name}'")

    @abstractmethod
    def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:
        """Return the message to be routed: the same one, or another that was made of it (`Message.saying`).

        `now` is the time in seconds since 1970-01-01 UTC. Raises PreconditionFailed to refuse the message; the text is
        shown to the publisher. Whatever else it raises, or returns, refuses the message too, and is logged.
        """
