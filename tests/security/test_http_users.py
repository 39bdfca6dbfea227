"""Passwords that an HTTP server checks: what it is asked, what its answers mean, and in which order backends decide."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from leveret.config.config import ConfigError, parse
from leveret.security.http_requests import HttpRequest, HttpResponse, NoResponse, Outcome
from leveret.security.password_checks import Waiting
from leveret.security.sasl import AuthenticationFailed, Pending, Plain, Success
from leveret.security.users import User
from tests.harness.bench import ClientBench

ASKED = '[security]\nbackends = ["internal", "http"]\n[auth_http]\nuser_path = "https://login.example/user"\n'


class Server:
    """A broker whose server answers when the test wants it to."""

    def __init__(self, settings: str = ASKED, more: str = "") -> None:
        self.bench = ClientBench("limits.login_failures_per_user = 2\n" + settings + more)
        self.access = self.bench.broker.access
        self.asked: list[tuple[HttpRequest, Callable[[Outcome], None]]] = []
        assert self.access.http_users is not None
        self.access.http_users._ask = lambda request, then: self.asked.append((request, then))
        self.access.add_user("here", "right")

    def says(self, answer: str | Outcome) -> None:
        _, then = self.asked.pop(0)
        then(HttpResponse(200, answer.encode()) if isinstance(answer, str) else answer)

    def shown(self, name: str = "shop", password: str = "secret") -> User | Waiting | None:
        return self.access.authenticate(name, password)

    def decided(self, answer: str | Outcome) -> User | None:
        waiting = self.shown()
        assert isinstance(waiting, Waiting)
        self.says(answer)
        assert waiting.is_there
        return waiting.user


def test_the_server_is_asked_with_a_form():
    server = Server()
    server.shown("é", "s&crét")
    [(request, _)] = server.asked
    assert (request.method, request.url) == ("POST", "https://login.example/user")
    assert parse_qs(request.body.decode()) == {"username": ["é"], "password": ["s&crét"]}
    assert "crét" not in repr(request)


def test_or_in_the_url_where_that_is_wanted():
    server = Server(more='http_method = "get"\n')
    server.shown()
    [(request, _)] = server.asked
    assert (request.method, request.body) == ("GET", b"")
    assert parse_qs(urlsplit(request.url).query) == {"username": ["shop"], "password": ["secret"]}
    assert "secret" not in repr(request)


@pytest.mark.parametrize(
    ("answer", "tags"),
    [
        ("allow", ()),
        (" ALLOW\n", ()),
        ("allow management Monitoring", ("management", "monitoring")),
        (HttpResponse(201, b"allow"), ()),
    ],
)
def test_allow_lets_in_with_the_tags_that_follow(answer: str | Outcome, tags: tuple[str, ...]):
    user = Server().decided(answer)
    assert user is not None
    assert (user.name, user.tags, user.scopes) == ("shop", tags, None)


@pytest.mark.parametrize(
    "answer",
    [
        *("deny", "", "allowed", "yes", "\xff"),
        *(HttpResponse(403, b"allow"), HttpResponse(302, b"allow"), NoResponse("silence")),
    ],
)
def test_nothing_else_does(answer: str | Outcome):
    assert Server().decided(answer) is None


def test_the_next_backend_is_asked_if_one_has_refused():
    server = Server()
    found = server.shown("here", "right")
    assert isinstance(found, User)
    assert server.asked == [], "the users here come first"
    waiting = server.shown("here", "other")
    server.says("allow")
    assert isinstance(waiting, Waiting)
    assert waiting.user is not None


@pytest.mark.parametrize("answer", ["deny", NoResponse("silence"), HttpResponse(500, b"")])
def test_the_users_here_may_come_second(answer: str | Outcome):
    server = Server(ASKED.replace('"internal", "http"', '"http", "internal"'))
    right, wrong = server.shown("here", "right"), server.shown("here", "wrong")
    server.says(answer)
    server.says(answer)
    assert isinstance(right, Waiting)
    assert right.user is server.access.user("here")
    assert isinstance(wrong, Waiting)
    assert wrong.user is None


def test_the_server_may_decide_alone():
    server = Server(ASKED.replace('"internal", ', ""))
    waiting = server.shown("here", "right")
    server.says("deny")
    assert isinstance(waiting, Waiting)
    assert waiting.user is None


def test_what_the_user_may_do_is_in_the_account_here():
    server = Server()
    user = server.decided("allow")
    assert user is not None
    assert not server.access.may_enter(user, "/")
    server.access.add_user("shop")
    server.access.set_permissions("shop", "/", "", "x", "")
    assert server.access.may_enter(user, "/")


def test_answers_are_remembered_and_refusals_only_if_wanted():
    server = Server()
    server.decided("allow")
    assert isinstance(server.shown(), User)
    server.bench.clock.advance(60)
    server.decided("deny")
    assert isinstance(server.shown(), Waiting)
    server = Server(more="cache_refusals = true\n")
    server.decided("deny")
    assert server.shown() is None
    assert server.access.forget_logins() == {"passwords": 0, "http_users": 1}
    assert isinstance(server.shown(), Waiting)
    assert server.access.remembered_logins()["http_user_requests"] == 2


def test_an_empty_password_is_nobodys():
    server = Server()
    assert server.shown("shop", "") is None
    assert server.asked == []


def tried(server: Server, answer: str | Outcome) -> str:
    """Log in with PLAIN; return the reason of a refusal."""
    attempt = Plain(server.access, False)
    attempt.host = "192.0.2.7"
    try:
        found = attempt.login("shop", "secret")
        if isinstance(found, Pending):
            server.says(answer)
            found = found.answer()
        assert isinstance(found, Success)
    except AuthenticationFailed as failure:
        return failure.word
    return ""


def test_refusals_count_as_failures_and_silence_does_not():
    server = Server()
    assert [tried(server, NoResponse("silence")) for _ in range(5)] == ["no_answer"] * 5
    assert [tried(server, "deny") for _ in range(4)] == ["invalid_credentials"] * 3 + ["too_many_failures"]


def test_a_client_that_has_gone_waits_no_more():
    server = Server()
    gone = server.shown()
    assert isinstance(gone, Waiting)
    gone.drop()
    server.says("allow")
    assert not gone.is_there


@pytest.mark.parametrize(
    ("toml", "where"),
    [
        ('[security]\nbackends = ["http"]', r"auth_http\.user_path"),
        ('[auth_http]\nuser_path = "http://login.example/"', r"auth_http\.user_path"),
        ('[security]\nbackends = ["ldap"]', r"security\.backends"),
        ("[security]\nbackends = []", r"security\.backends"),
    ],
)
def test_settings_that_cannot_be_are_refused(toml: str, where: str):
    with pytest.raises(ConfigError, match=where):
        parse(toml)
