"""The headers Host and Origin: from what a browser says to whether a page may ask this node. Pure functions.

A page of another site can make a browser connect to any address. The browser says in Origin whose page it is (RFC
6454), and in Host which name it has resolved.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def host_name(host: str) -> str:
    """Return the name or address in a Host header, without port and brackets; empty if it has neither."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_local(name: str, own_name: str) -> bool:
    """Return whether a name is an address, `localhost` or the configured name, so no foreign name server made it up."""
    if name == own_name.lower() or name == "localhost" or name.endswith(".localhost"):
        return bool(name)
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_own_origin(origin: str, host: str) -> bool:
    """Return whether a page is of the host that it asks."""
    asking = origin.lower().partition("://")[2]  # empty for the origin `null`
    return bool(asking) and asking == host.lower()
