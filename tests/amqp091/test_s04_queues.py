"""Queues from the client's side, §4 of the acceptance list: declaring, using and deleting them.

Arguments are in test_s04_arguments.py, limits and policies in test_s04_limits.py.
"""

from __future__ import annotations

import re

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method
from leveret.values import Table, Value
from tests.amqp091.peer import channel_of, opened, permitted, with_queue
from tests.harness.bench import ClientBench

from .peer import CAPABILITIES, Content, Peer

STRICT = '[compat]\nprofile = "spec"'
STRICT_ROW = '[compat]\ndelete_missing = "not-found"'
LENIENT = ("", '[compat]\nprofile = "rabbitmq-3.13"', '[compat]\nprofile = "rabbitmq-4"')


# Names.


def test_s060_a_queue_without_a_name_is_given_one_and_is_the_current_one() -> None:
    channel = opened()
    first, second = channel.declare(""), channel.declare("")
    for answer in (first, second):
        assert re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", answer.queue)
    assert first.queue != second.queue
    channel.publish("", second.queue, b"mine")
    assert channel.bodies("") == [b"mine"]


def test_s060_a_name_of_line_ends_only_is_none() -> None:
    assert opened().declare("\r\n").queue.startswith("amq.gen-")


def test_s060_a_given_name_can_be_declared_again() -> None:
    channel = opened()
    name = channel.declare("", exclusive=True).queue
    assert channel.declare(name, exclusive=True).queue == name


@pytest.mark.parametrize(
    ("prefix", "begins"),
    [("svc", "svc-"), ("amq.svc", "amq.svc-"), ("é" * 32, "é" * 32 + "-"), ("a\r\nb", "ab-")],
)
def test_a_generated_name_begins_as_the_client_asks(prefix: str, begins: str) -> None:
    channel = opened()
    arguments: Table = {"x-name-prefix": prefix, "x-max-length": 5}
    first, second = (channel.declare("", arguments=arguments, exclusive=True).queue for _ in range(2))
    assert re.fullmatch(re.escape(begins) + "[A-Za-z0-9_-]{22}", first)
    assert first != second
    assert channel.peer.bench.queue(first).arguments == {"x-max-length": 5}  # it belongs to the declaration


@pytest.mark.parametrize("prefix", ["", 5, None])
def test_a_prefix_that_is_none_changes_nothing(prefix: Value) -> None:
    assert opened().declare("", arguments={"x-name-prefix": prefix}).queue.startswith("amq.gen-")


def test_a_prefix_has_at_most_64_bytes() -> None:
    long = "é" * 32 + "x"
    text = opened().refused(m.QueueDeclare("", arguments={"x-name-prefix": long}))
    assert text == f"406 PRECONDITION_FAILED - Queue name prefix '{long}' exceeds the 64-byte limit"


def test_a_prefix_says_nothing_of_a_queue_with_a_name() -> None:
    channel = opened()
    channel.declare("q", arguments={"x-name-prefix": "svc"})
    channel.declare("q", arguments={"x-name-prefix": "x" * 100})
    assert channel.declare("q").queue == "q"


def test_a_prefix_needs_permission_for_the_name_that_comes_of_it() -> None:
    channel = opened()
    permitted(channel, configure="^svc-")
    assert channel.declare("", arguments={"x-name-prefix": "svc"}).queue.startswith("svc-")
    assert channel.refused(m.QueueDeclare("")).startswith("403 ACCESS_REFUSED")


def test_s061_a_new_name_with_the_reserved_prefix_is_refused() -> None:
    channel = opened()
    text = channel.refused(m.QueueDeclare("amq.foo"))
    assert text == "403 ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix 'amq.*'"
    text = channel.refused(m.QueueDeclare("amq.foo", passive=True))
    assert text == "404 NOT_FOUND - no queue 'amq.foo' in vhost '/'"


ON_THE_CURRENT_QUEUE: list[Method] = [
    m.QueueBind("", "amq.direct", "key"),
    m.QueueUnbind("", "amq.direct", "key"),
    m.QueuePurge(""),
    m.QueueDelete(""),
    m.BasicGet(""),
    m.BasicConsume(""),
]


