"""Build the objects of a node from its configuration, at start and at a reload.

What the configuration names - users, permissions, virtual hosts, policies - is put into the broker here and nowhere
else. A reload applies the difference: users and policies that the file no longer names are deleted; virtual hosts, and
what clients have added, stay.

A restart with a store does the same: the configuration is laid over what the store has, and what it names is not kept
in the store. If it names no users, or no virtual hosts, the built-in ones are there until clients change or delete
them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from leveret.alarms import Alarms, DiskMonitor, MemoryMonitor
from leveret.arguments.names import meant, nearest, shown
from leveret.arguments.warnings import tag_warnings
from leveret.broker import Broker
from leveret.catalogue import (
    OPERATOR_POLICY,
    PERMISSIONS,
    POLICY,
    TOPIC_PERMISSIONS,
    USER,
    VIRTUAL_HOST,
    Origin,
)
from leveret.clock import Clock
from leveret.config import records
from leveret.config.compat import NamelessToken
from leveret.config.config import Config, ConfigError
from leveret.config.file_objects import CONFIGURATION
from leveret.config.listener import ListenerEntry
from leveret.config.records import difference
from leveret.config.sections import GUEST, UserEntry, VirtualHostEntry
from leveret.config.store import POSTGRES
from leveret.config.types import Problem, printed
from leveret.errors import MISTAKES, Failure, PreconditionFailed
from leveret.exchanges.exchange_type import ExchangeType
from leveret.features.parameters.components import Connecting
from leveret.features.standard import equip
from leveret.front_end import Protocol
from leveret.interceptors.chain import BadEntry, chain_of
from leveret.limits import NodeLimits, QueueType, UserLimits, VirtualHostLimits
from leveret.observability import log_levels
from leveret.observability.audit import Audit
from leveret.observability.event_exchange import AlarmEvents, EventExchange
from leveret.operations import Reloaded
from leveret.security.access import KEY_SIZE
from leveret.security.passwords import PasswordHash
from leveret.security.sasl import BEARERS, GSSAPI, Scram
from leveret.security.users import User
from leveret.server.node.build_info import built
from leveret.server.node.listener import ListenerRules, WebSocketRules, proxies_of
from leveret.server.node.threads import spawned
from leveret.server.node.tls import Certificates
from leveret.server.plugin_loader import Plugins
from leveret.values import as_json
from leveret.version import VERSION

if TYPE_CHECKING:
    from leveret.exchanges.decorator import ExchangeDecorator
    from leveret.features.recording.recordings import Plan, Recordings
    from leveret.queues.pager import Pager
    from leveret.security.http_users import HttpUsers
    from leveret.security.ldap_users import LdapUsers
    from leveret.server.definitions.reader import Definitions
    from leveret.server.node.node import Node

log: Final = logging.getLogger("leveret.node")

BUILT_IN: Final = Config()
ANY_HOST: Final = ("", "0.0.0.0", "[::]")
HTTP_PROTOCOLS: Final = ("http", "prometheus")


def broker(config: Config, exchange_types: Mapping[str, type[ExchangeType]], clock: Clock) -> Broker:
    """Return an empty broker with the configuration's limits and resource monitors."""
    memory = MemoryMonitor(config.memory_watermark)
    disk = DiskMonitor(config.node.data_dir, config.disk.free_limit)
    above = " Publishers wait while the node uses more (memory.watermark)." if memory.limit() else ""
    log.info("%s%s", memory.describe(), above)
    if (warning := memory.warning()) is not None:
        log.warning(warning)
    made = equip(
        Broker(
            clock=clock,
            exchange_types=exchange_types,
            compat=config.compat.chosen,
            node_limits=_node_limits(config),
            alarms=Alarms((memory, disk)),
            consumer_timeout_ms=config.limits.consumer_timeout_ms,
            default_queue_type=_queue_type(config.node.default_queue_type),
            events_in=config.events.virtual_host,
            slow_call_s=config.plugins.slow_call_ms / 1000,
        )
    )
    made.publish_rates.set_per_connection(config.limits.publish_rate_per_connection)
    made.flow_credit = config.flow.credit
    return made


