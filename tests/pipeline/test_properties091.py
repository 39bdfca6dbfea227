"""Properties of AMQP 0-9-1 are decoded quickly as the encoding decodes them, whatever the bytes are."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from leveret.errors import PreconditionFailed
from leveret.pipeline import properties091
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.fields import ByteArray, Int8, LongLong, MalformedError, Timestamp
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.values import Properties

SHORT = st.text(max_size=8)
VALUES = st.recursive(
    st.text(max_size=8)
    | st.binary(max_size=8)
    | st.integers(-(1 << 31), (1 << 31) - 1)
    | st.sampled_from(
        [None, True, 1.5, Int8(-3), LongLong(1 << 40), Timestamp(7), ByteArray(b"x"), Decimal("1.25")]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SHORT, inner, max_size=3),
    max_leaves=4,
)
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            (
                "content_type",
                "content_encoding",
                "correlation_id",
                "reply_to",
                "message_id",
                "type",
                "user_id",
                "app_id",
            ),
            SHORT,
        ),
        "expiration": SHORT | st.integers(0, 10**9).map(str),
        "headers": st.dictionaries(SHORT, VALUES, max_size=4),
        "delivery_mode": st.integers(0, 3),
        "priority": st.integers(0, 255),
        "timestamp": st.integers(0, (1 << 64) - 1),
        "reserved": SHORT,
    },
)


def outcome(read: Callable[[bytes], Properties], raw: bytes) -> object:
    try:
        found = read(raw)
    except (MalformedError, PreconditionFailed) as error:
        return type(error), str(error)
    return repr(found)  # which tells types of numbers apart


def raw_of(given: dict[str, object]) -> bytes:
    return BasicProperties(**given).encode()  # type: ignore[arg-type]


@given(GIVEN)
def test_properties_are_those_that_the_encoding_reads(given: dict[str, object]):
    raw = raw_of(given)
    assert outcome(properties091.read, raw) == outcome(ENCODING.read, raw)


@given(GIVEN, st.data())
def test_bytes_that_are_cut_off_or_changed_are_read_or_refused_alike(
    given: dict[str, object], data: st.DataObject
):
    raw = bytearray(raw_of(given))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(raw[: data.draw(st.integers(0, len(raw)))]) + data.draw(st.binary(max_size=2))
    assert outcome(properties091.read, changed) == outcome(ENCODING.read, changed)


def test_usual_properties_are_not_left_to_the_encoding(monkeypatch: pytest.MonkeyPatch):
    raw = raw_of(
        {
            "message_id": "7",
            "timestamp": 3,
            "delivery_mode": 2,
            "headers": {"n": 1, "to": "FI", "at": LongLong(5)},
        }
    )
    monkeypatch.setattr(type(ENCODING), "read", pytest.fail)
    found = properties091.read(raw)
    assert (found.message_id, found.durable, found.headers) == ("7", True, {"n": 1, "to": "FI", "at": 5})
