"""The features that every broker has: the one list of guests that are there before anything asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.features.deduplication.deduplications import Deduplications
from leveret.guests import Guest

if TYPE_CHECKING:
    from leveret.broker import Broker

STANDARD: Final[tuple[type[Guest], ...]] = (Deduplications,)


def equip(broker: Broker) -> Broker:
    """Let these guests into a new broker, and return it. Called before it has virtual hosts."""
    for kind in STANDARD:
        broker.guest(kind)
    return broker
