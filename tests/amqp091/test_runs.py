"""Runs of messages that differ in their bodies only: handed on together, and nothing comes of it but speed."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker import WORK_MAX, Broker
from leveret.exchanges.exchange_type import Exchange
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker import publishing
from leveret.protocols.amqp091.broker.encoding import plain_facts
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable, method_frame
from leveret.protocols.amqp091.machine.connection import AmqpError
from leveret.protocols.amqp091.machine.contract import Run
from tests.amqp091.peer import channel_of, with_queue
from tests.harness.bench import ClientBench
from tests.harness.bench import message as bench_message
from tests.harness.plain import plain_only

from . import machine
from .machine import content, message, opened, publish_arguments
from .peer import ClientChannel


def identified(body: bytes, **more: object) -> bytes:
    """A message whose id is its body, so that each has properties of its own."""
    return message(
        body, properties=b"\x00\x80" + bytes([len(body) & 0x7F]) + body[: len(body) & 0x7F], **more
    )


def all_alike(body: bytes) -> bytes:
    return message(body)


def keyed(body: bytes) -> bytes:
    """A message whose routing key and id are its body, so that each has a publish and properties of its own."""
    return identified(body, key=body[:100].decode("latin-1"))


SORTS = pytest.mark.parametrize("sort", [all_alike, identified, keyed])


class InRuns(machine.Recorder):
    """Notes what came in runs, and how long they were. Takes no more than `most` of each."""

    def __init__(self, most: int = 1 << 30) -> None:
        super().__init__()
        self.most = most
        self.runs: list[int] = []

    def on_run(self, channel: int, run: Run, first: int) -> int:
        last = min(len(run.bodies), first + self.most)
        self.runs.append(last - first)
        for at in range(first, last):
            which = at if run.differ else 0
            self.note("publish", channel, run.publishes[which], run.properties[which], run.bodies[at])
        return last - first


class Refusing(InRuns):
    """Refuses the body `no`, as a broker would: never in a run."""

    error = AmqpError(m.NOT_FOUND, "not here")

    def on_run(self, channel: int, run: Run, first: int) -> int:
        end = run.bodies.index(b"no", first) if b"no" in run.bodies[first:] else len(run.bodies)
        good = Run(run.publishes[:end], run.properties[:end], run.bodies[:end], run.differ)
        return super().on_run(channel, good, first)

    def on_publish(self, channel: int, publish: bytes, properties: bytes, body: bytes) -> None:
        super().on_publish(channel, publish, properties, body)
        if body == b"no":
            raise self.error


def bodies(peer: machine.Peer) -> list[object]:
    return [call[-1] for call in peer.handler.taken() if call[0] == "publish"]


PROPERTIES = b"\x10\x00\x02"
BODIES = [b"a", b"bb", b"", b"\xce" * 30, b"c" * 300, b"d", b"e", b"f" * 70_000, b"g", b"h", b"i"]


def test_messages_that_differ_in_their_bodies_come_in_one_call() -> None:
    sent = [bytes(size) for size in range(1, 100)]
    handler = InRuns()
    peer = opened(handler=handler).says(b"".join(map(message, sent)))
    assert bodies(peer) == sent
    assert handler.runs == [97]  # from two of them it learns what they have in common


def test_a_read_goes_on_with_what_the_last_one_began() -> None:
    handler = InRuns()
    peer = opened(handler=handler).says(message(b"a") * 2).says(message(b"b") * 3).says(message(b"c") * 4)
    assert bodies(peer) == [b"a"] * 2 + [b"b"] * 3 + [b"c"] * 4
    assert handler.runs == [3, 4]


@SORTS
def test_a_run_may_be_cut_at_every_octet(sort: Callable[[bytes], bytes]) -> None:
    sent = [b"1", b"22", b"\xce", b"4444", b"5"]
    octets = b"".join(map(sort, sent))
    for cut in range(len(octets) + 1):
        peer = opened(handler=InRuns()).says(octets[:cut]).says(octets[cut:])
        assert bodies(peer) == sent, cut


def test_messages_that_differ_in_their_properties_come_in_one_call() -> None:
    sent = numbers(100)
    handler = InRuns()
    peer = opened(handler=handler).says(b"".join(map(identified, sent)))
    assert peer.handler.taken() == [
        ("publish", 1, publish_arguments(), b"\x00\x80" + bytes([len(body)]) + body, body) for body in sent
    ]
    assert handler.runs == [100]


def test_messages_that_differ_in_their_keys_come_in_one_call() -> None:
    sent = numbers(100)
    handler = InRuns()
    peer = opened(handler=handler).says(b"".join(map(keyed, sent)))
    assert peer.handler.taken() == [
        ("publish", 1, publish_arguments(body.decode()), b"\x00\x80" + bytes([len(body)]) + body, body)
        for body in sent
    ]
    assert handler.runs == [99]  # the first by itself


def test_messages_that_begin_to_have_one_key_go_on_as_those_do() -> None:
    handler = InRuns()
    peer = opened(handler=handler).says(
        b"".join(map(keyed, numbers(5))) + b"".join(map(identified, numbers(20)))
    )
    assert len(bodies(peer)) == 25
    assert handler.runs == [8, 16]  # until it has seen that some have the same


def test_messages_of_two_channels_by_turns_come_one_by_one() -> None:
    handler = InRuns()
    peer = opened(handler=handler, channels=2).says(message(b"a") + message(b"b", channel=2) + message(b"c"))
    assert bodies(peer) == [b"a", b"b", b"c"]
    assert handler.runs == []


def test_messages_that_begin_to_be_alike_go_on_as_those_do() -> None:
    handler = InRuns()
    peer = opened(handler=handler).says(
        b"".join(map(identified, numbers(5))) + b"".join(map(message, BODIES[:2] + BODIES[5:7] + BODIES[8:]))
    )
    assert len(bodies(peer)) == 12
    assert handler.runs == [6, 5]  # one more to see that it repeats the last, by itself


@pytest.mark.parametrize("most", [0, 1, 2])
@SORTS
def test_what_is_not_taken_in_a_run_comes_one_by_one(most: int, sort: Callable[[bytes], bytes]) -> None:
    handler = InRuns(most)
    peer = opened(handler=handler).says(b"".join(map(sort, BODIES)))
    assert bodies(peer) == BODIES


DEVIATIONS = {
    "key": message(b"x", key="yek"),
    "longer key": message(b"x", key="another key"),
    "properties": message(b"x", properties=b"\x10\x00\x01"),
    "more properties": message(b"x", properties=b"\x18\x00\x01\x01"),
    "channel": message(b"x", channel=2),
    "no body": message(b""),
    "two frames of body": message(b"x" * 20, frame_max=20),
    "heartbeat": b"\x08\0\0\0\0\0\0\xce",
    "ack": method_frame(1, m.BasicAck(7, True).encode()),
}


@pytest.mark.parametrize("between", DEVIATIONS.values(), ids=DEVIATIONS)
@SORTS
def test_what_deviates_is_found_in_the_middle_of_a_run(
    between: bytes, sort: Callable[[bytes], bytes]
) -> None:
    octets = b"".join(map(sort, numbers(5))) + between + b"".join(map(sort, numbers(5)))
    together, apart = opened(handler=InRuns(), channels=2).says(octets), opened(channels=2)
    for at in range(len(octets)):
        apart.says(octets[at : at + 1])
    assert together.handler.taken() == apart.handler.taken()
    assert (together.frames(), together.gone()) == (apart.frames(), apart.gone())


def spoilt(sort: Callable[[bytes], bytes]) -> list[tuple[Callable[[bytes], bytes], int, bytes]]:
    """A message of a run with one octet changed, for each that is not in its body."""
    whole = sort(b"body")
    at_body = len(whole) - 5
    places = [at for at in range(len(whole)) if not at_body <= at < at_body + 4]
    return [(sort, at, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]) for at in places]


@pytest.mark.parametrize(("sort", "at", "wrong"), [*spoilt(all_alike), *spoilt(identified), *spoilt(keyed)])
def test_a_wrong_octet_in_a_run_is_what_it_is_without(
    sort: Callable[[bytes], bytes], at: int, wrong: bytes
) -> None:
    """Bad frame ends, sizes that do not agree, other classes, ...: whatever comes of it, and of what follows."""
    before, after = [b"1234", b"2345", b"3456", b"4567"], [b"5678", b"6789", b"7890"]
    octets = b"".join(map(sort, before)) + wrong + b"".join(map(sort, after))
    together, apart = opened(handler=InRuns()).says(octets), opened()
    for at in range(len(octets)):
        apart.says(octets[at : at + 1])
    assert together.handler.taken() == apart.handler.taken()
    assert (together.frames(), together.gone()) == (apart.frames(), apart.gone())


@pytest.mark.parametrize("code", [m.NOT_FOUND, m.FRAME_ERROR])
@SORTS
def test_an_error_in_a_run_ends_the_channel_or_the_connection_there(
    code: int, sort: Callable[[bytes], bytes]
) -> None:
    sent = [b"1", b"2", b"3", b"4", b"no", b"5", b"6", b"7"]
    handler = Refusing()
    handler.error = AmqpError(code, "not here")
    peer = opened(handler=handler, channels=2)
    peer.says(b"".join(map(sort, sent)) + message(b"elsewhere", channel=2))
    survives = [b"elsewhere"] if code == m.NOT_FOUND else []
    assert bodies(peer) == sent[:5] + survives
    close = peer.channel_close_heard() if code == m.NOT_FOUND else peer.close_heard()
    assert (close.reply_code, close.failing_class_id, close.failing_method_id) == (code, 60, 40)


@SORTS
def test_a_handler_that_halts_in_a_run_gets_the_rest_when_it_goes_on(sort: Callable[[bytes], bytes]) -> None:
    class Halting(InRuns):
        def on_run(self, channel: int, run: Run, first: int) -> int:
            peer.connection.halted = True
            return super().on_run(channel, run, first)

    peer = opened(handler=Halting(most=2))
    sent = [b"%d" % number for number in range(9)]
    peer.says(b"".join(map(sort, sent)))
    seen = bodies(peer)
    while peer.connection.halted:
        seen += bodies(peer.says(b""))
    assert seen == sent


def test_a_channel_that_is_opened_again_knows_nothing_of_the_last_one() -> None:
    peer = opened(handler=InRuns()).says(
        message(b"a") * 4, (1, m.ChannelClose(200, "", 0, 0)), (1, m.ChannelOpen())
    )
    peer.handler.taken()
    peer.says(content(b"b") * 2)
    assert not bodies(peer)
    assert peer.gone() or peer.frames()


messages = st.lists(
    st.tuples(
        st.binary(max_size=40) | st.just(b"x" * 7),
        st.sampled_from(["a", "a", "a", "bb"]),
        st.sampled_from(
            [PROPERTIES, PROPERTIES, PROPERTIES, b"\x00\x00", b"\x00\x80\x01a", b"\x00\x80\x02bc"]
        ),
        st.sampled_from([1, 1, 1, 2]),
    ),
    max_size=30,
)


@given(messages, st.integers(0, 5), st.integers(1, 400))
def test_a_stream_of_messages_is_the_same_in_runs_and_one_by_one(
    sent: list[tuple[bytes, str, bytes, int]], most: int, step: int
) -> None:
    octets = b"".join(message(body, key, properties, channel, 60) for body, key, properties, channel in sent)
    peer = opened(channels=2, handler=InRuns(most))
    for at in range(0, len(octets), step):
        peer.says(octets[at : at + step])
    assert peer.handler.taken() == [
        ("publish", channel, publish_arguments(key), properties, body)
        for body, key, properties, channel in sent
    ]


# With a broker behind.

OWN = st.builds(
    BasicProperties,
    message_id=st.sampled_from(["a", "b", "cc"]),
    delivery_mode=st.sampled_from([1, 1, 1, 2]),
    priority=st.sampled_from([None, None, 0, 3]),
    expiration=st.sampled_from([None, None, "1000", "no"]),
    reply_to=st.sampled_from([None, "q"]),
    user_id=st.sampled_from([None] * 9 + ["ann"]),
    headers=st.sampled_from([None, {}, {"a": 1}, {"CC": ["other"]}, {"BCC": ["other"]}]),
)


def fared(channel: ClientChannel, octets: list[bytes], queues: list[str]) -> object:
    """What became of messages that came in these reads: what waits in queues, and what the client was told."""
    peer = channel.peer
    for piece in octets:
        peer.send_bytes(piece)
    confirmed: set[int] = set()
    refused: set[int] = set()
    answers: list[object] = []
    for answer in channel.all():
        if isinstance(answer, m.BasicAck) and answer.multiple:
            confirmed |= set(range(max({0, *confirmed, *refused}) + 1, answer.delivery_tag + 1))
        elif isinstance(answer, m.BasicAck):
            confirmed.add(answer.delivery_tag)
        elif isinstance(answer, m.BasicNack):
            refused.add(answer.delivery_tag)
        else:
            answers.append(answer)
    if any(isinstance(answer, m.ChannelClose) for answer in answers):
        confirmed.clear()  # neither confirmed nor refused is what the end of the channel comes before
        refused.clear()
    waiting = [
        [
            (
                each.message.exchange,
                each.message.key,
                each.message.properties,
                each.message.body,
                each.expires_at,
            )
            for each in peer.bench.queue(name).waiting()
        ]
        for name in queues
    ]
    return waiting, confirmed, refused, answers


@given(st.lists(OWN, min_size=2, max_size=12))
def test_messages_with_their_own_properties_fare_the_same_together_and_one_by_one(
    sent: list[BasicProperties],
) -> None:
    outcomes = []
    for together in (True, False):
        channel = with_queue(
            arguments={"x-max-priority": 5, "x-max-length": 8, "x-overflow": "reject-publish"}
        )
        channel.declare("other")
        channel.confirms()
        octets = [publishes("q", [b"%d" % number], each) for number, each in enumerate(sent)]
        outcomes.append(fared(channel, [b"".join(octets)] if together else octets, ["q", "other"]))
    assert outcomes[0] == outcomes[1]


QUEUES: dict[str, FieldTable] = {
    "plain": {},
    "ranked": {"x-max-priority": 5},
    "brief": {"x-message-ttl": 5000},
    "full": {"x-max-length": 3, "x-overflow": "reject-publish"},
    "long": {"x-max-length": 3},
    "last": {"x-queue-type": "stream"},
}
BINDINGS = (
    ("amq.topic", "plain", "a.#"),
    ("amq.topic", "ranked", "a.b"),
    ("amq.topic", "full", "c"),
    ("amq.topic", "last", "d"),
    ("amq.fanout", "plain", ""),
    ("amq.fanout", "brief", ""),
    ("amq.headers", "plain", ""),
)
ROUTED = st.tuples(
    st.sampled_from(["", "amq.topic", "amq.topic", "amq.topic", "amq.fanout", "amq.headers"]),
    st.sampled_from([*QUEUES, "full", "a.b", "a.b", "a.c", "c", "d", "nowhere"]),
    st.booleans(),
    st.just(BasicProperties(delivery_mode=1)) | st.just(BasicProperties(message_id="a")) | OWN,
)


@given(st.lists(ROUTED, min_size=2, max_size=40), st.booleans(), st.booleans())
def test_messages_with_any_exchanges_and_keys_fare_the_same_together_and_one_by_one(
    sent: list[tuple[str, str, bool, BasicProperties]], traced: bool, warm: bool
) -> None:
    outcomes = []
    for together in (True, False):
        channel = channel_of()
        for name, arguments in QUEUES.items():
            channel.call(m.QueueDeclare(name, durable=True, arguments=arguments))
        for exchange, queue, key in BINDINGS:
            channel.call(m.QueueBind(queue, exchange, key))
        host = channel.peer.bench.host
        host.set_tracing(traced)
        if warm:  # routes are known
            for exchange, key, _, _ in sent:
                channel.peer.bench.broker.route(
                    host.exchange(exchange), bench_message(key, exchange=exchange)
                )
        channel.confirms()
        octets = [
            method_frame(1, m.BasicPublish(exchange, key, mandatory=mandatory).encode())
            + content(b"%d" % number, properties.encode())
            for number, (exchange, key, mandatory, properties) in enumerate(sent)
        ]
        fate = fared(channel, [b"".join(octets)] if together else octets, [*QUEUES][:-1])
        counts = (
            [(name, queue.published) for name, queue in host.queues.items()],
            [(name, each.published, each.surplus, each.unroutable) for name, each in host.exchanges.items()],
        )
        outcomes.append((fate, counts))
    assert outcomes[0] == outcomes[1]


def publishes(key: str, sent: list[bytes], properties: BasicProperties | None = None, **flags: bool) -> bytes:
    method = method_frame(1, m.BasicPublish("", key, **flags).encode())
    raw = (properties or BasicProperties()).encode()
    return b"".join(method + content(body, raw) for body in sent)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def got(channel: ClientChannel, queue: str) -> list[bytes]:
    found = []
    while (what := channel.get(queue)) is not None:
        found.append(what.body)
    return found


def test_a_run_is_confirmed_with_one_ack() -> None:
    channel = with_queue()
    peer = channel.confirms()
    peer.send_bytes(publishes("q", numbers(20)))
    assert channel.all() == [m.BasicAck(20, True)]
    assert got(channel, "q") == numbers(20)
    assert peer.front.channels[1].publishing.published == 20


def test_a_queue_that_fills_up_in_a_run_refuses_what_is_too_much_and_nothing_else() -> None:
    channel = with_queue(arguments={"x-max-length": 7, "x-overflow": "reject-publish"})
    peer = channel.confirms()
    peer.send_bytes(publishes("q", numbers(10)))
    assert channel.all() == [
        m.BasicAck(7, True),
        *(m.BasicNack(number, False, False) for number in (8, 9, 10)),
    ]
    assert got(channel, "q") == numbers(7)


def test_each_message_of_a_run_that_nobody_takes_is_returned() -> None:
    channel = channel_of()
    channel.peer.send_bytes(publishes("nowhere", numbers(9), mandatory=True))
    assert [content.body for content in channel.all()] == numbers(9)


def test_a_transaction_keeps_a_run_until_it_commits() -> None:
    channel = with_queue()
    channel.call(m.TxSelect())
    channel.peer.send_bytes(publishes("q", numbers(9)))
    assert channel.peer.bench.queue("q").ready == 0
    channel.call(m.TxCommit())
    assert got(channel, "q") == numbers(9)


def test_a_permission_that_goes_between_two_reads_stops_the_run() -> None:
    bench = ClientBench()
    bench.user("ann")
    channel = channel_of(bench, "ann")
    channel.declare("q")
    channel.peer.send_bytes(publishes("q", numbers(5)))
    bench.broker.access.set_permissions("ann", "/", ".*", "", ".*")
    channel.peer.send_bytes(publishes("q", numbers(5)))
    assert bench.queue("q").ready == 5
    assert "403" in str(channel.next())


def test_a_run_on_behalf_of_somebody_else_is_refused() -> None:
    channel = with_queue()
    other = BasicProperties(user_id="ann")
    channel.peer.send_bytes(publishes("q", numbers(3)) + publishes("q", numbers(5), other))
    assert channel.peer.bench.queue("q").ready == 3
    assert "406" in str(channel.next())


def test_a_run_to_many_queues_halts_between_two_messages() -> None:
    """As many copies as one message may cause beyond what is allowed, and no more."""
    bench = ClientBench()
    channel = channel_of(bench)
    for number in range(300):
        channel.declare(f"q{number}")
        channel.call(m.QueueBind(f"q{number}", "amq.fanout", ""))
    frame = method_frame(1, m.BasicPublish("amq.fanout", "").encode()) + content(b"x")
    channel.peer.front.receive(frame * 50, bench.broker.tick())
    ready = [bench.queue(f"q{number}").ready for number in range(300)]
    assert channel.peer.front.halted
    assert set(ready) == {WORK_MAX // 300 + 1}
    bench.settle()
    channel.peer.send_bytes(b"")
    assert {bench.queue(f"q{number}").ready for number in range(300)} == {50}


def test_what_is_published_in_a_run_counts_for_alarms() -> None:
    channel = with_queue()
    channel.peer.send_bytes(publishes("q", numbers(3)))
    channel.peer.bench.broker.alarms.reason = "low on memory"
    channel.peer.send_bytes(publishes("q", numbers(5)))
    assert channel.peer.front.blocked


# Publishes that differ.


def scattered(keys: list[str], exchange: str = "", properties: BasicProperties | None = None) -> bytes:
    raw = (properties or BasicProperties()).encode()
    return b"".join(
        method_frame(1, m.BasicPublish(exchange, key).encode()) + content(b"%d" % number, raw)
        for number, key in enumerate(keys)
    )


def with_queues(*names: str) -> ClientChannel:
    channel = channel_of()
    for name in names:
        channel.declare(name)
    return channel


def test_what_goes_to_several_queues_in_one_read_is_in_order_in_each_and_confirmed_with_one_ack() -> None:
    channel = with_queues("p", "q")
    peer = channel.confirms()
    for _ in range(2):  # before the second read the routes are known
        peer.send_bytes(scattered(["p", "q", "p", "q", "q", "p"]))
    assert [answer.delivery_tag for answer in channel.all() if isinstance(answer, m.BasicAck)] == [6, 12]
    assert (got(channel, "p"), got(channel, "q")) == ([b"0", b"2", b"5"] * 2, [b"1", b"3", b"4"] * 2)


def test_a_key_that_is_forbidden_ends_the_channel_there() -> None:
    bench = ClientBench()
    bench.user("ann")
    bench.broker.access.set_topic_permissions("ann", "/", "amq.topic", "^a", ".*")
    channel = channel_of(bench, "ann")
    channel.declare("q")
    channel.call(m.QueueBind("q", "amq.topic", "#"))
    for _ in range(2):
        channel.peer.send_bytes(scattered(["a", "a.b", "ab"], "amq.topic"))
    channel.peer.send_bytes(scattered(["a", "a.b", "ab", "b", "a"], "amq.topic"))
    assert bench.queue("q").ready == 9
    assert "403" in str(channel.next())


def test_a_permission_that_goes_between_two_reads_stops_what_goes_to_several_queues() -> None:
    bench = ClientBench()
    bench.user("ann")
    channel = channel_of(bench, "ann")
    for name in "pq":
        channel.declare(name)
    keys = ["p", "q"] * 3
    channel.peer.send_bytes(scattered(keys) * 2)
    bench.broker.access.set_permissions("ann", "/", ".*", "", ".*")
    channel.peer.send_bytes(scattered(keys))
    assert (bench.queue("p").ready, bench.queue("q").ready) == (6, 6)
    assert "403" in str(channel.next())


def test_a_transaction_keeps_what_goes_to_several_queues_until_it_commits() -> None:
    channel = with_queues("p", "q")
    channel.call(m.TxSelect())
    for _ in range(2):
        channel.peer.send_bytes(scattered(["p", "q", "p", "q"]))
    assert (channel.peer.bench.queue("p").ready, channel.peer.bench.queue("q").ready) == (0, 0)
    channel.call(m.TxCommit())
    assert (got(channel, "p"), got(channel, "q")) == ([b"0", b"2"] * 2, [b"1", b"3"] * 2)


@plain_only
def test_queues_that_take_no_run_are_not_tried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = with_queues()
    for name in "pq":
        channel.declare(name, arguments={"x-max-length": 1000})
    tried: list[int] = []
    peer = channel.peer
    broker_type = type(peer.bench.broker)
    publish = broker_type.publish_run

    def counted(broker: Broker, exchange: Exchange, messages: list[Message], copies_max: int) -> int:
        tried.append(len(messages))
        return publish(broker, exchange, messages, copies_max)

    monkeypatch.setattr(broker_type, "publish_run", counted)
    for _ in range(40):
        peer.send_bytes(scattered(["p", "q"] * 5))
    assert (peer.bench.queue("p").ready, peer.bench.queue("q").ready) == (200, 200)
    assert len(tried) == 6  # in the reads 1, as soon as the routes are known, 3, 6, 11, 20 and 37


@plain_only
def test_what_is_read_in_vain_is_in_proportion_to_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second message is for a queue with limits, and taken by itself: what follows is not read for each anew."""
    channel = with_queues("p")
    channel.declare("q", arguments={"x-max-length": 1000})
    read: list[bytes] = []

    def counted(properties: bytes) -> Facts | None:
        read.append(properties)
        return plain_facts(properties)

    monkeypatch.setattr(publishing, "plain_facts", counted)
    for _ in range(2):
        channel.peer.send_bytes(scattered(["q", "p"] * 2))
    read.clear()
    channel.peer.send_bytes(scattered(["q", "p"] * 200))
    assert (channel.peer.bench.queue("p").ready, channel.peer.bench.queue("q").ready) == (204, 204)
    assert 400 < len(read) < 4 * 400


def test_renewals_in_a_run_are_no_messages_also_where_a_queue_has_the_name_of_what_is_renewed() -> None:
    channel = with_queues("all")
    channel.peer.send_bytes(publishes("all", numbers(3)))
    method = method_frame(1, m.BasicPublish("amq.leveret.renew", "all").encode())
    channel.peer.send_bytes(b"".join(method + content(b"x") for _ in range(6)))
    assert channel.peer.bench.queue("all").ready == 3
