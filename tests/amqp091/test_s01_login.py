"""Logging in from the client's side, §1 of the acceptance list: every mechanism, and who is refused how."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.fields import encode_table
from leveret.protocols.amqp091.codec.wire import FieldTable
from tests.harness.bench import ClientBench
from tests.harness.peer import ELSEWHERE

from .peer import TWO_HOSTS, Peer, start_ok, started

DEMONSTRATION = '[protocols.amqp091]\nmechanisms = ["RABBIT-CR-DEMO", "PLAIN"]'
LOGIN_REFUSED = (
    "403 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
    "For details see the broker logfile."
)


def test_s006_a_mechanism_that_was_not_offered_ends_the_connection() -> None:
    for mechanism in ("X", "EXTERNAL", "RABBIT-CR-DEMO"):
        text = started().closed_with(0, start_ok(mechanism, b""))
        assert text == f"503 COMMAND_INVALID - unknown authentication mechanism '{mechanism}'"


@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("ghost", "guest"), ("guest", "")])
def test_s007_a_wrong_password_is_told_to_who_can_be_told(user: str, password: str) -> None:
    peer = started()
    response = f"\0{user}\0{password}".encode()
    assert peer.closed_with(0, start_ok("PLAIN", response)) == LOGIN_REFUSED


def test_s007_without_the_capability_a_wrong_password_ends_in_silence() -> None:
    peer = started()
    peer.send(0, start_ok("PLAIN", b"\0guest\0wrong", capabilities={}))
    assert peer.take_bytes() == b""
    assert peer.front.closed


def test_s008_guest_is_refused_from_elsewhere_and_only_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = Peer(ClientBench(), ELSEWHERE)
    peer.start()
    assert peer.closed_with(0, start_ok("PLAIN", b"\0guest\0guest")) == LOGIN_REFUSED
    assert "user 'guest' can only connect via localhost" in caplog.text


def test_s008_who_is_no_loopback_user_may_come_from_anywhere() -> None:
    bench = ClientBench("[security]\nloopback_users = []")
    peer = Peer(bench, ELSEWHERE).open()
    assert peer.front.client.user.name == "guest"


@pytest.mark.parametrize("response", [b"", b"guest", b"\0guest", b"\0guest\0guest\0", b"\0\xff\0guest"])
def test_x003_a_malformed_plain_response_is_a_syntax_error(response: bytes) -> None:
    assert started().closed_with(0, start_ok("PLAIN", response)).startswith("502 SYNTAX_ERROR - ")


def test_x004_secure_and_secure_ok_go_on_until_the_mechanism_is_content() -> None:
    peer = started(ClientBench(DEMONSTRATION))
    secure = peer.call(0, start_ok("RABBIT-CR-DEMO", b"guest"))
    assert isinstance(secure, m.ConnectionSecure)
    assert secure.challenge == b"Please tell me your password"
    answer = peer.call(0, m.ConnectionSecureOk(b"My password is guest"))
    assert isinstance(answer, m.ConnectionTune)


def test_x004_a_wrong_second_answer_is_a_refused_login() -> None:
    peer = started(ClientBench(DEMONSTRATION))
    peer.call(0, start_ok("RABBIT-CR-DEMO", b"guest"))
    text = peer.closed_with(0, m.ConnectionSecureOk(b"My password is no"))
    assert text == LOGIN_REFUSED.replace("PLAIN", "RABBIT-CR-DEMO")


def test_x004_an_answer_that_was_not_asked_for_is_out_of_state() -> None:
    text = started().closed_with(0, m.ConnectionSecureOk(b"My password is guest"))
    assert text == "504 CHANNEL_ERROR - unexpected method in connection state starting"


def amqplain(**fields: str) -> bytes:
    table: FieldTable = dict(fields)
    return encode_table(table)[4:]  # the mechanism sends the table without its size


def test_amqplain_logs_in_by_a_table() -> None:
    peer = started()
    answer = peer.call(0, start_ok("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="guest")))
    assert isinstance(answer, m.ConnectionTune)


def test_amqplain_refuses_a_wrong_password_and_a_wrong_table() -> None:
    text = started().closed_with(0, start_ok("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="no")))
    assert text == LOGIN_REFUSED.replace("PLAIN", "AMQPLAIN")
    for response in (amqplain(LOGIN="guest"), b"\x05LOGIN", b"\xff"):
        text = started().closed_with(0, start_ok("AMQPLAIN", response))
        assert text.startswith("502 SYNTAX_ERROR - ")


def test_anonymous_logs_in_as_the_configured_user() -> None:
    peer = started()
    assert isinstance(peer.call(0, start_ok("ANONYMOUS", b"trace")), m.ConnectionTune)
    assert peer.front.client.user.name == "guest"


def test_anonymous_is_not_offered_once_users_are_configured() -> None:
    peer = Peer(ClientBench(TWO_HOSTS))
    assert b"ANONYMOUS" not in peer.start().mechanisms
    text = peer.closed_with(0, start_ok("ANONYMOUS", b""))
    assert text == "503 COMMAND_INVALID - unknown authentication mechanism 'ANONYMOUS'"


@pytest.mark.parametrize("mechanism", ["AMQPLAIN", "ANONYMOUS"])
def test_s008_guest_is_refused_from_elsewhere_whatever_the_mechanism(mechanism: str) -> None:
    peer = Peer(ClientBench(), ELSEWHERE)
    peer.start()
    response = amqplain(LOGIN="guest", PASSWORD="guest")
    assert peer.closed_with(0, start_ok(mechanism, response)) == LOGIN_REFUSED.replace("PLAIN", mechanism)
