"""Objects to text and back: under which key the store keeps a thing, and what it says of it.

    ["queue","/","orders"]    {"number":7,"auto_delete":false,"arguments":{"x-max-length":5}}

A key is the thing's kind and its names, a value the record of it; `null` says that what is there by default has been
deleted. Of a record, what is not known is passed over: it is a later version's. Passwords are kept as their salted
hashes only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from broker_core.limits import UserLimits, VirtualHostLimits
from broker_core.operations import Json
from broker_core.policy import ApplyTo, Policy
from broker_core.queues.filtered import Sieve
from broker_core.security.access import Permissions, TopicPermissions, User
from broker_core.security.passwords import PasswordHash
from broker_core.security.scram import Verifier
from broker_core.store.typed_json import Unreadable, read_table, read_text, written_table, written_text
from broker_core.values import Table
from broker_core.virtual_host import Description
from broker_core.xa.branch import Verdict
from broker_core.xa.prepared import Outline, Path

if TYPE_CHECKING:
    from broker_core.exchanges.exchange import Binding, Exchange
    from broker_core.leases.lease import Lease
    from broker_core.queues.queue import Queue
    from broker_core.staging.staging import Staging
    from broker_core.virtual_host import VirtualHost
    from broker_core.xa.branch import Branch

Names: TypeAlias = tuple[str, ...]

NUMBER_MAX: Final = (1 << 32) - 1  # as chunks have it

# Kinds and names; those of catalogue.py besides.
EXCHANGE: Final = "exchange"  # virtual host, name
QUEUE: Final = "queue"  # virtual host, name
LEASE: Final = "lease"  # virtual host, queue, reader
STAGING: Final = "staging"  # virtual host, name
BRANCH: Final = "branch"  # virtual host, name (`branch.xid_in`)
BINDING: Final = "binding"  # virtual host, number: they are in order, and nothing else tells equal ones apart
LAST_NUMBER: Final = "last-number"  # the last one that a queue got: no number is used twice
UNREADABLE: Final = (
    "unreadable"  # key, checksum of its value: put aside, because there is another thing of that name
)


def key_of(*names: str) -> str:
    """The key of a thing: its kind, then its names."""
    return text_of([written_text(name) for name in names])


def names_in(key: str) -> Names:
    """Raises Unreadable."""
    names = json_in(key)
    if not isinstance(names, list) or not names:
        raise Unreadable("the key is no list of names")
    return tuple(read_text(name) for name in names)


def text_of(json_: Json) -> str:
    """JSON on one line, in ASCII."""
    return json.dumps(json_, separators=(",", ":"))


def json_in(text: str) -> Json:
    """Raises Unreadable."""
    try:
        loaded: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    return loaded


class Record:
    """What was kept of a thing, to be asked for what must be there. Every question may raise Unreadable."""

    __slots__ = ("_said",)

    def __init__(self, said: Json) -> None:
        if not isinstance(said, dict):
            raise Unreadable("it is no record")
        self._said: dict[str, Json] = said

    def has(self, name: str) -> bool:
        return name in self._said

    def json(self, name: str) -> Json:
        if name not in self._said:
            raise Unreadable(f"'{name}' is missing")
        return self._said[name]

    def text(self, name: str) -> str:
        return read_text(self.json(name))

    def optional_text(self, name: str) -> str | None:
        return None if self.json(name) is None else self.text(name)

    def texts(self, name: str) -> list[str]:
        said = self.json(name)
        if isinstance(said, str) or not isinstance(said, Sequence):
            raise Unreadable(f"'{name}' is no list")
        return [read_text(each) for each in said]

    def table(self, name: str) -> Table:
        return read_table(self.json(name))

    def flag(self, name: str, otherwise: bool | None = None) -> bool:
        """`otherwise`: what holds where an earlier version has not said it."""
        said = self.json(name) if otherwise is None else self._said.get(name, otherwise)
        if not isinstance(said, bool):
            raise Unreadable(f"'{name}' is neither true nor false")
        return said

    def whole(self, name: str) -> int:
        said = self.json(name)
        if isinstance(said, bool) or not isinstance(said, int):
            raise Unreadable(f"'{name}' is no whole number")
        return said

    def optional_whole(self, name: str) -> int | None:
        return None if self.json(name) is None else self.whole(name)

    def number(self, name: str, least: int) -> int:
        """Of who keeps messages in the store; 0: it has none."""
        number = self.whole(name)
        if not least <= number <= NUMBER_MAX:
            raise Unreadable(f"'{name}' is out of range")
        return number


# Who may do what, and what holds for whom.


def virtual_host_record(host: VirtualHost) -> Json:
    return {
        "connections": host.limits.max_connections,
        "queues": host.limits.max_queues,
        "tracing": host.tracing,
        "description": written_text(host.description.text),
        "tags": [written_text(tag) for tag in host.description.tags],
    }


def virtual_host_limits(record: Record) -> VirtualHostLimits:
    return VirtualHostLimits(record.optional_whole("connections"), record.optional_whole("queues"))


def description_in(record: Record) -> Description:
    """Nothing, where an earlier version has not said it."""
    if not record.has("description"):
        return Description()
    return Description(record.text("description"), tuple(record.texts("tags")))


def parameter_record(value: Json) -> Json:
    return {"value": value}


def user_record(user: User) -> Json:
    password = user.password
    record: dict[str, Json] = {
        "tags": [written_text(tag) for tag in sorted(user.tags)],
        "password_hash": None if password is None else password.text,
        "algorithm": None if password is None else password.algorithm,
        "connections": user.limits.max_connections,
        "channels": user.limits.max_channels,
    }
    if password is not None and password.scram is not None:
        record["scram"] = password.scram.text
    return record


def user_in(name: str, record: Record) -> User:
    limits = UserLimits(record.optional_whole("connections"), record.optional_whole("channels"))
    try:
        kept = _password_in(record)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    return User(name, frozenset(record.texts("tags")), kept, limits)


def _password_in(record: Record) -> PasswordHash | None:
    """Raises Unreadable, ValueError."""
    text = record.optional_text("password_hash")
    if text is None:
        return None
    kept = PasswordHash.parse(text, record.text("algorithm"))
    return attrs.evolve(kept, scram=Verifier.parse(record.text("scram"))) if record.has("scram") else kept


def permissions_record(permissions: Permissions) -> Json:
    return {
        "configure": written_text(permissions.configure),
        "write": written_text(permissions.write),
        "read": written_text(permissions.read),
    }


def permissions_in(record: Record) -> Permissions:
    return Permissions(record.text("configure"), record.text("write"), record.text("read"))


def topic_permissions_record(permissions: TopicPermissions) -> Json:
    return {"write": written_text(permissions.write), "read": written_text(permissions.read)}


def topic_permissions_in(record: Record) -> TopicPermissions:
    return TopicPermissions(record.text("write"), record.text("read"))


def policy_record(policy: Policy) -> Json:
    return {
        "pattern": written_text(policy.pattern),
        "apply_to": policy.apply_to.value,
        "priority": policy.priority,
        "definition": written_table(policy.definition),
    }


def policy_in(virtual_host: str, name: str, record: Record) -> Policy:
    try:
        apply_to = ApplyTo(record.text("apply_to"))
    except ValueError as error:
        raise Unreadable(str(error)) from None
    definition, priority = record.table("definition"), record.whole("priority")
    return Policy(name, virtual_host, record.text("pattern"), definition, priority, apply_to)


# Where messages go.


def exchange_record(exchange: Exchange) -> Json:
    return {
        "type": written_text(exchange.type.name),
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "number": exchange.holding.number if exchange.holding is not None else 0,
        "arguments": written_table(exchange.arguments),
    }


def queue_record(queue: Queue) -> Json:
    return {
        "number": queue.number,
        "auto_delete": queue.auto_delete,
        "selector": written_text(queue.selector.text) if isinstance(queue, Sieve) else None,
        "arguments": written_table(queue.arguments),
        "notes": written_table(queue.notes),
    }


def lease_record(lease: Lease) -> Json:
    return {"number": lease.number, "fence": lease.fence, "incarnation": lease.incarnation}


def staging_record(staging: Staging) -> Json:
    return {"number": staging.number, "user": written_text(staging.user)}


def branch_record(branch: Branch) -> Json:
    outline = branch.prepared.outline
    return {
        "number": branch.prepared.number,
        "user": written_text(branch.user),
        "verdict": branch.verdict.value,
        "accepted": [list(each) for each in outline.accepted],
        "paths": [
            [list(path.queues), [written_text(name) for name in path.keepers], path.handled]
            for path in outline.paths
        ],
    }


def verdict_in(record: Record) -> Verdict:
    try:
        return Verdict(record.text("verdict"))
    except ValueError as error:
        raise Unreadable(str(error)) from None


def outline_in(record: Record) -> Outline:
    accepted = tuple((first, second) for first, second in map(wholes, pairs(record.json("accepted"), 2)))
    paths = tuple(path_in(said) for said in pairs(record.json("paths"), 3))
    return Outline(accepted, paths)


def path_in(said: list[Json]) -> Path:
    queues, keepers, handled = said
    if not isinstance(keepers, list) or not isinstance(handled, bool):
        raise Unreadable("one of its paths is none")
    return Path(tuple(wholes(queues)), tuple(read_text(name) for name in keepers), handled)


def pairs(said: Json, length: int) -> list[list[Json]]:
    """A list of lists that have so many elements."""
    if not isinstance(said, list):
        raise Unreadable("a list is missing")
    found = [each for each in said if isinstance(each, list) and len(each) == length]
    if len(found) < len(said):
        raise Unreadable(f"a list has something else than lists of {length}")
    return found


def wholes(said: Json) -> list[int]:
    if not isinstance(said, list):
        raise Unreadable("a list is missing")
    found = [each for each in said if isinstance(each, int) and not isinstance(each, bool) and each >= 0]
    if len(found) < len(said):
        raise Unreadable("a list has something else than whole numbers")
    return found


def binding_record(binding: Binding) -> Json:
    return {
        "source": written_text(binding.source.name),
        "to": binding.destination.kind,
        "destination": written_text(binding.destination.name),
        "key": written_text(binding.key),
        "arguments": written_table(binding.arguments),
    }
