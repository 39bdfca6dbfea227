"""Queues and deliveries have bounds (§4 and §5 of the acceptance list): life, length, attempts, time to answer."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable
from tests.amqp091.peer import channel_of
from tests.harness.bench import ClientBench

from .peer import CAPABILITIES, ClientChannel, Content, Peer

QUORUM: FieldTable = {"x-queue-type": "quorum"}


def queue(
    arguments: FieldTable | None = None, bench: ClientBench | None = None, **properties: object
) -> ClientChannel:
    """A channel, the queue `q` with these arguments, and the queue `dead` for its dead letters."""
    channel = channel_of(bench)
    channel.declare("dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.declare("q", arguments={**dead, **(arguments or {})}, **properties)
    return channel


def publish(channel: ClientChannel, *bodies: str, ttl: int | None = None, settle: bool = True) -> None:
    properties = BasicProperties(expiration=None if ttl is None else str(ttl))
    for body in bodies:
        channel.publish("", "q", body.encode(), properties, settle=settle)


def text(contents: list[Content]) -> str:
    return b" ".join(content.body for content in contents).decode()


def waiting(channel: ClientChannel, name: str = "q") -> str:
    return b" ".join(channel.bodies(name)).decode()


def reason(content: Content | None) -> object:
    assert content is not None
    return (content.properties.headers or {})["x-first-death-reason"]


# Time to live.


@pytest.mark.parametrize("arguments", [{"x-message-ttl": 0}, {}])
def test_s080_a_message_with_no_time_to_live_reaches_a_waiting_consumer_only(arguments: FieldTable) -> None:
    channel = queue(arguments)
    publish(channel, "early", ttl=0)
    assert waiting(channel) == ""
    channel.consume("q", "t")
    publish(channel, "in time", ttl=0)
    assert text(channel.deliveries()) == "in time"
    assert waiting(channel, "dead") == "early"


@pytest.mark.parametrize(("of_queue", "of_message"), [(1000, 3000), (3000, 1000), (1000, None), (None, 1000)])
def test_s080_the_lower_time_to_live_wins(of_queue: int | None, of_message: int | None) -> None:
    channel = queue({} if of_queue is None else {"x-message-ttl": of_queue})
    publish(channel, "a", ttl=of_message)
    channel.peer.bench.advance(0.999)
    assert channel.peer.bench.queue("q").ready == 1
    channel.peer.bench.advance(0.001)
    assert channel.peer.bench.queue("q").ready == 0
    assert reason(channel.get("dead")) == "expired"


def test_an_expired_message_behind_one_that_lives_is_found_at_the_head_and_never_delivered() -> None:
    channel = queue()
    publish(channel, "lives")
    publish(channel, "dies", ttl=10)
    publish(channel, "lives too")
    channel.peer.bench.advance(1)
    assert channel.peer.bench.queue("q").ready == 3
    assert channel.get("dead") is None
    assert waiting(channel) == "lives lives too"
    assert waiting(channel, "dead") == "dies"


def test_the_head_is_watched_whoever_comes_to_stand_there() -> None:
    channel = queue()
    publish(channel, "lives")
    publish(channel, "dies", ttl=10)
    channel.get("q", no_ack=False)
    channel.peer.bench.advance(0.02)
    assert channel.peer.bench.queue("q").ready == 0
    channel.nack(1)
    assert waiting(channel) == "lives"


def test_a_requeued_message_dies_when_it_would_have_died_anyway() -> None:
    channel = queue()
    publish(channel, "a", ttl=1000)
    channel.get("q", no_ack=False)
    channel.peer.bench.advance(5)
    assert channel.peer.bench.queue("q").unsettled == 1  # who has it may take his time
    channel.nack(1)
    assert waiting(channel) == ""
    assert reason(channel.get("dead")) == "expired"


def test_a_policy_shortens_the_life_of_what_comes_after_it() -> None:
    channel = queue()
    publish(channel, "before")
    channel.peer.bench.policy("^q$", {"message-ttl": 100})
    publish(channel, "after")
    channel.peer.bench.advance(1)
    assert waiting(channel) == "before"
    assert waiting(channel, "dead") == "after"


def test_s081_an_unused_queue_goes_and_its_messages_are_not_dead_lettered() -> None:
    channel = queue({"x-expires": 1000})
    publish(channel, "a")
    bench = channel.peer.bench
    bench.advance(0.9)
    channel.get("q", no_ack=False)
    channel.nack(1)
    bench.advance(0.9)
    channel.does(m.QueueDeclare("q", passive=True))
    bench.advance(0.9)
    channel.consume("q", "t")
    bench.advance(10)
    channel.does(m.BasicCancel("t"))
    assert text(channel.deliveries()) == "a"
    bench.advance(0.9)
    assert "q" in bench.host.queues
    bench.advance(0.1)
    assert "q" not in bench.host.queues
    assert waiting(channel, "dead") == ""


# Length.


def test_s082_the_oldest_go_when_there_are_too_many() -> None:
    channel = queue({"x-max-length": 2})
    publish(channel, "a", "b", "c", "d")
    assert waiting(channel) == "c d"
    assert waiting(channel, "dead") == "a b"


def test_s082_bodies_count_in_octets() -> None:
    channel = queue({"x-max-length-bytes": 10})
    publish(channel, "aaaa", "bbbb", "cc")
    assert channel.peer.bench.queue("q").ready == 3
    publish(channel, "d")
    assert waiting(channel) == "bbbb cc d"
    publish(channel, "e" * 11)
    assert waiting(channel) == ""


def test_s082_unanswered_messages_do_not_count() -> None:
    channel = queue({"x-max-length": 1})
    publish(channel, "a")
    channel.get("q", no_ack=False)
    publish(channel, "b")
    assert waiting(channel, "dead") == ""
    channel.nack(1)
    publish(channel, "c")
    assert waiting(channel) == "c"
    assert waiting(channel, "dead") == "a b"


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"])
def test_what_consumers_take_at_once_was_never_over_the_limit(overflow: str) -> None:
    channel = queue({"x-max-length": 1, "x-overflow": overflow})
    channel.confirms()
    channel.prefetch(3)
    channel.consume("q")
    publish(channel, "a", "b", "c", "d", settle=False)
    channel.peer.bench.settle()
    *deliveries, confirmed = channel.all()
    assert text(deliveries) == "a b c"
    assert confirmed == m.BasicAck(4, True)
    assert waiting(channel) == "d"


def test_a_queue_of_length_0_is_for_consumers_only() -> None:
    channel = queue({"x-max-length": 0})
    publish(channel, "a")
    assert waiting(channel, "dead") == "a"
    channel.consume("q", no_ack=True)
    publish(channel, "b")
    assert text(channel.deliveries()) == "b"


def test_a_policy_takes_away_what_is_too_much_at_once() -> None:
    channel = queue()
    publish(channel, "a", "b", "c")
    channel.peer.bench.policy("^q$", {"max-length": 1})
    assert channel.peer.bench.queue("q").ready == 1
    assert waiting(channel) == "c"


# Attempts.


def attempts(channel: ClientChannel, most: int = 100) -> list[object]:
    """Fetch and requeue until it is gone: x-delivery-count each time."""
    seen: list[object] = []
    while len(seen) < most and (content := channel.get("q", no_ack=False)) is not None:
        seen.append((content.properties.headers or {}).get("x-delivery-count"))
        channel.nack(content.method.delivery_tag)
    return seen


def test_a_delivery_limit_ends_the_attempts_on_a_classic_queue() -> None:
    channel = queue({"x-delivery-limit": 2})
    publish(channel, "a")
    assert attempts(channel) == [None, 1, 2]
    assert reason(channel.get("dead")) == "delivery_limit"


def test_a_delivery_limit_of_0_means_once() -> None:
    channel = queue({"x-delivery-limit": 0})
    publish(channel, "a")
    assert attempts(channel) == [None]


def test_without_one_a_classic_queue_tries_for_ever() -> None:
    channel = queue()
    publish(channel, "a")
    assert attempts(channel) == [None] * 100  # and its properties stay as they were sent


def test_a_quorum_queue_tries_twenty_times_again() -> None:
    channel = queue(QUORUM, durable=True)
    publish(channel, "a")
    assert len(attempts(channel)) == 21
    assert reason(channel.get("dead")) == "delivery_limit"


@pytest.mark.parametrize(
    ("profile", "arguments", "count"),
    [("spec", {}, 6), ("spec", QUORUM, 6), ("rabbitmq-3.13", QUORUM, 100), ("rabbitmq-4", QUORUM, 21)],
)
def test_profiles_have_limits_of_their_own(profile: str, arguments: FieldTable, count: int) -> None:
    channel = queue(arguments, ClientBench(f'[compat]\nprofile = "{profile}"'), durable=True)
    publish(channel, "a")
    assert len(attempts(channel)) == count


def test_a_quorum_queue_may_ask_for_no_limit() -> None:
    channel = queue({**QUORUM, "x-delivery-limit": -1}, durable=True)
    publish(channel, "a")
    assert attempts(channel) == [None] * 100  # and its properties stay as they were sent


@pytest.mark.parametrize(("asked", "policy", "count"), [(5, 2, 3), (2, 5, 3), (None, 3, 4)])
def test_of_argument_and_policy_the_lower_limit_holds(asked: int | None, policy: int, count: int) -> None:
    bench = ClientBench()
    bench.policy("^q$", {"delivery-limit": policy})
    channel = queue({} if asked is None else {"x-delivery-limit": asked}, bench)
    publish(channel, "a")
    assert len(attempts(channel)) == count


def test_a_lost_connection_is_an_attempt_too() -> None:
    channel = queue({"x-delivery-limit": 1})
    publish(channel, "a", "b")
    for _ in range(2):
        consumer = channel_of(channel.peer.bench)
        consumer.prefetch(1)
        consumer.consume("q")
        assert text(consumer.deliveries()) == "a"
        consumer.peer.drop()
    assert waiting(channel) == "b"
    assert waiting(channel, "dead") == "a"


# Time to answer.

TIMED_OUT = (
    "406 PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: {} ms. "
    "This timeout value can be configured, see consumer_timeout_ms"
)


CLOSING = '[compat]\nconsumer_timeout_response = "close-channel"\n'


def closing() -> ClientBench:
    return ClientBench(CLOSING)


def closes_after(channel: ClientChannel, seconds: float) -> None:
    """The channel is closed when this time has passed, and not before."""
    channel.peer.bench.advance(seconds - 1 / 64)
    channel.all()
    channel.peer.bench.advance(1 / 64)
    assert channel.refusal() == TIMED_OUT.format(int(seconds * 1000))


def test_x028_a_delivery_has_to_be_answered_in_half_an_hour() -> None:
    channel = queue(bench=closing())
    publish(channel, "a", "b")
    channel.consume("q")
    closes_after(channel, 1800)
    other = channel.peer.channel(2)
    content = other.get("q")
    assert content is not None
    assert content.method.redelivered


def test_x028_nobody_waits_for_the_answers_of_a_channel_that_has_gone() -> None:
    channel = queue(bench=closing())
    publish(channel, "a")
    channel.consume("q")
    timers = channel.peer.bench.broker.timers
    assert timers.next_at() is not None
    channel.does(m.ChannelClose())
    assert timers.next_at() is None


def test_x028_also_one_that_was_fetched() -> None:
    channel = queue(bench=closing())
    publish(channel, "a")
    channel.get("q", no_ack=False)
    closes_after(channel, 1800)


def test_x028_answers_in_time_keep_the_channel() -> None:
    channel = queue(bench=closing())
    channel.prefetch(1)
    channel.consume("q")
    for number in range(1, 6):
        publish(channel, "a")
        channel.peer.bench.advance(1700)
        channel.ack(number)
    assert len(channel.deliveries()) == 5
    channel.peer.bench.advance(10_000)
    assert channel.all() == []


def test_x028_what_needs_no_answer_has_all_the_time() -> None:
    channel = queue(bench=closing())
    channel.consume("q", no_ack=True)
    publish(channel, "a")
    channel.peer.bench.advance(100_000)
    assert len(channel.deliveries()) == 1


@pytest.mark.parametrize(
    ("of_queue", "of_policy", "of_consumer", "seconds"),
    [
        (60_000, None, None, 60),
        (None, 60_000, None, 60),
        (None, None, 60_000, 60),
        (60_000, 30_000, None, 30),
        (30_000, 60_000, None, 30),
        (60_000, 60_000, 90_000, 90),
        (0, None, 5_000, 5),
        (7_200_000, None, None, 7200),
    ],
)
def test_x028_queue_policy_and_consumer_may_say_how_long(
    of_queue: int | None, of_policy: int | None, of_consumer: int | None, seconds: int
) -> None:
    bench = closing()
    if of_policy is not None:
        bench.policy("^q$", {"consumer-timeout": of_policy})
    channel = queue({} if of_queue is None else {"x-consumer-timeout": of_queue}, bench)
    publish(channel, "a")
    channel.consume("q", arguments={} if of_consumer is None else {"x-consumer-timeout": of_consumer})
    closes_after(channel, seconds)


@pytest.mark.parametrize("place", ["node", "queue", "consumer"])
def test_x028_there_may_be_no_limit(place: str) -> None:
    bench = ClientBench(CLOSING + "[limits]\nconsumer_timeout_ms = 'unlimited'" if place == "node" else "")
    channel = queue({"x-consumer-timeout": 0} if place == "queue" else {}, bench)
    publish(channel, "a")
    channel.consume("q", arguments={"x-consumer-timeout": 0} if place == "consumer" else {})
    bench.advance(1_000_000)
    assert text(channel.deliveries()) == "a"


def test_x028_each_delivery_has_the_time_of_its_own_consumer() -> None:
    channel = queue(bench=closing())
    publish(channel, "a")
    channel.consume("q", "slow")
    channel.peer.bench.advance(10)
    channel.declare("r")
    channel.publish("", "r", b"b")
    channel.consume("r", "quick", arguments={"x-consumer-timeout": 5000})
    closes_after(channel, 5)


def test_x028_also_next_to_one_that_was_fetched_and_after_a_cancel() -> None:
    channel = queue(bench=closing())
    publish(channel, "a")
    channel.get("q", no_ack=False)
    channel.declare("r")
    channel.publish("", "r", b"b")
    channel.consume("r", "quick", arguments={"x-consumer-timeout": 5000})
    channel.does(m.BasicCancel("quick"))
    closes_after(channel, 5)


def test_x028_the_others_go_on_when_the_quick_one_has_answered() -> None:
    channel = queue(bench=closing())
    publish(channel, "a")
    channel.consume("q", "slow")
    channel.declare("r")
    channel.publish("", "r", b"b")
    channel.consume("r", "quick", arguments={"x-consumer-timeout": 5000})
    channel.ack(2)
    channel.peer.bench.advance(1799)
    channel.all()
    channel.peer.bench.advance(1)
    assert channel.refusal() == TIMED_OUT.format(1_800_000)


def test_x028_a_timeout_that_is_no_number_is_refused() -> None:
    channel = queue(bench=closing())
    method = m.BasicConsume("q", arguments={"x-consumer-timeout": "soon"})
    assert channel.closed_with(method).startswith(
        "406 PRECONDITION_FAILED - invalid arg 'x-consumer-timeout'"
    )


def rabbitmq_4() -> ClientBench:
    return ClientBench('[compat]\nprofile = "rabbitmq-4"')


def test_x028_in_the_rabbitmq_4_profile_classic_queues_know_no_timeout() -> None:
    channel = queue(bench=rabbitmq_4(), durable=True)
    publish(channel, "a")
    channel.consume("q")
    channel.peer.bench.advance(100_000)
    assert len(channel.deliveries()) == 1
    method = m.QueueDeclare("new", durable=True, arguments={"x-consumer-timeout": 1000})
    assert channel.closed_with(method) == (
        "406 PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue 'new' in vhost '/' "
        "of queue type rabbit_classic_queue"
    )


def slow_consumer(bench: ClientBench) -> ClientChannel:
    channel = queue({**QUORUM, "x-consumer-timeout": 5000}, bench, durable=True)
    channel.prefetch(2)
    publish(channel, "a", "b", "c")
    channel.consume("q", "slow")
    return channel


def test_x028_there_the_consumer_is_cancelled_and_what_it_had_goes_back() -> None:
    channel = slow_consumer(rabbitmq_4())
    assert text(channel.deliveries()) == "a b"
    channel.peer.bench.advance(5)
    assert channel.all() == [m.BasicCancel("slow", True)]
    other = channel.peer.channel(2)
    found = [other.get("q", no_ack=False) for _ in range(3)]
    assert [content and content.method.redelivered for content in found] == [True, True, False]
    channel.nack(1)  # too late, and no harm done
    channel.ack(2, multiple=True)
    assert channel.all() == []
    assert channel.closed_with(m.BasicAck(3)) == "406 PRECONDITION_FAILED - unknown delivery tag 3"
    assert channel.peer.bench.queue("q").unsettled == 3


def test_x028_there_a_client_that_cannot_be_told_loses_the_channel() -> None:
    bench = rabbitmq_4()
    slow_consumer(bench).peer.drop()
    capabilities = {**CAPABILITIES, "consumer_cancel_notify": False}
    channel = Peer(bench).open(capabilities=capabilities).channel()
    channel.consume("q", "slow")
    closes_after(channel, 5)


@pytest.mark.parametrize("toml", [CLOSING, '[compat]\nprofile = "rabbitmq-3.13"'])
def test_x028_a_channel_is_closed_for_every_client_where_the_profile_says_so(toml: str) -> None:
    channel = slow_consumer(ClientBench(toml))
    closes_after(channel, 5)
