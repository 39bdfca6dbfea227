"""Loads the configuration: one TOML file, environment variables and flags to one frozen `Config`.

    config = load(Path("leveret.toml"), os.environ, {"http.address": "127.0.0.1:15673"})

Flags win over the environment, the environment over the file, the file over the defaults. All problems are reported at
once (`ConfigError.problems`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import attrs

from leveret.config.cluster import ClusterSettings
from leveret.config.http_auth import HttpAuthSettings
from leveret.config.kerberos import KerberosSettings
from leveret.config.ldap_auth import LdapAuthSettings
from leveret.config.listener import HttpSettings, ListenerEntry, PrometheusSettings
from leveret.config.oauth import OAuthSettings
from leveret.config.protocols import ProtocolsSettings
from leveret.config.records import (
    Raw,
    Record,
    RecordOf,
    key,
    laid_over,
    nearly_variables,
    nested,
    with_environment,
)
from leveret.config.sections import (
    GUEST,
    CompatSettings,
    DefinitionsSettings,
    DiskSettings,
    EventsSettings,
    FlowSettings,
    InterceptorEntry,
    LimitsSettings,
    LogSettings,
    MemorySettings,
    NodeSettings,
    OpenTelemetrySettings,
    PipelineEntry,
    PluginsSettings,
    PolicyEntry,
    RecordSettings,
    SecuritySettings,
    ShovelEntry,
    UserEntry,
    VirtualHostEntry,
)
from leveret.config.store import POSTGRES, StoreSettings
from leveret.config.types import REFUSED, Address, AnyAddress, ListOf, Place, Problem, printed

PREFIX: Final = "LEVERET_"
EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})


class ConfigError(Exception):
    """Raised if the configuration cannot be used. `str(error)` lists every problem, one a line."""

    def __init__(self, problems: Sequence[Problem], rest: Config | None = None) -> None:
        """`rest` is what of a configuration could be read, with defaults for what could not."""
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
        self.rest = rest


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Config(Record):
    """All settings."""

    node: NodeSettings = key(RecordOf(NodeSettings), "The node as a whole.", NodeSettings())
    cluster: ClusterSettings = key(
        RecordOf(ClusterSettings), "Several nodes of which one serves.", ClusterSettings()
    )
    store: StoreSettings = key(RecordOf(StoreSettings), "Where durable data is kept.", StoreSettings())
    log: LogSettings = key(RecordOf(LogSettings), "Logging.", LogSettings())
    events: EventsSettings = key(RecordOf(EventsSettings), "The event exchange.", EventsSettings())
    listeners: tuple[ListenerEntry, ...] = key(
        ListOf(RecordOf(ListenerEntry)),
        "Addresses to accept connections on.",
        (
            ListenerEntry(address=Address("127.0.0.1", 5672)),
            ListenerEntry(address=Address("::1", 5672)),
        ),
    )
    protocols: ProtocolsSettings = key(RecordOf(ProtocolsSettings), "Each protocol.", ProtocolsSettings())
    http: HttpSettings = key(RecordOf(HttpSettings), "The control endpoint.", HttpSettings())
    prometheus: PrometheusSettings = key(
        RecordOf(PrometheusSettings), "Metrics for Prometheus.", PrometheusSettings()
    )
    opentelemetry: OpenTelemetrySettings = key(
        RecordOf(OpenTelemetrySettings), "Traces.", OpenTelemetrySettings()
    )
    limits: LimitsSettings = key(RecordOf(LimitsSettings), "Limits.", LimitsSettings())
    memory: MemorySettings = key(RecordOf(MemorySettings), "The memory alarm.", MemorySettings())
    disk: DiskSettings = key(RecordOf(DiskSettings), "The disk alarm.", DiskSettings())
    flow: FlowSettings = key(RecordOf(FlowSettings), "Flow control.", FlowSettings())
    plugins: PluginsSettings = key(RecordOf(PluginsSettings), "Plug-ins.", PluginsSettings())
    interceptors: tuple[InterceptorEntry, ...] = key(
        ListOf(RecordOf(InterceptorEntry)), "Interceptors of published messages.", (), reload=True
    )
    shovels: tuple[ShovelEntry, ...] = key(ListOf(RecordOf(ShovelEntry)), "Shovels.", (), reload=True)
    pipelines: tuple[PipelineEntry, ...] = key(
        ListOf(RecordOf(PipelineEntry)), "Pipelines to a lake.", (), reload=True
    )
    auth_http: HttpAuthSettings = key(
        RecordOf(HttpAuthSettings), "A server for passwords.", HttpAuthSettings()
    )
    auth_ldap: LdapAuthSettings = key(
        RecordOf(LdapAuthSettings), "A directory for passwords.", LdapAuthSettings()
    )
    kerberos: KerberosSettings = key(RecordOf(KerberosSettings), "Tickets.", KerberosSettings())
    security: SecuritySettings = key(RecordOf(SecuritySettings), "Logging in.", SecuritySettings())
    oauth: OAuthSettings = key(RecordOf(OAuthSettings), "Tokens.", OAuthSettings())
    users: tuple[UserEntry, ...] = key(ListOf(RecordOf(UserEntry)), "Users.", (GUEST,), reload=True)
    virtual_hosts: tuple[VirtualHostEntry, ...] = key(
        ListOf(RecordOf(VirtualHostEntry), least=1),
        "Virtual hosts.",
        (VirtualHostEntry(name="/"),),
        reload=True,
    )
    policies: tuple[PolicyEntry, ...] = key(ListOf(RecordOf(PolicyEntry)), "Policies.", (), reload=True)
    definitions: DefinitionsSettings = key(
        RecordOf(DefinitionsSettings), "Definitions to load.", DefinitionsSettings()
    )
    record: RecordSettings = key(RecordOf(RecordSettings), "Recordings.", RecordSettings())
    compat: CompatSettings = key(RecordOf(CompatSettings), "Compatibility.", CompatSettings())

    @property
    def anonymous_user(self) -> str | None:
        """The user that ANONYMOUS logs in as, or None. The default is the built-in guest, whose password is public."""
        name = self.security.anonymous_user
        if name is None:
            return GUEST.name if self.users == (GUEST,) else None
        return name or None

    @property
    def memory_watermark(self) -> int | float:
        """A fraction of the memory (float), or bytes (int); 0 for no alarm."""
        mark = self.memory.watermark
        return self.compat.chosen.memory_watermark if mark is None else mark

    @property
    def message_size_max(self) -> int:
        """The size of the largest message body, in bytes."""
        limit = self.limits.message_size_max
        return self.compat.chosen.message_size_max if limit is None else limit

    @property
    def address_v1(self) -> bool:
        """True if AMQP 1.0 links may name addresses of version 1."""
        permitted = self.protocols.amqp10.addresses.v1
        return self.compat.chosen.address_v1 if permitted is None else permitted

    def contradictions(self) -> Iterator[Problem]:
        if "http" in self.security.backends and self.auth_http.user_path is None:
            yield Problem("auth_http.user_path", "nothing", "a URL, as security.backends names http")
        if "ldap" in self.security.backends:
            for problem in self.auth_ldap.missing():
                yield attrs.evolve(problem, where=f"auth_ldap.{problem.where}")
        if self.cluster.is_on and self.store.engine != POSTGRES:
            yield Problem(
                "store.engine", printed(self.store.engine), f'"{POSTGRES}", as there is a cluster.name'
            )
        yield from self._shared_addresses()
        yield from _repeated("users", [user.name for user in self.users])
        yield from _repeated("virtual_hosts", [virtual_host.name for virtual_host in self.virtual_hosts])
        yield from _repeated("policies", [(p.virtual_host, p.operator, p.name) for p in self.policies])
        yield from _repeated("pipelines", [(each.virtual_host, each.title) for each in self.pipelines])
        yield from _repeated("pipelines", [(each.target,) for each in self.pipelines], "target")
        yield from self._disabled_protocols()
        frame_max = self.protocols.amqp091.frame_max
        if not self.compat.problems and frame_max < (least := self.compat.chosen.frame_min_size):
            accepted = f"at least the smallest frame ({least})"
            yield Problem("protocols.amqp091.frame_max", str(frame_max), accepted)
        if not self.definitions.load:  # definitions may bring further users and virtual hosts
            yield from self._unknown_names()

    def _shared_addresses(self) -> Iterator[Problem]:
        """Yield a problem for each address at which something else listens, too."""
        places = [(f"listeners[{index}].address", each.address) for index, each in enumerate(self.listeners)]
        if self.http.enabled:
            places.append(("http.address", self.http.address))
        if self.prometheus.enabled:
            places.append(("prometheus.address", self.prometheus.address))
        if self.cluster.address is not None:
            places.append(("cluster.address", self.cluster.address))
        for index, (where, address) in enumerate(places):
            for other, taken in places[:index]:
                if collide(address, taken):
                    has = "has this one" if address == taken else f"has {taken}"
                    yield Problem(where, f'"{address}"', f"an address of its own: {other} {has}")
                    break

    def _disabled_protocols(self) -> Iterator[Problem]:
        for index, listener in enumerate(self.listeners):
            for name in listener.protocols or ():
                if not self.protocols.enabled(name):
                    yield Problem(
                        f"listeners[{index}].protocols", f'"{name}", which is disabled', "enabled protocols"
                    )

    def _unknown_names(self) -> Iterator[Problem]:
        users = {user.name for user in self.users}
        hosts = {virtual_host.name for virtual_host in self.virtual_hosts}
        known = "the name of a virtual host: " + ", ".join(sorted(hosts))
        for index, user in enumerate(self.users):
            for name in sorted({*user.permissions, *user.topic_permissions} - hosts):
                yield Problem(f"users[{index}].permissions", f'"{name}"', known)
        for index, policy in enumerate(self.policies):
            if policy.virtual_host not in hosts:
                yield Problem(f"policies[{index}].virtual_host", f'"{policy.virtual_host}"', known)
        if self.security.anonymous_user and self.security.anonymous_user not in users:
            found = f'"{self.security.anonymous_user}"'
            yield Problem("security.anonymous_user", found, "the name of a user: " + ", ".join(sorted(users)))


def _repeated(path: str, names: Sequence[Hashable], key: str = "name") -> Iterator[Problem]:
    """Yield a problem for each item of a list that has the name, or another key, of one before it."""
    first: dict[Hashable, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            shown = name[-1] if isinstance(name, tuple) else name
            yield Problem(
                f"{path}[{index}].{key}",
                printed(shown),
                f"a {key} of its own: {path}[{first[name]}] has this one",
            )


def collide(address: AnyAddress, other: AnyAddress) -> bool:
    """Return whether two sockets cannot listen at these addresses: one of them may be that of all interfaces."""
    if not (address.is_fixed and other.is_fixed):
        return False
    if not (isinstance(address, Address) and isinstance(other, Address)):
        return str(address) == str(other)
    if address.port != other.port:
        return False
    wide = {each.host for each in (address, other)} & EVERYWHERE
    families = [family_of(each.host) for each in (address, other)]
    return address.host == other.host or (bool(wide) and families[0] == families[1])


def family_of(host: str) -> str:
    """Return which kind of address a host is; a name may be of either kind."""
    return "IPv6" if ":" in host else "IPv4" if host.replace(".", "").isdecimal() else "name"


def load(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """Return the configuration from a file, environment variables and flags.

    `overrides` has the keys' paths as names: `{"http.address": "127.0.0.1:15673"}`; None takes the default. Raises
    ConfigError if anything is wrong.
    """
    table = _read_file(path) if path is not None else {}
    return parse(table, environ, overrides, path.parent if path is not None else None)


def parse(
    source: str | bytes | Raw,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    folder: Path | None = None,
) -> Config:
    """Load as `load` does, from the text of a file or a table. Relative file names start at `folder`."""
    environ = environ or {}
    table = source if isinstance(source, Mapping) else _read_toml(source, "the configuration")
    place = Place([], folder=folder)
    table = with_environment(table, Config, environ, PREFIX, place)
    for path, value in (overrides or {}).items():
        table = laid_over(table, nested(path.split("."), value))
        place.origins[path] = "the command line"
    config = RecordOf(Config).read(table, place)
    if config is not REFUSED:
        config = _with_passwords(config, environ, place)
        config = _with_dsn(config, place)
    if config is REFUSED:
        raise ConfigError(place.problems)
    if place.problems:
        raise ConfigError(place.problems, config)
    return config


def unread_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a warning for each environment variable that would be a key's if it had `__` for the dots of its path."""
    near = nearly_variables(Config, environ, PREFIX)
    return [f"the environment variable {name} is not read; did you mean {meant}?" for name, meant in near]


