"""A message's sections: where they begin and end, in what order they come, and what is no message."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec.errors import Ends
from leveret.protocols.amqp10.codec.sections import (
    MalformedError,
    bounds,
    data_begin,
    is_body,
    octets_of,
    value_of,
)
from leveret.protocols.amqp10.codec.types import Symbol, encode
from tests.harness.call_count import calls

from . import messages, samples
from .messages import DATA, FOOTER, SEQUENCE, SYMBOLS, VALUE, Said
from .parts import section

WHOLE = {
    messages.HEADER: section(messages.HEADER, [True]),
    messages.DELIVERY_ANNOTATIONS: section(messages.DELIVERY_ANNOTATIONS, {Symbol("x-d"): 1}),
    messages.MESSAGE_ANNOTATIONS: section(messages.MESSAGE_ANNOTATIONS, {Symbol("x-m"): 1}),
    messages.PROPERTIES: section(messages.PROPERTIES, ["id"]),
    messages.APPLICATION_PROPERTIES: section(messages.APPLICATION_PROPERTIES, {"a": "b" * 300}),
    DATA: section(DATA, b"hello"),
    FOOTER: section(FOOTER, {Symbol("x-f"): 1}),
}
MESSAGE = b"".join(WHOLE.values())


def parts(octets: bytes) -> list[bytes]:
    at = bounds(octets)
    assert (at[0], at[-1]) == (0, len(octets))
    return [octets[begin:end] for begin, end in pairwise(at)]


@given(messages.messages())
def test_every_section_is_found_where_it_is_and_absent_ones_are_empty(said: Said) -> None:
    before = (said.header, said.delivery_annotations, said.annotations, said.properties)
    expected = [*before, said.application_properties, said.body, said.footer]
    assert parts(said.octets) == [each or b"" for each in expected]


def test_a_message_may_begin_anywhere() -> None:
    assert bounds(b"front" + MESSAGE, 5) == [at + 5 for at in bounds(MESSAGE)]


def test_there_need_not_be_any_section() -> None:
    assert bounds(b"") == [0] * 8


@pytest.mark.parametrize("octets", [MESSAGE, section(VALUE, [1, {"a": None}]), section(SEQUENCE, [])])
def test_a_section_that_is_cut_anywhere_is_malformed(octets: bytes) -> None:
    ends = set(bounds(octets))
    for end in range(len(octets)):
        if end in ends:
            bounds(octets[:end])
        else:
            with pytest.raises(MalformedError):
                bounds(octets[:end])


@pytest.mark.parametrize("first", WHOLE)
@pytest.mark.parametrize("second", WHOLE)
def test_sections_come_in_their_order_and_once(first: int, second: int) -> None:
    octets = WHOLE[first] + WHOLE[second]
    if first < second or first == second == DATA:
        assert [part for part in parts(octets) if part] == (
            [octets] if first == second else [WHOLE[first], WHOLE[second]]
        )
    else:
        with pytest.raises(MalformedError, match="not in order"):
            bounds(octets)


BODIES = {DATA: section(DATA, b"a"), SEQUENCE: section(SEQUENCE, [1]), VALUE: section(VALUE, 1)}


@pytest.mark.parametrize("first", BODIES)
@pytest.mark.parametrize("second", BODIES)
@pytest.mark.parametrize("spelt_out", [False, True])
def test_a_body_is_of_one_kind_and_only_one_value(first: int, second: int, spelt_out: bool) -> None:
    later = BODIES[second]
    if spelt_out:
        later = b"\0" + encode(Symbol(SYMBOLS[second])) + later[3:]
    octets = BODIES[first] + later
    if first == second != VALUE:
        assert parts(octets)[5] == octets
        assert parts(octets + WHOLE[FOOTER])[5:] == [octets, WHOLE[FOOTER]]
        with pytest.raises(MalformedError, match="not in order"):
            bounds(BODIES[first] + WHOLE[FOOTER] + later)
    else:
        with pytest.raises(MalformedError, match="not in order"):
            bounds(octets)


MALFORMED = {
    "no descriptor": encode("text"),
    "unknown number": b"\0\x53\x79\x45",
    "large number": b"\0\x80\x01\0\0\0\0\0\0\x75\xa0\0",
    "unknown symbol": b"\0" + encode(Symbol("amqp:open:list")) + b"\x45",
    "a string as descriptor": b"\0" + encode("amqp:data:binary") + b"\xa0\0",
    "a signed descriptor": b"\0\x54\x75\xa0\0",
    "data that is a string": b"\0\x53\x75\xa1\x01a",
    "data that is null": b"\0\x53\x75\x40",
    "a sequence that is a map": b"\0\x53\x76\xc1\x01\0",
    "a header that is a map": b"\0\x53\x70\xc1\x01\0",
    "annotations that are a list": b"\0\x53\x72\x45",
    "a value of no type": b"\0\x53\x77\x01",
    "half a descriptor": b"\0\x53",
    "a descriptor alone": b"\0\x53\x77",
    "a size beyond the end": b"\0\x53\x75\xa0\x05abc",
    "a large size beyond the end": b"\0\x53\x75\xb0\xff\xff\xff\xffabc",
    "half a size": b"\0\x53\x75\xb0\0\0",
    "a descriptor without end": b"\0" * 100,
}


@pytest.mark.parametrize("octets", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_section_ends_the_link(octets: bytes) -> None:
    for each in (octets, WHOLE[messages.HEADER] + octets, WHOLE[DATA] + octets):
        with pytest.raises(MalformedError) as caught:
            bounds(each)
        assert (caught.value.condition, caught.value.ends) == ("amqp:decode-error", Ends.LINK)
        assert caught.value.description.startswith("failed to parse message: ")


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: MESSAGE[:20] + tail))
def test_random_octets_are_sections_or_malformed(octets: bytes) -> None:
    try:
        found = bounds(octets)
    except MalformedError:
        return
    assert sorted(found) == found
    assert found[-1] == len(octets)


@pytest.mark.parametrize("descriptor", [b"\0\x53\x75", b"\0\x80" + bytes(7) + b"\x75"])
def test_many_sections_cost_no_more_each_than_a_few(descriptor: bytes) -> None:
    def cost(count: int) -> int:
        return calls(partial(bounds, (descriptor + b"\xa0\0") * count)).total()

    assert cost(4000) <= 4.1 * cost(1000)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.data())
def test_octets_in_data_sections_are_joined(octets: list[bytes], draw: st.DataObject) -> None:
    body = b"".join(draw.draw(messages.sections(DATA, st.just(each))) for each in octets)
    assert octets_of(body) == b"".join(octets)
    assert octets_of(body + WHOLE[FOOTER]) == b"".join(octets)


@given(samples.values)
def test_other_bodies_have_no_octets(value: object) -> None:
    assert octets_of(section(VALUE, value)) is None
    assert octets_of(section(SEQUENCE, [value]) * 2 + WHOLE[FOOTER]) is None


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_octets_become_one_data_section(size: int) -> None:
    assert data_begin(bytes(size)) + bytes(size) == section(DATA, bytes(size))


@given(messages.messages())
def test_what_can_be_a_body_is_known(said: Said) -> None:
    assert is_body(said.body)
    assert is_body(said.body + (said.footer or b""))
    assert not is_body((said.properties or WHOLE[messages.PROPERTIES]) + said.body)
    assert not is_body(said.body[:-1] if len(said.body) > 4 else b"")
    assert not is_body(said.footer or b"")
    assert not is_body(b"text")


@pytest.mark.parametrize(
    "octets",
    [
        b"\0\x53\x75\xa0\0",
        b"\0\x80" + bytes(7) + b"\x75\xa0\0",
        b"\0" + encode(Symbol("amqp:data:binary")) + b"\xa0\0",
    ],
)
def test_the_value_of_a_section_is_behind_its_descriptor(octets: bytes) -> None:
    assert octets[value_of(octets, 0) :] == b"\xa0\0"
