"""Declared objects become the store's records, and back: virtual hosts, users, exchanges, queues and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from leveret.arguments.deduplication_settings import DeduplicationSettings
from leveret.durable.store.records import ObjectRecord
from leveret.durable.store.typed_json import Unreadable, read_text, written_table, written_text
from leveret.features.xa.branch import Verdict
from leveret.features.xa.prepared import Outline, Path
from leveret.limits import QueueType, UserLimits, VirtualHostLimits
from leveret.policy import ApplyTo, Policy
from leveret.queues.filtered import FilteredQueue
from leveret.security.passwords import PasswordHash
from leveret.security.scram import Verifier
from leveret.security.users import Permissions, TopicPermissions, User
from leveret.values import Json
from leveret.virtual_host import Description

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Binding, Exchange
    from leveret.features.deduplication.deduplication import Deduplication
    from leveret.features.leases.lease import Lease
    from leveret.features.staging.staging import Staging
    from leveret.features.unsettled_map import UnsettledMap
    from leveret.features.xa.branch import Branch
    from leveret.queues.queue import Queue
    from leveret.virtual_host import VirtualHost


# Virtual hosts, users, permissions, policies and parameters.


def virtual_host_record(host: VirtualHost) -> Json:
    return {
        "connections": host.limits.max_connections,
        "queues": host.limits.max_queues,
        "publish_rate": host.limits.max_publish_rate,
        "tracing": host.tracing,
        "description": written_text(host.description.text),
        "tags": [written_text(tag) for tag in host.description.tags],
        "default_queue_type": None if host.own_queue_type is None else host.own_queue_type.value,
    }


def default_queue_type_in(record: ObjectRecord) -> QueueType | None:
    """Return the default type of queues in the record of a virtual host; earlier versions wrote none."""
    if not record.has("default_queue_type"):
        return None
    text = record.optional_text("default_queue_type")
    try:
        return None if text is None else QueueType(text)
    except ValueError as error:
        raise Unreadable(str(error)) from None


def virtual_host_limits(record: ObjectRecord) -> VirtualHostLimits:
    queues = record.optional_whole("queues")
    return VirtualHostLimits(record.optional_whole("connections"), queues, _publish_rate(record))


def _publish_rate(record: ObjectRecord) -> int | None:
    """Return the limit of a record; None if an earlier version wrote the record without it."""
    return record.optional_whole("publish_rate") if record.has("publish_rate") else None


def description_in(record: ObjectRecord) -> Description:
    """Return the description in a record; an empty one if an earlier version wrote the record without it."""
    if not record.has("description"):
        return Description()
    return Description(record.text("description"), tuple(record.texts("tags")))


def parameter_record(value: Json) -> Json:
    return {"value": value}


def component_record(value: Json, user: str) -> Json:
    return {"value": value, "user": written_text(user)}


def user_record(user: User) -> Json:
    password = user.password
    record: dict[str, Json] = {
        "tags": [written_text(tag) for tag in user.tags],
        "password_hash": None if password is None else password.text,
        "algorithm": None if password is None else password.algorithm,
        "connections": user.limits.max_connections,
        "channels": user.limits.max_channels,
        "publish_rate": user.limits.max_publish_rate,
    }
    if password is not None and password.scram is not None:
        record["scram"] = password.scram.text
    return record


def user_in(name: str, record: ObjectRecord) -> User:
    channels = record.optional_whole("channels")
    limits = UserLimits(record.optional_whole("connections"), channels, _publish_rate(record))
    try:
        kept = _password_in(record)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    return User(name, record.texts("tags"), kept, limits)


def _password_in(record: ObjectRecord) -> PasswordHash | None:
    """Return the password hash in a record; None if there is none. Raises Unreadable, or ValueError for its parts."""
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


def permissions_in(record: ObjectRecord) -> Permissions:
    return Permissions(record.text("configure"), record.text("write"), record.text("read"))


def topic_permissions_record(permissions: TopicPermissions) -> Json:
    return {"write": written_text(permissions.write), "read": written_text(permissions.read)}


def topic_permissions_in(record: ObjectRecord) -> TopicPermissions:
    return TopicPermissions(record.text("write"), record.text("read"))


def policy_record(policy: Policy) -> Json:
    return {
        "pattern": written_text(policy.pattern),
        "apply_to": policy.apply_to.value,
        "priority": policy.priority,
        "definition": written_table(policy.definition),
    }


def policy_in(virtual_host: str, name: str, record: ObjectRecord) -> Policy:
    try:
        apply_to = ApplyTo(record.text("apply_to"))
    except ValueError as error:
        raise Unreadable(str(error)) from None
    definition, priority = record.table("definition"), record.whole("priority")
    return Policy(name, virtual_host, record.text("pattern"), definition, priority, apply_to)


# Exchanges, queues, leases, stagings, branches, links and bindings.


def exchange_record(exchange: Exchange) -> Json:
    return {
        "type": written_text(exchange.type.name),
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "number": exchange.holding.number if exchange.holding is not None else 0,
        "arguments": written_table(exchange.arguments),
    }


def queue_record(queue: Queue) -> Json:
    record: dict[str, Json] = {
        "number": queue.number,
        "auto_delete": queue.auto_delete,
        "selector": written_text(queue.selector.text) if isinstance(queue, FilteredQueue) else None,
        "arguments": written_table(queue.arguments),
        "notes": written_table(queue.notes),
    }
    if queue.dead_letters is not None and queue.dead_letters.number:
        record["dead_letters"] = queue.dead_letters.number
    return record


def deduplication_record(known: Deduplication) -> Json:
    settings = known.settings
    return {
        "number": known.number,
        "key": known.key.hex(),
        "header": written_text(settings.header),
        "size": settings.size,
        "ttl_ms": settings.ttl_ms,
    }


def deduplication_settings(record: ObjectRecord) -> DeduplicationSettings:
    return DeduplicationSettings(
        record.text("header"), record.optional_whole("size"), record.optional_whole("ttl_ms")
    )


def deduplication_key(record: ObjectRecord) -> bytes:
    """Return the key of the digests. Raises Unreadable."""
    try:
        return bytes.fromhex(record.text("key"))
    except ValueError:
        raise Unreadable("its key is not in hexadecimal digits") from None


def lease_record(lease: Lease) -> Json:
    return {"number": lease.number, "fence": lease.fence, "incarnation": lease.incarnation}


def staging_record(staging: Staging) -> Json:
    return {"number": staging.number, "user": written_text(staging.user)}


def unsettled_map_record(unsettled: UnsettledMap) -> Json:
    return {"number": unsettled.number, "terms": written_table(unsettled.terms)}


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


def verdict_in(record: ObjectRecord) -> Verdict:
    try:
        return Verdict(record.text("verdict"))
    except ValueError as error:
        raise Unreadable(str(error)) from None


def outline_in(record: ObjectRecord) -> Outline:
    accepted = tuple((first, second) for first, second in map(wholes, pairs(record.json("accepted"), 2)))
    paths = tuple(path_in(said) for said in pairs(record.json("paths"), 3))
    return Outline(accepted, paths)


def path_in(said: list[Json]) -> Path:
    queues, keepers, handled = said
    if not isinstance(keepers, list) or not isinstance(handled, bool):
        raise Unreadable("one of its paths is not valid")
    return Path(tuple(wholes(queues)), tuple(read_text(name) for name in keepers), handled)


def pairs(said: Json, length: int) -> list[list[Json]]:
    """Return a list of lists with `length` elements each. Raises Unreadable if it is something else."""
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
        "to": binding.end.kind,
        "destination": written_text(binding.end.name),
        "key": written_text(binding.key),
        "arguments": written_table(binding.arguments),
    }
