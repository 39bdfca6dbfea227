"""Properties of many messages are decoded together as they are decoded one by one, whatever their bytes are."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from leveret.durable.store.contract import DamagedError
from leveret.errors import PreconditionFailed
from leveret.message import Message
from leveret.pipeline import decode, properties091
from leveret.pipeline.decode import Decoder
from leveret.pipeline.jobs.archive_columns import COLUMNS
from leveret.pipeline.shapes import ROWS_MIN, Joined
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.fields import LongLong, MalformedError
from leveret.protocols.amqp10.codec.errors import AmqpError
from tests.pipeline.bulk import FACTS, block, message
from tests.pipeline.test_headers import died
from tests.pipeline.test_properties091 import GIVEN, raw_of

pa = pytest.importorskip("pyarrow")

SCHEMA = pa.schema([(name, COLUMNS[name]) for name in ("offset", "properties", "headers")])
KAFKA = pa.schema([("headers", pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))])


def row_of(raw: bytes) -> Message:
    return Message(ENCODING, "", "orders", raw, b"x", FACTS)


def decoded(*sent: Message, schema: pa.Schema = SCHEMA, size: int | None = None) -> object:
    """Return the rows of messages in blocks of a size, or why they cannot be decoded."""
    size = size or len(sent)
    octets = b"".join(block(at, *sent[at : at + size]) for at in range(0, len(sent), size))
    decoder = Decoder(schema, "kafka" if schema is KAFKA else "amqp", "orders", 0)
    try:
        return [row for batch, _, _ in decoder.batches(octets, 0, len(sent)) for row in batch.to_pylist()]
    except (MalformedError, AmqpError, PreconditionFailed) as error:
        return type(error), str(error)


def one_by_one(sent: Sequence[Message], schema: pa.Schema = SCHEMA) -> object:
    """Return the same, each decoded with no other message in sight."""
    known: dict[int, object] = {}
    found = []
    for offset, each in enumerate(sent):
        rows = known.get(id(each)) or decoded(each, schema=schema)
        if not isinstance(rows, list):
            return rows
        known[id(each)] = rows
        found.append({**rows[0], "offset": offset} if "offset" in rows[0] else rows[0])
    return found


def mixed(kinds: Sequence[Message], shifts: Sequence[int]) -> list[Message]:
    """Return enough messages of each kind to be decoded together, in an order that is no pattern of kinds."""
    count = ROWS_MIN * len(kinds)
    return [kinds[(at + shifts[at % len(shifts)]) % len(kinds)] for at in range(count)]


def require_alike(found: object, wanted: object) -> None:
    """Of several messages that cannot be decoded, either may be the one that is told of."""
    if isinstance(wanted, list):
        assert found == wanted
    else:
        assert not isinstance(found, list)


SHIFTS = st.lists(st.integers(0, 3), min_size=1, max_size=5)


@given(st.lists(GIVEN, min_size=1, max_size=4), SHIFTS, st.sampled_from([None, 1, 50]))
def test_rows_are_those_that_are_decoded_one_by_one(
    different: list[dict[str, object]], shifts: list[int], size: int | None
):
    sent = mixed([row_of(raw_of(each)) for each in different], shifts)
    require_alike(decoded(*sent, size=size), one_by_one(sent))
    headers = one_by_one(sent, KAFKA)
    if isinstance(headers, list):  # otherwise the column may do without what cannot be decoded
        assert decoded(*sent, schema=KAFKA, size=size) == headers


def damaged(whole: bytes, data: st.DataObject, least: int = 0) -> bytes:
    """Return bytes of which some are changed, some are cut off, `least` are kept, and some are added."""
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3)) if whole else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    return bytes(raw[: data.draw(st.integers(least, len(raw)))]) + data.draw(st.binary(max_size=2))


@given(GIVEN, st.data())
def test_bytes_that_are_cut_off_or_changed_are_read_or_refused_alike(
    given: dict[str, object], data: st.DataObject
):
    whole = raw_of(given)
    different = [whole, *(damaged(whole, data, least=2) for _ in range(data.draw(st.integers(1, 3))))]
    sent = mixed(list(map(row_of, different)), [0])
    require_alike(decoded(*sent), one_by_one(sent))


def varied(at: int) -> Message:
    """Return a message of one of two publishers, or, now and then, of neither."""
    if at % 40 == 39:
        return message(b"x", headers={f"only-{at}": at, "nested": {"a": [at]}}, priority=at % 9)
    if at % 3:
        return message(b"x", headers={"n": at, "to": "FI" * (at % 4)}, message_id=str(at), timestamp=at)
    return message(b"x", headers={"to": "ü", "n": LongLong(at - 50), "raw": b"\xff"}, expiration=str(at))


def test_what_publishers_usually_send_is_not_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch):
    sent = [varied(at) for at in range(400)]
    wanted = one_by_one(sent)
    before, calls = properties091.read, []
    monkeypatch.setattr(decode.properties091, "read", lambda raw: calls.append(raw) or before(raw))
    assert decoded(*sent, size=100) == wanted
    assert sorted(calls) == sorted(each.properties for each in sent[39::40])


def test_shapes_without_end_are_decoded_one_by_one():
    sent = [message(b"x", headers={f"name-{at % 70}": at}) for at in range(70 * ROWS_MIN)]
    assert [dict(row["headers"]) for row in decoded(*sent)] == [  # type: ignore[attr-defined]
        {f"name-{at % 70}": str(at)} for at in range(70 * ROWS_MIN)
    ]


def test_dead_letters_among_others_keep_their_history():
    sent = [varied(at) for at in range(100)]
    sent[7] = died(sent[7])
    assert decoded(*sent) == one_by_one(sent)


def test_messages_that_share_properties_may_lie_among_others():
    same = [message(b"x", message_id="same", headers={"a": 1})] * 90
    sent = [*map(varied, range(100)), *same, *map(varied, range(100))]
    assert decoded(*sent, size=10) == one_by_one(sent)


@pytest.mark.parametrize("lengths", [[5, -2], [1, 3], [1, 1]])
def test_lengths_that_do_not_fit_the_bytes_are_damage(lengths: list[int]):
    with pytest.raises(DamagedError):
        Joined([b"ab", b"c"], array("q", lengths))
