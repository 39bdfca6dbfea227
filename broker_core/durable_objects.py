"""What of a broker outlives the node: whoever changes something tells a `Catalogue`, which keeps what is durable of it.

    VirtualHost, Access, Policies, Broker ── keep_x, forget_x ──> Catalogue ──> the store (store/objects.py)

Without a store there is none, and a change costs one attribute test. Everything is told, durable or not: what that
means is known in one place. Whatever is told in one batch of input is kept together, or not at all.

Users, permissions, policies and virtual hosts can also stand in the configuration file, which is then their owner: they
are as it says at each start, and are not kept. What nobody says has a default, until somebody changes or deletes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_core.exchanges.exchange import Binding, Exchange
    from broker_core.leases.lease import Lease
    from broker_core.policy import Policy
    from broker_core.queues.queue import Queue
    from broker_core.security.access import Permissions, TopicPermissions, User
    from broker_core.staging.staging import Staging
    from broker_core.values import Json
    from broker_core.virtual_host import VirtualHost
    from broker_core.xa.branch import Branch


# Kinds of what may stand in the configuration file, and the names that tell one from another.
VIRTUAL_HOST: Final = "vhost"  # name
USER: Final = "user"  # name
PERMISSIONS: Final = "permissions"  # user, virtual host
TOPIC_PERMISSIONS: Final = "topic-permissions"  # user, virtual host, exchange
POLICY: Final = "policy"  # virtual host, name
OPERATOR_POLICY: Final = "operator-policy"  # virtual host, name
PARAMETER: Final = "parameter"  # name; this kind is never in the file


class Origin(Enum):
    """Who makes a change."""

    CLIENT = "client"  # and definitions files: it is kept
    FILE = "file"  # the configuration file: its own is not kept, and takes the place of what was
    DEFAULT = "default"  # nobody: as it is where nothing else is said


class Catalogue(ABC):
    """Told of changes, right after they were made. Raises nothing."""

    incomplete: (
        bool  # something of what was kept could not be read: what seems to be nobody's may be somebody's
    )

    # Who owns what.

    @abstractmethod
    def told_by(self, origin: Origin) -> AbstractContextManager[None]:
        """Changes told in this context are of this origin; all others are of clients."""

    @abstractmethod
    def by_default(self, *names: str) -> bool:
        """There is a default for the thing of this kind and these names. Whether that holds: nothing is kept.

        From then on, should a client delete the thing, that is kept.
        """

    @abstractmethod
    def has(self, *names: str) -> bool:
        """Whether something is kept of the thing of this kind and these names; also that it was deleted."""

    @abstractmethod
    def is_of_file(self, *names: str) -> bool:
        """Whether the configuration file says how it is: what clients change of it lasts until the node ends."""

    # What there is.

    @abstractmethod
    def keep_virtual_host(self, host: VirtualHost) -> None:
        """It was made, or has other limits."""

    @abstractmethod
    def forget_virtual_host(self, host: VirtualHost) -> None:
        """It was deleted. Of everything in it that is told as well."""

    @abstractmethod
    def keep_exchange(self, exchange: Exchange) -> None:
        """It was declared."""

    @abstractmethod
    def keep_holding(self, exchange: Exchange) -> None:
        """It begins to hold messages: its `holding` gets a number if they are to be kept."""

    @abstractmethod
    def forget_exchange(self, exchange: Exchange) -> None:
        """It was deleted. Of its bindings that is told as well."""

    @abstractmethod
    def keep_queue(self, queue: Queue) -> None:
        """It was declared, or notes on it are other ones. What is kept gets a number and the journal."""

    @abstractmethod
    def forget_queue(self, queue: Queue) -> None:
        """It was deleted. Of the bindings that lead to it that is told as well."""

    @abstractmethod
    def keep_lease(self, lease: Lease) -> None:
        """It was made, or has another fence. It gets a number and the journal, and is kept if its queue is."""

    @abstractmethod
    def forget_lease(self, lease: Lease) -> None:
        """It has ended, or its queue was deleted."""

    @abstractmethod
    def keep_staging(self, staging: Staging) -> None:
        """It was made. It gets a number and the journal."""

    @abstractmethod
    def forget_staging(self, staging: Staging) -> None:
        """It has ended."""

    @abstractmethod
    def keep_branch(self, branch: Branch) -> None:
        """It is prepared, or has ended otherwise than its coordinator knows. What is prepared gets a number and the
        journal.
        """

    @abstractmethod
    def forget_branch(self, branch: Branch) -> None:
        """It has ended, and nobody has to be told how."""

    @abstractmethod
    def keep_binding(self, binding: Binding) -> None:
        """It was made. Bindings are kept in their order."""

    @abstractmethod
    def forget_binding(self, binding: Binding) -> None:
        """It was taken away, or one of its ends was."""

    # Who may do what, and what holds for whom.

    @abstractmethod
    def keep_user(self, user: User) -> None:
        """Made, or replaced."""

    @abstractmethod
    def forget_user(self, name: str) -> None:
        """Deleted. Of the user's permissions that is told as well."""

    @abstractmethod
    def keep_permissions(self, user: str, virtual_host: str, permissions: Permissions) -> None:
        """Set, or replaced."""

    @abstractmethod
    def forget_permissions(self, user: str, virtual_host: str) -> None:
        """Cleared."""

    @abstractmethod
    def keep_topic_permissions(
        self, user: str, virtual_host: str, exchange: str, permissions: TopicPermissions
    ) -> None:
        """Set, or replaced."""

    @abstractmethod
    def forget_topic_permissions(self, user: str, virtual_host: str, exchange: str) -> None:
        """Cleared."""

    @abstractmethod
    def keep_policy(self, policy: Policy, operator: bool) -> None:
        """Set, or replaced. `operator`: it is an operator policy."""

    @abstractmethod
    def keep_parameter(self, name: str, value: Json) -> None:
        """A global parameter was set, or replaced."""

    @abstractmethod
    def forget_parameter(self, name: str) -> None:
        """Cleared."""

    @abstractmethod
    def forget_policy(self, virtual_host: str, name: str, operator: bool) -> None:
        """Cleared."""
