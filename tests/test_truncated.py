"""Octets that are cut off, altered or arbitrary: whatever reads them says so in its own words, compiled and plain.

Compiled code raises SystemError for a slice of bytes that ends before it begins, where plain Python has an empty one.
The readers of whole connections are tried in the same way by the fuzz tests of each protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from zlib import crc32

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.durable.store import chunk
from leveret.durable.store.contract import DamagedError
from leveret.errors import PreconditionFailed
from leveret.protocols.amqp091.broker import encoding as encoding091
from leveret.protocols.amqp091.codec.fields import AmqpError as AmqpError091
from leveret.protocols.amqp091.codec.wire import edit_headers, method_at, property_fields
from leveret.protocols.amqp10.broker import encoding as encoding10
from leveret.protocols.amqp10.broker.publishing import Projection
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import sections, wire
from leveret.protocols.amqp10.codec.errors import AmqpError as AmqpError10
from leveret.protocols.amqp10.machine.transfer_pattern import pattern_at
from tests.amqp091.samples import METHODS, PROPERTIES
from tests.amqp10.messages import messages
from tests.durable.store.test_chunk import entries
from tests.harness.mutation import mutated, mutations

PERFORMATIVES: Final = st.sampled_from(
    [
        p.Transfer(handle=1, delivery_id=300, delivery_tag=b"tag", settled=True).encode() + b"payload",
        p.Transfer(handle=0, delivery_id=0, delivery_tag=bytes(32), more=True).encode(),
        p.Disposition(role=True, first=1, last=300, settled=True, state=p.Accepted()).encode(),
        p.Disposition(role=True, first=0).encode(),
        p.Flow(incoming_window=300, next_outgoing_id=0, outgoing_window=9, handle=0, echo=True).encode(),
        p.Flow(incoming_window=1, next_outgoing_id=70_000, outgoing_window=9).encode(),
    ]
)
MESSAGES: Final = messages().map(lambda said: said.octets)
BODIES: Final = messages().map(lambda said: said.body)
METHODS_091: Final = st.sampled_from([octets for _, octets in METHODS])
PROPERTIES_091: Final = st.sampled_from([octets for _, octets in PROPERTIES])
ENTRIES: Final = entries().map(lambda made: chunk.pack(made).entries)


@attrs.frozen
class Reading:
    """A function that reads octets from one offset to another, what it may raise, and what it can read."""

    read: Callable[[bytes, int, int], object]
    errors: tuple[type[Exception], ...]
    samples: st.SearchStrategy[bytes]


def whole(read: Callable[[bytes], object]) -> Callable[[bytes, int, int], object]:
    return lambda octets, at, end: read(octets[at:end])


def framed(read: Callable[[bytes, int, int], object]) -> Callable[[bytes, int, int], object]:
    """For what wants a whole frame, as the reader of a connection has found it."""

    def read_framed(octets: bytes, at: int, end: int) -> object:
        data = bytes(at) + wire.frame(1, octets[at:end])
        return read(data + octets[end:], at, len(data))

    return read_framed


def with_checksum(octets: bytes) -> chunk.Columns:
    """So that more is looked at than the checksum."""
    inside = octets[: -chunk.CHECKSUM.size]
    return chunk.read(inside + chunk.CHECKSUM.pack(crc32(inside)))


READINGS: Final = {
    "performative": Reading(wire.performative_at, (AmqpError10,), PERFORMATIVES),
    "disposition": Reading(wire.disposition_at, (), PERFORMATIVES),
    "flow": Reading(wire.flow_at, (), PERFORMATIVES),
    "pattern of a transfer": Reading(framed(pattern_at), (), PERFORMATIVES),
    "bounds of sections": Reading(whole(sections.bounds), (AmqpError10,), MESSAGES),
    "octets of a body": Reading(whole(sections.octets_of), (AmqpError10,), BODIES),
    "message of 1.0": Reading(whole(encoding10.project), (AmqpError10,), MESSAGES),
    "projection": Reading(whole(Projection), (AmqpError10,), MESSAGES),
    "method": Reading(method_at, (AmqpError091,), METHODS_091),
    "properties": Reading(whole(property_fields), (AmqpError091,), PROPERTIES_091),
    "headers": Reading(
        whole(lambda octets: edit_headers(octets, frozenset({"n"}), {})), (AmqpError091,), PROPERTIES_091
    ),
    "facts": Reading(
        whole(encoding091.project),
        (AmqpError091, PreconditionFailed),
        PROPERTIES_091.filter(lambda octets: b"\x01x" not in octets),
    ),
    "entries of a chunk": Reading(whole(with_checksum), (DamagedError,), ENTRIES),
}


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
@given(st.data())
def test_what_cannot_be_read_is_refused_in_the_readers_own_words(reading: Reading, data: st.DataObject):
    sample = data.draw(reading.samples)
    changed = mutated([sample], data.draw(mutations({})))
    octets = data.draw(st.sampled_from([sample, b"".join(changed)]) | st.binary(max_size=40))
    end = data.draw(st.sampled_from([len(octets)]) | st.integers(0, len(octets)))
    at = data.draw(st.sampled_from([0]) | st.integers(0, end))
    with suppress(*reading.errors):
        reading.read(octets, at, end)


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
@given(st.data())
def test_what_is_whole_is_read(reading: Reading, data: st.DataObject) -> None:
    """Else the test above would look at refusals only."""
    sample = data.draw(reading.samples)
    reading.read(sample, 0, len(sample))
