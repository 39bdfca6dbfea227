"""A message of a protocol that is none of ours: its properties are neutral, and its bytes do not matter."""

from __future__ import annotations

from leveret.message import Encoding
from leveret.values import Properties, Table


class ForeignEncoding(Encoding):
    """The encoding of one message; None as its properties is a mistake in that protocol."""

    name = "foreign"

    def __init__(self, properties: Properties | None) -> None:
        self.properties = properties
        self.reads = 0

    def headers(self, properties: bytes) -> Table:
        return self.read(properties).headers or {}

    def read(self, properties: bytes) -> Properties:
        self.reads += 1
        if self.properties is None:
            raise ValueError("a mistake in another protocol")
        return self.properties

    def write(self, properties: Properties) -> bytes:
        self.properties = properties
        return b"written"
