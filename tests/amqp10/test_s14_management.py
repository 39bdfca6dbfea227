"""Section 14, management over a pair of links: what clients of RabbitMQ 4 ask for, and what they hear."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.broker.management.link_pair import REQUEST_SIZE_MAX
from leveret.protocols.amqp10.broker.management.syntax import Refused, digest, location, location_of, split
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Array, Described, Symbol, UInt, ULong, Value
from tests.harness.bench import ClientBench

from .client import MIXED, SETTLED, UNSETTLED, Receiver, Sender, Session
from .parts import annotations, application_properties, data, section, told
from .peer import Peer, declare

PAIRED = {"paired": True}
NODE = "/management"
MISSING = "no queue 'none' in vhost '/'"
Names = Mapping[str, Value]


class Pair:
    """Both links of a pair, seen from the client."""

    def __init__(self, session: Session, name: str = "pair", credit: int = 100) -> None:
        self.session = session
        self.requests = ask_requests(session, name)
        self.responses = ask_responses(session, name)
        assert self.requests.detached is None, self.requests.detached
        assert self.responses.detached is None, self.responses.detached
        self.asked = 0
        if credit:
            self.responses.want(credit)

    def send(self, method: str | None, target: str | None, body: Value = None, **properties: object) -> int:
        self.asked += 1
        fields = {"message_id": self.asked, "reply_to": "$me", **properties}
        self.requests.send(p.Properties(subject=method, to=target, **fields), value(body))
        return self.asked

    def ask(self, method: str, target: str, body: Value = None) -> tuple[int, Value]:
        """Status and body of the answer."""
        number = self.send(method, target, body)
        response = self.responses.get()
        assert response is not None, self.session.ended
        assert response.properties.correlation_id == number
        return int(response.properties.subject), response.body

    def broken(self) -> str:
        """How the session ended."""
        assert self.responses.get() is None
        return told(self.session.ended.error)


def value(body: Value) -> bytes:
    return section(0x77, body)


def ask_requests(session: Session, name: str = "pair", **fields: object) -> Sender:
    asked = {"source": p.Source(address=NODE), "snd_settle_mode": SETTLED, "properties": PAIRED, **fields}
    return session.ask_sender(p.Target(address=NODE), name, **asked)


def ask_responses(session: Session, name: str = "pair", **fields: object) -> Receiver:
    asked = {"target": p.Target(address=NODE), "snd_settle_mode": SETTLED, "properties": PAIRED, **fields}
    return session.ask_receiver(p.Source(address=NODE), name, **asked)


def pair(bench: ClientBench | None = None, user: str = "guest") -> Pair:
    return Pair(Peer(bench or ClientBench()).open(user).begin())


@pytest.fixture
def bench() -> ClientBench:
    return ClientBench()


@pytest.fixture
def asking(bench: ClientBench) -> Pair:
    return pair(bench)


def bound(bench: ClientBench, exchange: str) -> list[tuple[str, str, object]]:
    found = bench.host.exchange(exchange).bindings
    return [(each.destination.name, each.key, dict(each.arguments)) for each in found]


# The pair.


def test_x074_both_links_are_answered_as_they_ask(bench: ClientBench) -> None:
    made = pair(bench)
    for link in (made.requests, made.responses):
        assert link.attached.snd_settle_mode == SETTLED
        assert link.attached.properties == PAIRED
        assert link.attached.source == p.Source(address=NODE)
        assert link.attached.target == p.Target(address=NODE)
    assert made.requests.credit == 8


@pytest.mark.parametrize("ask", [ask_requests, ask_responses])
@pytest.mark.parametrize("properties", [None, {}, {"paired": False}, {"paired": 1}, {"pair": True}])
def test_x074_a_link_that_is_not_paired_is_refused(ask, properties: Names | None, bench: ClientBench) -> None:
    link = ask(Peer(bench).open().begin(), properties=properties)
    assert link.refusal() == "amqp:invalid-field Link property 'paired' is not set to boolean value 'true'"
    assert link.attached.source is None or link.attached.target is None


@pytest.mark.parametrize("mode", [UNSETTLED, MIXED])
def test_x074_requests_that_are_not_sent_settled_are_refused(mode: int, bench: ClientBench) -> None:
    link = ask_requests(Peer(bench).open().begin(), snd_settle_mode=mode)
    assert link.refusal().startswith("amqp:invalid-field ")


@pytest.mark.parametrize("mode", [UNSETTLED, MIXED])
def test_x074_responses_are_settled_whatever_the_client_asked_for(mode: int, bench: ClientBench) -> None:
    session = Peer(bench).open().begin()
    requests, responses = ask_requests(session), ask_responses(session, snd_settle_mode=mode)
    responses.want(1)
    requests.send(p.Properties(subject="GET", to="/queues/q", reply_to="$me"))
    assert responses.attached.snd_settle_mode == SETTLED
    assert responses.get().settled


def test_x074_the_halves_may_attach_in_any_order_and_come_again(bench: ClientBench) -> None:
    session = Peer(bench).open().begin()
    for first, second in ((ask_responses, ask_requests), (ask_requests, ask_responses)):
        links = [first(session), second(session)]
        assert all(link.attached is not None and link.detached is None for link in links)
        links[0].detach()
        links[0] = first(session)
        assert links[0].detached is None
        for link in links:
            link.detach()
    assert Pair(session).ask("GET", "/queues/none")[0] == 404


def test_x074_a_half_that_does_not_fit_the_other_is_refused(bench: ClientBench) -> None:
    session = Peer(bench).open().begin()
    requests = ask_requests(session, source=p.Source(address="one"))
    other = ask_responses(session, target=p.Target(address="another"))
    expected = "amqp:precondition-failed received invalid attach for management link pair 'pair'"
    assert other.refusal() == expected
    assert requests.detached is None
    fitting = ask_responses(session, target=p.Target(address="one"))
    assert fitting.detached is None


def test_x074_a_half_that_was_refused_leaves_nothing_behind(bench: ClientBench) -> None:
    session = Peer(bench).open().begin()
    requests = ask_requests(session, source=p.Source(address="one"))
    ask_responses(session, target=p.Target(address="another")).refusal()
    (served,) = session.peer.front.sessions
    assert [*served.pairs] == ["pair"]
    requests.detach()
    assert served.pairs == {}


def test_x074_pairs_of_a_session_are_served_side_by_side(bench: ClientBench) -> None:
    session = Peer(bench).open().begin()
    one, two = Pair(session, "one"), Pair(session, "two")
    assert one.ask("PUT", "/queues/q", {})[0] == 201
    assert two.ask("DELETE", "/queues/q") == (200, {"message_count": 0})
    assert one.ask("GET", "/queues/q")[0] == 404


def test_x074_a_transfer_without_a_link_for_the_answer_ends_the_session(bench: ClientBench) -> None:
    session = Peer(bench).open().begin()
    ask_requests(session).send(p.Properties(subject="GET", to="/queues/q", reply_to="$me"))
    expected = "amqp:precondition-failed received transfer on half open management link pair"
    assert session.refusal() == expected


def test_x075_a_request_that_is_not_settled_is_a_protocol_error(asking: Pair) -> None:
    properties = p.Properties(subject="GET", to="/queues/q", reply_to="$me")
    asking.requests.send(properties, value(None), settled=False)
    assert asking.requests.refusal().startswith("amqp:invalid-field sender settle mode is 'settled'")


@pytest.mark.parametrize(
    "properties",
    [
        p.Properties(subject="GET", to="/queues/q"),
        p.Properties(subject="GET", to="/queues/q", reply_to="me"),
        p.Properties(to="/queues/q", reply_to="$me"),
        p.Properties(subject="GET", reply_to="$me"),
    ],
)
def test_x075_a_request_without_its_properties_ends_the_session(
    asking: Pair, properties: p.Properties
) -> None:
    asking.requests.send(properties, value(None))
    assert asking.broken().startswith("amqp:invalid-field ")


@pytest.mark.parametrize(
    "octets", [b"", b"\x00\x53\x77", b"\x00\x53\x73\xc0\x03\x01\x52\x01\x00\x53\x77\x40"]
)
def test_x075_what_is_no_message_ends_the_link_or_the_session(asking: Pair, octets: bytes) -> None:
    asking.requests.send(octets)
    assert asking.responses.get() is None
    assert asking.requests.detached is not None or asking.session.ended is not None
    assert asking.session.peer.closed is None


def test_x075_a_request_may_have_other_sections_and_its_own_in_any_order(asking: Pair) -> None:
    """RabbitMQ's Python client sends an empty body in front of the properties."""
    properties = p.Properties(subject="PUT", to="/queues/q", reply_to="$me", message_id="m")
    for sections in (
        (value({}), properties),
        (
            p.Header(durable=True),
            annotations({"x-a": 1}),
            properties,
            application_properties({"a": 1}),
            value({}),
        ),
    ):
        asking.requests.send(*sections)
        assert asking.responses.get().properties.subject in ("201", "200")