def intercept(broker: Broker, config: Config, plugins: Plugins) -> None:
    """Have the interceptors of the settings see what is published from now on; those that stay keep their counters.

    Raises ConfigError; then nothing has changed.
    """
    entries = tuple((entry.name, entry.options) for entry in config.interceptors)
    try:
        chain = chain_of(entries, plugins.interceptors, config.node.name, broker.clock, broker.slow_call_s)
    except BadEntry as failure:
        raise ConfigError([Problem(f"interceptors[{failure.index}]", str(failure))]) from None
    before = broker.interceptors
    if chain is not None and before is not None:
        chain.go_on(before)
    broker.intercept(chain)


def decorate(broker: Broker, plugins: Plugins) -> None:
    """Have the plug-ins that decorate exchanges hear of them from now on; those whose class stays go on."""
    ours = [each for each in broker.decorators if not each.name.startswith("x-")]
    before = {type(each): each for each in broker.decorators}
    found: list[ExchangeDecorator] = []
    for name, kind in plugins.decorators.items():
        try:
            found.append(before.get(kind) or kind())
        except MISTAKES as error:
            log.error("exchange decorator %s cannot be used", name, exc_info=error)
    broker.decorate((*ours, *found))


def let_in(broker: Broker, plugins: Plugins) -> None:
    """Let the guests of plug-ins into the broker; those whose class stays go on, and those that are gone are closed."""
    before = {type(each.guest): each for each in broker.guests.foreign()}
    for kind, gone in before.items():
        if plugins.guests.get(kind.name) is not kind:
            broker.guests.remove(kind)
            gone.close()
    for name, kind in plugins.guests.items():
        if kind not in before:
            try:
                broker.guests.let_in(kind)
            except MISTAKES as error:
                log.error("guest %s cannot be used", name, exc_info=error)


def record_spans(broker: Broker, config: Config) -> None:
    """Record spans if the settings ask for it; called before there are virtual hosts. Raises ConfigError."""
    endpoint, service = config.opentelemetry.endpoint, config.opentelemetry.service
    if endpoint is None:
        return
    try:
        from leveret.observability.spans import exporting
    except ImportError:
        text = "traces need more packages: pip install 'leveret[opentelemetry]'"
        raise ConfigError([Problem("opentelemetry.endpoint", text)]) from None
    broker.guests.put(exporting(endpoint, service, broker.clock))


def observe(broker: Broker, config: Config) -> None:
    """Start to emit events and to write the audit log, after the objects are in place. Raises ConfigError."""
    if config.events.virtual_host:
        broker.events.listeners.append(EventExchange(broker))
    broker.alarms.listen(AlarmEvents(broker).on_alarms)
    try:
        audit(broker, config.log.audit)
    except OSError as failure:
        accepted = f"a file that can be written to ({failure.strerror})"
        raise ConfigError([Problem("log.audit", printed(config.log.audit), accepted)]) from None


def audit(broker: Broker, target: str) -> None:
    """Write the audit log to `target` from now on; an empty one ends it. Raises OSError; then nothing has changed."""
    before = broker.guests.find(Audit)
    if before is not None and before.target == target:
        before.reopen()
        return
    after = Audit(broker, target) if target else None
    if before is not None:
        broker.guests.remove(Audit)
        before.close()
    if after is not None:
        broker.guests.put(after)


def record(broker: Broker, config: Config) -> None:
    """Begin the recordings that the settings ask for. Raises ConfigError."""
    for index, name in enumerate(config.record.virtual_hosts):
        where = f"record.virtual_hosts[{index}]"
        if name not in broker.virtual_hosts:
            raise ConfigError([Problem(where, printed(name), "a virtual host that there is")])
        found, plan = recordings(broker, config)
        try:
            found.begin(broker.virtual_hosts[name], plan)
        except PreconditionFailed as failure:
            raise ConfigError([Problem(where, str(failure))]) from None


