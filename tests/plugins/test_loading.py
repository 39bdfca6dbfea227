"""Plugins from entry points, decorators and folders; what stops the boot, and what a reload does (X014)."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import ExchangeType
from leveret.exchanges.standard import STANDARD
from leveret.front_end import Protocol
from leveret.message import Message
from leveret.plugins.delayed_message import DelayedMessage
from leveret.plugins.modulus_hash import ModulusHash
from leveret.server import plugin_loader as loader
from leveret.server.plugin_loader import (
    BadPlugin,
    Plugins,
    exchange_type,
    register_exchange_type,
    register_protocol,
)
from leveret.testing.fakes import Bench, fake_message

FIRST = """
from leveret.exchanges.exchange_type import ExchangeType

class First(ExchangeType):
    name = "x-first"

    def route(self, message):
        return [binding.destination for binding in self.exchange.bindings][:1]
"""
LAST = FIRST.replace("[:1]", "[-1:]")
OTHER = FIRST.replace("First", "Other").replace("x-first", "x-other")
SHIPPED = {
    "system",
    "x-consistent-hash",
    "x-delayed-message",
    "x-federation-upstream",
    "x-jms-topic",
    "x-local-random",
    "x-message-deduplication",
    "x-modulus-hash",
    "x-random",
    "x-recent-history",
    "x-super-stream",
}


class Plain(ExchangeType):
    name = "x-plain"

    def route(self, message: Message) -> Iterable[Destination]:
        return []


@pytest.fixture(autouse=True)
def _nothing_stays_announced() -> Iterator[None]:
    before = list(loader._announced)
    yield
    loader._announced[:] = before


def none_installed(group: str) -> Iterable[EntryPoint]:
    return []


def installed(*entries: tuple[str, str, str]) -> Callable[[str], Iterable[EntryPoint]]:
    return lambda group: [
        EntryPoint(name, value, group_) for group_, name, value in entries if group_ == group
    ]


def from_folder(folder: Path, **files: str) -> Plugins:
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    plugins = Plugins([folder], entry_points=none_installed)
    plugins.load()
    return plugins


def reason(plugins: Plugins) -> str:
    """Why the boot fails."""
    with pytest.raises(BadPlugin) as refused:
        plugins.load()
    return str(refused.value)


# where plugins come from


def test_the_standard_types_are_always_there() -> None:
    plugins = Plugins(entry_points=none_installed)
    plugins.load()
    assert plugins.exchange_types == STANDARD


def test_the_shipped_types_are_entry_points() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    entries = project["entry-points"]["leveret.exchanges"]
    plugins = Plugins(
        entry_points=installed(*(("leveret.exchanges", n, value) for n, value in entries.items()))
    )
    plugins.load()
    assert set(plugins.exchange_types) - set(STANDARD) == SHIPPED == set(entries)
    assert len(plugins.exchange_types) == len(STANDARD) + len(SHIPPED)
    assert all(kind.name == name for name, kind in plugins.exchange_types.items())


OWN = ("leveret.exchanges", "x-modulus-hash", "leveret.plugins.modulus_hash:ModulusHash")


class Counted(EntryPoint):
    """An entry point that counts how often it was loaded."""

    loads = 0

    def load(self) -> object:
        Counted.loads += 1
        return super().load()


def put_off(monkeypatch: pytest.MonkeyPatch, folders: Iterable[Path] = ()) -> Plugins:
    """Return a node's plug-ins, among them a type that comes along and has not been asked for."""
    monkeypatch.setattr(Counted, "loads", 0)
    group, name, value = OWN
    point = Counted(name, value, group)
    plugins = Plugins(folders, entry_points=lambda asked: [point] if asked == group else [])
    plugins.load()
    assert Counted.loads == 0
    return plugins


def test_a_type_that_comes_along_is_loaded_once_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    types = put_off(monkeypatch).exchange_types
    assert "x-modulus-hash" in types
    assert set(types) == {*STANDARD, "x-modulus-hash"}
    assert "x-other" not in types
    assert types.get("x-other") is None
    assert Counted.loads == 0
    for _ in range(2):
        assert types["x-modulus-hash"] is ModulusHash
    assert types == {**STANDARD, "x-modulus-hash": ModulusHash}
    assert Counted.loads == 1


