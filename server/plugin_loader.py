"""Load plug-ins: entry points, folders and Python's decorators fill registries: exchange types, protocols and others.

    installed packages   entry point groups `leveret.exchanges`, `.protocols`, `.interceptors`, `.decorators`, `.guests`
    plugin folders       each `*.py` without a leading underscore; its public types, protocols and others are found
    imported code        `@exchange_type`, `@interceptor`, `@exchange_decorator`, `register_exchange_type(cls)`, ...

`Plugins` owns the registries of one node. At boot anything wrong with a plugin is a fatal error that names the plugin:
a name taken twice, a name without `x-`, a method that cannot be called as the contract says (X014). Later, `reload`
reads the files of the folders that have changed. A file that fails to load is refused with its traceback, and what it
offered before stays; the names of a deleted file are removed, but exchanges declared earlier live on.

A file is executed from the very bytes that were read, not through the import system: there is no stale bytecode, and
the remembered content is what was executed. Its module has a private name, so files in two folders do not collide.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias, TypeGuard, TypeVar, cast

import attrs

from leveret.errors import PLUGIN_MISTAKES
from leveret.exchanges.decorator import ExchangeDecorator
from leveret.exchanges.exchange_type import Exchange, ExchangeType, LooksAt
from leveret.exchanges.missing import Missing
from leveret.exchanges.standard import STANDARD
from leveret.front_end import Protocol
from leveret.guests import Guest
from leveret.interceptors.contract import Interceptor
from leveret.interceptors.standard import STANDARD as INTERCEPTORS
from leveret.server.entry_points import EntryPoint, installed

GROUPS: Final = (
    "leveret.exchanges",
    "leveret.protocols",
    "leveret.interceptors",
    "leveret.decorators",
    "leveret.guests",
)
NO_FOLDER: Final = "there is no such plugin folder"
OWN_TYPES: Final = "leveret.plugins."  # the module of an entry point that comes with Leveret
STANDARD_SOURCE: Final = "leveret"  # the source of the standard types
FIRST_BYTES_MAX: Final = 8
DRAFTED: Final = ("system",)  # exchange types that only a draft of AMQP has

# The methods that the broker calls on an instance, with their number of arguments.
METHODS: Final = {
    "route": 1,
    "keep": 1,
    "hold_again": 1,
    "validate_binding": 2,
    "binding_selector": 1,
    "bind": 1,
    "unbind": 1,
    "close": 0,
    "state": 0,
    "restore": 1,
    "equivalent": 1,
}

# The same for decorators of exchanges.
DECORATED: Final = {
    "attention": 2,
    "created": 1,
    "deleted": 1,
    "policy_changed": 1,
    "bound": 1,
    "unbound": 1,
    "route": 3,
}

# The same for guests.
HEARD: Final = {
    "virtual_host_added": 1,
    "virtual_host_deleted": 1,
    "exchange_changed": 2,
    "exchange_deleted": 1,
    "queue_changed": 2,
    "queue_deleted": 1,
    "reserved": 1,
    "metrics": 0,
    "stop": 0,
    "close": 0,
}

Plugin: TypeAlias = type[ExchangeType] | type[Interceptor] | type[ExchangeDecorator] | type[Guest] | Protocol
EntryPoints: TypeAlias = Callable[[str], Iterable[EntryPoint]]
ExchangeClass = TypeVar("ExchangeClass", bound=type[ExchangeType])
DecoratorClass = TypeVar("DecoratorClass", bound=type[ExchangeDecorator])
InterceptorClass = TypeVar("InterceptorClass", bound=type[Interceptor])


class BadPlugin(Exception):  # noqa: N818 - `raise BadPlugin` says it
    """A plugin cannot be used. The text names the plugin and says why."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"plugin {source}: {reason}")
        self.source = source
        self.reason = reason

    def told(self) -> str:
        """Return the text, followed by the traceback of the plugin's exception, if there was one."""
        cause = "" if self.__cause__ is None else "\n" + "".join(traceback.format_exception(self.__cause__))
        return f"{self}{cause}".rstrip()


