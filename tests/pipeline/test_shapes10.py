"""Messages of AMQP 1.0 are decoded together as they are decoded one by one, whatever their bytes are."""

from __future__ import annotations

from uuid import UUID

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from leveret.message import Message
from leveret.pipeline import decode
from leveret.pipeline.decode import Rows
from leveret.pipeline.jobs.archive_columns import COLUMNS
from leveret.pipeline.shapes import ROWS_MIN
from leveret.protocols.amqp10.broker.encoding import ENCODING
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import types
from leveret.protocols.amqp10.codec.sections import data_begin
from leveret.protocols.amqp10.codec.types import Symbol, encode
from tests.pipeline.bulk import FACTS, message
from tests.pipeline.test_headers import died
from tests.pipeline.test_shapes import KAFKA, SHIFTS, damaged, decoded, mixed, one_by_one, require_alike

pa = pytest.importorskip("pyarrow")

SCHEMA = pa.schema([(name, COLUMNS[name]) for name in ("offset", "body", "properties", "headers")])

HEADERS = pa.schema([(name, COLUMNS[name]) for name in ("offset", "headers")])

TEXT = st.text(max_size=6)
NAMES = st.sampled_from(["n", "country", "x-n", "CC", "\xfc", ""])
SCALARS = (
    st.none()
    | st.booleans()
    | TEXT
    | st.binary(max_size=6)
    | st.uuids()
    | st.floats()
    | st.sampled_from([types.Decimal32(bytes(4)), types.Char("x"), types.Float32(1.5), Symbol("s")])
    | st.one_of(
        st.integers(0, (1 << bits) - 1).map(unsigned)
        | st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1).map(signed)
        for bits, unsigned, signed in (
            (8, types.UByte, types.Byte),
            (16, types.UShort, types.Short),
            (32, types.UInt, types.Int),
            (64, types.ULong, types.Long),
        )
    )
    | st.integers(-(1 << 63), (1 << 63) - 1).map(types.Timestamp)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(TEXT, SCALARS, max_size=2)
IDS = st.integers(0, (1 << 64) - 1) | TEXT | st.binary(max_size=6) | st.uuids()
TIMES = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2000, 1 << 43)
ASCII = st.text(st.characters(max_codepoint=127), max_size=6)
HEADER = st.fixed_dictionaries(
    {},
    optional={
        "durable": st.booleans(),
        "priority": st.integers(0, 255),
        "ttl": st.integers(0, (1 << 32) - 1),
    },
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("message_id", "correlation_id"), IDS),
        **dict.fromkeys(("to", "subject", "group_id", "reply_to_group_id"), TEXT),
        **dict.fromkeys(("content_type", "content_encoding"), ASCII),
        **dict.fromkeys(("absolute_expiry_time", "creation_time"), TIMES),
        "user_id": st.binary(max_size=6),
        "reply_to": TEXT | TEXT.map("/queues/{}".format),
        "group_sequence": st.integers(0, (1 << 32) - 1),
    },
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["x-n", "x-basic-type", "x-cc"]).map(Symbol), VALUES, max_size=2
)
APPLICATION = st.dictionaries(NAMES, VALUES, max_size=4)
DATA = st.binary(max_size=9).map(lambda octets: data_begin(octets) + octets)
LONG_DATA = st.binary(max_size=9).map(lambda octets: b"\0Su\xb0" + len(octets).to_bytes(4) + octets)
BODIES = (
    DATA
    | LONG_DATA
    | st.lists(DATA | LONG_DATA, max_size=2).map(b"".join)
    | DATA.map(lambda data: data + b"\0Sx\xc1\x01\0")  # a footer
    | TEXT.map(lambda text: b"\0Sw" + encode(text))
)


def sections(
    header: dict[str, object], annotations: object, properties: dict[str, object], application: object
) -> bytes:
    """Return what lies in front of a body."""
    parts = [p.Header(**header).encode() if header else b""]  # type: ignore[arg-type]
    parts.append(b"\0Sr" + encode(annotations) if annotations else b"")  # type: ignore[arg-type]
    parts.append(p.Properties(**properties).encode() if properties else b"")  # type: ignore[arg-type]
    parts.append(b"\0St" + encode(application) if application else b"")  # type: ignore[arg-type]
    return b"".join(parts)


