"""An exchange type is replaced between two messages: none is lost, each is confirmed, and the type switches at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.server.plugin_loader import Plugins
from tests.amqp091.peer import ClientChannel, channel_of
from tests.harness.bench import ClientBench

ONE_KEY = """\
from leveret.exchanges.exchange_type import ExchangeType

class One(ExchangeType):
    name = "x-one"

    def route(self, message):
        return [binding.destination for binding in self.exchange.bindings if binding.key == "{key}"]
"""
BROKEN = "class One(\n"
RAISING = ONE_KEY.format(key="a").replace("return", "raise ValueError('not today')\n        return")
BATCH = 50


class Busy:
    """A publisher that does not stop, and a plugin file that changes under it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "one.py"
        self.file.write_text(ONE_KEY.format(key="a"))
        self.plugins = Plugins([folder], entry_points=lambda group: ())
        self.plugins.load()
        self.bench = ClientBench(exchange_types=self.plugins.exchange_types)
        self.channel: ClientChannel = channel_of(self.bench)
        self.channel.exchange("spare", "fanout")
        self.channel.exchange("x", "x-one", arguments={"alternate-exchange": "spare"})
        for name in ("a", "b", "spare"):
            self.channel.declare(name)
        for name in ("a", "b"):
            self.channel.bind(name, "x", name)
        self.channel.bind("spare", "spare")
        self.channel.confirms()
        self.published = 0

    def publish(self, settle: bool) -> None:
        for _ in range(BATCH):
            self.channel.publish("x", "k", str(self.published).encode(), settle=False)
            self.published += 1
        if settle:
            self.bench.settle()

    def change(self, content: str) -> bool:
        """True: it was refused."""
        self.file.write_text(content)
        return bool(self.plugins.reload(self.bench.host.exchanges.values()).refused)

    def confirmed(self) -> int:
        """The last of the messages of which all have been confirmed; a nack is an error."""
        confirms = [each for each in self.channel.all() if isinstance(each, m.BasicAck)]
        assert all(each.multiple for each in confirms)
        return confirms[-1].delivery_tag

    def waiting(self) -> dict[str, list[int]]:
        queues = (self.bench.queue(name) for name in ("a", "b", "spare"))
        return {q.name: [int(delivery.message.body) for delivery in q.waiting()] for q in queues}


def numbers(*batches: int) -> list[int]:
    return [number for batch in batches for number in range(batch * BATCH, (batch + 1) * BATCH)]


@pytest.mark.parametrize("settle", [True, False], ids=["between batches", "in the middle of a batch"])
def test_a_type_is_reloaded_under_load(tmp_path: Path, settle: bool) -> None:
    busy = Busy(tmp_path)
    busy.publish(settle)
    assert not busy.change(ONE_KEY.format(key="b"))
    busy.publish(settle)
    assert busy.change(BROKEN)  # the old one stays
    busy.publish(settle)
    assert not busy.change(ONE_KEY.format(key="a"))
    busy.publish(settle=True)
    assert busy.confirmed() == busy.published
    assert busy.waiting() == {"a": numbers(0, 3), "b": numbers(1, 2), "spare": []}


def test_a_version_that_raises_sends_everything_to_the_alternate_until_it_is_mended(tmp_path: Path) -> None:
    busy = Busy(tmp_path)
    for content in (RAISING, ONE_KEY.format(key="b")):
        busy.publish(settle=False)
        assert not busy.change(content)
    busy.publish(settle=True)
    assert busy.confirmed() == busy.published
    assert busy.waiting() == {"a": numbers(0), "b": numbers(2), "spare": numbers(1)}


def test_what_was_published_in_a_transaction_goes_where_the_type_of_then_said(tmp_path: Path) -> None:
    busy = Busy(tmp_path)
    busy.channel = channel_of(busy.bench)
    busy.channel.does(m.TxSelect())
    busy.publish(settle=True)
    assert not busy.change(ONE_KEY.format(key="b"))
    busy.publish(settle=True)
    busy.channel.does(m.TxCommit())
    assert busy.waiting() == {"a": numbers(0), "b": numbers(1), "spare": []}


def test_a_file_that_is_deleted_leaves_its_exchanges_at_work(tmp_path: Path) -> None:
    busy = Busy(tmp_path)
    busy.publish(settle=False)
    busy.file.unlink()
    assert busy.plugins.reload(busy.bench.host.exchanges.values()).removed == ("x-one",)
    busy.publish(settle=True)
    assert busy.confirmed() == busy.published
    assert busy.waiting()["a"] == numbers(0, 1)