def recordings(broker: Broker, config: Config) -> tuple[Recordings, Plan]:
    """Return the recordings of a broker, made on the first call, and how the settings have new ones made."""
    from leveret.features.recording.recordings import Plan, Recordings  # most nodes record nothing
    from leveret.features.recording.redaction import Redaction

    found = broker.guests.find(Recordings)
    if found is None:
        found = Recordings(broker, spawned)
        broker.guests.put(found)
    settings, folder = config.record, config.record.folder
    if folder is None and config.node.data_dir is not None:
        folder = config.node.data_dir / "recordings"
    redaction = Redaction(settings.redact_bodies, settings.redact_headers, settings.redact_properties)
    return found, Plan(folder, settings.max_bytes, settings.when_full, redaction)


def page(broker: Broker, config: Config) -> None:
    """From now on, keep waiting messages on disk only when they exceed their share of the memory."""
    from leveret.durable.paging import Paging  # a node in memory need not load it

    memory = next(each for each in broker.alarms.monitors if isinstance(each, MemoryMonitor))
    broker.paging = paging = Paging(broker, None)
    _share_out(memory, config, paging)
    memory.relief = paging.relieve


def _share_out(memory: MemoryMonitor, config: Config, paging: Pager) -> None:
    """Have messages take no more than their shares of the memory."""
    paging.budget = memory.share(config.memory.messages_max)
    paging.unanswered_max = memory.share(config.memory.unacknowledged_max)
    paging.watermark = memory.limit()


def _queue_type(name: str | None) -> QueueType | None:
    return None if name is None else QueueType(name)


def _node_limits(config: Config) -> NodeLimits:
    limits = config.limits
    return NodeLimits(
        limits.connections_max,
        limits.exchanges_max,
        limits.consumers_per_channel_max,
        limits.channels_max,
        limits.virtual_hosts_max,
        limits.unacknowledged_max,
        limits.unacknowledged_per_connection_max,
    )


Read = list[tuple[Path, "Definitions"]]  # files, and what was read from them


def populate(broker: Broker, config: Config, files: Read | None = None) -> None:
    """Add virtual hosts, users, permissions and policies, then load the definitions files. Raises ConfigError.

    `files` are the definitions, if they have been read.
    """
    files = read_definitions(config) if files is None else files
    _set_hashing(broker, config)
    _put_virtual_hosts(broker, config)
    _tell_of_others(broker, config)
    if replace_guest(config, files):
        _give_up_guest(broker)
    else:
        _put_users(broker, config, config.users)
    put_tokens(broker, config)
    put_kerberos(broker, config)
    _put_backends(broker, config)
    _put_policies(broker, config)
    if config.policies:
        for host in broker.hosts():
            host.apply_policies()  # the policies apply to what the store had, too
    if (catalogue := broker.catalogue) is not None and not catalogue.incomplete:
        broker.access.forget_strangers()
    _name_objects(broker, config)
    if files:
        from leveret.server.definitions import importer

        importer.load(broker, files)
    put_shovels(broker, config)
    if config.pipelines:
        put_pipelines(broker, config)
    _admit(broker, config)


def put_shovels(broker: Broker, config: Config) -> None:
    """Set the shovels of the configuration file, and stop those that it no longer names. Raises ConfigError."""
    if not config.shovels and not any(isinstance(guest, Connecting) for guest in broker.guests):
        return
    from leveret.features.shovels.shovels import shovels_of
    from leveret.server.definitions.importer import administrator  # not needed in a node without shovels

    shovels = shovels_of(broker)
    shovels.keep_static({(entry.virtual_host, entry.name) for entry in config.shovels})
    for index, entry in enumerate(config.shovels):
        try:
            user = administrator(broker) if entry.user is None else entry.user
            shovels.set_static(entry.virtual_host, entry.name, as_json(entry.definition), user)
        except Failure as failure:
            raise ConfigError([Problem(f"shovels[{index}]", str(failure))]) from None


def put_pipelines(broker: Broker, config: Config) -> None:
    """Run the pipelines of the configuration file, and end those that it no longer names."""
    from leveret.features.pipelines.supervised_pipelines import SupervisedPipelines  # few nodes have any

    broker.guest(SupervisedPipelines).set(config.pipelines)


