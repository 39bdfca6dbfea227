"""Integer and float types that know their width on the wire, so that a value goes out as wide as it came in."""


class Number(int):
    """An integer that knows its width, and prints like any other."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class Int8(Number):
    __slots__ = ()


class UInt8(Number):
    __slots__ = ()


class Int16(Number):
    __slots__ = ()


class UInt16(Number):
    __slots__ = ()


class Int32(Number):
    __slots__ = ()


class UInt32(Number):
    __slots__ = ()


class UInt64(Number):
    __slots__ = ()


class Float32(float):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"Float32({float(self)})"

    __str__ = float.__repr__
