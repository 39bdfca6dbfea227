"""Name the client of a relayed connection to the node that serves: a PROXY header, version 2, that only nodes can make.

    standby ── PROXY v2: client's address, listener, code ──> owner's `cluster.address` ── then the client's bytes

The owner makes a key at each takeover and writes it into the row of the shard, beside its address: those that can read
the row are nodes of the cluster. The code is an HMAC of all that stands before it in the header. The client's own bytes
follow as they are, TLS or another PROXY header included, and are treated as the named listener treats them.

The source of the form is HAProxy's specification, `proxy-protocol.txt`: 0xE0 to 0xEF are types for own use.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from ipaddress import IPv4Address, ip_address
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


def introduction(client: ProxiedRoute | None, listener: str, key: bytes) -> bytes:
    """Return the header that goes before a client's bytes; None: a client without an address, of a Unix socket."""
    command, family, addresses = LOCAL, UNKNOWN, b""
    if client is not None:
        host, local_host = ip_address(client.host), ip_address(client.local_host)
        command, family = PROXY, IPV4 if isinstance(host, IPv4Address) else IPV6
        ports = client.port, client.local_port
        addresses = ADDRESSES[family][1].pack(host.packed, local_host.packed, *ports)
    name = listener.encode()
    length = len(addresses) + FIELD.size + len(name) + FIELD.size + CODE_SIZE
    head = START.pack(SIGNATURE, command, family, length) + addresses
    head += FIELD.pack(LISTENER, len(name)) + name + FIELD.pack(CODE, CODE_SIZE)
    return head + hmac.digest(key, head, "sha256")


def listener_of(header: bytes, key: bytes) -> str:
    """Return the listener that a whole header names. Raises BadHeader if no node of the cluster has made it."""
    head, code = header[:-CODE_SIZE], header[-CODE_SIZE:]
    if not hmac.compare_digest(code, hmac.digest(key, head, "sha256")):
        raise BadHeader("a header that no node of the cluster has made for this owner")
    family = head[START.size - 3]
    at = START.size + (ADDRESSES[family][1].size if family in ADDRESSES else 0)
    while at + FIELD.size <= len(head):
        kind, length = FIELD.unpack_from(head, at)
        at += FIELD.size
        if kind == LISTENER:
            return head[at : at + length].decode()
        at += length
    raise BadHeader("a header without a listener")