def read_definitions(config: Config) -> Read:
    """Return the definitions files that are loaded at a start. Raises ConfigError."""
    if not config.definitions.load:
        return []
    from leveret.server.definitions.reader import read_files  # not needed without any

    return list(zip(config.definitions.load, read_files(config.definitions.load), strict=True))


def replace_guest(config: Config, files: Read) -> bool:
    """Return whether the built-in user is not made, because definitions have users and the configuration has none."""
    return config.users == BUILT_IN.users and any(definitions.users for _, definitions in files)


def _give_up_guest(broker: Broker) -> None:
    """Leave out the built-in user, now and at later starts without the definitions, unless a client has changed it."""
    catalogue = broker.catalogue
    if catalogue is not None and catalogue.by_default(USER, GUEST.name):
        with _said_by_config(broker, is_default=True):
            _put_user(broker, GUEST)
        broker.access.delete_user(GUEST.name)


def _name_objects(broker: Broker, config: Config) -> None:
    """Note what the configuration file names, for those that change it."""
    there = broker.file_objects
    there.forget(CONFIGURATION)
    if config.virtual_hosts != BUILT_IN.virtual_hosts:
        for host in config.virtual_hosts:
            there.add(CONFIGURATION, VIRTUAL_HOST, host.name)
    for policy in config.policies:
        put = policy.policy
        there.add(CONFIGURATION, OPERATOR_POLICY if policy.operator else POLICY, put.virtual_host, put.name)
    if config.users == BUILT_IN.users:
        return
    for user in config.users:
        there.add(CONFIGURATION, USER, user.name)
        for name, exchanges in user.topic_permissions.items():
            for exchange in exchanges:
                there.add(CONFIGURATION, TOPIC_PERMISSIONS, user.name, name, exchange)
        for name in user.permissions:
            there.add(CONFIGURATION, PERMISSIONS, user.name, name)


@contextmanager
def _said_by_config(broker: Broker, is_default: bool = False) -> Iterator[None]:
    """Make the changes within this context as the configuration's: they are not kept in the store."""
    if broker.catalogue is None:
        yield
        return
    with broker.catalogue.told_by(Origin.DEFAULT if is_default else Origin.FILE):
        yield


def _holds(broker: Broker, is_default: bool, *names: str) -> bool:
    """Return whether an entry of the configuration is to be applied: a default gives way to clients' changes."""
    return not is_default or broker.catalogue is None or broker.catalogue.by_default(*names)


def _put_virtual_hosts(broker: Broker, config: Config) -> None:
    is_default = config.virtual_hosts == BUILT_IN.virtual_hosts
    with _said_by_config(broker, is_default):
        for host in config.virtual_hosts:
            if _holds(broker, is_default, VIRTUAL_HOST, host.name):
                put = broker.add_virtual_host(host.name, _host_limits(config, host))
                if host.default_queue_type is not None:
                    put.set_default_queue_type(QueueType(host.default_queue_type))


def _tell_of_others(broker: Broker, config: Config) -> None:
    named = {host.name for host in config.virtual_hosts}
    for name in broker.virtual_hosts.keys() - named:
        if broker.catalogue is not None and not broker.catalogue.has(VIRTUAL_HOST, name):
            log.info(
                "the configuration does not name vhost '%s': it stays, with what it has in the store", name
            )


def _host_limits(config: Config, entry: VirtualHostEntry) -> VirtualHostLimits:
    queues = config.limits.queues_max if entry.queues_max is None else entry.queues_max
    return VirtualHostLimits(entry.connections_max, queues, entry.publish_rate)


def _put_users(broker: Broker, config: Config, users: Iterable[UserEntry]) -> None:
    is_default = config.users == BUILT_IN.users
    with _said_by_config(broker, is_default):
        for user in users:
            if _holds(broker, is_default, USER, user.name):
                _put_user(broker, user)
            if broker.access.user(user.name) is not None:
                _put_permissions(broker, user, is_default)


