"""PROXY headers as octets: whole, in every division, and what is none."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.server.node.proxy_protocol import (
    HEADER_MAX,
    LINE_MAX,
    SIGNATURE,
    BadHeader,
    ProxiedRoute,
    ProxyHeader,
    header_in,
)


def binary(
    source: str, destination: str, port: int, local_port: int, *, command: int = 0x21, more: bytes = b""
) -> bytes:
    """Version 2, from the specification's figures."""
    family = 0x11 if ip_address(source).version == 4 else 0x21
    ports = struct.pack("!HH", port, local_port)
    addresses = ip_address(source).packed + ip_address(destination).packed + ports + more
    return SIGNATURE + struct.pack("!BBH", command, family, len(addresses)) + addresses


FOUR = ProxiedRoute("192.0.2.7", 40000, "198.51.100.1", 5671)
SIX = ProxiedRoute("2001:db8::7", 40000, "2001:db8::1", 5671)
UNIX = SIGNATURE + struct.pack("!BBH", 0x21, 0x31, 216) + bytes(216)
LOCAL = SIGNATURE + struct.pack("!BBH", 0x20, 0, 0)
UNSPECIFIED = SIGNATURE + struct.pack("!BBH", 0x21, 0, 0)
EXTENSIONS = b"\x04\x00\x05hello" + b"\x20\x00\x01\x00"

HEADERS = {
    "version 1, IPv4": (b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5671\r\n", FOUR),
    "version 1, IPv6": (b"PROXY TCP6 2001:db8::7 2001:DB8::1 40000 5671\r\n", SIX),
    "version 1, unknown": (b"PROXY UNKNOWN\r\n", None),
    "version 1, unknown with addresses": (
        b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n",
        None,
    ),
    "version 2, IPv4": (binary("192.0.2.7", "198.51.100.1", 40000, 5671), FOUR),
    "version 2, IPv6": (binary("2001:db8::7", "2001:db8::1", 40000, 5671), SIX),
    "version 2, with extensions": (binary("192.0.2.7", "198.51.100.1", 40000, 5671, more=EXTENSIONS), FOUR),
    "version 2, local": (LOCAL, None),
    "version 2, local with addresses": (binary("192.0.2.7", "198.51.100.1", 1, 2, command=0x20), None),
    "version 2, Unix sockets": (UNIX, None),
    "version 2, unspecified": (UNSPECIFIED, None),
}


@pytest.mark.parametrize(("octets", "route"), HEADERS.values(), ids=HEADERS)
def test_a_header_is_read_whole_whatever_follows_and_waited_for_at_every_octet(
    octets: bytes, route: ProxiedRoute | None
):
    assert header_in(octets) == ProxyHeader(len(octets), route)
    assert header_in(octets + b"AMQP\0\0\x09\x01") == ProxyHeader(len(octets), route)
    assert {header_in(octets[:size]) for size in range(len(octets))} == {None}


LARGEST = HEADER_MAX - 16 - 12
WRONG = {
    "an AMQP header": (b"AMQP\0\0\x09\x01", "no PROXY header"),
    "TLS": (b"\x16\x03\x01", "no PROXY header"),
    "one wrong octet": (b"X", "no PROXY header"),
    "almost the signature": (SIGNATURE[:11] + b"?", "no PROXY header"),
    "a line without end": (b"PROXY TCP4 " + b"1" * LINE_MAX, "without an end"),
    "another family": (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", "malformed"),
    "too few fields": (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "malformed"),
    "a port too large": (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n", "beyond 65535"),
    "a port with a zero before it": (b"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n", "malformed"),
    "no address": (b"PROXY TCP4 1.2.3.4.5 1.2.3.4 1 2\r\n", "malformed addresses"),
    "an address of the other family": (b"PROXY TCP4 ::1 ::1 1 2\r\n", "malformed addresses"),
    "version 3": (SIGNATURE + b"\x31\x11\0\x0c" + bytes(12), "version 3"),
    "an unknown command": (SIGNATURE + b"\x22\x11\0\x0c" + bytes(12), "command 2"),
    "too short for its addresses": (SIGNATURE + b"\x21\x11\0\x0b" + bytes(11), "too short"),
    "too large": (binary("1.2.3.4", "1.2.3.4", 1, 2, more=bytes(LARGEST + 1)), f"{HEADER_MAX + 1} octets"),
}


@pytest.mark.parametrize(("octets", "why"), WRONG.values(), ids=WRONG)
def test_what_is_no_header_is_refused_in_words(octets: bytes, why: str):
    with pytest.raises(BadHeader, match=why):
        header_in(octets)


def test_the_largest_header_is_read():
    octets = binary("192.0.2.7", "198.51.100.1", 40000, 5671, more=bytes(LARGEST))
    assert header_in(octets) == ProxyHeader(HEADER_MAX, FOUR)


def test_a_size_that_is_too_large_is_refused_before_anything_of_it_has_come():
    with pytest.raises(BadHeader, match="65551 octets"):
        header_in(SIGNATURE + b"\x21\x11\xff\xff")


@given(st.sampled_from((b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11")), st.binary())
def test_nothing_breaks_it_and_nothing_is_waited_for_without_end(start: bytes, rest: bytes):
    octets = start + rest
    try:
        header = header_in(octets)
    except BadHeader:
        return
    if header is None:
        assert len(octets) < HEADER_MAX
    else:
        assert header.size <= len(octets)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_known_in_every_notation(host: str):
    assert ProxiedRoute(host, 1, host, 2).from_loopback


@pytest.mark.parametrize("host", ["128.0.0.1", "::2", "::ffff:10.0.0.1", "10.0.0.1"])
def test_other_addresses_are_not_loopback(host: str):
    assert not ProxiedRoute(host, 1, host, 2).from_loopback
