"""Publishing (§5 of the acceptance list): what is returned, what is checked, and what a message may be."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import channel_of, confirming, with_queue
from tests.harness.bench import ClientBench, StoredBench

from .peer import ClientChannel, Content, Peer

TEXT = BasicProperties(content_type="text/plain", headers={"a": 1}, message_id="7")


# Returns.


def test_s084_a_mandatory_message_without_a_queue_is_returned_before_it_is_confirmed() -> None:
    channel = confirming()
    channel.publish("amq.direct", "nowhere", b"body", TEXT, mandatory=True)
    returned, ack = channel.all()
    assert isinstance(returned, Content)
    assert returned.method == m.BasicReturn(312, "NO_ROUTE", "amq.direct", "nowhere")
    assert (returned.raw_properties, returned.body) == (TEXT.encode(), b"body")
    assert ack == m.BasicAck(1, False)


def told(channel: ClientChannel, *publishes: tuple[str, BasicProperties]) -> list[str]:
    """What a client hears of mandatory messages that come in one read: the numbers of confirms, and returned keys."""
    peer, content = channel.peer, []
    for key, properties in publishes:
        method = m.BasicPublish("", key, True).encode()
        wire.append_content(content, 1, method, properties.encode(), b"body", peer.front.wire.frame_max)
    peer.send_bytes(b"".join(content))
    heard: list[str] = []
    for each in channel.all():
        if isinstance(each, Content):
            heard.append(f"return {each.method.routing_key}")
        else:
            name = type(each).__name__.removeprefix("Basic").lower()
            heard.append(f"{name} {each.delivery_tag}{' multiple' if each.multiple else ''}")
    return heard


def test_s084_returns_and_confirms_of_a_read_keep_their_order() -> None:
    channel = confirming()
    channel.declare("q")
    channel.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    keys = ("q", "q", "nowhere", "q", "full", "nobody", "nowhere")
    assert told(channel, *((key, TEXT) for key in keys)) == [
        "ack 2 multiple",
        "return nowhere",
        "ack 4 multiple",
        "nack 5",
        "return nobody",
        "ack 6",
        "return nowhere",
        "ack 7",
    ]


@pytest.mark.parametrize("queue", ["classic", "quorum", "stream"])
def test_s084_an_ack_that_waits_for_the_disk_does_not_come_with_a_return(queue: str) -> None:
    bench = StoredBench()
    channel = confirming(bench)
    channel.declare("q", durable=True, arguments={"x-queue-type": queue})
    channel.declare("transient")
    bench.settle()
    bench.store.held = True
    lasting = BasicProperties(delivery_mode=2)
    heard = told(channel, ("transient", TEXT), ("nowhere", TEXT), ("q", lasting), ("nowhere", TEXT))
    assert heard == ["ack 1", "return nowhere", "return nowhere"]
    assert told(channel, ("transient", TEXT), ("nowhere", TEXT)) == ["return nowhere"]
    bench.store.land()
    bench.settle()
    assert channel.all()[-1] == m.BasicAck(6, True)


def test_s084_a_mandatory_message_with_a_queue_is_not_returned() -> None:
    channel = confirming()
    channel.declare("q")
    channel.publish("", "q", b"body", mandatory=True)
    assert channel.all() == [m.BasicAck(1, False)]


def test_s085_without_mandatory_it_is_dropped_and_confirmed() -> None:
    channel = confirming()
    channel.publish("amq.direct", "nowhere", b"body")
    assert channel.all() == [m.BasicAck(1, False)]
    assert channel.peer.bench.host.exchanges["amq.direct"].unroutable == 1


def test_s086_immediate_is_returned_if_no_queue_can_deliver_now() -> None:
    channel = confirming()
    channel.declare("q")
    channel.publish("", "q", b"body", TEXT, immediate=True)
    returned, ack = channel.all()
    assert returned.method == m.BasicReturn(313, "NO_CONSUMERS", "", "q")
    assert (returned.raw_properties, returned.body) == (TEXT.encode(), b"body")
    assert ack == m.BasicAck(1, False)
    assert channel.get("q") is None


def test_s086_immediate_goes_to_a_waiting_consumer() -> None:
    channel = with_queue()
    channel.consume("q")
    channel.publish("", "q", b"body", mandatory=True, immediate=True)
    assert [d.body for d in channel.deliveries()] == [b"body"]


def test_s086_a_consumer_without_credit_cannot_take_it_and_one_with_credit_takes_one() -> None:
    channel = with_queue()
    channel.prefetch(1)
    channel.consume("q")
    channel.publish("", "q", b"1", immediate=True, settle=False)
    channel.publish("", "q", b"2", immediate=True)
    first, second = channel.all()
    assert isinstance(first.method, m.BasicDeliver | m.BasicReturn)
    found = {type(each.method): each.body for each in (first, second)}
    assert found == {m.BasicDeliver: b"1", m.BasicReturn: b"2"}


def test_s086_a_consumer_behind_waiting_messages_cannot_take_it() -> None:
    channel = with_queue()
    channel.prefetch(1)
    channel.consume("q")
    for body in (b"1", b"2"):
        channel.publish("", "q", body)
    channel.publish("", "q", b"now", immediate=True)
    assert [type(each.method) for each in channel.all()] == [m.BasicDeliver, m.BasicReturn]


def test_s086_of_several_queues_those_that_can_deliver_now_get_it() -> None:
    channel = channel_of()
    for queue in ("served", "idle"):
        channel.declare(queue)
        channel.bind(queue, "amq.fanout")
    channel.consume("served")
    channel.publish("amq.fanout", "", b"now", immediate=True)
    assert [d.body for d in channel.deliveries()] == [b"now"]
    assert channel.get("idle") is None


@pytest.mark.parametrize(("mandatory", "code"), [(True, 312), (False, 313)])
def test_s086_immediate_without_any_queue_is_returned_too(mandatory: bool, code: int) -> None:
    channel = channel_of()
    channel.publish("", "nowhere", b"", mandatory=mandatory, immediate=True)
    [returned] = channel.all()
    assert returned.method.reply_code == code


@pytest.mark.parametrize("profile", ["rabbitmq-3.13", "rabbitmq-4"])
def test_s086_in_rabbitmq_profiles_immediate_is_not_implemented(profile: str) -> None:
    peer = Peer(ClientBench(f'[compat]\nprofile = "{profile}"')).open()
    peer.channel().publish("", "q", b"", immediate=True)
    assert peer.refusal() == "540 NOT_IMPLEMENTED - immediate=true"


# Permissions.


@pytest.mark.parametrize(("exchange", "shown"), [("amq.direct", "amq.direct"), ("", "amq.default")])
def test_s087_publishing_needs_write_on_the_exchange(exchange: str, shown: str) -> None:
    bench = ClientBench()
    channel = channel_of(bench, bench.user("u", write="^other$"))
    channel.publish(exchange, "k")
    assert (
        channel.refusal()
        == f"403 ACCESS_REFUSED - write access to exchange '{shown}' in vhost '/' refused for user 'u'"
    )


def test_s087_a_permission_that_is_taken_away_holds_for_the_next_message() -> None:
    bench = ClientBench()
    channel = channel_of(bench, bench.user("u"))
    channel.publish("amq.direct", "k")
    bench.broker.access.set_permissions("u", "/", ".*", "^$", ".*")
    channel.publish("amq.direct", "k")
    assert channel.refusal().startswith("403 ACCESS_REFUSED - write access")


def topic_writer() -> ClientChannel:
    bench = ClientBench()
    user = bench.user("u")
    bench.broker.access.set_topic_permissions(user, "/", "amq.topic", r"^mine\.", ".*")
    channel = channel_of(bench, user)
    channel.declare("q")
    for exchange in ("amq.topic", "amq.fanout"):
        channel.bind("q", exchange, "#")
    return channel


def test_s088_topic_permissions_are_checked_besides() -> None:
    channel = topic_writer()
    channel.publish("amq.topic", "mine.a", b"1")
    channel.publish("amq.topic", "theirs", b"2")
    assert channel.refusal() == (
        "403 ACCESS_REFUSED - write access to topic 'theirs' in exchange 'amq.topic' in vhost '/' "
        "refused for user 'u'"
    )
    channel = channel.peer.channel(2)
    assert channel.bodies("q") == [b"1"]


def test_s088_only_topic_exchanges_have_topic_permissions() -> None:
    channel = topic_writer()
    channel.publish("amq.fanout", "theirs", b"1")
    assert channel.bodies("q") == [b"1"]


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_s088_further_keys_are_checked_as_the_first(header: str) -> None:
    channel = topic_writer()
    channel.publish("amq.topic", "mine.a", b"", BasicProperties(headers={header: ["mine.b", "theirs"]}))
    assert "write access to topic 'theirs'" in channel.refusal()


def test_s088_a_placeholder_stands_for_the_user() -> None:
    bench = ClientBench()
    bench.broker.access.set_topic_permissions(bench.user("u"), "/", "amq.topic", "^{username}$", ".*")
    channel = channel_of(bench, "u")
    channel.publish("amq.topic", "u")
    channel.publish("amq.topic", "v")
    assert "topic 'v'" in channel.refusal()


# Properties that are checked.


def test_s089_the_user_id_is_the_users_own() -> None:
    channel = with_queue()
    channel.publish("", "q", b"", BasicProperties(user_id="guest"))
    channel.publish("", "q", b"", BasicProperties(user_id="a"))
    text = "406 PRECONDITION_FAILED - user_id property set to 'a' but authenticated user was 'guest'"
    assert channel.refusal() == text
    content = channel.peer.channel(2).get("q")
    assert content is not None
    assert content.properties.user_id == "guest"


def test_s089_an_impersonator_may_say_who_he_is() -> None:
    bench = ClientBench()
    channel = channel_of(bench, bench.user("u", tags=["impersonator"]))
    channel.declare("q")
    channel.publish("", "q", b"as a", BasicProperties(user_id="a"))
    assert channel.bodies("q") == [b"as a"]


@pytest.mark.parametrize(
    ("expiration", "fault"),
    [
        ("", "no_integer"),
        ("x", "no_integer"),
        ("-", "no_integer"),
        (" 1", "no_integer"),
        ("1x", "leftover_string"),
        ("1.5", "leftover_string"),
        ("1 ", "leftover_string"),
        ("-1", "value_negative"),
        ("315360000001", "value_too_large"),
        ("9" * 100, "value_too_large"),
    ],
)
def test_s090_an_expiration_that_is_no_time_is_refused(expiration: str, fault: str) -> None:
    channel = channel_of()
    channel.publish("", "q", b"", BasicProperties(expiration=expiration))
    assert channel.refusal() == f"406 PRECONDITION_FAILED - invalid expiration '{expiration}': {fault}"


@pytest.mark.parametrize("expiration", ["0", "1", "+1", "007", "0" * 30 + "7", "315360000000"])
def test_s090_an_expiration_that_is_a_time_is_accepted_and_kept(expiration: str) -> None:
    channel = with_queue()
    channel.consume("q", no_ack=True)
    channel.publish("", "q", b"", BasicProperties(expiration=expiration))
    [delivered] = channel.deliveries()
    assert delivered.properties.expiration == expiration


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize(("value", "type_"), [("a", "longstr"), (1, "signedint"), ({"a": 1}, "table")])
def test_s091_a_cc_that_is_no_array_is_refused(header: str, value: wire.FieldValue, type_: str) -> None:
    channel = channel_of()
    channel.publish("", "q", b"", BasicProperties(headers={header: value}))
    assert channel.refusal() == (
        f"406 PRECONDITION_FAILED - invalid message: unacceptable type '{type_}' in header '{header}', "
        "expected an array"
    )


def test_s091_cc_and_bcc_are_further_keys_and_bcc_is_not_shown() -> None:
    channel = channel_of()
    for queue in ("to", "cc1", "cc2", "bcc"):
        channel.declare(queue)
    headers = {"a": 1, "CC": ["cc1", "cc2", "to", "cc1"], "BCC": ["bcc"], "z": 2}
    channel.publish("", "to", b"body", BasicProperties(headers=headers))
    for queue in ("to", "cc1", "cc2", "bcc"):
        content = channel.get(queue)
        assert content is not None
        assert content.method.routing_key == "to"
        assert content.properties.headers == {"a": 1, "CC": ["cc1", "cc2", "to", "cc1"], "z": 2}
        assert channel.get(queue) is None  # once, however often the keys name it


@pytest.mark.parametrize("bcc", [["b"], [], [1]])
def test_s091_a_returned_message_does_not_show_bcc_either(bcc: wire.FieldValue) -> None:
    """Not even one that names nobody."""
    channel = channel_of()
    properties = BasicProperties(headers={"CC": ["c"], "BCC": bcc})
    channel.publish("", "nowhere", b"", properties, mandatory=True)
    [returned] = channel.all()
    assert returned.properties.headers == {"CC": ["c"]}


def test_s091_entries_that_are_no_strings_are_passed_over() -> None:
    channel = with_queue()
    channel.publish("", "nowhere", b"found", BasicProperties(headers={"CC": [1, None, "q"]}))
    assert channel.bodies("q") == [b"found"]


def test_s091_further_keys_are_matched_by_every_type_of_exchange_that_looks_at_keys() -> None:
    channel = channel_of()
    for queue, exchange, key in (("d", "amq.direct", "cc"), ("t", "amq.topic", "*.cc")):
        channel.declare(queue)
        channel.bind(queue, exchange, key)
    properties = BasicProperties(headers={"CC": ["cc"], "BCC": ["b.cc"]})
    for exchange in ("amq.direct", "amq.topic"):
        channel.publish(exchange, "none", exchange.encode(), properties)
    assert channel.bodies("d") == [b"amq.direct"]
    assert channel.bodies("t") == [b"amq.topic"]


# Size.


def test_s092_a_body_above_the_limit_is_refused_before_it_is_sent() -> None:
    channel = channel_of(ClientBench("[limits]\nmessage_size_max = 10"))
    channel.declare("q")
    channel.publish("", "q", b"x" * 10)
    channel.publish("", "q", b"x" * 11)
    text = "406 PRECONDITION_FAILED - message size 11 is larger than configured max size 10 (limits.message_size_max)"
    assert channel.refusal() == text
    assert channel.peer.channel(2).bodies("q") == [b"x" * 10]


def test_s092_the_limit_is_16_mib() -> None:
    channel = channel_of()
    header = wire.header_frame(1, 60, (16 << 20) + 1, BasicProperties().encode())
    channel.send(m.BasicPublish("", "q"))
    channel.peer.send_bytes(header)
    text = "406 PRECONDITION_FAILED - message size 16777217 is larger than configured max size 16777216 "
    assert channel.refusal() == text + "(limits.message_size_max)"


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 20_000, 100_000])
def test_bodies_of_every_size_pass_through_small_frames(size: int) -> None:
    bench = ClientBench()
    channel = Peer(bench).open(frame_max=4096).channel()
    channel.declare("q")
    body = bytes(i % 251 for i in range(size))
    channel.publish("", "q", body, TEXT)
    channel.consume("q", no_ack=True)
    [delivered] = channel.deliveries()
    assert (delivered.body, delivered.raw_properties) == (body, TEXT.encode())


def test_large_frames_in_leave_as_small_frames_for_those_who_want_small_ones() -> None:
    bench = ClientBench()
    large = Peer(bench).open(frame_max=131_072).channel()
    small = Peer(bench).open(frame_max=4096).channel()
    small.declare("q")
    body = b"0123456789" * 10_000
    large.publish("", "q", body)
    small.send(m.BasicGet("q", True))
    data = small.peer.take_bytes()
    sizes, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 7], "big")
        sizes.append(size + 8)
        at += size + 8
    assert max(sizes) == 4096
    assert sum(sizes[2:]) - 8 * len(sizes[2:]) == len(body)


def frames_of(channel: ClientChannel, body: bytes) -> list[bytes]:
    header, *pieces = wire.content_frames(channel.number, BasicProperties().encode(), body, 4096)
    method = wire.method_frame(channel.number, m.BasicPublish("", "q").encode())
    return [method, header, *(b"".join(pieces[at : at + 3]) for at in range(0, len(pieces), 3))]


def test_contents_of_two_channels_may_be_interleaved() -> None:
    peer = Peer().open(frame_max=4096)
    one, two = peer.channel(1), peer.channel(2)
    one.declare("q")
    for first, second in zip(frames_of(one, b"1" * 10_000), frames_of(two, b"2" * 10_000), strict=True):
        peer.send_bytes(first)
        peer.send_bytes(second)
    assert one.bodies("q") == [b"1" * 10_000, b"2" * 10_000]


# Order.


def test_s095_what_one_channel_publishes_arrives_in_order() -> None:
    channel = with_queue()
    channel.bind("q", "amq.fanout")
    channel.bind("q", "amq.topic", "#")
    channel.bind("q", "amq.direct", "k")
    routes = (("", "q"), ("amq.fanout", ""), ("amq.topic", "a.b"), ("amq.direct", "k"))
    for number in range(40):
        exchange, key = routes[number % 4]
        channel.publish(exchange, key, str(number).encode(), settle=number % 7 == 0)
    assert channel.bodies("q") == [str(number).encode() for number in range(40)]


def test_s095_also_over_consumers_that_come_and_go() -> None:
    channel = with_queue()
    seen = []
    for number in range(30):
        channel.publish("", "q", str(number).encode())
        if number % 10 == 4:
            channel.consume("q", "t", no_ack=True)
        if number % 10 == 7:
            seen += [d.body for d in channel.deliveries()]
            channel.does(m.BasicCancel("t"))
    assert seen + channel.bodies("q") == [str(number).encode() for number in range(30)]
