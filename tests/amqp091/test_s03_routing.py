"""Publishing and routing from the client's side, §3 of the acceptance list: from an exchange and a key to queues."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable
from tests.amqp091.peer import opened, with_queue
from tests.harness.bench import ClientBench

from .peer import ClientChannel


def bound(type_: str, *keys: str) -> ClientChannel:
    """An exchange `x` with queue `q` bound to it by these keys."""
    channel = opened()
    channel.exchange("x", type_)
    channel.declare("q")
    for key in keys:
        channel.bind("q", "x", key)
    return channel


def reaches(channel: ClientChannel, key: str, headers: FieldTable | None = None) -> bool:
    """Whether a message published to `x` comes to `q`, and then once only."""
    channel.publish("x", key, b"", BasicProperties(headers=headers))
    count = len(channel.bodies("q"))
    assert count <= 1
    return count == 1


# Publishing.


def test_s046_publishing_to_a_missing_exchange_closes_the_channel() -> None:
    channel = opened()
    channel.publish("nowhere", "key", b"lost")
    assert channel.refusal() == "404 NOT_FOUND - no exchange 'nowhere' in vhost '/'"


def test_s046_an_exchange_deleted_between_two_publishes_is_missed_by_the_second() -> None:
    channel = bound("fanout", "")
    channel.publish("x", "", b"1")
    channel.does(m.ExchangeDelete("x"))
    channel.publish("x", "", b"2")
    assert channel.refusal() == "404 NOT_FOUND - no exchange 'x' in vhost '/'"
    assert channel.peer.channel(2).bodies("q") == [b"1"]


def test_s047_clients_may_not_publish_to_internal_exchanges() -> None:
    channel = opened()
    channel.exchange("x", "fanout", internal=True)
    for number, name in enumerate(("x", "amq.rabbitmq.trace"), start=2):
        publisher = channel.peer.channel(number)
        publisher.publish(name, "key")
        refused = f"403 ACCESS_REFUSED - cannot publish to internal exchange '{name}' in vhost '/'"
        assert publisher.refusal() == refused


def test_s047_an_internal_exchange_takes_what_comes_from_exchanges() -> None:
    channel = opened()
    channel.exchange("x", "fanout", internal=True)
    channel.link("amq.fanout", "x")
    channel.declare("q")
    channel.bind("q", "x")
    channel.publish("amq.fanout", "", b"through")
    assert channel.bodies("q") == [b"through"]


def test_publishing_needs_write_on_the_exchange() -> None:
    channel = bound("fanout", "")
    channel.peer.bench.broker.access.set_permissions("guest", "/", ".*", "^amq.default$", ".*")
    channel.publish("", "q", b"fine")
    assert channel.bodies("q") == [b"fine"]
    channel.publish("x", "", b"refused")
    assert channel.refusal() == (
        "403 ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'guest'"
    )


def test_a_permission_taken_away_holds_for_the_next_publish() -> None:
    channel = bound("fanout", "")
    channel.publish("x", "", b"before")
    channel.peer.bench.broker.access.set_permissions("guest", "/", ".*", "", ".*")
    channel.publish("x", "", b"after")
    assert channel.refusal().startswith("403 ACCESS_REFUSED - write access to exchange 'x'")
    assert channel.peer.channel(2).bodies("q") == [b"before"]


# Direct, fanout, topic.


def test_s048_direct_wants_equal_keys() -> None:
    channel = bound("direct", "key", "")
    assert reaches(channel, "key")
    assert reaches(channel, "")
    for other in ("Key", "key ", "ke", "key.more", "*", "#"):
        assert not reaches(channel, other)


def test_s048_direct_knows_no_wildcards() -> None:
    channel = bound("direct", "#", "*.x")
    assert reaches(channel, "#")
    assert not reaches(channel, "a.x")


def test_s049_fanout_ignores_the_key() -> None:
    channel = bound("fanout", "one", "two")
    for key in ("one", "three", ""):
        assert reaches(channel, key)


@pytest.mark.parametrize(
    ("pattern", "matched", "passed"),
    [
        ("*", ["a", "stock"], ["", "a.b"]),
        ("#", ["", "a", "a.b.c"], []),
        ("a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["", "b.a"]),
        ("#.c", ["c", "a.b.c"], ["c.d", ""]),
        ("a.#.c", ["a.c", "a.b.c", "a.b.b.c"], ["a", "c"]),
        ("#.#", ["", "a", "a.b"], []),
        ("*.#", ["a", "a.b"], [""]),
        ("", [""], ["a"]),
    ],
)
def test_s049_topic_star_is_one_word_and_hash_any_number(
    pattern: str, matched: list[str], passed: list[str]
) -> None:
    channel = bound("topic", pattern)
    assert [key for key in matched + passed if reaches(channel, key)] == matched


def test_s050_the_example_of_the_specification() -> None:
    channel = bound("topic", "*.stock.#")
    assert reaches(channel, "usd.stock")
    assert reaches(channel, "eur.stock.db")
    assert not reaches(channel, "stock.nasdaq")


def test_s050_several_matching_patterns_are_one_message() -> None:
    assert reaches(bound("topic", "a.#", "#.b", "*.*", "a.b"), "a.b")


MANY_HASHES = "a.#.b.#.c.#"


@pytest.mark.parametrize("toml", ["", '[compat]\nprofile = "spec"', '[compat]\nprofile = "rabbitmq-3.13"'])
def test_x012_a_pattern_may_have_as_many_hashes_as_it_likes(toml: str) -> None:
    channel = with_queue(ClientBench(toml), durable=True)
    channel.bind("q", "amq.topic", MANY_HASHES)


@pytest.mark.parametrize("toml", ['[compat]\nprofile = "rabbitmq-4"', "[compat]\ntopic_wildcards_max = 2"])
def test_x012_where_a_profile_says_so_a_pattern_has_two_hashes_at_most(toml: str) -> None:
    channel = with_queue(ClientBench(toml), durable=True)
    channel.bind("q", "amq.topic", "a.#.b.#")
    channel.bind("q", "amq.direct", MANY_HASHES)
    assert channel.closed_with(m.QueueBind("q", "amq.topic", MANY_HASHES)) == (
        "406 PRECONDITION_FAILED - "
        f"Topic binding key '{MANY_HASHES}' uses 3 '#' wildcards, at most 2 are allowed"
    )


# Headers.


def matching(arguments: FieldTable) -> ClientChannel:
    channel = opened()
    channel.exchange("x", "headers")
    channel.declare("q")
    channel.bind("q", "x", "", arguments)
    return channel


BOTH: FieldTable = {"colour": "red", "size": 5, "x-hidden": "yes"}


@pytest.mark.parametrize(
    ("mode", "matched", "passed"),
    [
        ("all", [{"colour": "red", "size": 5}], [{"colour": "red"}, {"x-hidden": "yes"}, {}]),
        ("any", [{"colour": "red"}, {"size": 5, "colour": "blue"}], [{"x-hidden": "yes"}, {}]),
        ("all-with-x", [BOTH], [{"colour": "red", "size": 5}]),
        ("any-with-x", [{"x-hidden": "yes"}, {"size": 5}], [{"size": 6}]),
    ],
)
def test_s051_headers_match_all_or_any_with_or_without_x(
    mode: str, matched: list[FieldTable], passed: list[FieldTable]
) -> None:
    channel = matching({"x-match": mode, **BOTH})
    assert all(reaches(channel, "", headers) for headers in matched)
    assert not any(reaches(channel, "", headers) for headers in passed)


def test_s051_without_x_match_all_must_match() -> None:
    channel = matching({"colour": "red", "size": 5})
    assert reaches(channel, "any key", {"colour": "red", "size": 5, "more": True})
    assert not reaches(channel, "", {"colour": "red"})


def test_s051_a_void_argument_asks_that_the_header_be_there() -> None:
    channel = matching({"colour": None})
    assert reaches(channel, "", {"colour": "whatever"})
    assert reaches(channel, "", {"colour": None})
    assert not reaches(channel, "", {"size": 1})


def test_s051_values_are_compared_by_value_not_by_width() -> None:
    channel = matching({"size": 5})
    for equal in (5, 5.0):
        assert reaches(channel, "", {"size": equal})
    for other in ("5", True, 6, [5]):
        assert not reaches(channel, "", {"size": other})


def test_s051_a_message_without_headers_meets_no_criterion() -> None:
    assert not reaches(matching({"x-match": "any", "colour": None}), "")


def test_s052_a_bad_x_match_is_refused() -> None:
    channel = with_queue()
    assert channel.refused(m.QueueBind("q", "amq.match", arguments={"x-match": "z"})) == (
        '406 PRECONDITION_FAILED - Invalid x-match field value "z"; '
        "expected all, any, all-with-x, or any-with-x"
    )
    assert channel.refused(m.QueueBind("q", "amq.match", arguments={"x-match": 5})) == (
        "406 PRECONDITION_FAILED - Invalid x-match field type signedint (value 5); expected longstr"
    )


def test_x013_any_without_criteria_matches_nothing_and_all_everything() -> None:
    for arguments in ({"x-match": "any"}, {"x-match": "any", "x-only": 1}):
        assert not reaches(matching(arguments), "", {"x-only": 1})
    for arguments in ({}, {"x-match": "all"}, {"x-match": "all", "x-only": 1}):
        assert reaches(matching(arguments), "", {"colour": "red"})
        assert reaches(matching(arguments), "")


# The default exchange, CC and BCC.


def test_s053_the_default_exchange_leads_to_the_queue_of_that_name() -> None:
    channel = opened()
    channel.declare("one")
    channel.declare("two")
    channel.publish("", "one", b"1")
    channel.publish("", "two", b"2")
    channel.publish("", "neither", b"dropped")
    assert channel.bodies("one") == [b"1"]
    assert channel.bodies("two") == [b"2"]


def test_s053_every_key_of_cc_and_bcc_leads_to_its_queue_once() -> None:
    channel = opened()
    for name in ("to", "cc", "bcc", "other"):
        channel.declare(name)
    headers: FieldTable = {"CC": ["cc", "to", "cc", "missing"], "BCC": ["bcc", "cc"]}
    channel.publish("", "to", b"copied", BasicProperties(headers=headers))
    for name in ("to", "cc", "bcc"):
        assert channel.bodies(name) == [b"copied"]
    assert channel.bodies("other") == []


def test_s053_cc_leads_on_when_the_key_itself_does_not() -> None:
    channel = opened()
    channel.declare("cc")
    properties = BasicProperties(headers={"CC": ["cc"]})
    channel.publish("", "missing", b"found", properties, mandatory=True)
    assert channel.all() == []
    assert channel.bodies("cc") == [b"found"]


@pytest.mark.parametrize("type_", ["direct", "topic"])
def test_cc_and_bcc_are_keys_for_every_exchange_that_looks_at_keys(type_: str) -> None:
    channel = bound(type_, "two")
    for field in ("CC", "BCC"):
        assert reaches(channel, "one", {field: ["two", "two"]})
    assert not reaches(channel, "one", {"CC": ["three"]})


def test_the_key_of_a_message_stays_what_it_was() -> None:
    channel = opened()
    channel.declare("cc")
    channel.publish("", "to", b"", BasicProperties(headers={"CC": ["cc"], "BCC": ["b"]}))
    content = channel.get("cc")
    assert content is not None
    assert content.method.fields()["routing_key"] == "to"
    assert content.properties.headers == {"CC": ["cc"]}
