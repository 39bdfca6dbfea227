"""The contract of the catalogue, which is told of every change to objects and keeps the durable ones in the store.

    VirtualHost, Access, Policies, Broker ── keep_x, forget_x ──> Catalogue ──> the store (durable/stored_catalogue.py)

Without a store there is no catalogue, and a change costs one attribute test. Every change is reported, durable or not:
only the catalogue knows what is durable. All changes of one batch of input are kept together, or not at all.

Users, permissions, policies and virtual hosts can also be in the configuration file, which then owns them: at each
start they are as it says, and they are not kept. Things that neither it nor a client has set have a default, until a
client changes or deletes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Binding, Destination, Exchange
    from leveret.features.deduplication.deduplication import Deduplication
    from leveret.features.leases.lease import Lease
    from leveret.features.staging.staging import Staging
    from leveret.features.unsettled_map import UnsettledMap
    from leveret.features.xa.branch import Branch
    from leveret.policy import Policy
    from leveret.queues.queue import Queue
    from leveret.security.users import Permissions, TopicPermissions, User
    from leveret.values import Json
    from leveret.virtual_host import VirtualHost


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


class Origin(Enum):
    """The source of a change."""

    CLIENT = "client"  # clients and definitions files: the change is kept
    FILE = "file"  # the configuration file: not kept; replaces what was there
    DEFAULT = "default"  # the default, where neither of the others has set anything


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

    # Virtual hosts and what is in them.

    @abstractmethod
    def keep_virtual_host(self, host: VirtualHost) -> None:
        """Called after a virtual host was created, or its limits or description changed."""

    @abstractmethod
    def forget_virtual_host(self, host: VirtualHost) -> None:
        """Called after a virtual host was deleted. The deletions of everything in it are reported as well."""

    @abstractmethod
    def keep_exchange(self, exchange: Exchange) -> None:
        """Called after an exchange was declared."""

    @abstractmethod
    def keep_holding(self, exchange: Exchange) -> None:
        """Called when an exchange first holds messages. Gives its `holding` a number if they are to be durable."""

    @abstractmethod
    def keep_deduplication(self, owner: Destination, known: Deduplication) -> None:
        """Called when an exchange or a queue knows ids, or its settings changed. Has them on disk if they are to be."""

    @abstractmethod
    def forget_deduplication(self, owner: Destination, known: Deduplication) -> None:
        """Called when an exchange or a queue was deleted that knows ids, or does not need them any more."""

    @abstractmethod
    def forget_exchange(self, exchange: Exchange) -> None:
        """Called after an exchange was deleted. The deletions of its bindings are reported as well."""

    @abstractmethod
    def keep_dead_letters(self, queue: Queue) -> None:
        """Called when a queue first holds dead letters. Gives its `dead_letters` a number if the queue is kept."""

    @abstractmethod
    def keep_queue(self, queue: Queue) -> None:
        """Called after a queue was declared, or its notes changed. If it is kept, gives it a number and the journal."""

    @abstractmethod
    def forget_queue(self, queue: Queue) -> None:
        """Called after a queue was deleted. The deletions of the bindings to it are reported as well."""

    @abstractmethod
    def keep_ending_queue(self, queue: Queue) -> None:
        """Called instead, while the messages of a deleted queue have to come before they go elsewhere."""

    @abstractmethod
    def forget_ending_queue(self, queue: Queue) -> None:
        """Called after the messages of such a queue have gone."""

    @abstractmethod
    def keep_lease(self, lease: Lease) -> None:
        """Called after a lease was created or its fence changed; it is kept if its queue is. Gives it a number and the
        journal.
        """

    @abstractmethod
    def forget_lease(self, lease: Lease) -> None:
        """Called after a lease has ended, or its queue was deleted."""

    @abstractmethod
    def keep_staging(self, staging: Staging) -> None:
        """Called after a staging was created. Gives it a number and the journal."""

    @abstractmethod
    def forget_staging(self, staging: Staging) -> None:
        """Called after a staging has ended."""

    @abstractmethod
    def keep_branch(self, branch: Branch) -> None:
        """Called after a branch was prepared (gives it a number and the journal), or was completed heuristically."""

    @abstractmethod
    def forget_branch(self, branch: Branch) -> None:
        """Called after a branch has ended, and its coordinator need not be told how."""

    @abstractmethod
    def keep_unsettled_map(self, unsettled: UnsettledMap) -> None:
        """Called after the map of a link's unsettled deliveries was created (gives it a number and the journal), or its
        terms changed.
        """

    @abstractmethod
    def forget_unsettled_map(self, unsettled: UnsettledMap) -> None:
        """Called after such a map has ended."""

    @abstractmethod
    def keep_binding(self, binding: Binding) -> None:
        """Called after a binding was made. Bindings are kept in their order."""

    @abstractmethod
    def forget_binding(self, binding: Binding) -> None:
        """Called after a binding was removed, or one of its ends was deleted."""

    # Users, permissions, policies and parameters.

    @abstractmethod
    def keep_user(self, user: User) -> None:
        """Called after a user was created or replaced."""

    @abstractmethod
    def forget_user(self, name: str) -> None:
        """Called after a user was deleted. The deletions of the user's permissions are reported as well."""

    @abstractmethod
    def keep_permissions(self, user: str, virtual_host: str, permissions: Permissions) -> None:
        """Called after permissions were set or replaced."""

    @abstractmethod
    def forget_permissions(self, user: str, virtual_host: str) -> None:
        """Called after permissions were cleared."""

    @abstractmethod
    def keep_topic_permissions(
        self, user: str, virtual_host: str, exchange: str, permissions: TopicPermissions
    ) -> None:
        """Called after topic permissions were set or replaced."""

    @abstractmethod
    def forget_topic_permissions(self, user: str, virtual_host: str, exchange: str) -> None:
        """Called after topic permissions were cleared."""

    @abstractmethod
    def keep_policy(self, policy: Policy, operator: bool) -> None:
        """Called after a policy was set or replaced. `operator`: it is an operator policy."""

    @abstractmethod
    def keep_parameter(self, name: str, value: Json) -> None:
        """Called after a global parameter was set or replaced."""

    @abstractmethod
    def forget_parameter(self, name: str) -> None:
        """Called after a global parameter was cleared."""

    @abstractmethod
    def keep_component_parameter(
        self, component: str, virtual_host: str, name: str, value: Json, user: str
    ) -> None:
        """Called after a parameter of shovels or federation was set or replaced; it acts as `user`."""

    @abstractmethod
    def forget_component_parameter(self, component: str, virtual_host: str, name: str) -> None:
        """Called after such a parameter was deleted."""

    @abstractmethod
    def forget_policy(self, virtual_host: str, name: str, operator: bool) -> None:
        """Called after a policy was cleared."""
