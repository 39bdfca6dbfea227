"""The page on streams tells the truth: its program runs, with pika, against a node."""

from __future__ import annotations

import re
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.conftest import RunningNode

pytestmark = pytest.mark.interop

PAGE = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()


def test_the_program_on_the_page_reads_what_it_wrote(node: RunningNode, capsys: pytest.CaptureFixture[str]):
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    exec(program.replace("localhost:5672", f"127.0.0.1:{node.port}"), {})
    assert capsys.readouterr().out.splitlines() == ["0 event 0", "1 event 1", "2 event 2"]
    assert node.ready("events") == 3


def published(channel: BlockingChannel, *values: str | None) -> None:
    channel.confirm_delivery()
    for number, value in enumerate(values):
        headers = None if value is None else {"x-stream-filter-value": value}
        channel.basic_publish("", "s", b"%d" % number, pika.BasicProperties(headers=headers))


def chosen(channel: BlockingChannel, count: int, **arguments: object) -> list[bytes]:
    """The first messages that a consumer with these arguments gets."""
    channel.basic_qos(prefetch_count=2)
    asked = {
        "x-stream-offset": "first",
        **{name.replace("_", "-"): value for name, value in arguments.items()},
    }
    found: list[bytes] = []
    for method, _, body in channel.consume("s", arguments=asked):
        found.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_consumers_choose_messages_by_their_filter_values(tmp_path: Path):
    """What is on disk only, after a restart, and what came lately."""
    toml = f"node.data_dir = '{tmp_path}'"
    with RunningNode(toml) as node, pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        arguments = {"x-queue-type": "stream", "x-stream-filter-size-bytes": 32}
        channel.queue_declare("s", durable=True, arguments=arguments)
        published(channel, *["emea", "apac", None, "emea"] * 10)
    with RunningNode(toml) as node, pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        published(channel, "amer", "emea")
        emea = [b"%d" % n for n in range(40) if n % 4 in (0, 3)] + [b"1"]
        assert chosen(channel, 21, x_stream_filter="emea") == emea
        assert chosen(channel, 1, x_stream_filter=["amer", "nobody"]) == [b"0"]
        rest = [b"%d" % n for n in range(40) if n % 4 in (1, 2)]
        assert chosen(channel, 20, x_stream_filter="apac", x_stream_match_unfiltered=True) == rest
