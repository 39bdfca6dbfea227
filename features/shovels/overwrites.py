"""The properties and annotations that a shovel gives to each message at an end of AMQP 1.0: `dest-properties`,
`dest-application-properties` and `dest-message-annotations` of RabbitMQ.

Source: RabbitMQ's documentation of dynamic shovels, and part 3 of AMQP 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from leveret.errors import PreconditionFailed
from leveret.features.transfers.definition import Overwrites
from leveret.features.transfers.parameter_reader import ParameterReader, require_known
from leveret.values import Table, Value

PROPERTIES: Final = "dest-properties"
APPLICATION: Final = "dest-application-properties"
ANNOTATIONS: Final = "dest-message-annotations"
KEYS: Final = (PROPERTIES, APPLICATION, ANNOTATIONS)

TEXTS: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "group_id",
    "reply_to_group_id",
)
ASCII: Final = ("content_type", "content_encoding")  # symbols
TIMES: Final = ("absolute_expiry_time", "creation_time")  # ms since 1970
GROUP_SEQUENCE: Final = "group_sequence"
NAMES: Final = (*TEXTS, *ASCII, *TIMES, GROUP_SEQUENCE)
LONG_MAX: Final = (1 << 63) - 1
TEXT_MAX: Final = 4096  # bytes of a name or a text
COUNT_MAX: Final = 100  # names in each of them


def overwrites_of(parameter: ParameterReader) -> Overwrites | None:
    """Return what is overwritten, or None if nothing is. Raises PreconditionFailed for what is wrong first."""
    properties, application, annotations = (parameter.table(key) for key in KEYS)
    if not (properties or application or annotations):
        return None
    for name in annotations:
        if not (name.startswith("x-") and name.isascii()):
            raise PreconditionFailed(f"annotation '{name[:100]}' of '{ANNOTATIONS}' does not begin with 'x-'")
    return Overwrites(
        dict(_property(name, given) for name, given in properties.items()),
        _simple(APPLICATION, application),
        _simple(ANNOTATIONS, annotations),
    )


def _property(name: str, given: Value) -> tuple[str, str | int]:
    key = name.replace("-", "_")
    require_known(key, NAMES)
    if key in TIMES or key == GROUP_SEQUENCE:
        most = (1 << 32) - 1 if key == GROUP_SEQUENCE else LONG_MAX
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
            raise PreconditionFailed(
                f"property '{name}' of '{PROPERTIES}' should be a number from 0 to {most}"
            )
        return key, given
    if not isinstance(given, str) or len(given.encode()) > TEXT_MAX or (key in ASCII and not given.isascii()):
        raise PreconditionFailed(f"property '{name}' of '{PROPERTIES}' should be a text")
    return key, given


def _simple(what: str, given: Table) -> Mapping[str, str | int | float | bool]:
    """Return names with values that application-properties may have: texts, numbers, true and false."""
    found: dict[str, str | int | float | bool] = {}
    if len(given) > COUNT_MAX:
        raise PreconditionFailed(f"'{what}' has more than {COUNT_MAX} names")
    for name, value in given.items():
        if not isinstance(value, str | int | float) or not _fits(value) or not _fits(name):
            raise PreconditionFailed(f"'{name[:100]}' of '{what}' should be a text, a number, true or false")
        found[name] = value
    return found


def _fits(value: str | int | float) -> bool:
    if isinstance(value, str):
        return len(value.encode(errors="surrogatepass")) <= TEXT_MAX
    return math.isfinite(value) and (isinstance(value, float) or -LONG_MAX <= value <= LONG_MAX)