def test_x075_a_body_that_is_no_value_is_none(asking: Pair) -> None:
    properties = p.Properties(subject="PUT", to="/auth/tokens", reply_to="$me", message_id="m")
    asking.requests.send(properties, data(b"guest"))
    assert asking.responses.get().properties.subject == "400"


@pytest.mark.parametrize("message_id", [ULong(7), "seven", b"seven"])
def test_x075_the_message_id_comes_back_as_correlation_id(asking: Pair, message_id: Value) -> None:
    asking.send("GET", "/queues/q", message_id=message_id)
    correlation = asking.responses.get().properties.correlation_id
    assert (correlation, type(correlation)) == (message_id, type(message_id))


def test_x076_the_subject_of_a_response_is_its_status(asking: Pair) -> None:
    asking.send("PUT", "/queues/q", {})
    response = asking.responses.get()
    assert response.properties.subject == "201"
    assert response.application_properties == {"http:response": "1.1"}
    assert response.settled


def test_x088_a_response_needs_credit(bench: ClientBench) -> None:
    asking = Pair(Peer(bench).open().begin(), credit=1)
    assert asking.ask("PUT", "/queues/q", {})[0] == 201
    asking.send("DELETE", "/queues/q")
    text = "insufficient credit (0) for management link from RabbitMQ to client"
    assert asking.broken() == f"amqp:precondition-failed {text}"
    assert "q" in bench.host.queues


