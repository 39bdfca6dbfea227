"""The interceptors that every node has, under RabbitMQ's names for them.

Source: RabbitMQ's documentation, "Intercepting Messages".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from leveret.interceptors.contract import Interceptor
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message

OVERWRITE: Final = "overwrite"
ROUTED_BY: Final = "x-routed-by"


def overwrites(name: str, options: Table) -> bool:
    """Return the option `overwrite`, the only one. Raises ValueError for others, and for what is no boolean."""
    for option in options:
        if option != OVERWRITE:
            raise ValueError(f"'{option}' is no option of interceptor '{name}'; `{OVERWRITE}` is")
    chosen = options.get(OVERWRITE, False)
    if not isinstance(chosen, bool):
        raise ValueError(f"`{OVERWRITE}` is true or false")
    return chosen


class SetHeaderTimestamp(Interceptor):
    """Notes when a message arrived, in the property or annotation that its protocol has for that.

    0-9-1 and 0-10: the property timestamp, in seconds, and the header `timestamp_in_ms`. 1.0: the message annotation
    `x-opt-rabbitmq-received-time`, in milliseconds.
    """

    name = "set_header_timestamp"

    def __init__(self, options: Table, node: str) -> None:
        self._overwrites = overwrites(self.name, options)

    def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:
        encoding = message.encoding
        properties = encoding.received_at(message.properties, int(now * 1000), self._overwrites)
        return message if properties is message.properties else message.headed(properties)


class SetHeaderRoutingNode(Interceptor):
    """Notes the name of the node that a message arrived at, in the header or annotation `x-routed-by`."""

    name = "set_header_routing_node"

    def __init__(self, options: Table, node: str) -> None:
        self._overwrites = overwrites(self.name, options)
        self._node = node

    def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:
        if not self._overwrites and message.header(ROUTED_BY) is not None:
            return message
        return message.saying({ROUTED_BY: self._node})


STANDARD: Final[Mapping[str, type[Interceptor]]] = {
    each.name: each for each in (SetHeaderTimestamp, SetHeaderRoutingNode)
}