def _put_user(broker: Broker, entry: UserEntry) -> None:
    broker.notices.notice_user(entry.name, tag_warnings(entry.tags))
    limits = UserLimits(entry.connections_max, entry.channels_max, entry.publish_rate)
    access = broker.access
    if entry.password_hash is not None:
        access.put_user(User(entry.name, entry.tags, PasswordHash.parse(entry.password_hash, None), limits))
    else:
        access.add_user(entry.name, entry.password, entry.tags, limits)


def _put_permissions(broker: Broker, entry: UserEntry, is_default: bool) -> None:
    name, access = entry.name, broker.access
    for host, allowed in entry.permissions.items():
        if _holds(broker, is_default, PERMISSIONS, name, host):
            access.set_permissions(name, host, allowed.configure, allowed.write, allowed.read)
    for host, exchanges in entry.topic_permissions.items():
        for exchange, topics in exchanges.items():
            if _holds(broker, is_default, TOPIC_PERMISSIONS, name, host, exchange):
                access.set_topic_permissions(name, host, exchange, topics.write, topics.read)


def put_tokens(broker: Broker, config: Config) -> None:
    """Accept tokens of the configured issuer, or none. Raises ConfigError, and leaves everything as it was."""
    access = broker.access
    if not config.oauth.is_on:
        access.tokens = None
        return
    from leveret.security.tokens import UNKNOWN, Tokens

    refuses = broker.compat.nameless_token is NamelessToken.REFUSE
    nameless = None if refuses else UNKNOWN
    tokens = Tokens(config.oauth, broker.clock, nameless, access.fetch, access.random_octets(KEY_SIZE))
    tokens.follow(access.tokens)
    access.tokens = tokens
    broker.timers.at(broker.now, lambda now: tokens.prepare())


def put_kerberos(broker: Broker, config: Config) -> None:
    """Accept tickets of Kerberos, or none. Raises ConfigError, and leaves everything as it was."""
    before, wanted = broker.access.kerberos, config.kerberos
    if not wanted.is_on:
        broker.access.kerberos = None
    elif before is None or before.settings != wanted:
        from leveret.security.kerberos import Acceptor

        broker.access.kerberos = Acceptor(wanted)


def _put_backends(broker: Broker, config: Config) -> None:
    """Have passwords checked by the configured backends. What a server has said is kept if nothing has changed."""
    names = config.security.backends
    http_users = _http_users(broker, config) if "http" in names else None
    ldap_users = _ldap_users(broker, config) if "ldap" in names else None
    broker.access.set_backends(names, http_users, ldap_users)


def _http_users(broker: Broker, config: Config) -> HttpUsers:
    access = broker.access
    users = access.http_users
    if users is None or users.settings != config.auth_http:
        from leveret.security.http_users import HttpUsers

        key = access.random_octets(KEY_SIZE)
        users = HttpUsers(config.auth_http, broker.clock, broker.timers, access, key)
    if users.permissions is not None and access.held_input is None:
        from leveret.server.node.held_input import HeldInput

        access.held_input = broker.held_input = HeldInput(broker)
    return users


def _ldap_users(broker: Broker, config: Config) -> LdapUsers:
    access = broker.access
    users = access.ldap_users
    if users is None or users.settings != config.auth_ldap:
        from leveret.security.ldap_users import LdapUsers

        users = LdapUsers(config.auth_ldap, broker.clock, access, access.random_octets(KEY_SIZE))
    return users


def _put_policies(broker: Broker, config: Config) -> None:
    with _said_by_config(broker):
        for entry in config.policies:
            put = broker.policies.set_operator if entry.operator else broker.policies.set
            put(entry.policy)


def _set_hashing(broker: Broker, config: Config) -> None:
    """Set how passwords are hashed; the SCRAM keys are only kept if a protocol offers SCRAM."""
    security = config.security
    is_offered = any(Scram.name in names for names in config.protocols.mechanisms().values())
    iterations = security.scram_iterations if is_offered else None
    broker.access.hashing = attrs.evolve(
        broker.access.hashing, algorithm=security.password_hashing, scram_iterations=iterations
    )