def test_x088_credit_that_was_drained_is_no_credit(asking: Pair) -> None:
    asking.responses.want(3, drain=True)
    assert asking.responses.drained
    asking.send("DELETE", "/queues/q")
    assert asking.broken().startswith("amqp:precondition-failed insufficient credit (0) for management link")


def test_x088_responses_wait_for_the_window_of_the_session(bench: ClientBench) -> None:
    asking = pair(bench)
    asking.session.flow(incoming_window=0)
    asking.send("PUT", "/queues/q", {})
    assert asking.responses.get() is None
    asking.session.flow(incoming_window=1)
    assert asking.responses.get().properties.subject == "201"


def test_requests_may_be_sent_ahead_and_are_answered_in_their_order(asking: Pair) -> None:
    sent = [asking.send("PUT", f"/queues/q{number}", {}) for number in range(8)]
    answers = asking.responses.all()
    assert [answer.properties.correlation_id for answer in answers] == sent
    assert {answer.properties.subject for answer in answers} == {"201"}
    assert asking.ask("GET", "/queues/q7")[0] == 200
    for number in range(100):
        assert asking.requests.credit > 0
        assert asking.ask("DELETE", f"/queues/q{number}")[0] == 200
        asking.responses.want(5)


def test_a_request_may_come_in_parts_but_not_be_of_any_size(asking: Pair) -> None:
    properties = p.Properties(subject="PUT", to="/queues/q", reply_to="$me", message_id="m")
    asking.requests.send(properties, value({}), frames=3)
    assert asking.responses.get().properties.subject == "201"
    asking.requests.send(properties, value({"durable": "x" * REQUEST_SIZE_MAX}))
    assert asking.broken().startswith("amqp:link:message-size-exceeded message size (")


def test_a_response_that_is_too_large_for_the_client_ends_the_session(bench: ClientBench) -> None:
    session = Peer(bench).open().begin()
    requests, responses = ask_requests(session), ask_responses(session, max_message_size=60)
    responses.want(1)
    requests.send(p.Properties(subject="GET", to="/queues/" + "q" * 60, reply_to="$me"))
    assert session.refusal().startswith("amqp:link:message-size-exceeded message size (")


def test_a_response_may_have_just_the_size_that_the_client_takes(bench: ClientBench) -> None:
    sizes: list[int] = []
    for limit in (0, 1):
        session = Peer(bench).open().begin()
        requests, responses = (
            ask_requests(session),
            ask_responses(session, max_message_size=limit and sizes[0]),
        )
        responses.want(1)
        requests.send(p.Properties(subject="GET", to="/queues/none", reply_to="$me"))
        sizes.append(len(responses.get().octets))
    assert sizes[0] == sizes[1]


# Queues.


def info(name: str, **other: Value) -> dict[str, Value]:
    return {
        "name": name,
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "type": "classic",
        "arguments": {},
        "message_count": 0,
        "consumer_count": 0,
        "leader": "leveret",
        "replicas": Array(b"\xb1", ["leveret"]),
        **other,
    }


def test_x077_a_queue_is_declared_once_and_found_again(bench: ClientBench, asking: Pair) -> None:
    body = {"auto_delete": True, "arguments": {"x-queue-type": "classic", "x-max-length": ULong(5)}}
    described = info("my 🐇", auto_delete=True, arguments=body["arguments"])
    path = "/queues/my%20%F0%9F%90%87"
    assert asking.ask("PUT", path, body) == (201, described)
    assert asking.ask("PUT", path, body) == (200, described)
    queue = bench.queue("my 🐇")
    assert (queue.durable, queue.auto_delete, queue.exclusive) == (True, True, False)
    assert queue.limits.max_length == 5


def test_x077_a_queue_that_is_there_but_different_is_a_conflict(asking: Pair) -> None:
    asking.ask("PUT", "/queues/q", {"auto_delete": False})
    text = "inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'"
    assert asking.ask("PUT", "/queues/q", {"auto_delete": True}) == (409, text)


@pytest.mark.parametrize("kind", ["stream", "quorum"])
def test_x077_a_property_that_its_type_does_not_have_is_400(asking: Pair, kind: str) -> None:
    body = {"exclusive": True, "arguments": {"x-queue-type": kind}}
    text = "invalid property 'exclusive-owner' for queue 'q' in vhost '/'"
    assert asking.ask("PUT", "/queues/q", body) == (400, text)


def test_x077_an_argument_that_its_type_does_not_have_is_409(asking: Pair) -> None:
    arguments = {"x-queue-type": "stream", "x-dead-letter-exchange": "x"}
    status, text = asking.ask("PUT", "/queues/q", {"arguments": arguments})
    assert (status, text) == (
        409,
        "invalid arg 'x-dead-letter-exchange' for queue 'q' in vhost '/' of queue type rabbit_stream_queue",
    )


