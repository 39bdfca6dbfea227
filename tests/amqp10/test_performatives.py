"""The composite types of AMQP 1.0: octets to objects and back, whether they are what the XML says, and how strict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Disposition

from leveret.protocols.amqp10.codec import fields as f
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.spec import generate
from leveret.protocols.amqp10.codec.types import Described, Symbol, ULong, Value, encode, value_at

from . import oracle, samples

EVERY_TYPE = [of for key, of in f.KNOWN.items() if isinstance(key, int)]

# A composite and the octets that both stand for it and come of it.
SAMPLES: list[tuple[p.Record, bytes]] = [
    (p.Open(container_id="c"), b"\x00\x53\x10\xc0\x0d\x0a\xa1\x01c" + b"\x40" * 9),
    (
        p.Open(container_id="c", max_frame_size=512, channel_max=7, properties={"a": 1}),
        b"\x00\x53\x10\xc0\x1a\x0a\xa1\x01c\x40\x70\x00\x00\x02\x00\x60\x00\x07\x40\x40\x40\x40\x40"
        b"\xc1\x06\x02\xa3\x01a\x54\x01",
    ),
    (
        p.Begin(next_outgoing_id=0, incoming_window=400, outgoing_window=1),
        b"\x00\x53\x11\xc0\x0e\x08\x40\x43\x70\x00\x00\x01\x90\x52\x01\x40\x40\x40\x40",
    ),
    (
        p.Attach(name="l", handle=3, role=p.ROLE_RECEIVER, source=p.Source(address="a"), target=p.Target()),
        b"\x00\x53\x12\xc0\x1d\x0e\xa1\x01l\x52\x03\x41\x40\x40\x00\x53\x28\xc0\x04\x01\xa1\x01a\x00\x53\x29\x45"
        + b"\x40" * 7,
    ),
    (
        p.Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3, drain=True),
        b"\x00\x53\x13\xc0\x0d\x09\x40\x52\x01\x52\x02\x52\x03\x40\x40\x40\x40\x41",
    ),
    (
        p.Transfer(handle=0, delivery_id=1, delivery_tag=b"t", message_format=0, settled=False),
        b"\x00\x53\x14\xc0\x09\x05\x43\x52\x01\xa0\x01t\x43\x42",
    ),
    (
        p.Disposition(role=True, first=1, last=9, settled=True, state=p.Accepted()),
        b"\x00\x53\x15\xc0\x0b\x05\x41\x52\x01\x52\x09\x41\x00\x53\x24\x45",
    ),
    (
        p.Detach(handle=0, closed=True, error=p.Error(condition=p.NOT_FOUND)),
        b"\x00\x53\x16\xc0\x1b\x03\x43\x41\x00\x53\x1d\xc0\x13\x03\xa3\x0eamqp:not-found\x40\x40",
    ),
    (p.Close(), b"\x00\x53\x18\xc0\x02\x01\x40"),
    (
        p.SaslMechanisms(sasl_server_mechanisms=["PLAIN"]),
        b"\x00\x53\x40\xc0\x0b\x01\xe0\x08\x01\xa3\x05PLAIN",
    ),
    (p.SaslOutcome(code=p.SASL_CODE_OK), b"\x00\x53\x44\xc0\x03\x01\x50\x00"),
    (p.Header(durable=True, priority=4), b"\x00\x53\x70\xc0\x04\x02\x41\x50\x04"),
    (p.Properties(message_id=7, to="q"), b"\x00\x53\x73\xc0\x07\x03\x53\x07\x40\xa1\x01q"),
    (p.Modified(undeliverable_here=True), b"\x00\x53\x27\xc0\x03\x02\x40\x41"),
    (
        p.TransactionalState(txn_id=b"x", outcome=p.Released()),
        b"\x00\x53\x34\xc0\x08\x02\xa0\x01x\x00\x53\x26\x45",
    ),
]


# The same without the null fields at their ends, as other peers send them.
SHORT: list[tuple[p.Record, bytes]] = [
    (p.Open(container_id="c"), b"\x00\x53\x10\xc0\x04\x01\xa1\x01c"),
    (
        p.Begin(next_outgoing_id=0, incoming_window=400, outgoing_window=1),
        b"\x00\x53\x11\xc0\x0a\x04\x40\x43\x70\x00\x00\x01\x90\x52\x01",
    ),
    (
        p.Attach(name="l", handle=3, role=p.ROLE_RECEIVER, source=p.Source(address="a"), target=p.Target()),
        b"\x00\x53\x12\xc0\x16\x07\xa1\x01l\x52\x03\x41\x40\x40\x00\x53\x28\xc0\x04\x01\xa1\x01a\x00\x53\x29\x45",
    ),
    (
        p.Detach(handle=0, closed=True, error=p.Error(condition=p.NOT_FOUND)),
        b"\x00\x53\x16\xc0\x19\x03\x43\x41\x00\x53\x1d\xc0\x11\x01\xa3\x0eamqp:not-found",
    ),
    (p.Close(), b"\x00\x53\x18\x45"),
]

ATTACH = b"\xa1\x01l\x43\x41"  # name, handle, role


def list_of(code: int, count: int, fields: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + b"\xd0" + (len(fields) + 4).to_bytes(4) + count.to_bytes(4) + fields


INVALID: dict[str, bytes] = {
    "mandatory field missing": b"\x00\x53\x10\x45",
    "mandatory field null": list_of(0x10, 1, b"\x40"),
    "mandatory field after others missing": list_of(0x11, 3, b"\x40\x43\x43"),
    "mandatory multiple field missing": b"\x00\x53\x40\x45",
    "too many fields": list_of(0x18, 2, b"\x40\x40"),
    "string as symbol": list_of(0x10, 1, b"\xa3\x01c"),
    "int as uint": list_of(0x16, 1, b"\x54\x01"),
    "ubyte as uint": list_of(0x16, 1, b"\x50\x01"),
    "uint as ushort": list_of(0x11, 4, b"\x43\x43\x43\x43"),
    "number as boolean": list_of(0x16, 2, b"\x43\x52\x01"),
    "string as binary": list_of(0x43, 1, b"\xa1\x01r"),
    "described value as string": list_of(0x10, 1, b"\x00\x53\x07\xa1\x01c"),
    "list for a map": list_of(0x10, 10, b"\xa1\x01c" + b"\x40" * 8 + b"\x45"),
    "map with a key that is no symbol": list_of(
        0x10, 10, b"\xa1\x01c" + b"\x40" * 8 + b"\xc1\x03\x02\x43\x40"
    ),
    "settle mode that is none": list_of(0x12, 4, ATTACH + b"\x50\x03"),
    "SASL code that is none": list_of(0x44, 1, b"\x50\x05"),
    "expiry policy that is none": list_of(0x28, 3, b"\x40\x40\xa3\x05later"),
    "durability that is none": list_of(0x29, 2, b"\x40\x52\x03"),
    "list for a multiple field": list_of(0x40, 1, b"\xc0\x03\x01\x43"[:1] + b"\x04\x01\xa3\x01P"),
    "string for a multiple symbol": list_of(0x40, 1, b"\xa1\x01P"),
    "array of strings for symbols": list_of(0x40, 1, b"\xe0\x04\x01\xa1\x01P"),
    "array for a field that is not multiple": list_of(0x41, 1, b"\xe0\x04\x01\xa3\x01P"),
    "source that is not described": list_of(0x12, 6, ATTACH + b"\x40\x40\xa1\x01q"),
    "target for a source": list_of(0x12, 6, ATTACH + b"\x40\x40\x00\x53\x29\x45"),
    "source for a target": list_of(0x12, 7, ATTACH + b"\x40\x40\x40\x00\x53\x28\x45"),
    "source for a delivery state": list_of(0x15, 5, b"\x41\x43\x40\x40\x00\x53\x28\x45"),
    "delivery state for an error": list_of(0x18, 1, b"\x00\x53\x24\x45"),
    "delivery state that is no outcome": list_of(0x28, 9, b"\x40" * 8 + b"\x00\x53\x23\xc0\x03\x02\x43\x44"),
    "address that is no string": list_of(0x28, 1, b"\xa0\x01q"),
    "message id of another type": list_of(0x73, 1, b"\x52\x01"),
    "field of a field missing": list_of(0x18, 1, b"\x00\x53\x1d\x45"),
    "field of a field too many": list_of(0x15, 5, b"\x41\x43\x40\x40\x00\x53\x24\xc0\x02\x01\x40"),
}
UNDECODABLE: dict[str, bytes] = {
    "nothing": b"",
    "no descriptor": b"\x45\x40\x40",
    "unknown number": b"\x00\x53\x09\x45",
    "unknown large number": b"\x00\x80\x00\x00\x00\x01\x00\x00\x00\x10\x45",
    "unknown symbol": b"\x00\xa3\x09amqp:open\x45",
    "number of another type": b"\x00\x52\x18\x45",
    "string as descriptor": b"\x00\xa1\x0famqp:close:list\x45",
    "map for a list": b"\x00\x53\x18\xc1\x01\x00",
    "null for a list": b"\x00\x53\x18\x40",
    "list beyond the end": b"\x00\x53\x18\xc0\x02\x01",
    "field beyond the list": b"\x00\x53\x10\xc0\x03\x01\xa1\x01c",
    "octets after the last field": b"\x00\x53\x18\xc0\x03\x01\x40\x40",
    "field that is missing though counted": b"\x00\x53\x10\xc0\x04\x02\xa1\x01c",
    "field that is no value": list_of(0x10, 1, b"\xa1\x01\xff"),
    "unknown state that is no value": list_of(0x15, 5, b"\x41\x43\x40\x40\x00\x53\x99\x3f"),
}


def whole(octets: bytes) -> p.Record:
    record, after = p.decode(octets, 0, len(octets))
    assert after == len(octets)
    return record


# Hypothesis' idea of every composite type, from its table.

names = samples.names
PLAIN: dict[int, st.SearchStrategy[Value]] = {
    id(kind): strategy
    for kind, strategy in [
        (f.BOOLEAN, samples.scalars["boolean"]),
        (f.UBYTE, samples.scalars["ubyte"]),
        (f.USHORT, samples.scalars["ushort"]),
        (f.UINT, samples.scalars["uint"]),
        (f.ULONG, samples.scalars["ulong"]),
        (f.TIMESTAMP, samples.scalars["timestamp"]),
        (f.BINARY, samples.scalars["binary"]),
        (f.STRING, samples.scalars["string"]),
        (f.SYMBOL, samples.scalars["symbol"]),
        (f.MAP, samples.keyed(samples.scalars["binary"], samples.values)),
        (f.FIELD_MAP, samples.keyed(samples.scalars["symbol"], samples.values)),
        (f.MESSAGE_ID, st.one_of(*(samples.scalars[name] for name in ("ulong", "uuid", "binary", "string")))),
        (f.ANYTHING, samples.values),
    ]
}


def held(field: f.Field) -> st.SearchStrategy[Value]:
    """What a field may hold."""
    if field.multiple:
        return st.lists(names.map(Symbol), min_size=int(field.mandatory), max_size=3)
    if field.choices:
        return st.sampled_from([value_of(field, choice) for choice in field.choices])
    if not field.kind.provides:
        return PLAIN[id(field.kind)]
    unknown = st.builds(Described, st.just(Symbol("who:knows")), samples.scalar)
    within = [of for of in EVERY_TYPE if field.kind.provides in of.PROVIDES]
    return st.one_of(st.deferred(lambda of=of: records(of)) for of in within) | unknown


def value_of(field: f.Field, choice: bool | int | str) -> Value:
    of: type = field.kind.classes[0]
    value: Value = of(choice)
    return value


def records(of: type[p.Record]) -> st.SearchStrategy[p.Record]:
    absent = {
        field.name: held(field) if field.mandatory else st.just(field.absent()) | held(field)
        for field in of.FIELDS
    }
    return st.fixed_dictionaries(absent).map(lambda fields: of(**fields))


any_record = st.one_of(*(records(of) for of in EVERY_TYPE))


def test_the_committed_classes_are_what_the_specification_data_gives() -> None:
    assert generate.TARGET.read_text(encoding="utf-8") == generate.generate()
    assert generate.main(["--check"]) == 0


def test_every_type_is_known_under_its_number_and_its_name() -> None:
    assert len(EVERY_TYPE) == 33
    assert all(f.KNOWN[of.CODE] is f.KNOWN[of.NAME] is of for of in EVERY_TYPE)
    assert all(of.__name__ in p.__all__ for of in EVERY_TYPE)


@pytest.mark.parametrize(("record", "octets"), SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_composite_is_encoded_and_decoded_as_the_sample_says(record: p.Record, octets: bytes) -> None:
    assert record.encode() == octets
    assert whole(octets) == record
    assert p.decode(b"front" + octets + b"tail", 5, 5 + len(octets)) == (record, 5 + len(octets))


@pytest.mark.parametrize(("record", "octets"), SHORT, ids=lambda sample: type(sample).__name__)
def test_null_fields_at_the_end_may_be_missing(record: p.Record, octets: bytes) -> None:
    assert whole(octets) == record
    assert len(record.encode()) > len(octets)


@pytest.mark.parametrize(
    "record",
    [
        p.Open(container_id="c"),
        p.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1),
        p.Attach(name="l", handle=0, role=True),
        p.Detach(handle=0),
        p.End(),
        p.Close(),
        p.Error(condition=p.NOT_FOUND),
    ],
    ids=lambda record: type(record).__name__,
)
def test_what_azures_clients_read_by_place_has_all_its_fields(record: p.Record) -> None:
    octets = record.encode()
    assert octets[3] == 0xC0
    assert octets[5] == len(record.FIELDS)


@pytest.mark.parametrize(("record", "octets"), SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_symbolic_descriptor_is_as_good_as_a_number(record: p.Record, octets: bytes) -> None:
    assert whole(b"\x00" + encode(Symbol(record.NAME)) + octets[3:]) == record
    assert whole(b"\x00\x80" + record.CODE.to_bytes(8) + octets[3:]) == record


@given(any_record)
def test_any_composite_comes_back_from_its_octets(record: p.Record) -> None:
    octets = record.encode()
    found = whole(octets)
    assert found == record
    assert found.encode() == octets
    assert repr(found) == repr(record)


@given(any_record)
def test_another_implementation_reads_the_same_list(record: p.Record) -> None:
    octets = record.encode()
    value = value_at(octets, 0, len(octets))[0]
    if samples.understood_by_proton(value):
        assert oracle.read(octets) == oracle.read(oracle.written(value))


@given(any_record)
def test_a_composite_that_is_cut_anywhere_is_an_error(record: p.Record) -> None:
    octets = record.encode()
    for end in range(len(octets)):
        for data in (octets, octets[:end]):
            with pytest.raises(AmqpError) as raised:
                p.decode(data, 0, end)
            assert raised.value.condition == p.DECODE_ERROR


@given(any_record, st.data())
def test_changed_octets_are_a_composite_or_an_error_and_nothing_else(
    record: p.Record, data: st.DataObject
) -> None:
    octets = bytearray(record.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, after = p.decode(bytes(octets), 0, len(octets))
    except AmqpError as error:
        assert error.ends is Ends.CONNECTION  # noqa: PT017
        assert error.condition in (p.DECODE_ERROR, p.INVALID_FIELD)  # noqa: PT017
        return
    assert after <= len(octets)
    assert repr(whole(found.encode())) == repr(found)


@pytest.mark.parametrize("octets", INVALID.values(), ids=INVALID.keys())
def test_what_is_not_as_the_specification_asks_is_an_invalid_field(octets: bytes) -> None:
    with pytest.raises(AmqpError) as raised:
        whole(octets)
    assert (raised.value.condition, raised.value.ends) == (p.INVALID_FIELD, Ends.CONNECTION)


@pytest.mark.parametrize("octets", UNDECODABLE.values(), ids=UNDECODABLE.keys())
def test_what_cannot_be_decoded_is_a_decode_error(octets: bytes) -> None:
    with pytest.raises(AmqpError) as raised:
        whole(octets)
    assert (raised.value.condition, raised.value.ends) == (p.DECODE_ERROR, Ends.CONNECTION)


def test_an_error_says_which_field() -> None:
    for name, text in {
        "mandatory field missing": "container-id is missing",
        "int as uint": "handle is a Int",
        "too many fields": "amqp:close:list has 1 fields, not 2",
        "settle mode that is none": "snd-settle-mode is UByte(3)",
        "target for a source": "source is amqp:target:list",
    }.items():
        with pytest.raises(AmqpError) as raised:
            whole(INVALID[name])
        assert raised.value.description == text


def test_a_field_that_is_absent_or_null_has_its_default() -> None:
    for octets in (b"\x00\x53\x10\xc0\x04\x01\xa1\x01c", list_of(0x10, 10, b"\xa1\x01c" + b"\x40" * 9)):
        opened = whole(octets)
        assert isinstance(opened, p.Open)
        assert (opened.max_frame_size, opened.channel_max) == (4294967295, 65535)
        assert (opened.hostname, opened.idle_time_out, opened.properties) == (None, None, None)
        assert opened.offered_capabilities == []
    source = p.Source()
    assert (source.durable, source.expiry_policy, source.timeout, source.dynamic) == (
        0,
        "session-end",
        0,
        False,
    )
    attach = p.Attach(name="l", handle=0, role=False)
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (2, 0)


def test_a_multiple_field_is_one_value_or_an_array_or_absent() -> None:
    for sent, names in {
        b"\xa3\x01P": ["P"],
        b"\xe0\x04\x01\xa3\x01P": ["P"],
        b"\xe0\x06\x02\xa3\x01P\x01Q": ["P", "Q"],
        b"\xe0\x02\x00\xa3": [],
    }.items():
        mechanisms = whole(list_of(0x40, 1, sent))
        assert mechanisms == p.SaslMechanisms(sasl_server_mechanisms=names)


def test_fields_of_composite_types_come_out_as_their_classes() -> None:
    modified = p.Modified(delivery_failed=True, message_annotations={"x-a": ULong(1)})
    source = p.Source(
        default_outcome=modified, filter={"f": Described(Symbol("f"), "x")}, outcomes=["a", "b"]
    )
    attach = whole(p.Attach(name="l", handle=0, role=True, source=source, target=p.Coordinator()).encode())
    assert isinstance(attach, p.Attach)
    assert attach.source == source
    assert attach.target == p.Coordinator()


def test_what_is_described_by_somebody_else_stays_described() -> None:
    theirs = Described(Symbol("com.example:state"), [1])
    disposition = whole(p.Disposition(role=True, first=0, state=theirs).encode())
    assert isinstance(disposition, p.Disposition)
    assert disposition.state == theirs


def test_a_composite_inside_a_value_stays_described() -> None:
    unsettled = {b"tag": p.Released(), b"other": None}
    attach = whole(p.Attach(name="l", handle=0, role=True, unsettled=unsettled).encode())
    assert isinstance(attach, p.Attach)
    assert attach.unsettled == {b"tag": Described(ULong(p.Released.CODE), []), b"other": None}


def test_a_map_of_fields_goes_out_with_symbols_as_keys_and_may_come_in_with_strings() -> None:
    octets = p.Error(condition="e", info={"a": True}).encode()
    assert b"\xa3\x01a\x41" in octets
    assert whole(octets.replace(b"\xa3\x01a", b"\xa1\x01a")) == whole(octets)


def test_a_field_that_the_wire_cannot_say_is_a_value_error() -> None:
    for record in (
        p.Begin(next_outgoing_id=2**32, incoming_window=0, outgoing_window=0),
        p.Header(priority=256),
        p.Error(condition="ä"),
        p.Modified(message_annotations={"ä": 1}),
    ):
        with pytest.raises(ValueError, match=r"."):
            record.encode()


def test_composites_are_equal_by_class_and_fields() -> None:
    assert p.Accepted() == p.Accepted() != p.Released()
    assert p.Error(condition="a") == p.Error(condition="a") != p.Error(condition="b")
    assert p.Accepted() != "accepted"


def test_a_repr_shows_what_is_set_but_no_secret() -> None:
    assert repr(p.Open(container_id="c", channel_max=5)) == "Open(container_id='c', channel_max=5)"
    for record in (
        p.SaslInit(mechanism="PLAIN", initial_response=b"s3cret"),
        p.SaslResponse(response=b"s3cret"),
    ):
        assert "s3cret" not in repr(record)
        assert "***" in repr(record)


def test_the_constants_are_those_of_the_specification() -> None:
    assert (p.ROLE_SENDER, p.ROLE_RECEIVER) == (False, True)
    assert (p.SENDER_SETTLE_MODE_SETTLED, p.RECEIVER_SETTLE_MODE_SECOND) == (1, 1)
    assert p.SESSION_HANDLE_IN_USE == "amqp:session:handle-in-use"
    assert p.TRANSACTION_UNKNOWN_ID == "amqp:transaction:unknown-id"
    assert p.LINK_REDIRECT != p.CONNECTION_REDIRECT
    assert (p.APPLICATION_PROPERTIES, p.DATA, p.FOOTER) == (0x74, 0x75, 0x78)
    assert p.Accepted.CODE == Disposition.ACCEPTED
    assert p.Modified.CODE == Disposition.MODIFIED
