"""What RabbitMQ's documentation shows for curl, as it is typed there, against a node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.conftest import RunningNode, Start, need_command

pytestmark = pytest.mark.interop

SETTINGS = """
listeners = [{ address = "127.0.0.1:0" }]
http = { enabled = true, address = "127.0.0.1:0" }
"""
Curl = Callable[..., tuple[int, object]]


def address_of(node: RunningNode) -> str:
    return node.call(lambda: node.node.addresses[-1])


@pytest.fixture
def curl(node_with: Start) -> Curl:
    """curl's status and JSON, for a path and options."""
    address = address_of(node_with(SETTINGS))

    def run(path: str, *options: str) -> tuple[int, object]:
        command = [need_command("curl", "curl"), "-sS", "-w", "\n%{http_code}", "-u", "guest:guest", *options]
        ran = subprocess.run(
            [*command, f"http://{address}/api/{path}"], capture_output=True, text=True, timeout=60, check=True
        )
        body, _, status = ran.stdout.rpartition("\n")
        return int(status), json.loads(body) if body else None

    return run


def test_the_walk_through_of_the_api_page(curl: Curl) -> None:
    json_put = ("-H", "content-type:application/json", "-XPUT")
    status, hosts = curl("vhosts")
    assert isinstance(hosts, list)
    assert (status, [host["name"] for host in hosts]) == (200, ["/"])
    status, channels = curl("channels?sort=message_stats.publish_details.rate&sort_reverse=true&columns=name")
    assert (status, channels) == (200, [])
    assert curl("vhosts/foo", *json_put) == (201, None)
    exchange = '{"type":"direct","durable":true}'
    assert curl("exchanges/%2F/my-new-exchange", *json_put, f"-d{exchange}") == (201, None)
    assert curl("exchanges/%2F/my-new-exchange", *json_put, f"-d{exchange}") == (204, None)
    status, said = curl("exchanges/%2F/my-new-exchange", *json_put, '-d{"type":"fanout","durable":true}')
    assert isinstance(said, dict)
    assert (status, said["error"]) == (400, "bad_request")
    assert curl("exchanges/%2F/my-new-exchange", "-XDELETE") == (204, None)
    assert curl("exchanges/%2F/my-new-exchange", "-XDELETE")[0] == 404


def test_queues_bindings_and_messages(curl: Curl) -> None:
    assert curl("queues/%2F/orders", "-XPUT", '-d{"durable":true,"arguments":{"x-max-length":10}}') == (
        201,
        None,
    )
    binding = '-d{"routing_key":"a.*","arguments":{}}'
    assert curl("bindings/%2F/e/amq.topic/q/orders", "-XPOST", binding)[0] == 201
    said = '{"properties":{"delivery_mode":2},"routing_key":"a.b","payload":"hi","payload_encoding":"string"}'
    assert curl("exchanges/%2F/amq.topic/publish", f"-d{said}") == (200, {"routed": True})
    wanted = '-d{"count":1,"ackmode":"ack_requeue_true","encoding":"auto","truncate":50000}'
    status, messages = curl("queues/%2F/orders/get", wanted)
    assert isinstance(messages, list)
    assert (status, messages[0]["payload"], messages[0]["exchange"]) == (200, "hi", "amq.topic")
    status, queue = curl("queues/%2F/orders")
    assert isinstance(queue, dict)
    assert (status, queue["name"], queue["durable"]) == (200, "orders", True)
    status, page = curl("queues/%2F?page=1&page_size=50&name=ord&use_regex=false&pagination=true")
    assert isinstance(page, dict)
    assert (page["item_count"], page["total_count"], page["items"][0]["name"]) == (1, 1, "orders")
    assert curl("queues/%2F/orders/contents", "-XDELETE") == (204, None)
    assert curl("queues/%2F/orders?if-empty=true", "-XDELETE") == (204, None)


def test_a_file_of_definitions_goes_out_and_in(curl: Curl, tmp_path: Path) -> None:
    curl(
        "policies/%2F/ttl",
        "-XPUT",
        '-d{"pattern":"^amq.","definition":{"message-ttl":1000},"apply-to":"queues"}',
    )
    status, definitions = curl("definitions")
    assert isinstance(definitions, dict)
    assert (status, definitions["policies"][0]["name"]) == (200, "ttl")
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(definitions))
    assert curl("policies/%2F/ttl", "-XDELETE") == (204, None)
    upload = ("-H", "Content-Type: application/json", "-X", "POST", "--data-binary", f"@{file}")
    assert curl("definitions", *upload) == (204, None)
    assert curl("policies/%2F/ttl")[0] == 200


def test_health_checks_are_a_status(curl: Curl) -> None:
    assert curl("health/checks/alarms") == (200, {"status": "ok"})
    assert curl("health/checks/local-alarms", "-f") == (200, {"status": "ok"})
    assert curl("health/checks/protocol-listener/amqp091")[0] == 200
    assert curl("health/checks/port-listener/1")[0] == 503
    assert curl("aliveness-test/%2F") == (200, {"status": "ok"})


def test_a_user_with_a_limit(curl: Curl) -> None:
    assert curl("users/ann", "-XPUT", '-d{"password":"sesame","tags":"management"}') == (201, None)
    assert curl("permissions/%2F/ann", "-XPUT", '-d{"configure":".*","write":".*","read":".*"}') == (
        201,
        None,
    )
    assert curl("user-limits/ann/max-connections", "-XPUT", '-d{"value":5}') == (204, None)
    assert curl("user-limits/ann") == (200, [{"user": "ann", "value": {"max-connections": 5}}])
    assert curl("whoami", "-u", "ann:sesame") == (200, {"name": "ann", "tags": ["management"]})
    assert curl("users", "-u", "ann:sesame")[0] == 401
    assert curl("users/ann", "-XDELETE") == (204, None)
    assert curl("whoami", "-u", "ann:sesame")[0] == 401