def test_x077_a_queue_of_another_connection_is_400(bench: ClientBench, asking: Pair) -> None:
    assert pair(bench).ask("PUT", "/queues/q", {"exclusive": True})[0] == 201
    for method, target, body in (
        ("PUT", "/queues/q", {"exclusive": True}),
        ("DELETE", "/queues/q", None),
        ("DELETE", "/queues/q/messages", None),
        ("POST", "/bindings", {"source": "amq.direct", "destination_queue": "q", "binding_key": "k"}),
    ):
        status, text = asking.ask(method, target, body)
        assert status == 400
        assert text.startswith("cannot obtain exclusive access to locked queue 'q' in vhost '/'.")


def test_x077_an_exclusive_queue_is_the_connections_own_and_goes_with_it(bench: ClientBench) -> None:
    asking = pair(bench)
    assert asking.ask("PUT", "/queues/q", {"exclusive": True})[0] == 201
    assert asking.ask("PUT", "/queues/q", {"exclusive": True})[0] == 200
    asking.session.peer.close()
    assert "q" not in bench.host.queues


def test_x077_names_of_the_broker_are_reserved(asking: Pair) -> None:
    text = "queue 'amq.q' in vhost '/' starts with reserved prefix 'amq.'"
    assert asking.ask("PUT", "/queues/amq.q", {}) == (403, text)


def test_x077_more_queues_than_the_virtual_host_may_hold_are_403() -> None:
    asking = pair(ClientBench("[limits]\nqueues_max = 1\n"))
    assert asking.ask("PUT", "/queues/one", {})[0] == 201
    status, text = asking.ask("PUT", "/queues/two", {})
    assert status == 403
    assert "queue limit in vhost '/' (1) is reached" in text
    assert asking.ask("PUT", "/queues/one", {})[0] == 200


def test_x078_a_queue_is_durable_unless_told_otherwise(bench: ClientBench, asking: Pair) -> None:
    asking.ask("PUT", "/queues/kept", {})
    asking.ask("PUT", "/queues/lost", {"durable": False, "arguments": None})
    assert bench.queue("kept").durable
    assert not bench.queue("lost").durable


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"unknown": "bla"}, '{{utf8,<<"unknown">>},{utf8,<<"bla">>}}'),
        ({"durable": "yes"}, '{{utf8,<<"durable">>},{utf8,<<"yes">>}}'),
        ({"exclusive": UInt(1)}, '{{utf8,<<"exclusive">>},{uint,1}}'),
        ({Symbol("durable"): True}, '{{symbol,<<"durable">>},true}'),
        ({"arguments": []}, '{{utf8,<<"arguments">>},{list,[]}}'),
    ],
)
def test_x078_a_property_that_queues_do_not_have_is_400(asking: Pair, body: Value, shown: str) -> None:
    assert asking.ask("PUT", "/queues/q", body) == (400, f"bad queue property {shown}")


def test_x078_a_long_property_is_shown_in_part(asking: Pair) -> None:
    status, text = asking.ask("PUT", "/queues/q", {"unknown": "x" * 10_000})
    assert status == 400
    assert len(text) < 1000


@pytest.mark.parametrize("body", [None, "text", [], b""])
def test_x078_a_declaration_needs_a_map(asking: Pair, body: Value) -> None:
    for target in ("/queues/q", "/exchanges/x"):
        assert asking.ask("PUT", target, body) == (400, "the request needs a map as its body")


def test_x078_arguments_keep_their_types(bench: ClientBench, asking: Pair) -> None:
    arguments = {"x-max-length": ULong(7), "x-single-active-consumer": True, "x-overflow": "reject-publish"}
    assert asking.ask("PUT", "/queues/q", {"arguments": arguments})[0] == 201
    _, described = asking.ask("GET", "/queues/q")
    assert repr(sorted(described["arguments"].items())) == repr(sorted(arguments.items()))


@pytest.mark.parametrize("arguments", [{1: "a"}, {"a": Described(ULong(1), 1)}])
def test_x078_an_argument_that_the_core_cannot_say_is_400(asking: Pair, arguments: Value) -> None:
    status, text = asking.ask("PUT", "/queues/q", {"arguments": arguments})
    assert status == 400
    assert text.startswith("unsupported argument {")


def test_x079_a_queue_needs_a_name_of_one_line(asking: Pair) -> None:
    assert asking.ask("PUT", "/queues/", {}) == (400, "declare queue with empty name not allowed")
    for character, encoded in (("\n", "%0A"), ("\r", "%0D")):
        text = f"Bad name 'a{character}b': line feed and carriage return characters not allowed"
        assert asking.ask("PUT", f"/queues/a{encoded}b", {}) == (400, text)
        assert asking.ask("DELETE", f"/queues/a{encoded}b") == (400, text)
        assert asking.ask("PUT", f"/exchanges/a{encoded}b", {}) == (400, text)
        assert asking.ask("DELETE", f"/exchanges/a{encoded}b") == (400, text)


def test_a_name_must_be_utf_8_and_not_too_long(asking: Pair) -> None:
    assert asking.ask("PUT", "/queues/%FF", {}) == (400, "'%FF' is not UTF-8")
    assert asking.ask("PUT", "/queues/" + "q" * 255, {})[0] == 201
    assert asking.ask("PUT", "/queues/" + "q" * 256, {})[0] == 400
    fields = {"source": "x" * 256, "destination_queue": "q", "binding_key": ""}
    assert asking.ask("POST", "/bindings", fields)[0] == 400


