"""The stored catalogue writes changes of durable objects to the journal, in the order in which they are made.

It decides which objects are durable: exchanges, queues, and bindings with two durable ends (S059). Exclusive queues are
not, as they are deleted with their connections. Predeclared exchanges and default bindings exist without records.

Users, permissions, policies and virtual hosts have three layers, of which the highest holds:

    configuration file   read at each start; other changes of its objects last until the node ends
    store                objects made by clients and definitions files; a deleted default leaves `null`
    default              the user guest and the virtual host /, unless the file names users, or hosts
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leveret.catalogue import (
    OPERATOR_POLICY,
    PARAMETER,
    PERMISSIONS,
    POLICY,
    TOPIC_PERMISSIONS,
    USER,
    VIRTUAL_HOST,
    Catalogue,
    Origin,
)
from leveret.durable import object_records
from leveret.durable.store.records import (
    BINDING,
    BRANCH,
    DEDUPLICATION,
    ENDING_QUEUE,
    EXCHANGE,
    LAST_NUMBER,
    LEASE,
    QUEUE,
    STAGING,
    UNREADABLE,
    UNSETTLED_MAP,
    key_of,
    text_of,
)
from leveret.features.xa.branch import BranchState
from leveret.queues.queue import Queue

if TYPE_CHECKING:
    from leveret.durable.journal import Journal
    from leveret.exchanges.exchange_type import Binding, Destination, Exchange
    from leveret.features.deduplication.deduplication import Deduplication
    from leveret.features.leases.lease import Lease
    from leveret.features.staging.staging import Staging
    from leveret.features.unsettled_map import UnsettledMap
    from leveret.features.xa.branch import Branch
    from leveret.policy import Policy
    from leveret.security.users import Permissions, TopicPermissions, User
    from leveret.values import Json
    from leveret.virtual_host import VirtualHost


class StoredCatalogue(Catalogue):
    """The catalogue that writes to the journal. `restoration.py` sets what was found in the store."""

    def __init__(self, journal: Journal) -> None:
        self.incomplete = False
        self.stored: set[str] = set()  # the keys in the store that have layers
        self.unreadable: dict[str, str] = {}  # objects in the store that could not be read, by key
        self.put_aside = 0  # how many of those were stored under other keys, to make room for new objects
        self.last_binding = 0
        self._journal = journal
        self._origin = Origin.CLIENT
        self._of_file: set[str] = set()
        self._of_default: set[str] = set()

    # Layers.

    @contextmanager
    def told_by(self, origin: Origin) -> Iterator[None]:
        before, self._origin = self._origin, origin
        try:
            yield
        finally:
            self._origin = before

    def by_default(self, *names: str) -> bool:
        key = key_of(*names)
        self._of_file.discard(key)
        self._of_default.add(key)
        return key not in self.stored

    def has(self, *names: str) -> bool:
        return key_of(*names) in self.stored

    def _keep_layered(self, key: str, record: Json) -> None:
        if self._origin is Origin.FILE:
            self._of_file.add(key)
            self._of_default.discard(key)
            self._remove_layered(key)
        elif self._origin is Origin.CLIENT and key not in self._of_file:
            self.stored.add(key)
            self._put(key, record)

    def _forget_layered(self, key: str) -> None:
        if self._origin is Origin.FILE:
            self._of_file.discard(key)
            self._of_default.discard(key)
        if self._origin is Origin.CLIENT and key in self._of_default:
            self.stored.add(key)
            self._put(key, None)
        else:
            self._remove_layered(key)

    def _remove_layered(self, key: str) -> None:
        if key in self.stored:
            self.stored.remove(key)
            self._journal.remove(key)

    def _put(self, key: str, record: Json) -> None:
        if (text := self.unreadable.pop(key, None)) is not None:
            self.put_aside += 1
            self._journal.put(key_of(UNREADABLE, key, str(self.put_aside)), text)
        self._journal.put(key, text_of(record))

    # Objects.

    def keep_virtual_host(self, host: VirtualHost) -> None:
        self._keep_layered(key_of(VIRTUAL_HOST, host.name), object_records.virtual_host_record(host))

    def forget_virtual_host(self, host: VirtualHost) -> None:
        self._forget_layered(key_of(VIRTUAL_HOST, host.name))

    def keep_exchange(self, exchange: Exchange) -> None:
        if exchange.durable:
            self._put(
                key_of(EXCHANGE, exchange.virtual_host.name, exchange.name),
                object_records.exchange_record(exchange),
            )

    def keep_holding(self, exchange: Exchange) -> None:
        is_there = exchange.virtual_host.exchanges.get(exchange.name) is exchange
        if exchange.durable and is_there and exchange.holding is not None:
            exchange.holding.number = self._next_number()
            self.keep_exchange(exchange)

    def keep_deduplication(self, owner: Destination, known: Deduplication) -> None:
        if not (known.wants_disk and is_kept(owner)):
            return
        if not known.number:
            number = self._next_number()
            known.keep_in(self._journal.open_ids(number, known.described, known.known_ids), number)
        self._put(deduplication_key(owner, known), object_records.deduplication_record(known))

    def forget_deduplication(self, owner: Destination, known: Deduplication) -> None:
        if known.number:
            known.end()
            self._journal.remove(deduplication_key(owner, known))

    def forget_exchange(self, exchange: Exchange) -> None:
        if exchange.durable:
            self._journal.remove(key_of(EXCHANGE, exchange.virtual_host.name, exchange.name))

    def keep_queue(self, queue: Queue) -> None:
        if not is_kept(queue):
            return
        if not queue.number:
            queue.keep_in(self._journal, self._next_number())
        self._put(key_of(QUEUE, queue.virtual_host.name, queue.name), object_records.queue_record(queue))

    def keep_dead_letters(self, queue: Queue) -> None:
        is_there = queue.virtual_host.queues.get(queue.name) is queue
        if is_there and is_kept(queue) and queue.dead_letters is not None:
            queue.dead_letters.keep_in(self._journal, self._next_number())
            self.keep_queue(queue)

    def forget_queue(self, queue: Queue) -> None:
        if queue.number:
            self._journal.remove(key_of(QUEUE, queue.virtual_host.name, queue.name))

    def keep_ending_queue(self, queue: Queue) -> None:
        self.forget_queue(queue)
        if is_kept(queue):
            self._put(ending_queue_key(queue), object_records.queue_record(queue))

    def forget_ending_queue(self, queue: Queue) -> None:
        if is_kept(queue):
            self._journal.remove(ending_queue_key(queue))

    def _next_number(self) -> int:
        """Return a new number, and store it, as entries of deleted queues may stay in the store for a while."""
        number = self._journal.next_queue
        self._journal.next_queue += 1
        self._journal.put(key_of(LAST_NUMBER), text_of(number))
        return number

    def keep_lease(self, lease: Lease) -> None:
        if not lease.number:
            lease.keep_in(self._journal, self._next_number())
        if is_kept(lease.queue):  # else its messages are on disk, too, but are not restored at the next start
            self._put(lease_key(lease), object_records.lease_record(lease))

    def forget_lease(self, lease: Lease) -> None:
        if is_kept(lease.queue):
            self._journal.remove(lease_key(lease))

    def keep_staging(self, staging: Staging) -> None:
        if not staging.number:
            staging.keep_in(self._journal, self._next_number())
        self._put(
            key_of(STAGING, staging.virtual_host.name, staging.name), object_records.staging_record(staging)
        )

    def forget_staging(self, staging: Staging) -> None:
        self._journal.remove(key_of(STAGING, staging.virtual_host.name, staging.name))

    def keep_branch(self, branch: Branch) -> None:
        if branch.state is not BranchState.HEURISTIC:
            branch.keep_in(self._journal, self._next_number())
        self._put(branch_key(branch), object_records.branch_record(branch))

    def forget_branch(self, branch: Branch) -> None:
        self._journal.remove(branch_key(branch))

    def keep_unsettled_map(self, unsettled: UnsettledMap) -> None:
        if not unsettled.number:
            unsettled.keep_in(self._journal, self._next_number())
        self._put(unsettled_map_key(unsettled), object_records.unsettled_map_record(unsettled))

    def forget_unsettled_map(self, unsettled: UnsettledMap) -> None:
        self._journal.remove(unsettled_map_key(unsettled))

    def keep_binding(self, binding: Binding) -> None:
        if binding.source.durable and is_kept(binding.end):
            self.last_binding += 1
            binding.number = self.last_binding
            self._put(binding_key(binding), object_records.binding_record(binding))

    def forget_binding(self, binding: Binding) -> None:
        if binding.number:
            self._journal.remove(binding_key(binding))

    # Users, permissions, policies and parameters.

    def keep_user(self, user: User) -> None:
        self._keep_layered(key_of(USER, user.name), object_records.user_record(user))

    def forget_user(self, name: str) -> None:
        self._forget_layered(key_of(USER, name))

    def keep_permissions(self, user: str, virtual_host: str, permissions: Permissions) -> None:
        key = key_of(PERMISSIONS, user, virtual_host)
        self._keep_layered(key, object_records.permissions_record(permissions))

    def forget_permissions(self, user: str, virtual_host: str) -> None:
        self._forget_layered(key_of(PERMISSIONS, user, virtual_host))

    def keep_topic_permissions(
        self, user: str, virtual_host: str, exchange: str, permissions: TopicPermissions
    ) -> None:
        key = key_of(TOPIC_PERMISSIONS, user, virtual_host, exchange)
        self._keep_layered(key, object_records.topic_permissions_record(permissions))

    def forget_topic_permissions(self, user: str, virtual_host: str, exchange: str) -> None:
        self._forget_layered(key_of(TOPIC_PERMISSIONS, user, virtual_host, exchange))

    def keep_policy(self, policy: Policy, operator: bool) -> None:
        key = policy_key(policy.virtual_host, policy.name, operator)
        self._keep_layered(key, object_records.policy_record(policy))

    def keep_parameter(self, name: str, value: Json) -> None:
        self._put(key_of(PARAMETER, name), object_records.parameter_record(value))

    def forget_parameter(self, name: str) -> None:
        self._journal.remove(key_of(PARAMETER, name))

    def keep_component_parameter(
        self, component: str, virtual_host: str, name: str, value: Json, user: str
    ) -> None:
        self._put(key_of(component, virtual_host, name), object_records.component_record(value, user))

    def forget_component_parameter(self, component: str, virtual_host: str, name: str) -> None:
        self._journal.remove(key_of(component, virtual_host, name))

    def forget_policy(self, virtual_host: str, name: str, operator: bool) -> None:
        self._forget_layered(policy_key(virtual_host, name, operator))


def is_kept(destination: Destination) -> bool:
    """Return whether an exchange or a queue outlives the node."""
    return destination.durable and not (isinstance(destination, Queue) and destination.exclusive)


def ending_queue_key(queue: Queue) -> str:
    return key_of(ENDING_QUEUE, queue.virtual_host.name, queue.name, str(queue.number))


def lease_key(lease: Lease) -> str:
    return key_of(LEASE, lease.queue.virtual_host.name, lease.queue.name, lease.reader)


def deduplication_key(owner: Destination, known: Deduplication) -> str:
    return key_of(DEDUPLICATION, known.virtual_host, owner.name, owner.kind)


def branch_key(branch: Branch) -> str:
    return key_of(BRANCH, branch.branches.host.name, str(branch.xid))


def unsettled_map_key(unsettled: UnsettledMap) -> str:
    return key_of(UNSETTLED_MAP, unsettled.host.name, *unsettled.names)


def binding_key(binding: Binding) -> str:
    return key_of(BINDING, binding.source.virtual_host.name, str(binding.number))


def policy_key(virtual_host: str, name: str, operator: bool) -> str:
    return key_of(OPERATOR_POLICY if operator else POLICY, virtual_host, name)
