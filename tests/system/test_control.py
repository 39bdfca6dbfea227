"""`leveret status`, `reload`, `plugins` and `explain` against a node in a process, over real sockets."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret.server import cli
from leveret.version import VERSION

pytestmark = pytest.mark.system

CONFIG = """
log.level = "info"
listeners = [{{ address = "127.0.0.1:0" }}, {{ address = "127.0.0.1:0", protocols = ["amqp091", "http"] }}]
http.address = "127.0.0.1:0"
plugins.folders = ["{folder}"]

[[users]]
name = "guest"
password = "guest"
tags = ["administrator"]
permissions."/" = {{ configure = ".*", write = ".*", read = ".*" }}

[[users]]
name = "shop"
password = "sesame-7"
permissions."/" = {{ write = "^orders$" }}
"""

PLUGIN = '''
"""Routes to what is bound with one certain key, whatever the message's key is."""

from leveret.exchanges.exchange_type import ExchangeType


class Certain(ExchangeType):
    name = "x-certain"

    def route(self, message):
        return [b.destination for b in self.exchange.bindings if b.key == "{key}"]
'''


@attrs.frozen
class Served:
    """A node in a process."""

    process: subprocess.Popen[str]
    url: str
    amqp_port: int
    both_port: int  # speaks AMQP and HTTP
    config: Path
    folder: Path
    log: Path

    def run(self, *arguments: str, **environ: str) -> int:
        return cli.main(arguments, {"LEVERET_URL": self.url, **environ})


@attrs.frozen
class Told:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def content(self) -> dict[str, object]:
        content = json.loads(self.out)
        assert isinstance(content, dict)
        return content


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("node")
    config, folder, log = place / "leveret.toml", place / "plugins", place / "log"
    folder.mkdir()
    (folder / "certain.py").write_text(PLUGIN.format(key="a"))
    config.write_text(CONFIG.format(folder=folder))
    with log.open("w") as errors:
        command = [sys.executable, "-m", "leveret", "serve", "--config", str(config)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            shown = screen(process)
            amqp, both, control = (int(port) for port in re.findall(r"(?m)^  127\.0\.0\.1:(\d+)", shown))
            assert (
                f"  web page                 http://127.0.0.1:{control}/  (and management API, metrics)\n"
                in shown
            )
            yield Served(process, f"http://127.0.0.1:{control}", amqp, both, config, folder, log)
        finally:
            process.terminate()
            process.communicate()


def screen(process: subprocess.Popen[str]) -> str:
    """What the node prints when it is ready."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if "Ctrl-C" in line:
            break
    return "".join(lines)


@pytest.fixture
def ask(served: Served, capsys: pytest.CaptureFixture[str]) -> Ask:
    return Ask(served, capsys)


@attrs.frozen
class Ask:
    """`leveret` with these arguments, asking the node."""

    served: Served
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, **environ: str) -> Told:
        code = self.served.run(*arguments, **environ)
        captured = self.capsys.readouterr()
        return Told(code, captured.out, captured.err)


@pytest.fixture
def channel(served: Served) -> Iterator[BlockingChannel]:
    parameters = pika.ConnectionParameters("127.0.0.1", served.amqp_port)
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()


# Status.


def test_status_tells_what_is_served_and_held(ask: Ask, channel: BlockingChannel) -> None:
    channel.queue_declare("held", exclusive=True)
    channel.basic_publish("", "held", b"x")
    channel.basic_get("held")
    told = ask("status", "--json")
    assert (told.code, told.content["version"]) == (cli.DONE, VERSION)
    assert (told.content["queues"], told.content["messages_unacknowledged"]) == (1, 1)
    assert told.content["virtual_hosts"] == ["/"]
    text = ask("status").out
    assert re.search(r"^queues +1$", text, re.MULTILINE)
    assert re.search(r"127\.0\.0\.1:\d+ +http +no +yes +no\n", text)


def test_what_the_file_will_set_back_is_told_at_once_and_in_the_status(ask: Ask) -> None:
    assert ask("status", "--json").content["set_back_at_restart"] == []
    told = ask("limit", "set", "max-connections", "50", "--of-user", "shop")
    assert told.code == cli.DONE
    assert told.err == ("leveret: warning: this holds until restart; the configuration file says otherwise\n")
    changed = ask("status", "--json").content["set_back_at_restart"]
    assert changed == [{"object": "user 'shop'", "file": "the configuration file"}]
    assert re.search(
        r"set back at restart\n +object +file\n +user 'shop' +the configuration file", ask("status").out
    )


# Who asks.


def test_a_wrong_password_is_exit_code_3_and_not_in_the_log(ask: Ask) -> None:
    told = ask("status", LEVERET_PASSWORD="hunter2")
    assert (told.code, told.out) == (cli.UNREACHABLE, "")
    assert told.err == f"leveret: {ask.served.url} does not let 'guest' in: wrong user or password\n"
    log = ask.served.log.read_text()
    assert "login refused: user 'guest': invalid credentials" in log
    assert "hunter2" not in log


def test_a_user_without_a_tag_is_told_which_he_lacks(ask: Ask) -> None:
    told = ask("status", "--user", "shop", LEVERET_PASSWORD="sesame-7")
    assert told.code == cli.REFUSED
    assert told.err == (
        "leveret: user 'shop' has none of the tags administrator, management, monitoring, policymaker\n"
    )


def test_a_node_that_does_not_run_is_exit_code_3(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    told = ask("status", "--url", url)
    assert told.code == cli.UNREACHABLE
    assert told.err.startswith(f"leveret: no node answers at {url} (")
    assert told.err.endswith("); is `leveret serve` running?\n")


def test_a_listener_can_speak_http_and_amqp(ask: Ask) -> None:
    assert ask("status", "--url", f"http://127.0.0.1:{ask.served.both_port}").code == cli.DONE
    pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", ask.served.both_port)).close()


def test_a_port_for_amqp_is_not_taken_for_a_control_endpoint(ask: Ask) -> None:
    assert ask("status", "--url", f"http://127.0.0.1:{ask.served.amqp_port}").code == cli.UNREACHABLE


def test_health_needs_no_name(served: Served) -> None:
    with urllib.request.urlopen(f"{served.url}/api/leveret/health", timeout=60) as response:
        assert (response.status, json.load(response)) == (200, {"status": "ok"})


def test_what_is_not_http_is_answered_and_harms_nobody(ask: Ask) -> None:
    with socket.create_connection(("127.0.0.1", int(ask.served.url.rpartition(":")[2])), 10) as peer:
        peer.sendall(b"AMQP\x00\x00\x09\x01\r\n\r\n")
        assert peer.makefile("rb").read().startswith(b"HTTP/1.1 400 ")
    assert ask("status").code == cli.DONE


# Reload.


def test_reload_takes_the_new_configuration_or_says_what_is_wrong_with_it(ask: Ask) -> None:
    config = ask.served.config
    before = config.read_text()
    config.write_text(before.replace('log.level = "info"', 'log.level = "debug"\nnode.name = "hare"'))
    told = ask("reload", "--json")
    assert told.code == cli.DONE
    assert told.content == {"changed": ["log.level"], "needs_restart": ["node.name"], "refused": []}
    config.write_text(before.replace('log.level = "info"', 'log.level = "loud"'))
    told = ask("reload")
    assert (told.code, told.out) == (cli.REFUSED, "")
    assert told.err.startswith(
        "leveret: the configuration cannot be used; nothing was changed\nlog.level: found"
    )
    config.write_text(before)
    assert ask("reload").code == cli.DONE


# Plugins.


def test_an_edited_plugin_takes_effect_and_a_broken_one_is_refused(ask: Ask, channel: BlockingChannel):
    channel.exchange_declare("certain", "x-certain", auto_delete=True)
    for name in ("a", "b"):
        channel.queue_declare(name, exclusive=True)
        channel.queue_bind(name, "certain", name)
    assert received(channel) == ["a"]

    (ask.served.folder / "certain.py").write_text(PLUGIN.format(key="b"))
    told = ask("plugins", "reload", "--json")
    assert (told.code, told.content["loaded"]) == (cli.DONE, ["x-certain"])
    assert received(channel) == ["b"]

    (ask.served.folder / "certain.py").write_text(PLUGIN.format(key="a").replace("return", "retrun"))
    told = ask("plugins", "reload")
    assert told.code == cli.REFUSED
    assert "certain.py" in told.out
    assert "SyntaxError" in told.out
    assert received(channel) == ["b"]
    assert re.search(r"^refused +/.*/certain.py$", ask("reload").out, re.MULTILINE)

    (ask.served.folder / "certain.py").write_text(PLUGIN.format(key="a"))
    assert ask("plugins", "reload").code == cli.DONE
    assert received(channel) == ["a"]


def received(channel: BlockingChannel) -> list[str]:
    """The queues that a message published now arrives in."""
    channel.basic_publish("certain", "whatever", b"x")
    return [name for name in ("a", "b") if channel.basic_get(name, auto_ack=True)[0] is not None]


def test_plugins_are_listed_with_where_they_come_from(ask: Ask, channel: BlockingChannel) -> None:
    channel.exchange_declare("one", "x-random", auto_delete=True)
    told = ask("plugins", "--json")
    types = told.content["exchange_types"]
    assert isinstance(types, list)
    well = {"exchanges": 1, "errors": 0, "slow_calls": 0, "slowest_ms": 0}
    assert {"name": "x-random", "from": "leveret.plugins.random_exchange", **well} in types
    assert told.content["protocols"] == ["amqp010", "amqp091", "amqp10", "http", "mqtt", "prometheus"]
    assert "x-certain" in ask("plugins").out
    channel.exchange_delete("one")


# Explain.


@pytest.fixture
def orders(channel: BlockingChannel) -> BlockingChannel:
    """orders (topic) -> audit (headers) -> log, and orders -> eu; what nobody wants goes to rest (fanout)."""
    channel.exchange_declare("rest", "fanout", auto_delete=True)
    channel.exchange_declare("audit", "headers", auto_delete=True)
    channel.exchange_declare("orders", "topic", auto_delete=True, arguments={"alternate-exchange": "rest"})
    for name in ("eu", "log", "lost"):
        channel.queue_declare(name, exclusive=True)
    channel.queue_bind("eu", "orders", "eu.*")
    channel.exchange_bind("audit", "orders", "eu.#")
    channel.queue_bind("log", "audit", "", {"x-match": "any", "copies": 2})
    channel.queue_bind("lost", "rest")
    return channel


def test_explain_shows_the_way_of_a_message(ask: Ask, orders: BlockingChannel) -> None:
    told = ask(
        "explain", "--exchange", "orders", "--key", "eu.new", "--header", "copies=2", "--as-user", "shop"
    )
    assert told.code == cli.DONE
    assert told.out.splitlines() == [
        "routed to 2 queues: eu, log",
        "",
        "exchange 'orders' (topic), published to",
        "  'eu.*' -> queue 'eu'",
        "  'eu.#' -> exchange 'audit'",
        "    exchange 'audit' (headers), reached by a binding",
        "      '' x-match=any, copies=2 -> queue 'log'",
        "",
        "permissions: user 'shop' may publish it",
    ]


def test_explain_shows_alternates_and_what_was_really_delivered(ask: Ask, orders: BlockingChannel) -> None:
    told = ask("explain", "--exchange", "orders", "--key", "us.new", "--json")
    assert told.content["queues"] == ["lost"]
    orders.basic_publish("orders", "us.new", b"x")
    assert [name for name in ("eu", "log", "lost") if orders.basic_get(name)[0] is not None] == ["lost"]
    orders.queue_unbind("lost", "rest")
    told = ask("explain", "--exchange", "orders", "--key", "us.new")
    assert told.out.splitlines()[:4] == [
        "dropped: exchange 'orders': no binding matches 'us.new'; the alternate 'rest' does not exist",
        "",
        "exchange 'orders' (topic), published to",
        "  no binding matches 'us.new'; the alternate 'rest' does not exist",
    ]


def test_explain_tells_a_refusal(ask: Ask, orders: BlockingChannel) -> None:
    told = ask("explain", "--exchange", "audit", "--as-user", "shop")
    assert told.out.startswith(
        "dropped: write access to exchange 'audit' in vhost '/' refused for user 'shop'\n"
    )
    assert ask("explain", "--exchange", "none").err == "leveret: no exchange 'none' in vhost '/'\n"


def asked_for(served: Served, path: str) -> Any:
    request = urllib.request.Request(served.url + path)
    request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")  # guest:guest
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def test_the_last_lines_of_the_log_are_told_over_http(served: Served) -> None:
    found = asked_for(served, "/api/leveret/log/lines?category=node&level=info")
    assert found["last"] >= len(found["lines"]) > 0
    assert {line["logger"] for line in found["lines"]} == {"leveret.node"}
    assert asked_for(served, f"/api/leveret/log/lines?after={found['last']}&level=error")["lines"] == []