def test_x080_a_queue_is_shown_with_what_it_holds(bench: ClientBench, asking: Pair) -> None:
    declare(bench, "q", arguments={"x-queue-type": "quorum"}, durable=True)
    asking.session.sender("/queues/q").publish(data(b"hello"))
    asking.session.receiver("/queues/q")
    status, described = asking.ask("GET", "/queues/q")
    assert (status, described) == (
        200,
        info("q", type="quorum", message_count=1, consumer_count=1, arguments={"x-queue-type": "quorum"}),
    )
    assert (type(described["message_count"]), type(described["consumer_count"])) == (ULong, UInt)


def test_x080_a_queue_that_is_not_there_is_404(asking: Pair) -> None:
    assert asking.ask("GET", "/queues/none") == (404, "queue 'none' in vhost '/' not found")


def test_x081_deleting_a_queue_says_how_many_messages_it_had(bench: ClientBench, asking: Pair) -> None:
    declare(bench, "q")
    sender = asking.session.sender("/queues/q")
    for _ in range(3):
        sender.publish(data(b"hello"))
    status, body = asking.ask("DELETE", "/queues/q")
    assert (status, body) == (200, {"message_count": 3})
    assert type(body["message_count"]) is ULong
    assert "q" not in bench.host.queues
    assert asking.ask("DELETE", "/queues/q") == (200, {"message_count": 0})


def test_x081_deleting_what_is_not_there_is_fine_even_where_0_9_1_minds() -> None:
    asking = pair(ClientBench('[compat]\ndelete_missing = "not-found"\n'))
    assert asking.ask("DELETE", "/queues/none") == (200, {"message_count": 0})
    assert asking.ask("DELETE", "/exchanges/none") == (204, None)
    assert asking.ask("DELETE", "/bindings/src=a;dstq=b;key=c;args=") == (204, None)


def test_x081_a_queue_is_emptied(bench: ClientBench, asking: Pair) -> None:
    declare(bench, "q")
    asking.session.sender("/queues/q").publish(data(b"hello"))
    assert asking.ask("DELETE", "/queues/q/messages") == (200, {"message_count": 1})
    assert bench.queue("q").ready == 0
    assert asking.ask("DELETE", "/queues/none/messages") == (404, MISSING)


def test_x081_a_stream_is_not_emptied(asking: Pair) -> None:
    asking.ask("PUT", "/queues/s", {"arguments": {"x-queue-type": "stream"}})
    expected = "purge not supported by queue 's' in vhost '/'"
    assert asking.ask("DELETE", "/queues/s/messages") == (400, expected)


# Exchanges.


def test_x082_an_exchange_is_declared_and_deleted(bench: ClientBench, asking: Pair) -> None:
    body = {"type": "fanout", "auto_delete": True, "internal": True, "arguments": {"x-📥": "📮"}}
    path = "/exchanges/my%20fanout"
    assert asking.ask("PUT", path, body) == (204, None)
    assert asking.ask("PUT", path, body) == (204, None)
    exchange = bench.host.exchange("my fanout")
    assert (exchange.type.name, exchange.durable, exchange.auto_delete) == ("fanout", True, True)
    assert exchange.internal
    described = {"name": "my fanout", "vhost": "/", "durable": True, **body}
    assert asking.ask("GET", path) == (200, described)
    assert asking.ask("DELETE", path) == (204, None)
    assert asking.ask("DELETE", path) == (204, None)
    assert asking.ask("GET", path) == (404, "exchange 'my fanout' in vhost '/' not found")


def test_x082_an_exchange_is_direct_and_durable_unless_told_otherwise(
    bench: ClientBench, asking: Pair
) -> None:
    asking.ask("PUT", "/exchanges/kept", {})
    asking.ask("PUT", "/exchanges/lost", {"durable": False})
    exchange = bench.host.exchange("kept")
    assert (exchange.type.name, exchange.durable, exchange.auto_delete) == ("direct", True, False)
    assert (exchange.internal, exchange.arguments) == (False, {})
    assert not bench.host.exchange("lost").durable


@pytest.mark.parametrize("profile", ["", '[compat]\nunknown_exchange_type = "command-invalid"\n'])
def test_x082_an_unknown_type_is_400(profile: str) -> None:
    expected = "unknown exchange type '🤷'"
    assert pair(ClientBench(profile)).ask("PUT", "/exchanges/x", {"type": "🤷"}) == (400, expected)


@pytest.mark.parametrize("profile", ["", '[compat]\nredeclare_other_type = "not-allowed"\n'])
def test_x082_an_exchange_that_is_there_but_different_is_a_conflict(profile: str) -> None:
    asking = pair(ClientBench(profile))
    asking.ask("PUT", "/exchanges/x", {"type": "direct"})
    text = "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'"
    assert asking.ask("PUT", "/exchanges/x", {"type": "fanout"}) == (409, text)


