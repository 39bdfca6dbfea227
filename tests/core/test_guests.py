"""Guests hear of what happens, in order; those of plug-ins harm nothing, and keep what they want to keep."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from leveret.guests import Guest
from leveret.observability.metric import Metric
from leveret.policy import Policy
from leveret.server.node import assembly
from leveret.server.plugin_loader import BadPlugin, Plugins
from tests.durable.site import Site
from tests.harness.bench import CoreBench

BOTH = {"alternate-exchange": "y", "expires": 1000}  # of a policy
PAGE = Path(__file__).parents[2] / "docs/guests.md"


class Hearing(Guest):
    """Notes what it hears."""

    name = "x-hearing"

    def __init__(self, broker: object) -> None:
        self.heard: list[str] = []

    def virtual_host_added(self, host: object) -> None:
        self.heard.append("host added")

    def virtual_host_deleted(self, name: str) -> None:
        self.heard.append(f"host {name} deleted")

    def exchange_changed(self, exchange, definition) -> None:
        if not exchange.name.startswith("amq."):
            self.heard.append(f"exchange {exchange.name} {definition}")

    def exchange_deleted(self, exchange) -> None:
        if exchange.name and not exchange.name.startswith("amq."):
            self.heard.append(f"exchange {exchange.name} deleted")

    def queue_changed(self, queue, definition) -> None:
        self.heard.append(f"queue {queue.name} {definition}")

    def queue_deleted(self, queue) -> None:
        self.heard.append(f"queue {queue.name} deleted, {queue.ready} messages")


class Early(Hearing):
    rank = 1


class Late(Hearing):
    rank = 99


def test_a_guest_hears_of_virtual_hosts_exchanges_and_queues() -> None:
    bench = CoreBench()
    heard = bench.broker.guest(Hearing).heard
    host = bench.broker.add_virtual_host("a")
    host.declare_exchange("x", "fanout")
    host.declare_queue("q")
    bench.broker.policies.set(Policy("p", "a", ".*", BOTH))
    host.apply_policies()
    host.delete_queue(host.queue("q"))
    host.delete_exchange("x")
    host.declare_queue("left")
    bench.broker.delete_virtual_host("a")
    assert heard == [
        "host added",
        "exchange x {}",
        "queue q {}",
        f"exchange x {BOTH}",
        f"queue q {BOTH}",
        "queue q deleted, 0 messages",
        "exchange x deleted",
        f"queue left {BOTH}",
        "host a deleted",
        "queue left deleted, 0 messages",
    ]


def test_guests_hear_in_the_order_of_their_ranks() -> None:
    guests = CoreBench().broker.guests
    for kind in (Late, Hearing, Early):
        guests.of(kind)
    ours = [type(each) for each in guests if isinstance(each, Hearing)]
    assert ours == [Early, Hearing, Late]
    guests.remove(Hearing)
    assert guests.find(Hearing) is None
    assert [type(each) for each in guests if isinstance(each, Hearing)] == [Early, Late]


def test_a_guest_of_a_virtual_host_is_closed_with_it() -> None:
    closed: list[object] = []

    class Room(Guest):
        def __init__(self, host: object) -> None:
            self.host = host

        def close(self) -> None:
            closed.append(self.host)

    bench = CoreBench()
    host = bench.broker.add_virtual_host("a")
    assert host.guest(Room).host is host
    assert bench.host.guest(Room) is not host.guest(Room)
    bench.broker.delete_virtual_host("a")
    assert closed == [host]


def test_messages_that_a_guest_has_keep_a_queue_in_use() -> None:
    class Holding(Guest):
        def reserved(self, queue: object) -> int:
            return 2

    bench = CoreBench()
    queue = bench.queue("q")
    assert not queue.in_use
    bench.host.guest(Holding)
    assert queue.in_use
    assert bench.host.reserved(queue) == 2


def test_a_mistake_of_a_plug_ins_guest_is_logged_once_and_harms_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Guest):
        name = "x-broken"

        def queue_changed(self, queue, definition) -> None:
            raise LookupError("not here")

        def metrics(self):
            yield Metric("leveret_x", "gauge", "", [])
            raise LookupError("nor there")

    bench = CoreBench()
    bench.broker.guests.let_in(Broken)
    with caplog.at_level(logging.ERROR, "leveret.broker"):
        assert {bench.queue(name).name for name in ("a", "b")} == {"a", "b"}
    assert [record.message for record in caplog.records] == ["guest x-broken failed in queue_changed()"]
    (foreign,) = bench.broker.guests.foreign()
    assert list(foreign.metrics()) == []
    assert isinstance(bench.broker.guests.find(Broken), Broken)


def census(folder: Path) -> Plugins:
    """Return plug-ins with the guest of the page."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "census.py").write_text(code)
    plugins = Plugins([folder], entry_points=lambda group: ())
    plugins.load()
    return plugins


def test_the_guest_on_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    plugins = census(tmp_path)
    assert [each.kind for each in plugins.listed() if each.name == "x-census"] == ["guest"]
    site = Site()
    assembly.let_in(site.broker, plugins)
    for name in ("a", "b", "orders.c"):
        site.host.delete_queue(site.queue(name))
    site.settle()
    again = site.again()
    assembly.let_in(again.broker, plugins)
    (foreign,) = again.broker.guests.foreign()
    assert [metric.samples for metric in foreign.metrics()] == [[({}, 3)]]
    again.broker.parameters.set("x-census-prefix", "orders.")
    for name in ("d", "orders.e"):
        again.host.delete_queue(again.queue(name))
    assert again.broker.parameters.get("x-census") == 4


def test_a_reload_closes_the_guest_from_before_and_leaves_the_others(tmp_path: Path) -> None:
    plugins, broker = census(tmp_path), CoreBench().broker
    broker.guest(Hearing)
    assembly.let_in(broker, plugins)
    (before,) = broker.guests.foreign()
    plugins.reload()
    assembly.let_in(broker, plugins)
    assert broker.guests.foreign() == [before]
    (tmp_path / "census.py").write_text((tmp_path / "census.py").read_text() + "\n# changed\n")
    plugins.reload()
    assembly.let_in(broker, plugins)
    (after,) = broker.guests.foreign()
    assert after is not before
    (tmp_path / "census.py").unlink()
    plugins.reload()
    assembly.let_in(broker, plugins)
    assert broker.guests.foreign() == []
    assert broker.guests.find(Hearing) is not None


def test_a_guest_that_cannot_be_called_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from leveret.guests import Guest\n\nclass Wrong(Guest):\n    name = 'x-w'\n\n"
        "    def queue_deleted(self): pass\n"
    )
    with pytest.raises(BadPlugin, match=r"Wrong\.queue_deleted does not take 1 argument besides self"):
        Plugins([tmp_path], entry_points=lambda group: ()).load()
