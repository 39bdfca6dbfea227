"""The examples run, print what they should, and the pages that quote them quote what is there."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from leveret import ThreadedNode, embedded, load
from leveret.server.cli import main as leveret
from leveret.testing.conformance import check_exchange_type
from leveret.testing.leveret_broker import LeveretBroker
from tests.harness.seldom import examples
from tests.interop.conftest import need_module

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

PRINTED = {
    "01_hello.py": ["Hello, hare!"],
    "02_work_queue.py": [*(f"... did job {n}" for n in range(10)), "10 jobs done"],
    "03_topics.py": [
        "sailors: news of sea.north.wind",
        "archive: news of sea.north.wind",
        "archive: news of sea.north.rain",
        "leftovers: news of moon.north.wind",
    ],
    "04_retries.py": [
        "good: done at attempt 1",
        "bad: attempt 1 failed, again in 50 ms",
        "bad: attempt 2 failed, again in 50 ms",
        "bad: attempt 3 failed, put aside",
    ],
    "05_request_and_reply.py": ["2 squared is 4", "3 squared is 9", "12 squared is 144"],
    "06_embed_in_trio.py": ["Hello from inside!", "['greetings']"],
    "08_own_exchange_type.py": ["Berlin 1", "Paris 1", "air mail 1"],
    "09_line_protocol.py": [
        "> LINE guest guest /",
        "< OK",
        "> QUEUE to-lines",
        "< OK 0 waiting",
        "> PUB - to-amqp Hello, rabbit!",
        "< TAKEN 1",
        "> SUB to-lines",
        "< OK",
        "AMQP hears: Hello, rabbit!",
        "< WITH colour=red",
        "< MSG 1 - to-lines Hello, hare!",
    ],
    "24_more_cores.py": ["Hello from the shop", "Hello from the warehouse"],
    "22_services_of_the_broker.py": [
        "ping: Hello, broker!",
        "services: amq.ping amq.services amq.stats amq.time",
        "queues: 1",
    ],
    "12_amqp_1_0.py": [
        "chosen: a white turnip",
        "first: a brown hare",
        "again: a brown hare - not for the first time",
        "nobody wants it",
    ],
    "13_mixed_protocols.py": [
        "asked over 0-9-1: how long are your ears?",
        "seen over 1.0: {'loudly': True} priority 5",
        "answer to hare-1: Twelve centimetres.",
    ],
    "14_durable_node.py": [
        "3 orders confirmed",
        *(f"order {number} - perhaps not for the first time" for number in range(3)),
    ],
    "15_stream_to_polars.py": [
        "300 messages, offsets 0 to 299",
        "sensor a: 3.47 °C",
        "sensor b: 3.49 °C",
        "sensor c: 3.51 °C",
    ],
    "29_mqtt_to_delta.py": ["6 messages in the table", "device 0: 19.00 °C", "device 1: 19.50 °C"],
    "31_stream_to_duckdb.py": ["60 orders from eu", "30 orders from us", "the longest has 8 bytes"],
    "32_decode_orders.py": [
        'not decoded: {"number": 3, "price": 4.25}: $.id is missing',
        "1 rows were moved to lake, 0 still cannot be decoded",
        "id,number,price",
        "1,,9.50",
        "2,,12.00",
        ",3,4.25",
    ],
    "33_when_up_to_date.py": [
        "up to date: True [('till', 2.5), ('web', 4.0)]",
        "up to date: False",
        "up to date: True [('till', 2.5), ('web', 5.5)]",
    ],
    "21_migrate_from_0_10.py": [
        "0-9-1 kitchen: carrots for table 7",
        "till hears over 0-10: ready: carrots",
        "1.0 kitchen: parsley for table 9, subject food",
        "till hears over 0-10: ready: parsley",
    ],
}
NEEDS = {
    "15_stream_to_polars.py": ("polars", "pyarrow"),
    "29_mqtt_to_delta.py": ("polars", "pyarrow", "deltalake", "paho.mqtt"),
    "31_stream_to_duckdb.py": ("duckdb", "polars", "pyarrow"),
    "32_decode_orders.py": ("polars", "pyarrow", "deltalake"),
    "33_when_up_to_date.py": ("duckdb", "pyarrow", "deltalake"),
}


def printed_by(name: str, url: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        env={**os.environ, "AMQP_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=examples) if name in NEEDS else name for name in PRINTED]
)
def test_an_example_prints_what_it_should(name: str, leveret_broker: LeveretBroker):
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module)
    lines = printed_by(name, leveret_broker.url)
    if name == "02_work_queue.py":  # which worker does which job is chance
        lines = sorted((re.sub("^(Ann|Bob) did", "... did", line) for line in lines), key=PRINTED[name].index)
    assert lines == PRINTED[name]


@pytest.mark.interop
def test_the_example_for_asyncio_prints_what_it_should():
    pytest.importorskip("aio_pika")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "11_embed_in_asyncio.py"], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["Hello, asyncio!", "['greetings']"], done.stderr


OF_TESTS = {
    "07_pytest_fixture.py": "2 passed",
    "25_pytest_unix_socket.py": "1 passed",
    "26_bad_day.py": "5 passed",
    "27_pytest_amqp_1_0.py": "1 passed",
    "28_pytest_asyncio.py": "1 passed",
}


@pytest.mark.parametrize(
    "name",
    [name if name == "07_pytest_fixture.py" else pytest.param(name, marks=examples) for name in OF_TESTS],
)
def test_the_examples_of_tests_pass(name: str):
    if "import aio_pika" in (EXAMPLES / name).read_text():
        need_module("aio_pika")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLES / name],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
    assert OF_TESTS[name] in done.stdout


def test_every_example_says_how_to_run_it():
    for path in EXAMPLES.glob("*.py"):
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert text is not None
        command = "pytest" if path.name in OF_TESTS else "python"
        assert re.search(rf"[Rr]un `{command} examples/{path.name}`", text), path.name


# The configuration.


@pytest.fixture(scope="module")
def shop() -> Iterator[ThreadedNode]:
    config = load(
        EXAMPLES / "10_leveret.toml",
        {"SHOP_PASSWORD": "secret"},
        {"listeners": [{"address": "127.0.0.1:0"}], "http.enabled": False},
    )
    with ThreadedNode(config) as node:
        yield node


def test_the_configuration_is_accepted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert leveret(["check", str(EXAMPLES / "10_leveret.toml")], {"SHOP_PASSWORD": "secret"}) == 0
    assert "OK" in capsys.readouterr().out


def channel_of(node: ThreadedNode, user: str, password: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters(node.host, node.port, "shop", credentials))


def test_everybody_in_the_shop_may_do_just_what_they_need(shop: ThreadedNode):
    with channel_of(shop, "admin", "admin") as admin:
        admin.channel().exchange_declare("orders", "topic")
        admin.channel().exchange_declare("letters", "x-json-field")
    with channel_of(shop, "parcels", "secret") as parcels:
        channel = parcels.channel()
        channel.queue_declare("parcels.north")
        channel.queue_bind("parcels.north", "orders", "order.paid")
        with channel_of(shop, "till", "secret") as till:
            till.channel().basic_publish("orders", "order.paid", b"carrots")
            confirming = till.channel()
            confirming.confirm_delivery()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="topic 'gossip'"):
                confirming.basic_publish("orders", "gossip", b"")
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="configure access to queue 'q'"):
                till.channel().queue_declare("q")
        assert next(channel.consume("parcels.north"))[2] == b"carrots"
    limits = shop.call(lambda: shop.node.broker.virtual_host("shop").queue("parcels.north").limits)
    assert (limits.max_length, limits.max_bytes) == (10_000, 100_000_000)


def test_the_exchange_type_keeps_the_contract(shop: ThreadedNode):
    type_class = shop.call(lambda: shop.node.broker.exchange_types["x-json-field"])
    check_exchange_type(type_class, bindings=[("a=1", {}), ("b=2", {})])
    source = (EXAMPLES / "plugins/json_field.py").read_text()
    assert len(source[source.index("class ") :].splitlines()) <= 20


# The line protocol.


class Lines:
    """A client of the line protocol."""

    def __init__(self, node: ThreadedNode, login: str = "LINE guest guest /") -> None:
        self._socket = socket.create_connection((node.host, node.port))
        self._stream = self._socket.makefile("rwb", buffering=0)
        if login:
            assert self.ask(login) == "OK"

    def say(self, *lines: str | bytes) -> None:
        """Send them all in one piece."""
        octets = [line.encode() if isinstance(line, str) else line for line in lines]
        self._stream.write(b"".join(line + b"\n" for line in octets))

    def hear(self) -> str:
        """The next line; empty at the end."""
        return self._stream.readline().decode().removesuffix("\n")

    def ask(self, *lines: str | bytes) -> str:
        self.say(*lines)
        return self.hear()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedNode]:
    """A node that has found the protocol in a plugin folder."""
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copy(EXAMPLES / "09_line_protocol.py", folder)
    everything = {"/": {"configure": ".*", "write": ".*", "read": ".*"}}
    users = [
        {"name": "guest", "password": "guest", "permissions": everything},
        {"name": "reader", "password": "r", "permissions": {"/": {"read": ".*"}}},
        {"name": "watcher", "password": "w", "tags": ["administrator"], "permissions": everything},
    ]
    http = {"enabled": True, "address": "127.0.0.1:0"}
    settings = {"plugins": {"folders": [str(folder)]}, "users": users, "http": http}
    with ThreadedNode(embedded(settings)) as node:
        yield node


@pytest.fixture
def channel(node: ThreadedNode) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        yield connection.channel()


def test_lines_and_amqp_read_each_other(node: ThreadedNode, channel):
    channel.queue_declare("both")
    with Lines(node) as lines:
        assert lines.ask("WITH colour=red&n=1", "PUB - both h\xe9llo w\xf6rld") == "TAKEN 1"
        _, properties, body = channel.basic_get("both", auto_ack=True)
        assert body.decode() == "h\xe9llo w\xf6rld"
        assert properties.headers == {"colour": "red", "n": "1"}
        assert properties.content_type == "text/plain"
        headers = pika.BasicProperties(headers={"colour": "red & blue", "n": 1}, message_id="dropped")
        channel.basic_publish("", "both", b"two\nlines", headers)
        assert lines.ask("SUB both") == "OK"
        assert lines.hear() == "WITH colour=red+%26+blue&n=1"
        assert lines.hear() == "MSG 1 - both two\\nlines"
        lines.say("ACK 1")


def test_operators_see_its_connections(node: ThreadedNode, channel, capsys: pytest.CaptureFixture[str]):
    channel.queue_declare("seen")
    with Lines(node) as lines:
        assert lines.ask("SUB seen") == "OK"
        assert lines.ask("PUB - seen x") == "MSG 1 - seen x"
        (connection,) = [each for each in listed(node, capsys, "connections") if each["protocol"] == "LINE"]
        assert (connection["user"], connection["vhost"]) == ("guest", "/")
        name = connection["name"]
        (shown,) = [each for each in listed(node, capsys, "channels") if each["name"].startswith(str(name))]
        assert (shown["messages_unacknowledged"], shown["message_stats"]["publish"]) == (1, 1)
        (consumer,) = [each for each in listed(node, capsys, "consumers") if each["consumer_tag"] == "seen"]
        assert consumer["channel_details"]["connection_name"] == name


def listed(node: ThreadedNode, capsys: pytest.CaptureFixture[str], what: str) -> list[dict]:
    address = node.call(lambda: node.node.addresses[-1])
    environ = {"LEVERET_URL": f"http://{address}", "LEVERET_USER": "watcher", "LEVERET_PASSWORD": "w"}
    assert leveret(["list", what, "--json"], environ) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_not_acknowledged_goes_back(node: ThreadedNode, channel):
    channel.queue_declare("back")
    channel.basic_publish("", "back", b"x")
    with Lines(node) as lines:
        assert lines.ask("SUB back") == "OK"
        assert lines.hear() == "MSG 1 - back x"
        assert lines.ask("BACK 1") == "MSG 2 - back x"
        assert lines.ask("ACK 1") == "ERR message 1 is not waiting for an answer"
        assert lines.ask("QUIT") == "BYE as you like"
        assert lines.hear() == ""
    with Lines(node) as lines:
        assert lines.ask("SUB back") == "OK"
        assert lines.hear() == "MSG 1 - back x"
        channel.queue_delete("back")
        assert lines.hear() == "GONE back"


def test_a_subscriber_gets_no_more_than_it_can_answer(node: ThreadedNode, channel):
    channel.queue_declare("many")
    with Lines(node) as lines:
        lines.say("SUB many", *(f"PUB - many {n}" for n in range(12)))
        heard = [lines.hear() for _ in range(12)]
        assert heard == ["OK", *(f"MSG {n + 1} - many {n}" for n in range(10)), "TAKEN 12"]
        assert channel.queue_declare("many", passive=True).method.message_count == 2
        assert lines.ask("ACK 5") == "MSG 11 - many 10"


REFUSED = [
    (["LINE guest"], "ERR that line is not complete, or not UTF-8"),
    (["LINE guest", "QUEUE q"], "ERR log in first: LINE user password virtual-host"),
    (["LINE guest wrong /"], "ERR Login was refused using authentication mechanism PLAIN"),
    (["LINE guest guest elsewhere"], "ERR vhost elsewhere not found"),
    (["LINE guest guest /", "DANCE"], "ERR no such command: DANCE"),
    (["LINE guest guest /", "PUB -"], "ERR that line is not complete, or not UTF-8"),
    (["LINE guest guest /", b"QUEUE \xff"], "ERR that line is not complete, or not UTF-8"),
    (["LINE guest guest /", "ACK one"], "ERR that line is not complete, or not UTF-8"),
    (["LINE guest guest /", "SUB absent"], "ERR no queue 'absent' in vhost '/'"),
    (["LINE guest guest /", "PUB absent k text"], "ERR no exchange 'absent' in vhost '/'"),
    (["LINE reader r /", "PUB amq.topic k text"], "ERR write access to exchange 'amq.topic' in vhost '/' refused"),
    (["LINE reader r /", "QUEUE q"], "ERR configure access to queue 'q' in vhost '/' refused"),
    (["LINE guest guest /", "Q" * 70_000], "ERR no such command"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "heard"), REFUSED)
def test_what_is_refused_is_explained(said: list[str | bytes], heard: str, node: ThreadedNode):
    with Lines(node, login="") as lines:
        assert [lines.ask(line) for line in said][-1].startswith(heard)


def test_a_line_without_an_end_is_not_kept_for_ever(node: ThreadedNode):
    with Lines(node) as lines:
        lines._stream.write(b"x" * 70_000)
        assert lines.hear() == "BYE a line is too long"


def test_an_alarm_holds_publishers_back(node: ThreadedNode, channel):
    channel.queue_declare("held")
    alarms = node.node.broker.alarms
    node.call(alarms.set, "low on patience")
    with Lines(node) as lines:
        assert lines.ask("PUB - held 1") == "TAKEN 1"
        lines.say("PUB - held 2")
        node.call(lambda: None)
        assert channel.queue_declare("held", passive=True).method.message_count == 1
        node.call(alarms.clear, "low on patience")
        assert lines.hear() == "TAKEN 2"


# Pages that quote.

PAGES = (
    "embedding.md",
    "pipeline.md",
    "testing-against-faults.md",
    "testing-with-leveret.md",
    "writing-a-protocol.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_code_on_a_page_is_code_of_an_example(page: str):
    sources = [path.read_text() for path in EXAMPLES.rglob("*.py")]
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE
    )
    assert blocks
    for block in blocks:
        for piece in re.split(r"^ *\.\.\.\n", block, flags=re.MULTILINE):
            assert any(piece.strip("\n") in source for source in sources), piece
