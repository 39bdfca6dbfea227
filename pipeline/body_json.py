"""Convert bodies of AMQP 1.0 that are a value or sequences to JSON, so that SQL can read them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from leveret.pipeline.texts import readable, said
from leveret.protocols.amqp10.broker.core_values import neutral, printed
from leveret.protocols.amqp10.codec.sections import FOOTER, VALUE, bounds, code_of
from leveret.protocols.amqp10.codec.types import DecodeError, Value, value_at


def body_text(body: bytes) -> str | None:
    """Return a body as JSON: its value, or a list of what all its sequences hold; None if it is malformed."""
    found: list[object] = []
    at, end = 0, bounds(body)[FOOTER]
    try:
        while at < end:
            descriptor, begin = value_at(body, at + 1, end)
            value, at = value_at(body, begin, end)
            if code_of(descriptor) == VALUE:
                return json.dumps(_plain(value), ensure_ascii=False)
            assert isinstance(value, list)
            found += map(_plain, value)
    except DecodeError:
        return None
    return json.dumps(found, ensure_ascii=False)


def _plain(value: Value) -> object:
    if isinstance(value, Mapping):
        return {_key(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _key(value)


def _key(value: Value) -> str | None:
    """Return a value as text."""
    try:
        return said(neutral(value))
    except ValueError:
        return readable(printed(value))
