"""AMQP 0-10 packed structs: what the generated classes of commands.py share, and how their fields are read and written.

A control, a command and a struct have the same contents: flag bytes that say which fields are present (field i is bit i
mod 8 of byte i div 8), then those fields, one after the other. A bit is its flag and takes no bytes of its own. Bytes
behind the last known field are ignored, and no field is required, because clients leave out what they like.

`x_at(data, at, end)` reads an x and returns it with the offset after it; it accepts no size that leads beyond `end`,
and raises MalformedError. `encode_x` raises ValueError for what the wire cannot represent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from struct import Struct as Layout
from struct import error as struct_error
from typing import ClassVar, Final, Self, TypeVar
from uuid import UUID

from leveret.protocols.amqp010.codec.reading import array_at
from leveret.protocols.amqp010.codec.values import MalformedError, Struct32
from leveret.protocols.amqp010.codec.writing import encode_elements, encode_str16, encode_vbin16

CODE_STR16: Final = 0x95
CODE_STRUCT32: Final = 0xAB
BYTE_RANGE: Final = Layout(">QQ")


class UnknownCommand(MalformedError):  # noqa: N818 - it names what was received
    """A control or command that is in no table."""

    def __init__(self, class_code: int, code: int) -> None:
        self.name = f"0x{class_code:02x}.0x{code:02x}"
        super().__init__(f"nobody knows {self.name}")
        self.class_code = class_code
        self.code = code


class Packed(ABC):
    """A control, command or struct. Two are equal if their classes and fields are."""

    __slots__ = ()

    CLASS_CODE: ClassVar[int]
    CODE: ClassVar[int]  # within its class
    NAME: ClassVar[str]  # 'message.transfer'
    FIELDS: ClassVar[tuple[str, ...]] = ()  # in the order of the wire and of the constructor
    SECRET: ClassVar[str] = ""  # the field that must not be printed

    @classmethod
    @abstractmethod
    def decode(cls, data: bytes, at: int, end: int) -> Self:
        """Read flags and fields from `data[at:end]`; more may follow. Raises MalformedError."""

    @abstractmethod
    def encode_fields(self) -> bytes:
        """Return the encoded flags and fields. Raises ValueError for a value that its field cannot have."""

    def fields(self) -> dict[str, object]:
        """Return every field by its name."""
        return {name: getattr(self, name) for name in self.FIELDS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and type(self) is type(other) and self.fields() == other.fields()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = {**self.fields(), self.SECRET: "***"} if self.SECRET else self.fields()
        present = [
            f"{name}={value!r}" for name, value in fields.items() if value is not None and value is not False
        ]
        return f"{type(self).__name__}({', '.join(present)})"


class Control(Packed):
    """A control: it has no command id and may be answered at once."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        CONTROLS[cls.CLASS_CODE << 8 | cls.CODE] = cls

    def encode(self) -> bytes:
        return bytes((self.CLASS_CODE, self.CODE)) + self.encode_fields()


class Command(Packed):
    """A command: it is counted, executed in order, and completed."""

    __slots__ = ()

    HAS_RESULT: ClassVar[bool] = False
    HAS_CONTENT: ClassVar[bool] = False  # whether header and body may follow it

    def __init_subclass__(cls) -> None:
        COMMANDS[cls.CLASS_CODE << 8 | cls.CODE] = cls

    def encode(self, sync: bool = False) -> bytes:
        """Return the command with the session header (its size, and the flag `sync`) in front of its fields."""
        return bytes((self.CLASS_CODE, self.CODE, 1, sync)) + self.encode_fields()


class Struct(Packed):
    """A struct, which is a field, a result, or a part of a header segment."""

    __slots__ = ()

    CODED: ClassVar[bool] = True  # whether its code is on the wire
    SIZE_WIDTH: ClassVar[int] = 4  # bytes of the size in front

    def __init_subclass__(cls) -> None:
        if cls.CODED:
            STRUCTS[cls.CLASS_CODE << 8 | cls.CODE] = cls

    def encode(self) -> bytes:
        """Return the struct with size and code in front, as its class says."""
        code = bytes((self.CLASS_CODE, self.CODE)) if self.CODED else b""
        octets = code + self.encode_fields()
        return len(octets).to_bytes(self.SIZE_WIDTH, "big") + octets if self.SIZE_WIDTH else octets

    @classmethod
    def at(cls, data: bytes, at: int, end: int) -> tuple[Self, int]:
        """Read a struct of this class with its size and code; a class without a size takes everything up to `end`."""
        begin, after = at, end
        if cls.SIZE_WIDTH:
            begin, after = _sized_at(cls.SIZE_WIDTH, data, at, end)
        if cls.CODED:
            if data[begin : min(begin + 2, after)] != bytes((cls.CLASS_CODE, cls.CODE)):
                raise MalformedError(f"{cls.NAME} has another code")
            begin += 2
        return cls.decode(data, begin, after), after


StructT = TypeVar("StructT", bound=Struct)

# By class code << 8 | code.
CONTROLS: Final[dict[int, type[Control]]] = {}
COMMANDS: Final[dict[int, type[Command]]] = {}
STRUCTS: Final[dict[int, type[Struct]]] = {}


