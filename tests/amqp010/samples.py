"""One table of samples for everything that reads or writes AMQP 0-10, and Hypothesis' idea of the same.

`VECTORS` were made by the encoder of qpid-python, the others by hand from the tables of the published final.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from uuid import UUID
from xml.etree import ElementTree

import attrs
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec import types as t
from leveret.protocols.amqp010.codec.sequences import SequenceSet
from leveret.protocols.amqp010.codec.spec import generate

GREETING = bytes.fromhex("414d51500101000a")


@attrs.frozen
class Sample:
    """A control or command on a channel, and the frames it comes in."""

    said: c.Control | c.Command
    octets: bytes = attrs.field(eq=False, repr=False)
    channel: int = 1
    sync: bool = False
    header: bytes | None = None
    body: bytes | None = None

    @property
    def name(self) -> str:
        return self.said.NAME

    @property
    def payload(self) -> bytes:
        """What is in the first frame."""
        return self.octets[12 : int.from_bytes(self.octets[2:4], "big")]


def control(said: c.Control, octets: str, channel: int = 1) -> Sample:
    return Sample(said, bytes.fromhex(octets), channel)


def command(
    said: c.Command, octets: str, sync: bool = False, header: bytes | None = None, body: bytes | None = None
) -> Sample:
    return Sample(said, bytes.fromhex(octets), 1, sync, header, body)


# The header segment of the transfer below.
DELIVERY_PROPERTIES = c.DeliveryProperties(priority=4, delivery_mode=2, routing_key="q")
MESSAGE_PROPERTIES = c.MessageProperties(
    content_length=5, message_id=UUID(int=1), content_type="text/plain", application_headers={"k": "v"}
)
HEADER = bytes.fromhex(
    "00000008040118020402017100000035040313010000000000000005000000000000000000000000000000010a746578742f706c61"
    "696e0000000a00000001016b95000176"
)

VECTORS: list[Sample] = [
    control(
        c.ConnectionStart({}, ["PLAIN", "ANONYMOUS"], ["en_US"]),
        "0f00004300000000000000000101070000000004000000000000001795000000020005504c41494e0009414e4f4e594d4f5553"
        "0000000c95000000010005656e5f5553",
        0,
    ),
    control(
        c.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"),
        "0f000034000000000000000001020f00000000040000000005504c41494e0000000c00677565737400677565737405656e5f5553",
        0,
    ),
    control(c.ConnectionTune(65535, 65535, 0, 120), "0f000018000000000000000001050f00ffffffff00000078", 0),
    control(c.ConnectionTuneOk(heartbeat=10), "0f000012000000000000000001060400000a", 0),
    control(c.ConnectionOpen(), "0f000010000000000000000001070000", 0),
    control(c.ConnectionOpen("/", insist=True), "0f000012000000000000000001070500012f", 0),
    control(c.ConnectionOpenOk(), "0f000010000000000000000001080000", 0),
    control(c.ConnectionHeartbeat(), "0f0000100000000000000000010a0000", 0),
    control(c.ConnectionClose(200, "bye"), "0f0000160000000000000000010b030000c803627965", 0),
    control(c.SessionAttach(b"s1", True), "0f00001400000001000000000201030000027331"),
    control(c.SessionAttached(b"s1"), "0f00001400000001000000000202010000027331"),
    control(c.SessionDetached(b"s1", c.DETACH_CODE_NORMAL), "0f0000150000000100000000020403000002733100"),
    control(c.SessionCommandPoint(0, 0), "0f00001c000000010000000002070300000000000000000000000000"),
    control(
        c.SessionCompleted(SequenceSet.of((0, 4), (7, 7)), True),
        "0f0000220000000100000000020a0300001000000000000000040000000700000007",
    ),
    control(
        c.SessionKnownCompleted(SequenceSet.of((0, 4))),
        "0f00001a0000000100000000020b010000080000000000000004",
    ),
    control(c.SessionFlush(completed=True), "0f0000100000000100000000020c0400"),
    control(
        c.SessionExpected(SequenceSet.of((3, 3))), "0f00001a00000001000000000208010000080000000300000003"
    ),
    control(c.SessionRequestTimeout(300), "0f0000140000000100000000020501000000012c"),
    command(c.ExecutionSync(), "0f0100120001000100000000030101010000", sync=True),
    command(
        c.QueueDeclare("q", durable=True, auto_delete=True, arguments={"qpid.max_count": 5}),
        "0f010034000100010000000008010101690001710000001c000000010e717069642e6d61785f636f756e7431000000000000"
        "0005",
        sync=True,
    ),
    command(
        c.MessageSubscribe("q", "d", c.ACCEPT_MODE_EXPLICIT, c.ACQUIRE_MODE_PRE_ACQUIRED),
        "0f0100180001000100000000040701000f00017101640000",
    ),
    command(
        c.MessageFlow("d", c.CREDIT_UNIT_MESSAGE, 10), "0f0100190001000100000000040a010007000164000000000a"
    ),
    command(
        c.MessageTransfer("", c.ACCEPT_MODE_NONE, c.ACQUIRE_MODE_PRE_ACQUIRED),
        "0b010015000100010000000004010101070000010003020051000100010000000000000008040118020402017100000035040313"
        "010000000000000005000000000000000000000000000000010a746578742f706c61696e0000000a00000001016b950001760703"
        "0011000100010000000068656c6c6f",
        sync=True,
        header=HEADER,
        body=b"hello",
    ),
    command(
        c.MessageAccept(SequenceSet.of((0, 0))), "0f01001c000100010000000004020100010000080000000000000000"
    ),
    command(
        c.ExecutionResult(2, c.ExchangeQueryResult("direct", durable=True)),
        "0f0100250001000100000000030201000300000000020000000b0701030006646972656374",
    ),
    command(
        c.ExecutionException(c.ERROR_CODE_NOT_FOUND, 3, 8, 1, 0, "no"),
        "0f01001f0001000100000000030301003f0001940000000308010000026e6f",
    ),
    command(
        c.DtxStart(c.Xid(1, b"g", b"b"), join=True),
        "0f01002200010001000000000602010003000000000c060407000000000101670162",
    ),
]

# What header and body may lack, and what a segment in several frames looks like.
OTHERS: list[Sample] = [
    command(c.MessageTransfer(), "0f0100120001000100000000040101000000"),
    command(
        c.MessageTransfer("x"),
        "0b0100140001000100000000040101000100017807030010000100010000000062 6f6479",
        body=b"body",
    ),
    command(
        c.MessageTransfer(accept_mode=0),
        "0b0100130001000100000000040101000200000702000c0001000100000000",
        header=b"",
    ),
    command(
        c.MessageTransfer(),
        "0b01001200010001000000000401010000000302000c00010001000000000703000c0001000100000000",
        header=b"",
        body=b"",
    ),
    command(
        c.MessageTransfer(),
        "0a01000e00010001000000000401"
        "0801000c0001000100000000"
        "090100100001000100000000 01000000"
        "0202000e00010001000000006865 0002000c0001000100000000 0102000f0001000100000000616465"
        "0603000d00010001000000007a 0503000d00010001000000007a",
        header=b"heade",
        body=b"zz",
    ),
    control(
        c.SessionAttach(b"s1", True),
        "0e00000e00000001000000000201 0c00000f0000000100000000030000 0d00000f0000000100000000027331",
    ),
]
SAMPLES = [*VECTORS, *OTHERS]

# A struct, and its octets with size and code.
STRUCTS: list[tuple[c.Struct, bytes]] = [
    (DELIVERY_PROPERTIES, HEADER[:12]),
    (MESSAGE_PROPERTIES, HEADER[12:]),
    (c.DeliveryProperties(), bytes.fromhex("00000004 0401 0000")),
    (
        c.DeliveryProperties(True, True, True, 9, 1, 1000, 2, 3, "e", "k", "r", 4),
        bytes.fromhex(
            "0000002d 0401 ff0f 09 01 00000000000003e8 0000000000000002 0000000000000003 0165 016b 000172"
            "0000000000000004"
        ),
    ),
    (c.FragmentProperties(True, False, 7), bytes.fromhex("0000000c 0402 0500 0000000000000007")),
    (
        c.MessageProperties(
            correlation_id=b"\xff",
            reply_to=c.ReplyTo("e", "k"),
            content_encoding="utf-8",
            user_id=b"u",
            app_id=b"a",
        ),
        bytes.fromhex("0000001b 0403 ec00 0001ff 0006 0300 0165 016b 057574662d38 000175 000161"),
    ),
    (c.ReplyTo(routing_key=""), bytes.fromhex("0003 0200 00")),
    (c.Header(True), bytes.fromhex("01 01")),
    (c.Acquired(SequenceSet.of((1, 2))), bytes.fromhex("0000000e 0404 0100 0008 00000001 00000002")),
    (c.XaResult(c.XA_STATUS_XA_RDONLY), bytes.fromhex("00000006 0601 0100 0007")),
    (c.Xid(1, b"g", b""), bytes.fromhex("0000000b 0604 0700 00000001 0167 00")),
    (
        c.RecoverResult([c.Xid(1, b"g", b"b"), c.Xid(2, b"", b"c")]),
        bytes.fromhex(
            "0000002c 0603 0100 00000024 ab 00000002 0000000c 0604 0700 00000001 0167 0162"
            "0000000b 0604 0700 00000002 00 0163"
        ),
    ),
    (c.RecoverResult([]), bytes.fromhex("0000000d 0603 0100 00000005 ab 00000000")),
    (c.ExchangeBoundResult(args_not_matched=True), bytes.fromhex("00000004 0702 1000")),
    (
        c.QueueQueryResult("q", "", True, False, True, {}, 3, 1),
        bytes.fromhex("00000017 0801 f700 0171 00 00000004 00000000 00000003 00000001"),
    ),
    (c.CommandFragment(5, [(1, 2)]), bytes.fromhex("00000005 0010 0000000000000001 0000000000000002")),
]

# A value and the octets that both stand for it and come of it, type code in front.
VALUES: list[tuple[t.Value, bytes]] = [
    (None, bytes.fromhex("f0")),
    (True, bytes.fromhex("08 01")),
    (False, bytes.fromhex("08 00")),
    (0, bytes.fromhex("31 0000000000000000")),
    (-1, bytes.fromhex("31 ffffffffffffffff")),
    (2**63 - 1, bytes.fromhex("31 7fffffffffffffff")),
    (-(2**63), bytes.fromhex("31 8000000000000000")),
    (t.UInt64(2**63), bytes.fromhex("32 8000000000000000")),
    (t.UInt64(1), bytes.fromhex("32 0000000000000001")),
    (t.Int8(-2), bytes.fromhex("01 fe")),
    (t.UInt8(254), bytes.fromhex("02 fe")),
    (t.Int16(-2), bytes.fromhex("11 fffe")),
    (t.UInt16(65_534), bytes.fromhex("12 fffe")),
    (t.Int32(-2), bytes.fromhex("21 fffffffe")),
    (t.UInt32(4_294_967_294), bytes.fromhex("22 fffffffe")),
    (t.Float32(1.5), bytes.fromhex("23 3fc00000")),
    (1.5, bytes.fromhex("33 3ff8000000000000")),
    (t.Char("a"), bytes.fromhex("04 61")),
    (t.CharUtf32("\U0001f407"), bytes.fromhex("27 0001f407")),
    (t.Datetime(1000), bytes.fromhex("38 00000000000003e8")),
    (UUID(int=7), bytes.fromhex("48 00000000000000000000000000000007")),
    (Decimal("3.14"), bytes.fromhex("c8 02 0000013a")),
    (Decimal("-0.001"), bytes.fromhex("c8 03 ffffffff")),
    (t.Dec64("1"), bytes.fromhex("d8 00 0000000000000001")),
    (b"", bytes.fromhex("90 0000")),
    (b"\xff\xfe", bytes.fromhex("90 0002 fffe")),
    (t.Vbin8(b"abc"), bytes.fromhex("80 03 616263")),
    (t.Vbin32(b"abc"), bytes.fromhex("a0 00000003 616263")),
    ("", bytes.fromhex("95 0000")),
    ("Häsin", bytes.fromhex("95 0006 48c3a473696e")),
    ("\udcff", bytes.fromhex("95 0001 ff")),  # no UTF-8, and kept
    (t.Str8("hare"), bytes.fromhex("85 04 68617265")),
    (t.Str8Latin("€"), bytes.fromhex("84 01 a4")),
    (t.Str16Latin("ä"), bytes.fromhex("94 0001 e4")),
    (t.Str8Utf16("ä"), bytes.fromhex("86 02 00e4")),
    (t.Str16Utf16("\U0001f407"), bytes.fromhex("96 0004 d83ddc07")),
    ({}, bytes.fromhex("a8 00000004 00000000")),
    (
        {"a": 1, "b": "x", "c": None, "d": True},
        bytes.fromhex("a8 0000001c0000000401613100000000000000010162950001780163f001640801"),
    ),
    ([], bytes.fromhex("a9 00000004 00000000")),
    ([1, "x", []], bytes.fromhex("a9 0000001a0000000331000000000000000195000178a90000000400000000")),
    (t.Array(0x95, ["a", "b"]), bytes.fromhex("aa 0000000b9500000002000161000162")),
    (t.Array(0x95), bytes.fromhex("aa 00000005 95 00000000")),
    (
        t.Array(0xAA, [t.Array(0x02, [t.UInt8(1)])]),
        bytes.fromhex("aa 0000000f aa 00000001 00000006 02 00000001 01"),
    ),
    (t.Struct32(0x0604, b"\0\0"), bytes.fromhex("ab 00000004 0604 0000")),
]
# What nobody here knows or can explain: it is as long as the code's high nibble says.
OPAQUES: list[tuple[t.Value, bytes]] = [
    (t.Opaque(code, bytes(size)), bytes((code,)) + bytes(size))
    for code, size in (
        *((0x00, 1), (0x0F, 1), (0x10, 2), (0x1F, 2), (0x20, 4), (0x2F, 4), (0x30, 8), (0x3F, 8)),
        *((0x40, 16), (0x4F, 16), (0x50, 32), (0x60, 64), (0x70, 128), (0xC0, 5), (0xCF, 5), (0xD0, 9)),
        *((0xF1, 0), (0xFF, 0), (0x8F, 1), (0x9F, 2), (0xAF, 4)),
    )
] + [
    (t.Opaque(0x81, b"\x02ab"), b"\x81\x02ab"),
    (t.Opaque(0x9F, b"\x00\x02ab"), b"\x9f\x00\x02ab"),
    (t.Opaque(0xAF, b"\x00\x00\x00\x02ab"), b"\xaf\x00\x00\x00\x02ab"),
    (t.Opaque(0x86, b"\x01a"), b"\x86\x01a"),  # half a character of UTF-16
    (t.Opaque(0x27, b"\x00\x11\x00\x00"), b"\x27\x00\x11\x00\x00"),  # beyond Unicode
]


def integers(width: int, signed: bool = False) -> st.SearchStrategy[int]:
    low, high = (-1 << width - 1, (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return st.integers(low, high)


# Text as any octets spell it.
any_text = st.binary(max_size=20).map(lambda octets: octets.decode("utf-8", "surrogateescape"))
decimals = st.builds(lambda number, scale: Decimal(f"{number}E-{scale}"), integers(32, True), integers(8))
scalars: st.SearchStrategy[t.Value] = st.one_of(
    st.none(),
    st.booleans(),
    integers(64, True),
    integers(64).map(t.UInt64),
    integers(8, True).map(t.Int8),
    integers(8).map(t.UInt8),
    integers(16, True).map(t.Int16),
    integers(16).map(t.UInt16),
    integers(32, True).map(t.Int32),
    integers(32).map(t.UInt32),
    integers(64).map(t.Datetime),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(t.Float32),
    st.uuids(),
    decimals,
    st.binary(max_size=20),
    st.binary(max_size=20).map(t.Vbin8),
    st.binary(max_size=20).map(t.Vbin32),
    any_text,
    any_text.map(t.Str8),
    st.text(max_size=10).map(t.Str16Utf16),
    st.builds(t.Struct32, integers(16), st.binary(max_size=10)),
    st.sampled_from([value for value, _ in OPAQUES]),
)
arrays: st.SearchStrategy[t.Value] = st.one_of(
    st.builds(t.Array, st.just(0x95), st.lists(any_text, max_size=4)),
    st.builds(t.Array, st.just(0x12), st.lists(integers(16).map(t.UInt16), max_size=4)),
)
values: st.SearchStrategy[t.Value] = st.recursive(
    scalars | arrays,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
maps = st.dictionaries(any_text, values, max_size=5)


@st.composite
def sequence_sets(draw: st.DrawFn) -> SequenceSet:
    """Up to five ranges, ascending and apart, wherever they begin."""
    at, ranges = draw(integers(32)), []
    for _ in range(draw(st.integers(0, 5))):
        upper = at + draw(st.integers(0, 1000))
        ranges.append((at & 0xFFFFFFFF, upper & 0xFFFFFFFF))
        at = upper + draw(st.integers(2, 1000))
    return SequenceSet.of(*ranges)


SPEC = generate.Spec(ElementTree.parse(Path(generate.__file__).parent / generate.SOURCE).getroot())
PACKED = {of.class_name: of for of in SPEC.packed()}
FIELDS: dict[str, st.SearchStrategy[object]] = {  # by how they are read
    "": st.booleans(),
    "uint8_at": integers(8),
    "uint16_at": integers(16),
    "uint32_at": integers(32),
    "uint64_at": integers(64),
    "uuid_at": st.uuids(),
    "str8_at": any_text,
    "str16_at": any_text,
    "vbin8_at": st.binary(max_size=9),
    "vbin16_at": st.binary(max_size=9),
    "vbin32_at": st.binary(max_size=9),
    "sequence_set_at": sequence_sets(),
    "byte_ranges_at": st.lists(st.tuples(st.integers(0, 9), st.integers(9, 2**64 - 1)), max_size=3),
    "map_at": maps,
    "array_at": arrays,
    "str16_array_at": st.lists(any_text, max_size=3),
    "struct_at": st.builds(t.Struct32, st.just(0x0F01), st.binary(max_size=9))
    | st.builds(c.XaResult, integers(16)),
    "ReplyTo.at": st.builds(c.ReplyTo, st.none() | any_text, st.none() | any_text),
    "Xid.at": st.builds(c.Xid, integers(32), st.binary(max_size=9), st.none() | st.binary(max_size=9)),
    "structs_at": st.lists(st.builds(c.Xid, integers(32), st.binary(max_size=9)), max_size=3),
}


@st.composite
def packed(draw: st.DrawFn, of: type[c.Packed], absent: bool = True) -> c.Packed:
    """One of the class with whatever its fields may hold; with all of them there, unless they may be absent."""
    made = of()
    for field in PACKED[of.__name__].fields:
        strategy = FIELDS[field.read.partition("(")[0]]
        if absent and field.read:
            strategy |= st.none()
        setattr(made, field.name, draw(strategy))
    return made


FILLED: dict[str, object] = {  # by how they are read
    "": True,
    "uint8_at": 8,
    "uint16_at": 0xFFFE,
    "uint32_at": 0xFFFFFFFE,
    "uint64_at": 2**64 - 2,
    "uuid_at": UUID(int=9),
    "str8_at": "hare",
    "str16_at": "Häsin",
    "vbin8_at": b"8",
    "vbin16_at": b"16",
    "vbin32_at": b"32",
    "sequence_set_at": SequenceSet.of((0xFFFFFFFE, 1), (3, 3)),
    "byte_ranges_at": [(0, 0), (7, 2**64 - 1)],
    "map_at": {"a": [1, None], "b": {"c": "d"}},
    "array_at": t.Array(0x95, ["a"]),
    "str16_array_at": ["PLAIN", ""],
    "struct_at": c.XaResult(7),
    "ReplyTo.at": c.ReplyTo("e", "k"),
    "Xid.at": c.Xid(1, b"g", b"b"),
    "structs_at": [c.Xid(1, b"g", b"b"), c.Xid()],
}


def filled(of: type[c.Packed]) -> c.Packed:
    """One of the class with a value in every field."""
    made = of()
    for field in PACKED[of.__name__].fields:
        setattr(made, field.name, FILLED[field.read.partition("(")[0]])
    return made
