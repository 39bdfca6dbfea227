"""The core's refusals as reason codes of MQTT 5: one table."""

from __future__ import annotations

from typing import Final

from leveret.errors import (
    AccessRefused,
    Failure,
    LimitReached,
    NotAllowed,
    NotFound,
    TooMany,
    Unsupported,
)
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.security.sasl import AuthenticationFailed, MalformedResponse, UnknownMechanism

CODES: Final[tuple[tuple[type[Failure], int], ...]] = (
    (AuthenticationFailed, r.BAD_USER_NAME_OR_PASSWORD),
    (MalformedResponse, r.PROTOCOL_ERROR),
    (UnknownMechanism, r.BAD_AUTHENTICATION_METHOD),
    (AccessRefused, r.NOT_AUTHORIZED),
    (LimitReached, r.QUOTA_EXCEEDED),
    (TooMany, r.QUOTA_EXCEEDED),
    (NotAllowed, r.NOT_AUTHORIZED),
    (NotFound, r.IMPLEMENTATION_SPECIFIC_ERROR),
    (Unsupported, r.IMPLEMENTATION_SPECIFIC_ERROR),
)


def code_of(failure: Failure) -> int:
    """Return the reason code of a refusal."""
    return next((code for kind, code in CODES if isinstance(failure, kind)), r.UNSPECIFIED_ERROR)


def error_of(failure: Failure) -> MqttError:
    """Return a refusal as the error that ends a connection."""
    return MqttError(code_of(failure), str(failure))
