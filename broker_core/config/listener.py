"""The sections for listeners, and for what precedes a protocol's first byte, TLS aside: the PROXY protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Final

import attrs

from leveret.config.records import Record, RecordOf, key
from leveret.config.tls import TlsSettings
from leveret.config.types import (
    Address,
    AnyAddress,
    FileMode,
    Flag,
    ListeningAddress,
    ListOf,
    Problem,
    SingleValue,
    Text,
    UnixAddress,
    printed,
)


class Network(SingleValue[str]):
    """An address or a network, kept as text."""

    accepted = 'an address or a network such as "10.0.0.0/8" or "fd00::/8"'

    def convert(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        return str(ip_network(value))

    def from_text(self, text: str) -> object:
        return text


class WebOrigin(SingleValue[str]):
    """The site of web pages (RFC 6454), in lower case."""

    accepted = 'a site such as "https://app.example" or "http://localhost:8000"'

    def convert(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+", value.lower()):
            raise ValueError
        return value.lower()

    def from_text(self, text: str) -> object:
        return text


def _idle_origins(websocket: bool, origins: tuple[str, ...]) -> Iterator[Problem]:
    if origins and not websocket:
        yield Problem("websocket_origins", printed(list(origins)), "nothing, as websocket is false")


SOCKET_MODE: Final = "0660"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ListenerEntry(Record):
    """An address to accept connections on. Without any, the node listens on 127.0.0.1:5672 and [::1]:5672."""

    address: AnyAddress = key(
        ListeningAddress(),
        "The address; a name means each of its addresses, port 0 any free port, `unix:` a Unix domain socket.",
    )
    socket: str | None = key(
        Text(),
        "The name of the sockets that systemd opens for this listener (FileDescriptorName); without it those with "
        "this address are taken.",
        None,
    )
    socket_mode: str = key(
        FileMode(),
        'The permissions of the file of a Unix domain socket: clients need to write to it. "0666" for clients of any '
        "user of the machine.",
        SOCKET_MODE,
    )
    socket_owner: str | None = key(
        Text(),
        "The owner of that file, as USER, USER:GROUP or :GROUP; without it, the user that runs the node. `:GROUP` for "
        "clients of the users of a group.",
        None,
    )
    protocols: tuple[str, ...] | None = key(
        ListOf(Text(), least=1),
        "The names of the protocols served here; without it every enabled one, but for those that a listener has to "
        "name: `mqtt`, `http`, `prometheus`.",
        None,
    )
    virtual_host: str | None = key(
        Text("the name of a virtual host"),
        "The virtual host of clients that name none; without it the first one of the configuration, or as a "
        "protocol's own settings say. Set it for programs that cannot name one.",
        None,
    )
    tls: TlsSettings | None = key(RecordOf(TlsSettings), "TLS; without it connections are plain.", None)
    proxy_protocol: bool = key(
        Flag(),
        "Require the header of the PROXY protocol, version 1 or 2; connections without it are dropped. True behind a "
        "load balancer that sends it, so that addresses are those of clients.",
        False,
    )
    proxy_from: tuple[str, ...] = key(
        ListOf(Network(), least=1),
        "The proxies that are trusted; connections from others are dropped. Others where the proxies are on other "
        "machines.",
        ("127.0.0.0/8", "::1/128"),
    )
    websocket: bool = key(
        Flag(),
        "Whether clients come over WebSockets; of a listener with HTTP, those that ask for `/ws` do. True for "
        "programs in browsers, and behind proxies that let HTTP through only.",
        False,
    )
    websocket_origins: tuple[str, ...] = key(
        ListOf(WebOrigin()),
        "The sites whose pages may open a WebSocket, besides pages of the listener's own host and port.",
        (),
    )

    def contradictions(self) -> Iterator[Problem]:
        if not isinstance(self.address, UnixAddress) or self.address.is_abstract:
            accepted = "a listener on unix:/PATH, which has a file"
            if self.socket_mode != SOCKET_MODE:
                yield Problem("socket_mode", printed(self.socket_mode), accepted)
            if self.socket_owner is not None:
                yield Problem("socket_owner", printed(self.socket_owner), accepted)
        yield from _idle_origins(self.websocket, self.websocket_origins)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class HttpSettings(Record):
    """The HTTP endpoint, which `leveret status` and other commands use."""

    enabled: bool = key(
        Flag(),
        "Serve it. False where none of its users is wanted: neither commands, nor the page, nor metrics.",
        True,
    )
    address: AnyAddress = key(
        ListeningAddress(),
        "The address to listen on. Another, with TLS, for operators and monitoring on other machines.",
        Address("127.0.0.1", 15672),
    )
    tls: TlsSettings | None = key(RecordOf(TlsSettings), "TLS; without it connections are plain.", None)
    websocket: bool = key(
        Flag(),
        "Serve AMQP over WebSockets at `/ws`. True for programs in browsers.",
        False,
    )
    websocket_origins: tuple[str, ...] = key(
        ListOf(WebOrigin()), "The sites whose pages may open a WebSocket, besides the node's own.", ()
    )

    def contradictions(self) -> Iterator[Problem]:
        yield from _idle_origins(self.websocket, self.websocket_origins)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PrometheusSettings(Record):
    """A listener for Prometheus only, without login. The HTTP endpoint has the metrics as well."""

    enabled: bool = key(
        Flag(),
        "Serve it. True where Prometheus is to have no password, or must not reach the HTTP endpoint.",
        False,
    )
    address: AnyAddress = key(
        ListeningAddress(),
        "The address to listen on. Another for a Prometheus on another machine.",
        Address("127.0.0.1", 15692),
    )
    tls: TlsSettings | None = key(RecordOf(TlsSettings), "TLS; without it connections are plain.", None)
