"""Queue arguments and quotas: every refusal in its own words, everything else as a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.arguments.queue_arguments import QUEUE_ARGUMENTS
from leveret.arguments.queue_declaration import inequivalent_argument, parse_queue_arguments, queue_type
from leveret.errors import LimitReached, PreconditionFailed
from leveret.limits import (
    TTL_MAX_MS,
    NodeLimits,
    Overflow,
    QueueLimits,
    QueueType,
    UserLimits,
    VirtualHostLimits,
)
from leveret.values import Table, Timestamp, Value


def parsed(
    arguments: Table, durable: bool = True, exclusive: bool = False, auto_delete: bool = False
) -> QueueLimits:
    return parse_queue_arguments("q", "/", durable, exclusive, auto_delete, arguments)


def refusal(
    arguments: Table, durable: bool = True, exclusive: bool = False, auto_delete: bool = False
) -> str:
    with pytest.raises(PreconditionFailed) as raised:
        parsed(arguments, durable, exclusive, auto_delete)
    return str(raised.value)


def test_a_queue_without_arguments_has_no_limits() -> None:
    assert parsed({}) == QueueLimits()


def test_every_argument_finds_its_place() -> None:
    """S080-S083, S114, X030, X031."""
    arguments: Table = {
        "x-message-ttl": 0,
        "x-expires": 1,
        "x-max-length": 0,
        "x-max-length-bytes": 10,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-delivery-limit": -1,
        "x-consumer-timeout": 0,
        "x-max-priority": 9,
        "x-single-active-consumer": True,
    }
    assert parsed(arguments) == QueueLimits(
        message_ttl_ms=0,
        expires_ms=1,
        max_length=0,
        max_bytes=10,
        overflow=Overflow.REJECT_PUBLISH_DLX,
        overflow_asked=True,
        dead_letter_exchange="",
        dead_letter_key="dead",
        delivery_limit=-1,
        consumer_timeout_ms=0,
        max_priority=9,
        single_active=True,
    )


def test_strings_may_come_as_octets() -> None:
    assert parsed({"x-overflow": b"reject-publish"}).overflow is Overflow.REJECT_PUBLISH
    assert queue_type({"x-queue-type": b"quorum"}) is QueueType.QUORUM


REFUSED: list[tuple[str, Value, str]] = [
    ("x-message-ttl", "5", "unacceptable type 'longstr', expected a whole number"),
    ("x-message-ttl", True, "unacceptable type 'bool', expected a whole number"),
    ("x-message-ttl", 1.5, "unacceptable type 'double', expected a whole number"),
    ("x-message-ttl", None, "unacceptable type 'void', expected a whole number"),
    ("x-message-ttl", Timestamp(5), "unacceptable type 'timestamp', expected a whole number"),
    ("x-message-ttl", -1, "-1 is negative"),
    ("x-message-ttl", TTL_MAX_MS + 1, "315360000001 is above the maximum 315360000000"),
    ("x-expires", 0, "0 is below the minimum 1"),
    ("x-expires", -1, "-1 is negative"),
    ("x-expires", TTL_MAX_MS + 1, "315360000001 is above the maximum 315360000000"),
    ("x-max-length", -1, "-1 is negative"),
    ("x-max-length-bytes", "1", "unacceptable type 'longstr', expected a whole number"),
    ("x-max-priority", 256, "256 is above the maximum 255"),
    ("x-max-priority", -1, "-1 is negative"),
    (
        "x-overflow",
        "drop-tail",
        "'drop-tail' is not one of drop-head, reject-publish, reject-publish-dlx, self-destruct, "
        "flow-to-disk, producer-flow-control",
    ),
    ("x-overflow", 1, "unacceptable type 'signedint', expected a text"),
    ("x-single-active-consumer", 1, "unacceptable type 'signedint', expected true or false"),
    ("x-dead-letter-routing-key", "k", "routing key but no dead letter exchange defined"),
    ("x-dead-letter-routing-key", 1, "unacceptable type 'signedint', expected a text"),
    ("x-queue-type", "lazy", "'lazy' is not one of classic, quorum, stream"),
    ("x-queue-type", 1, "unacceptable type 'signedint', expected a text"),
    ("x-consumer-timeout", -1, "-1 is negative"),
    ("x-delivery-limit", "3", "unacceptable type 'longstr', expected a whole number"),
    ("x-queue-mode", "busy", "'busy' is not one of default, lazy"),
]


@pytest.mark.parametrize(("argument", "value", "reason"), REFUSED)
def test_s078_x022_x023_a_wrong_type_or_value_is_refused(argument: str, value: Value, reason: str) -> None:
    assert refusal({argument: value}) == f"invalid arg '{argument}' for queue 'q' in vhost '/': {reason}"


def test_s078_the_bounds_themselves_are_accepted() -> None:
    assert parsed({"x-message-ttl": TTL_MAX_MS, "x-expires": TTL_MAX_MS, "x-max-priority": 255})


def test_s079_a_dead_letter_exchange_that_is_no_string_has_its_own_text() -> None:
    text = "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"
    assert refusal({"x-dead-letter-exchange": 5}) == text


def test_x021_unknown_arguments_are_ignored() -> None:
    assert parsed({"x-nobody-knows": "x", "custom": 1}) == QueueLimits()


FOREIGN: list[tuple[str, Value, str]] = [
    ("x-max-priority", 5, "quorum"),
    ("x-queue-mode", "lazy", "quorum"),
    ("x-max-age", "7D", "classic"),
    ("x-quorum-initial-group-size", 3, "classic"),
    ("x-max-length", 5, "stream"),
    ("x-message-ttl", 5, "stream"),
    ("x-dead-letter-exchange", "d", "stream"),
]


@pytest.mark.parametrize(("argument", "value", "kind"), FOREIGN)
def test_x021_an_argument_of_another_type_of_queue_is_refused(argument: str, value: Value, kind: str) -> None:
    text = f"invalid arg '{argument}' for queue 'q' in vhost '/' of queue type rabbit_{kind}_queue"
    assert refusal({argument: value, "x-queue-type": kind}) == text


def test_delivery_limit_and_consumer_timeout_are_for_all_queues() -> None:
    arguments = {"x-delivery-limit": 3, "x-consumer-timeout": 60_000}
    assert parsed(arguments) == parsed({**arguments, "x-queue-type": "quorum"})


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_quorum_queues_and_streams_are_durable_and_not_exclusive(kind: str) -> None:
    arguments = {"x-queue-type": kind}
    assert refusal(arguments, durable=False) == "invalid property 'non-durable' for queue 'q' in vhost '/'"
    assert (
        refusal(arguments, exclusive=True) == "invalid property 'exclusive-owner' for queue 'q' in vhost '/'"
    )


def test_only_streams_refuse_to_be_deleted_by_themselves() -> None:
    assert "'auto-delete'" in refusal({"x-queue-type": "stream"}, auto_delete=True)
    assert parsed({"x-queue-type": "quorum"}, auto_delete=True)


AGES = [("1s", 1), ("2m", 120), ("1h", 3600), ("7D", 604_800), ("1M", 2_592_000), ("1Y", 31_536_000)]


@pytest.mark.parametrize(("age", "seconds"), AGES)
def test_a_stream_keeps_messages_for_an_age(age: str, seconds: int) -> None:
    assert parsed({"x-queue-type": "stream", "x-max-age": age}).max_age_ms == seconds * 1000


@pytest.mark.parametrize("age", ["7", "D", "7d", "-1D", "7D ", ""])
def test_what_is_no_age_is_refused(age: str) -> None:
    assert "is not an age such as 7D" in refusal({"x-queue-type": "stream", "x-max-age": age})


def test_a_void_queue_type_is_none_and_an_age_is_a_string() -> None:
    assert parsed({"x-queue-type": None}) == QueueLimits()
    assert "unacceptable type 'signedint'" in refusal({"x-queue-type": "stream", "x-max-age": 7})


DIFFERENT: list[tuple[Table, Table, tuple[str, str, str] | None]] = [
    ({"x-max-length": 5}, {"x-max-length": 5}, None),
    (
        {"x-max-length": 5},
        {"x-max-length": 6},
        ("x-max-length", "the value '6' of type 'signedint'", "the value '5' of type 'signedint'"),
    ),
    ({"x-max-length": 5}, {}, ("x-max-length", "none", "the value '5' of type 'signedint'")),
    (
        {},
        {"x-overflow": "reject-publish"},
        ("x-overflow", "the value 'reject-publish' of type 'longstr'", "none"),
    ),
    (
        {"x-single-active-consumer": True},
        {"x-single-active-consumer": 1},
        ("x-single-active-consumer", "the value '1' of type 'signedint'", "the value 'true' of type 'bool'"),
    ),
    ({"custom": 1}, {"custom": 2}, None),
    ({"x-alternate-exchange": "rest"}, {}, None),
    ({}, {"x-alternate-exchange": "rest"}, None),
    (
        {"x-max-length": 10},
        {"x-max-length": 10.0},
        ("x-max-length", "the value '10.0' of type 'double'", "the value '10' of type 'signedint'"),
    ),
    ({}, {"x-queue-type": "classic"}, None),  # X017
    ({"x-queue-type": "classic"}, {}, None),
    ({"x-queue-type": b"classic"}, {"x-queue-type": None}, None),
    ({"x-overflow": b"drop-head"}, {"x-overflow": "drop-head"}, None),
    ({}, {"x-queue-type": "quorum"}, ("x-queue-type", "the value 'quorum' of type 'longstr'", "none")),
]


@pytest.mark.parametrize(("current", "new", "difference"), DIFFERENT)
def test_s065_x017_the_first_argument_that_differs_is_named(
    current: Table, new: Table, difference: tuple[str, str, str] | None
) -> None:
    assert inequivalent_argument(current, new) == difference


tables = st.dictionaries(
    st.sampled_from(list(QUEUE_ARGUMENTS)), st.integers(0, 2) | st.booleans() | st.text(max_size=1)
)


@given(tables, tables)
def test_s065_equivalence_is_symmetric_and_reflexive(one: Table, other: Table) -> None:
    assert inequivalent_argument(one, one) is None
    assert (inequivalent_argument(one, other) is None) == (inequivalent_argument(other, one) is None)


def test_s016_the_connection_limit_of_a_virtual_host() -> None:
    VirtualHostLimits(max_connections=2).require_connection("/", "u", 1)
    VirtualHostLimits(max_connections=-1).require_connection("/", "u", 1_000_000)
    VirtualHostLimits().require_connection("/", "u", 1_000_000)
    with pytest.raises(LimitReached) as raised:
        VirtualHostLimits(max_connections=2).require_connection("/", "u", 2)
    assert str(raised.value) == "access to vhost '/' refused for user 'u': connection limit (2) is reached"


def test_s016_a_limit_of_0_refuses_all() -> None:
    with pytest.raises(LimitReached, match=r"connection limit \(0\) is reached"):
        VirtualHostLimits(max_connections=0).require_connection("/", "u", 0)


def test_x005_the_connection_limits_of_user_and_node() -> None:
    with pytest.raises(LimitReached) as raised:
        UserLimits(max_connections=3).require_connection("u", 3)
    assert str(raised.value) == "connection refused for user 'u': user connection limit (3) is reached"
    with pytest.raises(LimitReached) as raised:
        NodeLimits(max_connections=3).require_connection(3)
    assert str(raised.value) == "connection refused: node connection limit (3) is reached"


def test_the_channel_limit_of_a_user() -> None:
    UserLimits(max_channels=2).require_channel("u", 1)
    with pytest.raises(LimitReached, match=r"user 'u' has reached the maximum allowed user limit of \(2\)"):
        UserLimits(max_channels=2).require_channel("u", 2)


def test_x016_the_exchange_limit_of_the_node() -> None:
    NodeLimits(max_exchanges=8).require_exchange("x", "/", 7)
    with pytest.raises(PreconditionFailed) as raised:
        NodeLimits(max_exchanges=8).require_exchange("x", "/", 8)
    assert str(raised.value) == "cannot declare exchange 'x' in vhost '/': exchange limit of 8 is reached"


def test_x020_the_queue_limit_of_a_virtual_host() -> None:
    VirtualHostLimits(max_queues=1).require_queue("q", "/", 0)
    with pytest.raises(PreconditionFailed) as raised:
        VirtualHostLimits(max_queues=1).require_queue("q", "/", 1)
    assert (
        str(raised.value) == "cannot declare queue 'q' in vhost '/': queue limit in vhost '/' (1) is reached"
    )


def test_x025_the_consumer_limit_of_a_channel() -> None:
    NodeLimits(max_consumers_per_channel=1).require_consumer(0)
    with pytest.raises(LimitReached) as raised:
        NodeLimits(max_consumers_per_channel=1).require_consumer(1)
    assert str(raised.value) == "reached maximum (1) of consumers per channel"
