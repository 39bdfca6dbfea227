"""Limits of queues from the client's side, §4 of the acceptance list: time, length, single consumers, policies."""

from __future__ import annotations

import pytest

from leveret.policy import ApplyTo, Policy
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable, FieldValue
from leveret.values import Table
from tests.amqp091.peer import opened, with_queue
from tests.harness.bench import ClientBench

from .peer import ClientChannel, Content, Peer


def limited(**limits: FieldValue) -> ClientChannel:
    """Queue `q` with these arguments, whose dead letters go to queue `dead`."""
    channel = opened()
    channel.declare("dead")
    arguments: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    arguments |= {f"x-{name.replace('_', '-')}": value for name, value in limits.items()}
    channel.declare("q", arguments=arguments)
    return channel


def fill(channel: ClientChannel, *bodies: bytes, ttl: str | None = None) -> None:
    for body in bodies:
        channel.publish("", "q", body, BasicProperties(expiration=ttl))


def reason(channel: ClientChannel) -> str:
    """Why the next dead letter died."""
    content = channel.get("dead")
    assert content is not None
    return str((content.properties.headers or {})["x-first-death-reason"])


# Time.


def test_s080_a_ttl_of_0_is_for_what_can_be_delivered_at_once() -> None:
    channel = limited(message_ttl=0)
    fill(channel, b"nobody there")
    assert channel.get("q") is None
    assert reason(channel) == "expired"
    channel.consume("q", "t", no_ack=True)
    fill(channel, b"at once")
    assert [content.body for content in channel.deliveries()] == [b"at once"]


def test_s080_an_expiration_of_0_likewise() -> None:
    channel = limited()
    fill(channel, b"nobody there", ttl="0")
    assert channel.get("q") is None
    assert reason(channel) == "expired"


@pytest.mark.parametrize(
    ("of_queue", "of_message", "lives_ms"), [(5000, "1000", 1000), (1000, "5000", 1000), (2000, None, 2000)]
)
def test_s080_of_the_queues_and_the_messages_ttl_the_lower_holds(
    of_queue: int, of_message: str | None, lives_ms: int
) -> None:
    channel = limited(message_ttl=of_queue)
    fill(channel, b"mortal", ttl=of_message)
    bench = channel.peer.bench
    bench.advance(lives_ms / 1000 - 0.001)
    assert bench.queue("q").ready == 1
    bench.advance(0.001)
    assert bench.queue("q").ready == 0
    assert reason(channel) == "expired"


def test_s080_a_message_that_is_out_with_a_consumer_does_not_expire() -> None:
    channel = limited(message_ttl=1000)
    fill(channel, b"out")
    channel.consume("q", "t")
    (delivered,) = channel.deliveries()
    channel.peer.bench.advance(10)
    channel.ack(delivered.method.fields()["delivery_tag"])
    assert channel.bodies("dead") == []


def test_s080_a_message_that_comes_back_too_late_expires_then() -> None:
    channel = limited(message_ttl=1000)
    fill(channel, b"late")
    channel.get("q", no_ack=False)
    channel.peer.bench.advance(10)
    channel.send(m.BasicReject(1, True))
    assert channel.get("q") is None
    assert reason(channel) == "expired"


def test_s081_a_queue_that_nobody_uses_goes_and_its_messages_with_it() -> None:
    channel = limited(expires=1000)
    bench = channel.peer.bench
    fill(channel, b"gone")
    bench.advance(0.999)
    assert "q" in bench.host.queues
    bench.advance(0.001)
    assert "q" not in bench.host.queues
    assert channel.bodies("dead") == []


@pytest.mark.parametrize(
    "use", [m.BasicGet("q", True), m.QueueDeclare("q", passive=True)], ids=["get", "declare"]
)
def test_s081_getting_and_declaring_are_using(use: m.BasicGet | m.QueueDeclare) -> None:
    channel = with_queue(arguments={"x-expires": 1000})
    bench = channel.peer.bench
    for _ in range(5):
        bench.advance(0.9)
        assert not isinstance(channel.call(use), m.ChannelClose)
    bench.advance(0.9)
    assert "q" in bench.host.queues
    bench.advance(0.1)
    assert "q" not in bench.host.queues


def test_s081_publishing_is_not_using() -> None:
    channel = limited(expires=1000)
    bench = channel.peer.bench
    for _ in range(2):
        bench.advance(0.6)
        fill(channel, b"in vain")
    assert "q" not in bench.host.queues


def test_s081_a_queue_with_a_consumer_stays_and_has_its_time_after_it() -> None:
    channel = limited(expires=1000)
    bench = channel.peer.bench
    channel.consume("q", "t")
    bench.advance(100)
    channel.does(m.BasicCancel("t"))
    bench.advance(0.9)
    assert "q" in bench.host.queues
    bench.advance(0.1)
    assert "q" not in bench.host.queues


