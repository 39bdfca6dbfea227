"""Restore virtual hosts, users, policies, exchanges, queues, bindings and the rest from the store, at a start.

No object is refused that was there: if its declaration would be refused today, that is logged, and the object comes
back as it was. A virtual host comes back if anything in it does. Unreadable objects are logged and stay in the store;
the rest comes back without them.

An exchange whose type is missing, or refuses it now, routes nothing until the type accepts it again
(exchanges/missing.py). Its record does not change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.arguments.queue_declaration import limits_of, parse_queue_arguments, queue_type
from leveret.catalogue import (
    OPERATOR_POLICY,
    PARAMETER,
    PERMISSIONS,
    POLICY,
    SHOVEL,
    TOPIC_PERMISSIONS,
    UPSTREAM,
    UPSTREAM_SET,
    USER,
    VIRTUAL_HOST,
)
from leveret.durable import id_log, object_records
from leveret.durable.journal import Journal
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
    Names,
    ObjectRecord,
    json_in,
    key_of,
    names_in,
)
from leveret.durable.store.typed_json import Unreadable
from leveret.durable.stored_catalogue import StoredCatalogue
from leveret.errors import MISTAKES, Failure
from leveret.exchanges.exchange_type import (
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    selector_as_far_as_known,
)
from leveret.exchanges.missing import Missing, missing
from leveret.features.deduplication.deduplication import Deduplication, new_deduplication
from leveret.features.leases.lease import Lease, leases_of
from leveret.features.staging.staging import Staging, stagings_of
from leveret.features.unsettled_map import UnsettledMap, unsettled_maps_of
from leveret.features.xa.branch import Branch, xid_in
from leveret.features.xa.branches import Branches
from leveret.limits import QueueLimits
from leveret.memory_tuning import no_collection
from leveret.observability import event_exchange
from leveret.queues.factory import new_queue
from leveret.queues.held_dead_letters import HeldDeadLetters
from leveret.queues.queue import PAUSED
from leveret.queues.work_queue import WorkQueue
from leveret.security.users import TopicPermissions
from leveret.selectors.parser import compile_selector
from leveret.values import Table
from leveret.virtual_host import VirtualHost

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.store.contract import Span
    from leveret.queues.queue import Queue
    from leveret.values import Json

log: Final = logging.getLogger("leveret.store")

NOTHING: Final = TopicPermissions("", "")
NAMES: Final = {  # number of names in the key of each kind; kinds stand behind those that they need
    LAST_NUMBER: 0,
    UNREADABLE: 2,
    VIRTUAL_HOST: 1,
    USER: 1,
    PERMISSIONS: 2,
    TOPIC_PERMISSIONS: 3,
    POLICY: 2,
    OPERATOR_POLICY: 2,
    PARAMETER: 1,
    SHOVEL: 2,
    UPSTREAM: 2,
    UPSTREAM_SET: 2,
    EXCHANGE: 2,
    ENDING_QUEUE: 3,
    QUEUE: 2,
    DEDUPLICATION: 3,
    LEASE: 3,
    STAGING: 2,
    BRANCH: 2,
    UNSETTLED_MAP: 5,
    BINDING: 2,
}
LAYERED: Final = frozenset({VIRTUAL_HOST, USER, PERMISSIONS, TOPIC_PERMISSIONS, POLICY, OPERATOR_POLICY})


def restore(broker: Broker, journal: Journal) -> None:
    """Restore all objects in the journal's store, and keep changes from now on. Raises StoreError."""
    restoring = Restoration(broker, journal)
    with no_collection():
        restoring.read()
        restoring.put_in_place()
    broker.keep_in(restoring.catalogue)


def begin(broker: Broker) -> None:
    """Start the terms of unused queues, and leases, stagings and branches. Called when messages are restored, too."""
    now = broker.tick()
    for host in broker.hosts():
        for queue in host.queues.values():
            queue.used_at = now
            if queue.limits.auto_delete_delay_ms:
                queue.left_alone()
        for lease in leases_of(host).values():
            lease.begin()
        for staging in stagings_of(host).values():
            staging.begin()
        host.go_on_ending()
    begin_branches(broker)
    begin_deduplication(broker)


def begin_branches(broker: Broker) -> None:
    """Give each prepared branch the segments of its log. The segments in the store are read through once for all."""
    branches = {each.prepared.number: each for host in broker.hosts() for each in host.guest(Branches).all()}
    if branches:
        assert isinstance(broker.journal, Journal), "the branches come from its store"
        spans: dict[int, list[Span]] = {number: [] for number in branches}
        for span in broker.journal.store.spans():
            if span.stream in spans:
                spans[span.stream].append(span)
        for number, branch in branches.items():
            branch.begin(spans[number])


