"""One table of AMQP 1.0 values for encoder and decoder, and Hypothesis' idea of values."""

import struct
from uuid import UUID

from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import types as t

ZEROS = UUID(int=0)

# A value and the octets that both stand for it and come of it.
VALUES: list[tuple[t.Value, bytes]] = [
    (None, b"\x40"),
    (True, b"\x41"),
    (False, b"\x42"),
    (t.UByte(255), b"\x50\xff"),
    (t.UShort(65_534), b"\x60\xff\xfe"),
    (t.UInt(0), b"\x43"),
    (t.UInt(1), b"\x52\x01"),
    (t.UInt(255), b"\x52\xff"),
    (t.UInt(256), b"\x70\x00\x00\x01\x00"),
    (t.UInt(2**32 - 1), b"\x70\xff\xff\xff\xff"),
    (t.ULong(0), b"\x44"),
    (t.ULong(255), b"\x53\xff"),
    (t.ULong(256), b"\x80\x00\x00\x00\x00\x00\x00\x01\x00"),
    (t.ULong(2**64 - 1), b"\x80\xff\xff\xff\xff\xff\xff\xff\xff"),
    (t.Byte(-128), b"\x51\x80"),
    (t.Short(-2), b"\x61\xff\xfe"),
    (t.Int(0), b"\x54\x00"),
    (t.Int(-128), b"\x54\x80"),
    (t.Int(128), b"\x71\x00\x00\x00\x80"),
    (t.Int(-(2**31)), b"\x71\x80\x00\x00\x00"),
    (t.Long(127), b"\x55\x7f"),
    (t.Long(-129), b"\x81\xff\xff\xff\xff\xff\xff\xff\x7f"),
    (t.Long(2**63 - 1), b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff"),
    (t.Float32(1.5), b"\x72\x3f\xc0\x00\x00"),
    (1.5, b"\x82\x3f\xf8\x00\x00\x00\x00\x00\x00"),
    (float("-inf"), b"\x82\xff\xf0\x00\x00\x00\x00\x00\x00"),
    (t.Decimal32(b"\x22\x50\x00\x01"), b"\x74\x22\x50\x00\x01"),
    (t.Decimal64(b"decimals"), b"\x84decimals"),
    (t.Decimal128(b"decimal,decimal."), b"\x94decimal,decimal."),
    (t.Char("ä"), b"\x73\x00\x00\x00\xe4"),
    (t.Char("\U0010ffff"), b"\x73\x00\x10\xff\xff"),
    (t.Timestamp(-1), b"\x83\xff\xff\xff\xff\xff\xff\xff\xff"),
    (ZEROS, b"\x98" + bytes(16)),
    (b"", b"\xa0\x00"),
    (b"\xff\x00", b"\xa0\x02\xff\x00"),
    (b"x" * 255, b"\xa0\xff" + b"x" * 255),
    (b"x" * 256, b"\xb0\x00\x00\x01\x00" + b"x" * 256),
    ("", b"\xa1\x00"),
    ("Häsin", b"\xa1\x06H\xc3\xa4sin"),
    ("ä" * 128, b"\xb1\x00\x00\x01\x00" + b"\xc3\xa4" * 128),
    (t.Symbol("hare"), b"\xa3\x04hare"),
    (t.Symbol("s" * 256), b"\xb3\x00\x00\x01\x00" + b"s" * 256),
    ([], b"\x45"),
    ([None, []], b"\xc0\x03\x02\x40\x45"),
    (["x" * 252], b"\xc0\xff\x01\xa1\xfc" + b"x" * 252),
    (["x" * 253], b"\xd0\x00\x00\x01\x03\x00\x00\x00\x01\xa1\xfd" + b"x" * 253),
    ([None] * 256, b"\xd0\x00\x00\x01\x04\x00\x00\x01\x00" + b"\x40" * 256),
    ({}, b"\xc1\x01\x00"),
    ({t.Symbol("k"): t.UInt(1)}, b"\xc1\x06\x02\xa3\x01k\x52\x01"),
    ({t.UByte(1): {b"": None}}, b"\xc1\x09\x02\x50\x01\xc1\x04\x02\xa0\x00\x40"),
    (t.Described(t.ULong(0x24), []), b"\x00\x53\x24\x45"),
    (t.Described(t.Symbol("d"), t.Described(None, "v")), b"\x00\xa3\x01d\x00\x40\xa1\x01v"),
    (t.Array(b"\x70", [t.UInt(1), t.UInt(2)]), b"\xe0\x0a\x02\x70\x00\x00\x00\x01\x00\x00\x00\x02"),
    (t.Array(b"\x52", [t.UInt(1), t.UInt(0)]), b"\xe0\x04\x02\x52\x01\x00"),
    (t.Array(b"\x43", [t.UInt(0), t.UInt(0)]), b"\xe0\x02\x02\x43"),
    (t.Array(b"\xa3", [t.Symbol("a"), t.Symbol("bc")]), b"\xe0\x07\x02\xa3\x01a\x02bc"),
    (t.Array(b"\xb1", ["a"]), b"\xe0\x07\x01\xb1\x00\x00\x00\x01a"),
    (t.Array(b"\x56", [True, False]), b"\xe0\x04\x02\x56\x01\x00"),
    (t.Array(b"\x41", [True] * 3), b"\xe0\x02\x03\x41"),
    (t.Array(b"\x71", []), b"\xe0\x02\x00\x71"),
    (t.Array(b"\x45", [[], []]), b"\xe0\x02\x02\x45"),
    (t.Array(b"\xc0", [[], [None]]), b"\xe0\x07\x02\xc0\x01\x00\x02\x01\x40"),
    (t.Array(b"\xd0", [[]]), b"\xe0\x0a\x01\xd0\x00\x00\x00\x04\x00\x00\x00\x00"),
    (t.Array(b"\xd1", [{"": None}]), b"\xe0\x0d\x01\xd1\x00\x00\x00\x07\x00\x00\x00\x02\xa1\x00\x40"),
    (t.Array(b"\xe0", [t.Array(b"\x50", [t.UByte(1)])]), b"\xe0\x06\x01\xe0\x03\x01\x50\x01"),
    (t.Array(b"\xf0", [t.Array(b"\x40", [None])]), b"\xe0\x0b\x01\xf0\x00\x00\x00\x05\x00\x00\x00\x01\x40"),
    (
        t.Array(b"\x00\x53\x07\xa1", [t.Described(t.ULong(7), "a"), t.Described(t.ULong(7), "")]),
        b"\xe0\x08\x02\x00\x53\x07\xa1\x01a\x00",
    ),
    (
        t.Array(b"\x00\xa3\x01d\x00\x40\x50", [t.Described(t.Symbol("d"), t.Described(None, t.UByte(9)))]),
        b"\xe0\x09\x01\x00\xa3\x01d\x00\x40\x50\x09",
    ),
    (t.Array(b"\x50", [t.UByte(7)] * 254), b"\xf0\x00\x00\x01\x03\x00\x00\x00\xfe\x50" + b"\x07" * 254),
    # Keys that Python takes for one, or does not take.
    (
        {t.Key(t.UInt(0), b"\x43"): None, t.Key(t.Int(0), b"\x54\x00"): True},
        b"\xc1\x06\x04\x43\x40\x54\x00\x41",
    ),
    ({t.Symbol("k"): None, t.Key("k", b"\xa1\x01k"): True}, b"\xc1\x09\x04\xa3\x01k\x40\xa1\x01k\x41"),
    ({t.Key([], b"\x45"): None, t.Key({}, b"\xc1\x01\x00"): None}, b"\xc1\x07\x04\x45\x40\xc1\x01\x00\x40"),
]

# What peers may send, and we say shorter.
LONGER: list[tuple[t.Value, bytes]] = [
    (t.UInt(0), b"\x70\x00\x00\x00\x00"),
    (t.UInt(0), b"\x52\x00"),
    (t.ULong(1), b"\x80\x00\x00\x00\x00\x00\x00\x00\x01"),
    (t.Int(-1), b"\x71\xff\xff\xff\xff"),
    (t.Long(-1), b"\x81\xff\xff\xff\xff\xff\xff\xff\xff"),
    (True, b"\x56\x01"),
    (False, b"\x56\x00"),
    (b"b", b"\xb0\x00\x00\x00\x01b"),
    ("s", b"\xb1\x00\x00\x00\x01s"),
    (t.Symbol("y"), b"\xb3\x00\x00\x00\x01y"),
    ([], b"\xc0\x01\x00"),
    ([None], b"\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x40"),
    ({}, b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00"),
]

# Arrays that nobody would write so, and that come back as they came.
ARRAYS: list[bytes] = [
    b"\xf0\x00\x00\x00\x06\x00\x00\x00\x01\x50\x09",
    b"\xe0\x0b\x01\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x40",
    b"\xe0\x09\x01\xc0\x06\x01\x70\x00\x00\x00\x00",
    b"\xe0\x0c\x01\x00\x80" + bytes(8) + b"\x40",
    b"\xe0\x0b\x01\xc1\x08\x02\xb0\x00\x00\x00\x00\x56\x01",
]

MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "unknown format code": b"\x3f",
    "unknown format code of a known width": b"\x57\x00",
    "string that is not UTF-8": b"\xa1\x01\xff",
    "long string that is not UTF-8": b"\xb1\x00\x00\x00\x02\xc3\x28",
    "string with a surrogate": b"\xa1\x03\xed\xa0\x80",
    "symbol that is not ASCII": b"\xa3\x02\xc3\xa4",
    "long symbol that is not ASCII": b"\xb3\x00\x00\x00\x01\x80",
    "boolean of two": b"\x56\x02",
    "character beyond Unicode": b"\x73\x00\x11\x00\x00",
    "surrogate as character": b"\x73\x00\x00\xd8\x00",
    "string beyond the end": b"\xa1\x05hare",
    "string far beyond the end": b"\xb1\xff\xff\xff\xffhare",
    "list beyond the end": b"\xc0\x03\x01\x40",
    "list far beyond the end": b"\xd0\xff\xff\xff\xff\x00\x00\x00\x01\x40",
    "list too small for its count": b"\xc0\x00\x00",
    "long list too small for its count": b"\xd0\x00\x00\x00\x03\x00\x00\x00\x00",
    "list of more values than octets": b"\xc0\x02\x02\x40",
    "list of far more values than octets": b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
    "list with octets left": b"\xc0\x03\x01\x40\x40",
    "list whose value leads out of it": b"\xc0\x02\x01\x50\x40",
    "map with a key alone": b"\xc1\x02\x01\x40",
    "map with a key twice": b"\xc1\x07\x04\xa1\x00\x40\xa1\x00\x41",
    "map with a number twice, spelt differently": b"\xc1\x06\x04\x43\x40\x52\x00\x41",
    "map with a list twice": b"\xc1\x07\x04\x45\x40\xc0\x01\x00\x40",
    "array without a constructor": b"\xe0\x01\x00",
    "array of an unknown type": b"\xe0\x02\x00\x3f",
    "array of elements beyond its end": b"\xe0\x03\x02\x50\x01",
    "array of far more elements than octets": b"\xf0\x00\x00\x00\x06\xff\xff\xff\xff\x50\x01",
    "array of many elements without octets": b"\xf0\x00\x00\x00\x05\x00\x00\x00\x41\x40",
    "array with octets left": b"\xe0\x04\x01\x50\x01\x02",
    "array whose constructor ends in a descriptor": b"\xe0\x04\x00\x00\x53\x01",
    "array with three descriptors": b"\xe0\x09\x01\x00\x40\x00\x40\x00\x40\x50\x01",
    "descriptor without a value": b"\x00\x53\x24",
    "descriptor alone": b"\x00",
}


def nested(depth: int) -> bytes:
    """A list in a list in a list ..."""
    octets = b"\x40"
    for _ in range(depth):
        octets = b"\xd0" + struct.pack(">II", len(octets) + 4, 1) + octets
    return octets


MALFORMED |= {
    "lists nested too deep": nested(65),
    "described too deep": b"\x00\x40" * 65 + b"\x40",
    "descriptors described too deep": b"\x00" * 65 + b"\x40" * 66,
}


def _integers(of: type[int], bits: int, signed: bool) -> st.SearchStrategy[t.Value]:
    least = -(1 << bits - 1) if signed else 0
    return st.integers(least, least + (1 << bits) - 1).map(of)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
names = st.text(st.characters(codec="ascii"), max_size=20)
scalars: dict[str, st.SearchStrategy[t.Value]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "ubyte": _integers(t.UByte, 8, signed=False),
    "ushort": _integers(t.UShort, 16, signed=False),
    "uint": _integers(t.UInt, 32, signed=False) | st.integers(0, 300).map(t.UInt),
    "ulong": _integers(t.ULong, 64, signed=False) | st.integers(0, 300).map(t.ULong),
    "byte": _integers(t.Byte, 8, signed=True),
    "short": _integers(t.Short, 16, signed=True),
    "int": _integers(t.Int, 32, signed=True) | st.integers(-300, 300).map(t.Int),
    "long": _integers(t.Long, 64, signed=True) | st.integers(-300, 300).map(t.Long),
    "float": st.floats(width=32, allow_nan=False).map(t.Float32),
    "double": st.floats(allow_nan=False),
    "decimal32": st.binary(min_size=4, max_size=4).map(t.Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(t.Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(t.Decimal128),
    "char": st.characters(exclude_categories=["Cs"]).map(t.Char),
    "timestamp": _integers(t.Timestamp, 64, signed=True),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=300),
    "string": text,
    "symbol": names.map(t.Symbol),
}
# The widest format code of each, which arrays are made with.
CODES = dict(
    zip(
        scalars,
        b"\x40\x56\x50\x60\x70\x80\x51\x61\x71\x81\x72\x82\x74\x84\x94\x73\x83\x98\xb0\xb1\xb3",
        strict=True,
    )
)
scalar = st.one_of(*scalars.values())


@st.composite
def arrays(draw: st.DrawFn) -> t.Array:
    name = draw(st.sampled_from([*scalars]))
    constructor, items = bytes((CODES[name],)), draw(st.lists(scalars[name], max_size=20))
    descriptor = draw(st.none() | scalars["ulong"] | scalars["symbol"])
    if descriptor is None:
        return t.Array(constructor, items)
    return t.Array(
        b"\0" + t.encode(descriptor) + constructor, [t.Described(descriptor, item) for item in items]
    )


def keyed(keys: st.SearchStrategy[t.Value], values: st.SearchStrategy[t.Value]) -> st.SearchStrategy[t.Value]:
    """Maps whose keys differ on the wire, as they come out: those that Python cannot tell apart are wrapped."""

    def told_apart(pairs: list[tuple[t.Value, t.Value]]) -> t.Value:
        distinct = {t.encode(key): (key, value) for key, value in pairs}
        found: dict[t.Value, t.Value] = dict(distinct.values())
        return found if len(found) == len(distinct) else {}

    return st.lists(st.tuples(keys, values), max_size=8).map(told_apart)


keys = scalar.filter(lambda key: key == key)
values: st.SearchStrategy[t.Value] = st.recursive(
    scalar | arrays(),
    lambda inner: (
        st.lists(inner, max_size=5)
        | keyed(keys, inner)
        | st.builds(t.Described, st.one_of(scalars["ulong"], scalars["symbol"]), inner)
        | st.lists(st.lists(inner, max_size=3), max_size=4).map(lambda items: t.Array(b"\xd0", items))
        | st.lists(keyed(keys, inner), max_size=4).map(lambda items: t.Array(b"\xd1", items))
        | st.lists(arrays(), max_size=4).map(lambda items: t.Array(b"\xf0", items))
    ),
    max_leaves=20,
)


def understood_by_proton(value: t.Value, within: bool = False) -> bool:
    """Whether proton reads it right. It mixes up descriptors of descriptors, and those inside elements of arrays."""
    if isinstance(value, t.Described):
        return not (within or isinstance(value.value, t.Described)) and understood_by_proton(value.value)
    if isinstance(value, t.Array):
        described = value.constructor[0] == 0
        return described or all(understood_by_proton(item, within=True) for item in value.items)
    inside = (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    )
    return all(understood_by_proton(item, within) for item in inside)


# Addresses of version 2 that name nothing.
BAD_ADDRESSES = (
    "/queues/",
    "/queues/missing%encoding",
    "/queues/missing/encoding",
    "/queues/✋",
    "/queues/a b",
    "/queues/q%",
    "/queues/q%2",
    "/exchanges/",
    "/exchanges//",
    "/exchanges//mykey",
    "/exchanges/amq.default",
    "/exchanges/amq.default/",
    "/exchanges/amq.default/mykey",
    "/exchanges/missing%encoding",
    "/exchanges/missing/encoding/routingkey",
    "/exchanges/exchange/missing%encoding",
    "/exchanges/✋",
)