def _admit(broker: Broker, config: Config) -> None:
    """Set the anonymous user, the users that may log in from loopback only, and the limits on failed logins."""
    broker.access.set_loopback_users(config.security.loopback_users)
    broker.access.checks_policies = config.security.check_policies
    anonymous = config.anonymous_user
    if config.security.anonymous_user is None and not _is_built_in(broker.access.user(GUEST.name)):
        anonymous = None  # guest's default password was changed: do not bypass the new one
    broker.access.set_anonymous_user(anonymous)
    broker.access.logins.per_address = config.limits.login_failures_per_address
    broker.access.logins.per_user = config.limits.login_failures_per_user


def _is_built_in(guest: User | None) -> bool:
    """Return whether guest still has its default password. A slow hash is never compared: it takes too long."""
    password = None if guest is None else guest.password
    return password is not None and not password.is_slow and password.matches(GUEST.password or "")


# Reload.


def reload(broker: Broker, old: Config, new: Config) -> Reloaded:
    """Apply to a running node what can change without a restart."""
    changed, needs_restart = difference(old, attrs.evolve(new, virtual_hosts=_virtual_hosts(old, new)))
    needs_restart += tuple(
        f"virtual_hosts[{printed(host.name)}]" for host in _virtual_hosts_staying(old, new)
    )
    _put_virtual_hosts(broker, new)
    for host in _virtual_hosts_staying(old, new):
        with _said_by_config(broker):
            broker.add_virtual_host(host.name, _host_limits(new, host))
    new = in_force(old, new)
    _set_hashing(broker, new)
    _put_backends(broker, new)
    _reload_users(broker, old, new)
    with _said_by_config(broker):
        for gone in (policy for policy in old.policies if policy not in new.policies):
            clear = broker.policies.clear_operator if gone.operator else broker.policies.clear
            clear(gone.virtual_host, gone.name)
    _put_policies(broker, new)
    _name_objects(broker, new)
    if old.shovels != new.shovels:
        put_shovels(broker, new)
    if old.pipelines != new.pipelines:
        put_pipelines(broker, new)
    broker.node_limits = _node_limits(new)
    broker.consumer_timeout_ms = new.limits.consumer_timeout_ms
    broker.slow_call_s = new.plugins.slow_call_ms / 1000
    broker.publish_rates.set_per_connection(new.limits.publish_rate_per_connection)
    broker.flow_credit = new.flow.credit
    broker.default_queue_type = _queue_type(new.node.default_queue_type)
    for host_name in list(broker.virtual_hosts):
        broker.virtual_hosts[host_name].apply_policies()
    _reload_monitors(broker, new)
    _reload_audit(broker, new)
    log_levels.set_levels(new.log.level, attrs.asdict(new.log.levels))
    return Reloaded(changed, needs_restart)


def in_force(old: Config, new: Config) -> Config:
    """Return the configuration in force after a reload: the new one, except for what needs a restart."""
    return attrs.evolve(records.in_force(old, new), virtual_hosts=_virtual_hosts(old, new))


def _virtual_hosts(old: Config, new: Config) -> tuple[VirtualHostEntry, ...]:
    return (*new.virtual_hosts, *_virtual_hosts_staying(old, new))


def _virtual_hosts_staying(old: Config, new: Config) -> tuple[VirtualHostEntry, ...]:
    """Return the virtual hosts that the file no longer names: editing a file does not delete their messages."""
    named = {host.name for host in new.virtual_hosts}
    return tuple(host for host in old.virtual_hosts if host.name not in named)


def _reload_users(broker: Broker, old: Config, new: Config) -> None:
    before = {user.name: user for user in old.users}
    named = {user.name for user in new.users}
    with _said_by_config(broker):
        for name in before.keys() - named:
            if broker.catalogue is None or not broker.catalogue.has(USER, name):
                broker.access.delete_user(name)
        changed = [user for user in new.users if before.get(user.name) != user]
        for user in changed:
            for host in before[user.name].permissions if user.name in before else ():
                broker.access.clear_permissions(user.name, host)
                broker.access.clear_topic_permissions(user.name, host)
    _put_users(broker, new, changed)
    _admit(broker, new)


