"""Dead lettering (§7 of the acceptance list): why messages die, where they go then, and what they carry with them."""

from __future__ import annotations

from struct import pack

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, ByteArray, FieldTable, FieldValue, Timestamp
from tests.amqp091.peer import channel_of, with_queue
from tests.harness.bench import ClientBench, StoredBench

from .endings import Step
from .peer import ClientChannel, Content

WALL = 1_000_000_000  # the time at which a bench begins, seconds since 1970


def dying(
    arguments: FieldTable | None = None,
    bench: ClientBench | None = None,
    name: str = "q",
    **properties: object,
) -> ClientChannel:
    """A channel, the queue `q` bound to amq.direct, and `dead`, which gets its dead letters through `dlx`."""
    channel = channel_of(bench)
    channel.exchange("dlx", "fanout")
    channel.declare("dead")
    channel.bind("dead", "dlx")
    channel.declare(name, arguments={"x-dead-letter-exchange": "dlx", **(arguments or {})}, **properties)
    channel.bind(name, "amq.direct", "k")
    return channel


def publish(channel: ClientChannel, body: bytes = b"x", key: str = "k", **properties: object) -> None:
    channel.publish("amq.direct", key, body, BasicProperties(**properties))  # type: ignore[arg-type]


def reject(channel: ClientChannel, queue: str = "q") -> Content:
    content = channel.get(queue, no_ack=False)
    assert content is not None
    channel.reject(content.method.delivery_tag)
    return content


def headers(channel: ClientChannel, queue: str = "dead") -> FieldTable:
    content = channel.get(queue)
    assert content is not None
    return content.properties.headers or {}


def deaths(channel: ClientChannel, queue: str = "dead") -> list[FieldTable]:
    found = headers(channel, queue)["x-death"]
    assert isinstance(found, list)
    return found  # type: ignore[return-value]


# Reasons.


def rejected(channel: ClientChannel) -> None:
    publish(channel)
    reject(channel)


def expired(channel: ClientChannel) -> None:
    publish(channel, expiration="1000")
    channel.peer.bench.advance(1)


def too_many(channel: ClientChannel) -> None:
    for _ in range(3):
        publish(channel)


def tried_too_often(channel: ClientChannel) -> None:
    publish(channel)
    for _ in range(2):
        content = channel.get("q", no_ack=False)
        assert content is not None
        channel.nack(content.method.delivery_tag)


@pytest.mark.parametrize(
    ("arguments", "cause", "reason"),
    [
        ({}, rejected, "rejected"),
        ({}, expired, "expired"),
        ({"x-max-length": 2}, too_many, "maxlen"),
        ({"x-max-length": 2, "x-overflow": "reject-publish-dlx"}, too_many, "maxlen"),
        ({"x-delivery-limit": 1}, tried_too_often, "delivery_limit"),
    ],
)
def test_x030_there_are_four_reasons(arguments: FieldTable, cause: Step, reason: str) -> None:
    channel = dying(arguments)
    cause(channel)
    content = channel.get("dead")
    assert content is not None
    assert (content.method.exchange, content.method.routing_key) == ("dlx", "k")
    assert content.method.redelivered is False
    found = content.properties.headers or {}
    [death] = found["x-death"]
    assert death["reason"] == found["x-first-death-reason"] == found["x-last-death-reason"] == reason


def test_x030_reject_publish_nacks_without_a_dead_letter_and_its_sibling_with_one() -> None:
    for overflow, count in (("reject-publish", 0), ("reject-publish-dlx", 1)):
        channel = dying({"x-max-length": 0, "x-overflow": overflow})
        channel.confirms()
        publish(channel)
        assert channel.all() == [m.BasicNack(1, False, False)]
        assert len(channel.bodies("dead")) == count


def test_dead_letters_arrive_in_the_order_of_dying() -> None:
    channel = dying({"x-message-ttl": 1000})
    for number in range(10):
        publish(channel, str(number).encode())
    for _ in range(2):
        reject(channel)
    channel.peer.bench.advance(5)
    assert b"".join(channel.bodies("dead")) == b"0123456789"


# Where to.


