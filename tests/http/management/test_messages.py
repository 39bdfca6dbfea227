"""Messages over HTTP: published, fetched in four ways, looked at, dropped and moved, with the permissions of AMQP."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from leveret.durable.store.memory import MemoryStore
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING10
from leveret.protocols.http.management import messages, move
from leveret.queues.filtered import FilteredQueue
from leveret.queues.stream import StreamQueue
from leveret.security.users import Permissions
from leveret.selectors.parser import compile_selector
from leveret.values import Json, Properties, Timestamp
from tests.http.management.office import Office, told

PUBLISH = "/api/exchanges/%2F/amq.default/publish"
GET = "/api/queues/%2F/q/get"
PEEK = "/api/leveret/queues/%2F/q/peek"
MOVE = "/api/leveret/queues/%2F/q/move"
ALL: dict[str, Json] = {"count": 100, "ackmode": "ack_requeue_true", "encoding": "auto"}


def said(payload: str = "x", key: str = "q", encoding: str = "string", **properties: Any) -> Json:
    return {"properties": properties, "routing_key": key, "payload": payload, "payload_encoding": encoding}


def wanted(**more: Any) -> Json:
    return {**ALL, **more}


@pytest.fixture
def office() -> Office:
    office = Office()
    office.queue("q")
    return office


def fetched(office: Office, **more: Any) -> list[dict[str, Any]]:
    response = office.post(GET, wanted(**more))
    assert response.status == 200, response.content
    rows: list[dict[str, Any]] = response.json
    return rows


def put_durable(office: Office, *bodies: bytes, queue: str = "q") -> None:
    properties = ENCODING.write(Properties(durable=True))
    for body in bodies:
        message = Message(ENCODING, "", queue, properties, body, Facts(durable=True))
        office.broker.publish(office.host.exchange(""), message)
    office.site.settle()


# Publish.


def test_what_is_published_says_what_the_body_said(office: Office) -> None:
    properties: dict[str, Any] = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"n": 1, "list": ["a", {"b": None}], "on": True, "share": 0.5},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "user_id": "boss",
        "app_id": "a",
    }
    assert office.post(PUBLISH, said("größer", **properties)).json == {"routed": True}
    (row,) = fetched(office)
    assert row == {
        "payload_bytes": 8,
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "message_count": 0,
        "properties": properties,
        "payload": "größer",
        "payload_encoding": "string",
    }
    (delivery,) = office.host.queue("q").waiting()
    facts = delivery.message.facts
    assert (facts.durable, facts.priority, facts.ttl_ms, facts.user_id) == (True, 3, 60_000, "boss")


def test_a_message_without_properties_has_an_empty_list_of_them_as_in_rabbitmq(office: Office) -> None:
    office.post(PUBLISH, said("x"))
    office.post(PUBLISH, {**said("y"), "properties": []})  # type: ignore[dict-item]
    assert [row["properties"] for row in fetched(office)] == [[], []]


def test_octets_are_in_base64(office: Office) -> None:
    office.post(PUBLISH, said(base64.b64encode(b"\xff\0").decode(), encoding="base64"))
    office.post(PUBLISH, said("text"))
    assert [(row["payload"], row["payload_encoding"]) for row in fetched(office)] == [
        ("/wA=", "base64"),
        ("text", "string"),
    ]
    assert [row["payload"] for row in fetched(office, encoding="base64")] == ["/wA=", "dGV4dA=="]


def test_whether_a_queue_has_it_is_told(office: Office) -> None:
    assert office.post(PUBLISH, said(key="none")).json == {"routed": False}
    office.queue("full", x_max_length=1, x_overflow="reject-publish")
    assert office.post(PUBLISH, said(key="full")).json == {"routed": True}
    assert office.post(PUBLISH, said(key="full")).json == {"routed": False}


def test_a_durable_message_is_on_disk_when_it_is_answered(office: Office) -> None:
    assert office.post(PUBLISH, said("kept", delivery_mode=2)).json == {"routed": True}
    office.post(PUBLISH, said("lost", delivery_mode=1))
    assert office.again().bodies() == "kept"


WRONG: dict[str, tuple[Json, object]] = {
    "not base64": (said("!", encoding="base64"), ["not_base64", "!"]),
    "encoding": (said(encoding="zip"), ["unsupported_encoding", "zip"]),
    "mode": (said(delivery_mode="2"), ["not_int", "delivery_mode"]),
    "priority": (said(priority=256), "priority is not within 0 and 255"),
    "headers": (said(headers="x"), ["not_map", "headers"]),
    "text": (said(type=5), ["not_string", "type"]),
    "long": (said(app_id="x" * 256), "app_id has more than 255 bytes"),
    "large headers": (said(headers={"x": "y" * 200_000}), "the headers are too large"),
    "expiration": (said(expiration="1h"), "406 PRECONDITION_FAILED - invalid expiration '1h': no_integer"),
    "user": (
        said(user_id="other"),
        "406 PRECONDITION_FAILED - user_id property set to 'other' but authenticated user was 'boss'",
    ),
    "cc": (
        said(headers={"CC": "x"}),
        "406 PRECONDITION_FAILED - invalid message: unacceptable type 'longstr' in header 'CC', expected an array",
    ),
    "half a pair": (said("\ud800"), "not_utf8"),
    "number": (said(headers={"x": 1 << 70}), ["not_integer", str(1 << 70)]),
    "nothing": (
        {},
        "[{key_missing,payload},{key_missing,payload_encoding},{key_missing,properties},{key_missing,routing_key}]",
    ),
}


@pytest.mark.parametrize("why", WRONG)
def test_what_cannot_be_published_is_not(office: Office, why: str) -> None:
    content, reason = WRONG[why]
    assert told(office.post(PUBLISH, content)) == (400, reason)
    assert office.host.queue("q").ready == 0


def test_a_table_within_a_table_without_end_is_refused(office: Office) -> None:
    nested: Any = 1
    for _ in range(100):
        nested = {"x": nested}
    assert told(office.post(PUBLISH, said(headers=nested))) == (400, "too_deep")
    body = b'{"properties":' + b"[" * 40_000
    assert told(office.asking("POST", PUBLISH, body).answer()) == (400, "not_json")


def test_publishing_needs_permissions_on_the_exchange_and_the_key(office: Office) -> None:
    assert office.post(PUBLISH, said(), "maker").json == {"routed": True}
    refused = office.post("/api/exchanges/%2F/amq.direct/publish", said(), "maker")
    expected = (
        "403 ACCESS_REFUSED - write access to exchange 'amq.direct' in vhost '/' refused for user 'maker'"
    )
    assert told(refused) == (400, expected)
    missing = office.post("/api/exchanges/%2F/none/publish", said())
    assert told(missing) == (400, "404 NOT_FOUND - no exchange 'none' in vhost '/'")
    office.broker.access.add_permissions("maker", "/", Permissions("", ".*", ""))
    office.broker.access.set_topic_permissions("maker", "/", "amq.topic", "^a", "")
    topic = "/api/exchanges/%2F/amq.topic/publish"
    assert office.post(topic, said(key="a"), "maker").status == 200
    assert office.post(topic, said(key="b"), "maker").status == 400
    assert office.post(topic, said(key="a", headers={"CC": ["b"]}), "maker").status == 400


def test_nobody_publishes_while_publishers_are_held_back(office: Office) -> None:
    office.broker.alarms.set("low on disk")
    assert office.post(PUBLISH, said()).status == 503
    assert office.host.queue("q").ready == 0


# Fetch.


@pytest.mark.parametrize(
    ("mode", "left", "dead"),
    [
        ("ack_requeue_true", "1 2 3", ""),
        ("reject_requeue_true", "1 2 3", ""),
        ("ack_requeue_false", "3", ""),
        ("reject_requeue_false", "3", "1 2"),
    ],
)
def test_what_is_fetched_is_settled_as_was_asked(mode: str, left: str, dead: str) -> None:
    office = Office()
    office.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    office.queue("dead")
    put_durable(office, b"1", b"2", b"3")
    rows = fetched(office, count=2, ackmode=mode)
    assert [(row["payload"], row["message_count"]) for row in rows] == [("1", 2), ("2", 1)]
    queue = office.host.queue("q")
    assert (office.bodies(), office.bodies("dead"), queue.unsettled) == (left, dead, 0)
    if left.startswith("1"):
        assert [row["redelivered"] for row in fetched(office)] == [True, True, False]
    after = office.again()
    assert (after.bodies(), after.bodies("dead")) == (left, dead)


def test_who_hangs_up_has_taken_nothing(office: Office) -> None:
    put_durable(office, *[b"%d" % number for number in range(2000)])
    body = json.dumps(wanted(count=2000, ackmode="ack_requeue_false")).encode()
    asking = office.asking("POST", GET, body)
    queue = office.host.queue("q")
    assert asking.waits
    assert 0 < queue.unsettled < 2000
    asking.hang_up()
    assert (queue.ready, queue.unsettled) == (2000, 0)
    assert [row["payload"] for row in fetched(office, count=2)] == ["0", "1"]


def test_others_have_their_turn_while_many_are_fetched(office: Office) -> None:
    put_durable(office, *[b"x"] * 1500)
    asking = office.asking("POST", GET, json.dumps(wanted(count=1500)).encode())
    assert asking.waits
    assert len(asking.answer().json) == 1500


def test_an_answer_is_bounded(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    put_durable(office, *[b"x" * 1000] * 5)
    monkeypatch.setattr(messages, "OCTETS_MAX", 2500)
    assert len(fetched(office, ackmode="ack_requeue_false")) == 3
    assert office.host.queue("q").ready == 2
    monkeypatch.setattr(messages, "FETCHED_MAX", 1)
    assert len(fetched(office, count=-1)) == 1


def test_payloads_are_cut_off(office: Office) -> None:
    put_durable(office, "größer".encode())
    assert [(row["payload"], row["payload_bytes"]) for row in fetched(office, truncate=2)] == [("gr", 8)]
    assert fetched(office, truncate=3)[0]["payload_encoding"] == "base64"  # half a letter


def test_messages_of_other_protocols_are_shown_in_the_same_names(office: Office) -> None:
    office.broker.encodings = {**office.broker.encodings, "amqp10": lambda: ENCODING10}
    properties = Properties(
        content_type="text/plain", headers={"h": 1}, message_id="m", timestamp=Timestamp(5), durable=True
    )
    raw = ENCODING10.write(properties)
    message = Message(
        ENCODING10, "", "q", raw, ENCODING10.body(b"body"), Facts(durable=True, has_headers=True)
    )
    office.broker.publish(office.host.exchange(""), message)
    (row,) = fetched(office)
    assert (row["payload"], row["payload_bytes"]) == ("body", 4)
    assert row["properties"] == {
        "content_type": "text/plain",
        "headers": {"h": 1},
        "delivery_mode": 2,
        "message_id": "m",
        "timestamp": 5,
    }


def test_a_dead_letter_tells_its_history() -> None:
    office = Office()
    office.queue("work", x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    office.queue("q")
    put_durable(office, b"x", queue="work")
    content = wanted(count=1, ackmode="reject_requeue_false")
    office.post("/api/queues/%2F/work/get", content)
    (row,) = fetched(office)
    headers = row["properties"]["headers"]
    (death,) = headers["x-death"]
    assert (death["queue"], death["reason"], death["count"], death["routing-keys"]) == (
        "work",
        "rejected",
        1,
        ["work"],
    )
    assert headers["x-first-death-queue"] == "work"


WRONG_FETCHES: dict[str, tuple[Json, object]] = {
    "mode": (wanted(ackmode="x"), ["unknown_ackmode", "x"]),
    "encoding": (wanted(encoding="x"), "Unsupported encoding. Please use auto or base64."),
    "count": (wanted(count="x"), ["not_integer", "x"]),
    "truncate": (wanted(truncate=-1), ["not_positive", "truncate"]),
    "nothing": ({}, "[{key_missing,ackmode},{key_missing,count},{key_missing,encoding}]"),
}


@pytest.mark.parametrize("why", WRONG_FETCHES)
def test_a_fetch_that_means_nothing_is_refused(office: Office, why: str) -> None:
    content, reason = WRONG_FETCHES[why]
    assert told(office.post(GET, content)) == (400, reason)


def test_fetching_needs_to_read_and_a_queue(office: Office) -> None:
    missing = office.post("/api/queues/%2F/none/get", ALL)
    assert (missing.status, missing.content["error"]) == (404, "not_found")
    assert missing.reason == "NOT_FOUND - no queue 'none' in vhost '/'"
    refused = office.post(GET, ALL, "clerk")
    assert (refused.status, refused.content["error"]) == (401, "not_authorised")
    assert refused.reason == "ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'clerk'"
    assert "WWW-Authenticate" not in refused.headers  # a browser would ask for another password
    assert told(office.post(GET, ALL, "plain")) == (401, "Not management user")
    assert office.post(GET, ALL, "watcher").status == 401  # may see all, and touch nothing
    office.queue("s", x_queue_type="stream")
    assert office.post("/api/queues/%2F/s/get", ALL).status == 400


# Look.


def test_a_look_takes_nothing_and_marks_nothing(office: Office) -> None:
    put_durable(office, b"1", b"2", b"3")
    response = office.ask("GET", PEEK + "?count=2")
    assert [(row["payload"], row["redelivered"]) for row in response.json] == [("1", False), ("2", False)]
    queue = office.host.queue("q")
    assert (queue.ready, queue.unsettled, queue.delivered) == (3, 0, 0)
    assert [row["redelivered"] for row in fetched(office)] == [False, False, False]


def test_a_look_sees_what_went_back_in_its_place(office: Office) -> None:
    put_durable(office, b"1", b"2", b"3")
    fetched(office, count=1)
    assert [row["payload"] for row in office.ask("GET", PEEK).json] == ["1", "2", "3"]


def test_a_look_is_bounded_and_passes_over_what_has_expired(office: Office) -> None:
    office.post(PUBLISH, said("late", expiration="10"))
    put_durable(office, b"x" * 100_000)
    office.site.clock.advance(1)
    office.broker.tick()
    (row,) = office.ask("GET", PEEK).json
    assert (len(row["payload"]), row["payload_bytes"]) == (65_536, 100_000)
    assert len(office.ask("GET", PEEK + "?truncate=10").json[0]["payload"]) == 10
    for query in ("count=0", "count=1001", "truncate=-1", "x=1", "encoding=zip"):
        assert office.ask("GET", f"{PEEK}?{query}").status == 400
    assert office.ask("GET", PEEK, user="clerk").status == 403


def test_streams_are_looked_at_from_an_offset_on(office: Office) -> None:
    office.queue("s", x_queue_type="stream")
    put_durable(office, b"0", b"1", b"2", b"3", queue="s")
    path = "/api/leveret/queues/%2F/s/peek"

    def seen(query: str) -> list[tuple[int, str]]:
        return [(row["offset"], row["payload"]) for row in office.get(path + query)]

    whole = [(0, "0"), (1, "1"), (2, "2"), (3, "3")]
    assert seen("") == whole
    assert seen("?offset=1&count=2") == whole[1:3]
    assert seen("?offset=3") == whole[3:]
    assert seen("?offset=4") == []
    for query in ("?offset=-1", "?offset=x", f"?offset={1 << 63}"):
        assert office.ask("GET", path + query).status == 400


def test_a_look_at_a_stream_reads_from_the_disk_what_is_there_only(office: Office) -> None:
    office.queue("s", x_queue_type="stream")
    bodies = [b"%d" % number for number in range(100)]
    put_durable(office, *bodies, queue="s")
    after = office.again()
    rows = after.get("/api/leveret/queues/%2F/s/peek?offset=90&count=5")
    assert [row["payload"] for row in rows] == ["90", "91", "92", "93", "94"]
    assert [row["offset"] for row in rows] == [90, 91, 92, 93, 94]
    assert len(after.get("/api/leveret/queues/%2F/s/peek?count=1000")) == 100


def test_a_look_at_a_stream_begins_where_retention_has_left_something(office: Office) -> None:
    office.queue("s", x_queue_type="stream", durable=False)
    put_durable(office, b"0", b"1", b"2", queue="s")
    stream = office.host.queue("s")
    assert isinstance(stream, StreamQueue)
    stream.log.drop_until(2)
    rows = office.get("/api/leveret/queues/%2F/s/peek?offset=0")
    assert [row["offset"] for row in rows] == list(range(stream.log.first, 3))


def test_a_look_is_over_when_the_stream_goes(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    office.queue("s", x_queue_type="stream")
    put_durable(office, b"0", queue="s")
    after = office.again()
    monkeypatch.setattr(MemoryStore, "read_soon", lambda *_: None)  # a disk that takes long
    asking = after.asking("GET", "/api/leveret/queues/%2F/s/peek")
    assert asking.waits
    after.host.delete_queue(after.host.queue("s"))
    assert asking.answer().status == 404


def test_only_streams_have_offsets_to_look_from(office: Office) -> None:
    response = office.ask("GET", PEEK + "?offset=0")
    assert response.status == 400
    assert "no stream" in str(response.reason)


# Drop.


def test_a_queue_is_purged_by_who_may_read_it(office: Office) -> None:
    put_durable(office, b"1", b"2")
    contents = "/api/queues/%2F/q/contents"
    assert office.delete(contents, user="clerk").status == 401
    assert office.host.queue("q").ready == 2
    assert office.delete(contents, user="maker").status == 204
    assert office.again().bodies() == ""
    assert told(office.delete("/api/queues/%2F/none/contents")) == (404, "Not Found")


def test_mirrors_are_always_in_step(office: Office) -> None:
    assert office.post("/api/queues/%2F/q/actions", {"action": "sync"}).status == 204
    assert told(office.post("/api/queues/%2F/q/actions", {"action": "x"})) == (400, ["unknown", "x"])
    assert office.post("/api/queues/%2F/none/actions", {"action": "sync"}).status == 404


# Move.


def test_messages_are_moved_in_order_with_all_they_say(office: Office) -> None:
    office.queue("q2")
    office.post(PUBLISH, said("1", delivery_mode=2, headers={"k": "v"}))
    put_durable(office, b"2", b"3")
    assert office.post(MOVE, {"to": "q2"}).json == {"moved": 3, "left": 0}
    assert (office.bodies(), office.bodies("q2")) == ("", "1 2 3")
    (first, *_) = office.host.queue("q2").waiting()
    assert (first.message.headers, first.message.exchange, first.message.key) == ({"k": "v"}, "", "q")
    assert (office.again().bodies("q2"), office.again().bodies()) == ("1 2 3", "")
    put_durable(office, b"4", b"5")
    assert office.post(MOVE, {"to": "q2", "count": 1}).json == {"moved": 1, "left": 1}


@pytest.mark.parametrize("steps", range(8))
def test_after_a_crash_each_message_is_in_one_of_the_two(
    office: Office, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "PORTION", 3)
    office.queue("q2")
    put_durable(office, *[b"%d" % number for number in range(10)])
    office.asking("POST", MOVE, b'{"to": "q2"}')
    for _ in range(steps):
        office.site.advance(move.PAUSE_S)
    after = office.again()
    moved, left = after.bodies("q2").split(), after.bodies().split()
    assert [*moved, *left] == [str(number) for number in range(10)]
    assert steps < 4 or moved


def test_a_move_ends_where_there_is_no_room(office: Office) -> None:
    office.queue("q2", x_max_length=2, x_overflow="reject-publish")
    put_durable(office, b"1", b"2", b"3")
    assert office.post(MOVE, {"to": "q2"}).json == {"moved": 2, "left": 1}
    assert (office.bodies(), office.host.queue("q").unsettled) == ("3", 0)
    (kept,) = office.host.queue("q").waiting()
    assert (kept.redelivered, kept.attempts) == (False, 0)


def test_who_hangs_up_ends_a_move(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "PORTION", 3)
    office.queue("q2")
    put_durable(office, *[b"x"] * 10)
    office.asking("POST", MOVE, b'{"to": "q2"}').hang_up()
    for _ in range(10):
        office.site.advance(1)
    assert 0 < office.host.queue("q2").ready < 10
    assert office.host.queue("q").ready + office.host.queue("q2").ready == 10


def test_a_move_needs_to_read_here_and_to_write_there(office: Office) -> None:
    for name in ("q2", "z"):
        office.queue(name)
    put_durable(office, b"1")
    assert office.post(MOVE, {"to": "z"}, "maker").status == 403
    assert office.post(MOVE, {"to": "q2"}, "clerk").status == 403
    assert office.post("/api/leveret/queues/%2F/z/move", {"to": "q2"}, "maker").status == 403
    assert office.bodies() == "1"
    assert office.post(MOVE, {"to": "q2"}, "maker").json == {"moved": 1, "left": 0}


def test_what_would_lose_messages_is_no_place_to_move_them_to(office: Office) -> None:
    selector = compile_selector("color = 'red'")
    assert isinstance(office.host.declare_queue("sieve", durable=True, selector=selector), FilteredQueue)
    put_durable(office, b"1")
    for to in ("q", "sieve"):
        assert office.post(MOVE, {"to": to}).status == 400
    assert office.post(MOVE, {"to": "none"}).status == 404
    assert office.bodies() == "1"
