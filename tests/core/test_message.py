"""Messages: what the core reads of them, and what it leaves alone."""

from __future__ import annotations

import pytest

from leveret.message import NO_FACTS, Encoding, Facts, Message
from leveret.values import Properties, Table


class Counting(Encoding):
    """Says what it is asked for."""

    name = "counting"

    def __init__(self) -> None:
        self.asked = 0

    def headers(self, properties: bytes) -> Table:
        self.asked += 1
        return {"raw": properties}

    def read(self, properties: bytes) -> Properties:
        return Properties(message_id=properties.decode(), headers=self.headers(properties))

    def write(self, properties: Properties) -> bytes:
        return b""


def test_a_message_keeps_its_publishers_bytes_and_counts_its_body() -> None:
    message = Message(Counting(), "x", "k", b"props", b"body")
    assert (message.properties, message.body, message.size) == (b"props", b"body", 4)
    assert (message.facts, message.notes, message.converted) == (NO_FACTS, None, None)


def test_s091_its_keys_are_its_own_then_cc_then_bcc() -> None:
    assert Message(Counting(), "", "k", b"", b"").keys == ("k",)
    assert Message(Counting(), "", "k", b"", b"", Facts(cc=("c", "k"), bcc=("b",))).keys == (
        "k",
        "c",
        "k",
        "b",
    )


def test_headers_are_decoded_only_if_there_are_any() -> None:
    encoding = Counting()
    assert Message(encoding, "", "", b"p", b"").headers == {}
    assert encoding.asked == 0
    assert Message(encoding, "", "", b"p", b"", Facts(has_headers=True)).headers == {"raw": b"p"}


def test_one_property_is_read_by_its_neutral_name() -> None:
    assert Counting().property(b"id", "message_id") == "id"
    assert Counting().property(b"id", "reply_to") is None
    with pytest.raises(AttributeError):
        Counting().property(b"id", "delivery_mode")  # one protocol's word


class Written(Encoding):
    """Properties that come back as they were written; one message at a time."""

    name = "written"

    def __init__(self, properties: Properties) -> None:
        self.properties = properties

    def headers(self, properties: bytes) -> Table:
        return self.properties.headers or {}

    def read(self, properties: bytes) -> Properties:
        return self.properties

    def write(self, properties: Properties) -> bytes:
        self.properties = properties
        return b"written"


def test_a_body_is_plain_octets_unless_its_encoding_says_otherwise() -> None:
    properties = Properties(message_id="m")
    message = Message(Written(properties), "", "", b"", b"body")
    assert message.encoding.convert(message) == (properties, b"body")


def test_headers_are_added_and_replaced_and_nothing_else_changes() -> None:
    encoding = Written(Properties(message_id="m", headers={"a": 1, "b": 2}))
    assert encoding.with_headers(b"", {"b": 3, "c": 4}) == b"written"
    assert encoding.properties == Properties(message_id="m", headers={"a": 1, "b": 3, "c": 4})
    bare = Written(Properties())
    bare.with_headers(b"", {"a": 1})
    assert bare.properties.headers == {"a": 1}
