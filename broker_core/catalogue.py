"""The contract of the catalogue, which is told of every change to objects and keeps the durable ones in the store.

    VirtualHost, Access, Policies, features ── keep, forget ──> Catalogue ──> the store (durable/stored_catalogue.py)

Without a store there is no catalogue, and a change costs one attribute test. Every change is reported, durable or not:
only the kind of a thing (durable/kinds/) knows what is durable, and how it is written. All changes of one batch of
input are kept together, or not at all.

Users, permissions, policies and virtual hosts can also be in the configuration file, which then owns them: at each
start they are as it says, and they are not kept. Things that neither it nor a client has set have a default, until a
client changes or deletes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

import attrs

T = TypeVar("T")

# Kinds of objects that may be in the configuration file, and the names that identify one of each kind.
VIRTUAL_HOST: Final = "vhost"  # name
USER: Final = "user"  # name
PERMISSIONS: Final = "permissions"  # user, virtual host
TOPIC_PERMISSIONS: Final = "topic-permissions"  # user, virtual host, exchange
POLICY: Final = "policy"  # virtual host, name
OPERATOR_POLICY: Final = "operator-policy"  # virtual host, name
# These kinds are never in the file.
PARAMETER: Final = "parameter"  # name
SHOVEL: Final = "shovel"  # virtual host, name
UPSTREAM: Final = "federation-upstream"  # virtual host, name
UPSTREAM_SET: Final = "federation-upstream-set"  # virtual host, name
COMPONENTS: Final = (SHOVEL, UPSTREAM, UPSTREAM_SET)  # whose parameters connect brokers
EXCHANGE: Final = "exchange"  # virtual host, name
QUEUE: Final = "queue"  # virtual host, name
ENDING_QUEUE: Final = "ending-queue"  # virtual host, name, number: deleted, and its messages go elsewhere
DEDUPLICATION: Final = "deduplication"  # virtual host, name, exchange or queue: the ids that it knows
LEASE: Final = "lease"  # virtual host, queue, reader
STAGING: Final = "staging"  # virtual host, name
BRANCH: Final = "branch"  # virtual host, name (`branch.xid_in`)
UNSETTLED_MAP: Final = "unsettled-map"  # virtual host, role, user, container, link
PROTOCOL_RECORD: Final = "protocol-record"  # virtual host, protocol, collection, name
BINDING: Final = "binding"  # virtual host, number: keeps their order, and distinguishes equal ones


class Origin(Enum):
    """The source of a change."""

    CLIENT = "client"  # clients and definitions files: the change is kept
    FILE = "file"  # the configuration file: not kept; replaces what was there
    DEFAULT = "default"  # the default, where neither of the others has set anything


class Kept(Protocol):
    """A thing that may be kept in the store."""

    @property
    def stored_as(self) -> tuple[str, ...]:
        """The thing's kind, one of those above, and its names."""


@attrs.frozen
class Named(Generic[T]):
    """A value with the names under which it is kept, where it does not know these itself."""

    stored_as: tuple[str, ...]
    value: T


class Catalogue(ABC):
    """The catalogue is told of changes right after they were made. None of its methods raises."""

    incomplete: (
        bool  # some of the objects could not be read from the store: what seems to have no owner may have one
    )

    # Ownership.

    @abstractmethod
    def told_by(self, origin: Origin) -> AbstractContextManager[None]:
        """Return a context in which changes are of this origin; outside of such contexts they are of clients."""

    @abstractmethod
    def by_default(self, *names: str) -> bool:
        """Announce a default for the thing of this kind and these names. True if it is to be used: nothing is kept.

        If a client deletes the thing afterwards, the deletion is kept.
        """

    @abstractmethod
    def has(self, *names: str) -> bool:
        """True if a state of the thing of this kind and these names is kept; that may be its deletion."""

    # Changes.

    @abstractmethod
    def keep(self, thing: Kept) -> None:
        """Called after a thing was created, or has changed. One that needs it gets a number, and the journal."""

    @abstractmethod
    def forget(self, thing: Kept) -> None:
        """Called after a thing was deleted, or has ended. The deletions of all that was in it are reported as well."""
