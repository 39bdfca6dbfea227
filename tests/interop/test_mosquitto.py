"""Mosquitto: its command-line clients, and its broker as a bridge to ours."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, need_command, wait_until

pytestmark = pytest.mark.interop

SERVED = 'listeners = [{ address = "127.0.0.1:0", protocols = ["amqp091", "mqtt"] }]'
VERSIONS = {"3.1.1": "mqttv311", "5": "mqttv5"}


@pytest.fixture
def served(node_with: Start) -> RunningNode:
    return node_with(SERVED)


@pytest.fixture(params=list(VERSIONS))
def version(request: pytest.FixtureRequest) -> str:
    return VERSIONS[request.param]


def words(name: str, host: str, port: int, version: str, *said: str) -> list[str]:
    """The command line of one of the clients."""
    command = need_command(name, "mosquitto-clients")
    return [command, "-h", host, "-p", str(port), "-u", "guest", "-P", "guest", "-V", version, *said]


def publish(node: RunningNode, version: str, *said: str, text: str = "") -> None:
    ran = subprocess.run(
        words("mosquitto_pub", node.host, node.port, version, *said),
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


class Reading:
    """A mosquitto_sub, and the lines that it has printed."""

    def __init__(self, host: str, port: int, version: str, *said: str) -> None:
        # It writes to a pipe when it has a lot, unless it is told to write each line.
        command = ["stdbuf", "-oL", *words("mosquitto_sub", host, port, version, "-d", *said)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.messages: list[str] = []

    def line(self) -> str:
        """Return the next line; keep it if it is a message, and no trace."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"mosquitto_sub has ended after {self.messages}"
        if not line.startswith(("Client ", "Subscribed ")):
            self.messages.append(line.rstrip("\n"))
        return line

    def take(self, count: int) -> list[str]:
        while len(self.messages) < count:
            self.line()
        found, self.messages = self.messages[:count], self.messages[count:]
        return found


@contextlib.contextmanager
def subscriber(host: str, port: int, version: str, *said: str) -> Iterator[Reading]:
    """A mosquitto_sub that has subscribed; it is killed at the end."""
    reading = Reading(host, port, version, *said)
    try:
        while not reading.line().startswith("Subscribed"):
            pass
        yield reading
    finally:
        reading.process.kill()
        reading.process.communicate()


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_what_one_command_publishes_the_other_prints(served: RunningNode, version: str, qos: str):
    with subscriber(served.host, served.port, version, "-q", qos, "-t", "a/#", "-F", "%t %p %q") as reading:
        publish(served, version, "-q", qos, "-t", "a/b", "-m", "hello")
        publish(served, version, "-q", qos, "-t", "a/c", "-l", text="one\ntwo\n")
        assert reading.take(3) == [f"a/b hello {qos}", f"a/c one {qos}", f"a/c two {qos}"]


def test_a_retained_message_is_printed_and_removed(served: RunningNode, version: str):
    publish(served, version, "-r", "-q", "1", "-t", "state", "-m", "on")
    with subscriber(served.host, served.port, version, "-t", "state", "-F", "%r %p") as reading:
        assert reading.take(1) == ["1 on"]
    publish(served, version, "-r", "-q", "1", "-t", "state", "-n")
    with subscriber(served.host, served.port, version, "-t", "+", "-F", "%r %p") as reading:
        publish(served, version, "-t", "end", "-m", "end")
        assert reading.take(1) == ["0 end"]


def test_a_will_is_printed(served: RunningNode, version: str):
    with subscriber(served.host, served.port, version, "-t", "gone", "-F", "%p") as reading:
        will = ("--will-topic", "gone", "--will-payload", "bye", "-t", "other")
        with subscriber(served.host, served.port, version, *will):
            pass  # killed at the end
        assert reading.take(1) == ["bye"]


def test_a_session_keeps_what_came_meanwhile(served: RunningNode, version: str):
    keep = ("-i", "me", "-q", "1", "-t", "a", "-F", "%p")
    keep += ("-c",) if version == "mqttv311" else ("-c", "-x", "100")
    with subscriber(served.host, served.port, version, *keep):
        pass
    for number in range(3):
        publish(served, version, "-q", "1", "-t", "a", "-m", str(number))
    with subscriber(served.host, served.port, version, *keep) as reading:
        assert reading.take(3) == ["0", "1", "2"]


