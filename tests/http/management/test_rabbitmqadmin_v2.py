"""What rabbitmqadmin v2 asks for and needs in the answers, and what it sends.

Its client (rabbitmq_http_client 0.91) decodes answers strictly: a row without a field that it needs, or with another
type there, ends the command. The fields are those of its published data types.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec import methods as m
from leveret.values import Json
from tests.http.management.lobby import ABSENT, Lobby

FIRST = quote("127.0.0.1:40000 -> 127.0.0.1:5672")
TEXT, WHOLE, FLAG, LIST, TABLE = str, int, bool, list, dict

USER = {"name": TEXT, "tags": LIST, "password_hash": TEXT}
PERMISSIONS = {"user": TEXT, "vhost": TEXT, "configure": TEXT, "read": TEXT, "write": TEXT}
TOPICS = {"user": TEXT, "vhost": TEXT, "exchange": TEXT, "read": TEXT, "write": TEXT}
CONNECTION = {"name": TEXT, "node": TEXT, "protocol": TEXT, "user": TEXT, "connected_at": WHOLE}
CHANNEL = {
    "number": WHOLE, "name": TEXT, "vhost": TEXT, "state": TEXT, "consumer_count": WHOLE, "confirm": FLAG,
    "prefetch_count": WHOLE, "messages_unacknowledged": WHOLE, "messages_unconfirmed": WHOLE,
    "connection_details": {"name": TEXT, "peer_host": TEXT, "peer_port": WHOLE},
}  # fmt: skip
CONSUMER = {
    "consumer_tag": TEXT, "active": FLAG, "ack_required": FLAG, "prefetch_count": WHOLE, "exclusive": FLAG,
    "arguments": TABLE, "consumer_timeout": WHOLE, "queue": {"name": TEXT, "vhost": TEXT},
    "channel_details": {
        "number": WHOLE, "name": TEXT, "connection_name": TEXT, "node": TEXT, "peer_host": TEXT, "peer_port": WHOLE,
        "user": TEXT,
    },
}  # fmt: skip
QUEUE = {
    "name": TEXT, "vhost": TEXT, "type": TEXT, "durable": FLAG, "auto_delete": FLAG, "exclusive": FLAG,
    "arguments": TABLE,
}  # fmt: skip
EXCHANGE = {
    "name": TEXT,
    "vhost": TEXT,
    "type": TEXT,
    "durable": FLAG,
    "auto_delete": FLAG,
    "arguments": TABLE,
}
BINDING = {
    "vhost": TEXT, "source": TEXT, "destination": TEXT, "destination_type": TEXT, "routing_key": TEXT,
    "arguments": TABLE,
}  # fmt: skip
POLICY = {
    "name": TEXT,
    "vhost": TEXT,
    "pattern": TEXT,
    "apply-to": TEXT,
    "priority": WHOLE,
    "definition": TABLE,
}
PARAMETER = {"name": TEXT, "vhost": TEXT, "component": TEXT, "value": TABLE}
FEATURE = {"name": TEXT, "state": TEXT, "desc": TEXT, "doc_url": TEXT, "stability": TEXT, "provided_by": TEXT}
DEPRECATED = {"name": TEXT, "desc": TEXT, "deprecation_phase": TEXT, "doc_url": TEXT, "provided_by": TEXT}
NODE = {
    "name": TEXT, "uptime": WHOLE, "run_queue": WHOLE, "processors": WHOLE, "os_pid": TEXT, "fd_total": WHOLE,
    "proc_total": WHOLE, "mem_limit": WHOLE, "mem_alarm": FLAG, "disk_free_limit": WHOLE, "disk_free_alarm": FLAG,
    "rates_mode": TEXT, "enabled_plugins": LIST, "being_drained": FLAG,
}  # fmt: skip

READ: list[tuple[str, dict[str, Any]]] = [
    ("overview", {}),
    ("nodes", NODE),
    ("nodes/leveret", NODE),
    ("nodes/leveret/memory", {}),
    ("vhosts", {"name": TEXT}),
    ("vhosts/%2F", {"name": TEXT}),
    ("users", USER),
    ("users/guest", USER),
    ("whoami", {"name": TEXT, "tags": LIST}),
    ("permissions", PERMISSIONS),
    ("permissions/%2F/guest", PERMISSIONS),
    ("vhosts/%2F/permissions", PERMISSIONS),
    ("users/guest/permissions", PERMISSIONS),
    ("topic-permissions", TOPICS),
    ("topic-permissions/%2F/guest", TOPICS),
    ("vhosts/%2F/topic-permissions", TOPICS),
    ("users/guest/topic-permissions", TOPICS),
    ("connections", CONNECTION),
    (f"connections/{FIRST}", CONNECTION),
    ("vhosts/%2F/connections", CONNECTION),
    ("connections/username/guest", {"name": TEXT, "node": TEXT, "user": TEXT, "vhost": TEXT}),
    ("channels", CHANNEL),
    (f"channels/{FIRST}%20%281%29", CHANNEL),
    ("vhosts/%2F/channels", CHANNEL),
    (f"connections/{FIRST}/channels", CHANNEL),
    ("consumers", CONSUMER),
    ("consumers/%2F", CONSUMER),
    ("queues", QUEUE),
    ("queues/%2F", QUEUE),
    ("queues/%2F/q", QUEUE),
    ("queues/detailed", QUEUE),
    ("exchanges", EXCHANGE),
    ("exchanges/%2F/amq.topic", EXCHANGE),
    ("bindings", BINDING),
    ("bindings/%2F", BINDING),
    ("queues/%2F/q/bindings", BINDING),
    ("exchanges/%2F/amq.topic/bindings/source", BINDING),
    ("policies", POLICY),
    ("policies/%2F/p", POLICY),
    ("operator-policies", POLICY),
    ("operator-policies/%2F/p", POLICY),
    ("parameters", PARAMETER),
    ("parameters/operator_policy/%2F", PARAMETER),
    ("global-parameters", {"name": TEXT}),
    ("vhost-limits", {"vhost": TEXT, "value": TABLE}),
    ("vhost-limits/%2F", {"vhost": TEXT, "value": TABLE}),
    ("user-limits", {"user": TEXT, "value": TABLE}),
    ("user-limits/guest", {"user": TEXT, "value": TABLE}),
    ("feature-flags", FEATURE),
    ("deprecated-features", DEPRECATED),
    ("shovels", {}),
    ("cluster-name", {"name": TEXT}),
    ("health/checks/alarms", {"status": TEXT}),
    ("health/checks/local-alarms", {"status": TEXT}),
    ("health/checks/node-is-quorum-critical", {"status": TEXT}),
    ("health/checks/port-listener/5672", {"status": TEXT}),
    ("health/checks/protocol-listener/amqp", {"status": TEXT}),
]


@pytest.fixture(scope="module")
def lobby() -> Lobby:
    """A broker with something of everything that is listed; reading changes none of it."""
    lobby = Lobby()
    channel = lobby.client().channel(1)
    channel.call(m.QueueDeclare("q", durable=True))
    channel.call(m.QueueBind("q", "amq.topic", "k"))
    channel.call(m.BasicConsume("q", "tag"))
    for path, content in (
        ("policies/%2F/p", {"pattern": "^z", "definition": {"max-length": 5}, "apply-to": "queues"}),
        ("operator-policies/%2F/p", {"pattern": "^z", "definition": {"max-length": 5}, "apply-to": "queues"}),
        ("vhost-limits/%2F/max-queues", {"value": 50}),
        ("user-limits/guest/max-connections", {"value": 50}),
        ("topic-permissions/%2F/guest", {"exchange": "amq.topic", "write": ".*", "read": ".*"}),
        ("global-parameters/x", {"name": "x", "value": {"a": 1}}),
    ):
        assert lobby.ask("PUT", f"/api/{path}", content).status in (201, 204)
    return lobby


def missing(row: Any, needed: dict[str, Any], where: str = "") -> list[str]:
    """The fields that a row lacks, or that are of another type."""
    found = []
    for name, kind in needed.items():
        value = row.get(name) if isinstance(row, dict) else None
        if isinstance(kind, dict):
            found += missing(value, kind, f"{name}.")
        elif type(value) is not kind or (kind is WHOLE and value < 0):
            found.append(f"{where}{name}: {value!r}")
    return found


@pytest.mark.parametrize(("path", "needed"), READ, ids=[path for path, _ in READ])
def test_what_is_listed_has_what_it_needs(lobby: Lobby, path: str, needed: dict[str, Any]) -> None:
    told = lobby.get(f"/api/{path}")
    rows = told if isinstance(told, list) else [told]
    assert [each for row in rows for each in missing(row, needed)] == []
    assert rows or not needed


NEW_HOST: Json = {
    "name": "new",
    "description": None,
    "tags": None,
    "default_queue_type": None,
    "tracing": False,
}
NEW_QUEUE: Json = {
    "name": "a", "durable": True, "auto_delete": False, "exclusive": False, "arguments": {"x-queue-type": "quorum"},
}  # fmt: skip
NEW_EXCHANGE: Json = {"name": "x", "type": "fanout", "durable": True, "auto_delete": False, "arguments": None}
MESSAGE: Json = {"routing_key": "k", "payload": "p", "payload_encoding": "string", "properties": {}}
SENT: list[tuple[str, str, Json, int]] = [
    ("PUT", "vhosts/new", NEW_HOST, 201),
    ("PUT", "queues/%2F/a", NEW_QUEUE, 201),
    ("PUT", "exchanges/%2F/x", NEW_EXCHANGE, 201),
    ("POST", "bindings/%2F/e/x/q/a", {"routing_key": "k", "arguments": None}, 201),
    ("POST", "bindings/%2F/e/x/e/amq.topic", {"routing_key": "", "arguments": None}, 201),
    ("POST", "exchanges/%2F/x/publish", MESSAGE, 200),
    ("POST", "queues/%2F/a/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}, 200),
    ("PUT", "users/u", {"name": "u", "password_hash": "", "tags": "administrator"}, 201),
    ("PUT", "permissions/%2F/u", {"user": "u", "vhost": "/", "configure": ".*", "read": ".*", "write": ".*"}, 201),
    ("DELETE", "permissions/%2F/u", None, 204),
    ("POST", "users/bulk-delete", {"users": ["u"]}, 204),
    ("DELETE", "queues/%2F/a/contents", None, 204),
    ("DELETE", "bindings/%2F/e/x/e/amq.topic/~", None, 204),
    ("DELETE", "queues/%2F/a", None, 204),
    ("DELETE", "exchanges/%2F/x", None, 204),
    ("DELETE", "vhosts/new", None, 204),
    ("PUT", "cluster-name", {"name": "mine"}, 204),
    ("POST", "rebalance/queues", {}, 204),
    ("POST", "definitions", {"queues": []}, 204),
    ("POST", "definitions/%2F", {"queues": []}, 204),
]  # fmt: skip


def test_what_it_sends_is_done() -> None:
    lobby = Lobby()
    lobby.broker.encodings = {"amqp091": lambda: ENCODING}
    for method, path, content, status in SENT:
        response = lobby.ask(method, f"/api/{path}", ABSENT if content is None else content)
        assert response.status == status, (path, response.content)
