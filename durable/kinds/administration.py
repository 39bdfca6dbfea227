"""The kinds of what operators set: virtual hosts, users, permissions, policies and global parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from leveret.catalogue import (
    OPERATOR_POLICY,
    PARAMETER,
    PERMISSIONS,
    POLICY,
    TOPIC_PERMISSIONS,
    USER,
    VIRTUAL_HOST,
    Named,
)
from leveret.durable.kinds.kind import Kind, Kinds
from leveret.durable.store.records import Names, ObjectRecord
from leveret.durable.store.typed_json import written_table, written_text
from leveret.limits import QueueType, UserLimits, VirtualHostLimits
from leveret.policy import ApplyTo, Policy
from leveret.security.passwords import PasswordHash
from leveret.security.scram import Verifier
from leveret.security.users import Permissions, TopicPermissions, User
from leveret.values import Json
from leveret.virtual_host import Description, VirtualHost

if TYPE_CHECKING:
    from leveret.durable.restoration import Restoration

NOTHING: Final = TopicPermissions("", "")


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


def restore_virtual_host(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    """Restore a virtual host. Earlier versions wrote neither description nor default type of queues."""
    host = restoration.host(names[0])
    connections, queues = record.optional_whole("connections"), record.optional_whole("queues")
    host.set_limits(VirtualHostLimits(connections, queues, publish_rate(record)))
    host.set_tracing(record.flag("tracing", otherwise=False))
    if record.has("description"):
        host.describe(Description(record.text("description"), tuple(record.texts("tags"))))
    text = record.optional_text("default_queue_type") if record.has("default_queue_type") else None
    host.set_default_queue_type(None if text is None else QueueType(text))


def publish_rate(record: ObjectRecord) -> int | None:
    """Return the limit of a record; None if an earlier version wrote the record without it."""
    return record.optional_whole("publish_rate") if record.has("publish_rate") else None


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


def restore_user(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    channels = record.optional_whole("channels")
    limits = UserLimits(record.optional_whole("connections"), channels, publish_rate(record))
    restoration.broker.access.put_user(User(names[0], record.texts("tags"), password_in(record), limits))


def password_in(record: ObjectRecord) -> PasswordHash | None:
    """Return the password hash in a record; None if there is none. Raises ValueError."""
    text = record.optional_text("password_hash")
    if text is None:
        return None
    kept = PasswordHash.parse(text, record.text("algorithm"))
    return attrs.evolve(kept, scram=Verifier.parse(record.text("scram"))) if record.has("scram") else kept


def permissions_record(setting: Named[Permissions]) -> Json:
    return {
        "configure": written_text(setting.value.configure),
        "write": written_text(setting.value.write),
        "read": written_text(setting.value.read),
    }


def restore_permissions(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    user, host = names
    restoration.host(host)
    permissions = Permissions(record.text("configure"), record.text("write"), record.text("read"))
    restoration.broker.access.add_permissions(user, host, permissions)


def topic_permissions_record(setting: Named[TopicPermissions]) -> Json:
    return {"write": written_text(setting.value.write), "read": written_text(setting.value.read)}


def found_topic_permissions(restoration: Restoration, names: Names) -> int:
    """Permit nothing, rather than all, until the record has been read."""
    user, host, exchange = names
    restoration.broker.access.add_topic_permissions(user, host, exchange, NOTHING)
    return 0


def restore_topic_permissions(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    user, host, exchange = names
    restoration.host(host)
    permissions = TopicPermissions(record.text("write"), record.text("read"))
    restoration.broker.access.add_topic_permissions(user, host, exchange, permissions)


def policy_record(setting: Named[Policy]) -> Json:
    policy = setting.value
    return {
        "pattern": written_text(policy.pattern),
        "apply_to": policy.apply_to.value,
        "priority": policy.priority,
        "definition": written_table(policy.definition),
    }


def restore_policy(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    restoration.broker.policies.set(policy_in(restoration, names, record))


def restore_operator_policy(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    restoration.broker.policies.set_operator(policy_in(restoration, names, record))


def policy_in(restoration: Restoration, names: Names, record: ObjectRecord) -> Policy:
    host, name = names
    restoration.host(host)
    apply_to, pattern = ApplyTo(record.text("apply_to")), record.text("pattern")
    return Policy(name, host, pattern, record.table("definition"), record.whole("priority"), apply_to)


def parameter_record(setting: Named[Json]) -> Json:
    return {"value": setting.value}


def restore_parameter(restoration: Restoration, names: Names, record: ObjectRecord) -> None:
    restoration.broker.parameters.set(names[0], record.json("value"))


KINDS: Final[Kinds] = (
    Kind(VIRTUAL_HOST, 1, virtual_host_record, restore_virtual_host, layered=True),
    Kind(USER, 1, user_record, restore_user, layered=True),
    Kind(PERMISSIONS, 2, permissions_record, restore_permissions, layered=True),
    Kind(
        TOPIC_PERMISSIONS,
        3,
        topic_permissions_record,
        restore_topic_permissions,
        layered=True,
        found=found_topic_permissions,
    ),
    Kind(POLICY, 2, policy_record, restore_policy, layered=True),
    Kind(OPERATOR_POLICY, 2, policy_record, restore_operator_policy, layered=True),
    Kind(PARAMETER, 1, parameter_record, restore_parameter),
)
