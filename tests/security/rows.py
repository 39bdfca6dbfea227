"""What a row about a route of the HTTP endpoint says: the least tag that suffices, where, and what it needs."""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

TAGS: Final = ("none", "management", "policymaker", "monitoring", "administrator")
SUFFICES: Final = {
    "anybody": TAGS,
    "user": TAGS,
    "management": TAGS[1:],
    "policymaker": ("policymaker", "administrator"),
    "monitoring": ("monitoring", "administrator"),
    "administrator": ("administrator",),
}

Need: TypeAlias = tuple[str, str]  # permission, name
CONFIGURE, WRITE, READ = PERMISSIONS = ("configure", "write", "read")


@attrs.frozen
class Row:
    """`host`: who needs no permission in the virtual host.

    "nobody": it takes one; "monitoring": who sees all; "administrator"; "" if there is none in the path.
    """

    least: str
    host: str = ""
    needs: tuple[Need, ...] = ()
    body: object = None
    query: str = ""
    target: str = ""  # of the request, where the names are others
    name: str = ""  # for {name} in the path
    otherwise: int = 0  # the status it has although it is allowed
    any_will_do: bool = False  # of the needs
    refused: int = 0  # the status where a need is missing, if it is another than usual
