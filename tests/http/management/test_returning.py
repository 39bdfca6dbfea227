"""Dead letters go back to the queues that they came from; each is in one queue at any time; what cannot go stays."""

from __future__ import annotations

import pytest

from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.http.management import move, returning
from leveret.values import Properties
from tests.http.management.office import Office

RETURN = "/api/leveret/queues/%2F/q/return"
PEEK = "/api/leveret/queues/%2F/q/peek"


@pytest.fixture
def office() -> Office:
    """A queue `q` for the dead letters of two others."""
    office = Office()
    office.queue("q")
    for name in ("orders", "mail"):
        office.queue(name, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    return office


def die(office: Office, queue: str, *bodies: bytes) -> None:
    """Publish these to a queue, whose consumer rejects them."""
    found = office.host.queue(queue)
    for body in bodies:
        properties = ENCODING.write(Properties(durable=True))
        message = Message(ENCODING, "", queue, properties, body, Facts(durable=True))
        office.broker.publish(office.host.exchange(""), message)
        delivery = found.take_one(settled=False)
        assert delivery is not None
        found.reject(delivery)
    office.site.settle()


def test_those_that_were_chosen_go_back_to_their_queues(office: Office) -> None:
    die(office, "orders", b"1", b"2")
    die(office, "mail", b"3")
    positions = {row["payload"]: row["position"] for row in office.get(PEEK)}
    answer = office.post(RETURN, {"positions": [positions["2"], positions["3"]]})
    assert answer.json == {"returned": 2, "queues": {"orders": 1, "mail": 1}, "stayed": {}}
    assert [office.bodies(name) for name in ("q", "orders", "mail")] == ["1", "2", "3"]
    (back,) = office.host.queue("orders").waiting()
    assert back.message.notes is not None
    assert back.message.notes.first_death == ("rejected", "orders", "")
    assert [office.again().bodies(name) for name in ("q", "orders", "mail")] == ["1", "2", "3"]


def test_without_positions_the_first_go_back(office: Office) -> None:
    die(office, "orders", b"1", b"2", b"3")
    assert office.post(RETURN, {"count": 2}).json["returned"] == 2
    assert (office.bodies("q"), office.bodies("orders")) == ("3", "1 2")
    assert office.post(RETURN, {}).json["returned"] == 1


def test_what_cannot_go_back_stays_as_it_is_with_the_reason(office: Office) -> None:
    die(office, "orders", b"1")
    die(office, "mail", b"2", b"3")
    office.host.delete_queue(office.host.queue("orders"))
    message = Message(ENCODING, "", "q", ENCODING.write(Properties(durable=True)), b"4", Facts(durable=True))
    office.broker.publish(office.host.exchange(""), message)
    office.site.settle()
    answer = office.post(RETURN, {}).json
    assert answer["queues"] == {"mail": 2}
    assert answer["stayed"] == {"no queue 'orders' in vhost '/'": 1, "it is no dead letter": 1}
    assert office.bodies("q") == "1 4"
    assert {(each.redelivered, each.attempts) for each in office.host.queue("q").waiting()} == {(False, 0)}
    assert office.post(RETURN, {"positions": [999]}).json["stayed"] == {"it does not wait here any more": 1}


def test_a_full_queue_takes_none_back(office: Office) -> None:
    die(office, "orders", b"1")
    office.delete("/api/queues/%2F/orders")
    office.queue("orders", x_max_length=0, x_overflow="reject-publish")
    assert office.post(RETURN, {}).json["stayed"] == {"queue 'orders' does not take it": 1}
    assert office.bodies("q") == "1"


def test_it_needs_to_read_here_and_to_write_there(office: Office) -> None:
    die(office, "orders", b"1")
    assert office.post(RETURN, {}, "clerk").status == 403
    assert office.bodies("q") == "1"
    answer = office.post(RETURN, {}, "maker").json
    assert answer["returned"] == 0
    assert "orders" in next(iter(answer["stayed"]))
    assert office.bodies("q") == "1"


@pytest.mark.parametrize("steps", range(5))
def test_after_a_crash_each_is_in_one_of_the_two(
    office: Office, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returning, "PORTION", 3)
    die(office, "orders", *[b"%d" % number for number in range(10)])
    office.asking("POST", RETURN, b"{}")
    for _ in range(steps):
        office.site.advance(move.PAUSE_S)
    after = office.again()
    back, left = after.bodies("orders").split(), after.bodies("q").split()
    assert [*back, *left] == [str(number) for number in range(10)]
    assert steps < 4 or back


@pytest.mark.parametrize(
    "said", [{"positions": "all"}, {"positions": [-1]}, {"positions": [1.5]}, {"count": "two"}]
)
def test_a_wrong_request_is_refused(office: Office, said: dict[str, object]) -> None:
    die(office, "orders", b"1")
    assert office.post(RETURN, said).status == 400  # type: ignore[arg-type]
    assert office.bodies("q") == "1"
