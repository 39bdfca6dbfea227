"""What people see of it: the management API, Prometheus, the command line."""

from __future__ import annotations

import pytest

from leveret.server import cli
from tests.features.deduplication.published import identified, publish
from tests.features.deduplication.test_exchange import SWITCH
from tests.http.management.office import Office
from tests.metrics.stand import Stand
from tests.server.cli.node import Node
from tests.server.cli.test_commands import Captured, node, said

__all__ = ["node"]

OF_EXCHANGE = "/api/leveret/exchanges/%2F/x/deduplication"
OF_QUEUE = "/api/leveret/queues/%2F/q/deduplication"


@pytest.fixture
def office() -> Office:
    """An exchange and a queue with an id each, and a duplicate of it at the exchange."""
    office = Office()
    host = office.site.host
    arguments = {**SWITCH, "x-cache-size": 10, "x-cache-ttl": 60_000}
    exchange = host.declare_exchange("x", "fanout", durable=True, arguments=arguments)
    queue = host.declare_queue("q", durable=True, arguments=SWITCH)
    host.bind(exchange, queue, "")
    publish(office.site, exchange, "a", "a")
    return office


def test_the_api_tells_what_is_known(office: Office) -> None:
    known = office.get(OF_EXCHANGE)
    assert known["memory"] > 0
    assert {**known, "memory": 0} == {
        "entries": 1, "size": 10, "ttl": 60_000, "header": "x-deduplication-header", "persistence": "disk",
        "memory": 0, "duplicates": 1,
    }  # fmt: skip
    of_queue = office.get(OF_QUEUE)
    assert (of_queue["entries"], of_queue["size"], of_queue["duplicates"]) == (1, None, 0)
    exchange, queue = office.get("/api/exchanges/%2F/x"), office.get("/api/queues/%2F/q")
    assert exchange["deduplication"] == known
    assert queue["deduplication"] == of_queue
    assert (exchange["message_stats"]["dedup"], queue["message_stats"]["dedup"]) == (1, 0)
    assert exchange["message_stats"]["dedup_details"] == {"rate": 0.0}
    assert (exchange["message_stats"]["publish_in"], exchange["message_stats"]["publish_out"]) == (2, 1)


def test_what_drops_no_duplicates_has_none_of_it(office: Office) -> None:
    office.queue("plain")
    for path in ("queues/%2F/plain", "queues/%2F/none", "exchanges/%2F/amq.direct", "streams/%2F/q"):
        assert office.ask("GET", f"/api/leveret/{path}/deduplication").status == 404
        assert office.delete(f"/api/leveret/{path}/deduplication").status == 404
    plain = office.get("/api/queues/%2F/plain")
    assert "deduplication" not in plain
    assert "dedup" not in plain["message_stats"]


def test_the_api_forgets_and_not_for_everybody(office: Office) -> None:
    for path in (OF_EXCHANGE, OF_QUEUE):
        assert office.ask("DELETE", path, user="clerk").status in (401, 403)
        assert office.ask("DELETE", path, user="watcher").status in (401, 403)
    assert office.get(OF_EXCHANGE)["entries"] == 1
    for path in (OF_EXCHANGE, OF_QUEUE):
        assert office.delete(path).json == {"forgotten": 1}
    assert office.get(OF_EXCHANGE)["entries"] == office.get(OF_QUEUE)["entries"] == 0
    publish(office.site, office.site.host.exchange("x"), "a")
    assert office.bodies("q") == "a a"


def test_prometheus_gets_counts_and_sums_that_do_not_fall() -> None:
    stand = Stand()
    exchange = stand.host.declare_exchange("x", "fanout", arguments=SWITCH)
    queue = stand.queue("q", x_message_deduplication=True)
    stand.host.bind(exchange, queue, "")
    publish(stand, exchange, "a", "a", "a")
    stand.broker.publish(stand.host.default_exchange, identified("a", key="q"))
    for _ in range(2):
        found = stand.scrape()
        assert found["leveret_exchange_messages_deduplicated_total", ()] == 2
        assert found["leveret_queue_messages_deduplicated_total", ()] == 1
        if "q" in stand.host.queues:
            assert found["leveret_exchange_deduplication_ids", ()] == 1
            assert found["leveret_queue_deduplication_ids", ()] == 1
            stand.host.delete_queue(queue)
            stand.host.delete_exchange("x")
            stand.settle()


def test_the_command_line_forgets_ids(node: Node, capsys: Captured) -> None:
    for kind in ("exchange", "queue"):
        arguments = ("--argument", "x-message-deduplication=true")
        said(node, capsys, "declare", kind, "d", *arguments)
        assert f"forgot 0 ids of {kind} 'd'" in said(node, capsys, "forget-ids", kind, "d", "--yes")
        assert node.run("forget-ids", kind, "nope", "--yes") == cli.REFUSED
