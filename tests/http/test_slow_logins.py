"""Requests of users whose passwords take long to check: the connection asks again, in order, and says who came."""

from __future__ import annotations

import pytest

from leveret.protocols.http.server.adapter import ControlAdapter
from tests.harness import http
from tests.harness.http import Response
from tests.harness.threads import LoginEvents, Threads, make_slow
from tests.http.desk import Desk

WHOAMI = "/api/whoami"


def slow_desk() -> tuple[Desk, Threads]:
    """`administrator`, whose password is `sesame`, and threads that work when told."""
    desk = Desk()
    make_slow(desk.broker.access, administrator="sesame")
    desk.broker.access.off_thread = threads = Threads()
    return desk, threads


def request(
    path: str = WHOAMI, user: str = "administrator:sesame", body: bytes = b"", **headers: str
) -> bytes:
    said = {"Host": "localhost:15672", **headers}
    return http.request("POST" if body else "GET", path, body or None, user, said)


def asking(desk: Desk, octets: bytes) -> ControlAdapter:
    """A connection whose user is being checked."""
    connection = desk.connect()
    connection.receive(octets, 0.0)
    assert connection.outbox.take() == []
    assert (connection.waits, connection.halted) == (True, False)
    return connection


def woken(connection: ControlAdapter) -> bytes:
    """The node gives a connection that was woken its turn."""
    assert (connection.waits, connection.halted) == (False, True)
    connection.receive(b"", 0.0)
    assert not connection.halted
    return b"".join(connection.outbox.take())


def statuses(octets: bytes) -> list[int]:
    return [int(part[:3]) for part in octets.split(b"HTTP/1.1 ")[1:]]


def test_the_first_request_waits_for_a_thread_and_the_next_does_not() -> None:
    desk, threads = slow_desk()
    connection = asking(desk, request())
    threads.run()
    answer = Response(woken(connection), "GET")
    assert (answer.status, answer.content["name"]) == (200, "administrator")
    connection.receive(request(), 0.0)
    assert statuses(b"".join(connection.outbox.take())) == [200]
    assert threads.run() == 0


def test_requests_that_come_meanwhile_are_answered_in_their_order() -> None:
    desk, threads = slow_desk()
    connection = asking(desk, request() + request("/api/nothing"))
    connection.receive(request(user="administrator:wrong"), 0.0)
    threads.run()
    assert statuses(woken(connection)) == [200, 404]
    threads.run()
    assert statuses(woken(connection)) == [401]


@pytest.mark.parametrize("user", ["administrator:wrong", "nobody:sesame", "plain:wrong"])
def test_a_refusal_says_the_same_of_everybody_and_takes_as_long(user: str) -> None:
    desk, threads = slow_desk()
    connection = asking(desk, request(user=user))
    assert threads.run() == 1
    answer = Response(woken(connection), "GET")
    assert answer.status == 401
    assert user.partition(":")[0] not in answer.body.decode()


def test_who_asks_to_send_more_is_checked_before_he_sends_it() -> None:
    desk, threads = slow_desk()
    octets = request("/api/definitions", body=b"x" * 500_000, Expect="100-continue")
    connection = asking(desk, octets[:-500_000])
    threads.run()
    assert statuses(woken(connection)) == [100]
    connection.receive(b"x" * 500_000, 0.0)
    assert statuses(b"".join(connection.outbox.take())) == [400]


def test_who_may_not_send_more_is_told_before_he_sends_it() -> None:
    desk, threads = slow_desk()
    octets = request("/api/definitions", "administrator:wrong", b"x" * 500_000, Expect="100-continue")
    connection = asking(desk, octets[:-500_000])
    threads.run()
    assert statuses(woken(connection)) == [401]
    assert connection.closed


def test_nothing_is_checked_for_a_client_that_has_gone() -> None:
    desk, threads = slow_desk()
    connection = asking(desk, request())
    connection.lost()
    threads.run()
    assert not connection.halted
    connection.receive(b"", 0.0)
    assert connection.outbox.take() == []


def test_a_request_has_to_be_whole_in_time_though_its_user_is_being_checked() -> None:
    desk, threads = slow_desk()
    connection = asking(desk, request())
    connection.on_deadline(9.9)
    assert not connection.closed
    connection.on_deadline(10.0)
    assert connection.closed
    assert statuses(b"".join(connection.outbox.take())) == [408]
    threads.run()
    assert connection.receive(b"", 10.0) is None
    assert connection.outbox.take() == []


def test_what_comes_meanwhile_is_bounded() -> None:
    desk, _ = slow_desk()
    connection = asking(desk, request())
    connection.receive(bytes(128 * 1024), 0.0)
    assert not connection.closed
    connection.receive(b"x", 0.0)
    assert connection.closed


def test_where_too_many_are_being_checked_the_answer_says_that_it_will_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leveret.security.password_checks.JOBS_MAX", 0)
    desk, _ = slow_desk()
    answer = desk.ask(WHOAMI)
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"


def test_who_comes_in_is_told_once_and_who_does_not_each_time() -> None:
    desk = Desk()
    told = LoginEvents()
    desk.broker.events.listeners.append(told)
    connection = desk.connect()
    for user in ("administrator:sesame", "administrator:sesame", "administrator:no", "administrator:no"):
        connection.receive(request(user=user), 0.0)
    assert [(event.name, event.facts.get("error")) for event in told.events] == [
        ("user.authentication.success", None),
        ("user.authentication.failure", "invalid_credentials"),
        ("user.authentication.failure", "invalid_credentials"),
    ]
    assert {event.facts["name"] for event in told.events} == {"administrator"}
    assert {event.facts["protocol"] for event in told.events} == {"HTTP"}
    assert "sesame" not in str(told.events)