def test_the_list_of_plugins_has_types_that_were_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = put_off(monkeypatch)
    assert "x-modulus-hash" in [each.name for each in plugins.listed()]
    assert Counted.loads == 1


def test_a_type_that_was_not_asked_for_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = put_off(monkeypatch)
    plugins.configure((), ["x-modulus-hash"])
    assert plugins.reload().removed == ("x-modulus-hash",)
    assert "x-modulus-hash" not in plugins.exchange_types
    plugins.configure((), ())
    plugins.reload()
    assert plugins.exchange_types["x-modulus-hash"] is ModulusHash


def test_the_name_of_a_type_that_was_not_asked_for_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(FIRST.replace("x-first", "x-modulus-hash"))
    with pytest.raises(BadPlugin, match="'x-modulus-hash' is offered by entry point x-modulus-hash"):
        put_off(monkeypatch, [tmp_path])


def test_a_decorator_offers_a_class_to_every_node() -> None:
    assert exchange_type(Plain) is Plain
    for _ in range(2):
        plugins = Plugins(entry_points=none_installed)
        plugins.load()
        assert plugins.exchange_types["x-plain"] is Plain


def test_protocols_are_registered_too() -> None:
    protocol = Protocol("odd", (b"ODD",), lambda *_: pytest.fail("never called"))
    register_protocol(protocol)
    plugins = Plugins(entry_points=none_installed)
    plugins.load()
    assert plugins.protocols == {"odd": protocol}
    assert [(p.name, p.kind, p.source) for p in plugins.listed()][-1] == (
        "odd",
        "protocol",
        f"module {__name__}",
    )


def test_files_of_a_folder_are_loaded_under_private_names(tmp_path: Path) -> None:
    plugins = from_folder(tmp_path, json=FIRST, _helper="raise RuntimeError('never loaded')")
    found = plugins.exchange_types["x-first"]
    assert found.__module__.startswith("leveret_plugin_json_")
    assert sys.modules[found.__module__].__file__ == str(tmp_path / "json.py")


def test_what_a_file_imports_is_not_its_own(tmp_path: Path) -> None:
    plugins = from_folder(tmp_path, imports="from leveret.plugins.modulus_hash import ModulusHash\n")
    assert "x-modulus-hash" not in plugins.exchange_types


def test_a_decorator_in_a_file_announces_to_this_node_only(tmp_path: Path) -> None:
    decorated = "from leveret import exchange_type\n" + FIRST.replace("class", "@exchange_type\nclass")
    assert "x-first" in from_folder(tmp_path, first=decorated).exchange_types
    other = Plugins(entry_points=none_installed)
    other.load()
    assert "x-first" not in other.exchange_types


def test_the_same_class_twice_is_no_harm() -> None:
    register_exchange_type(ModulusHash)
    entry = ("leveret.exchanges", "x-modulus-hash", "leveret.plugins.modulus_hash:ModulusHash")
    plugins = Plugins(entry_points=installed(entry))
    plugins.load()
    assert plugins.exchange_types["x-modulus-hash"] is ModulusHash


def test_disabled_plugins_are_left_out_and_their_packages_not_imported() -> None:
    register_exchange_type(Plain)
    broken = ("leveret.exchanges", "x-broken", "no_such_module:Broken")
    plugins = Plugins(disabled=["x-plain", "x-broken", "topic"], entry_points=installed(broken))
    plugins.load()
    assert plugins.exchange_types == STANDARD  # those cannot be disabled
    assert [listed.name for listed in plugins.listed() if listed.disabled] == ["x-plain"]
    plugins.configure((), ())
    plugins.reload()
    assert "x-plain" in plugins.exchange_types


# what stops the boot


