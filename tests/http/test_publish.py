"""Publishing over HTTP at once: what is answered when, and what is refused before anything is published."""

from __future__ import annotations

import pytest

from leveret.features.staging.staging import stagings_of
from leveret.message import Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.values import Json, Properties
from tests.http.press import Press, content, rows

PATH = "/api/leveret/publish/%2F"


def published(press: Press, body: bytes, query: str = "") -> Json:
    return content(press.ask("POST", PATH + query, body))


def test_what_is_published_is_in_its_queues_and_counted(press: Press) -> None:
    body = rows("q", b"a", b"b") + rows("none", b"c")
    assert published(press, body) == {"published": 2, "unroutable": 1}
    assert published(press, body) == {"published": 2, "unroutable": 1}
    assert press.bodies() == "a b a b"
    assert press.again().bodies() == "a b a b"
    assert not stagings_of(press.host)


def test_with_mandatory_nothing_is_published_if_a_row_has_no_queue(press: Press) -> None:
    body = rows("q", b"a") + rows("none", b"b")
    response = press.ask("POST", f"{PATH}?mandatory=true", body)
    assert response.status == 422
    assert (response.content["exchange"], response.content["key"]) == ("", "none")
    assert press.bodies() == ""
    assert published(press, rows("q", b"a"), "?mandatory=true") == {"published": 1, "unroutable": 0}


def test_what_a_queue_has_no_room_for_is_refused_before_anything_is_published() -> None:
    press = Press(x_max_length=3, x_overflow="reject-publish")
    press.site.queue("free")
    assert published(press, rows("q", b"a", b"b")) == {"published": 2, "unroutable": 0}
    response = press.ask("POST", PATH, rows("free", b"x") + rows("q", b"c", b"d"))
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    reason = "queue 'q' in vhost '/' has no room for 2 more messages; nothing is published"
    assert response.content["reason"] == reason
    assert (press.bodies(), press.bodies("free"), press.queue.refused) == ("a b", "", 0)
    assert published(press, rows("q", b"c")) == {"published": 1, "unroutable": 0}


def test_a_queue_that_fills_up_meanwhile_refuses_the_rest() -> None:
    press = Press(x_max_length=5000, x_overflow="reject-publish")
    line = press.send("POST", PATH, rows("q", *[b"x"] * 5000))
    while not press.queue.ready:
        press.advance()
    press.broker.publish(press.host.exchange(""), Message(ENCODING, "", "q", b"\0\0", b"other"))
    response = line.answer()
    assert response.status == 503
    assert response.content["reason"] == "a queue has no room for more; 4999 of 5000 rows are published"


def test_an_alarm_refuses_everything(press: Press) -> None:
    press.broker.alarms.set("low on disk")
    response = press.ask("POST", PATH, rows("q", b"a"))
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert response.content["reason"] == "the node takes no messages now: low on disk"
    assert press.bodies() == ""


def test_many_rows_are_published_a_portion_at_a_time(press: Press) -> None:
    line = press.send("POST", PATH, rows("q", *[b"x"] * 4500))
    assert line.waits
    assert press.queue.ready == 0  # they are looked at first
    for _ in range(3):
        press.advance()
    assert 0 < press.queue.ready < 4500
    assert line.answer().content == {"published": 4500, "unroutable": 0}
    assert press.queue.ready == 4500


def test_who_goes_away_leaves_the_rest_unpublished(press: Press) -> None:
    line = press.send("POST", PATH, rows("q", *[b"x"] * 4500))
    for _ in range(3):
        press.advance()
    line.connection.lost()
    before = press.queue.ready
    for _ in range(10):
        press.advance()
    assert press.queue.ready == before < 4500


def test_nobody_is_told_before_it_is_on_disk() -> None:
    press = Press(held=True)
    press.site.settle()
    press.land()
    line = press.send("POST", PATH, rows("q", b"a"))
    press.advance(1)
    assert press.bodies() == "a"
    assert line.waits
    press.land()
    assert line.answer().content == {"published": 1, "unroutable": 0}


def test_headers_route_each_row_for_itself(press: Press) -> None:
    sorter = press.host.declare_exchange("sorter", "headers", durable=True)
    press.host.bind(sorter, press.queue, "", {"kind": "a"})
    kinds = [rows("", kind, exchange="sorter", properties=of_kind(kind)) for kind in (b"a", b"b", b"a")]
    assert published(press, b"".join(kinds)) == {"published": 2, "unroutable": 1}
    assert press.ask("POST", f"{PATH}?mandatory=true", b"".join(kinds)).status == 422


def of_kind(kind: bytes) -> bytes:
    return ENCODING.write(Properties(headers={"kind": kind.decode()}))


def test_what_goes_to_many_queues_takes_more_turns(press: Press) -> None:
    fanout = press.site.exchange("x")
    for number in range(60):
        press.host.bind(fanout, press.site.queue(f"q{number}"), "", {})
    line = press.send("POST", PATH, rows("", *[b"x"] * 1000, exchange="x"))
    assert line.waits
    assert 0 < press.host.queues["q0"].ready < 1000
    assert line.answer().content == {"published": 1000, "unroutable": 0}
    assert press.host.queues["q59"].ready == 1000


REFUSED = {
    "?x=1": (400, "unknown parameter 'x'; known are mandatory"),
    "?mandatory=1": (400, "parameter 'mandatory' is '1', not true or false"),
}


@pytest.mark.parametrize("query", REFUSED)
def test_parameters_that_make_no_sense_are_refused(press: Press, query: str) -> None:
    assert press.ask("POST", PATH + query, rows("q", b"a")).refusal == REFUSED[query]


def test_nobody_publishes_where_he_may_not(press: Press) -> None:
    response = press.ask("POST", "/api/leveret/publish/closed", rows("q", b"a"))
    assert response.status == 403
    press.site.exchange("secret")
    assert press.ask("POST", PATH, rows("q", b"a") + rows("", b"a", exchange="secret")).refusal == (
        403,
        "write access to exchange 'secret' in vhost '/' refused for user 'spark'",
    )
    assert press.bodies() == ""
