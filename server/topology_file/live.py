"""Reads a node's objects as a topology, of the virtual hosts and users that a file names.

Only administrators may read definitions, users and permissions; users and permissions are requested only if the file
has some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from leveret.catalogue import COMPONENTS
from leveret.server.cli.api import Refused, path
from leveret.server.topology_file.model import (
    DEFAULT_TYPE,
    PERMISSION,
    QUEUE,
    USER,
    VIRTUAL_HOST,
    Thing,
    Topology,
    names_type,
    topology,
    virtual_host,
)
from leveret.server.topology_file.reader import from_definitions

if TYPE_CHECKING:
    from leveret.server.cli.api import Api

NOT_FOUND = 404


def beside(wanted: Topology, api: Api) -> Topology:
    """Return the node's topology in the virtual hosts and users of `wanted`. Raises as `Api` does."""
    return topology([*_in_hosts(wanted.hosts, api, wanted), *_named(wanted, api)])


def whole(hosts: Iterable[str], api: Api) -> Topology:
    """Return the topology of these virtual hosts."""
    return topology(list(_in_hosts(hosts, api)))


def _in_hosts(hosts: Iterable[str], api: Api, wanted: Topology | None = None) -> Iterator[Thing]:
    for host in hosts:
        content = _found(api, "definitions", host, query=_secrets(wanted))
        if content is None:
            continue
        found = from_definitions(content, host)
        needs_type = wanted is not None and _needs_type(wanted, host, found)
        yield virtual_host(host, _default_type(api, host) if needs_type else None)
        for thing in found.things.values():
            if thing.kind not in (VIRTUAL_HOST, USER, PERMISSION) and thing.host == host:
                yield attrs.evolve(thing, place="")  # it comes from no file


def _named(wanted: Topology, api: Api) -> Iterator[Thing]:
    for user in wanted.of(USER):
        content = _found(api, "users", user.name)
        if content is not None:
            yield from from_definitions({"users": [content]}).things.values()
    for each in wanted.of(PERMISSION):
        content = _found(api, "permissions", each.host, each.name)
        if content is not None:
            yield from from_definitions({"permissions": [content]}).things.values()


def _needs_type(wanted: Topology, host: str, found: Topology) -> bool:
    """Return whether the default type of a virtual host's queues counts: it is named, or a queue there may have it."""
    named = wanted.things.get((VIRTUAL_HOST, host))
    is_named = named is not None and DEFAULT_TYPE in named.settings
    return is_named or any(names_type(each) for each in found.of(QUEUE))


def _default_type(api: Api, host: str) -> str | None:
    content = _found(api, "vhosts", host)
    value = content.get(DEFAULT_TYPE) if isinstance(content, Mapping) else None
    return value if isinstance(value, str) else None


def _secrets(wanted: Topology | None) -> Mapping[str, str] | None:
    """Return the query for passwords in URIs, if the file has shovels or upstreams to compare with them."""
    return {"secrets": "true"} if wanted is not None and any(wanted.of(*COMPONENTS)) else None


def _found(api: Api, *names: str, query: Mapping[str, str] | None = None) -> object | None:
    """Return an object of the API, or None if the node does not have it."""
    try:
        return api.get(path(*names), query, timeout_s=60.0)
    except Refused as refused:
        if refused.status == NOT_FOUND:
            return None
        raise
