"""Parse the PROXY protocol, versions 1 and 2: the header in which a proxy names its client. Pure functions.

The source is HAProxy's specification, `proxy-protocol.txt`. Extensions (TLVs) are skipped.
"""

from __future__ import annotations

import re
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import attrs

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"  # version 2
START: Final = struct.Struct("!12sBBH")
ADDRESSES: Final = {
    0x11: (IPv4Address, struct.Struct("!4s4sHH")),
    0x21: (IPv6Address, struct.Struct("!16s16sHH")),
}
LOCAL: Final = 0x20
PROXY: Final = 0x21
HEADER_MAX: Final = 4096  # bytes of version 2, with extensions such as a client's certificate
LINE: Final = b"PROXY "  # version 1
LINE_MAX: Final = 107
LINE_FORM: Final = re.compile(
    rb"PROXY (TCP4|TCP6) ([0-9A-Fa-f.:]+) ([0-9A-Fa-f.:]+) (0|[1-9]\d{0,4}) (0|[1-9]\d{0,4})"
)


class BadHeader(Exception):  # noqa: N818 - its text is for the log
    """The header is missing or malformed; the text is for the log."""


@attrs.frozen
class ProxiedRoute:
    """The two ends of the connection between client and proxy."""

    host: str
    port: int
    local_host: str
    local_port: int

    @property
    def from_loopback(self) -> bool:
        """Return whether the client is on the proxy's own machine."""
        address = ip_address(self.host)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback


@attrs.frozen
class ProxyHeader:
    """A whole header: its size in bytes, and the route; None if the proxy does not know it, or is the client."""

    size: int
    route: ProxiedRoute | None


def header_in(octets: bytes) -> ProxyHeader | None:
    """Return the header at the start of the bytes; None if it is not complete yet. Raises BadHeader."""
    if octets.startswith(SIGNATURE[: len(octets)]):
        return _binary(octets)
    if octets.startswith(LINE[: len(octets)]):
        return _line(octets)
    raise BadHeader("no PROXY header")


def _line(octets: bytes) -> ProxyHeader | None:
    end = octets.find(b"\r\n", 0, LINE_MAX)
    if end < 0:
        if len(octets) >= LINE_MAX:
            raise BadHeader(f"a PROXY line without an end in {LINE_MAX} octets")
        return None
    line, size = octets[:end], end + 2
    if line == b"PROXY UNKNOWN" or line.startswith(b"PROXY UNKNOWN "):
        return ProxyHeader(size, None)
    match = LINE_FORM.fullmatch(line)
    if match is None:
        raise BadHeader("a PROXY line that is malformed")
    kind = IPv4Address if match[1] == b"TCP4" else IPv6Address
    try:
        host, local_host = (str(kind(match[at].decode("ascii"))) for at in (2, 3))
    except ValueError:
        raise BadHeader("a PROXY line with malformed addresses") from None
    port, local_port = int(match[4]), int(match[5])
    if max(port, local_port) > 65535:
        raise BadHeader("a PROXY line with a port beyond 65535")
    return ProxyHeader(size, ProxiedRoute(host, port, local_host, local_port))


def _binary(octets: bytes) -> ProxyHeader | None:
    if len(octets) < START.size:
        return None
    _, command, family, length = START.unpack_from(octets)
    size = START.size + length
    if command not in (LOCAL, PROXY):
        raise BadHeader(f"a PROXY header of version {command >> 4} with command {command & 15}")
    if size > HEADER_MAX:
        raise BadHeader(f"a PROXY header of {size} octets")
    if len(octets) < size:
        return None
    if command == LOCAL or family not in ADDRESSES:
        return ProxyHeader(size, None)
    kind, form = ADDRESSES[family]
    if length < form.size:
        raise BadHeader("a PROXY header that is too short for its addresses")
    source, destination, port, local_port = form.unpack_from(octets, START.size)
    return ProxyHeader(size, ProxiedRoute(str(kind(source)), port, str(kind(destination)), local_port))
