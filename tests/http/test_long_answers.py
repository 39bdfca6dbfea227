"""Long answers in the making: together they take up no more memory than there is for them."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from leveret.broker import Broker
from leveret.clock import ManualClock
from leveret.protocols.http.server.long_answers import FREE_OCTETS, MOST_OCTETS, JsonRows, LongAnswer
from leveret.protocols.http.server.memory_budget import ROOM_OCTETS, lists_of
from leveret.protocols.http.server.request import Refused
from tests.http.management.office import Office

PIECE = bytes(1 << 20)


@pytest.fixture
def broker() -> Broker:
    return Broker(ManualClock())


def filled(broker: Broker, octets: int) -> LongAnswer:
    made = LongAnswer(broker)
    while made.octets < octets:
        made.add(PIECE)
    return made


def test_a_short_answer_needs_no_room(broker: Broker) -> None:
    filled(broker, 2 * ROOM_OCTETS)
    made = LongAnswer(broker)
    made.add(bytes(FREE_OCTETS))
    assert made.response().size == FREE_OCTETS


def test_long_answers_share_the_room(broker: Broker) -> None:
    held = [filled(broker, ROOM_OCTETS // 4) for _ in range(3)]
    with pytest.raises(Refused) as refused:
        filled(broker, ROOM_OCTETS // 2)
    assert (refused.value.status, refused.value.headers) == (503, (("Retry-After", "1"),))
    assert sum(each.octets for each in held) <= lists_of(broker).taken <= ROOM_OCTETS


def test_an_answer_that_is_expected_to_be_too_long_is_not_begun(broker: Broker) -> None:
    filled(broker, ROOM_OCTETS // 2)
    with pytest.raises(Refused):
        LongAnswer(broker).expect(ROOM_OCTETS)


def test_the_share_is_given_back_when_the_answer_has_been_sent(broker: Broker) -> None:
    with filled(broker, ROOM_OCTETS) as made:
        response = made.response()
    assert lists_of(broker).taken > 0
    assert response.sent is not None
    response.sent()
    assert lists_of(broker).taken == 0


def test_the_share_is_given_back_when_there_will_be_no_answer(broker: Broker) -> None:
    with pytest.raises(Refused), filled(broker, ROOM_OCTETS):
        raise Refused(HTTPStatus.CONFLICT, "why")
    assert lists_of(broker).taken == 0


def test_no_answer_is_longer_than_a_client_could_mean(broker: Broker) -> None:
    with pytest.raises(Refused, match="ask for a page"):
        filled(broker, MOST_OCTETS + 1)


def test_rows_are_a_list(broker: Broker) -> None:
    rows = JsonRows(broker)
    for each in (b"1", b"2", b"3"):
        rows.append(each)
    assert (rows.count, b"".join(rows.response().pieces)) == (3, b"[1,2,3]")
    assert b"".join(JsonRows(broker).response().pieces) == b"[]"


# Fetching.

FETCH = {"count": 10, "encoding": "auto", "ackmode": "ack_requeue_false"}


def test_messages_that_there_is_no_room_to_tell_stay_in_their_queue() -> None:
    office = Office()
    queue = office.queue()
    said = {
        "properties": {},
        "routing_key": "q",
        "payload": "x" * (FREE_OCTETS // 4),
        "payload_encoding": "string",
    }
    for _ in range(8):
        assert office.post("/api/exchanges/%2F/amq.default/publish", said).status == 200
    lists_of(office.broker).taken = ROOM_OCTETS
    assert office.post("/api/queues/%2F/q/get", FETCH).status == 503
    assert (queue.ready, queue.unsettled) == (8, 0)
    lists_of(office.broker).taken = 0
    assert len(office.post("/api/queues/%2F/q/get", FETCH).json) == 8
    assert (queue.ready, queue.unsettled, lists_of(office.broker).taken) == (0, 0, 0)