def begin_deduplication(broker: Broker) -> None:
    """Give exchanges and queues the ids that they knew. The segments in the store are read through once for all."""
    known = deduplications(broker)
    if not known:
        return
    assert isinstance(broker.journal, Journal), "the ids come from its store"
    spans: dict[int, list[Span]] = {number: [] for number in known}
    for span in broker.journal.store.spans():
        if span.stream in spans:
            spans[span.stream].append(span)
    with broker.journal.store.reader() as reader:
        for number, each in known.items():
            each.take_back(id_log.records_in(reader, spans[number], each.described))


def deduplications(broker: Broker) -> dict[int, Deduplication]:
    """Return what exchanges and queues need to drop duplicates and have on disk, by its numbers there."""
    found: list[Deduplication | None] = []
    for host in broker.hosts():
        found += [exchange.deduplication for exchange in host.exchanges.values()]
        found += [queue.deduplication for queue in host.queues.values()]
    return {known.number: known for known in found if known is not None and known.number}


class FoundObject:
    """An object in the store: its key, the names in it, and its record."""

    __slots__ = ("json", "key", "names")

    def __init__(self, key: str, names: Names, json: Json) -> None:
        self.key = key
        self.names = names
        self.json = json

    @property
    def place(self) -> int:
        """Return the number of a binding, by which bindings are ordered."""
        return int(self.names[1])


