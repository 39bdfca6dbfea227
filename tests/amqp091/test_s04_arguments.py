"""Arguments of queues from the client's side, §4 of the acceptance list: what is accepted, compared and refused."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import FieldTable, FieldValue
from tests.amqp091.peer import opened, with_queue

QUEUE = "queue 'q' in vhost '/'"
TTL_MAX_MS = 315_360_000_000


def refusal(toml: str = "", durable: bool = False, **properties: object) -> str:
    """Why a queue `q` with these arguments is refused."""
    arguments: FieldTable = {f"x-{name.replace('_', '-')}": value for name, value in properties.items()}
    return opened(toml).closed_with(m.QueueDeclare("q", durable=durable, arguments=arguments))


# Values.


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("message_ttl", "soon", "unacceptable type 'longstr', expected a whole number"),
        ("message_ttl", True, "unacceptable type 'bool', expected a whole number"),
        ("message_ttl", 1.5, "unacceptable type 'double', expected a whole number"),
        ("message_ttl", None, "unacceptable type 'void', expected a whole number"),
        ("message_ttl", -1, "-1 is negative"),
        ("message_ttl", TTL_MAX_MS + 1, f"{TTL_MAX_MS + 1} is above the maximum {TTL_MAX_MS}"),
        ("expires", 0, "0 is below the minimum 1"),
        ("expires", -1, "-1 is negative"),
        ("expires", TTL_MAX_MS + 1, f"{TTL_MAX_MS + 1} is above the maximum {TTL_MAX_MS}"),
        ("max_length", -1, "-1 is negative"),
        ("max_length_bytes", "1MB", "unacceptable type 'longstr', expected a whole number"),
        (
            "overflow",
            "burst",
            "'burst' is not one of drop-head, reject-publish, reject-publish-dlx, self-destruct, "
            "flow-to-disk, producer-flow-control",
        ),
        ("queue_type", "odd", "'odd' is not one of classic, quorum, stream"),
        ("single_active_consumer", 1, "unacceptable type 'signedint', expected true or false"),
        ("dead_letter_routing_key", 5, "unacceptable type 'signedint', expected a text"),
        ("queue_mode", "hasty", "'hasty' is not one of default, lazy"),
    ],
)
def test_s078_a_wrong_type_or_value_is_refused(argument: str, value: FieldValue, reason: str) -> None:
    shown = f"x-{argument.replace('_', '-')}"
    text = refusal(**{argument: value})
    assert text == f"406 PRECONDITION_FAILED - invalid arg '{shown}' for {QUEUE}: {reason}"


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 0},
        {"x-message-ttl": TTL_MAX_MS},
        {"x-expires": 1},
        {"x-expires": TTL_MAX_MS},
        {"x-max-length": 0},
        {"x-max-length-bytes": 1 << 40},
        {"x-overflow": "reject-publish-dlx"},
        {"x-dead-letter-exchange": ""},
        {"x-max-priority": 255},
    ],
)
def test_s078_what_is_just_within_bounds_is_fine(arguments: FieldTable) -> None:
    assert opened().declare("q", arguments=arguments)


def test_a_void_queue_type_is_refused_also_again() -> None:
    text = opened().refused(m.QueueDeclare("q", arguments={"x-queue-type": None}))
    assert (
        text
        == "406 PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue 'q' in vhost '/': unacceptable type 'void'"
    )
    channel = opened()
    channel.declare("q")
    assert channel.refused(m.QueueDeclare("q", arguments={"x-queue-type": None})).startswith("406 ")


def test_s065_a_float_is_not_the_whole_number_of_its_value() -> None:
    channel = opened()
    channel.declare("q", arguments={"x-max-length": 10})
    text = channel.refused(m.QueueDeclare("q", arguments={"x-max-length": 10.0}))
    assert text.startswith("406 PRECONDITION_FAILED - inequivalent arg 'x-max-length'")


def test_a_void_priority_of_a_consumer_is_refused() -> None:
    channel = opened()
    channel.declare("q")
    text = channel.refused(m.BasicConsume("q", arguments={"x-priority": None}))
    assert text.startswith("406 PRECONDITION_FAILED - invalid arg 'x-priority'")


def test_s078_what_is_refused_is_not_declared() -> None:
    channel = opened()
    channel.refused(m.QueueDeclare("q", arguments={"x-expires": 0}))
    assert "q" not in channel.peer.bench.host.queues


@pytest.mark.parametrize(("value", "kind"), [(5, "signedint"), (True, "bool"), ([], "array"), (None, "void")])
def test_s079_a_dead_letter_exchange_that_is_no_string_is_refused(value: FieldValue, kind: str) -> None:
    assert refusal(dead_letter_exchange=value) == (
        f"406 PRECONDITION_FAILED - invalid type '{kind}' for arg 'x-dead-letter-exchange' in {QUEUE}"
    )


def test_s079_dead_lettering_needs_read_on_the_queue_and_write_on_the_exchange() -> None:
    channel = opened()
    access = channel.peer.bench.broker.access
    declare = m.QueueDeclare("q", arguments={"x-dead-letter-exchange": "dead"})
    refused = "403 ACCESS_REFUSED - {} access to {} in vhost '/' refused for user 'guest'"
    access.set_permissions("guest", "/", ".*", ".*", "")
    assert channel.refused(declare) == refused.format("read", "queue 'q'")
    access.set_permissions("guest", "/", ".*", "", ".*")
    assert channel.refused(declare) == refused.format("write", "exchange 'dead'")
    access.set_permissions("guest", "/", "^q$", "^dead$", "^q$")
    channel.does(declare)
    access.set_permissions("guest", "/", "^q$", "", "")
    channel.does(declare)  # only who makes the queue is asked


def test_x022_a_dead_letter_key_needs_a_dead_letter_exchange() -> None:
    assert refusal(dead_letter_routing_key="k") == (
        f"406 PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for {QUEUE}: "
        "routing key but no dead letter exchange defined"
    )


def test_x023_there_are_no_more_than_255_priorities() -> None:
    assert refusal(max_priority=256) == (
        f"406 PRECONDITION_FAILED - invalid arg 'x-max-priority' for {QUEUE}: 256 is above the maximum 255"
    )


# Types.


def test_x017_saying_classic_is_saying_nothing() -> None:
    channel = opened()
    channel.declare("silent")
    channel.declare("silent", arguments={"x-queue-type": "classic"})
    channel.declare("explicit", arguments={"x-queue-type": "classic"})
    channel.declare("explicit")
    assert channel.closed_with(
        m.QueueDeclare("silent", durable=True, arguments={"x-queue-type": "quorum"})
    ).startswith("406 PRECONDITION_FAILED - inequivalent arg ")


def test_x017_another_type_is_another_queue() -> None:
    channel = with_queue(durable=True)
    text = channel.closed_with(m.QueueDeclare("q", durable=True, arguments={"x-queue-type": "quorum"}))
    assert text == (
        f"406 PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for {QUEUE}: "
        "received the value 'quorum' of type 'longstr' but current is none"
    )


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_x019_a_quorum_queue_is_deleted_without_conditions(flag: str) -> None:
    channel = with_queue(durable=True, arguments={"x-queue-type": "quorum"})
    text = channel.peer.closed_with(1, m.QueueDelete("q", **{flag: True}))
    shown = flag.replace("_", "-")
    assert text == (
        "540 NOT_IMPLEMENTED - cannot delete queue 'q' in vhost '/'. "
        f"queue.delete operations with {shown} flag set are not supported by quorum queues"
    )


def test_x019_without_conditions_it_is_deleted() -> None:
    channel = with_queue(durable=True, arguments={"x-queue-type": "quorum"})
    channel.publish("", "q", b"")
    assert channel.call(m.QueueDelete("q")) == m.QueueDeleteOk(1)


@pytest.mark.parametrize(
    ("properties", "fault"), [({}, "non-durable"), ({"durable": True, "exclusive": True}, "exclusive-owner")]
)
def test_a_quorum_queue_is_durable_and_nobodys_own(properties: dict[str, bool], fault: str) -> None:
    declare = m.QueueDeclare("q", arguments={"x-queue-type": "quorum"}, **properties)
    assert opened().closed_with(declare) == (
        f"406 PRECONDITION_FAILED - invalid property '{fault}' for {QUEUE}"
    )


def test_x020_a_virtual_host_holds_only_so_many_queues() -> None:
    channel = opened("[limits]\nqueues_max = 1")
    channel.declare("one")
    channel.declare("one")
    assert channel.refused(m.QueueDeclare("two")) == (
        "406 PRECONDITION_FAILED - cannot declare queue 'two' in vhost '/': queue limit in vhost '/' (1) is reached"
    )
    channel.does(m.QueueDelete("one"))
    assert channel.declare("two")


def test_x020_a_virtual_hosts_own_limit_goes_before_the_nodes() -> None:
    toml = '[limits]\nqueues_max = 1\n[[virtual_hosts]]\nname = "/"\nqueues_max = 2'
    channel = opened(toml)
    channel.declare("one")
    channel.declare("two")
    assert channel.closed_with(m.QueueDeclare("three")).endswith("queue limit in vhost '/' (2) is reached")


def test_x021_unknown_arguments_are_ignored() -> None:
    channel = with_queue(arguments={"x-unheard-of": [1, 2], "colour": "red"})
    channel.declare("q", arguments={"x-unheard-of": "something else"})


def test_x021_arguments_for_another_type_of_queue_are_refused() -> None:
    assert refusal(durable=True, queue_type="quorum", max_priority=5) == (
        f"406 PRECONDITION_FAILED - invalid arg 'x-max-priority' for {QUEUE} of queue type rabbit_quorum_queue"
    )
    assert refusal(max_age="7D") == (
        f"406 PRECONDITION_FAILED - invalid arg 'x-max-age' for {QUEUE} of queue type rabbit_classic_queue"
    )


@pytest.mark.parametrize("toml", ["", '[compat]\nprofile = "spec"', '[compat]\nprofile = "rabbitmq-3.13"'])
def test_a_consumer_timeout_is_known_to_every_queue(toml: str) -> None:
    assert opened(toml).declare("q", arguments={"x-consumer-timeout": 60_000})


@pytest.mark.parametrize(
    "toml", ['[compat]\nprofile = "rabbitmq-4"', '[compat]\nconsumer_timeout = "quorum-queues"']
)
def test_where_a_profile_says_so_only_quorum_queues_know_a_consumer_timeout(toml: str) -> None:
    channel = opened(toml)
    channel.declare("k", durable=True, arguments={"x-queue-type": "quorum", "x-consumer-timeout": 60_000})
    text = channel.closed_with(m.QueueDeclare("q", durable=True, arguments={"x-consumer-timeout": 60_000}))
    assert text == (
        f"406 PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for {QUEUE} "
        "of queue type rabbit_classic_queue"
    )


# Declaring again.


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({}, {"x-message-ttl": 5}, "received the value '5' of type 'signedint' but current is none"),
        ({"x-message-ttl": 5}, {}, "received none but current is the value '5' of type 'signedint'"),
        (
            {"x-message-ttl": 1 << 33},
            {"x-message-ttl": 5},
            "received the value '5' of type 'signedint' but current is the value '8589934592' of type 'long'",
        ),
    ],
)
def test_s065_redeclaring_with_another_argument_is_refused(
    before: FieldTable, after: FieldTable, text: str
) -> None:
    channel = with_queue(arguments=before)
    assert channel.closed_with(m.QueueDeclare("q", arguments=after)) == (
        f"406 PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for {QUEUE}: {text}"
    )


OTHERWISE: list[tuple[str, FieldValue, FieldValue]] = [
    ("x-expires", 1000, 2000),
    ("x-message-ttl", 1000, 2000),
    ("x-dead-letter-exchange", "a", "b"),
    ("x-max-length", 1, 2),
    ("x-max-length-bytes", 1, 2),
    ("x-overflow", "drop-head", "reject-publish"),
    ("x-max-priority", 1, 2),
    ("x-single-active-consumer", True, False),
    ("x-delivery-limit", 1, 2),
    ("x-consumer-timeout", 1000, 2000),
    ("x-queue-mode", "default", "lazy"),
]


@pytest.mark.parametrize(("argument", "before", "after"), OTHERWISE, ids=lambda value: str(value))
def test_s065_every_argument_that_means_something_is_compared(
    argument: str, before: FieldValue, after: FieldValue
) -> None:
    channel = with_queue(arguments={argument: before})
    channel.declare("q", arguments={argument: before})
    text = channel.closed_with(m.QueueDeclare("q", arguments={argument: after}))
    assert text.startswith(f"406 PRECONDITION_FAILED - inequivalent arg '{argument}' for {QUEUE}: received ")


def test_s065_asking_compares_nothing() -> None:
    channel = with_queue(arguments={"x-max-length": 5})
    assert channel.declare("q", passive=True, arguments={"x-max-length": 6})