@pytest.mark.parametrize("method", ON_THE_CURRENT_QUEUE, ids=lambda method: method.name)
@pytest.mark.parametrize("toml", LENIENT)
def test_s062_without_a_declared_queue_no_name_means_none(toml: str, method: Method) -> None:
    assert opened(toml).closed_with(method) == "404 NOT_FOUND - no previously declared queue"


@pytest.mark.parametrize("method", ON_THE_CURRENT_QUEUE, ids=lambda method: method.name)
@pytest.mark.parametrize("toml", [STRICT, '[compat]\nno_current_queue = "syntax-error"'])
def test_s062_where_a_profile_says_so_that_ends_the_connection(toml: str, method: Method) -> None:
    text = opened(toml).peer.closed_with(1, method)
    assert text == "502 SYNTAX_ERROR - no previously declared queue"


@pytest.mark.parametrize("method", ON_THE_CURRENT_QUEUE, ids=lambda method: method.name)
def test_s062_with_a_declared_queue_no_name_means_that_one(method: Method) -> None:
    channel = with_queue()
    answer = channel.call(method)
    assert isinstance(answer, Method)
    assert answer.name.startswith(method.name)


def test_s062_the_current_queue_is_each_channels_own_and_passive_counts() -> None:
    one = opened()
    other = one.peer.channel(2)
    one.declare("q")
    one.declare("later")
    one.declare("q", passive=True)
    assert other.closed_with(m.QueuePurge("")).startswith("404 ")
    one.does(m.QueueDelete(""))
    assert set(one.peer.bench.host.queues) == {"later"}


def test_s063_without_queue_and_key_the_current_queues_name_is_the_key() -> None:
    channel = with_queue()
    channel.bind("", "amq.direct", "")
    channel.publish("amq.direct", "q", b"by its name")
    channel.publish("amq.direct", "", b"by no key")
    assert channel.bodies("q") == [b"by its name"]
    channel.does(m.QueueUnbind("", "amq.direct", ""))
    assert not list(channel.peer.bench.host.bindings())


def test_s063_with_a_queue_the_empty_key_is_the_empty_key() -> None:
    channel = with_queue()
    channel.bind("q", "amq.direct", "")
    channel.publish("amq.direct", "q", b"by its name")
    channel.publish("amq.direct", "", b"by no key")
    assert channel.bodies("q") == [b"by no key"]


def test_s064_asking_for_a_missing_queue() -> None:
    text = opened().closed_with(m.QueueDeclare("q", passive=True))
    assert text == "404 NOT_FOUND - no queue 'q' in vhost '/'"


def test_s064_asking_looks_at_the_name_only_and_any_permission_will_do() -> None:
    channel = with_queue()
    channel.publish("", "q", b"")
    for granted in ("configure", "write", "read"):
        permitted(channel, **{granted: "^q$"})
        answer = channel.declare("q", passive=True, durable=True, arguments={"x-max-length": "odd"})
        assert (answer.message_count, answer.consumer_count) == (1, 0)
    permitted(channel)
    assert channel.closed_with(m.QueueDeclare("q", passive=True)) == (
        "403 ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'guest'"
    )


# Properties.


@pytest.mark.parametrize("argument", ["durable", "exclusive", "auto_delete"])
@pytest.mark.parametrize("before", [False, True])
def test_s065_redeclaring_with_another_property_is_refused(argument: str, before: bool) -> None:
    channel = channel_of(ClientBench('compat.redeclare_exclusive = "precondition-failed"'))
    channel.declare("q", **{argument: before})
    received, current = ("false", "true") if before else ("true", "false")
    assert channel.closed_with(m.QueueDeclare("q", **{argument: not before})) == (
        f"406 PRECONDITION_FAILED - inequivalent arg '{argument}' for queue 'q' in vhost '/': "
        f"received '{received}' but current is '{current}'"
    )


@pytest.mark.parametrize("before", [False, True])
def test_s066_a_queue_that_is_exclusive_or_not_is_locked_to_those_who_take_it_for_the_other(
    before: bool,
) -> None:
    channel = with_queue(exclusive=before)
    assert channel.closed_with(m.QueueDeclare("q", exclusive=not before)) == (
        "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be "
        "originally declared on another connection or the exclusive property value does not match that of the "
        "original declaration."
    )