class Restoration:
    """The restoration of all objects at one start."""

    def __init__(self, broker: Broker, journal: Journal) -> None:
        self.catalogue = StoredCatalogue(journal)
        self._broker = broker
        self._journal = journal
        self._texts: dict[str, str] = {}  # by key
        self._found: dict[str, list[FoundObject]] = {kind: [] for kind in NAMES}
        self._ending: set[int] = set()  # numbers of queues that were being deleted

    def read(self) -> None:
        """Read all objects, and sort them by kind."""
        self._texts = dict(self._journal.store.objects())
        for key, text in self._texts.items():
            try:
                self._sort_in(key, text)
            except Unreadable as unreadable:
                self._pass_over(key, unreadable)

    def _sort_in(self, key: str, text: str) -> None:
        kind, *names = names_in(key)
        if len(names) != NAMES.get(kind):
            raise Unreadable("no known kind of object has such a key")
        if kind == BINDING and not names[1].isdecimal():
            raise Unreadable("it has no number")
        if kind == TOPIC_PERMISSIONS:  # if the record cannot be read, nothing is permitted rather than all
            user, host, exchange = names
            self._broker.access.add_topic_permissions(user, host, exchange, NOTHING)
        self._found[kind].append(FoundObject(key, tuple(names), json_in(text)))

    def put_in_place(self) -> None:
        steps: dict[str, Callable[[Names, ObjectRecord], None]] = {
            VIRTUAL_HOST: self._virtual_host,
            USER: self._user,
            PERMISSIONS: self._permissions,
            TOPIC_PERMISSIONS: self._topic_permissions,
            POLICY: self._policy,
            OPERATOR_POLICY: self._operator_policy,
            PARAMETER: self._parameter,
            **{kind: partial(self._linking, kind) for kind in (SHOVEL, UPSTREAM, UPSTREAM_SET)},
            EXCHANGE: self._exchange,
            ENDING_QUEUE: self._ending_queue,
            QUEUE: self._queue,
            DEDUPLICATION: self._deduplication,
            LEASE: self._lease,
            STAGING: self._staging,
            BRANCH: self._branch,
            UNSETTLED_MAP: self._unsettled_map,
            BINDING: self._binding,
        }
        self._found[BINDING].sort(key=lambda found: found.place)
        for kind, step in steps.items():
            for found in self._found[kind]:
                self._try(step, found, kind in LAYERED)
        for found in self._found[LAST_NUMBER]:
            self._has_number(found.json if isinstance(found.json, int) else 0)
        for found in self._found[UNREADABLE]:
            self._pass_over(found.key, Unreadable("it was unreadable at an earlier start"))
        self.catalogue.put_aside = len(self._found[UNREADABLE])

    def _try(self, step: Callable[[Names, ObjectRecord], None], found: FoundObject, layered: bool) -> None:
        if layered:
            self.catalogue.stored.add(found.key)
            if found.json is None:  # a default that has been deleted
                return
        try:
            step(found.names, ObjectRecord(found.json))
        except (Unreadable, Failure, RecursionError) as fault:
            self._pass_over(found.key, fault)

    def _pass_over(self, key: str, why: Exception) -> None:
        self.catalogue.unreadable[key] = self._texts[key]
        self.catalogue.incomplete = True
        log.error("passed over, and left in the store: %s: %s", key, why)

    def _has_number(self, number: int) -> None:
        self._journal.next_queue = max(self._journal.next_queue, number + 1)

    # Virtual hosts, users, permissions, policies and parameters.

    def _host(self, name: str) -> VirtualHost:
        return self._broker.add_virtual_host(name)

    def _virtual_host(self, names: Names, record: ObjectRecord) -> None:
        host = self._host(names[0])
        host.set_limits(object_records.virtual_host_limits(record))
        host.set_tracing(record.flag("tracing", otherwise=False))
        host.describe(object_records.description_in(record))
        host.set_default_queue_type(object_records.default_queue_type_in(record))

    def _user(self, names: Names, record: ObjectRecord) -> None:
        self._broker.access.put_user(object_records.user_in(names[0], record))

    def _permissions(self, names: Names, record: ObjectRecord) -> None:
        user, host = names
        self._host(host)
        self._broker.access.add_permissions(user, host, object_records.permissions_in(record))

    def _topic_permissions(self, names: Names, record: ObjectRecord) -> None:
        user, host, exchange = names
        self._host(host)
        permissions = object_records.topic_permissions_in(record)
        self._broker.access.add_topic_permissions(user, host, exchange, permissions)

    def _policy(self, names: Names, record: ObjectRecord) -> None:
        host, name = names
        self._host(host)
        self._broker.policies.set(object_records.policy_in(host, name, record))

    def _operator_policy(self, names: Names, record: ObjectRecord) -> None:
        host, name = names
        self._host(host)
        self._broker.policies.set_operator(object_records.policy_in(host, name, record))

    def _parameter(self, names: Names, record: ObjectRecord) -> None:
        self._broker.parameters.set(names[0], record.json("value"))

    def _linking(self, component: str, names: Names, record: ObjectRecord) -> None:
        """Restore a parameter of shovels or federation."""
        from leveret.features.shovels.components import component_of  # not needed in a node without any

        host, name = names
        self._host(host)
        component_of(self._broker, component).set(host, name, record.json("value"), record.text("user"))

    # Exchanges, queues, leases, stagings, branches, links and bindings.

    def _exchange(self, names: Names, record: ObjectRecord) -> None:
        host, name = names
        number = record.number("number", least=0)
        virtual_host = self._host(host)
        exchange = self._typed(virtual_host, name, record)
        if isinstance(exchange.type, Missing):
            log.error(
                "exchange '%s' in vhost '%s' routes nothing, its alternate gets the messages: type '%s' cannot be "
                "used: %s",
                name,
                host,
                exchange.type.name,
                exchange.type.why,
            )
        if number:
            exchange.begin_to_hold().number = number
            self._has_number(number)
        virtual_host.add_exchange(exchange)

    def _typed(self, host: VirtualHost, name: str, record: ObjectRecord) -> Exchange:
        """Return an exchange with its type, or with `missing` if the type cannot be used."""
        type_, arguments = record.text("type"), record.table("arguments")
        auto_delete, internal = record.flag("auto_delete"), record.flag("internal")

        def of(type_class: type[ExchangeType]) -> Exchange:
            return Exchange(host, name, type_class, True, auto_delete, internal, arguments)

        type_class = self._broker.exchange_types.get(type_)
        if type_class is None:
            return of(missing(type_, "no plug-in offers it"))
        try:
            return of(type_class)
        except MISTAKES as error:  # raised by a plug-in
            return of(missing(type_, f"{type(error).__name__}: {error}"))

    def _ending_queue(self, names: Names, record: ObjectRecord) -> None:
        queue = self._restored_queue(names, record)
        self._ending.add(queue.number)
        self._host(names[0]).add_ending_queue(queue)

    def _queue(self, names: Names, record: ObjectRecord) -> None:
        if record.number("number", least=1) in self._ending:  # the node ended before this record was removed
            self._journal.remove(key_of(QUEUE, *names))
            return
        queue = self._restored_queue(names, record)
        self._host(names[0]).add_queue(queue)

    def _restored_queue(self, names: Names, record: ObjectRecord) -> Queue:
        host, name = self._host(names[0]), names[1]
        arguments, auto_delete = record.table("arguments"), record.flag("auto_delete")
        text = record.optional_text("selector")
        selector = None if text is None else compile_selector(text)
        limits = self._limits(host, name, auto_delete, arguments)
        queue = new_queue(host, name, limits, True, False, auto_delete, None, arguments, selector)
        queue.keep_in(self._journal, record.number("number", least=1))
        queue.notes = record.table("notes")
        queue.pause(PAUSED in queue.notes)
        self._has_number(queue.number)
        if record.has("dead_letters") and isinstance(queue, WorkQueue):
            held = queue.dead_letters = HeldDeadLetters(queue)
            held.keep_in(self._journal, record.number("dead_letters", least=1))
            self._has_number(held.number)
        return queue

    def _deduplication(self, names: Names, record: ObjectRecord) -> None:
        host, name = self._host(names[0]), names[1]
        owners: Mapping[str, Exchange | Queue] = host.exchanges if names[2] == "exchange" else host.queues
        owner = owners.get(name)
        if owner is None:
            raise Unreadable(f"its {names[2]} is not there")
        settings, key = (
            object_records.deduplication_settings(record),
            object_records.deduplication_key(record),
        )
        number = record.number("number", least=1)
        known = owner.deduplication
        if known is None:  # by a policy of the configuration file, perhaps, which is read later
            known = new_deduplication(host, owner, settings)
            owner.deduplicate(known)
        known.key = key
        known.keep_in(self._journal.open_ids(number, known.described, known.known_ids), number)
        self._has_number(number)

    def _lease(self, names: Names, record: ObjectRecord) -> None:
        host, name, reader = names
        queue = self._host(host).queues.get(name)
        if not isinstance(queue, WorkQueue):
            raise Unreadable("its queue is not there")
        lease = Lease(queue, reader)
        lease.fence, lease.incarnation = record.whole("fence"), record.text("incarnation")
        lease.keep_in(self._journal, record.number("number", least=1))
        self._has_number(lease.number)
        leases_of(queue.virtual_host)[name, reader] = lease

    def _staging(self, names: Names, record: ObjectRecord) -> None:
        host, name = self._host(names[0]), names[1]
        staging = Staging(host, name, record.text("user"))
        staging.keep_in(self._journal, record.number("number", least=1))
        self._has_number(staging.number)
        stagings_of(host)[name] = staging

    def _branch(self, names: Names, record: ObjectRecord) -> None:
        host, name = self._host(names[0]), names[1]
        try:
            branch = Branch(host.guest(Branches), xid_in(name), record.text("user"))
        except ValueError:
            raise Unreadable("it has no name") from None
        branch.verdict = object_records.verdict_in(record)
        branch.prepared.restore(object_records.outline_in(record))
        branch.keep_in(self._journal, record.number("number", least=1))
        self._has_number(branch.prepared.number)
        host.guest(Branches).add(branch)

    def _unsettled_map(self, names: Names, record: ObjectRecord) -> None:
        host, (role, user, container, link) = self._host(names[0]), names[1:]
        unsettled = UnsettledMap(host, (role, user, container, link), record.table("terms"))
        unsettled.keep_in(self._journal, record.number("number", least=1))
        self._has_number(unsettled.number)
        unsettled_maps_of(host)[unsettled.names] = unsettled

    def _limits(self, host: VirtualHost, name: str, auto_delete: bool, arguments: Table) -> QueueLimits:
        try:
            limits = parse_queue_arguments(name, host.name, True, False, auto_delete, arguments)
            self._broker.compat.check_queue_arguments(name, host.name, arguments)
        except Failure as failure:
            log.warning("restored, though it could not be declared today: %s", failure)
            limits = as_far_as_known(arguments)
        return limits

    def _binding(self, names: Names, record: ObjectRecord) -> None:
        host = self._host(names[0])
        source = host.exchanges.get(record.text("source"))
        if source is None and record.text("source") == event_exchange.EVENTS:
            source = event_exchange.add_to(host)  # the binding is kept, though events may be off at present
        ends: Mapping[str, Destination] = host.queues if record.text("to") == "queue" else host.exchanges
        destination = ends.get(record.text("destination"))
        if source is None or destination is None:
            raise Unreadable("one of its ends is not there")
        binding = Binding(source, destination, record.text("key"), record.table("arguments"))
        binding.number = self.catalogue.last_binding = int(names[1])
        if binding.identity not in source.bindings_by_identity:
            self._put_binding(host, binding)
        else:  # it was made again while this record could not be read
            self._journal.remove(key_of(BINDING, *names))

    def _put_binding(self, host: VirtualHost, binding: Binding) -> None:
        try:
            self._broker.compat.check_binding_key(binding.source.type.name, binding.key)
        except Failure as failure:
            log.warning(
                "restored, though it could not be made today: %r in vhost '%s': %s",
                binding,
                host.name,
                failure,
            )
        binding.select(selector_as_far_as_known(binding.source.type, binding))
        try:
            host.add_binding(binding)
        except MISTAKES as error:  # raised by a plug-in
            raise Unreadable(
                f"exchange type '{binding.source.type.name}' does not take it: {error!r}"
            ) from None


def as_far_as_known(arguments: Table) -> QueueLimits:
    """Return the limits of arguments whose declaration would be refused today. Raises Unreadable."""
    try:
        queue_type(arguments)
        return limits_of(arguments)
    except ValueError as error:
        raise Unreadable(str(error)) from None