RAW = st.builds(sections, HEADER, ANNOTATIONS, PROPERTIES, APPLICATION)


def message10(raw: bytes, body: bytes = b"\0Su\xa0\x01x") -> Message:
    return Message(ENCODING, "", "orders", raw, body, FACTS)


@given(
    st.lists(st.builds(message10, RAW, BODIES), min_size=1, max_size=4), SHIFTS, st.sampled_from([None, 50])
)
def test_rows_are_those_that_are_decoded_one_by_one(
    different: list[Message], shifts: list[int], size: int | None
):
    sent = mixed(different, shifts)
    require_alike(decoded(*sent, schema=SCHEMA, size=size), one_by_one(sent, SCHEMA))
    headers = one_by_one(sent, KAFKA)
    if isinstance(headers, list):  # otherwise the column may do without what cannot be decoded
        assert decoded(*sent, schema=KAFKA, size=size) == headers


@given(RAW, st.data())
def test_bytes_that_are_cut_off_or_changed_are_read_or_refused_alike(raw: bytes, data: st.DataObject):
    different = [raw, *(damaged(raw, data) for _ in range(data.draw(st.integers(1, 3))))]
    sent = mixed(list(map(message10, different)), [0])
    require_alike(decoded(*sent, schema=SCHEMA), one_by_one(sent, SCHEMA))


def varied(at: int) -> Message:
    """Return a message of one of two publishers, or, now and then, of neither."""
    if at % 40 == 39:
        return message10(sections({"priority": at % 9}, {}, {}, {f"only-{at}": [at]}), b"\0Sw\x40")
    if at % 3:
        fields = {"message_id": at + (1 << 63), "creation_time": 1000 * at, "content_type": "text/plain"}
        application = {"n": types.Int(at + 1000), "to": "FI" * (at % 4), "due": types.Timestamp(at)}
        raw = sections({"durable": True}, {Symbol("x-of"): "shop"}, fields, application)
        return message10(raw, data_begin(b"x" * 250) + b"x" * 250)
    fields = {"message_id": UUID(int=at), "correlation_id": str(at), "reply_to": f"/queues/{at % 5}"}
    return message10(sections({}, {}, fields, {"\xfc": None, "n": types.Long(at - (1 << 40))}))


def test_what_publishers_usually_send_is_not_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch):
    sent = [varied(at) for at in range(400)]
    wanted = one_by_one(sent, SCHEMA)
    decode_one, calls = Rows._decoded, []
    monkeypatch.setattr(Rows, "_decoded", lambda self, key: calls.append(key) or decode_one(self, key))
    octets_of, looked = decode.octets_of, []
    monkeypatch.setattr(decode, "octets_of", lambda body: looked.append(body) or octets_of(body))
    assert decoded(*sent, schema=SCHEMA, size=100) == wanted
    assert {raw for _, raw, _ in calls} == {each.properties for each in sent[39::40]}
    assert set(looked) == {b"\0Sw\x40"}


def test_the_same_properties_are_decoded_once_though_bodies_differ(monkeypatch: pytest.MonkeyPatch):
    raw = sections({}, {}, {"subject": "s"}, {"n": 1})
    sent = [message10(raw, data_begin(b"%d" % at) + b"%d" % at) for at in range(2 * ROWS_MIN)]
    wanted = one_by_one(sent, SCHEMA)
    monkeypatch.setattr(decode, "octets_of", pytest.fail)
    assert decoded(*sent, schema=SCHEMA) == wanted


def test_dead_letters_and_messages_of_other_protocols_may_lie_among_them():
    sent = [varied(at) for at in range(100)]
    assert decoded(*sent[:7], died(sent[7]), *sent[8:], schema=SCHEMA) == one_by_one(
        [*sent[:7], died(sent[7]), *sent[8:]], SCHEMA
    )
    both = [*sent, message(b"plain", message_id="1")]
    assert decoded(*both, schema=SCHEMA) == one_by_one(both, SCHEMA)


def test_bodies_are_looked_at_for_properties_and_not_for_headers(monkeypatch: pytest.MonkeyPatch):
    sent = [varied(at) for at in range(400) if at % 40 != 39]
    wanted = one_by_one(sent, HEADERS)
    monkeypatch.setattr(decode, "Bodies", pytest.fail)
    assert decoded(*sent, schema=HEADERS) == wanted