def _read_file(path: Path) -> Raw:
    try:
        return _read_toml(path.read_bytes(), str(path))
    except OSError as error:
        found = (error.strerror or "an error").lower()
        raise ConfigError([Problem(str(path), found, "a file that can be read")]) from None


def _read_toml(source: str | bytes, name: str) -> Raw:
    import tomllib  # imported on demand: a node without a file does not need it

    try:
        # some editors begin files with a byte order mark
        return tomllib.loads(source.decode("utf-8-sig") if isinstance(source, bytes) else source)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError([Problem(name, f"a mistake: {error}", "TOML")]) from None


def _with_passwords(config: Config, environ: Mapping[str, str], place: Place) -> Config:
    """Return the configuration with each password read that an environment variable or file holds."""
    users = place.at("users")
    resolved = tuple(
        _with_password(user, environ, users.item(index)) for index, user in enumerate(config.users)
    )
    return attrs.evolve(config, users=resolved)


def _with_dsn(config: Config, place: Place) -> Config:
    """Return the configuration with the connection string that a file holds, if libpq understands it."""
    settings, where = config.store.postgres, place.at("store").at("postgres")
    if settings.dsn_file is not None and settings.dsn is None:
        try:
            dsn = settings.dsn_file.read_text().strip()
        except (OSError, ValueError):
            dsn = ""
        if not dsn:
            where.at("dsn_file").refuse(f'"{settings.dsn_file}"', "a file with a connection string in it")
            return config
        settings = attrs.evolve(settings, dsn=dsn, dsn_file=None)
    if config.store.engine == POSTGRES and settings.dsn is not None and find_spec("psycopg") is not None:
        from psycopg import Error, conninfo

        try:
            conninfo.conninfo_to_dict(settings.dsn)
        except Error:  # its text may quote a part of a password
            where.at("dsn").refuse("a string (hidden)", "`host=... dbname=...` or `postgresql://...`")
    return attrs.evolve(config, store=attrs.evolve(config.store, postgres=settings))


def _with_password(user: UserEntry, environ: Mapping[str, str], place: Place) -> UserEntry:
    if user.password_env is not None:
        if password := environ.get(user.password_env):
            return attrs.evolve(user, password=password)
        place.at("password_env").refuse(f'"{user.password_env}"', "an environment variable that is set")
    if user.password_file is not None:
        try:
            password = user.password_file.read_text().removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError):
            password = ""
        if password:
            return attrs.evolve(user, password=password)
        place.at("password_file").refuse(f'"{user.password_file}"', "a file with a password in it")
    return user