def _reload_monitors(broker: Broker, new: Config) -> None:
    for monitor in broker.alarms.monitors:
        if isinstance(monitor, MemoryMonitor):
            monitor.set_watermark(new.memory_watermark)
            if broker.paging is not None:
                _share_out(monitor, new, broker.paging)
        elif isinstance(monitor, DiskMonitor):
            monitor.set_free_limit(new.disk.free_limit)
    broker.alarms.check_soon()
    broker.alarms.check(broker.now)


def _reload_audit(broker: Broker, new: Config) -> None:
    try:
        audit(broker, new.log.audit)
    except OSError as failure:
        log.error("audit log stays as it was: %s: %s", new.log.audit, failure.strerror)


# Start of the process.


def protocols_of(
    config: Config, entry: ListenerEntry, listener: str, known: Mapping[str, Protocol]
) -> tuple[Protocol, ...]:
    """Return the protocols of the `listener` at a place, the fallback last.

    Raises ConfigError if one is unknown, or none is enabled.
    """
    where, names = f"{listener}.protocols", entry.protocols
    if names is None:
        names = tuple(p.name for p in known.values() if p.shared and config.protocols.enabled(p.name))
        if not names:
            raise ConfigError([Problem(where, "nothing: every protocol is disabled", "an enabled protocol")])
    unknown = [name for name in names if name not in known]
    if unknown:
        accepted = "one of " + ", ".join(sorted(known))
        raise ConfigError([Problem(where, printed(name), accepted, nearest(name, known)) for name in unknown])
    return tuple(sorted((known[name] for name in names), key=lambda protocol: protocol.fallback))


def entries(config: Config, known: Mapping[str, Protocol]) -> Iterator[tuple[str, ListenerEntry]]:
    """Yield every listener with its path in the settings, that of the control endpoint last."""
    for index, entry in enumerate(config.listeners):
        yield f"listeners[{index}]", entry
    if (scraped := config.prometheus).enabled:
        entry = ListenerEntry(address=scraped.address, protocols=("prometheus",), tls=scraped.tls)
        yield "prometheus", entry
    if config.http.enabled and "http" in known:
        yield (
            "http",
            ListenerEntry(
                address=config.http.address,
                protocols=("http",),
                tls=config.http.tls,
                websocket=config.http.websocket,
                websocket_origins=config.http.websocket_origins,
            ),
        )


def place_of(where: str, index: int) -> str:
    """Return the name by which nodes of a cluster agree on a listener, whose addresses may differ."""
    return str(index) if where.startswith("listeners[") else where


def entrance_of(
    config: Config, entry: ListenerEntry, where: str, known: Mapping[str, Protocol]
) -> ListenerRules:
    """Return the protocols, certificates and trusted proxies of a listener. Raises ConfigError."""
    protocols = protocols_of(config, entry, where, known)
    if entry.socket_owner is not None:
        from leveret.server.node.unix_socket import owner_of  # for its errors, before anything is bound

        owner_of(entry, where)
    certificates = None if entry.tls is None else Certificates(entry.tls, f"{where}.tls")
    websocket = _websocket_rules(config, entry, where, protocols, known) if entry.websocket else None
    return ListenerRules(
        protocols, certificates, proxies_of(entry), websocket, virtual_host=entry.virtual_host
    )


def _websocket_rules(
    config: Config,
    entry: ListenerEntry,
    where: str,
    protocols: tuple[Protocol, ...],
    known: Mapping[str, Protocol],
) -> WebSocketRules:
    """Return what is within a listener's WebSockets: its protocols; without any but HTTP, every enabled one."""
    import_module("leveret.server.node.websocket")  # now, not with the first client
    inside = tuple(each for each in protocols if each.name not in HTTP_PROTOCOLS)
    if not inside:
        inside = protocols_of(config, attrs.evolve(entry, protocols=None), where, known)
    beside_http = any(each.name in HTTP_PROTOCOLS for each in protocols)
    return WebSocketRules(ListenerRules(inside), entry.websocket_origins, entry.address.host, beside_http)


def check_protocols(config: Config, known: Mapping[str, Protocol]) -> None:
    """Raise ConfigError if protocols of plug-ins do not accept their settings."""
    problems = [
        problem
        for name, protocol in known.items()
        if protocol.settings is not None and name in config.protocols.others
        for problem in config.protocols.problems(name, protocol.settings)
    ]
    if problems:
        raise ConfigError(problems)