# The plugins that imported code has announced in this process, each with the module's name. Every node loads them from
# here, because code that is imported once may serve several nodes.
_announced: list[tuple[str, Plugin]] = []


def exchange_type(cls: ExchangeClass) -> ExchangeClass:
    """Offer the decorated class as an exchange type to every node that starts in this process from now on."""
    _announced.append((cls.__module__, cls))
    return cls


def interceptor(cls: InterceptorClass) -> InterceptorClass:
    """Offer the decorated class as an interceptor to every node that starts in this process from now on."""
    _announced.append((cls.__module__, cls))
    return cls


def exchange_decorator(cls: DecoratorClass) -> DecoratorClass:
    """Offer the decorated class as a decorator of exchanges to every node that starts in this process from now on."""
    _announced.append((cls.__module__, cls))
    return cls


def register_exchange_type(cls: type[ExchangeType]) -> None:
    """Offer a class as `exchange_type` does, for classes that are defined elsewhere."""
    exchange_type(cls)


def register_protocol(protocol: Protocol) -> None:
    """Offer a protocol to every node that starts in this process from now on."""
    caller = sys._getframe(1).f_globals
    _announced.append((str(caller.get("__name__")), protocol))


@attrs.frozen
class ReloadReport:
    """The result of a reload. Names are those of all kinds of plug-ins."""

    loaded: tuple[str, ...]  # from files that are new or have changed
    unchanged: tuple[str, ...]  # from files that have not changed
    # a file, a folder, or an exchange that keeps its old type, each with the traceback or the reason
    refused: tuple[tuple[str, str], ...]
    removed: tuple[str, ...]  # offered by no plugin any more


@attrs.frozen
class Listed:
    """A plugin as operators see it."""

    name: str
    kind: str  # `exchange type`, `protocol`, `interceptor`, `exchange decorator` or `guest`
    source: str  # entry point, file or module
    disabled: bool


class ExchangeTypes(Mapping[str, type[ExchangeType]]):
    """The exchange types of a node by name. One that comes with Leveret is imported when it is asked for."""

    def __init__(self, known: Mapping[str, type[ExchangeType]], load: Callable[[EntryPoint], None]) -> None:
        """`load` loads the type of an entry point, and calls `put`."""
        self._known = dict(known)
        self._later: dict[str, EntryPoint] = {}
        self._load = load

    def put(self, known: Mapping[str, type[ExchangeType]]) -> None:
        """Replace those that have been loaded."""
        self._known = dict(known)

    def put_off(self, entry_point: EntryPoint) -> None:
        """Load this one when it is asked for."""
        self._later[entry_point.name] = entry_point

    def __getitem__(self, name: str) -> type[ExchangeType]:
        if name in self._later:
            self._load(self._later.pop(name))
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._known, *self._later))

    def __len__(self) -> int:
        return len(self._known) + len(self._later)

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._later


