"""No-local: a consumer does not get what its own connection publishes.

A message knows the connection that it came by (`Message.peer`) as long as it is in memory. Source: AMQP 0-9-1,
`basic.consume`, no-local; the filter that is registered as apache.org:no-local-filter:list.
"""

from __future__ import annotations

from leveret.selectors.conditions import TRUTH, ConditionNode, Known, Reading
from leveret.selectors.parser import Selector


class NoLocal(ConditionNode):
    """The condition that a message came by another connection."""

    __slots__ = ("peer",)
    kind = TRUTH

    def __init__(self, peer: object) -> None:
        self.peer = peer

    def value(self, reading: Reading) -> Known:
        return reading.message.peer is not self.peer


def from_others(peer: object) -> Selector:
    """Return the condition that a message came by another connection than this one (`Client.peer`)."""
    return Selector("no-local", NoLocal(peer))