def protocol_warnings(config: Config, known: Mapping[str, Protocol]) -> list[str]:
    """Return the warnings of tables for protocols that no plug-in brings, or that have to be named by a listener."""
    served = {name for listener in config.listeners for name in listener.protocols or ()}
    warnings = []
    for name in config.protocols.others:
        if name not in known:
            if name not in config.plugins.disabled:
                why = f"there is no protocol of this name{meant(name, known)}"
                warnings.append(f"protocols.{shown(name)} has no effect: {why}")
        elif not (known[name].shared or name in HTTP_PROTOCOLS or name in served):
            if config.protocols.enabled(name):
                warnings.append(f"protocols.{name} has no effect: no listener names it in its protocols")
    return warnings


def mechanism_warnings(config: Config) -> list[str]:
    """Return the warnings of mechanisms that are named, and not offered."""
    needed = {} if config.oauth.is_on else dict.fromkeys(BEARERS, "[oauth] accepts tokens")
    if not config.kerberos.is_on:
        needed[GSSAPI] = "[kerberos] names a keytab"
    return [
        f"protocols.{protocol}.mechanisms names {name}, which is offered only where {needed[name]}"
        for protocol, names in config.protocols.mechanisms().items()
        for name in names
        if name in needed
    ]


def welcome(node: Node, source: str, has_links: bool = False) -> str:
    """Return the text that `leveret serve` prints when it is ready: one screen.

    `has_links`: it goes to a terminal, where an address can be a link (OSC 8).
    """
    lines = [f"Leveret {VERSION}, {built()}", ""]
    for each in node.listening:
        optional = " or without it" if each.entrance.takes_plain else ""
        secured = f", with TLS{optional}" if each.entrance.is_secured else ""
        lines.append(
            f"  {each.address:24} {_names(each.entrance.protocols)}{secured}{_websocket(each.entrance)}"
        )
    lines.append("")
    for url in web_pages(node):
        lines.append(
            f"  web page                 {_link(url) if has_links else url}  (and management API, metrics)"
        )
    lines.append(f"  configuration            {source or 'defaults'}")
    lines.append(f"  data                     {_data(node)}")
    lines.append(f"  virtual hosts            {', '.join(sorted(node.broker.virtual_hosts))}")
    lines.append(f"  users                    {_users(node)}")
    lines += ["", "  Ctrl-C stops it; SIGHUP reads the configuration again."]
    return "\n".join(lines)


def web_pages(node: Node) -> list[str]:
    """Return the addresses of the web page as a browser on this machine opens them."""
    found = []
    for each in node.listening:
        host, _, port = each.address.rpartition(":")
        if any(protocol.name == "http" for protocol in each.entrance.protocols) and port.isdecimal():
            scheme = "https" if each.entrance.is_secured else "http"
            found.append(f"{scheme}://{'localhost' if host in ANY_HOST else host}:{port}/")
    return found


def _link(url: str) -> str:
    return f"\x1b]8;;{url}\x1b\\{url}\x1b]8;;\x1b\\"


def _names(protocols: Iterable[Protocol]) -> str:
    return ", ".join(sorted(protocol.title or protocol.name for protocol in protocols))


def _websocket(entrance: ListenerRules) -> str:
    rules = entrance.websocket
    if rules is None:
        return ""
    return (
        f", {_names(rules.inside.protocols)} over WebSockets at /ws"
        if rules.beside_http
        else ", over WebSockets"
    )


def _data(node: Node) -> str:
    if node.persistence is None:
        return "in memory only, gone when the node stops"
    if node.config.store.engine == POSTGRES:
        return "in PostgreSQL (durable)"
    return f"{node.persistence.folder or 'in a store of the program'} (durable)"


def _users(node: Node) -> str:
    access = node.broker.access
    names = [user.name for user in access.users()]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    if _is_built_in(access.user(GUEST.name)):
        shown += "  (guest's password is guest; it may connect from this machine only)"
    return shown or "none: nobody can log in"
