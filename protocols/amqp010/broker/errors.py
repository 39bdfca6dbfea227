"""Translate the core's failures into AMQP 0-10: a `Failure` becomes the exception that ends the session."""

from __future__ import annotations

from typing import Final

from leveret.errors import (
    AccessRefused,
    Failure,
    IllegalState,
    LimitReached,
    Locked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    TooMany,
    Unsupported,
)
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.contract import SessionError

CODES: Final[dict[type[Failure], int]] = {
    NotFound: c.ERROR_CODE_NOT_FOUND,
    AccessRefused: c.ERROR_CODE_UNAUTHORIZED_ACCESS,
    Locked: c.ERROR_CODE_RESOURCE_LOCKED,
    PreconditionFailed: c.ERROR_CODE_PRECONDITION_FAILED,
    TooMany: c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED,
    LimitReached: c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED,
    NotAllowed: c.ERROR_CODE_NOT_ALLOWED,
    IllegalState: c.ERROR_CODE_ILLEGAL_STATE,
    Unsupported: c.ERROR_CODE_NOT_IMPLEMENTED,
}


def refusal(failure: Failure) -> SessionError:
    """Return the session error for a failure of the core."""
    code = next(CODES[kind] for kind in type(failure).__mro__ if kind in CODES)
    return SessionError(code, str(failure))
