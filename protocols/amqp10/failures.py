"""What the core refuses, in AMQP 1.0's words: a `Failure` becomes the condition for it, and what that ends."""

from __future__ import annotations

from typing import Final

from broker_core.errors import (
    AccessRefused,
    Failure,
    LimitReached,
    Locked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from protocols.amqp10.contract import AmqpError, Condition, Ends

CONDITIONS: Final[dict[type[Failure], tuple[Condition, Ends]]] = {
    NotFound: ("amqp:not-found", Ends.LINK),
    AccessRefused: ("amqp:unauthorized-access", Ends.SESSION),  # S182
    Locked: ("amqp:resource-locked", Ends.LINK),
    PreconditionFailed: ("amqp:precondition-failed", Ends.LINK),
    LimitReached: ("amqp:resource-limit-exceeded", Ends.LINK),
    NotAllowed: ("amqp:not-allowed", Ends.LINK),
    Unsupported: ("amqp:not-implemented", Ends.LINK),
    Failure: ("amqp:invalid-field", Ends.LINK),
}


def refusal(failure: Failure, ends: Ends | None = None) -> AmqpError:
    """The error for a failure of the core; `ends` if it ends something else than what the table says."""
    condition, usually = next(CONDITIONS[kind] for kind in type(failure).__mro__ if kind in CONDITIONS)
    return AmqpError(condition, str(failure), usually if ends is None else ends)
