"""The client against a server on a real socket: answers, troubles that pass, and troubles that do not."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leveret.durable.store.block import header
from leveret.pipeline.broker_client import Answer, hint_at
from leveret.pipeline.client import Client, Lease, Listed
from leveret.pipeline.errors import (
    Ahead,
    BadOption,
    Expired,
    Fenced,
    Missing,
    NoStream,
    PipelineError,
    Refused,
    Remade,
    Unreachable,
)
from leveret.pipeline.options import Use, read_options
from tests.pipeline.bulk import FakeBroker, message

UNUSED = "http://127.0.0.1:1"  # nobody listens there


class Time:
    """Passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, pause: float) -> None:
        self.pauses.append(pause)
        self.now += pause


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def client(broker: FakeBroker, time: Time) -> Iterator[Client]:
    client = client_of(broker.url, time)
    yield client
    client.close()


def client_of(endpoints: str, time: Time, password: str = "guest", **given: str) -> Client:
    options = read_options({"endpoints": endpoints, "subscribe": "x", **given}, Use.BATCH)
    return Client(options, password, time.sleep, lambda: time.now)


def test_a_stream_and_the_partitions_of_a_super_stream_are_found(broker: FakeBroker, client: Client):
    broker.stream("a b/ü").fill(3)
    broker.super_stream("orders", 2)[1].fill(5)
    (stream,) = client.partitions("a b/ü")
    assert (stream.name, stream.incarnation, stream.first, stream.next, stream.messages, stream.octets) == (
        "a b/ü",
        "a b/ü#1",
        0,
        3,
        3,
        3,
    )
    assert [(each.name, each.next) for each in client.partitions("orders")] == [
        ("orders-0", 0),
        ("orders-1", 5),
    ]
    assert client.listed() == [
        Listed("a b/ü", None),
        Listed("orders", ("orders-0", "orders-1")),
        Listed("orders-0", None),
        Listed("orders-1", None),
    ]


def test_blocks_come_as_they_are_over_one_connection(broker: FakeBroker, client: Client):
    stream = broker.stream("orders")
    stream.fill(10, commit=5)
    fetched = client.blocks("orders", stream.incarnation, 7, 9)
    assert (fetched.octets, fetched.next) == (stream.blocks[1], 10)
    assert header(client.blocks("orders", stream.incarnation, 0, 9).octets).first == 0
    assert client.offset_since("orders", 0) == 0
    assert broker.connections == 1


def test_the_virtual_host_is_part_of_the_question(broker: FakeBroker, time: Time):
    client = client_of(broker.url, time, vhost="a/b")
    client.listed()
    client.close()
    assert broker.asked == ["/api/leveret/streams/a%2Fb"]


def test_a_lease_is_opened_used_and_fenced(broker: FakeBroker, time: Time):
    queue = broker.queue("a b/ü")
    queue.fill(10)
    client = client_of(broker.url, time, readerName="me/%")
    lease, fence = client.open_lease("a b/ü")
    assert lease == Lease("a b/ü", "a b/ü!1", 0, 0, 0, 0, 10)
    assert client.reserve("a b/ü", fence, 0, 6, 1 << 20) == Lease("a b/ü", "a b/ü!1", 0, 6, 6, 6, 4)
    fetched = client.leased_blocks("a b/ü", fence, lease.incarnation, 2, 4)
    assert (fetched.octets, fetched.next) == (queue.leases["me/%"].blocks[0], 6)
    assert client.settle("a b/ü", fence, 5) == Lease("a b/ü", "a b/ü!1", 5, 6, 1, 1, 4)
    with pytest.raises(Expired, match="queue 'a b/ü' in virtual host '/' begins at offset 5 now"):
        client.leased_blocks("a b/ü", fence, lease.incarnation, 2, 4)
    with pytest.raises(Remade, match=r"queue 'a b/ü' .* was deleted, and made anew"):
        client.leased_blocks("a b/ü", fence, "other", 5, 6)
    with pytest.raises(Ahead):
        client.settle("a b/ü", fence, 7)
    _, other = client.open_lease("a b/ü")
    with pytest.raises(Fenced, match=r"reads queue 'a b/ü' .* as 'me/%' now \(option readerName\)"):
        client.settle("a b/ü", fence, 5)
    assert client.settle("a b/ü", other, 5).first == 5
    client.close()
    assert broker.connections == 1


