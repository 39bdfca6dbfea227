"""The protocol header, the first eight bytes of a connection, and the recognition of peers that speak another
protocol."""

from typing import Final

HEADER: Final = b"AMQP\x01\x01\x00\x0a"  # also the answer to any other header
OTHER_AMQP: Final = {
    b"\x00\x00\x09\x01": "AMQP 0-9-1",
    b"\x01\x01\x00\x09": "AMQP 0-9",
    b"\x01\x01\x08\x00": "AMQP 0-8",
    b"\x00\x01\x00\x00": "AMQP 1.0",
    b"\x03\x01\x00\x00": "AMQP 1.0 with SASL",
    b"\x02\x01\x00\x00": "AMQP 1.0 with TLS",
}
HTTP_METHODS: Final = frozenset(
    ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "PATCH", "PRI")
)


def recognise(octets: bytes) -> str:
    """Return the name of the protocol that begins with these bytes."""
    verb = octets.split(b" ")[0].decode("latin-1")
    if verb in HTTP_METHODS:
        return f"HTTP {verb}"
    if octets[:2] == b"\x16\x03":
        return "TLS"
    if octets[:4] != b"AMQP":
        return "an unknown protocol"
    return OTHER_AMQP.get(octets[4:], "an unknown version of AMQP")
