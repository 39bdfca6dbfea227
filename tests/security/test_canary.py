"""A password goes in by every door and comes out by none: answers of the API, logs at debug level, what prints itself.

tests/test_secrets.py has the logins, the configuration and the definitions, one by one; here it is everything at once.
"""

from __future__ import annotations

import argparse
import base64
import logging
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from leveret.client import Client
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.http import connection
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.security.passwords import PasswordHash
from leveret.server.cli import main
from leveret.server.cli.commands import parser
from tests.amqp10.peer import Peer, plain
from tests.amqp10.test_s14_management import Pair
from tests.harness.bench import ClientBench

from .counter import SECRET, Counter, asked
from .http_routes import ROWS
from .rows import TAGS, Row

ENCODED: Final = base64.b64encode(f"u:{SECRET}".encode()).decode()
ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """Everything logged so far by anybody, tracebacks included."""
    with caplog.at_level(logging.DEBUG):
        yield lambda: caplog.text


def hashes_of(counter: Counter) -> list[str]:
    kept = [user.password for user in counter.broker.access.users()]
    return [each.text for each in kept if isinstance(each, PasswordHash)]


# For administrators, who may make users of them elsewhere, as over RabbitMQ's API.
TELL_HASHES: Final = frozenset(
    {
        "GET /api/definitions",
        "GET /api/all-configuration",
        "GET /api/users",
        "GET /api/users/",
        "GET /api/users/without-permissions",
        "GET /api/users/without-permissions/",
        "GET /api/users/{user}",
    }
)


# As they were made: they have been read, and nothing has been changed.
untouched: Final[dict[str, Counter]] = {}


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(("name", "row"), ROWS.items(), ids=ROWS)
def test_no_route_tells_a_password_and_few_tell_a_hash(
    name: str, row: Row, tag: str, said: Callable[[], str]
) -> None:
    counter = untouched.pop(tag, None) or Counter(tag, **ALL)
    hashes = hashes_of(counter)
    assert hashes
    response = asked(counter, name, row)
    if name.startswith("GET ") or response.status in (401, 403):
        untouched[tag] = counter
    told = response.body.decode("utf-8", "replace") + str(response.headers) + said()
    for secret in (SECRET, ENCODED, base64.b64encode(SECRET.encode()).decode()):
        assert secret not in told
    may_tell = tag == "administrator" and name in TELL_HASHES
    assert may_tell or not [each for each in hashes if each in told]


WRONG: Final = {
    "not JSON": f'{{"password": "{SECRET}"',
    "a list": f'["{SECRET}"]',
    "a number where there should be a text": f'{{"password": ["{SECRET}"], "tags": ""}}',
    "a hash that is none": f'{{"password_hash": "{SECRET}", "tags": ""}}',
    "both": f'{{"password": "{SECRET}", "password_hash": "{SECRET}", "tags": ""}}',
    "an unknown algorithm": f'{{"password_hash": "{SECRET}", "hashing_algorithm": "md5", "tags": ""}}',
    "without tags": f'{{"password": "{SECRET}"}}',
    "right": f'{{"password": "{SECRET}", "tags": ""}}',
}


@pytest.mark.parametrize("target", ["/api/users/eve", "/api/definitions", "/api/permissions/%2F/bob"])
@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_a_body_that_is_refused_is_not_repeated(body: str, target: str, said: Callable[[], str]) -> None:
    counter = Counter("administrator", **ALL)
    for method in ("PUT", "POST"):
        response = counter.ask(method, target, body.encode())
        assert SECRET not in response.body.decode() + str(response.headers) + said()


