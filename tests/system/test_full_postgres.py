"""A node whose database is full: consumers drain its queues, and nothing that they have settled comes back."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pika
import pytest

from leveret.config.config import Config
from leveret.durable.journal import LOW_ON_DISK
from leveret.durable.store.contract import StoreError
from leveret.durable.store.postgres import reserve, writer
from leveret.durable.store.postgres.reserve import DatabaseReserve
from leveret.durable.store.postgres.session import Database, Session
from leveret.durable.store.postgres.shard import Shard
from leveret.server.node.threaded import ThreadedNode, embedded
from tests.harness.postgres import SmallDisk, small_database, small_disk
from tests.interop.conftest import wait_until

__all__ = ["small_database", "small_disk"]

pytestmark = pytest.mark.system

PERSISTENT = pika.BasicProperties(delivery_mode=2)
BODY = b"x" * 20_000
WAITING = 400
PARTS = 3


def configured(database: Database, folder: Path) -> Config:
    postgres = {"dsn": database.dsn, "schema": database.schema, "require_replicated": False}
    return embedded(
        {"store": {"engine": "postgres", "postgres": postgres}, "node": {"data_dir": str(folder)}}
    )


def parts_of(database: Database) -> int:
    with closing(Session(database, "test")) as session:
        return len(session.rows(reserve.FOUND, database.schema))


def has_written_all(node: ThreadedNode) -> bool:
    def is_idle() -> bool:
        journal = node.node.broker.journal
        assert journal is not None
        return not journal.dirty and journal.durable == journal.open - 1

    return node.call(is_idle)


def has_come(node: ThreadedNode, count: int) -> bool:
    return node.call(
        lambda: node.node.broker.virtual_hosts["/"].queues["q"].ready
    ) == count and has_written_all(node)


def alarm_of(node: ThreadedNode) -> str | None:
    return node.call(lambda: node.node.broker.alarms.reason)


def test_a_full_database_is_drained_and_what_was_acknowledged_does_not_come_back_after_a_takeover(
    small_database: Database, small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "BEAT_S", 0.05)
    monkeypatch.setattr(writer, "DatabaseReserve", partial(DatabaseReserve, parts=PARTS, part_octets=2 << 20))
    monkeypatch.setattr(reserve, "AGAIN_S", 0.05)
    first = ThreadedNode(configured(small_database, tmp_path / "first"))
    first.start()
    try:
        wait_until(lambda: parts_of(small_database) == PARTS, "the reserve is there")
        with closing(pika.BlockingConnection(pika.URLParameters(first.url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            for _ in range(WAITING):
                channel.basic_publish("", "q", BODY, PERSISTENT)
            small_disk.fill()
            late = connection.channel()
            on_their_way = 0
            while alarm_of(first) != LOW_ON_DISK:  # rows that were deleted meanwhile may have left some room
                late.basic_publish("", "q", BODY * 3, PERSISTENT)
                on_their_way += 1
                wait_until(partial(has_come, first, WAITING + on_their_way), "the message is written")
        with closing(pika.BlockingConnection(pika.URLParameters(first.url))) as connection:
            channel = connection.channel()
            for _ in range(WAITING):
                method, _, body = channel.basic_get("q")
                assert body == BODY
                channel.basic_ack(method.delivery_tag)
            wait_until(lambda: has_written_all(first), "the acknowledgements are written")
            assert not first.call(lambda: first.node.broker.is_stalled)
        with closing(Shard(small_database)) as shard:
            epoch = shard.claim(1, "another", None)
            assert epoch == 2
            shard.release(2)
        with (
            ThreadedNode(configured(small_database, tmp_path / "second")) as second,
            closing(pika.BlockingConnection(pika.URLParameters(second.url))) as connection,
        ):
            channel = connection.channel()
            assert [channel.basic_get("q")[2] for _ in range(on_their_way + 1)] == [
                BODY * 3
            ] * on_their_way + [None]
            small_disk.give_back()
            wait_until(lambda: alarm_of(second) is None, "publishers go on")
    finally:
        with suppress(StoreError):
            first.stop()
