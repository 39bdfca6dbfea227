"""A node whose store is in PostgreSQL, as its clients see it: across restarts, and while the database is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from leveret.config.config import Config
from leveret.durable.journal import STALLED
from leveret.durable.store.folder import BadFolder
from leveret.durable.store.postgres import writer
from leveret.durable.store.postgres.session import BadDatabase, Database
from leveret.server.node.threaded import ThreadedNode, embedded
from tests.harness.postgres import Pair
from tests.interop.conftest import wait_until

pytestmark = pytest.mark.system

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    return configured(database, tmp_path / "data")


def configured(database: Database, folder: Path) -> Config:
    postgres = {"dsn": database.dsn, "schema": database.schema}
    store = {"engine": "postgres", "postgres": postgres}
    return embedded({"store": store, "node": {"data_dir": str(folder)}})


@pytest.fixture
def node(config: Config) -> Iterator[ThreadedNode]:
    with ThreadedNode(config) as running:
        yield running


def connected(node: ThreadedNode) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(node.url))


def test_messages_and_streams_are_there_after_a_restart(config: Config):
    with ThreadedNode(config) as node, connected(node) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        for number in range(20):
            channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
            channel.basic_publish("", "s", b"%d" % number, PERSISTENT)
    with ThreadedNode(config) as node, connected(node) as connection:
        channel = connection.channel()
        assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(20)] == [b"%d" % n for n in range(20)]
        channel.basic_qos(prefetch_count=20)
        found = []
        for method, _, body in channel.consume("s", arguments={"x-stream-offset": "first"}):
            found.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(found) == 20:
                break
        assert found == [b"%d" % number for number in range(20)]


def test_two_nodes_do_not_share_a_database(node: ThreadedNode, database: Database, tmp_path: Path):
    with pytest.raises(BadDatabase, match="is served by the node 'leveret'"):
        ThreadedNode(configured(database, tmp_path / "other")).start()


def test_a_folder_with_messages_of_the_other_engine_is_not_passed_over(database: Database, tmp_path: Path):
    with ThreadedNode(embedded({"node": {"data_dir": str(tmp_path)}})):
        pass
    with pytest.raises(BadFolder, match="leveret store copy"):
        ThreadedNode(configured(database, tmp_path)).start()


def test_while_the_database_hangs_publishers_wait_consumers_go_on_and_nobody_is_disconnected(
    node: ThreadedNode, pair_alone: Pair, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "SLOW_S", 0.0)
    with connected(node) as consuming, connected(node) as publishing:
        channel, publisher = consuming.channel(), publishing.channel()
        channel.queue_declare("q", durable=True)
        publisher.confirm_delivery()
        for number in range(5):
            publisher.basic_publish("", "q", b"%d" % number, PERSISTENT)
        pair_alone.primary.pause()
        try:
            confirmed = threading.Event()

            def publish() -> None:
                publisher.basic_publish("", "q", b"late", PERSISTENT)
                confirmed.set()

            thread = threading.Thread(target=publish)
            thread.start()
            wait_until(
                lambda: node.call(lambda: node.node.broker.alarms.reason) == STALLED, "the alarm is raised"
            )
            assert node.call(lambda: node.node.broker.is_stalled)
            for number in range(5):
                method, _, body = channel.basic_get("q")
                assert body == b"%d" % number
                channel.basic_ack(method.delivery_tag)
            assert not confirmed.is_set()
        finally:
            pair_alone.primary.go_on()
        thread.join(60)
        assert confirmed.is_set()
        assert not node.call(lambda: node.node.broker.is_stalled)
        assert channel.basic_get("q", auto_ack=True)[2] == b"late"
        assert consuming.is_open
        assert publishing.is_open
