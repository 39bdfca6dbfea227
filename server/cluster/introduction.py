"""Name the client of a relayed connection to the node that serves: a PROXY header, version 2, that only nodes can make.

    standby ── PROXY v2: address, listener, serial, code ──> owner's `cluster.address` ── then the client's bytes

The owner makes a key at each takeover and writes it into the row of the shard, beside its address: those that can read
the row are nodes of the cluster. The code is an HMAC of all that stands before it in the header. The serial is the name
of a relay, made at its start, and a number that is used once. The owner remembers those that it has seen in a window,
as in RFC 4303, section 3.4.3: a header that was captured opens no other connection, and clocks do not matter. The
client's own bytes follow as they are, TLS or another PROXY header included, and are treated as the named listener
treats them.

A node that has taken over tells its predecessor so by such a header, as that may be cut off from the database: made
with the predecessor's key, without a client, and with its own announcement, whose key is encrypted.

The source of the form is HAProxy's specification, `proxy-protocol.txt`: 0xE0 to 0xEF are types for own use.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, ip_address
from itertools import count
from typing import Final

import attrs

from leveret.config.types import Address
from leveret.server.node.proxy_protocol import (
    ADDRESSES,
    LOCAL,
    PROXY,
    SIGNATURE,
    START,
    BadHeader,
    ProxiedRoute,
)

LISTENER: Final = 0xE0  # the listener that the client has connected to, by its place in the configuration
CODE: Final = 0xE1
SERIAL: Final = 0xE2
NEWS: Final = 0xE3
TAKEOVER: Final = "takeover"  # in the place of a listener: there are news
SERIALS: Final = struct.Struct("!16sQ")  # the relay's name, and a number
NAME_SIZE: Final = 16
WINDOW: Final = 1 << 16  # numbers: those of connections that are made at the same time come in any order
FIELD: Final = struct.Struct("!BH")  # type and length of a field (TLV)
CODE_SIZE: Final = hashlib.sha256().digest_size
KEY_SIZE: Final = 32
UNKNOWN: Final = 0x00  # the family of a client whose address is not told
IPV4: Final = 0x11
IPV6: Final = 0x21


@attrs.frozen
class Announcement:
    """The text that an owner writes into the row: where it is reached, and the key of those that may relay."""

    address: Address
    key: bytes = attrs.field(repr=False)

    def __str__(self) -> str:
        """Return the text of the row. It has the key: it is not for logs."""
        return f"{self.address}/{self.key.hex()}"

    @classmethod
    def parse(cls, text: str | None) -> Announcement | None:
        """Return what an owner has written; None if it is something else, such as the name of an heir."""
        where, _, key = (text or "").rpartition("/")
        host, colon, port = where.rpartition(":")
        try:
            return cls(Address(host.strip("[]"), int(port)), bytes.fromhex(key)) if colon and key else None
        except ValueError:
            return None


class Serials:
    """The serials of one relay: its name, and the numbers that it uses once each."""

    def __init__(self, name: bytes) -> None:
        """`name` has `NAME_SIZE` bytes, and is that of no other relay."""
        self._name = name
        self._numbers = count()

    def next(self) -> bytes:
        return SERIALS.pack(self._name, next(self._numbers))


class SeenSerials:
    """The serials that an owner has seen under its key."""

    def __init__(self) -> None:
        # By relay: the highest number, and a bit for each of the `WINDOW` numbers up to it, the highest first.
        self._seen: dict[bytes, tuple[int, int]] = {}

    def take(self, serial: bytes) -> None:
        """Take note of a serial. Raises BadHeader if it was seen before, or is too old to be known."""
        name, number = SERIALS.unpack(serial)
        highest, bits = self._seen.get(name, (number, 0))
        if number > highest:
            bits = (bits << min(number - highest, WINDOW)) & ((1 << WINDOW) - 1)
            highest = number
        age = highest - number
        if age >= WINDOW or bits >> age & 1:
            raise BadHeader("a header that was used before")
        self._seen[name] = highest, bits | 1 << age


@attrs.frozen
class Succession:
    """The news that a node has taken over: its name, its epoch, and where it is reached."""

    node: str
    epoch: int
    announcement: Announcement


def introduction(client: ProxiedRoute | None, listener: str, key: bytes, serial: bytes) -> bytes:
    """Return the header that goes before a client's bytes; None: a client without an address, of a Unix socket."""
    command, family, addresses = LOCAL, UNKNOWN, b""
    if client is not None:
        host, local_host = ip_address(client.host), ip_address(client.local_host)
        command, family = PROXY, IPV4 if isinstance(host, IPv4Address) else IPV6
        ports = client.port, client.local_port
        addresses = ADDRESSES[family][1].pack(host.packed, local_host.packed, *ports)
    start = command, family, addresses
    return _signed(start, ((LISTENER, listener.encode()), (SERIAL, serial)), key)


