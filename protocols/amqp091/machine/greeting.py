"""Recognition of peers that do not speak 0-9-1 by their first eight bytes, and the answer to them."""

from typing import Final

HEADER_0_9_1: Final = b"AMQP\x00\x00\x09\x01"
HEADER_0_9: Final = b"AMQP\x01\x01\x00\x09"
HEADERS: Final = frozenset((HEADER_0_9_1, HEADER_0_9))
HEADER_OTHERWISE: Final = b"AMQP\x03\x01\x00\x00"  # AMQP 1.0 with SASL
OTHER_AMQP: Final = {
    b"\x00\x01\x00\x00": "AMQP 1.0",
    b"\x03\x01\x00\x00": "AMQP 1.0 with SASL",
    b"\x02\x01\x00\x00": "AMQP 1.0 with TLS",
    b"\x01\x01\x00\x0a": "AMQP 0-10, which is served where protocols.amqp010.enabled is true",
    b"\x01\x01\x08\x00": "AMQP 0-8",
    b"\x01\x01\x09\x01": "AMQP 0-8",  # as some of its libraries write it
    b"\x01\x01\x00\x08": "AMQP 0-8",
    b"\x00\x00\x08\x00": "AMQP 0-8",
}
# How headers of other versions begin whose clients understand the header of 0-9-1 sooner than that of 1.0.
RELATIVES: Final = (
    b"AMQP\x00\x00",
    b"AMQP\x01\x01\x08",
    b"AMQP\x01\x01\x09",
    b"AMQP\x01\x01\x00\x08",
)
HTTP_METHODS: Final = frozenset(
    ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "PATCH", "PRI")
)
HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 24\r\n"
    b"Connection: close\r\n\r\nThis port speaks AMQP.\r\n"
)
TLS_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x46"  # fatal, protocol version


def recognise(header: bytes, serves_1_0: bool = True) -> tuple[str, bytes]:
    """Return the protocol of a peer whose first eight bytes are not ours, and the bytes to answer (S003).

    `serves_1_0`: AMQP 1.0 with SASL is served on this port.
    """
    otherwise = HEADER_OTHERWISE if serves_1_0 else HEADER_0_9_1
    verb = header.split(b" ")[0].decode("latin-1")
    if verb in HTTP_METHODS:
        return f"HTTP {verb}", HTTP_ANSWER
    if header[:2] == b"\x16\x03":
        return "TLS", TLS_ALERT
    if header[:4] != b"AMQP":
        return "an unknown protocol", otherwise
    spoke = OTHER_AMQP.get(header[4:], "an unknown version of AMQP")
    return spoke, HEADER_0_9_1 if header.startswith(RELATIVES) else otherwise