def test_what_is_asked_of_a_lease_twice_is_done_once(broker: FakeBroker, time: Time):
    queue = broker.queue("jobs")
    queue.fill(10)
    client = client_of(broker.url, time, readerName="me")
    broker.faults = ["cut"]  # done, and the answer is lost
    _, fence = client.open_lease("jobs")
    assert fence == 2
    broker.faults = ["cut", 503]
    assert client.reserve("jobs", fence, 0, 6, 1 << 20).next == 6
    client.close()
    assert len(queue.ready) == 4


def test_a_queue_is_no_stream(broker: FakeBroker, client: Client):
    broker.queue("jobs")
    with pytest.raises(NoStream, match="queue 'jobs' in vhost '/' is no stream"):
        client.partitions("jobs")


@pytest.mark.parametrize("fault", [409, 400])
def test_a_queue_that_cannot_be_read_is_so_in_the_words_of_the_broker(
    broker: FakeBroker, time: Time, fault: int
):
    client = client_of(broker.url, time, readerName="me")
    broker.faults = [fault]
    with pytest.raises(Refused, match=f"answers {fault} for queue 'jobs' in virtual host '/': a fault"):
        client.open_lease("jobs")
    client.close()


@pytest.mark.parametrize("fault", [503, 502, 504, 429, 408, "hang up", "cut"])
def test_a_trouble_that_may_pass_is_waited_for(
    broker: FakeBroker, client: Client, time: Time, fault: int | str
):
    stream = broker.stream("orders")
    stream.fill(100)
    broker.faults = [fault, fault]
    assert client.blocks("orders", stream.incarnation, 0, 100).octets == stream.blocks[0]
    assert time.pauses == [0.1, 0.2]


def test_a_node_that_was_restarted_is_asked_over_a_new_connection(broker: FakeBroker, client: Client):
    broker.stream("orders")
    client.partitions("orders")
    broker.faults = ["hang up"]
    assert client.partitions("orders")
    assert broker.connections == 2


def test_the_next_endpoint_is_asked_when_one_does_not_answer(broker: FakeBroker, time: Time):
    broker.stream("orders")
    client = client_of(f"{UNUSED},{broker.url}", time)
    assert client.partitions("orders")
    assert client.partitions("orders")
    client.close()
    assert len(time.pauses) == 1


def test_a_broker_that_stays_away_is_given_up(time: Time):
    client = client_of(UNUSED, time, retrySeconds="20")
    with pytest.raises(Unreachable, match=r"no broker answers at http://127.0.0.1:1 \(option endpoints\)"):
        client.listed()
    assert 10 < sum(time.pauses) <= 20
    assert max(time.pauses) <= 5


def test_without_patience_nothing_is_asked_twice(broker: FakeBroker, time: Time):
    broker.faults = [503]
    with pytest.raises(Unreachable, match="503: a fault"):
        client_of(broker.url, time, retrySeconds="0").listed()
    assert (time.pauses, len(broker.asked)) == ([], 1)