def test_x014_a_name_taken_twice_names_both_plugins(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(FIRST)
    text = reason(Plugins([tmp_path], entry_points=none_installed))
    assert text == f"plugin {tmp_path}/two.py: 'x-first' is offered by {tmp_path}/one.py too"


BAD_FILES = [
    (FIRST.replace('"x-first"', '"first"'), "First: the name 'first' does not start with 'x-'"),
    (FIRST.replace('name = "x-first"', "pass"), "First has no name"),
    (FIRST.replace("def route", "def rout"), "First does not define route"),
    (FIRST.replace("(self, message)", "(self)"), "First.route does not take 1 argument besides self"),
    (
        FIRST.replace("def route", "async def route"),
        "First.route is async; the broker calls it without waiting",
    ),
    (FIRST + "    looks_at = 'key'\n", "First: looks_at is 'key', not a LooksAt"),
    (FIRST + "    def unbind(self): pass\n", "First.unbind does not take 1 argument besides self"),
    (FIRST + "    def close(self, now): pass\n", "First.close does not take 0 arguments besides self"),
    (
        FIRST + "    def validate(self, arguments): pass\n",
        "First.validate is not a classmethod with one argument",
    ),
    (FIRST + "    def __init__(self): pass\n", "First: the constructor does not take just the exchange"),
    ("1 / 0", "ZeroDivisionError: division by zero"),
    ("def", "SyntaxError: invalid syntax (bad.py, line 1)"),
    (
        "from leveret.front_end import Protocol\nP = Protocol('p', (b'123456789',), print)",
        "protocol 'p': first bytes b'123456789' are not 1 to 8 octets",
    ),
]


@pytest.mark.parametrize(("content", "text"), BAD_FILES)
def test_x014_a_bad_plugin_is_fatal_at_boot_and_named(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "bad.py").write_text(content)
    assert reason(Plugins([tmp_path], entry_points=none_installed)) == f"plugin {tmp_path}/bad.py: {text}"


def test_x014_a_bad_entry_point_is_named() -> None:
    missing = installed(("leveret.exchanges", "gone", "no_such_module:Gone"))
    text = reason(Plugins(entry_points=missing))
    assert text.startswith("plugin entry point gone = no_such_module:Gone: ModuleNotFoundError: ")
    text = reason(Plugins(entry_points=installed(("leveret.exchanges", "pi", "math:pi"))))
    assert text.startswith("plugin entry point pi = math:pi: 3.14")


def test_a_missing_folder_is_fatal_at_boot(tmp_path: Path) -> None:
    text = reason(Plugins([tmp_path / "none"], entry_points=none_installed))
    assert text == f"plugin {tmp_path}/none: there is no such plugin folder"


# reload


def bench_for(plugins: Plugins, name: str = "x-first") -> Bench:
    bench = Bench(plugins.exchange_types[name], exchange_types=plugins.exchange_types)
    bench.bind("a")
    bench.bind("b")
    return bench


def test_a_changed_file_changes_the_exchanges_of_its_types(tmp_path: Path) -> None:
    plugins = from_folder(tmp_path, first=FIRST, other=OTHER)
    registry = plugins.exchange_types
    bench = bench_for(plugins)
    assert bench.route(fake_message()) == {"a"}
    bench.exchange.route_errors = 1
    (tmp_path / "first.py").write_text(LAST)
    report = plugins.reload([bench.exchange])
    assert bench.exchange.route_errors == 0  # the next error is the new version's first, and logged
    assert (report.loaded, report.unchanged, report.refused, report.removed) == (
        ("x-first",),
        ("x-other",),
        (),
        (),
    )
    assert bench.route(fake_message()) == {"b"}
    assert registry is plugins.exchange_types  # others hold it
    assert type(bench.exchange.type) is registry["x-first"]


def test_a_change_of_the_same_size_in_the_same_instant_is_seen_by_reload(tmp_path: Path) -> None:
    plugins = from_folder(tmp_path, first=FIRST)
    path = tmp_path / "first.py"
    status = path.stat()
    path.write_text(FIRST.replace("[:1]", "[1:]"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert plugins.reload().loaded == ("x-first",)


def test_changed_tells_when_a_reload_may_be_worth_it(tmp_path: Path) -> None:
    plugins = from_folder(tmp_path, first=FIRST)
    assert not plugins.changed()
    (tmp_path / "other.py").write_text(OTHER)
    assert plugins.changed()
    plugins.reload()
    assert not plugins.changed()
    (tmp_path / "other.py").unlink()
    assert plugins.changed()


@pytest.mark.parametrize("broken", ["1 / 0", "class:", FIRST.replace("route", "rout"), OTHER])
def test_a_file_that_fails_is_refused_with_its_traceback_and_the_old_one_stays(tmp_path: Path, broken: str):
    plugins = from_folder(tmp_path, first=FIRST, other=OTHER)
    old = plugins.exchange_types["x-first"]
    bench = bench_for(plugins)
    (tmp_path / "first.py").write_text(broken)
    ((name, traceback),) = plugins.reload([bench.exchange]).refused
    assert name == str(tmp_path / "first.py")
    assert traceback.startswith("Traceback")
    assert plugins.exchange_types["x-first"] is old
    assert type(bench.exchange.type) is old is sys.modules[old.__module__].First
    assert not plugins.changed()  # no second try before somebody mends it
    (tmp_path / "first.py").write_text(LAST)
    assert plugins.reload([bench.exchange]).loaded == ("x-first",)


def test_an_exchange_that_cannot_take_the_new_type_keeps_the_old_one(tmp_path: Path) -> None:
    plugins = from_folder(tmp_path, first=FIRST)
    bench = bench_for(plugins)
    (tmp_path / "first.py").write_text(LAST + "    def bind(self, binding): raise RuntimeError('not me')\n")
    report = plugins.reload([bench.exchange])
    assert report.loaded == ("x-first",)
    ((where, traceback),) = report.refused
    assert where == "x-first in exchange 'bench' in vhost '/'"
    assert "RuntimeError: not me" in traceback
    assert bench.route(fake_message()) == {"a"}


def test_a_deleted_file_takes_its_names_along_but_its_exchanges_live_on(tmp_path: Path) -> None:
    plugins = from_folder(tmp_path, first=FIRST)
    bench = bench_for(plugins)
    (tmp_path / "first.py").unlink()
    assert plugins.reload([bench.exchange]).removed == ("x-first",)
    assert "x-first" not in plugins.exchange_types
    assert bench.route(fake_message()) == {"a"}


def test_a_type_may_move_to_another_file(tmp_path: Path) -> None:
    plugins = from_folder(tmp_path, first=FIRST)
    (tmp_path / "first.py").rename(tmp_path / "anew.py")
    report = plugins.reload()
    assert (report.loaded, report.refused, report.removed) == (("x-first",), (), ())


def test_a_type_inside_another_is_reloaded_too(tmp_path: Path) -> None:
    register_exchange_type(DelayedMessage)
    plugins = from_folder(tmp_path, first=FIRST)
    bench = Bench(DelayedMessage, {"x-delayed-type": "x-first"}, plugins.exchange_types)
    bench.bind("a")
    bench.bind("b")
    bench.publish(headers={"x-delay": 1000})
    (tmp_path / "first.py").write_text(LAST)
    plugins.reload([bench.exchange])
    bench.advance(1)
    assert [len(bench.destination(name).messages) for name in "ab"] == [0, 1]


def test_the_shipped_types_can_be_copied_into_a_folder_and_edited_there(tmp_path: Path) -> None:
    source = (Path(__file__).parents[2] / "plugins" / "delayed_message.py").read_text()
    plugins = from_folder(tmp_path, delayed=source)
    bench = Bench(
        plugins.exchange_types["x-delayed-message"], {"x-delayed-type": "fanout"}, plugins.exchange_types
    )
    queue = bench.bind("q")
    for delay in (2000, 1000, 3000):
        bench.publish(str(delay), {"x-delay": delay})
    (tmp_path / "delayed.py").write_text(source + "\n# edited\n")
    assert plugins.reload([bench.exchange]).refused == ()
    bench.publish("1500", {"x-delay": 1500})
    bench.advance(3)
    assert [message.key for message in queue.messages] == ["1000", "1500", "2000", "3000"]


# where protocols come from


def test_the_source_of_a_protocol_is_its_package_or_its_file_and_those_that_come_along_have_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "line.py").write_text(
        "from leveret.front_end import Protocol\n"
        "PROTOCOL = Protocol(name='line', first_bytes=(b'LINE ',), factory=print)\n"
    )
    plugins = Plugins([tmp_path])
    plugins.load()
    assert plugins.protocol_sources() == {"line": str(tmp_path / "line.py")}
    package = SimpleNamespace(name="leveret-mqtt", version="1.0")
    (entry,) = installed(("leveret.protocols", "mqtt", f"{__name__}:MQTT"))("leveret.protocols")
    plugins = Plugins(
        entry_points=lambda group: [entry._for(package)] if group == "leveret.protocols" else []  # type: ignore[attr-defined]
    )
    plugins.load()
    assert plugins.protocol_sources() == {"mqtt": "the package leveret-mqtt"}


MQTT = Protocol(name="mqtt", first_bytes=(b"\x10",), factory=lambda *given: None)  # type: ignore[arg-type, return-value]