def test_s065_declaring_the_same_again_changes_nothing() -> None:
    channel = opened()
    properties = {"durable": True, "auto_delete": True, "arguments": {"x-max-length": 5}}
    channel.declare("q", **properties)
    channel.publish("", "q", b"kept")
    assert channel.declare("q", **properties).message_count == 1


LOCKED = (
    "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. "
    "It could be originally declared on another connection or the exclusive property value does not "
    "match that of the original declaration."
)


@pytest.mark.parametrize(
    "method",
    [
        m.QueueDeclare("q", exclusive=True),
        m.QueueDeclare("q"),
        m.QueueDeclare("q", passive=True),
        m.QueueBind("q", "amq.direct", "key"),
        m.QueueUnbind("q", "amq.direct", "key"),
        m.QueuePurge("q"),
        m.QueueDelete("q"),
        m.BasicConsume("q"),
        m.BasicGet("q"),
    ],
    ids=lambda method: method.name,
)
def test_s066_an_exclusive_queue_is_its_connections_alone(method: Method) -> None:
    owner = opened()
    owner.declare("q", exclusive=True)
    other = Peer(owner.peer.bench).open().channel()
    assert other.closed_with(method) == LOCKED
    assert owner.declare("q", exclusive=True)


def test_s066_another_channel_of_the_same_connection_may_use_it() -> None:
    owner = opened()
    owner.declare("q", exclusive=True)
    other = owner.peer.channel(2)
    other.declare("q", exclusive=True)
    other.consume("q", "t")


def test_s066_others_may_publish_to_an_exclusive_queue() -> None:
    owner = opened()
    owner.declare("q", exclusive=True)
    Peer(owner.peer.bench).open().channel().publish("", "q", b"a reply")
    assert owner.bodies("q") == [b"a reply"]


@pytest.mark.parametrize("how", ["drop", "close"])
def test_s067_exclusive_queues_go_with_their_connection(how: str) -> None:
    owner = opened()
    bench = owner.peer.bench
    owner.declare("q", exclusive=True)
    owner.declare("stays")
    owner.bind("q", "amq.direct", "key")
    owner.does(m.ChannelClose())
    assert "q" in bench.host.queues
    if how == "drop":
        owner.peer.drop()
    else:
        owner.peer.call(0, m.ConnectionClose())
    assert set(bench.host.queues) == {"stays"}
    assert not list(bench.host.bindings())
    assert Peer(bench).open().channel().declare("q", exclusive=True)


@pytest.mark.parametrize("how", ["cancel", "channel", "connection", "drop"])
def test_s068_an_auto_delete_queue_goes_with_its_last_consumer(how: str) -> None:
    channel = opened()
    peer, queues = channel.peer, channel.peer.bench.host.queues
    channel.declare("q", auto_delete=True)
    channel.consume("q", "one")
    channel.consume("q", "two")
    channel.does(m.BasicCancel("one"))
    assert "q" in queues
    if how == "cancel":
        channel.does(m.BasicCancel("two"))
    elif how == "channel":
        channel.does(m.ChannelClose())
    elif how == "connection":
        peer.call(0, m.ConnectionClose())
    else:
        peer.drop()
    assert "q" not in queues


def test_s068_an_auto_delete_queue_that_never_had_a_consumer_stays() -> None:
    channel = opened()
    bench = channel.peer.bench
    channel.declare("q", auto_delete=True)
    channel.publish("", "q", b"fetched")
    assert channel.bodies("q") == [b"fetched"]
    channel.peer.drop()
    assert "q" in bench.host.queues


def test_s069_what_is_to_survive_a_restart_is_known() -> None:
    """Messages live in memory here: a store keeps what queue and message both mark as durable, and nothing else."""
    channel = opened()
    channel.declare("durable", durable=True)
    channel.declare("transient")
    for name in ("durable", "transient"):
        channel.publish("", name, b"persistent", BasicProperties(delivery_mode=2))
        channel.publish("", name, b"transient", BasicProperties(delivery_mode=1))
    bench = channel.peer.bench
    lasting = [
        (queue.name, delivery.message.body)
        for queue in bench.host.queues.values()
        for delivery in queue.waiting()
        if queue.durable and delivery.message.facts.durable
    ]
    assert lasting == [("durable", b"persistent")]
    assert not ClientBench().host.queues


