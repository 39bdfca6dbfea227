"""What is known of a message is taken for those of the same form, and for no others: not by a bit that matters."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.broker.encoding import project
from leveret.protocols.amqp10.broker.projection import REMEMBERED_MAX, Projection
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.sections import APPLICATION, BODY, PROPERTIES, bounds, value_of
from leveret.protocols.amqp10.codec.types import Int, Symbol, Timestamp, UInt, ULong, Value, value_at
from tests.harness.bench import ClientBench

from .parts import DELIVERY_ANNOTATIONS, annotations, application_properties, data, section
from .peer import declared, session_of


@dataclass
class Form:
    """The sections of a message, as an application makes them. `texts` are user-id, to, subject and reply-to."""

    ids: list[Value] = field(default_factory=lambda: ["m-0001", "c-0001"])
    texts: list[Value] = field(default_factory=lambda: [None, None, None, None])
    rest: list[Value] = field(default_factory=lambda: [Symbol("text/plain"), None, None, Timestamp(1)])
    pairs: dict[str, Value] = field(default_factory=lambda: {"trace": "0af7", "n": Int(5000)})
    front: bytes = p.Header(durable=True).encode()

    def payload(self, body: bytes = b"body") -> bytes:
        properties = section(0x73, [self.ids[0], *self.texts, self.ids[1], *self.rest])
        headers = application_properties(self.pairs) if self.pairs else b""
        return self.front + properties + headers + data(body)


def learned(form: Form) -> Projection:
    """A message that has come twice, so that its form is known."""
    known = Projection(form.payload(b"second"))
    known.learn_form(Projection(form.payload(b"first")))
    return known


def decoded(payload: bytes) -> None:
    """Decode all sections in front of the body. Raises for what cannot be decoded."""
    where = bounds(payload)
    for begin, end in ((PROPERTIES, APPLICATION), (APPLICATION, BODY)):
        at, after = where[begin], where[end]
        if at < after:
            value, stop = value_at(payload, value_of(payload, at), after)
            assert stop == after
            if begin == APPLICATION:
                assert isinstance(value, dict)
                assert all(type(name) is str for name in value)


def assert_true(known: Projection, payload: bytes) -> None:
    """What is known is what is read of this message."""
    facts, properties, body, to, subject = project(payload)
    assert known.properties_of(payload) == properties
    assert facts is known.facts
    assert (to, subject) == (known.to, known.subject)
    assert body == payload[known.body_at :]


@pytest.mark.parametrize(
    "other",
    [
        Form(ids=["m-9999", "c-1234"]),
        Form(rest=[Symbol("text/other"), None, None, Timestamp(1 << 60)]),
        Form(pairs={"trace": "ffff", "n": Int(-7000)}),
    ],
    ids=["ids", "content-type and time", "values of headers"],
)
@pytest.mark.parametrize("body", [b"body", b"another body"])
def test_other_values_of_the_same_sizes_are_the_same_form(other: Form, body: bytes) -> None:
    assert_true(learned(Form()), other.payload(body))


@pytest.mark.parametrize(
    "other",
    [
        Form(ids=["m-10000", "c-0001"]),
        Form(ids=["m-10", "c-000111"]),
        Form(ids=[b"m-0001", "c-0001"]),
        Form(rest=[Symbol("text/plain"), None, Timestamp(1), None]),
        Form(pairs={"brace": "0af7", "n": Int(5000)}),
        Form(pairs={"trace": Symbol("0af7"), "n": Int(5000)}),
        Form(pairs={"n": Int(5000), "trace": "0af7"}),
        Form(pairs={}),
        Form(front=p.Header(durable=False).encode()),
        Form(front=b""),
        Form(front=p.Header(durable=True).encode() + annotations({"x-opt": 1})),
    ],
)
def test_what_differs_in_more_than_values_has_another_form(other: Form) -> None:
    assert learned(Form()).properties_of(other.payload()) is None


@pytest.mark.parametrize("place", range(4))
def test_the_texts_that_the_broker_reads_are_part_of_the_form(place: int) -> None:
    texts: list[Value] = [b"guest", "/queues/q", "key", "back"]
    known = learned(Form(texts=texts))
    assert_true(known, Form(ids=["m-0002", "c-0002"], texts=texts).payload())
    changed = texts[place]
    assert isinstance(changed, bytes | str)
    texts[place] = changed.upper()
    assert known.properties_of(Form(texts=texts).payload()) is None


@pytest.mark.parametrize("at", ["ids", "pairs"])
def test_a_text_that_is_not_ascii_has_another_form(at: str) -> None:
    other = Form(ids=["m-00é", "c-0001"]) if at == "ids" else Form(pairs={"trace": "0é7", "n": Int(5000)})
    whole = Form().payload()
    assert len(other.payload()) == len(whole)
    assert learned(Form()).properties_of(other.payload()) is None


def test_a_form_is_not_that_of_what_is_cut_short_or_goes_on() -> None:
    whole = Form(ids=["m-0002", "c-0002"]).payload()
    known = learned(Form())
    assert known.properties_of(whole) is not None
    for end in range(len(whole)):
        assert known.properties_of(whole[:end]) is None
    assert known.properties_of(whole + data(b"more")) is None
    assert known.properties_of(whole + b"\0") is None


@pytest.mark.parametrize(
    ("form", "other"),
    [
        (
            Form(ids=["m", "c"], front=section(DELIVERY_ANNOTATIONS, {Symbol("x-hop"): 1})),
            Form(ids=["n", "c"], front=section(DELIVERY_ANNOTATIONS, {Symbol("x-hop"): 1})),
        ),
        (Form(ids=["m", "c"], pairs={"list": [1]}), Form(ids=["n", "c"], pairs={"list": [1]})),
        (Form(ids=["é", "c"]), Form(ids=["é", "d"])),
        (Form(ids=["m" * REMEMBERED_MAX, "c"]), Form(ids=["m" * REMEMBERED_MAX, "d"])),
    ],
    ids=["delivery-annotations", "a list", "not ASCII", "long"],
)
def test_some_forms_are_not_learned(form: Form, other: Form) -> None:
    assert learned(form).properties_of(other.payload()) is None


def test_no_form_is_learned_after_one_that_was_of_no_use() -> None:
    """Where two kinds of one size take turns, not every message pays for the learning."""
    first, second = Form(ids=["a", "bb"]), Form(ids=["aa", "b"])
    vain = learned(first)
    after = Projection(second.payload())
    after.learn_form(vain)
    assert after.properties_of(Form(ids=["xx", "y"]).payload()) is None
    useful = learned(first)
    assert useful.properties_of(Form(ids=["x", "yy"]).payload()) is not None
    after.learn_form(useful)
    assert after.properties_of(Form(ids=["xx", "y"]).payload()) is not None


IDS = st.sampled_from([None, "id", b"\xff\0", ULong(9), ULong(1 << 60), UUID(int=1)])
TEXTS = st.none() | st.text("ab", max_size=3)
REST = st.lists(st.sampled_from([None, Symbol("type"), Timestamp(5), "group", UInt(3)]), max_size=8)
VALUES = st.sampled_from([None, True, 1.5, "v", "x" * 300, b"\xff", Symbol("s"), Timestamp(1), UInt(7)])
FRONTS = st.sampled_from(
    [
        b"",
        p.Header(durable=True, ttl=UInt(500)).encode(),
        annotations({"x-opt": "v"}),
        section(DELIVERY_ANNOTATIONS, {Symbol("x-hop"): 1}),
    ]
)


@given(
    *(st.tuples(IDS, IDS), st.lists(TEXTS, min_size=4, max_size=4), REST),
    *(st.dictionaries(st.text("xyé", max_size=3), VALUES, max_size=4), FRONTS, st.integers(0, 3), st.data()),
)
def test_what_has_a_known_form_however_it_was_damaged_is_what_would_be_read(
    ids: tuple[Value, Value],
    texts: list[str | None],
    rest: list[Value],
    pairs: dict[str, Value],
    front: bytes,
    damage: int,
    draw: st.DataObject,
) -> None:
    user, *others = texts
    # The types of the fields must be those of the specification, or nothing is read at all.
    kinds = (Symbol, Symbol, Timestamp, Timestamp, str, UInt, str)
    typed = [each if type(each) is kind else None for each, kind in zip(rest, kinds, strict=False)]
    form = Form(list(ids), [None if user is None else user.encode(), *others], list(typed), pairs, front)
    known = learned(form)
    octets = bytearray(form.payload(b"third"))
    for _ in range(damage):
        octets[draw.draw(st.integers(0, len(octets) - 1))] = draw.draw(st.integers(0, 255))
    payload = bytes(octets)
    if known.properties_of(payload) is not None:
        assert_true(known, payload)
        decoded(payload)
    else:
        assert damage or not known.may_hold or len(known.properties) != known.body_at


def test_messages_of_one_form_arrive_as_they_were_sent_and_so_do_those_between_them() -> None:
    bench = declared(ClientBench("protocols.amqp10.link_credit = 1000"), ["q"])
    sender = session_of(bench).sender("/queues/q")
    sent = []
    for number in range(200):
        other = number % 17 == 5
        form = Form(
            ids=[f"m-{number:04}", "é" if other else f"c-{number * 7919 % 10_000:04}"],
            pairs={"trace": f"{number:04x}", "n": Int(5000 + number)},
            front=b"" if number % 23 == 11 else p.Header(durable=number % 40 > 30).encode(),
        )
        sent.append(form.payload(b"%d" % number))
        sender.send(sent[-1])
    bench.settle()
    there = [each.message for each in bench.queue("q").waiting()]
    assert [each.properties + each.body for each in there] == sent
    assert [each.facts for each in there] == [project(payload)[0] for payload in sent]
