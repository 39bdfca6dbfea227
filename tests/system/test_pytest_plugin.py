"""The fixture `leveret_broker`: what it gives, what it says when an assertion fails, and what it leaves behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pika
import pika.exceptions
import pytest

from leveret.server.node.listener import amqp_url
from leveret.server.node.threaded import ThreadedNode
from leveret.testing.leveret_broker import LeveretBroker, PublishedMessage, fresh_broker

pytestmark = pytest.mark.system
pytest_plugins = ["pytester"]

Channel = pika.adapters.blocking_connection.BlockingChannel


@pytest.fixture
def channel(leveret_broker: LeveretBroker) -> Iterator[Channel]:
    with pika.BlockingConnection(leveret_broker.parameters) as connection:
        yield connection.channel()


def test_what_is_published_is_seen_at_once(leveret_broker: LeveretBroker, channel: Channel):
    """Without confirms and without waiting: what is in the socket counts."""
    channel.exchange_declare("orders", "topic")
    assert leveret_broker.published("orders") == []
    properties = pika.BasicProperties(headers={"colour": "red"}, message_id="m1")
    channel.basic_publish("orders", "order.created", b'{"id": 1}', properties)
    channel.basic_publish("orders", "order.paid", b"2")
    created, paid = leveret_broker.published("orders")
    assert created == PublishedMessage(
        "orders", "order.created", b'{"id": 1}', {"colour": "red"}, created.properties
    )
    assert (created.json(), created.properties.message_id) == ({"id": 1}, "m1")
    assert (paid.key, paid.text, paid.headers) == ("order.paid", "2", {})


def test_the_default_exchange_can_be_asked_too(leveret_broker: LeveretBroker, channel: Channel):
    channel.basic_publish("", "nowhere", b"lost")
    assert [message.body for message in leveret_broker.published("")] == [b"lost"]


def test_each_message_is_published_once_however_it_travels(leveret_broker: LeveretBroker, channel: Channel):
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    channel.exchange_declare("next", "fanout")
    channel.exchange_bind("next", "later")
    channel.queue_declare("q")
    channel.queue_bind("q", "next")
    channel.basic_publish("later", "", b"x", pika.BasicProperties(headers={"x-delay": 1}))
    assert [message.body for message in leveret_broker.queue("q", count=1)] == [b"x"]
    assert len(leveret_broker.published("later")) == 1
    assert leveret_broker.published("next") == []


def test_transactions_count_when_they_are_committed(leveret_broker: LeveretBroker, channel: Channel):
    channel.tx_select()
    channel.basic_publish("amq.fanout", "", b"x")
    assert leveret_broker.published("amq.fanout") == []
    channel.tx_commit()
    assert len(leveret_broker.published("amq.fanout")) == 1


def test_dead_letters_are_published_to_their_exchange(leveret_broker: LeveretBroker, channel: Channel):
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "amq.fanout", "x-max-length": 0})
    channel.basic_publish("", "q", b"too many")
    [dead] = leveret_broker.published("amq.fanout")
    assert dead.body == b"too many"


def test_queues_show_what_waits_and_what_is_not_acknowledged(leveret_broker: LeveretBroker, channel: Channel):
    channel.queue_declare("q")
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "q", body)
    method, _, _ = channel.basic_get("q")
    assert [message.body for message in leveret_broker.queue("q")] == [b"2", b"3"]
    assert (leveret_broker.unacked("q"), leveret_broker.consumers("q")) == (1, 0)
    channel.basic_ack(method.delivery_tag)
    assert leveret_broker.unacked("q") == 0


def test_waiting_ends_when_it_has_come_true(leveret_broker: LeveretBroker):
    """Somebody else declares, publishes and consumes meanwhile."""

    def work() -> None:
        with pika.BlockingConnection(leveret_broker.parameters) as connection:
            channel = connection.channel()
            channel.exchange_declare("x", "fanout")
            channel.queue_declare("q")
            channel.queue_bind("q", "x")
            for body in (b"1", b"2", b"3"):
                channel.basic_publish("x", "", body)
            leveret_broker.queue("q", count=3)
            for method, _, _ in channel.consume("q"):
                channel.basic_ack(method.delivery_tag)
                if method.delivery_tag == 3:
                    break
            done.wait(60)

    done = threading.Event()
    worker = threading.Thread(target=work)
    worker.start()
    assert [m.body for m in leveret_broker.published("x", count=3, timeout_s=60)] == [b"1", b"2", b"3"]
    assert leveret_broker.consumers("q", count=1, timeout_s=60) == 1
    assert leveret_broker.queue("q", count=0, timeout_s=60) == []
    assert leveret_broker.unacked("q", count=0, timeout_s=60) == 0
    done.set()
    leveret_broker.wait_until(lambda host: host.connections == 0, timeout_s=60)
    worker.join()


def test_what_a_condition_raises_comes_out(leveret_broker: LeveretBroker):
    with pytest.raises(KeyError):
        leveret_broker.wait_until(lambda host: host.queues["q"])


def explanation(question: Callable[[], object]) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        question()
    return str(caught.value).splitlines()


def test_a_failure_explains_itself(leveret_broker: LeveretBroker, channel: Channel):
    channel.exchange_declare("orders", "topic")
    channel.queue_declare("q")
    headers = pika.BasicProperties(headers={"colour": "red"})
    channel.basic_publish("orders", "order.created", b"1", headers)
    channel.basic_publish("", "q", b"x" * 300)
    overview = [
        "exchanges:",
        "  exchange 'orders': 1 published",
        "  the default exchange: 1 published",
        "queues:",
        "  queue 'q': 1 waiting, 0 not acknowledged, 0 consumers, 1 arrived, 0 acknowledged",
    ]
    assert explanation(lambda: leveret_broker.published("orders", count=2, timeout_s=0)) == [
        "2 messages expected published to exchange 'orders' within 0 s, found 1",
        "  1. key 'order.created', body b'1', headers {'colour': 'red'}",
        *overview,
    ]
    assert explanation(lambda: leveret_broker.published("orders", count=0))[0] == (
        "0 messages expected published to exchange 'orders' within 5 s, found 1"
    )
    assert explanation(lambda: leveret_broker.published("order")) == [
        "messages expected published to exchange 'order', there is no exchange 'order'",
        *overview,
    ]
    assert explanation(lambda: leveret_broker.queue("q", count=2, timeout_s=0))[:2] == [
        "2 messages expected waiting in queue 'q' within 0 s, found 1",
        f"  1. key 'q', body {b'x' * 200!r}...",
    ]
    assert explanation(lambda: leveret_broker.queue("qq"))[0] == (
        "messages expected waiting in queue 'qq', there is no queue 'qq'"
    )
    assert explanation(lambda: leveret_broker.unacked("q", count=1, timeout_s=0))[0] == (
        "1 not acknowledged yet, of queue 'q' expected within 0 s, found 0"
    )
    assert explanation(lambda: leveret_broker.consumers("qq"))[0] == "there is no queue 'qq'"
    assert explanation(lambda: leveret_broker.wait_until(lambda host: False, 0, "the impossible")) == [
        "the impossible did not come true within 0 s",
        *overview,
    ]


def test_an_explanation_is_not_endless(leveret_broker: LeveretBroker, channel: Channel):
    for number in range(30):
        channel.basic_publish("amq.fanout", str(number), b"x")
    lines = explanation(lambda: leveret_broker.published("amq.fanout", count=1))
    assert len(lines) < 30
    assert "  and 10 more" in lines


def test_brokers_on_one_node_do_not_see_each_other(leveret_node: ThreadedNode):
    with fresh_broker(leveret_node) as one, fresh_broker(leveret_node) as other:
        with pika.BlockingConnection(one.parameters) as connection:
            connection.channel().queue_declare("q")
            connection.channel().basic_publish("amq.fanout", "", b"x")
        assert one.queue("q") == []
        assert other.published("amq.fanout") == []
        elsewhere = amqp_url(f"{one.host}:{one.port}", one.user, one.password, other.virtual_host)
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
            pika.BlockingConnection(pika.URLParameters(elsewhere))


def test_nothing_is_left_of_a_broker_and_clients_that_stayed_are_sent_away(leveret_node: ThreadedNode):
    with fresh_broker(leveret_node) as broker:
        connection = pika.BlockingConnection(broker.parameters)
        connection.channel().basic_publish("amq.fanout", "", b"x")
        assert len(broker.published("amq.fanout")) == 1
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="is deleted"):
        connection.process_data_events()
    held = leveret_node.node.broker
    assert broker.virtual_host not in leveret_node.call(lambda: list(held.virtual_hosts))
    assert leveret_node.call(lambda: held.access.user(broker.user)) is None
    assert leveret_node.call(lambda: [host for host, _ in broker._notes.published]) == []
    assert leveret_node.call(lambda: list(held.publishers)) == []


def test_a_node_without_such_a_broker_keeps_its_exchange_types():
    with ThreadedNode() as node:
        types = node.call(lambda: node.node.broker.exchange_types)
        assert {type_class.__module__ for type_class in types.values()} >= {"leveret.exchanges.direct"}
        assert not any("keep" in vars(types[name]) for name in ("direct", "fanout", "topic", "headers"))


# As a plugin.

USES_IT = """
    import pika

    def test_one(leveret_broker):
        with pika.BlockingConnection(leveret_broker.parameters) as connection:
            connection.channel().queue_declare("q")
        assert leveret_broker.queue("q") == []

    def test_other(leveret_broker):
        leveret_broker.published("orders", count=1, timeout_s=0)
