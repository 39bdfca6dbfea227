"""The sections for listeners, and for what precedes a protocol's first byte: TLS and the PROXY protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import attrs

from leveret.config.records import Record, RecordOf, key
from leveret.config.types import (
    Address,
    AnyAddress,
    FileMode,
    FilePath,
    Flag,
    ListeningAddress,
    ListOf,
    OneOf,
    Problem,
    Secret,
    SingleValue,
    TableOf,
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


@attrs.frozen(kw_only=True, eq=False, repr=False)
class CertificateSettings(Record):
    """A certificate for further names, which clients ask for by SNI."""

    certificate: Path = key(
        FilePath(), "The file (PEM) with the certificate, followed by the intermediate ones up to its CA."
    )
    private_key: Path = key(FilePath(), "The file (PEM) with its private key.", name="key")
    key_password: str | None = key(Secret(), "The password of the private key, if it has one.", None)
    key_password_file: Path | None = key(
        FilePath(), "The file with that password; its last line end is dropped.", None
    )

    def contradictions(self) -> Iterator[Problem]:
        if self.key_password is not None and self.key_password_file is not None:
            yield Problem("key_password_file", "key_password as well", "one of the two")


LOGIN_FROM: Final = ("distinguished_name", "common_name", "san_dns", "san_email", "san_uri", "san_ip")
NO_NAMES: Final[Mapping[str, CertificateSettings]] = {}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TlsSettings(CertificateSettings):
    """TLS, from a connection's first byte, for all or for those that begin with it; without this table all are plain.

    The files are read at the start and again at every reload, for connections that are opened afterwards.
    """

    required: bool = key(
        Flag(),
        "Whether every connection has to begin with TLS; if not, one that begins with anything else is plain.",
        True,
    )
    minimum_version: str = key(OneOf("1.2", "1.3"), "The oldest version of TLS that is accepted.", "1.2")
    server_names: Mapping[str, CertificateSettings] = key(
        TableOf(RecordOf(CertificateSettings), "a table for each name"),
        "Other certificates, by the name that clients ask for (SNI).",
        NO_NAMES,
    )
    client_certificate: str = key(
        OneOf("none", "optional", "required"),
        "Whether clients are asked for a certificate, and must have one.",
        "none",
    )
    client_ca: Path | None = key(
        FilePath(), "The file (PEM) with the CAs that may have signed clients' certificates.", None
    )
    login_from: str = key(
        OneOf(*LOGIN_FROM),
        "The part of a client's certificate that names the user that EXTERNAL logs in.",
        "distinguished_name",
    )

    def contradictions(self) -> Iterator[Problem]:
        yield from super().contradictions()
        if self.client_ca is None and self.client_certificate != "none":
            yield Problem(
                "client_ca", "nothing", f'a file, as client_certificate is "{self.client_certificate}"'
            )
        if self.client_ca is not None and self.client_certificate == "none":
            yield Problem("client_certificate", '"none"', '"optional" or "required", as there is a client_ca')
        if self.client_certificate == "required" and not self.required:
            yield Problem("required", "false", 'true, as client_certificate is "required"')


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
        "The permissions of the file of a Unix domain socket: clients need to write to it.",
        SOCKET_MODE,
    )
    socket_owner: str | None = key(
        Text(),
        "The owner of that file, as USER, USER:GROUP or :GROUP; without it, the user that runs the node.",
        None,
    )
    protocols: tuple[str, ...] | None = key(
        ListOf(Text(), least=1),
        "The names of the protocols served here; without it every enabled one.",
        None,
    )
    virtual_host: str | None = key(
        Text("the name of a virtual host"),
        "The virtual host of clients that name none; without it the first one of the configuration, or as a protocol's "
        "own settings say.",
        None,
    )
    tls: TlsSettings | None = key(RecordOf(TlsSettings), "TLS; without it connections are plain.", None)
    proxy_protocol: bool = key(
        Flag(),
        "Require the header of the PROXY protocol, version 1 or 2; connections without it are dropped.",
        False,
    )
    proxy_from: tuple[str, ...] = key(
        ListOf(Network(), least=1),
        "The proxies that are trusted; connections from others are dropped.",
        ("127.0.0.0/8", "::1/128"),
    )
    websocket: bool = key(
        Flag(),
        "Whether clients come over WebSockets; of a listener with HTTP, those that ask for `/ws` do.",
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

    enabled: bool = key(Flag(), "Serve it.", True)
    address: AnyAddress = key(ListeningAddress(), "The address to listen on.", Address("127.0.0.1", 15672))
    tls: TlsSettings | None = key(RecordOf(TlsSettings), "TLS; without it connections are plain.", None)
    websocket: bool = key(Flag(), "Serve AMQP over WebSockets at `/ws`.", False)
    websocket_origins: tuple[str, ...] = key(
        ListOf(WebOrigin()), "The sites whose pages may open a WebSocket, besides the node's own.", ()
    )

    def contradictions(self) -> Iterator[Problem]:
        yield from _idle_origins(self.websocket, self.websocket_origins)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PrometheusSettings(Record):
    """A listener for Prometheus only, without login. The HTTP endpoint has the metrics as well."""

    enabled: bool = key(Flag(), "Serve it.", False)
    address: AnyAddress = key(ListeningAddress(), "The address to listen on.", Address("127.0.0.1", 15692))
    tls: TlsSettings | None = key(RecordOf(TlsSettings), "TLS; without it connections are plain.", None)