@contextmanager
def greeting(octets: bytes) -> Iterator[str]:
    """A server that says this to whoever comes, and hangs up. Its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(octets)

        thread = threading.Thread(target=serve)
        thread.start()
        yield "http://{}:{}".format(*server.getsockname())
        thread.join()


@pytest.mark.parametrize(
    "octets",
    [
        b"AMQP\x00\x00\x09\x01",
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 24\r\n\r\nThis port speaks AMQP.\r\n",
    ],
)
def test_a_port_that_speaks_amqp_is_named_and_not_asked_again(time: Time, octets: bytes):
    with greeting(octets) as url:
        with pytest.raises(Unreachable) as caught:
            client_of(url, time).partitions("orders")
        address = url.removeprefix("http://")
        assert str(caught.value) == (
            f"{address} speaks AMQP, not HTTP: the endpoint is the management address, such as"
            " http://127.0.0.1:15672 (option endpoints)"
        )
    assert time.pauses == []


def test_another_bad_request_is_no_queue(broker: FakeBroker, client: Client):
    broker.faults = [400]
    with pytest.raises(Refused, match="answers 400 for stream 'orders'") as caught:
        client.partitions("orders")
    assert not isinstance(caught.value, NoStream)


def test_a_wrong_password_names_the_options_and_not_the_password(broker: FakeBroker, time: Time):
    client = client_of(broker.url, time, password="s3cret")
    with pytest.raises(
        Refused, match="does not let 'guest' in: see the options username and passwordFile"
    ) as caught:
        client.listed()
    client.close()
    assert "s3cret" not in str(caught.value) + repr(client)
    assert len(broker.asked) == 1


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (403, Refused, "user 'guest' may not read stream 'orders' in virtual host '/': a fault"),
        (404, Missing, "there is no stream 'orders' in virtual host '/'"),
        (500, Refused, "answers 500 for stream 'orders'"),
        (301, Refused, "answers 301"),
    ],
)
def test_a_refusal_says_why_and_is_not_repeated(
    broker: FakeBroker, client: Client, status: int, kind: type[Refused], said: str
):
    broker.faults = [status]
    with pytest.raises(kind, match=said):
        client.partitions("orders")
    assert len(broker.asked) == 1


def test_what_is_gone_is_told_apart(broker: FakeBroker, client: Client):
    stream = broker.stream("orders")
    stream.fill(300)
    stream.drop(200)
    with pytest.raises(Expired, match="begins at offset 200 now") as expired:
        client.blocks("orders", stream.incarnation, 5, 9)
    assert expired.value.first == 200
    with pytest.raises(Ahead, match="ends before the offset"):
        client.blocks("orders", stream.incarnation, 301, 302)
    with pytest.raises(Remade, match="was deleted, and made anew"):
        client.blocks("orders", "other", 200, 300)
    del broker.streams["orders"]
    with pytest.raises(Missing):
        client.blocks("orders", stream.incarnation, 200, 300)


@pytest.mark.parametrize(
    "strange", [b"", b"[]", b"{}", b'{"name":1}', b"\xff", b'{"partitions":[3]}', b'{"name":"a","next":-1}']
)
def test_an_answer_that_makes_no_sense_is_no_crash(
    broker: FakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch, strange: bytes
):
    monkeypatch.setattr(broker, "answer", lambda target: (200, {"Content-Type": "x/y"}, strange))
    with pytest.raises(PipelineError, match="is there a broker with bulk access"):
        client.partitions("orders")
    with pytest.raises(PipelineError, match="the answer lacks blocks"):
        client.blocks("orders", "", 0, 1)
    with pytest.raises(PipelineError, match="the answer lacks"):
        client.offset_since("orders", 0)


def test_an_answer_that_is_too_large_is_not_taken(
    broker: FakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("leveret.pipeline.client.TEXT_MAX", 10)
    monkeypatch.setattr(Client._answer, "__defaults__", (10,))
    broker.stream("orders").publish(message(b"x"))
    with pytest.raises(PipelineError, match="bytes, where 10 are the most"):
        client.partitions("orders")


def test_certificates_that_cannot_be_read_are_named(time: Time):
    client = client_of("https://127.0.0.1:1", time, **{"tls.caFile": "/nowhere/ca.pem"})
    with pytest.raises(BadOption, match=r"option tls.caFile: '/nowhere/ca.pem' cannot be used here"):
        client.listed()


def test_a_password_that_has_changed_is_read_again(broker: FakeBroker, tmp_path: Path):
    broker.stream("orders").fill(10)
    file = tmp_path / "token"
    file.write_text("one")
    broker.user = ("guest", "one")
    asked = read_options(
        {"endpoints": broker.url, "subscribe": "orders", "passwordFile": str(file)}, Use.STREAM
    )
    client = Client(asked)
    client.partitions("orders")
    broker.user = ("guest", "two")
    with pytest.raises(Refused, match="does not let"):
        client.partitions("orders")
    assert len(broker.asked) == 2  # the file has no other one
    file.write_text("two\n")
    assert [each.next for each in client.partitions("orders")] == [10]
    client.close()


@pytest.mark.parametrize(
    ("error", "url", "said"),
    [
        (ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] x"), "https://a", "options tls.certFile"),
        (
            ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            "https://a",
            "may be an http URL",
        ),
        (ConnectionResetError(), "http://a", "is an https URL"),
        (http.client.BadStatusLine("x"), "http://a", "is an https URL"),
    ],
)
def test_an_end_that_expects_tls_alone_is_hinted_at(error: Exception, url: str, said: str):
    assert said in hint_at(error, url)
    assert hint_at(ConnectionRefusedError(), url) == ""


def test_a_page_of_html_is_not_quoted():
    page = Answer(502, {"content-type": "text/html; charset=utf-8"}, b"<html><h1>Bad Gateway</h1>")
    assert page.reason == "a page of HTML, as no broker gives: is there a proxy in front of it?"