def notice(news: Succession, key: bytes, serial: bytes) -> bytes:
    """Return the header that tells a predecessor of a takeover; `key` is the predecessor's."""
    own = news.announcement
    hidden = Announcement(own.address, _mixed(own.key, key, serial))
    text = f"{news.epoch} {news.node} {hidden}".encode()
    return _signed(
        (LOCAL, UNKNOWN, b""), ((LISTENER, TAKEOVER.encode()), (SERIAL, serial), (NEWS, text)), key
    )


def _signed(start: tuple[int, int, bytes], fields: Sequence[tuple[int, bytes]], key: bytes) -> bytes:
    """Return a whole header: command, family and addresses, fields, and the code of all that."""
    command, family, addresses = start
    rest = b"".join([addresses, *[FIELD.pack(kind, len(value)) + value for kind, value in fields]])
    head = START.pack(SIGNATURE, command, family, len(rest) + FIELD.size + CODE_SIZE) + rest
    head += FIELD.pack(CODE, CODE_SIZE)
    return head + hmac.digest(key, head, "sha256")


def _mixed(secret: bytes, key: bytes, serial: bytes) -> bytes:
    """Encrypt a key, or decrypt it, with octets that no other header has, as no other has its serial."""
    stream = hmac.digest(key, TAKEOVER.encode() + serial, "sha256")
    return bytes(one ^ other for one, other in zip(secret, stream, strict=True))


def listener_of(
    header: bytes, key: bytes, seen: SeenSerials, told: Callable[[Succession], None] = lambda news: None
) -> str:
    """Return the listener that a whole header names. What it has instead may be news, of which `told` is told then.

    Raises BadHeader if no node of the cluster has made it for this owner, if it was used before, or if there is no
    client.
    """
    head, code = header[:-CODE_SIZE], header[-CODE_SIZE:]
    if not hmac.compare_digest(code, hmac.digest(key, head, "sha256")):
        raise BadHeader("a header that no node of the cluster has made for this owner")
    family = head[START.size - 3]
    at = START.size + (ADDRESSES[family][1].size if family in ADDRESSES else 0)
    fields: dict[int, bytes] = {}
    while at + FIELD.size <= len(head):
        kind, length = FIELD.unpack_from(head, at)
        at += FIELD.size
        fields[kind] = head[at : at + length]
        at += length
    if LISTENER not in fields or len(fields.get(SERIAL, b"")) != SERIALS.size:
        raise BadHeader("a header without a listener or a serial")
    seen.take(fields[SERIAL])
    if NEWS in fields:
        news = _news(fields[NEWS].decode(), key, fields[SERIAL])
        told(news)
        raise BadHeader(f"it is not a client, but the news that node {news.node} has taken over")
    return fields[LISTENER].decode()


def _news(text: str, key: bytes, serial: bytes) -> Succession:
    epoch, node, hidden = text.split(" ")
    found = Announcement.parse(hidden)
    if found is None or len(found.key) != KEY_SIZE:
        raise BadHeader("news that cannot be read")
    return Succession(node, int(epoch), Announcement(found.address, _mixed(found.key, key, serial)))