def test_x082_the_default_exchange_and_those_of_the_broker_are_403(asking: Pair) -> None:
    default = (403, "operation not permitted on the default exchange")
    for method, body in (("PUT", {}), ("GET", None), ("DELETE", None)):
        assert asking.ask(method, "/exchanges/", body) == default
    reserved = "exchange 'amq.new' in vhost '/' starts with reserved prefix 'amq.'"
    assert asking.ask("PUT", "/exchanges/amq.new", {}) == (403, reserved)
    assert asking.ask("DELETE", "/exchanges/amq.new") == (403, reserved)
    assert asking.ask("PUT", "/exchanges/amq.fanout", {"type": "fanout"}) == (204, None)


def test_x082_a_property_that_exchanges_do_not_have_is_400(asking: Pair) -> None:
    text = 'bad exchange property {{utf8,<<"exclusive">>},true}'
    assert asking.ask("PUT", "/exchanges/x", {"exclusive": True}) == (400, text)
    text = 'bad exchange property {{utf8,<<"type">>},{uint,1}}'
    assert asking.ask("PUT", "/exchanges/x", {"type": UInt(1)}) == (400, text)


def test_x082_more_exchanges_than_the_node_may_hold_are_403() -> None:
    asking = pair(ClientBench("[limits]\nexchanges_max = 8\n"))
    assert asking.ask("PUT", "/exchanges/x", {})[0] == 204
    status, text = asking.ask("PUT", "/exchanges/y", {})
    assert (status, text) == (403, "cannot declare exchange 'y' in vhost '/': exchange limit of 8 is reached")


# Bindings.


def binding(destination: str, key: str = "k", kind: str = "queue", **arguments: Value) -> dict[str, Value]:
    return {
        "source": "amq.direct",
        f"destination_{kind}": destination,
        "binding_key": key,
        "arguments": arguments,
    }


def test_x083_a_queue_is_bound_and_unbound(bench: ClientBench, asking: Pair) -> None:
    declare(bench, "q")
    for _ in range(2):
        assert asking.ask("POST", "/bindings", binding("q", "🗝️ 1")) == (204, None)
    assert bound(bench, "amq.direct") == [("q", "🗝️ 1", {})]
    path = "/bindings/src=amq.direct;dstq=q;key=%F0%9F%97%9D%EF%B8%8F%201;args="
    for _ in range(2):
        assert asking.ask("DELETE", path) == (204, None)
    assert bound(bench, "amq.direct") == []


def test_x083_an_exchange_is_bound_and_unbound(bench: ClientBench, asking: Pair) -> None:
    assert asking.ask("POST", "/bindings", binding("amq.fanout", "", "exchange")) == (204, None)
    assert bound(bench, "amq.direct") == [("amq.fanout", "", {})]
    assert asking.ask("DELETE", "/bindings/src=amq.direct;dste=amq.fanout;key=;args=") == (204, None)
    assert bound(bench, "amq.direct") == []


def test_x083_a_location_without_arguments_names_the_binding_without_them(
    bench: ClientBench, asking: Pair
) -> None:
    declare(bench, "q")
    asking.ask("POST", "/bindings", binding("q"))
    asking.ask("POST", "/bindings", binding("q", a=1))
    assert asking.ask("DELETE", "/bindings/src=amq.direct;dstq=q;key=k;args=") == (204, None)
    assert bound(bench, "amq.direct") == [("q", "k", {"a": 1})]


def test_x083_both_ends_of_a_binding_must_be_there(bench: ClientBench, asking: Pair) -> None:
    assert asking.ask("POST", "/bindings", binding("none")) == (400, MISSING)
    declare(bench, "q")
    missing = {**binding("q"), "source": "none"}
    assert asking.ask("POST", "/bindings", missing) == (400, "no exchange 'none' in vhost '/'")
    assert asking.ask("DELETE", "/bindings/src=none;dstq=none;key=k;args=") == (204, None)


def test_x083_neither_end_of_a_binding_is_the_default_exchange(bench: ClientBench, asking: Pair) -> None:
    declare(bench, "q")
    expected = (403, "operation not permitted on the default exchange")
    assert asking.ask("POST", "/bindings", {**binding("q"), "source": ""}) == expected
    assert asking.ask("POST", "/bindings", binding("", kind="exchange")) == expected
    assert asking.ask("GET", "/bindings?src=&dstq=q&key=k") == expected


def test_x083_the_ends_of_a_binding_have_names_of_one_line(asking: Pair) -> None:
    text = "Bad name 'a\nb': line feed and carriage return characters not allowed"
    assert asking.ask("POST", "/bindings", {**binding("q"), "source": "a\nb"}) == (400, text)
    assert asking.ask("POST", "/bindings", binding("a\nb")) == (400, text)


@pytest.mark.parametrize("gone", ["source", "destination_queue", "binding_key"])
def test_x083_a_binding_needs_its_ends_and_a_key(asking: Pair, gone: str) -> None:
    fields = {name: value for name, value in binding("q").items() if name != gone}
    assert asking.ask("POST", "/bindings", fields) == (400, f"missing {gone}")


def test_x083_a_field_that_bindings_do_not_have_is_400(asking: Pair) -> None:
    text = 'bad binding field {{utf8,<<"key">>},{utf8,<<"k">>}}'
    assert asking.ask("POST", "/bindings", {**binding("q"), "key": "k"}) == (400, text)


