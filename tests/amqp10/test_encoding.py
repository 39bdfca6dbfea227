"""A published message to what the core reads of it, and a message to what its consumer gets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret import values
from leveret.message import LOWEST, Death, Facts, Message, Notes
from leveret.protocols.amqp10.broker import encoding, envelope
from leveret.protocols.amqp10.broker.encoding import (
    ENCODING,
    LOOKED_INTO_MAX,
    annotated,
    pieces,
    project,
    split_pieces,
)
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.types import (
    Array,
    Int,
    Long,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    Value,
    encode,
)
from leveret.values import Properties
from tests.core.fakes import lone
from tests.harness.call_count import calls
from tests.harness.foreign import ForeignEncoding
from tests.harness.plain import plain_only

from . import messages
from .messages import MESSAGE_ANNOTATIONS, Said
from .parts import Delivery, annotations, application_properties, data, message, section

HELLO = data(b"hello")


def published(
    *sections: bytes | p.Header | p.Properties,
    exchange: str = "x",
    key: str = "k",
    notes: Notes | None = None,
) -> Message:
    facts, properties, body, _, _ = project(message(*sections))
    return Message(ENCODING, exchange, key, properties, body, facts, notes)


def shown(message: Message, redelivered: bool = False, attempts: int = 0) -> Delivery:
    """As a consumer gets it, for the first time or not."""
    delivery = lone(message)
    delivery.redelivered, delivery.attempts = redelivered, attempts
    return Delivery(0, b"", False, b"".join(pieces(message, delivery)))


def refused(*sections: bytes | p.Properties) -> AmqpError:
    with pytest.raises(AmqpError) as caught:
        project(message(*sections))
    assert caught.value.ends == Ends.LINK
    return caught.value


def told(error: AmqpError) -> str:
    return f"{error.condition} {error.description}"


# What the core reads.


@given(messages.messages(), st.binary(max_size=3))
def test_what_is_published_is_kept_but_for_the_delivery_annotations(said: Said, front: bytes) -> None:
    facts, properties, body, to, subject = project(front + said.octets, len(front))
    assert properties == said.before_the_body
    assert body == said.body + (said.footer or b"")
    given = p.Properties()
    if said.properties is not None:
        given, _ = p.decode(said.properties, 0, len(said.properties))
    assert (to, subject, facts.reply_to) == (given.to, given.subject, given.reply_to)
    octets = None if facts.user_id is None else facts.user_id.encode("utf-8", "surrogateescape")
    assert octets == given.user_id
    header = p.Header()
    if said.header is not None:
        header, _ = p.decode(said.header, 0, len(said.header))
    assert (facts.durable, facts.priority, facts.ttl_ms) == (
        bool(header.durable),
        4 if header.priority is None else header.priority or LOWEST,
        header.ttl,
    )
    assert (facts.cc, facts.bcc) == ((), ())


def test_facts_that_are_remembered_are_those_of_the_message() -> None:
    cases = [
        (durable, listed, reply_to, extra)
        for durable in (True, False)
        for listed in ((), ("a",), ("b", "a"))
        for reply_to in (None, "a", "b")
        for extra in ({}, {"a": 1})
    ]
    for _ in range(2):
        for durable, listed, reply_to, extra in cases:
            notes = annotations({"x-cc": [*listed]} if listed else {})
            application = application_properties(extra) if extra else b""
            said = (p.Header(durable=durable), notes, p.Properties(reply_to=reply_to), application)
            facts = published(*said, HELLO).facts
            assert (facts.durable, facts.cc, facts.reply_to) == (durable, listed, reply_to)
            assert facts.has_headers is bool(listed or extra)


@pytest.mark.parametrize(
    ("sections", "has"),
    [
        ((), False),
        ((application_properties({}),), True),
        ((application_properties({"a": 1}),), True),
        ((annotations({"x-a": 1}),), True),
        ((annotations({}),), False),
        ((p.Properties(message_id="a"),), False),
    ],
)
def test_a_message_has_headers_if_it_has_application_properties_or_annotations(
    sections: tuple[bytes, ...], has: bool
) -> None:
    assert published(*sections, HELLO).facts.has_headers is has


def test_x060_a_message_needs_a_body() -> None:
    for sections in ((), (p.Header(),), (p.Properties(to="/queues/q"),), (application_properties({"a": 1}),)):
        error = refused(*sections)
        assert told(error) == "amqp:decode-error failed to parse message: missing_amqp_message_body"
    error = refused(section(0x78, {}))
    assert told(error) == "amqp:decode-error failed to parse message: missing_amqp_message_body"


@pytest.mark.parametrize(
    ("key", "shown_key"),
    [
        (Symbol("reserved"), '{symbol,<<"reserved">>}'),
        (Symbol("X-a"), '{symbol,<<"X-a">>}'),
        (ULong(5), "{ulong,5}"),
    ],
)
def test_s209_an_annotation_that_does_not_begin_with_x_is_reserved(key: Value, shown_key: str) -> None:
    for pairs in ({key: 1}, {Symbol("x-a"): 1, key: 1}):
        error = refused(section(MESSAGE_ANNOTATIONS, pairs), HELLO)
        text = f"failed to parse message: {{reserved_annotation_key,{shown_key}}}"
        assert told(error) == f"amqp:decode-error {text}"


def test_s208_x_cc_lists_further_routing_keys() -> None:
    for keys in ([], ["a"], ["a", "", "é"], None):
        facts = published(annotations({"x-cc": keys}), HELLO).facts
        assert facts.cc == tuple(keys or ())


@pytest.mark.parametrize(
    ("value", "shown_value"),
    [
        ("a", '{utf8,<<"a">>}'),
        (["a", Symbol("b")], '{list,[{utf8,<<"a">>},{symbol,<<"b">>}]}'),
        ([b"a", None], '{list,[{binary,<<"a">>},null]}'),
        ({"a": UInt(1)}, '{map,[{{utf8,<<"a">>},{uint,1}}]}'),
        (True, "true"),
        (1.5, "{double,1.5}"),
        (Array(b"\xa1", ["a"]), "{array,Array(b'\\xa1', ['a'])}"),
    ],
)
def test_s208_anything_else_as_x_cc_is_an_invalid_field(value: Value, shown_value: str) -> None:
    error = refused(annotations({"x-cc": value}), HELLO)
    assert told(error) == f"amqp:invalid-field bad value for 'x-cc' message-annotation: {shown_value}"


BAD_PROPERTIES: dict[str, bytes] = {
    "a message-id that is an int": b"\x54\x01",
    "a user-id that is a string": b"\x40\xa1\x01a",
    "a to that is a symbol": b"\x40\x40\xa3\x01a",
    "a subject that is a number": b"\x40\x40\x40\x43",
    "a reply-to that is no UTF-8": b"\x40\x40\x40\x40\xa1\x01\xff",
    "a content-type that is a string": b"\x40" * 6 + b"\xa1\x01a",
    "a content-type that is not ASCII": b"\x40" * 6 + b"\xa3\x01\xff",
    "a creation-time that is a number": b"\x40" * 9 + b"\x43",
    "a group-sequence that is a ulong": b"\x40" * 11 + b"\x44",
    "fourteen fields": b"\x40" * 14,
    "a string beyond the end": b"\xa1\x05abc",
    "a long string beyond the end": b"\xb1\0\0\0\x05abc",
    "half a size": b"\xb1\0\0",
    "an unknown format code": b"\x01",
}
COUNTS = {"fourteen fields": 14, "an unknown format code": 1}


@pytest.mark.parametrize("name", BAD_PROPERTIES)
@pytest.mark.parametrize("wide", [False, True])
def test_properties_that_are_not_of_their_types_are_malformed(name: str, wide: bool) -> None:
    fields = BAD_PROPERTIES[name]
    count = COUNTS.get(name) or len(fields) - len(fields.lstrip(b"\x40")) + 1
    head = bytes((0xC0, len(fields) + 1, count))
    if wide:
        head = b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + count.to_bytes(4, "big")
    error = refused(b"\0\x53\x73" + head + fields, HELLO)
    assert error.condition == "amqp:decode-error"


@pytest.mark.parametrize("count", [0, 2, 255])
def test_properties_have_as_many_fields_as_they_say(count: int) -> None:
    error = refused(b"\0\x53\x73\xc0" + bytes((4, count)) + b"\xa1\x01a", HELLO)
    assert error.condition == "amqp:decode-error"


@pytest.mark.parametrize(
    "octets",
    [
        section(0x70, ["durable"]),
        section(0x70, [None] * 6),
        section(0x70, [None, 5]),
        b"\0\x53\x70\xc0\x02\x01\xa1",
        b"\0\x53\x72\xc1\x05\x02\xa3\x01x\x01",
        b"\0\x53\x72\xc1\x05\x01\xa3\x02x-",
        section(0x74, {Symbol("a"): 1}),
        section(0x74, {UInt(1): 1}),
        b"\0\x53\x74\xc1\x05\x02\xa1\x01\xff\x40",
        b"\0\x53\x74\xc1\x04\x01\xa1\x01a",
    ],
)
def test_sections_that_cannot_be_read_later_are_refused_now(octets: bytes) -> None:
    for _ in range(2):  # not remembered as good
        assert refused(octets, HELLO).condition == "amqp:decode-error"


@given(st.binary(max_size=80))
def test_random_octets_are_a_message_or_refused(octets: bytes) -> None:
    for payload in (octets, b"\0\x53\x70\x45" + octets, b"\0\x53\x73\xc0" + octets + HELLO):
        with suppress(AmqpError):
            project(payload)


def test_a_large_section_is_passed_on_and_not_looked_into() -> None:
    large = "v" * LOOKED_INTO_MAX
    properties = application_properties({"a": 1, "large": large})
    message = published(properties, HELLO)
    assert message.headers == {}
    assert shown(message).application_properties == {"a": 1, "large": large}
    unread = b"\0\x53\x74\xd1" + (LOOKED_INTO_MAX + 4).to_bytes(4, "big") + bytes(LOOKED_INTO_MAX + 4)
    assert shown(published(unread, HELLO)).octets.endswith(unread + HELLO)


def test_too_many_annotations_are_refused() -> None:
    error = refused(annotations({"x-large": "v" * LOOKED_INTO_MAX}), HELLO)
    assert error.condition == "amqp:resource-limit-exceeded"


def test_annotations_cost_no_more_each_than_a_few() -> None:
    def calls(count: int) -> int:
        said = annotations({f"x-{number}": number for number in range(count)})
        return calls_of(lambda: shown(published(said, HELLO)))

    assert calls(4000) < 4.1 * calls(1000)


# What a consumer sees.


@given(messages.messages())
def test_s229_the_bare_message_and_the_footer_go_through_to_the_bit(said: Said) -> None:
    message = published(said.octets)
    tail = said.bare + (said.footer or b"")
    for delivery in (shown(message), shown(message, redelivered=True, attempts=1)):
        assert delivery.octets.endswith(tail)
        front = Delivery(0, b"", False, delivery.octets.removesuffix(tail))
        assert [*front.sections()] == [messages.HEADER, MESSAGE_ANNOTATIONS]


@given(
    st.builds(p.Header, durable=st.none() | st.booleans(), ttl=st.none() | messages.uints),
    st.integers(0, 300),
)
def test_s228_the_header_is_made_anew(header: p.Header, attempts: int) -> None:
    message = published(header, HELLO)
    for redelivered in (False, True):
        found = shown(message, redelivered, attempts).header
        assert (found.durable, found.ttl) == (bool(header.durable), header.ttl)
        assert found.first_acquirer is not (redelivered or attempts > 0)
        assert found.delivery_count == (attempts or None)


@pytest.mark.parametrize("priority", [None, 0, 4, 255])
def test_x071_priority_is_shown_if_the_publisher_gave_one(priority: int | None) -> None:
    given = p.Header(priority=priority, first_acquirer=False, delivery_count=7)
    found = shown(published(given, HELLO)).header
    assert found == p.Header(durable=False, priority=priority, first_acquirer=True)
    assert published(given, HELLO).facts.priority == (4 if priority is None else priority or LOWEST)


@given(messages.annotation_maps)
def test_s230_annotations_are_the_publishers_and_where_it_was_published_to(given: dict[Value, Value]) -> None:
    own = {Symbol("x-exchange"): "forged", Symbol("x-routing-key"): 1}
    for pairs in (given, {**own, **given}, {**given, **own}):
        message = published(section(MESSAGE_ANNOTATIONS, pairs), HELLO, exchange="é", key="a.b")
        expected = {**given, "x-exchange": "é", "x-routing-key": "a.b"}
        for delivery in (shown(message), shown(message, redelivered=True)):
            assert repr(sorted(delivery.annotations.items())) == repr(
                sorted((Symbol(name), value) for name, value in expected.items())
            )


def test_messages_that_begin_alike_are_told_apart() -> None:
    headers = [(), (p.Header(durable=True),), (p.Header(priority=1),), (annotations({"x-a": 1}),)]
    cases = [(sections, exchange, key) for sections in headers for exchange in "ab" for key in "cd"]
    for _ in range(2):
        for sections, exchange, key in cases:
            delivery = shown(published(*sections, HELLO, exchange=exchange, key=key))
            assert delivery.annotations["x-exchange"] == exchange
            assert delivery.annotations["x-routing-key"] == key
            assert ("x-a" in delivery.annotations) == (sections == headers[3])
            assert delivery.header.durable == (sections == headers[1])
            assert delivery.header.priority == (1 if sections == headers[2] else None)


def test_names_that_are_no_utf_8_are_shown_as_far_as_they_can_be() -> None:
    delivery = shown(published(HELLO, exchange="caf\udce9", key="\udcff"))
    assert delivery.annotations == {"x-exchange": "caf�", "x-routing-key": "�"}


def notes_of_deaths(ttl_ms: int | None = None) -> Notes:
    notes = Notes()
    later = Death("b", "rejected", 1, 1_600_000_002, 1_600_000_002, "x2", ("k2",), None)
    notes.deaths = (later, Death("a", "expired", 2, 1_600_000_000, 1_600_000_001, "x", ("k", "cc"), ttl_ms))
    notes.first_death = ("expired", "a", "x")
    notes.last_death = ("rejected", "b", "x2")
    return notes


def test_s230_deaths_are_an_array_of_maps_newest_first() -> None:
    message = published(p.Header(ttl=5), HELLO, notes=notes_of_deaths(5))
    found = shown(message).annotations
    assert found["x-opt-deaths"].constructor == b"\xd1"
    expected: list[Value] = [
        {
            Symbol("queue"): "b",
            Symbol("reason"): Symbol("rejected"),
            Symbol("count"): ULong(1),
            Symbol("first-time"): Timestamp(1_600_000_002_000),
            Symbol("last-time"): Timestamp(1_600_000_002_000),
            Symbol("exchange"): "x2",
            Symbol("routing-keys"): Array(b"\xb1", ["k2"]),
        },
        {
            Symbol("ttl"): UInt(5),
            Symbol("queue"): "a",
            Symbol("reason"): Symbol("expired"),
            Symbol("count"): ULong(2),
            Symbol("first-time"): Timestamp(1_600_000_000_000),
            Symbol("last-time"): Timestamp(1_600_000_001_000),
            Symbol("exchange"): "x",
            Symbol("routing-keys"): Array(b"\xb1", ["k", "cc"]),
        },
    ]
    assert repr(list(found["x-opt-deaths"].items)) == repr(expected)
    others = {name: value for name, value in found.items() if "-death-" in name}
    assert others == {
        "x-first-death-reason": "expired",
        "x-first-death-queue": "a",
        "x-first-death-exchange": "x",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": "b",
        "x-last-death-exchange": "x2",
    }


def test_a_dead_message_was_somebody_elses_and_lives_on_without_ttl() -> None:
    message = published(p.Header(ttl=5, durable=True), HELLO, notes=notes_of_deaths())
    assert shown(message).header == p.Header(durable=True, first_acquirer=False)


@pytest.mark.parametrize("replaced", [False, True])
def test_x031_forged_deaths_go_and_x_cc_with_the_key_it_belonged_to(replaced: bool) -> None:
    forged = {"x-opt-deaths": 1, "x-death": 2, "x-first-death-queue": 3, "x-cc": ["cc"], "x-mine": 4}
    message = published(annotations(forged), HELLO, notes=notes_of_deaths())
    if replaced:
        message = Message(ENCODING, "x", "k", message.properties, message.body, Facts(), message.notes)
    found = shown(message).annotations
    assert "x-death" not in found
    assert found["x-first-death-queue"] == "a"
    assert isinstance(found["x-opt-deaths"], Array)
    assert found["x-mine"] == 4
    assert found.get("x-cc") == (None if replaced else ["cc"])


def test_forged_deaths_of_a_living_message_are_its_publishers_affair() -> None:
    assert shown(published(annotations({"x-opt-deaths": 1}), HELLO)).annotations["x-opt-deaths"] == 1


def test_a_place_in_a_stream_is_shown() -> None:
    notes = Notes()
    notes.offset = 5
    found = shown(published(annotations({"x-stream-offset": "forged"}), HELLO, notes=notes))
    assert repr(found.annotations["x-stream-offset"]) == repr(Long(5))
    assert found.header.first_acquirer is True


# What a consumer adds.


def test_x068_annotations_are_added_and_replaced_in_their_types() -> None:
    before = published(
        p.Header(durable=True),
        annotations({"x-a": 1, "x-b": 2}),
        p.Properties(message_id="m"),
        application_properties({"c": 3}),
        HELLO,
    )
    added: dict[str, Value] = {
        Symbol("x-b"): [Symbol("s"), {UInt(1): b"x"}],
        Symbol("x-opt-d"): Array(b"\x54", [Int(1)]),
    }
    after = annotated(annotated(before, {"x-b": 5}), added)
    assert (after.body, after.exchange, after.key, after.facts.has_headers) == (before.body, "x", "k", True)
    for redelivered in (False, True):
        delivery = shown(after, redelivered)
        assert repr(delivery.annotations["x-b"]) == repr(added["x-b"])
        assert repr(delivery.annotations["x-opt-d"]) == repr(added["x-opt-d"])
        assert delivery.annotations["x-a"] == 1
        assert delivery.bare == shown(before).bare
        assert delivery.header.durable is True
    assert shown(before).annotations["x-b"] == 2


@given(messages.messages(), st.dictionaries(messages.x_names, messages.few_values, max_size=3))
def test_x068_annotations_change_nothing_else(said: Said, added: dict[str, Value]) -> None:
    own = {name: value for name, value in added.items() if name not in messages.BROKERS}
    tail = said.bare + (said.footer or b"")
    before = published(said.octets)
    after = annotated(before, added)
    fronts = [Delivery(0, b"", False, shown(each).octets.removesuffix(tail)) for each in (before, after)]
    expected = {**fronts[0].annotations, **own}
    assert repr(sorted(fronts[1].annotations.items())) == repr(sorted(expected.items()))
    assert fronts[1].header == fronts[0].header


def test_x068_facts_and_history_stay() -> None:
    before = published(
        p.Header(priority=3, ttl=7), annotations({"x-cc": ["c"]}), HELLO, notes=notes_of_deaths()
    )
    after = annotated(before, {"x-a": 1})
    assert after.notes is before.notes
    for name in ("durable", "priority", "ttl_ms", "user_id", "reply_to", "cc", "bcc"):
        assert getattr(after.facts, name) == getattr(before.facts, name)


@pytest.mark.parametrize("name", ["a", "", "X-a", "x-é"])
def test_x068_a_reserved_annotation_ends_the_session(name: str) -> None:
    with pytest.raises(AmqpError) as caught:
        annotated(published(HELLO), {"x-fine": 1, name: 1})
    assert (caught.value.condition, caught.value.ends) == ("amqp:invalid-field", Ends.SESSION)


def test_a_consumer_does_not_speak_for_the_broker() -> None:
    before = published(annotations({"x-cc": ["a"]}), HELLO, notes=notes_of_deaths())
    names = ("x-cc", "x-exchange", "x-routing-key", "x-opt-deaths", "x-death")
    forged: dict[str, Value] = dict.fromkeys(names, 1)
    assert shown(annotated(before, forged)).annotations == shown(before).annotations


def test_annotations_do_not_grow_without_end() -> None:
    message = published(HELLO)
    for number in range(40):
        message = annotated(message, {f"x-{number}": "v" * 8_000})
    assert len(message.properties) <= LOOKED_INTO_MAX
    assert "x-10" in shown(message).annotations
    assert "x-39" not in shown(message).annotations


# From elsewhere.


def foreign(properties: Properties | None, body: bytes = b"hello", notes: Notes | None = None) -> Message:
    return Message(ForeignEncoding(properties), "x", "k", b"", body, Facts(), notes)


def test_s231_a_foreign_body_is_one_data_section_and_never_copied() -> None:
    for size in (0, 5, 300):
        message = foreign(Properties(), bytes(size))
        assert shown(message).octets.endswith(data(bytes(size)))
        assert pieces(message, lone(message))[1] is message.body


def test_one_conversion_serves_all_consumers() -> None:
    message = foreign(Properties(message_id="m"))
    for redelivered in (False, True):
        assert shown(message, redelivered).properties.message_id == "m"
    encoding = message.encoding
    assert isinstance(encoding, ForeignEncoding)
    assert encoding.reads == 1


def test_a_mistake_in_another_protocol_is_told() -> None:
    with pytest.raises(ValueError, match="a mistake"):
        shown(foreign(None))


def test_a_foreign_message_has_deaths_and_an_offset_too() -> None:
    notes = notes_of_deaths()
    notes.offset = 7
    found = shown(foreign(Properties(ttl_ms=5, headers={"x-a": "b", "x-death": []}), notes=notes))
    assert found.annotations["x-a"] == "b"
    assert found.annotations["x-stream-offset"] == 7
    assert len(found.annotations["x-opt-deaths"].items) == 2
    assert "x-death" not in found.annotations
    assert found.header == p.Header(durable=False, first_acquirer=False)


def test_x068_a_foreign_message_gets_headers() -> None:
    message = annotated(
        foreign(Properties(headers={"a": 1})), {Symbol("x-n"): UInt(5), Symbol("x-d"): b"\xff"}
    )
    assert message.properties == b"written"
    assert message.encoding.read(b"").headers == {"a": 1, "x-n": values.UInt32(5), "x-d": bytearray(b"\xff")}
    assert type(message.headers["x-n"]) is values.UInt32


# Speed, and what it may cost.


def calls_of(run: Callable[[], object]) -> int:
    """The Python calls that `run` makes."""
    return calls(run).total() - 1


@plain_only
def test_a_usual_message_costs_a_handful_of_calls() -> None:
    plain = message(p.Header(), p.Properties(), HELLO)
    to_somebody = message(
        p.Header(durable=True),
        p.Properties(message_id="m", to="/queues/q"),
        application_properties({"a": 1}),
        HELLO,
    )
    for octets, most in ((HELLO, 2), (plain, 2), (to_somebody, 4)):
        arrived = published(octets)
        delivery = lone(arrived)
        split_pieces(arrived, delivery)
        assert calls_of(lambda octets=octets: project(octets)) <= most
        assert calls_of(lambda arrived=arrived, delivery=delivery: split_pieces(arrived, delivery)) == 1


def test_what_is_remembered_is_bounded() -> None:
    most = envelope.REMEMBERED_MAX
    for number in range(most + 10):
        shown(published(annotations({"x-n": number}), application_properties({"n": number}), HELLO))
        shown(published(HELLO, key=str(number)), redelivered=True, attempts=number)
    for cache in (
        *(envelope.remembered, encoding.remembered_facts, encoding.remembered_application),
        *(encoding.remembered_beginnings, encoding.remembered_headers),
    ):
        assert 0 < len(cache) <= most


def test_what_is_large_is_not_remembered() -> None:
    large = "v" * 5000
    shown(published(annotations({"x-n": large}), application_properties({"n": large}), HELLO))
    shown(published(p.Properties(reply_to=large, user_id=b"u" * 5000), HELLO, key=large, exchange=large))
    assert all(len(octets) < 5000 for octets in envelope.remembered)
    assert all(len(octets) < 5000 for octets in encoding.remembered_application)
    assert all(len(octets) < 5000 for octets in encoding.remembered_beginnings.values())
    for _, _, user_id, reply_to, _ in encoding.remembered_facts:
        assert len(user_id or "") + len(reply_to or "") < 5000


def test_ids_and_texts_of_any_type_are_in_order() -> None:
    for message_id in (ULong(0), ULong(2**64 - 1), UUID(int=1), b"", b"x" * 300, "", "x" * 300):
        found = project(message(p.Properties(message_id=message_id, to="t" * 300, subject=""), HELLO))
        assert found[3:] == ("t" * 300, "")
    assert encode(ULong(0)) == b"\x44"
