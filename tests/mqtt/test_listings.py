"""What operators see and delete: sessions and retained messages, over HTTP and as metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from leveret.protocols.mqtt.broker.listings import LISTINGS, Measures
from leveret.protocols.mqtt.codec.packets import Disconnect, Publish, SubAck, Subscribe, Subscription
from leveret.server import cli
from leveret.server.node.threaded import ThreadedNode, embedded
from tests.harness.bench import ClientBench
from tests.mqtt.over_socket import SocketClient
from tests.mqtt.peer import Peer

SESSIONS, RETAINED = LISTINGS


def test_sessions_are_listed_with_and_without_a_connection() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("d1", session_expiry_interval=100)
    peer.subscribe("a", qos=1)
    (row,) = SESSIONS.rows(bench.host)
    assert (row["name"], row["user"], row["expires_in"]) == ("d1", "guest", None)
    assert row["connection"] == peer.front.peer.name
    assert row["queues"] == ["mqtt-subscription-d1qos1"]
    peer.drop()
    bench.advance(30)
    (row,) = SESSIONS.rows(bench.host)
    assert (row["connection"], row["expires_in"]) == (None, 70)


def test_a_session_is_ended() -> None:
    bench = ClientBench()
    assert SESSIONS.delete is not None
    assert not SESSIONS.delete(bench.host, "d1")
    peer = Peer(bench).connect("d1", session_expiry_interval=100)
    peer.subscribe("a", qos=1)
    assert SESSIONS.delete(bench.host, "d1")
    assert peer.taken(Disconnect)[0].reason_code == 0x98
    assert list(SESSIONS.rows(bench.host)) == []
    assert not bench.host.queues


def test_retained_messages_are_listed_and_deleted() -> None:
    bench = ClientBench()
    assert RETAINED.delete is not None
    assert not RETAINED.delete(bench.host, "a")
    peer = Peer(bench).connect("d1")
    peer.publish("a", b"12", qos=1, retain=True, message_expiry_interval=9)
    (row,) = RETAINED.rows(bench.host)
    assert row == {
        "name": "a", "vhost": "/", "qos": 1, "payload_bytes": 2, "publisher": "d1", "expires_in": 9
    }  # fmt: skip
    assert RETAINED.delete(bench.host, "a")
    assert list(RETAINED.rows(bench.host)) == []


def test_metrics_count_both() -> None:
    bench = ClientBench()
    Peer(bench).connect("d1").publish("a", b"1", retain=True)
    found = {each.name: each.samples for each in bench.broker.guest(Measures).metrics()}
    assert found == {
        "leveret_mqtt_sessions": [({"vhost": "/"}, 1.0)],
        "leveret_mqtt_retained_messages": [({"vhost": "/"}, 1.0)],
    }


SETTINGS = {
    "listeners": [{"address": "127.0.0.1:0", "protocols": ["mqtt"]}],
    "http": {"enabled": True, "address": "127.0.0.1:0"},
}


@pytest.fixture(scope="module")
def node() -> Iterator[ThreadedNode]:
    with ThreadedNode(embedded(SETTINGS)) as node:
        yield node


def asked(node: ThreadedNode, method: str, path: str) -> tuple[int, object]:
    host, port = node.node.addresses[-1].rsplit(":", 1)
    with closing(HTTPConnection(host, int(port), timeout=10)) as connection:
        connection.request(method, path, headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        answer = connection.getresponse()
        body = answer.read()
    return answer.status, json.loads(body) if body else None


def test_http_lists_and_deletes(node: ThreadedNode) -> None:
    status, lists = asked(node, "GET", "/api/leveret/kept")
    assert isinstance(lists, list)
    assert (status, [(each["protocol"], each["list"]) for each in lists]) == (
        200,
        [("mqtt", "sessions"), ("mqtt", "retained")],
    )
    assert asked(node, "GET", "/api/leveret/kept/mqtt/sessions/%2F") == (200, [])
    assert asked(node, "GET", "/api/leveret/kept/mqtt/sessions") == (200, [])
    assert asked(node, "GET", "/api/leveret/kept/mqtt/sessions/%2F/d1")[0] == 404
    assert asked(node, "GET", "/api/leveret/kept/mqtt/nothing/%2F")[0] == 404
    with SocketClient(f"{node.host}:{node.port}") as client:
        client.connect("d1")
        client.send(Publish("a/b", b"1", 0, True))
        client.send(Subscribe(1, (Subscription("a"),)))
        client.next(SubAck)
        (_, rows) = asked(node, "GET", "/api/leveret/kept/mqtt/sessions/%2F")
        assert isinstance(rows, list)
        assert [row["name"] for row in rows] == ["d1"]
        assert asked(node, "GET", "/api/leveret/kept/mqtt/sessions") == (200, rows)
        assert asked(node, "GET", "/api/leveret/kept/mqtt/sessions/%2F/d1") == (200, rows[0])
        assert asked(node, "GET", "/api/leveret/kept/mqtt/sessions/%2F/d1/message")[0] == 404
        (_, found) = asked(node, "GET", "/api/leveret/kept/mqtt/retained/%2F/a%2Fb/message")
        assert isinstance(found, dict)
        assert (found["payload"], found["payload_encoding"], found["routing_key"]) == ("1", "string", "a.b")
        (_, connections) = asked(node, "GET", "/api/connections")
        assert isinstance(connections, list)
        (listed,) = connections
        assert (listed["protocol"], listed["user_provided_name"]) == ("MQTT 5.0", "d1")
        assert asked(node, "DELETE", "/api/leveret/kept/mqtt/retained/%2F/a%2Fb")[0] == 204
        assert asked(node, "DELETE", "/api/leveret/kept/mqtt/retained/%2F/a%2Fb")[0] == 404
        assert asked(node, "DELETE", "/api/leveret/kept/mqtt/sessions/%2F/d1")[0] == 204
        last = client.until_end()
        assert last is not None
        assert last.reason_code == 0x98


def test_explain_knows_topics(node: ThreadedNode, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://{node.node.addresses[-1]}"
    with SocketClient(f"{node.host}:{node.port}") as client:
        client.connect("d3")
        client.send(Subscribe(1, (Subscription("devices/+/out", 1),)))
        client.next(SubAck)
        asked_for = ["explain", "--url", url, "--address"]
        assert cli.main([*asked_for, "mqtt:devices/7/out"], {}) == cli.DONE
        assert "routed to 1 queue: mqtt-subscription-d3qos1" in capsys.readouterr().out
        assert cli.main([*asked_for, "mqtt:devices/+/out"], {}) == cli.REFUSED
        assert "for filters" in capsys.readouterr().err
        assert cli.main([*asked_for, "devices"], {}) == cli.USAGE
        assert cli.main([*asked_for, "mqtt:a", "--key", "b"], {}) == cli.USAGE


def test_the_command_lists_and_deletes(node: ThreadedNode, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://{node.node.addresses[-1]}"
    with SocketClient(f"{node.host}:{node.port}") as client:
        client.connect("d2")
        client.send(Publish("c/d", b"1", 0, True))
        client.send(Subscribe(1, (Subscription("a"),)))
        client.next(SubAck)
        assert cli.main(["kept", "list", "mqtt", "sessions", "--url", url], {}) == cli.DONE
        assert "d2" in capsys.readouterr().out
        assert cli.main(["kept", "list", "--url", url], {}) == cli.DONE
        told = capsys.readouterr().out
        assert "MQTT sessions" in told
        assert "columns" not in told
        assert cli.main(["kept", "list", "mqtt", "--url", url], {}) == cli.REFUSED
        show = ["kept", "show", "mqtt", "retained", "c/d", "--url", url]
        assert cli.main(show, {}) == cli.DONE
        assert "payload bytes" in capsys.readouterr().out
        assert cli.main([*show, "--message"], {}) == cli.DONE
        assert "routing key" in capsys.readouterr().out
        assert cli.main(["kept", "delete", "mqtt", "retained", "c/d", "--url", url, "--yes"], {}) == cli.DONE
        assert cli.main(["kept", "delete", "mqtt", "retained", "c/d", "--url", url], {}) == cli.REFUSED
        capsys.readouterr()
        assert cli.main(["kept", "list", "mqtt", "retained", "--url", url], {}) == cli.DONE
        assert capsys.readouterr().out == "nothing\n"