@pytest.mark.parametrize(
    "segment",
    [
        "src=e1;dstq=q1;invalidkey=k1;args=",
        "src=;dstq=q1;key=k1;args=",
        "src=e1;dstx=q1;key=k1;args=",
        "src=e1;dstq=q1;key=k1",
        "src=e1;dstq=q1;key=k1;args=;",
        "src=e1;dstq=a+b;key=k1;args=",
        "",
    ],
)
def test_x083_a_segment_that_is_no_location_is_400(asking: Pair, segment: str) -> None:
    assert asking.ask("DELETE", f"/bindings/{segment}") == (400, f"bad binding path segment '{segment}'")


def test_x084_bindings_are_listed_with_their_location(bench: ClientBench, asking: Pair) -> None:
    declare(bench, "my q")
    other: dict[str, Value] = {
        "x-match": "all",
        "number": UInt(3),
        "octets": b"\xff",
        "deep": {"list": [True]},
    }
    for arguments in ({}, other):
        assert asking.ask("POST", "/bindings", binding("my q", "a b", **arguments))[0] == 204
    asking.ask("POST", "/bindings", binding("my q", "else"))
    status, listed = asking.ask("GET", "/bindings?src=amq.direct&dstq=my+q&key=a%20b")
    assert status == 200
    assert [each["arguments"] for each in listed] == [{}, other]
    first, second = listed
    assert first == {
        "source": "amq.direct",
        "destination_queue": "my q",
        "binding_key": "a b",
        "arguments": {},
        "location": "/bindings/src=amq.direct;dstq=my%20q;key=a%20b;args=",
    }
    assert asking.ask("DELETE", second["location"]) == (204, None)
    assert [key for _, key, _ in bound(bench, "amq.direct")] == ["a b", "else"]
    assert asking.ask("DELETE", second["location"]) == (204, None)


def test_x084_bindings_to_exchanges_are_listed_too(asking: Pair) -> None:
    asking.ask("POST", "/bindings", binding("amq.fanout", "k", "exchange"))
    status, listed = asking.ask("GET", "/bindings?src=amq.direct&dste=amq.fanout&key=k")
    assert status == 200
    assert [each["destination_exchange"] for each in listed] == ["amq.fanout"]
    assert asking.ask("GET", "/bindings?src=amq.direct&dste=none&key=k") == (200, [])
    assert asking.ask("GET", "/bindings?src=amq.direct&dste=amq.fanout&key=other") == (200, [])


def test_x084_a_list_of_bindings_needs_both_ends_and_a_key(asking: Pair) -> None:
    status, text = asking.ask("GET", "/bindings?src=amq.direct&key=k")
    assert status == 400
    assert text.startswith("missing 'dste' or 'dstq' in query: ")
    for query in ("", "?src=a&dstq=b", "?dstq=b&key=k"):
        status, text = asking.ask("GET", f"/bindings{query}")
        assert status == 400
        assert text.startswith("missing 'src' or 'key' in query: ")


# Paths.


@pytest.mark.parametrize(
    "target", ["👎", "", "queues/q", "/queues/a b", "/queues/%", "/queues/%zz", "/queues/ä", "/#"]
)
def test_x085_what_is_no_uri_is_400(asking: Pair, target: str) -> None:
    text = f"failed to normalize URI '{target}': invalid_uri \"{target}\""
    assert asking.ask("GET", target) == (400, text)


@pytest.mark.parametrize("query", ["a", "a=%FF", "=&&"])
def test_x085_what_is_no_query_is_400(asking: Pair, query: str) -> None:
    assert asking.ask("GET", f"/bindings?{query}") == (400, f"failed to dissect query '{query}'")


def test_x085_a_uri_has_an_end(asking: Pair) -> None:
    status, text = asking.ask("GET", "/queues/" + "q" * 10_000)
    assert (status, text) == (400, "the URI has more than 8192 characters")


@pytest.mark.parametrize(
    "target", ["/", "/queues", "/queues/a/b", "/exchanges", "/auth", "/queues/a/messages/b"]
)
def test_x085_an_unknown_path_is_404(asking: Pair, target: str) -> None:
    assert asking.ask("GET", target) == (404, f"path '{target}' not found")


def test_x085_an_unknown_method_is_405(asking: Pair) -> None:
    assert asking.ask("PATCH", "/queues/q") == (405, "method 'PATCH' not allowed for '/queues/q'")
    assert asking.ask("GET", "/auth/tokens")[0] == 405


# Credentials and permissions.


def test_x086_a_fresh_token_is_taken(bench: ClientBench, asking: Pair) -> None:
    bench.broker.access.add_user("guest", "fresh")
    assert asking.ask("PUT", "/auth/tokens", b"fresh") == (204, None)
    assert asking.session.peer.front.client.user is bench.broker.access.user("guest")
    assert asking.ask("PUT", "/auth/tokens", "fresh")[0] == 400


