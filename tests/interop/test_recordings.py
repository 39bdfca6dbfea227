"""What clients of three protocols do over real sockets is recorded, and leads to the same state when it is played."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Final

import pika
import pytest
from pika.exceptions import AMQPError
from proton.utils import BlockingConnection as ProtonConnection

from leveret.features.recording.recordings import Recordings
from leveret.protocols.amqp010.codec import commands as c
from leveret.server import cli
from leveret.server.cli.control_client import ControlClient
from tests.amqp010.over_socket import SocketClient
from tests.features.recording.recorded import RecordKind, records_of
from tests.interop.conftest import RunningNode, Start
from tests.interop.proton_peer import connect, data

pytestmark = pytest.mark.interop

Printed = pytest.CaptureFixture[str]
QUEUES: Final = ("one", "two", "three")
SETTINGS: Final = """
protocols.amqp010.enabled = true
http = {{ enabled = true, address = "127.0.0.1:0" }}
record.folder = "{folder}"
"""


def control_url(node: RunningNode) -> str:
    def address() -> str:
        return next(f"http://{each.address}" for each in node.node.listening if "http" in each.entrance.names)

    return node.call(address)


class Clients:
    """One client of each protocol, which do random things."""

    def __init__(self, node: RunningNode, stack: ExitStack) -> None:
        connection = stack.enter_context(pika.BlockingConnection(pika.URLParameters(node.url)))
        self.channel = connection.channel()
        self.channel.confirm_delivery()
        self.proton: ProtonConnection = connect(node)
        stack.callback(self.proton.close)
        socket = stack.enter_context(SocketClient(f"{node.host}:{node.port}"))
        self.session = socket.open().attach()
        for name in QUEUES:
            self.channel.queue_declare(name, durable=True)

    def act(self, random: Random) -> None:
        queue = random.choice(QUEUES)
        random.choice(
            (self.publish091, self.publish10, self.publish010, self.get091, self.get10, self.get010)
        )(queue, random)

    def publish091(self, queue: str, random: Random) -> None:
        properties = pika.BasicProperties(headers={"n": random.randrange(9), "token": "hush"})
        self.channel.basic_publish("", queue, random.randbytes(random.randrange(40)), properties)

    def publish10(self, queue: str, random: Random) -> None:
        message = data(random.randbytes(random.randrange(40)))
        message.properties = {"n": random.randrange(9), "token": "hush"}
        sender = self.proton.create_sender(f"/queues/{queue}")
        sender.send(message)
        sender.close()

    def publish010(self, queue: str, random: Random) -> None:
        self.session.publish(queue, random.randbytes(random.randrange(40)))
        self.session.sync()

    def get091(self, queue: str, random: Random) -> None:
        method, _, _ = self.channel.basic_get(queue)
        if method is not None:
            answer = random.choice(
                (
                    lambda: self.channel.basic_ack(method.delivery_tag),
                    lambda: self.channel.basic_nack(method.delivery_tag),
                    lambda: self.channel.basic_reject(method.delivery_tag, requeue=False),
                    lambda: None,
                )
            )
            answer()

    def get10(self, queue: str, random: Random) -> None:
        method, _, _ = self.channel.basic_get(queue)
        if method is None:
            return
        self.channel.basic_nack(method.delivery_tag)  # there is one
        self.channel.basic_qos()
        receiver = self.proton.create_receiver(f"/queues/{queue}", credit=1)
        receiver.receive()
        random.choice((receiver.accept, receiver.reject, receiver.release))()
        receiver.close()

    def get010(self, queue: str, random: Random) -> None:
        self.session.publish(queue, b"at least this")
        inbox = self.session.subscribe(queue, messages=1)
        message = inbox.get()
        if random.random() < 0.5:
            self.session.accept(message.id)
        self.session.call(c.MessageCancel(queue))
        self.session.sync()


def recording(node: RunningNode, url: str, capsys: Printed) -> Path:
    assert cli.main(["record", "start", "--url", url, "--json"], {}) == 0
    return Path(json.loads(capsys.readouterr().out)["file"])


@pytest.fixture
def recorded(node_with: Start, tmp_path: Path) -> RunningNode:
    return node_with(SETTINGS.format(folder=tmp_path / "recordings"))


@pytest.mark.parametrize("seed", [1, 2])
def test_three_protocols_lead_to_the_same_state(recorded: RunningNode, seed: int, capsys: Printed) -> None:
    """Half of it is there before the recording begins, and clients leave without answers while it goes on."""
    url, random = control_url(recorded), Random(seed)
    with ExitStack() as stack:
        clients = Clients(recorded, stack)
        for _ in range(20):
            clients.act(random)
        path = recording(recorded, url, capsys)
        for _ in range(40):
            clients.act(random)
    recorded.call(lambda: recorded.node.broker.guest(Recordings).close())
    assert b"hush" not in b"".join(each.raw for each in records_of(path))
    assert cli.main(["replay-session", str(path), "--json"], {}) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["same"], report["refused"], report["rerouted"]) == (True, [], 0)
    assert report["published"] >= 10
    assert cli.main(["replay-session", str(path), "--to", url, "--vhost", "again", "--json"], {}) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []

    def contents(host: str) -> list[list[bytes]]:
        queues = recorded.node.broker.virtual_hosts[host].queues
        return [[each.message.body for each in queues[name].waiting()] for name in QUEUES]

    assert recorded.call(contents, "again") == recorded.call(contents, "/")
    assert cli.main(["replay-session", str(path), "--to", url, "--vhost", "again"], {}) == 1
    assert "vhost 'again' exists" in capsys.readouterr().err


def test_commands_show_what_is_recorded(recorded: RunningNode, capsys: Printed) -> None:
    url = control_url(recorded)
    path = recording(recorded, url, capsys)
    with pika.BlockingConnection(pika.URLParameters(recorded.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("x", "topic")
        channel.queue_declare("q")
        channel.queue_bind("q", "x", "a.*")
        channel.basic_publish("x", "a.b", b"hello", pika.BasicProperties(message_id="m1"))
        channel.basic_get("q", auto_ack=True)
        channel.queue_delete("q")
    assert cli.main(["record", "status", "--url", url], {}) == 0
    assert f"/: {path}" in capsys.readouterr().out
    assert cli.main(["record", "start", "--url", url], {}) == 1
    assert "is being recorded already" in capsys.readouterr().err
    assert cli.main(["record", "stop", "--url", url], {}) == 0
    recorded.stop()
    capsys.readouterr()
    assert cli.main(["record", "show", str(path)], {}) == 0
    out = capsys.readouterr().out
    assert '"key": "a.b"' in out
    assert '"body": "hello"' in out
    assert '"message_id": "m1"' in out
    assert cli.main(["record", "show", str(path), "--json"], {}) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [each["kind"] for each in told]
    assert (kinds[0], kinds[-1]) == ("begin", "end")
    assert next(each["event"] for each in told if each["kind"] == "event") == "connection.created"
    assert cli.main(["record", "stats", str(path), "--json"], {}) == 0
    stats = json.loads(capsys.readouterr().out)
    assert (stats["records"]["published"], stats["entered"], stats["torn_bytes"]) == (1, {"q": 1}, 0)
    bound = next(each["time"] for each in told if each.get("event") == "binding.created")
    asked = ["explain", "--recording", str(path), "--exchange", "x", "--key", "a.b"]
    assert cli.main([*asked, "--at", bound], {}) == 0
    assert "routed to 1 queue: q" in capsys.readouterr().out
    assert cli.main([*asked, "--json"], {}) == 0
    assert json.loads(capsys.readouterr().out)["routed"] is False
    assert cli.main([*asked, "--at", "2001-01-01T00:00:00Z"], {}) == 1
    assert "the recording begins at" in capsys.readouterr().err
    assert cli.main(["record", "show", str(path), "--at", "yesterday"], {}) == 1
    assert "'yesterday' is neither a time" in capsys.readouterr().err


def test_a_node_that_is_killed_leaves_a_recording_that_can_be_read(tmp_path: Path, capsys: Printed) -> None:
    """What was flushed is there, and what is torn is told."""
    config = tmp_path / "leveret.toml"
    config.write_text(
        'listeners = [{ address = "127.0.0.1:0" }]\nhttp.enabled = false\n'
        'record = { virtual_hosts = ["/"], folder = "recordings" }\n'
    )
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "leveret", "serve", "--config", str(config)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        port = next(line.split()[0].rpartition(":")[2] for line in lines if line.startswith("  127.0.0.1:"))
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(port)))
        channel = connection.channel()
        channel.queue_declare("q")
        [path] = (tmp_path / "recordings").iterdir()
        count = 0
        while path.stat().st_size < 20_000:
            channel.basic_publish("", "q", b"%d" % count)
            count += 1
            connection.process_data_events(0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with suppress(AMQPError):
            connection.close()
    kinds = [record.kind for record in records_of(path)]
    assert kinds[0] is RecordKind.BEGIN
    assert 0 < kinds.count(RecordKind.ENTERED) <= count
    octets = path.read_bytes()
    path.write_bytes(octets[:-3])
    assert cli.main(["record", "show", str(path)], {}) == 0
    assert "are torn, and left out" in capsys.readouterr().err
    assert cli.main(["replay-session", str(path)], {}) == 1
    assert "there is nothing to compare with" in capsys.readouterr().err


def test_recordings_are_for_administrators(recorded: RunningNode) -> None:
    """Users that may see and change everything else in the virtual host may not."""
    asked = (
        ("GET", "recordings", 200),
        ("PUT", "recordings/%2F", 201),
        ("DELETE", "recordings/%2F", 200),
        ("PUT", "replays/new", 201),
        ("POST", "replays/new", 400),
        ("DELETE", "replays/new", 200),
    )
    tags = ("management", "policymaker", "monitoring")

    def users() -> None:
        access = recorded.node.broker.access
        for tag in tags:
            access.add_user(tag, tag, (tag,))
            access.set_permissions(tag, "/", ".*", ".*", ".*")

    recorded.call(users)
    url = control_url(recorded)
    for method, path, status in asked:
        for tag in tags:
            answer = ControlClient(url, tag, tag).ask(method, f"/api/leveret/{path}", body=b"{}")
            assert answer.status == 403
        answer = ControlClient(url, "guest", "guest").ask(method, f"/api/leveret/{path}", body=b"{}")
        assert answer.status == status, answer.text


def test_a_request_may_ask_for_less_and_not_for_more(recorded: RunningNode) -> None:
    client = ControlClient(control_url(recorded), "guest", "guest")
    for body, why in (
        ({"max_bytes": 1 << 40}, "max_bytes: a whole number from 1048576 to 268435456"),
        ({"when_full": "explode"}, "when_full: rotate or stop"),
        ({"redact_bodies": 1}, "redact_bodies: true or false"),
        ({"redact_headers": "x"}, "redact_headers: a list of patterns"),
        ({"file": "/etc/passwd"}, "unknown key 'file'"),
    ):
        answer = client.ask("PUT", "/api/leveret/recordings/%2F", body=json.dumps(body).encode())
        assert (answer.status, why in answer.reason) == (400, True), answer.text
    asked = {"max_bytes": 1 << 20, "when_full": "stop", "redact_bodies": True, "redact_properties": ["user*"]}
    answer = client.ask("PUT", "/api/leveret/recordings/%2F", body=json.dumps(asked).encode())
    told = json.loads(answer.text)
    assert (told["max_bytes"], told["when_full"], told["redacted"]["bodies"]) == (1 << 20, "stop", True)
    assert "*token*" in told["redacted"]["headers"]
    assert told["redacted"]["properties"] == ["user*"]
