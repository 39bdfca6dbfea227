"""AMQP URIs to addresses, and back without the password.

Source: RabbitMQ's documentation of the AMQP URI specification and of its query parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import attrs

from leveret.errors import PreconditionFailed

HIDDEN: Final = "***"
PORTS: Final = {"amqp": 5672, "amqps": 5671}
# As much as may be a password, which people do not always escape.
PASSWORD: Final = re.compile(r"(://[^:]*:).*@", re.DOTALL)
# Of a URI with a mistake: what stands before a host without two slashes, or with an escaped colon; and what is no port.
MISPLACED: Final = re.compile(r"^(?!\w+://[^:]*:)(\w*:?[/\\]*).*(?:@|%40)", re.DOTALL | re.IGNORECASE)
NO_PORT: Final = re.compile(r"(://[^:/?#\[]*:)(?!\*\*\*@|\d*(?:[/?#]|$))[^/?#]*")
OPTIONS: Final = (
    "auth_mechanism",
    "cacertfile",
    "certfile",
    "connection_timeout",
    "heartbeat",
    "hostname",
    "keyfile",
    "server_name_indication",
    "verify",
)
# That of a key file, and others that are not known here.
OPTION: Final = re.compile(rf"([?&](?!(?:{'|'.join(OPTIONS)})=)[^=&]*=)[^&]*", re.DOTALL)
MECHANISMS: Final = {"plain": "PLAIN", "external": "EXTERNAL", "anonymous": "ANONYMOUS"}
HEARTBEAT_S: Final = 10
TIMEOUT_S: Final = 30.0


@attrs.frozen
class Uri:
    """The address of a broker, and how to log in there. Without a host it is this node."""

    text: str = attrs.field(repr=False)  # as it was given, with the password
    scheme: str = "amqp"
    host: str = ""
    port: int = 0
    user: str = "guest"
    password: str = attrs.field(default="guest", repr=False)
    virtual_host: str | None = None  # None: that of the shovel on this node, "/" elsewhere
    options: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def is_local(self) -> bool:
        return not self.host

    @property
    def is_secured(self) -> bool:
        return self.scheme == "amqps"

    @property
    def mechanism(self) -> str:
        return MECHANISMS[self.options.get("auth_mechanism", "plain")]

    @property
    def heartbeat_s(self) -> int:
        return int(self.options.get("heartbeat", HEARTBEAT_S))

    @property
    def hostname(self) -> str:
        """The name in an open of AMQP 1.0, from which RabbitMQ takes the virtual host."""
        otherwise = self.host if self.virtual_host is None else f"vhost:{self.virtual_host}"
        return self.options.get("hostname", otherwise)

    @property
    def timeout_s(self) -> float:
        """The time for connecting and logging in; the option is in milliseconds."""
        return int(self.options.get("connection_timeout", TIMEOUT_S * 1000)) / 1000

    @property
    def shown(self) -> str:
        return hidden(self.text)

    @property
    def without_login(self) -> str:
        """The scheme, the host, the port and the path, as they stand in messages that come from there."""
        parts = urlsplit(self.text)
        place = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{place}{parts.path}"


def hidden(text: str) -> str:
    """Return a URI, right or wrong, without its password."""
    return OPTION.sub(rf"\1{HIDDEN}", PASSWORD.sub(rf"\1{HIDDEN}@", text))


def told(text: str) -> str:
    """Return a URI that cannot be used, without what may be a password and does not stand where one should."""
    return NO_PORT.sub(rf"\1{HIDDEN}", MISPLACED.sub(rf"\1{HIDDEN}@", hidden(text)))


def is_hidden(text: str) -> bool:
    """Return whether the password in a URI is the mark that stands for one."""
    return f":{HIDDEN}@" in text


def parse(text: str) -> Uri:
    """Read a URI. Raises PreconditionFailed, whose text does not have the password."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _refused(text, "its host or port cannot be read") from None
    if parts.scheme not in PORTS:
        raise _refused(text, "it begins with neither amqp:// nor amqps://")
    if parts.fragment or "/" in parts.path[1:] or "@" in parts.path + parts.query:
        raise _refused(
            text, "/, # and @ in a name, a password or a virtual host are written %2F, %23 and %40"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _check_options(text, options)
    if not host and (parts.netloc or options or parts.scheme == "amqps"):
        raise _refused(text, "without a host it is this node, where it has no user, port, TLS or options")
    return Uri(
        text,
        parts.scheme,
        host,
        port or PORTS[parts.scheme],
        "guest" if parts.username is None else unquote(parts.username),
        "guest" if parts.password is None else unquote(parts.password),
        unquote(parts.path[1:]) if parts.path else None,
        options,
    )


def _check_options(text: str, options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name not in OPTIONS:
            raise _refused(text, f"it has the option '{name[:40]}'; known are {', '.join(OPTIONS)}")
        if name in ("heartbeat", "connection_timeout") and not re.fullmatch(r"\d{1,6}", value):
            raise _refused(text, f"its {name} is no whole number")
    if options.get("auth_mechanism", "plain") not in MECHANISMS:
        raise _refused(text, "its auth_mechanism is neither plain nor external nor anonymous")
    if options.get("verify", "verify_peer") not in ("verify_peer", "verify_none"):
        raise _refused(text, "its verify is neither verify_peer nor verify_none")


def _refused(text: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"the URI '{told(text)[:200]}' cannot be used: {why}")


def local(virtual_host: str) -> str:
    """Return the URI of a virtual host of this node."""
    return f"amqp:///{quote(virtual_host, safe='')}"
