"""The virtual host of a client: what user name, certificate, listener and settings say, in this order."""

from __future__ import annotations

import attrs
import pytest

from leveret.front_end import TlsFacts
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.server.node.threaded import ThreadedNode, embedded
from leveret.values import Json
from tests.harness.bench import ClientBench
from tests.harness.peer import LOOPBACK
from tests.mqtt.over_socket import SocketClient
from tests.mqtt.peer import Peer

NAMES = ("named", "certified", "heard", "mapped", "told", "else")
TOML = """
[[virtual_hosts]]
name = "/"
[protocols.mqtt]
virtual_host = "else"
certificate_virtual_hosts = { lamp = "certified" }
"""
PORTS: Json = {"5672": "mapped"}
CERTIFICATES: Json = {"lamp": "told", "fan": "told"}
SAYING = "named:guest"
ALL = ("configure", "write", "read")


def bench_with(toml: str = TOML, **parameters: Json) -> ClientBench:
    bench = ClientBench(toml)
    for name in NAMES:
        bench.broker.add_virtual_host(name)
        bench.broker.access.set_permissions("guest", name, ".*", ".*", ".*")
    for name, value in parameters.items():
        bench.broker.parameters.set(name, value)
    return bench


def host_of(
    bench: ClientBench, user: str, certificate: str | None = None, listener: str | None = None
) -> str:
    tls = None if certificate is None else TlsFacts("TLSv1.3", "x", f"CN={certificate}", certificate)
    peer = Peer(bench, address=attrs.evolve(LOOPBACK, tls=tls, virtual_host=listener)).connect(user=user)
    found: str = peer.front.client.host.name
    return found


@pytest.mark.parametrize(
    ("user", "certificate", "listener", "ports", "expected"),
    [
        (SAYING, "lamp", "heard", PORTS, "named"),
        ("guest", "lamp", "heard", PORTS, "certified"),
        ("guest", "fan", "heard", PORTS, "told"),
        ("guest", "door", "heard", PORTS, "heard"),
        ("guest", None, "heard", PORTS, "heard"),
        ("guest", None, None, PORTS, "mapped"),
        ("guest", None, None, {"1883": "mapped"}, "else"),
        ("guest", "door", None, {}, "else"),
    ],
)
def test_the_first_that_says_one_wins(
    user: str, certificate: str | None, listener: str | None, ports: Json, expected: str
) -> None:
    bench = bench_with(mqtt_port_to_vhost_mapping=ports, mqtt_default_vhosts=CERTIFICATES)
    assert host_of(bench, user, certificate, listener) == expected


def test_without_anything_it_is_the_first_one_of_the_configuration() -> None:
    assert host_of(bench_with('[[virtual_hosts]]\nname = "/"'), "guest") == "/"


@pytest.mark.parametrize("value", ["mapped", ["mapped"], {"5672": 7}, {"5672": None}, None])
def test_a_global_parameter_of_another_kind_says_nothing(value: Json) -> None:
    bench = bench_with(mqtt_port_to_vhost_mapping=value, mqtt_default_vhosts=value)
    assert host_of(bench, "guest", "5672") == "else"


def test_a_client_of_a_changed_mapping_goes_elsewhere_when_it_comes_back() -> None:
    bench = bench_with(mqtt_port_to_vhost_mapping=PORTS)
    assert host_of(bench, "guest") == "mapped"
    bench.broker.parameters.set("mqtt_port_to_vhost_mapping", {"5672": "told"})
    assert host_of(bench, "guest") == "told"


def test_a_virtual_host_that_the_user_may_not_enter_is_refused_whoever_names_it() -> None:
    bench = bench_with(mqtt_port_to_vhost_mapping=PORTS)
    bench.broker.access.clear_permissions("guest", "mapped")
    peer = Peer(bench).connect()
    assert peer.connected is not None
    assert peer.connected.reason_code == r.NOT_AUTHORIZED


def test_the_virtual_host_of_a_listener() -> None:
    listener = {"address": "127.0.0.1:0", "protocols": ["mqtt"], "virtual_host": "things"}
    user = {"name": "guest", "password": "guest", "permissions": {"things": dict.fromkeys(ALL, ".*")}}
    settings = {
        "listeners": [listener],
        "virtual_hosts": [{"name": "/"}, {"name": "things"}],
        "users": [user],
    }
    with ThreadedNode(embedded(settings)) as node, SocketClient(f"{node.host}:{node.port}") as client:
        assert client.connect("lamp").reason_code == 0
        assert node.call(lambda: [each.host.name for each in node.node.broker.clients]) == ["things"]