def test_x086_a_token_that_is_not_good_ends_the_connection() -> None:
    asking = pair(ClientBench('compat.update_secret = "check"'))
    asking.send("PUT", "/auth/tokens", b"stale")
    assert asking.responses.get() is None
    assert asking.session.peer.refusal().startswith("amqp:unauthorized-access ")


REFUSED: dict[str, tuple[str, str, Value, str]] = {
    "declare queue": ("PUT", "/queues/new", {}, "configure access to queue 'new'"),
    "get queue": ("GET", "/queues/q", None, "configure access to queue 'q'"),
    "get missing queue": ("GET", "/queues/none", None, "configure access to queue 'none'"),
    "delete queue": ("DELETE", "/queues/q", None, "configure access to queue 'q'"),
    "purge": ("DELETE", "/queues/q/messages", None, "read access to queue 'q'"),
    "declare exchange": ("PUT", "/exchanges/new", {}, "configure access to exchange 'new'"),
    "get exchange": ("GET", "/exchanges/amq.direct", None, "configure access to exchange 'amq.direct'"),
    "delete exchange": ("DELETE", "/exchanges/x", None, "configure access to exchange 'x'"),
    "bind": ("POST", "/bindings", binding("q"), "write access to queue 'q'"),
    "list": ("GET", "/bindings?src=amq.direct&dstq=q&key=k", None, "write access to queue 'q'"),
    "unbind": ("DELETE", "/bindings/src=amq.direct;dstq=q;key=k;args=", None, "write access to queue 'q'"),
}


@pytest.mark.parametrize(("method", "target", "body", "what"), REFUSED.values(), ids=REFUSED.keys())
def test_x087_a_missing_permission_ends_the_session(
    bench: ClientBench, method: str, target: str, body: Value, what: str
) -> None:
    """As S182."""
    declare(bench, "q")
    asking = pair(bench, bench.user("u", configure="", write="", read=""))
    asking.send(method, target, body)
    assert asking.broken() == f"amqp:unauthorized-access {what} in vhost '/' refused for user 'u'"
    assert "q" in bench.host.queues
    assert "new" not in {*bench.host.queues, *bench.host.exchanges}


def test_x087_dead_letters_and_alternates_need_permissions_of_their_own(bench: ClientBench) -> None:
    for target, argument, what in (
        ("/queues/q", "x-dead-letter-exchange", "read access to queue 'q'"),
        ("/exchanges/q", "alternate-exchange", "read access to exchange 'q'"),
    ):
        asking = pair(bench, bench.user("u", configure="q", write="", read=""))
        asking.send("PUT", target, {"arguments": {argument: "x"}})
        assert asking.broken() == f"amqp:unauthorized-access {what} in vhost '/' refused for user 'u'"


# Whatever is asked, there is an answer.

words = st.sampled_from(
    [
        "queues",
        "exchanges",
        "bindings",
        "auth",
        "tokens",
        "messages",
        "q",
        "amq.direct",
        "%0A",
        "%FF",
        "",
        "é",
        ";=?&",
    ]
)
targets = st.lists(words, max_size=4).map(lambda parts: "/" + "/".join(parts))
methods = st.sampled_from(["GET", "PUT", "POST", "DELETE", "X"])
bodies: st.SearchStrategy[Value] = st.none() | st.dictionaries(
    st.sampled_from(
        [
            "durable",
            "exclusive",
            "type",
            "arguments",
            "source",
            "destination_queue",
            "binding_key",
            "x-max-length",
        ]
    ),
    st.none() | st.booleans() | st.text("q\n\x00", max_size=3) | st.just({"x-max-length": ULong(2**63)}),
)


@given(st.lists(st.tuples(methods, targets, bodies), min_size=1, max_size=5))
def test_every_request_is_answered_with_a_status(requests: list[tuple[str, str, Value]]) -> None:
    asking = pair()
    for method, target, body in requests:
        status, explanation = asking.ask(method, target, body)
        assert status in (200, 201, 204, 400, 403, 404, 405, 409)
        assert status < 300 or isinstance(explanation, str)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    names,
    names,
    st.booleans(),
    st.text(max_size=10).filter(str.isprintable),
    st.dictionaries(names, st.integers()),
)
def test_a_location_says_which_binding_it_is(
    source: str, destination: str, is_exchange: bool, key: str, arguments: dict[str, int]
) -> None:
    class End:
        def __init__(self, name: str, is_exchange: bool) -> None:
            self.name = name
            self.is_exchange = is_exchange

    class Bound:
        def __init__(self) -> None:
            self.source = End(source, True)
            self.end = End(destination, is_exchange)
            self.key = key
            self.arguments = arguments

    (first, segment), query = split(location_of(Bound()))
    assert (first, query) == ("bindings", {})
    assert location(segment) == (source, destination, is_exchange, key, digest(arguments))
    assert digest(dict(reversed(arguments.items()))) == digest(arguments)
    assert digest({**arguments, "one more": 1}) != digest(arguments) or "one more" in arguments


@given(st.text(max_size=30))
def test_any_text_is_a_path_or_refused(target: str) -> None:
    try:
        segments, _ = split(target)
    except Refused as refused:
        assert refused.response.status == 400  # noqa: PT017
        return
    assert "/" + "/".join(segments) == target.partition("?")[0]