# Length.


def test_s082_drop_head_lets_the_oldest_go() -> None:
    channel = limited(max_length=2)
    fill(channel, b"1", b"2", b"3")
    assert channel.bodies("q") == [b"2", b"3"]
    assert reason(channel) == "maxlen"


def test_s082_octets_of_bodies_are_counted_too() -> None:
    channel = limited(max_length_bytes=10)
    fill(channel, b"12345", b"67890", b"!")
    assert channel.bodies("q") == [b"67890", b"!"]
    fill(channel, bytes(11))
    assert channel.bodies("q") == []


def test_s082_what_is_out_with_a_consumer_does_not_count() -> None:
    channel = limited(max_length=1)
    channel.does(m.BasicQos(0, 1))
    channel.consume("q", "t")
    fill(channel, b"out", b"ready")
    assert channel.peer.bench.queue("q").ready == 1
    assert channel.peer.channel(2).bodies("dead") == []


def test_s082_reject_publish_nacks_and_keeps_what_is_there() -> None:
    channel = limited(max_length=1, overflow="reject-publish")
    channel.confirms()
    fill(channel, b"1", b"2")
    assert channel.all() == [m.BasicAck(1, False), m.BasicNack(2, False, False)]
    assert channel.bodies("q") == [b"1"]
    assert channel.bodies("dead") == []


def test_s082_reject_publish_dlx_nacks_and_dead_letters() -> None:
    channel = limited(max_length=1, overflow="reject-publish-dlx")
    channel.confirms()
    fill(channel, b"1", b"2")
    assert channel.all() == [m.BasicAck(1, False), m.BasicNack(2, False, False)]
    assert channel.bodies("q") == [b"1"]
    assert reason(channel) == "maxlen"


def test_s082_a_length_of_0_takes_what_a_consumer_takes_at_once() -> None:
    channel = limited(max_length=0)
    fill(channel, b"nobody there")
    assert channel.get("q") is None
    channel.consume("q", "t", no_ack=True)
    fill(channel, b"at once")
    assert [content.body for content in channel.deliveries()] == [b"at once"]


# One consumer at a time.


def test_s083_one_consumer_is_served_and_the_next_takes_over() -> None:
    channel = limited(single_active_consumer=True)
    for tag in ("one", "two", "three"):
        channel.consume("q", tag, no_ack=True)
    served = []
    for tag in ("one", "two", "three"):
        fill(channel, tag.encode(), tag.encode())
        served += [
            (content.method.fields()["consumer_tag"], content.body.decode())
            for content in channel.deliveries()
        ]
        channel.does(m.BasicCancel(tag))
    assert served == [(tag, tag) for tag in ("one", "two", "three") for _ in range(2)]


def test_s083_the_next_takes_over_when_a_connection_is_lost() -> None:
    bench = ClientBench()
    first, second = Peer(bench).open(), Peer(bench).open().channel()
    channel = first.channel()
    channel.declare("q", arguments={"x-single-active-consumer": True})
    channel.consume("q", "one")
    second.consume("q", "two")
    second.publish("", "q", b"unanswered")
    assert second.all() == []
    first.drop()
    (delivered,) = second.deliveries()
    assert delivered.body == b"unanswered"
    assert delivered.method.fields()["redelivered"] is True


def test_s083_fetching_is_refused() -> None:
    channel = limited(single_active_consumer=True)
    assert channel.closed_with(m.BasicGet("q")) == (
        "405 RESOURCE_LOCKED - cannot obtain access to locked queue 'q' in vhost '/'. basic.get operations "
        "are not supported by classic queues with single active consumer"
    )


# Policies.


def put(
    channel: ClientChannel,
    definition: Table,
    name: str = "p",
    pattern: str = "^q$",
    apply_to: ApplyTo = ApplyTo.QUEUES,
    priority: int = 0,
    operator: bool = False,
) -> None:
    bench = channel.peer.bench
    policy = Policy(name, "/", pattern, definition, priority, apply_to)
    (bench.broker.policies.set_operator if operator else bench.broker.policies.set)(policy)
    bench.host.apply_policies()


def clear(channel: ClientChannel, name: str = "p") -> None:
    bench = channel.peer.bench
    bench.broker.policies.clear("/", name)
    bench.broker.policies.clear_operator("/", name)
    bench.host.apply_policies()


def kept(channel: ClientChannel) -> int:
    """How many of ten messages the queue keeps."""
    channel.does(m.QueuePurge("q"))
    fill(channel, *([b""] * 10))
    return channel.peer.bench.queue("q").ready


