"""librabbitmq, the C client, through its command-line tools (Debian package amqp-tools)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, need_command, wait_until

pytestmark = pytest.mark.interop
PACKAGE = "amqp-tools"

Tool = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def tool(node: RunningNode) -> Tool:
    """A function that runs one of the tools against the node: `tool("get", "-q", "q")`."""

    def run(
        name: str, *arguments: str, body: bytes = b"", url: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        command = [need_command(f"amqp-{name}", PACKAGE), "-u", url or node.url, *arguments]
        return subprocess.run(command, input=body, capture_output=True, timeout=TIMEOUT_S, check=False)

    return run


def test_declare_publish_get_delete(node: RunningNode, tool: Tool):
    assert tool("declare-queue", "-q", "q", "-d").stdout == b"q\n"
    found = node.find("q")
    assert found is not None
    assert found.durable
    assert tool("publish", "-r", "q", "-p", "-b", "from C").returncode == 0
    assert node.ready("q") == 1
    assert tool("get", "-q", "q").stdout == b"from C"
    empty = tool("get", "-q", "q")
    assert (empty.returncode, empty.stdout) == (2, b"")
    tool("publish", "-r", "q", "-b", "left")
    assert tool("delete-queue", "-q", "q").stdout == b"1\n"
    assert node.find("q") is None


def test_a_large_body_from_standard_input_comes_back(tool: Tool):
    body = bytes(range(256)) * 4096
    tool("declare-queue", "-q", "q")
    assert tool("publish", "-r", "q", body=body).returncode == 0
    assert tool("get", "-q", "q").stdout == body


def test_consume_runs_a_command_for_each_message(node: RunningNode, tool: Tool):
    tool("declare-queue", "-q", "q")
    for text in ("one", "two", "three"):
        tool("publish", "-r", "q", "-b", text)
    consumed = tool("consume", "-q", "q", "-c", "3", "-p", "1", "cat")
    assert (consumed.returncode, consumed.stdout) == (0, b"onetwothree")
    wait_until(lambda: node.unsettled("q") == 0, "everything is acknowledged")
    assert node.ready("q") == 0


def test_consume_from_a_queue_of_its_own_bound_to_an_exchange(node: RunningNode, tool: Tool):
    command = [need_command("amqp-consume", PACKAGE), "-u", node.url, "-e", "amq.topic", "-r", "eu.#"]
    with subprocess.Popen([*command, "-x", "-c", "1", "cat"], stdout=subprocess.PIPE) as consumer:
        wait_until(lambda: any(node.queue_names()), "the consumer has declared its queue")
        wait_until(lambda: all(node.consumers(name) for name in node.queue_names()), "it consumes")
        tool("publish", "-e", "amq.topic", "-r", "eu.new", "-b", "routed")
        stdout, _ = consumer.communicate(timeout=TIMEOUT_S)
    assert stdout == b"routed"


def test_a_wrong_password_and_a_missing_queue_are_told(node: RunningNode, tool: Tool):
    refused = tool("get", "-q", "q", url=node.url_with("wrong"))
    assert refused.returncode == 1
    assert b"ACCESS_REFUSED" in refused.stderr
    missing = tool("get", "-q", "q")
    assert missing.returncode == 1
    assert b"404" in missing.stderr
    assert b"no queue 'q' in vhost '/'" in missing.stderr
