"""RabbitMQ's own script for operators against a node: every subcommand, as people type them.

The script is not ours and not in the repository; scripts/setup.sh takes it out of Debian's package."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from tests.interop.conftest import RunningNode, Start, missing, wait_until

pytestmark = pytest.mark.interop

FETCHED = Path(__file__).parent / ".fetched" / "rabbitmqadmin"
SETTINGS = """
listeners = [{ address = "127.0.0.1:0" }]
http = { enabled = true, address = "127.0.0.1:0" }
"""


def script() -> str:
    """The path of the script."""
    if FETCHED.exists():
        return str(FETCHED)
    return shutil.which("rabbitmqadmin") or missing(
        "rabbitmqadmin", "as root on Debian: scripts/setup.sh peers"
    )


SCRIPT = script()
Run = Callable[..., str]


class Admin:
    """The script, asked to speak with one node."""

    def __init__(self, node: RunningNode, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self._port = node.call(lambda: node.node.addresses[-1]).rpartition(":")[2]

    def run(self, *words: str, ok: bool = True, typed: str | None = None) -> str:
        """What it says. `typed`: on standard input."""
        command = [sys.executable, SCRIPT, "-H", "127.0.0.1", "-P", str(self._port), *words]
        ran = subprocess.run(
            command, input=typed, capture_output=True, text=True, timeout=60, cwd=self.folder
        )
        assert (ran.returncode == 0) is ok, (words, ran.stdout, ran.stderr)
        return ran.stdout + ran.stderr

    def rows(self, *words: str) -> list[dict[str, object]]:
        """What it says, as a program reads it."""
        said: list[dict[str, object]] = json.loads(self.run("-f", "raw_json", *words))
        return said


@pytest.fixture
def admin(node_with: Start, tmp_path: Path) -> Admin:
    return Admin(node_with(SETTINGS), tmp_path)


def test_what_is_declared_is_listed_and_deleted(admin: Admin) -> None:
    assert admin.run("declare", "exchange", "name=e", "type=topic") == "exchange declared\n"
    assert admin.run("declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length": 5}')
    assert admin.run("declare", "queue", "name=qq", "queue_type=quorum") == "queue declared\n"
    admin.run("declare", "binding", "source=e", "destination=q", "routing_key=a.#")
    (queue,) = [
        row for row in admin.rows("list", "queues", "name", "durable", "arguments") if row["name"] == "q"
    ]
    assert queue == {"name": "q", "durable": True, "arguments": {"x-max-length": 5}}
    assert {"e", "amq.topic"} <= {row["name"] for row in admin.rows("list", "exchanges")}
    (binding,) = [row for row in admin.rows("list", "bindings") if row["source"] == "e"]
    assert (binding["destination"], binding["routing_key"], binding["properties_key"]) == (
        "q",
        "a.#",
        "a.%23",
    )
    deleted = admin.run(
        "delete", "binding", "source=e", "destination_type=queue", "destination=q", "properties_key=a.%23"
    )
    assert deleted == "binding deleted\n"
    assert not [row for row in admin.rows("list", "bindings") if row["source"] == "e"]
    for kind, name in (("exchange", "e"), ("queue", "q"), ("queue", "qq")):
        assert admin.run("delete", kind, f"name={name}") == f"{kind} deleted\n"
    assert admin.rows("list", "queues") == []
    assert "Not found" in admin.run("delete", "queue", "name=q", ok=False)


def test_tables_are_for_people(admin: Admin) -> None:
    admin.run("declare", "queue", "name=<b>", "durable=true")
    table = admin.run("list", "queues", "name", "messages")
    assert table.splitlines()[1] == "| name | messages |"
    assert "| <b>  | 0        |" in table
    assert "<b>\t0" in admin.run("-f", "tsv", "list", "queues", "name", "messages")
    assert "name: <b>" in admin.run("-f", "long", "list", "queues")
    assert admin.run("-f", "bash", "list", "queues") == "<b>\n"
    assert "rabbitmq_version" in admin.run("show", "overview")


def test_messages_are_published_fetched_and_purged(admin: Admin) -> None:
    admin.run("declare", "queue", "name=q", "durable=true")
    properties = 'properties={"delivery_mode": 2, "headers": {"k": "v"}}'
    assert admin.run("publish", "routing_key=q", "payload=hello", properties) == "Message published\n"
    assert admin.run("publish", "routing_key=none", "payload=x") == "Message published but NOT routed\n"
    admin.run("publish", "exchange=amq.default", "routing_key=q", typed="größer\n")
    first, second = admin.rows("get", "queue=q", "count=5")
    assert (first["payload"], first["properties"]) == ("hello", {"delivery_mode": 2, "headers": {"k": "v"}})
    assert (second["payload"], first["redelivered"]) == ("größer\n", False)
    (taken,) = admin.rows("get", "queue=q", "ackmode=ack_requeue_false")
    assert (taken["payload"], taken["redelivered"], taken["message_count"]) == ("hello", True, 1)
    admin.run("get", "queue=q", "payload_file=payload")
    assert (admin.folder / "payload").read_text() == "größer\n"
    assert admin.run("purge", "queue", "name=q") == "queue purged\n"
    assert admin.rows("get", "queue=q") == []


def test_users_virtual_hosts_and_what_they_may(admin: Admin) -> None:
    admin.run("declare", "vhost", "name=shop")
    admin.run("declare", "user", "name=ann", "password=sesame", "tags=management,policymaker")
    admin.run("declare", "permission", "vhost=shop", "user=ann", "configure=.*", "write=^a", "read=")
    assert [row["name"] for row in admin.rows("list", "vhosts")] == ["/", "shop"]
    ann = admin.rows("list", "users")[0]
    assert (ann["name"], ann["tags"]) == ("ann", ["management", "policymaker"])
    permission = {"user": "ann", "vhost": "shop", "configure": ".*", "write": "^a", "read": ""}
    assert permission in admin.rows("list", "permissions")
    own = ("-u", "ann", "-p", "sesame")
    assert [row["name"] for row in admin.rows(*own, "list", "vhosts")] == ["shop"]
    assert "Access refused" in admin.run(*own, "list", "users", ok=False)
    assert "Access refused" in admin.run("-u", "ann", "-p", "wrong", "list", "vhosts", ok=False)
    password_hash = f"password_hash={ann['password_hash']}"
    admin.run(
        "declare", "user", "name=bob", password_hash, f"hashing_algorithm={ann['hashing_algorithm']}", "tags="
    )
    assert admin.run("delete", "permission", "vhost=shop", "user=ann") == "permission deleted\n"
    assert permission not in admin.rows("list", "permissions")
    for kind, name in (("user", "ann"), ("user", "bob"), ("vhost", "shop")):
        assert admin.run("delete", kind, f"name={name}") == f"{kind} deleted\n"
    assert [row["name"] for row in admin.rows("list", "users")] == ["guest"]


def test_policies_parameters_and_limits(admin: Admin) -> None:
    admin.run(
        "declare",
        "policy",
        "name=p",
        "pattern=^q",
        'definition={"max-length": 5}',
        "apply-to=queues",
        "priority=2",
    )
    admin.run("declare", "operator_policy", "name=o", "pattern=^q", 'definition={"max-length": 3}')
    admin.run("declare", "vhost_limit", "vhost=/", "name=max-queues", "value=10")
    (policy,) = admin.rows("list", "policies")
    assert (policy["name"], policy["definition"], policy["priority"]) == ("p", {"max-length": 5}, 2)
    (operator,) = admin.rows("list", "operator_policies")
    assert (operator["name"], operator["definition"]) == ("o", {"max-length": 3})
    assert admin.rows("list", "vhost_limits") == [{"vhost": "/", "value": {"max-queues": 10}}]
    admin.run("declare", "parameter", "component=vhost-limits", "name=limits", 'value={"max-connections": 7}')
    named = {(row["component"], row["name"]): row["value"] for row in admin.rows("list", "parameters")}
    assert named["vhost-limits", "limits"] == {"max-connections": 7}
    refused = admin.run("declare", "parameter", "component=federation", "name=s", "value={}", ok=False)
    assert "component federation not found" in refused
    shovel = '{"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://u:secret@h", "dest-queue": "b"}'
    admin.run("declare", "parameter", "component=shovel", "name=s", f"value={shovel}")
    named = {(row["component"], row["name"]): row["value"] for row in admin.rows("list", "parameters")}
    assert named["shovel", "s"]["dest-uri"] == "amqp://u:***@h"
    admin.run("delete", "parameter", "component=shovel", "name=s")
    admin.run("delete", "parameter", "component=vhost-limits", "name=limits")
    admin.run("declare", "vhost_limit", "vhost=/", "name=max-connections", "value=9")
    admin.run("delete", "vhost_limit", "vhost=/", "name=max-connections")
    for kind, name in (("policy", "p"), ("operator_policy", "o")):
        assert admin.run("delete", kind, f"name={name}") == f"{kind} deleted\n"
    assert admin.rows("list", "parameters") == admin.rows("list", "policies") == []


def test_what_is_exported_can_be_imported(admin: Admin) -> None:
    admin.run("declare", "exchange", "name=e", "type=fanout")
    admin.run("declare", "queue", "name=q", "durable=true", 'arguments={"x-message-ttl": 5000}')
    admin.run("declare", "binding", "source=e", "destination=q")
    admin.run("declare", "policy", "name=p", "pattern=^q", 'definition={"max-length": 5}')
    assert "Exported definitions" in admin.run("export", "all.json")
    admin.run("-V", "/", "export", "one.json")
    before = (admin.folder / "all.json").read_text()
    admin.run("delete", "queue", "name=q")
    admin.run("delete", "exchange", "name=e")
    admin.run("delete", "policy", "name=p")
    assert "Uploaded definitions" in admin.run("import", "all.json")
    admin.run("export", "again.json")
    assert (admin.folder / "again.json").read_text() == before
    admin.run("declare", "vhost", "name=copy")
    admin.run("-V", "copy", "import", "one.json")
    assert [row["name"] for row in admin.rows("-V", "copy", "list", "queues")] == ["q"]


def test_a_connection_is_listed_and_closed(admin: Admin) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", admin.node.port, client_properties={"product": "shop"}
    )
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", lambda *delivery: None)
    (row,) = admin.rows("list", "connections")
    assert (row["user"], row["channels"]) == ("guest", 1)
    (listed,) = admin.rows("list", "channels")
    assert str(listed["name"]).startswith(str(row["name"]))
    (consumer,) = admin.rows("list", "consumers")
    assert consumer["ack_required"] is True
    assert [each["type"] for each in admin.rows("list", "nodes")] == ["ram"]
    assert admin.run("close", "connection", f"name={row['name']}") == "connection closed\n"
    wait_until(lambda: admin.rows("list", "connections") == [], "the connection to be gone")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(60)
