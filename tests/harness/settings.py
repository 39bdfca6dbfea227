"""Parts of a broker's configuration, as TOML text: `virtual_hosts("/", "blue") + user("ann", "secret", EVERYTHING)`."""

from __future__ import annotations

import json
from collections.abc import Mapping

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
EVERYTHING = {"/": ALL}


def virtual_hosts(*names: str) -> str:
    return "".join(f"[[virtual_hosts]]\nname = {json.dumps(name)}\n" for name in names)


def user(
    name: str, password: str, permissions: Mapping[str, Mapping[str, str]] | None = None, *tags: str
) -> str:
    """A user with these permissions in virtual hosts by name."""
    lines = ["[[users]]", f"name = {json.dumps(name)}", f"password = {json.dumps(password)}"]
    if tags:
        lines.append(f"tags = {json.dumps(tags)}")
    for host, patterns in (permissions or {}).items():
        said = ", ".join(f"{kind} = {json.dumps(pattern)}" for kind, pattern in patterns.items())
        lines.append(f"permissions.{json.dumps(host)} = {{ {said} }}")
    return "\n".join([*lines, ""])
