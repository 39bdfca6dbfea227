"""Values through the codec of qpid-proton: `written` by it, and `read` by it."""

from __future__ import annotations

from uuid import UUID

from proton._data import Data

from leveret.protocols.amqp10.codec import types as t
from leveret.protocols.amqp10.codec.types import Array, Described, Key, Value, encode

SCALARS: dict[int, tuple[type, str]] = {
    Data.BOOL: (bool, "bool"),
    Data.UBYTE: (t.UByte, "ubyte"),
    Data.BYTE: (t.Byte, "byte"),
    Data.USHORT: (t.UShort, "ushort"),
    Data.SHORT: (t.Short, "short"),
    Data.UINT: (t.UInt, "uint"),
    Data.INT: (t.Int, "int"),
    Data.CHAR: (t.Char, "char"),
    Data.ULONG: (t.ULong, "ulong"),
    Data.LONG: (t.Long, "long"),
    Data.TIMESTAMP: (t.Timestamp, "timestamp"),
    Data.FLOAT: (t.Float32, "float"),
    Data.DOUBLE: (float, "double"),
    Data.UUID: (UUID, "uuid"),
    Data.BINARY: (bytes, "binary"),
    Data.STRING: (str, "string"),
    Data.SYMBOL: (t.Symbol, "symbol"),
}
NAMES = dict(SCALARS.values())
# The element type of an array by its format code; the widths of one type are one to proton.
ELEMENTS = {
    0x40: Data.NULL, 0x41: Data.BOOL, 0x42: Data.BOOL, 0x43: Data.UINT, 0x44: Data.ULONG, 0x45: Data.LIST,
    0x50: Data.UBYTE, 0x51: Data.BYTE, 0x52: Data.UINT, 0x53: Data.ULONG, 0x54: Data.INT, 0x55: Data.LONG,
    0x56: Data.BOOL, 0x60: Data.USHORT, 0x61: Data.SHORT, 0x70: Data.UINT, 0x71: Data.INT, 0x72: Data.FLOAT,
    0x73: Data.CHAR, 0x74: Data.DECIMAL32, 0x80: Data.ULONG, 0x81: Data.LONG, 0x82: Data.DOUBLE, 0x83: Data.TIMESTAMP,
    0x84: Data.DECIMAL64, 0x94: Data.DECIMAL128, 0x98: Data.UUID, 0xA0: Data.BINARY, 0xA1: Data.STRING,
    0xA3: Data.SYMBOL, 0xB0: Data.BINARY, 0xB1: Data.STRING, 0xB3: Data.SYMBOL, 0xC0: Data.LIST, 0xC1: Data.MAP,
    0xD0: Data.LIST, 0xD1: Data.MAP, 0xE0: Data.ARRAY, 0xF0: Data.ARRAY,
}  # fmt: skip
PLAIN = {of: code for code, of in ELEMENTS.items()}  # the widest code of each, for the way back


def written(value: Value) -> bytes:
    """What proton makes of the value."""
    data = Data()
    _put(data, value)
    return bytes(data.encode())


def read(octets: bytes) -> Value:
    """What proton takes the octets for; all of them."""
    data = Data()
    assert data.decode(octets) == len(octets)
    data.rewind()
    assert data.next()
    return _get(data)


def _put(data: Data, value: Value) -> None:
    if isinstance(value, Key):
        _put(data, value.value)
    elif value is None:
        data.put_null()
    elif type(value) in NAMES:
        getattr(data, f"put_{NAMES[type(value)]}")(value)
    elif isinstance(value, t.Decimal):
        _put_decimal(data, value)
    elif isinstance(value, Array):
        _put_array(data, value)
    elif isinstance(value, Described):
        data.put_described()
        _fill(data, [value.descriptor, value.value])
    elif isinstance(value, list):
        data.put_list()
        _fill(data, value)
    else:
        assert isinstance(value, dict)
        data.put_map()
        _fill(data, [each for pair in value.items() for each in pair])


def _put_decimal(data: Data, value: t.Decimal) -> None:
    if isinstance(value, t.Decimal128):
        data.put_decimal128(value.octets)
    elif isinstance(value, t.Decimal64):
        data.put_decimal64(int.from_bytes(value.octets))
    else:
        data.put_decimal32(int.from_bytes(value.octets))


def _put_array(data: Data, array: Array) -> None:
    described = array.constructor[0] == 0
    data.put_array(described, ELEMENTS[array.constructor[-1]])
    items = [item.value if isinstance(item, Described) else item for item in array.items]
    descriptor = [t.value_at(array.constructor, 1, len(array.constructor))[0]] if described else []
    _fill(data, [*descriptor, *items])


def _fill(data: Data, items: list[Value]) -> None:
    data.enter()
    for item in items:
        _put(data, item)
    data.exit()


def _get(data: Data) -> Value:
    of = data.type()
    if of == Data.NULL:
        return None
    if of in SCALARS:
        kind, name = SCALARS[of]
        found = getattr(data, f"get_{name}")()
        return found if kind is UUID else kind(found)
    if of == Data.DECIMAL32:
        return t.Decimal32(int(data.get_decimal32()).to_bytes(4))
    if of == Data.DECIMAL64:
        return t.Decimal64(int(data.get_decimal64()).to_bytes(8))
    if of == Data.DECIMAL128:
        return t.Decimal128(bytes(data.get_decimal128()))
    if of == Data.ARRAY:
        return _get_array(data)
    items = _inside(data)
    if of == Data.DESCRIBED:
        return Described(*items)
    if of == Data.LIST:
        return items
    assert of == Data.MAP
    return _map(items[::2], items[1::2])


def _inside(data: Data) -> list[Value]:
    found: list[Value] = []
    data.enter()
    while data.next():
        found.append(_get(data))
    data.exit()
    return found


def _get_array(data: Data) -> Array:
    _, described, of = data.get_array()
    items = _inside(data)
    code = bytes((PLAIN[of],))
    if not described:
        return Array(code, items)
    descriptor = items.pop(0)
    return Array(b"\0" + encode(descriptor) + code, [Described(descriptor, item) for item in items])


def _map(keys: list[Value], values: list[Value]) -> Value:
    """A map as value_at gives it."""
    octets = b"".join(encode(each) for pair in zip(keys, values, strict=True) for each in pair)
    whole = b"\xd1" + (len(octets) + 4).to_bytes(4) + (2 * len(keys)).to_bytes(4) + octets
    return t.value_at(whole, 0, len(whole))[0]