def control_at(data: bytes, at: int, end: int) -> Control:
    """Decode the control that fills `data[at:end]`. Raises MalformedError; UnknownCommand if no table has it."""
    if at + 2 > end:
        raise MalformedError("a control is cut short")
    of = CONTROLS.get(data[at] << 8 | data[at + 1])
    if of is None:
        raise UnknownCommand(data[at], data[at + 1])
    try:
        return of.decode(data, at + 2, end)
    except MalformedError as error:
        error.class_code, error.code = of.CLASS_CODE, of.CODE
        raise


def command_at(data: bytes, at: int, end: int) -> tuple[Command, bool]:
    """Decode the command that fills `data[at:end]`; return it and whether it asks for completion. Raises as
    control_at."""
    if at + 3 > end or at + 3 + data[at + 2] > end:
        raise MalformedError("a command is cut short")
    of = COMMANDS.get(data[at] << 8 | data[at + 1])
    if of is None:
        raise UnknownCommand(data[at], data[at + 1])
    header_size = data[at + 2]  # 1 from all known clients; the flag is in the first byte
    try:
        command = of.decode(data, at + 3 + header_size, end)
    except MalformedError as error:
        error.class_code, error.code = of.CLASS_CODE, of.CODE
        raise
    return command, header_size > 0 and data[at + 3] & 1 != 0


def struct_at(data: bytes, at: int, end: int) -> tuple[Struct | Struct32, int]:
    """Decode a struct by the code behind its four-byte size; one with an unknown code becomes a Struct32."""
    begin, after = _sized_at(4, data, at, end)
    if begin + 2 > after:
        raise MalformedError("a struct has no code")
    code = data[begin] << 8 | data[begin + 1]
    of = STRUCTS.get(code)
    if of is None:
        return Struct32(code, data[begin + 2 : after]), after
    return of.decode(data, begin + 2, after), after


def uint8_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at >= end:
        raise MalformedError("an octet is missing")
    return data[at], at + 1


def uint16_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 2 > end:
        raise MalformedError("a number is cut short")
    return data[at] << 8 | data[at + 1], at + 2


def uint64_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 8 > end:
        raise MalformedError("a number is cut short")
    return int.from_bytes(data[at : at + 8], "big"), at + 8


def uuid_at(data: bytes, at: int, end: int) -> tuple[UUID, int]:
    if at + 16 > end:
        raise MalformedError("a UUID is cut short")
    return UUID(bytes=data[at : at + 16]), at + 16


def str16_at(data: bytes, at: int, end: int) -> tuple[str, int]:
    octets, at = vbin16_at(data, at, end)
    return octets.decode("utf-8", "surrogateescape"), at


def vbin8_at(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    begin, after = _sized_at(1, data, at, end)
    return data[begin:after], after


def vbin16_at(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    begin, after = _sized_at(2, data, at, end)
    return data[begin:after], after


def vbin32_at(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    begin, after = _sized_at(4, data, at, end)
    return data[begin:after], after


def byte_ranges_at(data: bytes, at: int, end: int) -> tuple[list[tuple[int, int]], int]:
    """Read pairs of the first and the last byte of each range."""
    begin, after = _sized_at(2, data, at, end)
    if (after - begin) % BYTE_RANGE.size:
        raise MalformedError("half a byte range")
    ranges: list[tuple[int, int]] = list(BYTE_RANGE.iter_unpack(data[begin:after]))
    if any(lower > upper for lower, upper in ranges):
        raise MalformedError("a byte range ends before it begins")
    return ranges, after


def str16_array_at(data: bytes, at: int, end: int) -> tuple[list[str], int]:
    array, at = array_at(data, at, end)
    if array and array.code != CODE_STR16:
        raise MalformedError(f"an array of type 0x{array.code:02x}, not of str16")
    return [str(text) for text in array], at


def structs_at(of: type[StructT], data: bytes, at: int, end: int) -> tuple[list[StructT], int]:
    """Read an array of structs of one class."""
    array, at = array_at(data, at, end)
    found: list[StructT] = []
    for item in array:
        if not isinstance(item, Struct32) or STRUCTS.get(item.code) is not of:
            raise MalformedError(f"an element of an array is no {of.NAME}")
        found.append(of.decode(item.octets, 0, len(item.octets)))
    return found, at


def _sized_at(width: int, data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the bytes behind a size of that width begin and end."""
    begin = at + width
    after = begin + int.from_bytes(data[at:begin], "big")
    if begin > end or after > end:
        raise MalformedError("a size leads beyond the end")
    return begin, after


def encode_uint8(number: int) -> bytes:
    return _encode_number(1, number)


def encode_uint16(number: int) -> bytes:
    return _encode_number(2, number)


def encode_uint32(number: int) -> bytes:
    return _encode_number(4, number)


def encode_uint64(number: int) -> bytes:
    return _encode_number(8, number)


def _encode_number(width: int, number: int) -> bytes:
    try:
        return number.to_bytes(width, "big")
    except OverflowError:
        raise ValueError(f"{number} does not fit {width} octets") from None


def encode_uuid(uuid: UUID) -> bytes:
    return uuid.bytes


def encode_byte_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    try:
        return encode_vbin16(b"".join([BYTE_RANGE.pack(lower, upper) for lower, upper in ranges]))
    except struct_error:
        raise ValueError("a byte range does not fit 64 bits") from None


def encode_str16_array(texts: Iterable[str]) -> bytes:
    return encode_elements(CODE_STR16, [encode_str16(text) for text in texts])


def encode_structs(structs: Iterable[Struct]) -> bytes:
    return encode_elements(CODE_STRUCT32, [struct.encode() for struct in structs])
