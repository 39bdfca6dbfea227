"""Translation of the core's failures to the reply codes of 0-9-1."""

from __future__ import annotations

from typing import Final

from leveret.config.compat import Retired, UnknownExchangeType
from leveret.errors import (
    AccessRefused,
    Failure,
    Locked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import AmqpError
from leveret.security.sasl import MalformedResponse, UnknownMechanism

CODES: Final[dict[type[Failure], int]] = {
    NotFound: m.NOT_FOUND,
    AccessRefused: m.ACCESS_REFUSED,
    Locked: m.RESOURCE_LOCKED,
    PreconditionFailed: m.PRECONDITION_FAILED,
    NotAllowed: m.NOT_ALLOWED,
    Unsupported: m.NOT_IMPLEMENTED,
    UnknownExchangeType: m.COMMAND_INVALID,
    UnknownMechanism: m.COMMAND_INVALID,
    MalformedResponse: m.SYNTAX_ERROR,
    Retired: m.INTERNAL_ERROR,
}


def reply(failure: Failure, class_id: int = 0, method_id: int = 0) -> AmqpError:
    """Return the AmqpError of 0-9-1 for a failure of the core."""
    code = next(CODES[kind] for kind in type(failure).__mro__ if kind in CODES)
    return AmqpError(code, str(failure), class_id, method_id)
