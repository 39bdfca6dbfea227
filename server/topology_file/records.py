"""The records of a topology file in TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from leveret.config.records import Record, RecordOf, key
from leveret.config.sections import NAME, QUEUE_TYPES
from leveret.config.types import FREE_TABLE, MANY, Flag, ListOf, RegularExpression, TableOf, Text, Whole
from leveret.values import Table

ANY_TEXT: Final = Text("a string", r"(?s).*")
NO_ARGUMENTS: Final[Table] = {}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class BindingEntry(Record):
    """The source of messages; it is listed at the queue or exchange that they go to."""

    exchange: str = key(NAME, "The exchange.")
    arguments: Table = key(FREE_TABLE, "Its arguments.", NO_ARGUMENTS)
    key: str = key(ANY_TEXT, "The binding key.", "")  # last, because it hides the function `key`


BINDINGS: Final = ListOf(RecordOf(BindingEntry))


@attrs.frozen(kw_only=True, eq=False, repr=False)
class QueueEntry(Record):
    type: str | None = key(NAME, "classic, quorum, stream or another that the node has.", None)
    durable: bool = key(Flag(), "It survives a restart.", True)
    auto_delete: bool = key(Flag(), "It is deleted with its last consumer.", False)
    arguments: Table = key(FREE_TABLE, "Its arguments.", NO_ARGUMENTS)
    bindings: tuple[BindingEntry, ...] = key(BINDINGS, "The sources of its messages.", ())


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ExchangeEntry(Record):
    type: str = key(NAME, "Its type.", "direct")
    durable: bool = key(Flag(), "It survives a restart.", True)
    auto_delete: bool = key(Flag(), "It is deleted with its last binding.", False)
    internal: bool = key(Flag(), "Clients cannot publish to it.", False)
    arguments: Table = key(FREE_TABLE, "Its arguments.", NO_ARGUMENTS)
    bindings: tuple[BindingEntry, ...] = key(BINDINGS, "The exchanges that its messages come from.", ())


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PolicyRecord(Record):
    pattern: str = key(ANY_TEXT, "The names it applies to.")
    apply_to: str = key(NAME, "The kind of object it applies to.", "all")
    priority: int = key(Whole(-MANY, MANY), "Of several that match, the highest holds.", 0)
    definition: Table = key(FREE_TABLE, "The settings.")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PermissionRecord(Record):
    configure: str = key(ANY_TEXT, "Names that may be declared and deleted.", "^$")
    write: str = key(ANY_TEXT, "Names that may be published to, and bound to an exchange.", "^$")
    read: str = key(ANY_TEXT, "Names that may be consumed from, and that others may be bound to.", "^$")


EACH: Final = "a table for each name"
EXCHANGES: Final = TableOf(RecordOf(ExchangeEntry), EACH)
QUEUES: Final = TableOf(RecordOf(QueueEntry), EACH)
POLICIES: Final = TableOf(RecordOf(PolicyRecord), EACH)
PERMISSIONS: Final = TableOf(RecordOf(PermissionRecord), EACH)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class HostEntry(Record):
    manage: str | None = key(RegularExpression(), "Names that --prune may delete.", None)
    default_queue_type: str | None = key(QUEUE_TYPES, "The type of queues that name none.", None)
    exchanges: Mapping[str, ExchangeEntry] = key(EXCHANGES, "Exchanges by name.", {})
    queues: Mapping[str, QueueEntry] = key(QUEUES, "Queues by name.", {})
    policies: Mapping[str, PolicyRecord] = key(POLICIES, "Policies by name.", {})
    operator_policies: Mapping[str, PolicyRecord] = key(POLICIES, "Operator policies by name.", {})
    permissions: Mapping[str, PermissionRecord] = key(PERMISSIONS, "Permissions by user.", {})


@attrs.frozen(kw_only=True, eq=False, repr=False)
class UserRecord(Record):
    tags: tuple[str, ...] = key(ListOf(NAME), "The user's tags.", ())


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TopologyEntry(Record):
    """The contents of a topology file."""

    virtual_hosts: Mapping[str, HostEntry] = key(
        TableOf(RecordOf(HostEntry), EACH), "Virtual hosts by name.", {}
    )
    users: Mapping[str, UserRecord] = key(
        TableOf(RecordOf(UserRecord), EACH), "Users by name; passwords never.", {}
    )