def test_x031_the_original_keys_hold_also_those_of_cc_and_bcc() -> None:
    channel = channel_of()
    channel.exchange("dlx", "direct")
    channel.declare("q", arguments={"x-dead-letter-exchange": "dlx"})
    for key in ("q", "cc", "bcc", "other"):
        channel.declare(f"dead-{key}")
        channel.bind(f"dead-{key}", "dlx", key)
    channel.publish("", "q", b"x", BasicProperties(headers={"CC": ["cc"], "BCC": ["bcc"]}))
    reject(channel)
    assert [len(channel.bodies(f"dead-{key}")) for key in ("q", "cc", "bcc", "other")] == [1, 1, 1, 0]


def test_x031_x036_the_keys_on_record_are_those_one_can_see() -> None:
    channel = dying()
    publish(channel, headers={"CC": ["cc1", "cc2"], "BCC": ["bcc"]})
    reject(channel)
    found = headers(channel)
    assert found["x-death"][0]["routing-keys"] == ["k", "cc1", "cc2"]
    assert found["CC"] == ["cc1", "cc2"]
    assert "BCC" not in found


def test_x031_a_routing_key_of_the_queue_replaces_them_all_and_cc_goes() -> None:
    channel = channel_of()
    channel.exchange("dlx", "direct")
    channel.declare("q", arguments={"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "new"})
    for key in ("q", "cc", "bcc", "new"):
        channel.declare(f"dead-{key}")
        channel.bind(f"dead-{key}", "dlx", key)
    channel.publish("", "q", b"x", BasicProperties(headers={"a": 1, "CC": ["cc"], "BCC": ["bcc"]}))
    reject(channel)
    assert [channel.peer.bench.queue(f"dead-{key}").ready for key in ("q", "cc", "bcc")] == [0, 0, 0]
    content = channel.get("dead-new")
    assert content is not None
    assert (content.method.exchange, content.method.routing_key) == ("dlx", "new")
    found = content.properties.headers or {}
    assert "CC" not in found
    assert found["a"] == 1
    assert found["x-death"][0]["routing-keys"] == ["q", "cc"]


def test_x031_the_argument_beats_the_policy() -> None:
    bench = ClientBench()
    bench.policy("^q", {"dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": "of policy"})
    channel = dying(bench=bench)
    channel.declare("by policy")
    channel.bind("by policy", "amq.fanout")
    publish(channel)
    reject(channel)
    content = channel.get("dead")
    assert content is not None
    assert content.method.routing_key == "of policy"  # on which the queue itself says nothing
    assert channel.get("by policy") is None
    channel.declare("q2")
    channel.publish("", "q2")
    reject(channel, "q2")
    assert channel.get("by policy") is not None


def test_a_policy_holds_for_what_dies_after_it() -> None:
    channel = with_queue()
    channel.declare("dead")
    for _ in range(2):
        channel.publish("", "q")
    reject(channel)
    channel.peer.bench.policy("^q$", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"})
    reject(channel)
    assert len(channel.bodies("dead")) == 1


def test_x038_a_missing_dead_letter_exchange_drops_the_message() -> None:
    channel = dying()
    channel.does(m.ExchangeDelete("dlx"))
    publish(channel)
    reject(channel)
    assert channel.get("q") is None
    assert channel.all() == []


def test_x039_dead_letters_take_the_alternate_like_a_publish() -> None:
    channel = channel_of()
    channel.exchange("ae", "fanout")
    channel.exchange("dlx", "direct", arguments={"alternate-exchange": "ae"})
    channel.declare("dead")
    channel.bind("dead", "ae")
    channel.declare("q", arguments={"x-dead-letter-exchange": "dlx"})
    channel.publish("", "q")
    reject(channel)
    content = channel.get("dead")
    assert content is not None
    assert (content.method.exchange, content.method.routing_key) == ("dlx", "q")


def test_dead_letters_pass_an_internal_exchange_and_need_no_permission_of_anybody() -> None:
    bench = ClientBench()
    channel = channel_of(bench)
    channel.exchange("hidden", "fanout", internal=True)
    channel.declare("dead")
    channel.bind("dead", "hidden")
    channel.declare("q", arguments={"x-dead-letter-exchange": "hidden"})
    channel.publish("", "q")
    consumer = channel_of(bench, bench.user("u", configure="^$", write="^$", read="^q$"))
    reject(consumer)
    assert len(channel.bodies("dead")) == 1


@pytest.mark.parametrize("arguments", [{}, {"x-expires": 1000}])
def test_x040_deletion_and_disuse_of_a_queue_do_not_dead_letter(arguments: FieldTable) -> None:
    channel = dying(arguments)
    publish(channel)
    if arguments:
        channel.peer.bench.advance(1)
    else:
        channel.does(m.QueueDelete("q"))
    assert "q" not in channel.peer.bench.host.queues
    assert channel.get("dead") is None


def test_x040_purging_does_not_either() -> None:
    channel = dying()
    publish(channel)
    channel.does(m.QueuePurge("q"))
    assert channel.get("dead") is None


def test_x040_in_the_spec_profile_deletion_does() -> None:
    channel = dying(bench=ClientBench('[compat]\nprofile = "spec"'))
    for body in (b"1", b"2"):
        publish(channel, body)
    channel.does(m.QueueDelete("q"))
    assert channel.bodies("dead") == [b"1", b"2"]


# What they carry.


def test_x032_the_record_of_a_death() -> None:
    channel = dying()
    channel.peer.bench.advance(7)
    publish(channel, expiration="2000", headers={"a": 1})
    channel.peer.bench.advance(3)
    assert deaths(channel) == [
        {
            "count": 1,
            "reason": "expired",
            "queue": "q",
            "time": Timestamp(WALL + 10),
            "exchange": "amq.direct",
            "routing-keys": ["k"],
            "original-expiration": "2000",
        }
    ]


def test_x032_the_types_of_its_fields() -> None:
    channel = dying()
    publish(channel)
    reject(channel)
    content = channel.get("dead")
    assert content is not None
    raw = content.raw_properties
    assert b"\x07x-deathA" in raw
    assert b"\x05countl" + pack(">q", 1) in raw
    assert b"\x04timeT" + pack(">Q", WALL) in raw
    assert b"\x06reasonS" + pack(">I", 8) + b"rejected" in raw
    assert b"\x05queueS" + pack(">I", 1) + b"q" in raw
    assert b"\x0crouting-keysA" + pack(">I", 6) + b"S\x00\x00\x00\x01k" in raw
    assert b"original-expiration" not in raw


def test_x032_the_newest_death_comes_first() -> None:
    channel = dying({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "second"})
    channel.declare(
        "second",
        arguments={"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "end", "x-message-ttl": 5},
    )
    publish(channel)
    reject(channel)
    channel.peer.bench.advance(1)
    first, second = deaths(channel)
    assert (first["queue"], first["reason"], first["exchange"], first["routing-keys"]) == (
        "second",
        "expired",
        "",
        ["second"],
    )
    assert (second["queue"], second["reason"], second["exchange"], second["routing-keys"]) == (
        "q",
        "rejected",
        "amq.direct",
        ["k"],
    )


def test_x033_dying_again_the_same_way_counts_and_comes_to_the_front() -> None:
    channel = dying({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "second"})
    channel.declare("second", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    publish(channel)
    for _ in range(3):
        reject(channel)
        channel.peer.bench.advance(1)
        reject(channel, "second")
        channel.peer.bench.advance(1)
    last, before = deaths(channel, "q")
    assert (last["queue"], last["count"], last["time"]) == ("second", 3, WALL + 1)
    assert (before["queue"], before["count"], before["time"]) == ("q", 3, WALL)
    assert before["exchange"] == "amq.direct"  # of the first time
    publish(channel)


def test_x033_another_reason_is_another_entry() -> None:
    channel = dying(
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "second", "x-delivery-limit": 0}
    )
    channel.declare("second", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    publish(channel)
    reject(channel)
    reject(channel, "second")
    content = channel.get("q", no_ack=False)
    assert content is not None
    channel.nack(content.method.delivery_tag)
    assert [(each["queue"], each["reason"], each["count"]) for each in deaths(channel, "second")] == [
        ("q", "delivery_limit", 1),
        ("second", "rejected", 1),
        ("q", "rejected", 1),
    ]


def test_x034_the_first_death_stays_and_the_last_one_changes() -> None:
    channel = dying({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "second"})
    channel.declare("second", arguments={"x-dead-letter-exchange": "dlx", "x-message-ttl": 5})
    publish(channel)
    reject(channel)
    channel.peer.bench.advance(1)
    found = headers(channel)
    assert {name: value for name, value in found.items() if name != "x-death"} == {
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "q",
        "x-first-death-exchange": "amq.direct",
        "x-last-death-reason": "expired",
        "x-last-death-queue": "second",
        "x-last-death-exchange": "",
    }


def test_x035_the_expiration_is_gone_and_kept_on_record() -> None:
    channel = dying()
    publish(channel, expiration="1000", message_id="7")
    channel.peer.bench.advance(1)
    channel.peer.bench.advance(100)  # it does not die again
    content = channel.get("dead")
    assert content is not None
    assert (content.properties.expiration, content.properties.message_id) == (None, "7")
    assert (content.properties.headers or {})["x-death"][0]["original-expiration"] == "1000"


def test_x035_also_if_it_died_of_something_else() -> None:
    channel = dying()
    publish(channel, expiration="1000")
    reject(channel)
    channel.peer.bench.advance(100)
    [death] = deaths(channel)
    assert (death["reason"], death["original-expiration"]) == ("rejected", "1000")


def test_what_publishers_write_into_these_headers_is_replaced() -> None:
    channel = dying()
    publish(channel, headers={"x-death": "mine", "x-first-death-queue": "mine", "x-other": "kept"})
    reject(channel)
    found = headers(channel)
    assert len(found["x-death"]) == 1
    assert (found["x-first-death-queue"], found["x-other"]) == ("q", "kept")


def test_a_message_published_again_by_a_client_begins_a_new_life() -> None:
    channel = dying()
    publish(channel)
    reject(channel)
    found = headers(channel)
    publish(channel, headers=found)
    reject(channel)
    [death] = deaths(channel)
    assert death["count"] == 1


# Who may say so.


@pytest.mark.parametrize("name", ["dlx", ByteArray(b"dlx")])
def test_s079_however_the_exchange_is_written_its_permissions_are_asked_for(name: FieldValue) -> None:
    bench = ClientBench()
    channel_of(bench).exchange("dlx")
    channel = channel_of(bench, bench.user("u", write="^q$"))
    method = m.QueueDeclare("q", arguments={"x-dead-letter-exchange": name})
    text = "403 ACCESS_REFUSED - write access to exchange 'dlx' in vhost '/' refused for user 'u'"
    assert channel.closed_with(method) == text


# At least once (tests/core/queues/test_held_dead_letters.py has the rest).

HELD: FieldTable = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


def test_dead_letters_at_least_once_wait_for_the_commit_and_then_for_room() -> None:
    channel = channel_of(None)
    channel.declare("dead", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    to_dead: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.declare("q", arguments={**to_dead, **HELD})
    for body in (b"a", b"b"):
        channel.publish("", "q", body)
    channel.call(m.TxSelect())
    reject(channel)
    reject(channel)
    queue = channel.peer.bench.queue("q")
    assert (queue.unsettled, queue.dead_letters) == (2, None)
    channel.call(m.TxCommit())
    assert queue.dead_letters is not None
    assert (queue.unsettled, queue.dead_letters.count) == (0, 1)
    assert deaths(channel)[0]["reason"] == "rejected"
    assert queue.dead_letters.count == 0
    assert channel.bodies("dead") == [b"b"]


# What clients publish again.


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
@pytest.mark.parametrize(
    ("toml", "count"), [('profile = "rabbitmq-3.13"', 3), ("", 1), ('profile = "rabbitmq-4.2"', 1)]
)
def test_x033_deaths_that_a_client_publishes_again_count_on_as_in_rabbitmq_3(
    toml: str, count: int, queue_type: str
) -> None:
    channel = dying({"x-queue-type": queue_type}, ClientBench(f"[compat]\n{toml}"), durable=True)
    publish(channel)
    for _ in range(3):
        reject(channel)
        content = channel.get("dead")
        assert content is not None
        (death,) = content.properties.headers["x-death"]
        publish(channel, headers=content.properties.headers)
    assert (death["count"], death["queue"], death["reason"]) == (count, "q", "rejected")
    assert content.properties.headers["x-first-death-queue"] == "q"


@pytest.mark.parametrize(
    "told", [7, "x", [], [7], [{}], [{"queue": 1, "reason": "rejected"}], [{"queue": "q", "reason": b"\xff"}]]
)
def test_an_x_death_that_is_none_is_passed_over(told: FieldValue) -> None:
    channel = dying(bench=ClientBench("[compat]\nrepublished_deaths = true"))
    publish(channel, headers={"x-death": told})
    reject(channel)
    (death,) = deaths(channel)
    assert (death["count"], death["exchange"], death["routing-keys"]) == (1, "amq.direct", ["k"])


def test_an_x_death_that_lacks_much_is_counted_on() -> None:
    channel = dying(bench=ClientBench("[compat]\nrepublished_deaths = true"))
    publish(channel, headers={"x-death": [{"queue": "q", "reason": "rejected", "count": "2", "time": 5}]})
    reject(channel)
    (death,) = deaths(channel)
    assert death["count"] == 2


@pytest.mark.parametrize(
    ("told", "shown"), [("60000", "60000"), ("9" * 5000, None), ("9" * 15, None), ("soon", None)]
)
def test_an_expiration_in_an_x_death_is_one_that_a_message_can_have(told: str, shown: str | None) -> None:
    channel = dying(bench=ClientBench("[compat]\nrepublished_deaths = true"))
    death = {"queue": "other", "reason": "expired", "original-expiration": told}
    publish(channel, headers={"x-death": [death]})
    reject(channel)
    _, before = deaths(channel)
    assert before.get("original-expiration") == shown


# At least once.


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_dead_letters_on_disk_go_past_those_whose_target_is_full_and_after_a_start_too(
    queue_type: str,
) -> None:
    bench = StoredBench()
    channel = channel_of(bench)
    channel.exchange("dlx", durable=True)
    held = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    arguments = {"x-queue-type": queue_type, "x-dead-letter-exchange": "dlx", **held}
    channel.declare("q", durable=True, arguments=arguments)
    channel.declare("full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.declare("free", durable=True)
    for name in ("full", "free"):
        channel.bind(name, "dlx", name)
        channel.bind("q", "amq.direct", name)

    def die(channel: ClientChannel, keys: list[str]) -> None:
        for number, key in enumerate(keys):
            body = b"%d" % number
            channel.publish("amq.direct", key, body, BasicProperties(delivery_mode=2), settle=False)
        channel.consume("q", "t")
        deliveries = channel.deliveries()
        assert len(deliveries) == len(keys)
        channel.nack(0, multiple=True, requeue=False)
        channel.does(m.BasicCancel("t"))

    die(channel, 2000 * ["full"] + 100 * ["full", "free"])
    letters = channel.peer.bench.queue("q").dead_letters
    assert letters is not None
    while letters.page_out(0):
        bench.settle()
    settled_down(bench)
    assert (bench.queue("free").ready, letters.count) == (100, 2099)
    bench = bench.again()
    channel = channel_of(bench)
    die(channel, ["full", "free"])
    settled_down(bench)
    assert bench.queue("free").ready == 101
    got: list[int] = []
    while (content := channel.get("full")) is not None:
        got.append(int(content.body))
        settled_down(bench)
    assert got == [*range(2000), *range(2000, 2200, 2), 0]
    assert [int(body) for body in channel.bodies("free")] == [*range(2001, 2200, 2), 1]


def settled_down(bench: ClientBench) -> None:
    """One turn after the other, as long as one is due soon."""
    while (at := bench.broker.timers.next_at()) is not None and at <= bench.broker.now + 0.1:
        bench.advance(0.01)