def test_a_policy_holds_and_ceases_without_redeclaring() -> None:
    channel = with_queue()
    assert kept(channel) == 10
    put(channel, {"max-length": 3})
    assert channel.peer.bench.queue("q").ready == 3
    assert kept(channel) == 3
    put(channel, {"max-length": 5})
    assert kept(channel) == 5
    clear(channel)
    assert kept(channel) == 10
    channel.declare("q")


def test_a_policy_holds_for_queues_declared_after_it_whose_names_match() -> None:
    channel = opened()
    put(channel, {"max-length": 3}, pattern="^q")
    channel.declare("q")
    channel.declare("other")
    assert kept(channel) == 3
    for _ in range(5):
        channel.publish("", "other")
    assert channel.peer.bench.queue("other").ready == 5


def test_of_an_argument_and_a_policy_the_lower_number_holds() -> None:
    channel = limited(max_length=4)
    put(channel, {"max-length": 6})
    assert kept(channel) == 4
    put(channel, {"max-length": 2})
    assert kept(channel) == 2


def test_an_operator_policy_only_tightens() -> None:
    channel = with_queue()
    put(channel, {"max-length": 6, "overflow": "reject-publish"})
    put(channel, {"max-length": 4}, name="op", operator=True)
    assert kept(channel) == 4
    put(channel, {"max-length": 8}, name="op", operator=True)
    assert kept(channel) == 6
    clear(channel, "p")
    assert kept(channel) == 8


def test_policies_do_not_add_up_the_highest_priority_holds() -> None:
    channel = with_queue()
    put(channel, {"max-length": 2}, name="low", priority=1)
    put(channel, {"max-length-bytes": 100}, name="high", priority=2)
    assert kept(channel) == 10
    clear(channel, "high")
    assert channel.peer.bench.queue("q").ready == 2


@pytest.mark.parametrize(
    ("apply_to", "holds"),
    [
        (ApplyTo.ALL, True),
        (ApplyTo.QUEUES, True),
        (ApplyTo.CLASSIC_QUEUES, True),
        (ApplyTo.QUORUM_QUEUES, False),
        (ApplyTo.STREAMS, False),
        (ApplyTo.EXCHANGES, False),
    ],
)
def test_a_policy_holds_for_what_it_applies_to(apply_to: ApplyTo, holds: bool) -> None:
    channel = with_queue()
    put(channel, {"max-length": 3}, apply_to=apply_to)
    assert kept(channel) == (3 if holds else 10)


def test_a_policy_of_another_virtual_host_does_not_hold() -> None:
    channel = opened('[[virtual_hosts]]\nname = "/"\n[[virtual_hosts]]\nname = "blue"')
    channel.declare("q")
    channel.peer.bench.broker.policies.set(Policy("p", "blue", ".*", {"max-length": 3}))
    channel.peer.bench.host.apply_policies()
    assert kept(channel) == 10


def test_a_ttl_by_policy_is_for_messages_that_come_after_it() -> None:
    channel = with_queue()
    fill(channel, b"before")
    put(channel, {"message-ttl": 1000})
    fill(channel, b"after")
    channel.peer.bench.advance(1)
    assert channel.bodies("q") == [b"before"]


def test_s081_a_queue_may_expire_by_policy() -> None:
    channel = opened()
    bench = channel.peer.bench
    channel.declare("q")
    bench.advance(0.5)
    put(channel, {"expires": 1000})
    bench.advance(0.9)  # the term begins with the policy
    assert "q" in bench.host.queues
    bench.advance(0.1)
    assert "q" not in bench.host.queues


def test_s082_overflow_and_dead_letters_by_policy() -> None:
    channel = with_queue()
    channel.declare("dead")
    definition = {"max-length": 1, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    put(channel, definition)
    fill(channel, b"1", b"2")
    assert channel.bodies("q") == [b"2"]
    assert reason(channel) == "maxlen"
    put(channel, {**definition, "overflow": "reject-publish"})
    channel.confirms()
    fill(channel, b"3", b"4")
    assert channel.all() == [m.BasicAck(1, False), m.BasicNack(2, False, False)]
    answer = channel.call(m.BasicGet("q", True))
    assert isinstance(answer, Content)
    assert answer.body == b"3"


def test_a_policy_may_come_from_the_configuration() -> None:
    channel = opened(
        '[[policies]]\nname = "p"\npattern = "^q$"\ndefinition = { max-length = 6 }\n'
        '[[policies]]\nname = "op"\npattern = "."\noperator = true\ndefinition = { max-length = 4 }'
    )
    channel.declare("q")
    assert kept(channel) == 4