"""


def test_a_failing_test_shows_its_own_line_and_the_reason(pytester: pytest.Pytester):
    pytester.makepyfile(USES_IT)
    result = pytester.runpytest_subprocess("-W", "error")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            '>*leveret_broker.published("orders", count=1, timeout_s=0)',
            "E*1 message expected published to exchange 'orders' within 0 s, there is no exchange 'orders'",
            "E*none declared, and nothing published",
        ]
    )
    result.stdout.no_fnmatch_line("*leveret_broker.py*")


CONFIG = """
    node = { name = "of-the-file", data_dir = "not-here" }
    listeners = [{ address = "127.0.0.1:5672" }]
    limits = { queues_max = 7 }
"""
USES_CONFIG = """
    def test_config(leveret_node):
        config = leveret_node.config
        assert (config.node.name, config.limits.queues_max) == ("of-the-file", 7)
        assert config.node.data_dir is None
        assert not config.http.enabled
        assert leveret_node.port != 5672
"""


@pytest.mark.parametrize("by", ["option", "ini"])
def test_the_node_can_be_configured_by_a_file(by: str, pytester: pytest.Pytester):
    pytester.makefile(".toml", broker=CONFIG)
    pytester.makepyfile(USES_CONFIG)
    if by == "ini":
        pytester.makeini("[pytest]\nleveret_config = broker.toml")
    result = pytester.runpytest_inprocess(*(["--leveret-config", "broker.toml"] if by == "option" else []))
    result.assert_outcomes(passed=1)


def test_a_wrong_configuration_is_an_error_in_its_own_words(pytester: pytest.Pytester):
    pytester.makefile(".toml", broker="limits = { queues_max = 'many' }")
    pytester.makepyfile(USES_CONFIG)
    result = pytester.runpytest_inprocess("--leveret-config", "broker.toml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E*limits.queues_max*"])


IMPORTING_TRIO = ("hypothesispytest", "anyio")  # plug-ins of others, which do


def test_who_does_not_use_it_does_not_pay_for_it(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        import sys

        def test_lean():
            assert not {"trio", "leveret.server.node.node", "leveret.config.config"} & set(sys.modules)
        """
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(f"-pno:{each}" for each in IMPORTING_TRIO)],
        check=False,
        cwd=pytester.path,
    )
    assert done.returncode == 0
