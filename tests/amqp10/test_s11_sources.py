"""Sources of AMQP 1.0 receivers, addresses of version 2 (§11 of the acceptance list): queues, dynamic ones, filters."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import (
    Described,
    Int,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    Value,
    array_of,
)
from tests.amqp091.peer import channel_of
from tests.amqp10.client import SETTLED, Receiver, Session
from tests.amqp10.consuming import QUEUE, fill, filled, left, numbers, source, stream, taken
from tests.amqp10.parts import annotations, application_properties, data
from tests.amqp10.peer import Peer, declare, session_of
from tests.harness.bench import ClientBench

SELECTOR = "apache.org:selector-filter:string"
SELECTOR_CODE = ULong(0x0000_468C_0000_0004)
OFFSET = "rabbitmq:stream-offset-spec"


def refusal(bench: ClientBench, address: str | p.Source | None) -> str:
    return session_of(bench).ask_receiver(address).refusal()


# Addresses.


def test_s185_a_source_is_an_existing_queue() -> None:
    bench = filled(1)
    link = session_of(bench).receiver(QUEUE, credit=1)
    assert link.attached.source.address == QUEUE
    assert link.attached.target == p.Target(address="test")
    assert taken(link) == [0]


def test_s193_a_missing_queue_is_not_found() -> None:
    assert refusal(ClientBench(), "/queues/q") == "amqp:not-found no queue 'q' in vhost '/'"


@pytest.mark.parametrize("name", ["a/b", "a b", "100%", "✋", "ü", "a?b#c", "q" * 255])
def test_s210_s212_queue_names_are_percent_encoded(name: str) -> None:
    bench = filled(1, queue=name)
    address = "/queues/" + quote(name, safe="")
    link = session_of(bench).receiver(address, credit=1)
    assert link.attached.source.address == address
    assert taken(link) == [0]


def test_s212_a_slash_in_a_name_is_encoded_or_it_is_none() -> None:
    bench = filled(1, queue="a/b")
    assert refusal(bench, "/queues/a/b").startswith("amqp:invalid-field Attach refused: bad_address")


@pytest.mark.parametrize("address", ["/queues/", "/queues/100%", "/queues/%zz", "/queues/a/b", "/queues/✋"])
def test_s194_a_badly_encoded_source_is_refused(address: str) -> None:
    assert refusal(ClientBench(), address) == f"amqp:invalid-field Attach refused: bad_address '{address}'"


def test_s195_a_source_without_address_is_refused() -> None:
    assert refusal(ClientBench(), source(None)) == "amqp:invalid-field Attach refused: bad_address undefined"


def test_s196_an_exchange_is_no_source() -> None:
    error = refusal(ClientBench(), "/exchanges/amq.topic/key")
    assert error.startswith("amqp:invalid-field Attach refused: amqp_address_v1_not_permitted")


@pytest.mark.parametrize(
    "address", ["foo", "/queue/foo", "/amq/queue/foo", "/topic/foo", "/exchange/x/k", ""]
)
def test_s197_other_addresses_are_not_permitted(address: str) -> None:
    error = refusal(filled(1, queue="foo"), address)
    assert error == f"amqp:invalid-field Attach refused: amqp_address_v1_not_permitted '{address}'"


def test_x059_a_receiver_needs_a_source() -> None:
    session = session_of(ClientBench())
    link = session.attach(Receiver(session, "nothing"), source=None, target=p.Target(address="test"))
    assert link.refusal() == "amqp:invalid-field Attach refused: source_required"


# Dynamic sources.


def dynamic(session: Session, name: str = "replies", **fields: object):
    asked = p.Source(dynamic=True, capabilities=[Symbol("temporary-queue")], **fields)
    return session.receiver(asked, name=name)


def test_s211_a_dynamic_source_is_a_queue_called_after_container_and_link() -> None:
    bench = ClientBench()
    session = Peer(bench).open(container_id="shop").begin()
    link = dynamic(session)
    made = link.attached.source
    [name] = bench.host.queues
    assert name.startswith("amq.dyn-shop-replies-")
    assert made.address == "/queues/" + quote(name, safe="")
    assert (made.dynamic, made.expiry_policy, made.timeout, made.durable) == (True, "link-detach", 0, 0)
    assert made.capabilities == ["temporary-queue"]
    assert made.dynamic_node_properties["lifetime-policy"] == Described(ULong(p.DeleteOnClose.CODE), [])
    assert bench.queue(name).exclusive
    assert bench.queue(name).type.value == "classic"


def test_s211_long_names_are_left_out() -> None:
    bench = ClientBench()
    session = Peer(bench).open(container_id="c" * 100).begin()
    dynamic(session, name="l" * 50)
    [name] = bench.host.queues
    assert name.startswith("amq.dyn.gen-")
    dynamic(session, name="l" * 49)
    assert len(bench.host.queues) == 2
    assert any(name.startswith("amq.dyn-" + "c" * 100) for name in bench.host.queues)


def test_s211_two_links_of_one_name_have_queues_of_their_own() -> None:
    bench = ClientBench()
    dynamic(session_of(bench))
    dynamic(session_of(bench))
    assert len(bench.host.queues) == 2


def test_s211_what_is_sent_to_the_address_comes_and_the_queue_goes_with_the_link() -> None:
    bench = ClientBench()
    link = dynamic(session_of(bench))
    address = link.attached.source.address
    link.want(1)
    session_of(bench).sender(address).send(data(b"answer"))
    assert link.get().body == b"answer"
    link.detach(closed=False)
    assert not bench.host.queues
    assert refusal(bench, address).startswith("amqp:not-found no queue 'amq.dyn")


@pytest.mark.parametrize("end", ["session", "connection", "transport"])
def test_s211_the_queue_goes_however_the_link_ends(end: str) -> None:
    bench = ClientBench()
    link = dynamic(session_of(bench))
    if end == "session":
        link.session.end()
    elif end == "connection":
        link.peer.close()
    else:
        link.peer.drop()
    assert not bench.host.queues


def test_s211_somebody_else_may_not_read_from_it() -> None:
    bench = ClientBench()
    address = dynamic(session_of(bench)).attached.source.address
    assert refusal(bench, address).startswith("amqp:resource-locked cannot obtain exclusive access")


def test_s211_a_dynamic_source_needs_the_permission_to_configure() -> None:
    bench = ClientBench()
    session = session_of(bench, bench.user("ann", configure="other"))
    refused = session.ask_receiver(p.Source(dynamic=True, capabilities=[Symbol("temporary-queue")]))
    assert refused.refusal().startswith("amqp:unauthorized-access configure access to queue 'amq.dyn-")
    assert not bench.host.queues


@pytest.mark.parametrize(
    "bad", [{"outcomes": [Symbol("amqp:strange:list")]}, {"distribution_mode": "sideways"}]
)
def test_a_refused_dynamic_source_leaves_no_queue(bad: dict[str, Value]) -> None:
    bench = ClientBench()
    asked = p.Source(dynamic=True, capabilities=[Symbol("temporary-queue")], **bad)
    assert refusal(bench, asked).startswith("amqp:not-implemented")
    assert not bench.host.queues


def test_s211_x062_a_dynamic_source_without_capabilities_is_a_temporary_queue_too() -> None:
    bench = ClientBench()
    link = session_of(bench).receiver(p.Source(dynamic=True), credit=1)
    session_of(bench).sender(None).send(p.Properties(to=link.attached.source.address), data(b"answer"))
    assert link.get().body == b"answer"
    link.detach()
    assert not bench.host.queues


@pytest.mark.parametrize("capabilities", [[Symbol("topic")], [Symbol("temporary-topic")]])
def test_x062_no_other_dynamic_source_is_supported(capabilities: list[Symbol]) -> None:
    bench = ClientBench()
    error = refusal(bench, p.Source(dynamic=True, capabilities=capabilities))
    assert error.startswith("amqp:not-implemented Dynamic source not supported: ")
    assert not bench.host.queues


# What is in place.


def test_our_source_tells_what_is_in_place() -> None:
    """Part 3, section 3.5.3."""
    capabilities = [Symbol("queue"), Symbol("topic"), Symbol("unheard-of")]
    link = session_of(filled(0)).receiver(source(capabilities=capabilities))
    made = link.attached.source
    assert made.distribution_mode == "move"
    assert made.default_outcome == p.Released()
    assert made.outcomes == [f"amqp:{name}:list" for name in ("accepted", "rejected", "released", "modified")]
    assert made.capabilities == ["queue"]
    assert made.filter is None
    assert (made.durable, made.expiry_policy, made.timeout) == (0, "link-detach", 0)
    assert link.attached.properties is None


def test_x057_unsupported_outcomes_are_refused() -> None:
    outcomes = [Symbol("amqp:accepted:list"), Symbol("amqp:strange:list"), Symbol("amqp:odd:list")]
    error = refusal(filled(0), source(outcomes=outcomes))
    assert error == "amqp:not-implemented Outcomes not supported: [amqp:strange:list, amqp:odd:list]"
    link = session_of(filled(0)).receiver(source(outcomes=outcomes[:1]))
    assert link.attached.source.outcomes == outcomes[:1]


# Browsing.


def browser(session: Session, credit: int = 0):
    return session.receiver(source(distribution_mode=Symbol("copy")), credit)


def test_a_copying_receiver_reads_and_takes_nothing() -> None:
    bench = filled(3)
    session = session_of(bench)
    link = browser(session, credit=10)
    assert link.attached.source.distribution_mode == "copy"
    assert taken(link) == [0, 1, 2]
    assert left(bench) == [0, 1, 2]
    fill(bench, range(3, 4))
    assert taken(link) == [3]
    assert taken(browser(session, credit=2)) == [0, 1]


@pytest.mark.parametrize(
    "outcome", [p.Accepted(), p.Rejected(), p.Released(), p.Modified(undeliverable_here=True)]
)
def test_the_outcomes_of_a_copying_receiver_change_nothing(outcome: p.DeliveryState) -> None:
    bench = filled(2)
    link = browser(session_of(bench), credit=10)
    first, second = link.all()
    link.answer(outcome, first)
    link.answer(outcome, second, settled=False)
    assert link.session.told[second.id] == outcome
    assert left(bench) == [0, 1]
    assert bench.queue("q").unsettled == 0
    taker = session_of(bench).receiver(QUEUE, credit=2)
    assert [delivery.header.first_acquirer for delivery in taker.all()] == [True, True]
    link.detach()
    assert bench.queue("q").unsettled == 2


def test_a_copying_receiver_is_drained_when_it_has_seen_all() -> None:
    link = browser(session_of(filled(3)))
    link.want(10, drain=True)
    assert taken(link) == [0, 1, 2]
    assert link.drained


# Selectors.


def coloured(bench: ClientBench | None = None) -> ClientBench:
    bench = bench or ClientBench()
    declare(bench, "q")
    sender = session_of(bench).sender(QUEUE)
    for number, colour in enumerate(("red", "blue", "red", "green")):
        sender.send(application_properties({"colour": colour}), data(str(number).encode()))
    return bench


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("selector", Described(Symbol(SELECTOR), "colour = 'red'")),
        ("jms-selector", Described(SELECTOR_CODE, "colour = 'red'")),
        ("jms-selector", "colour = 'red'"),
    ],
)
def test_a_selector_lets_others_have_what_does_not_match(name: str, value: Value) -> None:
    bench = coloured()
    session = session_of(bench)
    link = session.receiver(source(filter={name: value}), credit=10)
    assert link.attached.source.filter == {name: value}
    assert taken(link) == [0, 2]
    assert left(bench) == [1, 3]
    assert taken(session.receiver(QUEUE, credit=10)) == [1, 3]


def test_a_selector_and_drain() -> None:
    asked = source(filter={"s": Described(SELECTOR_CODE, "colour = 'green'")})
    link = session_of(coloured()).receiver(asked)
    link.want(10, drain=True)
    assert taken(link) == [3]
    assert link.drained


def test_a_copying_receiver_may_have_a_selector() -> None:
    bench = coloured()
    asked = source(distribution_mode="copy", filter={"s": Described(SELECTOR_CODE, "colour <> 'red'")})
    assert taken(session_of(bench).receiver(asked, credit=10)) == [1, 3]
    assert left(bench) == [0, 1, 2, 3]


@pytest.mark.parametrize("wrong", ["colour =", "colour = 'red", "1 +", Int(5), None])
def test_a_selector_that_is_none_is_refused(wrong: Value) -> None:
    bench = coloured()
    asked = source(filter={"s": Described(SELECTOR_CODE, wrong)})
    assert refusal(bench, asked).startswith("amqp:invalid-field Attach refused: ")
    assert not bench.queue("q").consumers


def test_a_receiver_whose_filters_do_not_fit_its_frames_leaves_nothing_behind() -> None:
    """Our attach repeats them (part 3, section 3.5.3)."""
    bench = coloured()
    session = Peer(bench).open(max_frame_size=512).begin()
    selector = Described(SELECTOR_CODE, f"colour = '{'x' * 600}'")
    assert (
        session.ask_receiver(source(filter={"s": selector})).refusal().startswith("amqp:frame-size-too-small")
    )
    assert not bench.queue("q").consumers


def test_s180_a_drain_waits_for_the_end_of_a_long_search() -> None:
    bench = filled(0)
    channel = channel_of(bench)
    for number in range(2500):
        channel.publish("", "q", str(number).encode(), settle=False)
    channel.publish("", "q", b"2500", BasicProperties(headers={"colour": "red"}))
    link = session_of(bench).receiver(source(filter={"s": Described(SELECTOR_CODE, "colour = 'red'")}))
    link.want(10, drain=True)
    assert not link.drained
    for _ in range(5):
        bench.advance(0.1)
    assert taken(link) == [2500]
    assert link.drained


NOT_LOCAL = Described(Symbol("apache.org:no-local-filter:list"), [])


def test_filters_that_are_not_in_place_are_not_repeated() -> None:
    """Part 3, section 3.5.3: a receiver that needs them can go."""
    selector = Described(SELECTOR_CODE, "TRUE")
    offset = Described(Symbol(OFFSET), "first")
    asked = source(filter={"s": selector, "strange": "x", "o": offset})
    link = session_of(coloured()).receiver(asked)
    assert link.attached.source.filter == {"s": selector}


@pytest.mark.parametrize("value", [NOT_LOCAL, Described(ULong(0x0000_468C_0000_0003), [])])
def test_a_receiver_without_what_is_local_leaves_it_to_others(value: Value) -> None:
    bench = filled(0)
    session = session_of(bench)
    sender = session.sender(QUEUE)
    sender.send(data(b"0"))
    link = session.receiver(source(filter={"no-local": value}), credit=10)
    assert link.attached.source.filter == {"no-local": value}
    sender.send(data(b"1"))
    session_of(bench).sender(QUEUE).send(data(b"2"))
    fill(bench, range(3, 4))
    assert taken(link) == [2, 3]
    assert taken(session_of(bench).receiver(QUEUE, credit=10)) == [0, 1]


def test_a_subscription_that_ends_with_its_link_keeps_nothing_that_is_local() -> None:
    bench = ClientBench()
    session = session_of(bench)
    asked = p.Source(
        address="/exchanges/amq.topic/a", capabilities=[Symbol("topic")], filter={"no-local": NOT_LOCAL}
    )
    link = session.receiver(asked, credit=10)
    assert link.attached.source.filter == {"no-local": NOT_LOCAL}
    session.sender("/exchanges/amq.topic/a").send(data(b"0"))
    session_of(bench).sender("/exchanges/amq.topic/a").send(data(b"1"))
    assert taken(link) == [1]
    assert [queue.ready for queue in bench.host.queues.values()] == [0]


def test_a_subscription_that_lasts_gets_what_is_local_and_says_so() -> None:
    session = session_of(ClientBench())
    asked = p.Source(
        address="/exchanges/amq.topic/a",
        timeout=60,
        capabilities=[Symbol("topic")],
        filter={"no-local": NOT_LOCAL},
    )
    link = session.receiver(asked, credit=10)
    assert not link.attached.source.filter
    session.sender("/exchanges/amq.topic/a").send(data(b"0"))
    assert taken(link) == [0]


def test_a_stream_does_not_know_what_is_local() -> None:
    asked = source(filter={"no-local": NOT_LOCAL, OFFSET: Described(Symbol(OFFSET), "first")})
    link = session_of(stream(1)).receiver(asked, credit=1)
    assert list(link.attached.source.filter) == [OFFSET]
    assert taken(link) == [0]


def described(**filters: Value) -> p.Source:
    """A source with these filters, by their names with _ for -."""
    asked = {name.replace("_", "-"): value for name, value in filters.items()}
    return source(filter={name: Described(Symbol(f"amqp:{name}"), value) for name, value in asked.items()})


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"sql_filter": "colour = 'red' AND p.group_id IS NULL"}, [0, 2]),
        ({"application_properties_filter": {"colour": "&p:re"}}, [0, 2]),
        ({"application_properties_filter": {"colour": "&s:d"}, "sql_filter": "h.priority = 4"}, [0, 2]),
        ({"properties_filter": {Symbol("subject"): None}, "sql_filter": "colour <> 'red'"}, [1, 3]),
        ({"properties_filter": {Symbol("subject"): "x"}}, []),
    ],
)
@pytest.mark.parametrize("codes", [False, True])
def test_filters_by_sql_and_properties_are_for_every_queue(
    filters: dict[str, Value], found: list[int], codes: bool
) -> None:
    asked = described(**filters)
    if codes:
        numbers_of = {
            "amqp:sql-filter": 0x120,
            "amqp:properties-filter": 0x173,
            "amqp:application-properties-filter": 0x174,
        }
        asked = source(
            filter={
                name: Described(ULong(numbers_of[str(each.descriptor)]), each.value)
                for name, each in asked.filter.items()
            }
        )
    bench = coloured()
    link = session_of(bench).receiver(asked, credit=10)
    assert link.attached.source.filter == asked.filter
    assert taken(link) == found
    assert left(bench) == [number for number in range(4) if number not in found]


@pytest.mark.parametrize(
    "filters",
    [
        {"sql_filter": "colour ="},
        {"sql_filter": 7},
        {"properties_filter": {Symbol("colour"): "red"}},
        {"properties_filter": {}},
        {"properties_filter": "subject"},
        {"application_properties_filter": {"colour": "&x:red"}},
        {"application_properties_filter": {ULong(1): "red"}},
        {"application_properties_filter": {"colour": ["red"]}},
    ],
)
def test_a_filter_of_messages_that_is_none_is_refused(filters: dict[str, Value]) -> None:
    bench = coloured()
    assert refusal(bench, described(**filters)).startswith("amqp:invalid-field Attach refused: ")
    assert not bench.queue("q").consumers


def test_a_source_has_few_filters_of_messages() -> None:
    each = Described(Symbol("amqp:application-properties-filter"), {"colour": "red"})
    asked = source(filter={f"filter {number}": each for number in range(9)})
    assert "there are more than 8 filters of messages" in refusal(coloured(), asked)


def test_a_stream_is_read_by_values_and_by_sql() -> None:
    asked = of_values(["a", "b"])
    asked.filter["sql-filter"] = Described(Symbol("amqp:sql-filter"), "[x-stream-filter-value] = 'b'")
    link = session_of(valued_stream()).receiver(asked, credit=10)
    assert link.attached.source.filter == asked.filter
    assert taken(link) == [1]


# Streams.


def offset(spec: Value) -> p.Source:
    return source(filter={OFFSET: Described(Symbol(OFFSET), spec)})


def test_a_stream_is_copied_and_begins_with_what_comes_next() -> None:
    bench = stream(2)
    link = session_of(bench).receiver(QUEUE, credit=10)
    assert link.attached.source.distribution_mode == "copy"
    fill(bench, range(2, 4))
    assert taken(link) == [2, 3]
    assert left(bench) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("first", [0, 1, 2]),
        (Symbol("last"), [2]),
        ("next", []),
        (ULong(1), [1, 2]),
        (UInt(7), []),
        ("1h", [0, 1, 2]),
        (Timestamp(0), [0, 1, 2]),
    ],
)
def test_a_filter_says_where_in_a_stream_to_begin(spec: Value, found: list[int]) -> None:
    link = session_of(stream(3)).receiver(offset(spec), credit=10)
    assert link.attached.source.filter == offset(spec).filter
    assert taken(link) == found


def test_a_time_says_where_in_a_stream_to_begin() -> None:
    bench = stream(2)
    bench.advance(60)
    fill(bench, range(2, 3))
    since_ms = 1000 * int(bench.clock.wall() - 30)
    assert taken(session_of(bench).receiver(offset(Timestamp(since_ms)), credit=10)) == [2]


@pytest.mark.parametrize("mode", [None, Symbol("move"), Symbol("copy")])
def test_a_stream_is_read_alike_in_every_mode(mode: Symbol | None) -> None:
    bench = stream(3)
    asked = source(filter=offset("first").filter, distribution_mode=mode)
    link = session_of(bench).receiver(asked, credit=2)
    assert link.attached.source.distribution_mode == "copy"
    assert taken(link) == [0, 1]
    assert bench.queue("q").unsettled == 2
    link.accept()
    assert bench.queue("q").unsettled == 1


def test_an_offset_needs_no_descriptor() -> None:
    """Some clients put the bare value into the filter set."""
    link = session_of(stream(3)).receiver(source(filter={OFFSET: "first"}), credit=10)
    assert taken(link) == [0, 1, 2]


@pytest.mark.parametrize("spec", ["yesterday", Int(-1), 1.5])
def test_an_offset_that_is_no_place_is_refused(spec: Value) -> None:
    bench = stream(1)
    assert refusal(bench, offset(spec)).startswith(("amqp:precondition-failed", "amqp:invalid-field"))
    assert not bench.queue("q").consumers


def valued_stream() -> ClientBench:
    """A stream, to which 0 and 2 came over 1.0 with the filter value a, 1 over 0-9-1 with b, and 3 without one."""
    bench = stream(0)
    over_091 = channel_of(bench)
    with_a = annotations({"x-stream-filter-value": "a"})
    sender = session_of(bench).sender(QUEUE)
    sender.send(with_a + data(b"0"))
    headers = BasicProperties(headers={"x-stream-filter-value": "b"})
    over_091.publish("", "q", b"1", headers)
    sender.send(with_a + data(b"2"))
    over_091.publish("", "q", b"3")
    return bench


def of_values(asked: Value, unfiltered: Value = None) -> p.Source:
    described: dict[str, Value] = {
        "rabbitmq:stream-offset-spec": "first",
        "rabbitmq:stream-filter": asked,
        "rabbitmq:stream-match-unfiltered": unfiltered,
    }
    return source(
        filter={
            name: Described(Symbol(name), value) for name, value in described.items() if value is not None
        }
    )


@pytest.mark.parametrize(
    ("asked", "unfiltered", "found"),
    [
        ("a", None, [0, 2]),
        (Symbol("b"), False, [1]),
        (["a", "b"], None, [0, 1, 2]),
        (array_of(["b", "z"]), True, [1, 3]),
        ("z", None, []),
    ],
)
def test_a_filter_chooses_messages_of_a_stream_by_their_values(
    asked: Value, unfiltered: Value, found: list[int]
) -> None:
    link = session_of(valued_stream()).receiver(of_values(asked, unfiltered), credit=10)
    assert link.attached.source.filter == of_values(asked, unfiltered).filter
    assert taken(link) == found


@pytest.mark.parametrize(("asked", "unfiltered"), [(7, None), ([], None), (["a", 7], None), ("a", "yes")])
def test_a_filter_of_values_that_is_none_is_refused(asked: Value, unfiltered: Value) -> None:
    bench = stream(1)
    error = refusal(bench, of_values(asked, unfiltered))
    assert error.startswith("amqp:invalid-field Attach refused: ")
    assert not bench.queue("q").consumers


def test_filters_of_streams_are_not_in_place_on_other_queues() -> None:
    link = session_of(filled(2)).receiver(of_values("a"), credit=5)
    assert not link.attached.source.filter
    assert taken(link) == [0, 1]


def test_readers_of_a_stream_do_not_disturb_each_other() -> None:
    bench = stream(3)
    session = session_of(bench)
    first = session.receiver(offset("first"), credit=2)
    second = session.receiver(offset(ULong(1)), credit=10)
    assert (taken(first), taken(second)) == ([0, 1], [1, 2])
    first.answer(p.Rejected())
    first.answer(p.Released())
    assert taken(first) == taken(second) == []
    first.want(1)
    assert taken(first) == [2]


@pytest.mark.parametrize("mode", [None, SETTLED])
def test_credit_is_the_only_limit_a_stream_needs(mode: int | None) -> None:
    """What X026 asks of 0-9-1, every link of 1.0 has: credit."""
    fields = {} if mode is None else {"snd_settle_mode": mode}
    link = session_of(stream(3)).receiver(offset("first"), credit=2, **fields)
    deliveries = link.all()
    assert numbers(deliveries) == [0, 1]
    assert [delivery.annotations["x-stream-offset"] for delivery in deliveries] == [0, 1]


def test_s180_a_stream_is_drained() -> None:
    link = session_of(stream(3)).receiver(offset(ULong(1)))
    link.want(10, drain=True)
    assert taken(link) == [1, 2]
    assert link.drained
    assert link.session.flows[-1].available == 0


def test_s180_a_reader_that_drains_and_goes_in_one_breath_is_let_go() -> None:
    bench = stream(3)
    session = session_of(bench)
    link = session.receiver(QUEUE)
    session.flow(settle=False, handle=link.handle, delivery_count=0, link_credit=5, drain=True)
    link.detach()
    assert not bench.queue("q").consumers
    assert session.ended is None


def test_available_counts_what_is_left_to_read_of_a_stream() -> None:
    link = session_of(stream(5)).receiver(offset(ULong(2)), credit=1)
    link.want(0, echo=True)
    assert link.session.flows[-1].available == 2


def test_s179_a_deleted_stream_ends_its_readers() -> None:
    bench = stream(1)
    link = session_of(bench).receiver(QUEUE)
    bench.host.delete_queue(bench.queue("q"))
    assert link.refusal().startswith("amqp:resource-deleted")


def test_the_window_of_a_session_may_close_and_open_while_a_stream_is_read() -> None:
    session = Peer(stream(9)).open().begin(incoming_window=2)
    link = session.receiver(offset("first"), credit=100)
    got = taken(link)
    for window in (1, 3, 2, 5):
        session.window = window
        session.flow()
        got += taken(link)
    assert got == list(range(9))