def test_properties_of_version_5_are_printed(served: RunningNode):
    form = "%p %C %D %R %P"
    with subscriber(served.host, served.port, "mqttv5", "-t", "a", "-F", form) as reading:
        properties = ("content-type", "text/plain"), ("correlation-data", "7"), ("response-topic", "answers")
        said = [word for name, value in properties for word in ("-D", "publish", name, value)]
        said += ["-D", "publish", "user-property", "k", "v"]
        publish(served, "mqttv5", "-t", "a", "-m", "x", *said)
        assert reading.take(1) == ["x text/plain 7 answers k:v"]


def test_mosquitto_rr_asks_and_gets_an_answer(served: RunningNode):
    with subscriber(served.host, served.port, "mqttv5", "-t", "asked", "-F", "%R") as answering:
        command = words(
            "mosquitto_rr",
            served.host,
            served.port,
            "mqttv5",
            "-t",
            "asked",
            "-e",
            "answered",
            "-m",
            "?",
            "-W",
            "30",
        )
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert answering.take(1) == ["answered"]
            publish(served, "mqttv5", "-t", "answered", "-m", "!")
            assert asking.communicate(timeout=TIMEOUT_S) == ("!\n", None)
        finally:
            asking.kill()
            asking.communicate()


# Mosquitto's broker, with a bridge to ours.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@pytest.fixture(params=["mqttv311", "mqttv50"])
def bridge(request: pytest.FixtureRequest, served: RunningNode, tmp_path: Path) -> Iterator[int]:
    """The port of a mosquitto that sends `up/#` to our node and gets `down/#` from it."""
    command = need_command("mosquitto", "mosquitto")
    port = free_port()
    settings = tmp_path / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\n"
        "allow_anonymous true\n"
        "connection ours\n"
        f"address {served.host}:{served.port}\n"
        f"bridge_protocol_version {request.param}\n"
        "remote_username guest\n"
        "remote_password guest\n"
        "remote_clientid bridge\n"
        "notifications false\n"
        "restart_timeout 1\n"
        "topic up/# out 1\n"
        "topic down/# in 2\n"
        "topic both/# both 1\n"
    )
    log = (tmp_path / "mosquitto.log").open("w")
    process = subprocess.Popen([command, "-v", "-c", settings], stdout=log, stderr=log)
    try:
        wait_until(lambda: "Received SUBACK" in (tmp_path / "mosquitto.log").read_text(), "a bridge")
        yield port
    finally:
        process.kill()
        process.wait()
        log.close()


def test_a_bridge_carries_messages_up_and_down(served: RunningNode, bridge: int):
    with (
        subscriber(served.host, served.port, "mqttv5", "-q", "2", "-t", "up/#", "-F", "%t %p %q") as ours,
        subscriber("127.0.0.1", bridge, "mqttv5", "-q", "2", "-t", "down/#", "-F", "%t %p %q") as theirs,
    ):
        sent = words("mosquitto_pub", "127.0.0.1", bridge, "mqttv5", "-q", "2", "-t", "up/1", "-m", "a")
        subprocess.run(sent, check=True, timeout=TIMEOUT_S)
        assert ours.take(1) == ["up/1 a 1"]
        publish(served, "mqttv5", "-q", "2", "-t", "down/1", "-m", "b")
        assert theirs.take(1) == ["down/1 b 2"]


def test_what_a_bridge_brings_does_not_come_back(served: RunningNode, bridge: int):
    with (
        subscriber(served.host, served.port, "mqttv5", "-t", "both/#", "-F", "%p") as ours,
        subscriber("127.0.0.1", bridge, "mqttv5", "-t", "both/#", "-F", "%p") as theirs,
    ):
        for number in range(3):
            sent = words(
                "mosquitto_pub", "127.0.0.1", bridge, "mqttv5", "-q", "1", "-t", "both/x", "-m", str(number)
            )
            subprocess.run(sent, check=True, timeout=TIMEOUT_S)
        assert ours.take(3) == ["0", "1", "2"]
        publish(served, "mqttv5", "-q", "1", "-t", "both/x", "-m", "end")
        assert ours.take(1) == ["end"]
        assert theirs.take(4) == ["0", "1", "2", "end"]