@pytest.mark.parametrize("toml", ["", STRICT, '[compat]\nprofile = "rabbitmq-3.13"'])
def test_s070_a_queue_may_be_neither_durable_nor_exclusive(toml: str) -> None:
    assert opened(toml).declare("q").queue == "q"


@pytest.mark.parametrize(
    "toml", ['[compat]\nprofile = "rabbitmq-4"', '[compat]\ntransient_queues = "refuse"']
)
def test_s070_where_a_profile_says_so_such_a_queue_ends_the_connection(toml: str) -> None:
    channel = opened(toml)
    channel.declare("durable", durable=True)
    channel.declare("exclusive", exclusive=True)
    assert channel.peer.closed_with(1, m.QueueDeclare("q")) == (
        "541 INTERNAL_ERROR - Feature `transient_nonexcl_queues` is deprecated. "
        "By default, this feature is not permitted anymore."
    )


# Counting, binding, emptying.


def test_s071_declare_ok_counts_ready_messages_and_active_consumers() -> None:
    channel = with_queue()
    for _ in range(3):
        channel.publish("", "q", b"")
    channel.get("q", no_ack=False)
    assert channel.declare("q") == m.QueueDeclareOk("q", 2, 0)
    channel.does(m.BasicQos(0, 1))
    channel.consume("q", "one")
    channel.consume("q", "two")
    channel.all()
    assert channel.declare("q") == m.QueueDeclareOk("q", 0, 2)


def test_s071_a_consumer_suspended_by_flow_is_not_active() -> None:
    channel = opened()
    other = channel.peer.channel(2)
    channel.declare("q")
    channel.consume("q", "paused")
    other.consume("q", "active")
    channel.does(m.ChannelFlow(False))
    assert other.declare("q").consumer_count == 1
    channel.does(m.ChannelFlow(True))
    assert other.declare("q").consumer_count == 2


def test_s072_every_queue_is_bound_to_the_default_exchange_for_good() -> None:
    channel = with_queue()
    channel.publish("", "q", b"by name")
    assert channel.bodies("q") == [b"by name"]
    assert not list(channel.peer.bench.host.bindings())
    text = channel.closed_with(m.QueueUnbind("q", "", "q"))
    assert text == "403 ACCESS_REFUSED - operation not permitted on the default exchange"


def test_s073_a_binding_needs_its_queue_and_its_exchange() -> None:
    channel = with_queue()
    assert channel.refused(m.QueueBind("nowhere", "amq.direct")) == (
        "404 NOT_FOUND - no queue 'nowhere' in vhost '/'"
    )
    assert (
        channel.refused(m.QueueBind("q", "nowhere")) == "404 NOT_FOUND - no exchange 'nowhere' in vhost '/'"
    )


def test_s074_purging_takes_what_is_ready_and_nothing_else() -> None:
    channel = with_queue()
    for body in (b"1", b"2", b"3"):
        channel.publish("", "q", body)
    first = channel.get("q", no_ack=False)
    assert first is not None
    assert channel.call(m.QueuePurge("q")) == m.QueuePurgeOk(2)
    assert channel.call(m.QueuePurge("q")) == m.QueuePurgeOk(0)
    channel.send(m.BasicReject(1, True))
    assert channel.bodies("q") == [b"1"]


def test_s074_purging_a_missing_queue_and_without_read_is_refused() -> None:
    channel = with_queue()
    assert channel.refused(m.QueuePurge("nowhere")) == "404 NOT_FOUND - no queue 'nowhere' in vhost '/'"
    permitted(channel, configure=".*", write=".*")
    assert channel.closed_with(m.QueuePurge("q")) == (
        "403 ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'guest'"
    )


# Deleting.


