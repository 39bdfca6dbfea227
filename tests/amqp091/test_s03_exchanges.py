"""Exchanges from the client's side, §3 of the acceptance list: declaring and deleting them.

How they route is in test_s03_routing.py, bindings are in test_s03_bindings.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.plugins.consistent_hash import ConsistentHash
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import Method
from leveret.server.plugin_loader import BadPlugin, Plugins
from tests.amqp091.peer import opened, permitted, with_queue
from tests.harness.bench import ClientBench

from .peer import Peer

STRICT = '[compat]\nprofile = "spec"'
LENIENT = ("", '[compat]\nprofile = "rabbitmq-3.13"', '[compat]\nprofile = "rabbitmq-4"')
DEFAULT_REFUSED = "403 ACCESS_REFUSED - operation not permitted on the default exchange"


# What is there.


@pytest.mark.parametrize(
    ("name", "type_", "internal"),
    [
        ("amq.direct", "direct", False),
        ("amq.topic", "topic", False),
        ("amq.fanout", "fanout", False),
        ("amq.match", "headers", False),
        ("amq.headers", "headers", False),
        ("amq.rabbitmq.trace", "topic", True),
    ],
)
def test_s034_every_virtual_host_has_the_predeclared_exchanges(name: str, type_: str, internal: bool) -> None:
    channel = (
        Peer(ClientBench('[[virtual_hosts]]\nname = "/"\n[[virtual_hosts]]\nname = "new"')).open().channel()
    )
    assert name in channel.peer.bench.broker.virtual_hosts["new"].exchanges
    channel.does(m.ExchangeDeclare(name, passive=True))
    channel.exchange(name, type_, durable=True, internal=internal)


def test_s034_the_default_exchange_is_there_under_the_empty_name() -> None:
    channel = with_queue()
    channel.publish("", "q", b"by name")
    assert channel.bodies("q") == [b"by name"]
    assert channel.peer.bench.host.exchanges[""].type.name == "direct"


def test_s035_a_new_name_with_the_reserved_prefix_is_refused() -> None:
    text = opened().closed_with(m.ExchangeDeclare("amq.mine", "direct"))
    assert text == "403 ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"


def test_s035_the_reserved_prefix_is_fine_for_what_exists_and_for_asking() -> None:
    channel = opened()
    channel.exchange("amq.topic", "topic", durable=True)
    channel.does(m.ExchangeDeclare("amq.topic", passive=True))
    text = channel.closed_with(m.ExchangeDeclare("amq.mine", passive=True))
    assert text == "404 NOT_FOUND - no exchange 'amq.mine' in vhost '/'"


@pytest.mark.parametrize(
    "method",
    [
        m.ExchangeDeclare("", "direct"),
        m.ExchangeDeclare("", passive=True),
        m.ExchangeDeclare("\r\n", "direct"),
        m.ExchangeDelete(""),
        m.QueueBind("q", "", "key"),
        m.QueueUnbind("q", "", "q"),
        m.ExchangeBind("", "amq.direct"),
        m.ExchangeBind("amq.direct", ""),
        m.ExchangeUnbind("", "amq.direct"),
        m.ExchangeUnbind("amq.direct", ""),
    ],
)
def test_s036_nothing_can_be_done_to_the_default_exchange(method: Method) -> None:
    channel = with_queue()
    assert channel.closed_with(method) == DEFAULT_REFUSED


@pytest.mark.parametrize("name", ["amq.direct", "amq.rabbitmq.trace", "amq.match"])
def test_s037_a_predeclared_exchange_cannot_be_deleted(name: str) -> None:
    text = opened().closed_with(m.ExchangeDelete(name))
    assert text == f"403 ACCESS_REFUSED - deletion of system exchange '{name}' in vhost '/' not allowed"


# Declaring.


@pytest.mark.parametrize(
    "toml", ["", '[compat]\nprofile = "rabbitmq-3.13"', '[compat]\nprofile = "rabbitmq-4"']
)
def test_s038_an_unknown_type_is_refused_on_the_channel(toml: str) -> None:
    text = opened(toml).closed_with(m.ExchangeDeclare("x", "x-odd"))
    assert text == "406 PRECONDITION_FAILED - unknown exchange type 'x-odd'"


@pytest.mark.parametrize(
    "toml",
    [STRICT, '[compat]\nunknown_exchange_type = "command-invalid"'],
)
def test_s038_where_a_profile_says_so_an_unknown_type_ends_the_connection(toml: str) -> None:
    channel = opened(toml)
    text = channel.peer.closed_with(1, m.ExchangeDeclare("x", "x-odd"))
    assert text == "503 COMMAND_INVALID - unknown exchange type 'x-odd'"


@pytest.mark.parametrize(
    ("argument", "properties", "received", "current"),
    [
        ("durable", {"durable": True}, "true", "false"),
        ("auto_delete", {"auto_delete": True}, "true", "false"),
        ("internal", {"internal": True}, "true", "false"),
    ],
)
def test_s039_redeclaring_with_another_property_is_refused(
    argument: str, properties: dict[str, bool], received: str, current: str
) -> None:
    channel = opened()
    channel.exchange("x")
    assert channel.closed_with(m.ExchangeDeclare("x", "direct", **properties)) == (
        f"406 PRECONDITION_FAILED - inequivalent arg '{argument}' for exchange 'x' in vhost '/': "
        f"received '{received}' but current is '{current}'"
    )


OTHER_TYPE = "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'topic' but current is 'direct'"


@pytest.mark.parametrize("toml", LENIENT)
def test_s039_redeclaring_with_another_type_is_refused(toml: str) -> None:
    channel = opened(toml)
    channel.exchange("x", "direct")
    text = channel.closed_with(m.ExchangeDeclare("x", "topic"))
    assert text == f"406 PRECONDITION_FAILED - {OTHER_TYPE}"


@pytest.mark.parametrize("toml", [STRICT, '[compat]\nredeclare_other_type = "not-allowed"'])
def test_s039_where_a_profile_says_so_another_type_ends_the_connection(toml: str) -> None:
    channel = opened(toml)
    channel.exchange("x", "direct")
    text = channel.peer.closed_with(1, m.ExchangeDeclare("x", "topic"))
    assert text == f"530 NOT_ALLOWED - {OTHER_TYPE}"


@pytest.mark.parametrize("toml", [STRICT, *LENIENT])
def test_s039_another_property_stays_a_channel_error_in_every_profile(toml: str) -> None:
    channel = opened(toml)
    channel.exchange("x", "direct")
    assert channel.closed_with(m.ExchangeDeclare("x", "direct", durable=True)).startswith("406 ")


def test_s039_declaring_the_same_again_changes_nothing() -> None:
    channel = opened()
    for _ in range(2):
        channel.exchange("x", "topic", durable=True, auto_delete=True, internal=True)
    assert channel.peer.bench.host.exchanges["x"].durable


def test_s040_redeclaring_compares_the_alternate_exchange_and_no_other_argument() -> None:
    channel = opened()
    channel.exchange("x", arguments={"alternate-exchange": "a", "colour": "red"})
    channel.exchange("x", arguments={"alternate-exchange": "a", "colour": "blue", "x-size": 1})
    assert channel.closed_with(m.ExchangeDeclare("x", "direct", arguments={"alternate-exchange": "b"})) == (
        "406 PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '/': "
        "received the value 'b' of type 'longstr' but current is the value 'a' of type 'longstr'"
    )


def test_s041_asking_for_a_missing_exchange() -> None:
    text = opened().closed_with(m.ExchangeDeclare("x", passive=True))
    assert text == "404 NOT_FOUND - no exchange 'x' in vhost '/'"


def test_s041_asking_looks_at_the_name_only() -> None:
    channel = opened()
    channel.exchange("x", "fanout")
    odd = m.ExchangeDeclare("x", "x-odd", True, True, True, True, arguments={"alternate-exchange": 1})
    channel.does(odd)
    assert channel.call(m.ExchangeDeclare("x", passive=True, no_wait=True)) is None


@pytest.mark.parametrize("granted", ["configure", "write", "read"])
def test_s041_any_permission_will_do_for_asking(granted: str) -> None:
    channel = opened()
    channel.exchange("x")
    permitted(channel, **{granted: "^x$"})
    channel.does(m.ExchangeDeclare("x", passive=True))


def test_s041_without_any_permission_one_may_not_even_ask() -> None:
    channel = opened()
    permitted(channel)
    text = channel.closed_with(m.ExchangeDeclare("x", passive=True))
    assert (
        text == "403 ACCESS_REFUSED - configure access to exchange 'x' in vhost '/' refused for user 'guest'"
    )


def test_declaring_and_deleting_need_configure() -> None:
    channel = opened()
    channel.exchange("x")
    permitted(channel, write=".*", read=".*")
    refused = "403 ACCESS_REFUSED - configure access to exchange 'x' in vhost '/' refused for user 'guest'"
    assert channel.refused(m.ExchangeDeclare("x", "direct")) == refused
    assert channel.refused(m.ExchangeDelete("x")) == refused


def test_s042_line_ends_are_stripped_from_names_and_nothing_else() -> None:
    channel = opened()
    channel.exchange("a\r\nb c/é✋\n")
    assert "ab c/é✋" in channel.peer.bench.host.exchanges
    channel.does(m.ExchangeDeclare("ab c/é✋\r", passive=True))
    channel.declare("queue\n")
    channel.bind("que\rue", "ab c\n/é✋", "key")
    channel.publish("ab c/é✋", "key", b"found")
    assert channel.bodies("queue\n") == [b"found"]
    channel.does(m.QueueUnbind("queue\r", "ab c/é✋\n", "key"))
    channel.does(m.ExchangeDelete("ab c/é✋\r\n"))
    assert "ab c/é✋" not in channel.peer.bench.host.exchanges


def test_s042_routing_keys_keep_their_line_ends() -> None:
    channel = with_queue()
    channel.bind("q", "amq.direct", "one\r\ntwo")
    channel.publish("amq.direct", "one\r\ntwo", b"equal")
    channel.publish("amq.direct", "onetwo", b"not equal")
    assert channel.bodies("q") == [b"equal"]


def test_s042_names_need_not_be_utf_8_where_any_are_taken() -> None:
    channel = opened('[compat]\nnames = "any"')
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    channel.exchange(name)
    answer = channel.declare(name)
    assert answer.queue == name


def test_x016_a_node_holds_only_so_many_exchanges() -> None:
    channel = opened("[limits]\nexchanges_max = 8")
    channel.exchange("x")
    assert channel.closed_with(m.ExchangeDeclare("y", "direct")) == (
        "406 PRECONDITION_FAILED - cannot declare exchange 'y' in vhost '/': exchange limit of 8 is reached"
    )
    channel = channel.peer.channel(2)
    channel.exchange("x")
    channel.does(m.ExchangeDelete("x"))
    channel.exchange("y")


# Deleting.


@pytest.mark.parametrize("toml", LENIENT)
def test_s043_deleting_a_missing_exchange_is_fine(toml: str) -> None:
    opened(toml).does(m.ExchangeDelete("nowhere"))


@pytest.mark.parametrize("toml", [STRICT, '[compat]\ndelete_missing = "not-found"'])
def test_s043_where_a_profile_says_so_deleting_a_missing_exchange_is_refused(toml: str) -> None:
    text = opened(toml).closed_with(m.ExchangeDelete("nowhere"))
    assert text == "404 NOT_FOUND - no exchange 'nowhere' in vhost '/'"


def test_s044_an_exchange_that_is_a_source_is_in_use() -> None:
    channel = opened()
    channel.exchange("x")
    channel.declare("q")
    channel.bind("q", "x", "key")
    assert channel.refused(m.ExchangeDelete("x", if_unused=True)) == (
        "406 PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"
    )
    channel.does(m.QueueUnbind("q", "x", "key"))
    channel.does(m.ExchangeDelete("x", if_unused=True))


def test_s044_an_exchange_that_is_only_a_destination_is_not_in_use() -> None:
    channel = opened()
    channel.exchange("x")
    channel.link("amq.fanout", "x")
    channel.does(m.ExchangeDelete("x", if_unused=True))
    assert not list(channel.peer.bench.host.bindings())


def test_s045_an_auto_delete_exchange_goes_with_its_last_binding_as_source() -> None:
    channel = opened()
    exchanges = channel.peer.bench.host.exchanges
    channel.exchange("x", auto_delete=True)
    channel.declare("q")
    for key in ("1", "2"):
        channel.bind("q", "x", key)
    channel.does(m.QueueUnbind("q", "x", "1"))
    assert "x" in exchanges
    channel.does(m.QueueUnbind("q", "x", "2"))
    assert "x" not in exchanges


def test_s045_an_auto_delete_exchange_stays_until_it_had_a_binding() -> None:
    channel = opened()
    channel.exchange("x", "fanout", auto_delete=True)
    channel.publish("x", "", b"nowhere")
    channel.link("amq.fanout", "x")
    channel.does(m.ExchangeUnbind("x", "amq.fanout"))
    assert "x" in channel.peer.bench.host.exchanges


def test_s045_an_auto_delete_exchange_goes_with_the_queue_it_led_to() -> None:
    channel = opened()
    channel.exchange("x", auto_delete=True)
    channel.declare("q")
    channel.bind("q", "x")
    channel.does(m.QueueDelete("q"))
    assert "x" not in channel.peer.bench.host.exchanges


def test_s045_a_chain_of_auto_delete_exchanges_goes_link_by_link() -> None:
    channel = opened()
    for name in ("a", "b", "c"):
        channel.exchange(name, "fanout", auto_delete=True)
    channel.exchange("stays", "fanout")
    channel.declare("q")
    channel.link("stays", "a")
    channel.link("a", "b")
    channel.link("b", "c")
    channel.bind("q", "c")
    channel.does(m.QueueDelete("q"))
    exchanges = channel.peer.bench.host.exchanges
    assert not {"a", "b", "c"} & exchanges.keys()
    assert "stays" in exchanges
    assert not list(channel.peer.bench.host.bindings())


def test_s045_a_cycle_of_auto_delete_exchanges_goes_when_it_is_cut() -> None:
    channel = opened()
    for name in ("a", "b"):
        channel.exchange(name, "fanout", auto_delete=True)
    channel.link("a", "b")
    channel.link("b", "a")
    channel.does(m.ExchangeUnbind("b", "a"))
    assert not {"a", "b"} & channel.peer.bench.host.exchanges.keys()
    assert not list(channel.peer.bench.host.bindings())


def test_s058_deleting_an_exchange_takes_its_bindings_on_both_sides() -> None:
    channel = opened()
    for name in ("before", "x", "after"):
        channel.exchange(name, "fanout")
    channel.declare("q")
    channel.link("before", "x")
    channel.link("x", "after")
    channel.bind("q", "x")
    channel.does(m.ExchangeDelete("x"))
    assert not list(channel.peer.bench.host.bindings())
    channel.exchange("x", "fanout")
    channel.publish("before", "", b"1")
    channel.publish("x", "", b"2")
    assert channel.bodies("q") == []


# Types from plugins.


@pytest.mark.parametrize("weight", ["", "-1", "heavy", "1.5"])
def test_x015_a_hash_weight_must_be_a_whole_number_in_letters(weight: str) -> None:
    types = {**ClientBench().broker.exchange_types, "x-consistent-hash": ConsistentHash}
    channel = Peer(ClientBench(exchange_types=types)).open().channel()
    channel.exchange("x", "x-consistent-hash")
    channel.declare("q")
    assert channel.refused(m.QueueBind("q", "x", weight)).startswith("406 PRECONDITION_FAILED - ")
    for fine in ("0", "1", "250"):
        channel.bind("q", "x", fine)


ODD_NAME = """
from leveret.exchanges.exchange_type import ExchangeType

class Odd(ExchangeType):
    name = "odd"

    def route(self, message):
        return []
"""
BAD_CLASS = ODD_NAME.replace('"odd"', '"x-odd"').replace("route(self, message)", "route(self)")


@pytest.mark.parametrize("source", [ODD_NAME, BAD_CLASS])
def test_x014_a_bad_exchange_type_stops_the_boot_and_is_named(source: str, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(source)
    with pytest.raises(BadPlugin, match=r"odd\.py"):
        Plugins(folders=[tmp_path], entry_points=lambda group: []).load()


def test_x014_a_type_registered_twice_stops_the_boot_and_is_named(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(ODD_NAME.replace('"odd"', '"x-odd"'))
    with pytest.raises(BadPlugin, match="x-odd"):
        Plugins(folders=[tmp_path], entry_points=lambda group: []).load()
