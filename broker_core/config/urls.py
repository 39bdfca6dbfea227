"""URLs of servers that the node asks, as settings."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from leveret.config.types import Place, RefusedValue, SingleValue

PORTS: Final = {"http": 80, "https": 443}


class HttpUrl(SingleValue[str]):
    """A URL of a server that the node asks: `https`, or `http` on this machine if it has to be `secure`."""

    def __init__(self, secure: bool = True) -> None:
        self._secure = secure
        self.accepted = "a URL that begins with https://" + (
            ", or http:// of this machine" if secure else " or http://"
        )

    def convert(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        parts = parted(value)
        if self._secure and parts.scheme == "http" and not is_this_machine(parts.hostname or ""):
            raise ValueError
        return value

    def read(self, value: object, place: Place) -> str | RefusedValue:
        """Read a URL. The problem of one with a password does not repeat it."""
        if isinstance(value, str) and "@" in value:
            return place.refuse("a URL with an @ (hidden)", self.accepted)
        return super().read(value, place)

    def from_text(self, text: str) -> object:
        return text


def parted(url: str) -> SplitResult:
    """Split a URL that can be asked. Raises ValueError for any other, such as one with a password in it."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname or parts.fragment or "@" in parts.netloc:
        raise ValueError("it is no URL that can be asked")
    if not url.isascii() or any(letter <= " " or letter == "\x7f" for letter in url) or parts.port == 0:
        raise ValueError("it is no URL that can be asked")
    return parts


def is_this_machine(host: str) -> bool:
    """Return whether a host in a URL is this machine by its address or name."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
