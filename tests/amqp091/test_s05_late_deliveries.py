"""A delivery that is not answered in time goes back to its queue, and may be renewed until then (X028)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.delivery import Consumer
from leveret.protocols.amqp091.broker.ack_timeouts import LATE_MAX, LateTags
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import FieldTable, Method
from tests.harness.bench import ClientBench

from .peer import CAPABILITIES, ClientChannel, Content, channel_of
from .test_s05_limits import TIMED_OUT, publish, queue, text, waiting


def late(prefetch: int = 2, arguments: FieldTable | None = None) -> ClientChannel:
    """A channel whose consumer has not answered `a` (and `b`) for 5 s, and another channel that found them back."""
    channel = queue({"x-consumer-timeout": 5000, **(arguments or {})})
    channel.prefetch(prefetch)
    publish(channel, *"abc")
    channel.consume("q", "slow")
    assert text(channel.deliveries()) == " ".join("abc"[:prefetch])
    channel.peer.bench.advance(5)
    return channel


def test_x028_by_default_a_late_delivery_goes_back_and_its_consumer_stays() -> None:
    channel = late(1)
    assert channel.all() == []
    bench = channel.peer.bench
    assert (bench.queue("q").ready, bench.queue("q").unsettled) == (3, 0)
    other = channel.peer.channel(2)
    found = other.get("q", no_ack=False)
    assert found is not None
    assert (found.body, found.method.redelivered) == (b"a", True)


TYPES = pytest.mark.parametrize("type_", ["classic", "quorum"])


def lined_up(type_: str, toml: str = "", **properties: object) -> tuple[ClientChannel, ClientChannel]:
    """Two consumers of which the first has `a`, and hangs."""
    arguments = {
        "x-consumer-timeout": 5000,
        "x-queue-type": type_,
        **({} if properties else {"x-single-active-consumer": True}),
    }
    channel = queue(arguments, bench=ClientBench(toml), durable=True)
    channel.prefetch(1)
    publish(channel, *"abc")
    channel.consume("q", "hangs", **properties)
    assert text(channel.deliveries()) == "a"
    other = channel_of(channel.peer.bench)
    other.prefetch(1)
    return channel, other


@pytest.mark.parametrize(
    ("type_", "profile"),
    [
        ("classic", "default"),
        ("quorum", "default"),
        ("classic", "rabbitmq-3.13"),
        ("quorum", "rabbitmq-3.13"),
        ("quorum", "rabbitmq-4.3"),  # classic queues have no timeout there
    ],
)
def test_s083_x028_a_single_active_consumer_that_hangs_is_replaced(type_: str, profile: str) -> None:
    channel, other = lined_up(type_, f'compat.profile = "{profile}"')
    other.consume("q", "waits")
    channel.peer.bench.advance(4)
    assert other.deliveries() == []
    channel.peer.bench.advance(1)
    for body in "abc":
        [found] = other.deliveries()
        assert found.body == body.encode()
        other.ack(found.method.delivery_tag)
    if profile == "default":
        channel.ack(1)  # late, and ignored: it is not its turn
        assert channel.all() == []
        other.call(m.BasicCancel("waits"))
        publish(other, "d")
        assert text(channel.deliveries()) == "d"


@TYPES
def test_x028_an_exclusive_consumer_that_hangs_is_ended(type_: str) -> None:
    channel, other = lined_up(type_, exclusive=True)
    assert other.peer.channel(2).closed_with(m.BasicConsume("q")).startswith("403 ACCESS_REFUSED")
    channel.peer.bench.advance(5)
    assert channel.all() == [m.BasicCancel("hangs", no_wait=True)]
    other.consume("q", "next", exclusive=True)
    assert text(other.deliveries()) == "a"
    channel.ack(1)  # late, and ignored
    assert channel.all() == []


def test_x028_an_exclusive_consumer_of_a_client_without_cancellation_is_ended_with_its_channel() -> None:
    channel, other = lined_up("classic", exclusive=True)
    channel.peer.front.wire.client_properties = {}
    channel.peer.bench.advance(5)
    assert channel.refusal() == TIMED_OUT.format(5000)
    other.consume("q", "next", exclusive=True)
    assert text(other.deliveries()) == "a"


def test_x028_what_other_consumers_of_the_channel_have_late_is_requeued() -> None:
    channel, _ = lined_up("classic", exclusive=True)
    channel.declare("r", arguments={"x-consumer-timeout": 5000})
    channel.consume("r", "shares")
    channel.publish("", "r", b"r")
    assert text(channel.deliveries()) == "r"
    channel.peer.bench.advance(5)
    assert channel.all() == [m.BasicCancel("hangs", no_wait=True)]
    assert (channel.peer.bench.queue("r").ready, channel.peer.bench.queue("q").ready) == (1, 3)


def test_x028_a_late_answer_is_ignored_and_the_next_message_comes() -> None:
    channel = late(1)
    other = channel.peer.channel(2)
    assert other.get("q") is not None
    channel.ack(1)
    content = channel.next()
    assert isinstance(content, Content)
    assert (content.body, content.method.delivery_tag) == (b"b", 2)
    assert channel.peer.bench.queue("q").accepted == 1  # what the other has fetched
    assert channel.closed_with(m.BasicAck(1)) == "406 PRECONDITION_FAILED - unknown delivery tag 1"


@pytest.mark.parametrize(
    "answer",
    [
        m.BasicAck(2, multiple=True),
        m.BasicNack(2, multiple=True, requeue=True),
        m.BasicNack(0, multiple=True, requeue=False),
        m.BasicRecoverAsync(True),
    ],
)
def test_x028_an_answer_for_all_covers_late_ones_and_gives_their_credit_back(answer: Method) -> None:
    channel = late(2)
    other = channel.peer.channel(2)
    assert [found and found.body for found in (other.get("q") for _ in range(3))] == [b"a", b"b", b"c"]
    publish(other, "d", "e", "f")
    assert channel.all() == []  # no credit before an answer
    channel.send(answer)
    assert text(channel.deliveries()) == "d e"


def test_x028_only_the_late_one_goes_back() -> None:
    channel = queue({"x-consumer-timeout": 5000})
    publish(channel, "a")
    channel.consume("q", "slow")
    channel.peer.bench.advance(3)
    publish(channel, "b")
    assert text(channel.deliveries()) == "a b"
    channel.does(m.BasicCancel("slow"))
    channel.peer.bench.advance(2)
    queue_ = channel.peer.bench.queue("q")
    assert (queue_.ready, queue_.unsettled) == (1, 1)
    channel.ack(2)
    assert queue_.accepted == 1


def test_x028_a_late_delivery_counts_as_returned_and_as_an_attempt() -> None:
    channel = late(1, {"x-delivery-limit": 0})
    assert waiting(channel, "dead") == "a"
    facts = next(iter(channel.peer.front.channel_facts()))
    assert (facts.unsettled, facts.accepted) == (0, 0)


def test_x028_a_late_fetch_goes_back_too() -> None:
    channel = queue({"x-consumer-timeout": 5000})
    publish(channel, "a")
    channel.get("q", no_ack=False)
    channel.peer.bench.advance(5)
    assert channel.peer.bench.queue("q").ready == 1
    channel.ack(1)
    assert channel.all() == []


def test_x028_prefetch_that_is_shared_counts_late_ones_until_they_are_answered() -> None:
    channel = queue({"x-consumer-timeout": 5000})
    channel.does(m.BasicQos(prefetch_count=1, global_=True))
    publish(channel, "a")
    channel.consume("q")
    channel.consume("q", "other")
    assert text(channel.deliveries()) == "a"
    channel.peer.bench.advance(5)
    channel.does(m.BasicQos(prefetch_count=1, global_=True))
    assert channel.all() == []
    channel.ack(1)
    assert text(channel.deliveries()) == "a"


def test_x028_what_a_transaction_has_answered_is_not_late_until_it_is_rolled_back() -> None:
    channel = queue({"x-consumer-timeout": 5000})
    channel.does(m.TxSelect())
    channel.publish("", "q", b"a")
    channel.does(m.TxCommit())
    channel.get("q", no_ack=False)
    channel.ack(1)
    channel.peer.bench.advance(60)
    assert channel.peer.bench.queue("q").unsettled == 1
    channel.does(m.TxRollback())
    channel.peer.bench.advance(2)
    assert channel.peer.bench.queue("q").unsettled == 0
    channel.ack(1)
    assert channel.all() == []


def test_x028_with_too_many_late_tags_the_channel_is_closed() -> None:
    channel = queue({"x-consumer-timeout": 5000})
    publish(channel, "a", "b")
    channel.consume("q")
    channel.deliveries()
    held = channel.peer.front.channels[1].late
    for tag in range(LATE_MAX - 2):
        held.add(1_000_000 + tag, None)
    channel.peer.bench.advance(5)
    assert text(channel.deliveries()) == "a b"  # again, as there is no prefetch
    channel.peer.bench.advance(6)
    assert channel.refusal() == TIMED_OUT.format(5000)


def renew(channel: ClientChannel, tag: str) -> None:
    channel.publish("amq.leveret.renew", tag, b"")


def test_x028_a_delivery_is_renewed_by_a_publish_of_its_tag() -> None:
    channel = queue({"x-consumer-timeout": 5000})
    channel.prefetch(2)
    publish(channel, "a", "b")
    channel.consume("q")
    assert text(channel.deliveries()) == "a b"
    for _ in range(4):
        channel.peer.bench.advance(4)
        renew(channel, "2")
    queue_ = channel.peer.bench.queue("q")
    assert (queue_.ready, queue_.unsettled) == (1, 1)  # `a` is back
    channel.ack(2)
    assert queue_.accepted == 1


def test_x028_all_deliveries_of_a_channel_are_renewed_at_once() -> None:
    channel = queue({"x-consumer-timeout": 5000})
    channel.prefetch(2)
    publish(channel, "a", "b")
    channel.consume("q")
    assert text(channel.deliveries()) == "a b"
    for _ in range(10):
        channel.peer.bench.advance(4)
        renew(channel, "all")
    assert channel.peer.bench.queue("q").unsettled == 2
    channel.ack(2, multiple=True)
    assert channel.peer.bench.queue("q").accepted == 2
    channel.peer.bench.advance(100)
    assert channel.all() == []


@pytest.mark.parametrize("tag", ["1", "7", "", "x", "-1", "all", "١"])
def test_x028_a_renewal_of_nothing_is_confirmed_and_returned_as_unroutable(tag: str) -> None:
    channel = late(1)
    channel.does(m.ConfirmSelect())
    channel.publish("amq.leveret.renew", tag, b"x", mandatory=True)
    returned, ack = channel.all()
    assert isinstance(returned, Content)
    assert returned.method == m.BasicReturn(m.NO_ROUTE, "NO_ROUTE", "amq.leveret.renew", tag)
    assert ack == m.BasicAck(1)
    assert channel.peer.bench.queue("q").ready == 3


def test_x028_a_renewal_is_confirmed_and_no_message() -> None:
    channel = queue({"x-consumer-timeout": 5000})
    publish(channel, "a")
    channel.get("q", no_ack=False)
    channel.does(m.ConfirmSelect())
    channel.publish("amq.leveret.renew", "1", b"x", mandatory=True)
    assert channel.all() == [m.BasicAck(1)]
    assert channel.peer.bench.queue("q").published == 1


def test_x028_in_a_transaction_a_renewal_takes_effect_at_once() -> None:
    channel = queue({"x-consumer-timeout": 5000})
    publish(channel, "a")
    channel.get("q", no_ack=False)
    channel.does(m.TxSelect())
    channel.peer.bench.advance(4)
    renew(channel, "1")
    channel.peer.bench.advance(4)
    assert channel.peer.bench.queue("q").unsettled == 1
    channel.publish("amq.leveret.renew", "2", b"", mandatory=True)
    assert len(channel.all()) == 1


def test_x028_no_exchange_can_have_that_name() -> None:
    channel = queue()
    assert channel.closed_with(m.ExchangeDeclare("amq.leveret.renew", "fanout")).startswith("403")


class Credited(Consumer):
    """A consumer that is nothing but an identity."""

    def room(self) -> int:
        return 0

    def deliver(self, deliveries: object) -> None: ...

    def cancelled(self) -> None: ...


STEPS = st.lists(st.tuples(st.sampled_from(["late", "one", "all"]), st.integers(1, 30)), max_size=80)


@given(STEPS)
def test_late_tags_are_answered_once_each_however_they_are_answered(steps: list[tuple[str, int]]) -> None:
    late, model = LateTags(), dict[int, Consumer]()
    consumer = Credited.__new__(Credited)
    for step, tag in steps:
        if step == "late":
            late.add(tag, consumer)
            model[tag] = consumer
        elif step == "all":
            gone = [each for each in model if each <= tag]
            assert len(late.answered(tag, True)) == len([model.pop(each) for each in gone])
        elif tag in model:
            assert late.answered(tag, False) == [model.pop(tag)]
        assert late.by_tag == model
        assert late.charged() == len(model)


def test_what_is_remembered_of_answered_late_tags_is_bounded() -> None:
    late = LateTags()
    late.add(1, None)
    for tag in range(2, 10_000):
        late.add(tag, None)
        late.answered(tag, False)
    assert len(late._heap) < 100


# Slow consumers, which are ended as late ones are.

SLOW: FieldTable = {
    "x-slow-consumer-threshold": 60,
    "x-slow-consumer-check-period": 10_000,
    "x-slow-consumer-policy": "close",
}


def test_a_slow_consumer_is_cancelled_and_its_messages_go_back() -> None:
    channel = queue(SLOW)
    channel.prefetch(2)
    publish(channel, *"abcd")
    channel.consume("q", "slow")
    assert text(channel.deliveries()) == "a b"
    channel.peer.bench.advance(10)
    assert channel.all() == []
    channel.peer.bench.advance(10)
    assert channel.all() == [m.BasicCancel("slow", True)]
    bench = channel.peer.bench
    assert (bench.queue("q").ready, bench.queue("q").unsettled, bench.queue("q").consumers) == (4, 0, {})
    channel.ack(2, multiple=True)  # late, and ignored
    channel.consume("q", "again")
    assert text(channel.deliveries()) == "a b"


def test_a_channel_is_closed_whose_client_cannot_be_told_of_a_cancelled_consumer() -> None:
    channel = channel_of(capabilities={**CAPABILITIES, "consumer_cancel_notify": False})
    channel.declare("q", arguments=SLOW)
    channel.prefetch(1)
    publish(channel, *"ab")
    channel.consume("q", "slow")
    channel.deliveries()
    for _ in range(2):
        channel.peer.bench.advance(10)
    assert channel.refusal().startswith(
        "406 PRECONDITION_FAILED - queue 'q' in vhost '/': consumer 'slow' took 0"
    )
    assert channel.peer.bench.queue("q").ready == 2