def test_a_mistake_of_ours_is_logged_and_answered_without_what_was_sent(
    said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(asked: Request) -> None:
        raise RuntimeError(f"cannot work off {asked!r}")

    route = Route("PUT", "/api/leveret/mistake", Level.ADMINISTRATOR, mistaken)
    counter = Counter("administrator", **ALL)
    monkeypatch.setattr("leveret.protocols.http.server.adapter.find", lambda *asked: (route, {}))
    response = counter.ask("PUT", route.path, f'{{"password": "{SECRET}"}}'.encode())
    assert response.status == 500
    assert "RuntimeError" in said()
    for secret in (SECRET, ENCODED):
        assert secret not in response.body.decode() + said()


def test_what_holds_a_secret_prints_without_it() -> None:
    counter = Counter("administrator", **ALL)
    user = counter.broker.access.user("u")
    assert user is not None
    headers = {"authorization": f"Basic {ENCODED}"}
    things = [
        user,
        user.password,
        counter.broker.access,
        Client(counter.broker, user, "HTTP"),
        Request(counter.broker, {}, {}, user, SECRET.encode(), headers=headers),
        connection.HttpRequest("PUT", "/", "", headers, SECRET.encode()),
        p.SaslInit(mechanism="PLAIN", initial_response=plain("u", SECRET)),
        p.SaslResponse(response=SECRET.encode()),
    ]
    for thing in things:
        for secret in (SECRET, ENCODED, *hashes_of(counter)):
            assert secret not in repr(thing) + repr(vars(thing) if hasattr(thing, "__dict__") else "")


# AMQP 1.0.

IN_1_0: Final = {
    "PLAIN": ("PLAIN", (plain("guest", SECRET),)),
    "PLAIN, nobody's": ("PLAIN", (plain("bob", SECRET),)),
    "PLAIN, longer": ("PLAIN", (plain("guest", SECRET + "x"),)),
    "PLAIN without a NUL": ("PLAIN", (SECRET.encode(),)),
    "PLAIN and not UTF-8": ("PLAIN", (b"\0\xff\0" + SECRET.encode(),)),
    "RABBIT-CR-DEMO": ("RABBIT-CR-DEMO", (b"guest", f"My password is {SECRET}".encode())),
    "RABBIT-CR-DEMO, in other words": ("RABBIT-CR-DEMO", (b"guest", SECRET.encode())),
    "ANONYMOUS": ("ANONYMOUS", (SECRET.encode(),)),
    "EXTERNAL": ("EXTERNAL", (SECRET.encode(),)),
    "a mechanism that is not there": (SECRET, (SECRET.encode(),)),
}
MECHANISMS: Final = f"""\
[protocols.amqp10]
mechanisms = ["PLAIN", "RABBIT-CR-DEMO", "ANONYMOUS", "EXTERNAL"]
[[users]]
name = "guest"
password = "{SECRET}"
[users.permissions."/"]
configure = ".*"
write = ".*"
read = ".*"
"""


@pytest.mark.parametrize(("mechanism", "responses"), IN_1_0.values(), ids=IN_1_0)
def test_a_login_over_1_0_right_or_wrong_is_not_repeated(
    mechanism: str, responses: tuple[bytes, ...], said: Callable[[], str]
) -> None:
    peer = Peer(ClientBench(MECHANISMS))
    peer.greet()
    first, *further = responses
    heard = [peer.authenticate(mechanism, first)]
    heard += [peer.respond(each) for each in further]
    told = repr(heard) + repr(vars(peer.front)) + said()
    assert mechanism == SECRET or SECRET not in told


@pytest.mark.parametrize("secret", [SECRET, SECRET + " and wrong"])
def test_a_new_secret_over_1_0_is_not_repeated(secret: str, said: Callable[[], str]) -> None:
    peer = Peer(ClientBench(MECHANISMS)).open("guest", SECRET)
    pair = Pair(peer.begin())
    pair.send("PUT", "/auth/tokens", secret.encode())
    response = pair.responses.get()
    ended = repr(peer.closed) + repr(pair.session.ended)
    assert SECRET not in repr(response and response.body) + ended + said()


# The command line.


def options(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in of._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from options(each)


def test_no_command_takes_a_password_as_an_argument() -> None:
    """Others on the machine can read those."""
    whole = parser({})
    whole.add_own()  # type: ignore[attr-defined]
    whole.add_others()  # type: ignore[attr-defined]
    secret = [
        each
        for each in options(whole)
        if any(
            "password" in each_name or "secret" in each_name
            for each_name in [*each.option_strings, each.dest]
        )
        and each.nargs != 0
    ]
    assert secret
    for option in secret:
        assert option.dest.endswith("_file"), option


@pytest.mark.parametrize("command", ["status", "list", "export"])
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_url_with_credentials_is_shown_without_them(
    command: str, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"list": ["queues"], "export": [], "status": []}[command]
    for port in (1, "x"):
        url = f"{scheme}ann:{SECRET}@127.0.0.1:{port}"
        assert main([command, *arguments, "--url", url], {"LEVERET_PASSWORD": SECRET}) != 0
        printed = capsys.readouterr()
        assert SECRET not in printed.out + printed.err
        assert "127.0.0.1" in printed.err