@pytest.mark.parametrize("toml", LENIENT)
def test_s075_deleting_a_missing_queue_is_fine(toml: str) -> None:
    assert opened(toml).call(m.QueueDelete("nowhere")) == m.QueueDeleteOk(0)


@pytest.mark.parametrize("toml", [STRICT, STRICT_ROW])
def test_s075_where_a_profile_says_so_deleting_a_missing_queue_is_refused(toml: str) -> None:
    text = opened(toml).closed_with(m.QueueDelete("nowhere"))
    assert text == "404 NOT_FOUND - no queue 'nowhere' in vhost '/'"


def test_s076_a_queue_in_use_or_not_empty_may_be_spared() -> None:
    channel = with_queue()
    channel.publish("", "q", b"")
    assert channel.refused(m.QueueDelete("q", if_empty=True)) == (
        "406 PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"
    )
    other = channel.peer.channel(2)
    other.consume("q", "t", no_ack=True)
    assert channel.refused(m.QueueDelete("q", if_unused=True)) == (
        "406 PRECONDITION_FAILED - queue 'q' in vhost '/' in use"
    )
    other.all()
    other.does(m.BasicCancel("t"))
    assert channel.call(m.QueueDelete("q", True, True)) == m.QueueDeleteOk(0)


def test_deleting_says_how_many_messages_went_and_takes_bindings_along() -> None:
    channel = with_queue()
    channel.bind("q", "amq.direct", "key")
    for _ in range(3):
        channel.publish("amq.direct", "key")
    assert channel.call(m.QueueDelete("q")) == m.QueueDeleteOk(3)
    assert not list(channel.peer.bench.host.bindings())
    channel.publish("amq.direct", "key", mandatory=True)
    (returned,) = channel.deliveries()
    assert isinstance(returned.method, m.BasicReturn)


def test_deleting_needs_configure() -> None:
    channel = with_queue()
    permitted(channel, write=".*", read=".*")
    refused = "403 ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'guest'"
    assert channel.refused(m.QueueDelete("q")) == refused
    assert channel.refused(m.QueueDeclare("q")) == refused


def test_s077_consumers_of_a_deleted_queue_are_told_if_they_can_be() -> None:
    bench = ClientBench()
    told = Peer(bench).open().channel()
    untold = Peer(bench).open(capabilities={**CAPABILITIES, "consumer_cancel_notify": False}).channel()
    told.declare("q")
    for channel in (told, untold):
        channel.consume("q", "t")
    Peer(bench).open().channel().does(m.QueueDelete("q"))
    assert told.all() == [m.BasicCancel("t", True)]
    assert untold.all() == []
    for channel in (told, untold):  # the tag is free again
        channel.declare("q")
        channel.consume("q", "t")


def test_s077_a_delivery_of_a_deleted_queue_can_still_be_answered() -> None:
    channel = with_queue()
    for _ in range(3):
        channel.publish("", "q", b"")
    channel.consume("q", "t")
    channel.all()
    channel.send(m.QueueDelete("q"))
    assert channel.all() == [m.QueueDeleteOk(0), m.BasicCancel("t", True)]
    channel.ack(1)
    channel.send(m.BasicReject(2, True))
    channel.send(m.BasicNack(3, False, False))
    assert channel.all() == []
    assert channel.closed_with(m.BasicAck(3)) == "406 PRECONDITION_FAILED - unknown delivery tag 3"


def test_s077_a_publish_to_a_queue_deleted_before_its_confirm_is_confirmed() -> None:
    channel = with_queue()
    channel.confirms()
    channel.publish("", "q", b"in it", settle=False)
    channel.peer.send_bytes(wire.method_frame(1, m.QueueDelete("q").encode()))
    answers = channel.all()
    assert m.BasicAck(1, False) in answers
    assert m.QueueDeleteOk(1) in answers


def test_a_queue_can_be_made_anew_at_once_and_is_empty() -> None:
    channel = with_queue(durable=True)
    channel.publish("", "q", b"old")
    channel.does(m.QueueDelete("q"))
    assert channel.declare("q").message_count == 0
    channel.publish("", "q", b"new")
    content = channel.get("q")
    assert isinstance(content, Content)
    assert content.body == b"new"
