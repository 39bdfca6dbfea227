"""Translation of the core's failures to AMQP 1.0: a `Failure` becomes a condition, and the scope that it ends."""

from __future__ import annotations

from typing import Final

from leveret.errors import (
    AccessRefused,
    Failure,
    LimitReached,
    Locked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Condition, Ends
from leveret.security.sasl import AuthenticationFailed, MalformedResponse, UnknownMechanism

CONDITIONS: Final[dict[type[Failure], tuple[Condition, Ends]]] = {
    NotFound: (p.NOT_FOUND, Ends.LINK),
    AccessRefused: (p.UNAUTHORIZED_ACCESS, Ends.LINK),
    Locked: (p.RESOURCE_LOCKED, Ends.LINK),
    PreconditionFailed: (p.PRECONDITION_FAILED, Ends.LINK),
    LimitReached: (p.RESOURCE_LIMIT_EXCEEDED, Ends.LINK),
    NotAllowed: (p.NOT_ALLOWED, Ends.LINK),
    Unsupported: (p.NOT_IMPLEMENTED, Ends.LINK),
    UnknownMechanism: (p.NOT_FOUND, Ends.CONNECTION),  # X046
    AuthenticationFailed: (p.UNAUTHORIZED_ACCESS, Ends.CONNECTION),
    MalformedResponse: (p.DECODE_ERROR, Ends.CONNECTION),
}


def refusal(failure: Failure, access_ends: Ends = Ends.LINK) -> AmqpError:
    """Return the AmqpError for a failure of the core. `access_ends`: what a missing permission ends (S182)."""
    condition, ends = next(CONDITIONS[kind] for kind in type(failure).__mro__ if kind in CONDITIONS)
    return AmqpError(condition, str(failure), access_ends if isinstance(failure, AccessRefused) else ends)