class Plugins:
    """The registries of one node by name: `exchange_types`, `protocols`, `interceptors`, `decorators` and `guests`.

    They are live; only this class edits them. `folders` are the plugin folders; names in `disabled` are left out of the
    registries. `standard` are the exchange types that need no `x-` and, as the standard interceptors, are always there.
    """

    def __init__(
        self,
        folders: Iterable[Path] = (),
        disabled: Iterable[str] = (),
        standard: Mapping[str, type[ExchangeType]] = STANDARD,
        entry_points: EntryPoints = installed,
    ) -> None:
        self.exchange_types = ExchangeTypes(standard, self._load_entry_point)
        self.protocols: dict[str, Protocol] = {}
        self.interceptors: dict[str, type[Interceptor]] = dict(INTERCEPTORS)
        self.decorators: dict[str, type[ExchangeDecorator]] = {}
        self.guests: dict[str, type[Guest]] = {}
        self._folders = tuple(folders)
        self._disabled = frozenset(disabled)
        self._entry_points = entry_points
        self._offers: dict[str, tuple[Plugin, ...]] = {  # by source
            STANDARD_SOURCE: (*standard.values(), *INTERCEPTORS.values())
        }
        self._contents: dict[Path, bytes] = {}  # of the files whose offers are in force
        self._stamps: dict[Path, tuple[int, int]] = {}  # of all files at the last look, refused ones included

    def load(self) -> None:
        """Load all plugins; called once, at boot. Raises `BadPlugin` for the first one that cannot be used."""
        for group in GROUPS:
            for entry_point in self._entry_points(group):
                if entry_point.name in self._disabled:  # not even imported
                    continue
                if group == "leveret.exchanges" and entry_point.value.startswith(OWN_TYPES):
                    self.exchange_types.put_off(entry_point)
                else:
                    self._load_entry_point(entry_point)
        for folder in self._folders:
            if not folder.is_dir():
                raise BadPlugin(str(folder), NO_FOLDER)
        self._stamps = stamps_in(self._folders)
        for path in self._stamps:
            self._load_file_at_boot(path)
        for module, plugin in _announced:
            self._add(f"module {module}", plugin)

    def configure(self, folders: Iterable[Path], disabled: Iterable[str]) -> None:
        """Set other folders and disabled names, for the next `reload`. Entry points are loaded at boot only."""
        left_out = frozenset(disabled)
        for name in left_out:  # only what has been loaded is left out by the reload
            self.exchange_types.get(name)
        self._folders = tuple(folders)
        self._disabled = left_out

    def listed(self) -> list[Listed]:
        """Return every plugin that has been loaded, disabled ones included."""
        self._load_all_types()
        return [
            Listed(
                plugin.name,
                kind_of(plugin),
                source,
                self._is_off(source, plugin),
            )
            for source, plugins in self._offers.items()
            for plugin in plugins
        ]

    def protocol_sources(self) -> dict[str, str]:
        """Return, by name, where the protocols come from that do not come with Leveret, in words for people."""
        packages = {
            f"entry point {each.name} = {each.value}": each.dist.name
            for each in self._entry_points("leveret.protocols")
            if each.dist is not None
        }
        return {
            listed.name: f"the package {packages[listed.source]}"
            if listed.source in packages
            else listed.source
            for listed in self.listed()
            if listed.kind == "protocol" and not listed.disabled and "= leveret." not in listed.source
        }

    def changed(self) -> bool:
        """True if a reload might find changes; this costs a listing of the folders and a stat for each file."""
        return stamps_in(self._folders) != self._stamps

    def reload(self, exchanges: Iterable[Exchange] = ()) -> ReloadReport:
        """Load what has changed in the plugin folders, and give live `exchanges` of changed types the new version.

        Never raises for a plugin's fault: it is in the report, and what was there before stays in force.
        """
        names_before = self._names()
        self._stamps = stamps_in(self._folders)
        self._forget_deleted_files()
        fresh, refused = self._load_changed_files()
        loaded = [plugin for source in fresh for plugin in self._offers[source]]
        kept = [p for path in self._contents if str(path) not in fresh for p in self._offers[str(path)]]
        refused += [(str(folder), NO_FOLDER) for folder in self._folders if not folder.is_dir()]
        refused += self._move_over({plugin.name for plugin in loaded}, exchanges)
        return ReloadReport(
            loaded=tuple(plugin.name for plugin in loaded),
            unchanged=tuple(plugin.name for plugin in kept),
            refused=tuple(refused),
            removed=tuple(sorted(names_before - self._names())),
        )

    def _load_entry_point(self, entry_point: EntryPoint) -> None:
        source = f"entry point {entry_point.name} = {entry_point.value}"
        try:
            plugin = cast(Plugin, entry_point.load())  # `_offer` looks at what it is
        except PLUGIN_MISTAKES as error:
            raise BadPlugin(source, f"{type(error).__name__}: {error}") from error
        self._add(source, plugin)

    def _load_file_at_boot(self, path: Path) -> None:
        try:
            self._load_file(path, path.read_bytes())
        except BadPlugin:
            raise
        except PLUGIN_MISTAKES as error:
            raise BadPlugin(str(path), f"{type(error).__name__}: {error}") from error

    def _load_file(self, path: Path, content: bytes) -> None:
        with fresh_module(path) as module:
            self._offer(str(path), offers_of(module, content))
        self._contents[path] = content

    def _load_all_types(self) -> None:
        for name in self.exchange_types:
            self.exchange_types[name]

    def _add(self, source: str, plugin: Plugin) -> None:
        self._offer(source, (*self._offers.get(source, ()), plugin))

    def _offer(self, source: str, plugins: tuple[Plugin, ...]) -> None:
        """Replace what a source offers. Raises BadPlugin, and changes nothing, if one of these cannot be used."""
        for plugin in plugins:
            if (fault := next(iter(faults(plugin)), None)) is not None:
                raise BadPlugin(source, fault)
            self.exchange_types.get(plugin.name)  # one of this name may not have been loaded yet
        offers = {**self._offers, source: plugins}
        require_distinct_names(source, offers)
        self._offers = offers
        self._publish()

    def _publish(self) -> None:
        """Bring the registries up to date, in place, since others hold the dicts."""
        in_force = [
            p for source, plugins in self._offers.items() for p in plugins if not self._is_off(source, p)
        ]
        self.exchange_types.put({plugin.name: plugin for plugin in in_force if is_exchange_type(plugin)})
        self.interceptors.clear()
        self.interceptors.update({plugin.name: plugin for plugin in in_force if is_interceptor(plugin)})
        self.decorators.clear()
        self.decorators.update({plugin.name: plugin for plugin in in_force if is_decorator(plugin)})
        self.guests.clear()
        self.guests.update({plugin.name: plugin for plugin in in_force if is_guest(plugin)})
        self.protocols.clear()
        self.protocols.update({plugin.name: plugin for plugin in in_force if isinstance(plugin, Protocol)})

    def _is_off(self, source: str, plugin: Plugin) -> bool:
        return plugin.name in self._disabled and source != STANDARD_SOURCE

    def _names(self) -> set[str]:
        return {*self.exchange_types, *self.protocols, *self.interceptors, *self.decorators, *self.guests}

    def _forget_deleted_files(self) -> None:
        for path in [path for path in self._contents if path not in self._stamps]:
            del self._contents[path]
            del self._offers[str(path)]
        self._publish()

    def _load_changed_files(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Load changed files; return the sources that were loaded, and those refused with tracebacks."""
        fresh, refused = [], []
        for path in self._stamps:
            try:
                content = path.read_bytes()
                if content != self._contents.get(path):
                    self._load_file(path, content)
                    fresh.append(str(path))
            except PLUGIN_MISTAKES as error:
                refused.append((str(path), traceback_of(error)))
        return fresh, refused

    def _move_over(self, names: set[str], exchanges: Iterable[Exchange]) -> list[tuple[str, str]]:
        """Give the exchanges concerned their new type; return those that could not take it, with tracebacks."""
        refused = []
        for exchange in list(exchanges):
            type_class = self.exchange_types.get(exchange.type.name)
            waits = isinstance(exchange.type, Missing)
            if type_class is None or not (waits or names.intersection(types_named_by(exchange))):
                continue
            try:
                exchange.replace_type(type_class)
            except PLUGIN_MISTAKES as error:
                where = (
                    f"{type_class.name} in exchange '{exchange.name}' in vhost '{exchange.virtual_host.name}'"
                )
                refused.append((where, traceback_of(error)))
        return refused


def types_named_by(exchange: Exchange) -> Iterable[str]:
    """Return the type of an exchange and those it may build on: x-delayed-message names another one in an argument.

    The arguments that name types are not known here, so all strings count. To renew a type without need is harmless.
    """
    return [exchange.type.name, *(value for value in exchange.arguments.values() if isinstance(value, str))]


def require_distinct_names(source: str, offers: Mapping[str, tuple[Plugin, ...]]) -> None:
    """Raise `BadPlugin` if `source` offers something under the name of another plugin; the same one twice is fine."""
    for plugin in offers[source]:
        for other_source, others in offers.items():
            for other in others:
                if other is not plugin and other.name == plugin.name and kind_of(other) == kind_of(plugin):
                    raise BadPlugin(source, f"'{plugin.name}' is offered by {other_source} too")


def is_exchange_type(plugin: object) -> TypeGuard[type[ExchangeType]]:
    return isinstance(plugin, type) and issubclass(plugin, ExchangeType)


def is_interceptor(plugin: object) -> TypeGuard[type[Interceptor]]:
    return isinstance(plugin, type) and issubclass(plugin, Interceptor)


def is_decorator(plugin: object) -> TypeGuard[type[ExchangeDecorator]]:
    return isinstance(plugin, type) and issubclass(plugin, ExchangeDecorator)


def is_guest(plugin: object) -> TypeGuard[type[Guest]]:
    return isinstance(plugin, type) and issubclass(plugin, Guest)


def kind_of(plugin: Plugin) -> str:
    """Return the kind of a plug-in as operators call it."""
    if isinstance(plugin, Protocol):
        return "protocol"
    if is_decorator(plugin):
        return "exchange decorator"
    if is_guest(plugin):
        return "guest"
    return "interceptor" if is_interceptor(plugin) else "exchange type"


def stamps_in(folders: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return the plugin files in the folders in order of name, with modification time (ns) and size."""
    stamps = {}
    for folder in folders:
        for path in sorted(folder.glob("[!_]*.py")):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # deleted since it was listed
            stamps[path] = (status.st_mtime_ns, status.st_size)
    return stamps


@contextmanager
def fresh_module(path: Path) -> Iterator[ModuleType]:
    """Put an empty module for a file in `sys.modules`, for attrs, typing and pickle; undo it if the block raises."""
    module = ModuleType(private_name(path))
    module.__file__ = str(path)
    replaced = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield module
    except BaseException:
        del sys.modules[module.__name__]
        if replaced is not None:
            sys.modules[module.__name__] = replaced
        raise


def offers_of(module: ModuleType, content: bytes) -> tuple[Plugin, ...]:
    """Execute a plugin file; return its public types, protocols and interceptors, and the plugins it announces."""
    already = len(_announced)
    try:
        exec(compile(content, str(module.__file__), "exec"), module.__dict__)
    finally:
        announced = taken_back(module.__name__, already)
    return tuple(dict.fromkeys([*announced, *public_plugins(module)]))


def private_name(path: Path) -> str:
    return f"leveret_plugin_{path.stem}_{blake2b(str(path.resolve()).encode(), digest_size=4).hexdigest()}"


def taken_back(module: str, start: int) -> list[Plugin]:
    """Remove and return what a module has announced since `start`: a file's plugins belong to one node."""
    taken = [plugin for announcer, plugin in _announced[start:] if announcer == module]
    _announced[start:] = [entry for entry in _announced[start:] if entry[0] != module]
    return taken


def public_plugins(module: ModuleType) -> Iterable[Plugin]:
    for name, value in vars(module).items():
        if not name.startswith("_") and (isinstance(value, Protocol) or is_defined_in(module, value)):
            yield value


def is_defined_in(module: ModuleType, value: object) -> bool:
    """True if `value` is a class that is a plug-in and is defined in this module, not imported into it."""
    is_offered = is_exchange_type(value) or is_interceptor(value) or is_decorator(value) or is_guest(value)
    return is_offered and value.__module__ == module.__name__


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def faults(plugin: object) -> Iterable[str]:
    """Return every reason why `plugin` cannot be used; nothing if it is fine."""
    if isinstance(plugin, Protocol):
        return protocol_faults(plugin)
    if is_exchange_type(plugin):
        return exchange_type_faults(plugin)
    if is_interceptor(plugin):
        return interceptor_faults(plugin)
    if is_decorator(plugin):
        return decorator_faults(plugin)
    if is_guest(plugin):
        return guest_faults(plugin)
    return [
        f"{plugin!r} is neither a subclass of ExchangeType, Interceptor, ExchangeDecorator or Guest nor a Protocol"
    ]


def protocol_faults(protocol: Protocol) -> Iterable[str]:
    if not protocol.name:
        yield "the protocol has no name"
    if not protocol.first_bytes and not protocol.fallback:
        yield f"protocol '{protocol.name}' has no first bytes to be recognised by"
    for prefix in protocol.first_bytes:
        if not 1 <= len(prefix) <= FIRST_BYTES_MAX:
            yield f"protocol '{protocol.name}': first bytes {prefix!r} are not 1 to {FIRST_BYTES_MAX} octets"


def name_faults(cls: type, free: Container[str]) -> Iterable[str]:
    """Yield a fault if a class has no name that a plug-in may have; those in `free` need no `x-`."""
    name: object = getattr(cls, "name", None)
    if not isinstance(name, str):
        yield f"{cls.__name__} has no name"
    elif name not in free and (not name.startswith("x-") or name == "x-"):
        yield f"{cls.__name__}: the name '{name}' does not start with 'x-'"


def interceptor_faults(cls: type[Interceptor]) -> Iterable[str]:
    yield from name_faults(cls, ())
    if inspect.isabstract(cls):
        yield f"{cls.__name__} does not define {', '.join(sorted(cls.__abstractmethods__))}"
    if not can_be_called(cls, 2):
        yield f"{cls.__name__}: the constructor does not take just the options and the node's name"
    yield from method_faults(cls, {"incoming": 3})


def decorator_faults(cls: type[ExchangeDecorator]) -> Iterable[str]:
    yield from name_faults(cls, ())
    # A compiled contract has no `__abstractmethods__`.
    if cls.attention is ExchangeDecorator.attention or inspect.isabstract(cls):
        yield f"{cls.__name__} does not define attention"
    if not can_be_called(cls, 0):
        yield f"{cls.__name__}: the constructor takes arguments"
    yield from method_faults(cls, DECORATED)


def guest_faults(cls: type[Guest]) -> Iterable[str]:
    yield from name_faults(cls, ())
    if not can_be_called(cls, 1):
        yield f"{cls.__name__}: the constructor does not take just the broker"
    yield from method_faults(cls, HEARD)


def exchange_type_faults(cls: type[ExchangeType]) -> Iterable[str]:
    yield from name_faults(cls, DRAFTED)
    # A compiled contract has no `__abstractmethods__`.
    missing = {"route"} if cls.route is ExchangeType.route else set()
    if inspect.isabstract(cls):
        missing |= cls.__abstractmethods__
    if missing:
        yield f"{cls.__name__} does not define {', '.join(sorted(missing))}"
    looks_at: object = cls.looks_at
    if not isinstance(looks_at, LooksAt):
        yield f"{cls.__name__}: looks_at is {looks_at!r}, not a LooksAt"
    yield from call_faults(cls)


def call_faults(cls: type[ExchangeType]) -> Iterable[str]:
    """Yield a fault for each method that cannot be called the way the broker calls it."""
    if not can_be_called(cls, 1):
        yield f"{cls.__name__}: the constructor does not take just the exchange"
    if not can_be_called(cls.validate, 1):
        yield f"{cls.__name__}.validate is not a classmethod with one argument"
    yield from method_faults(cls, METHODS)


def method_faults(cls: type, methods: Mapping[str, int]) -> Iterable[str]:
    """Yield a fault for each of these methods that does not take its number of arguments, or that waits."""
    for name, count in methods.items():
        method = getattr(cls, name)
        if not can_be_called(method, count + 1):  # and self
            yield f"{cls.__name__}.{name} does not take {count} argument{'' if count == 1 else 's'} besides self"
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            yield f"{cls.__name__}.{name} is async; the broker calls it without waiting"


def can_be_called(callee: object, count: int) -> bool:
    """True if `callee` takes `count` arguments by position."""
    if not callable(callee):
        return False
    try:
        inspect.signature(callee).bind(*[None] * count)
    except TypeError:
        return False
    return True
