"""The control endpoint in memory: who is let in, what each route answers, and what it refuses in which words."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Mapping

import pytest

from leveret.operations import Reloaded
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.protocols.http.server.route_tree import RouteTree
from leveret.protocols.http.server.routes import ROUTES, allowed, find
from leveret.values import Json
from tests.harness.http import ELSEWHERE, basic

from .desk import TAGS, Desk

# Who is let in.

ALLOWED = {
    "/": TAGS,
    "/api/leveret/health": TAGS,
    "/api/leveret/status": ("administrator", "monitoring", "policymaker", "management"),
    "/api/leveret/reload": ("administrator",),
    "/api/leveret/plugins": ("administrator", "monitoring"),
    "/api/leveret/plugins/reload": ("administrator",),
    "/api/leveret/explain": ("administrator", "monitoring"),
    "/api/leveret/log": ("administrator", "monitoring"),
}


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.path in ALLOWED], ids=lambda route: route.path
)
@pytest.mark.parametrize("tag", TAGS)
def test_each_route_answers_those_with_the_right_tag(desk: Desk, route: Route, tag: str) -> None:
    response = desk.ask(route.path, route.method, f"{tag}:sesame")
    assert response.status == (200 if tag in ALLOWED[route.path] else 403)
    if response.status == 403:
        assert f"user '{tag}' has none of the tags" in str(response.reason)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_only_health_index_and_the_page_answer_those_without_a_name(desk: Desk, route: Route) -> None:
    response = desk.ask(route.path, route.method, user=None)
    no_such_file = 404 if route.path.startswith("/ui/") else 401
    open_to_all = ("/", "/api/leveret/health", "/api/auth", "/api/health/checks/is-owner")
    assert response.status == (200 if route.path in open_to_all else no_such_file)


WRONG = [
    None,
    "Basic",
    "Basic !!!",
    "Basic " + base64.b64encode(b"administrator").decode(),
    "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
    "Basic \xf9",
    "Bearer sesame",
    "Bearer \xf9",
    basic("administrator:Sesame"),
    basic("administrator:"),
    basic("administrator:sesame\0"),
    basic("keyless:"),
    basic("nobody:sesame"),
    basic(":"),
    basic("administrator:sesame") + ", " + basic("administrator:sesame"),
]


@pytest.mark.parametrize("authorization", WRONG)
def test_whoever_has_no_right_password_is_asked_for_one(
    desk: Desk, authorization: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    if authorization is None:
        response = desk.ask("/api/leveret/status", user=None)
    else:
        response = desk.ask("/api/leveret/status", user=None, Authorization=authorization)
    assert response.status == 401
    assert response.headers["WWW-Authenticate"] == 'Basic realm="RabbitMQ Management", charset="UTF-8"'
    assert "name" not in response.content
    assert "esame" not in caplog.text + response.body.decode()


def test_names_and_passwords_are_utf_8_and_passwords_may_have_colons(desk: Desk) -> None:
    assert desk.ask("/api/leveret/status", user="größe:pässe:wort").status == 200


def test_s008_guest_comes_from_this_machine_only(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    assert desk.ask("/api/leveret/status", user="guest:guest").status == 200
    elsewhere = desk.ask("/api/leveret/status", user="guest:guest", peer=ELSEWHERE)
    assert elsewhere.status == 401
    assert "localhost" not in str(elsewhere.reason)
    assert "user 'guest' can only connect via localhost" in caplog.text
    assert desk.ask("/api/leveret/status", peer=ELSEWHERE).status == 200


def test_who_changes_something_is_logged_without_the_password(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "leveret")
    desk.ask("/api/leveret/reload", "POST")
    desk.ask("/api/leveret/status")
    desk.ask("/api/users/nobody", "DELETE")
    assert [record.getMessage() for record in caplog.records] == [
        "127.0.0.1:40000 -> 127.0.0.1:15672: user 'administrator': POST /api/leveret/reload: 200",
        "127.0.0.1:40000 -> 127.0.0.1:15672: user 'administrator': DELETE /api/users/nobody: 404",
    ]


HOSTS = {
    "localhost": True,
    "localhost:15672": True,
    "LOCALHOST:1": True,
    "leveret.localhost": True,
    "127.0.0.1:15672": True,
    "[::1]:15672": True,
    "192.0.2.1": True,
    "evil.example": False,
    "evil.example:15672": False,
    "127.0.0.1.evil.example": False,
    "localhost.evil.example": False,
    "[::1": False,
    "..": False,
    "": True,  # no browser
}


@pytest.mark.parametrize("host", HOSTS)
def test_from_this_machine_a_name_that_anybody_can_make_up_is_refused(desk: Desk, host: str) -> None:
    response = desk.ask("/api/leveret/health", Host=host)
    assert response.status == (200 if HOSTS[host] else 421)
    assert desk.ask("/api/leveret/health", Host=host, peer=ELSEWHERE).status == 200


ORIGINS = {
    "http://localhost:15672": 200,
    "HTTP://LOCALHOST:15672": 200,
    "http://localhost": 403,
    "http://evil.example": 403,
    "http://evil.example?localhost:15672": 403,
    "localhost:15672": 403,
    "null": 403,
    "": 403,
}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_pages_of_other_sites_may_not_ask(desk: Desk, origin: str, method: str) -> None:
    path = "/api/leveret/reload" if method == "POST" else "/api/leveret/status"
    status = ORIGINS[origin]
    assert desk.ask(path, method, Origin=origin).status == (
        204 if (method, status) == ("OPTIONS", 200) else status
    )


def test_the_null_origin_is_not_a_host_without_name(desk: Desk) -> None:
    assert desk.ask("/api/leveret/health", Origin="null", Host="").status == 403


FETCHES = {
    ("GET", "none", "navigate"): 200,  # typed by the user
    ("GET", "same-origin", "cors"): 200,
    ("GET", "cross-site", "navigate"): 200,  # a link
    ("GET", "cross-site", "no-cors"): 403,  # an image
    ("GET", "same-site", "cors"): 403,
    ("POST", "same-origin", "cors"): 200,
    ("POST", "cross-site", "navigate"): 403,  # a form
    ("POST", "cross-site", "no-cors"): 403,
    ("POST", "same-site", "no-cors"): 403,
    ("DELETE", "cross-site", "cors"): 403,
}


@pytest.mark.parametrize(("method", "site", "mode"), FETCHES)
def test_pages_of_other_sites_that_hide_their_origin_may_not_ask(
    desk: Desk, method: str, site: str, mode: str
) -> None:
    path = "/api/leveret/status" if method == "GET" else "/api/leveret/reload"
    response = desk.ask(path, method, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode)
    assert response.status == FETCHES[method, site, mode]


# Methods and paths.


def test_head_is_get_without_the_body(desk: Desk) -> None:
    head, get = desk.ask("/api/leveret/status", "HEAD"), desk.ask("/api/leveret/status")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(get.body))


def test_options_tells_the_methods_and_nothing_to_other_sites(desk: Desk) -> None:
    response = desk.ask("/api/leveret/status", "OPTIONS", user=None)
    assert (response.status, response.headers["Allow"]) == (204, "GET, HEAD, OPTIONS")
    assert not any(name.lower().startswith("access-control") for name in response.headers)
    assert desk.ask("*", "OPTIONS", user=None).status == 204
    assert desk.ask("/none", "OPTIONS", user=None).status == 404


def test_a_wrong_method_is_told_the_right_ones(desk: Desk) -> None:
    response = desk.ask("/api/leveret/reload")
    assert (response.status, response.headers["Allow"]) == (405, "OPTIONS, POST")
    assert response.reason == "'/api/leveret/reload' takes OPTIONS, POST, not GET"
    assert desk.ask("/api/leveret/status", "BREW").status == 405


def test_there_is_nothing_elsewhere(desk: Desk) -> None:
    for path in ("/x", "/api/leveret", "/api/leveret/status//", "///", "/api/leveret/status/.."):
        assert desk.ask(path).status == 404


def one_queue(asked: Request) -> Json:
    return dict(asked.arguments)


def test_a_path_may_have_names_in_it() -> None:
    route = Route("GET", "/queues/{vhost}/{name}", Level.ANYBODY, one_queue)
    delete = Route("DELETE", "/queues/{vhost}/{name}", Level.ANYBODY, one_queue)
    tree = RouteTree([delete, route])
    assert find("GET", "/queues/%2F/a%20b", tree) == (route, {"vhost": "/", "name": "a b"})
    assert find("DELETE", "/queues/%2F/b", tree)[0] is delete
    assert allowed([route, delete]) == "DELETE, GET, HEAD, OPTIONS"
    with pytest.raises(Refused, match="nothing at"):
        find("GET", "/queues/a", RouteTree([route]))


def test_whoever_is_refused_writes_no_long_line_into_the_log(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.ask("/api/leveret/status", user=f"{'x' * 3000}:y")
    [line] = [each.getMessage() for each in caplog.records if "login refused" in each.getMessage()]
    assert "x" * 255 in line
    assert len(line) < 500


def test_responses_are_dated_and_kept_by_nobody(desk: Desk) -> None:
    headers = desk.ask("/", user=None).headers
    assert headers["Date"] == "Sun, 09 Sep 2001 01:46:40 GMT"
    assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("path", ["/", "/nowhere", "/api/leveret/health", "/api/queues", "/ui/nothing.js"])
def test_no_answer_may_load_or_be_framed_by_anything_even_if_a_browser_shows_it(
    desk: Desk, path: str
) -> None:
    policy = desk.ask(path, user=None).headers["Content-Security-Policy"]
    assert policy == "default-src 'none'; frame-ancestors 'none'"


# What routes answer.


def test_the_index_lists_the_routes(desk: Desk) -> None:
    routes = desk.ask("/", user=None).content["routes"]
    assert isinstance(routes, list)
    assert {"method": "POST", "path": "/api/leveret/reload", "for": "administrator"} in routes


def test_the_node_is_asked(desk: Desk) -> None:
    assert desk.ask("/api/leveret/health").content == {"status": "ok"}
    assert desk.ask("/api/leveret/status").content == {"name": "leveret"}
    assert desk.ask("/api/leveret/plugins").content == {"exchange_types": []}
    assert desk.ask("/api/leveret/reload", "POST").content == {
        "changed": ["log.level"],
        "needs_restart": ["listeners"],
        "refused": [],
    }
    assert desk.ask("/api/leveret/plugins/reload", "POST").content == {
        "loaded": ["x-a"],
        "refused": [{"name": "b.py", "traceback": "why"}],
    }


def test_a_configuration_that_cannot_be_used_is_a_conflict(desk: Desk) -> None:
    desk.node.reloaded = Reloaded(problems=("log.level: found 1",))
    response = desk.ask("/api/leveret/reload", "POST")
    assert (response.status, response.content["problems"]) == (409, ["log.level: found 1"])
    assert response.reason == "the configuration cannot be used; nothing was changed"


def test_a_broker_without_a_node_says_so(desk: Desk) -> None:
    desk.broker.operations = None
    assert desk.ask("/api/leveret/status").status == 503


def test_a_mistake_of_ours_is_logged_and_told_as_one(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Mapping[str, Json]:
        raise RuntimeError("a secret")

    desk.node.status = broken  # type: ignore[method-assign]
    response = desk.ask("/api/leveret/status")
    assert (response.status, response.headers["Connection"]) == (500, "close")
    assert "secret" not in response.body.decode()
    assert "a secret" in caplog.text


def test_an_explanation_takes_headers_written_as_in_the_configuration(desk: Desk) -> None:
    host = desk.broker.virtual_host("/")
    host.bind(
        host.exchange("amq.match"), host.declare_queue("q"), "", {"n": 2, "t": "x=y", "d": "2020-01-01"}
    )
    response = desk.ask(
        "/api/leveret/explain?exchange=amq.match&key=a%20b&header=n=2&header=t=x%3Dy&header=d=2020-01-01"
    )
    assert response.content["queues"] == ["q"]
    assert response.content["keys"] == ["a b"]
    assert desk.ask("/api/leveret/explain?exchange=amq.match&header=n=%222%22").content["routed"] is False
    assert desk.ask('/api/leveret/explain?key=p&header=CC=["q"]').content["queues"] == ["q"]


def test_an_explanation_checks_a_user(desk: Desk) -> None:
    told = desk.ask("/api/leveret/explain?exchange=amq.direct&user=keyless").content
    refusal = "write access to exchange 'amq.direct' in vhost '/' refused for user 'keyless'"
    assert told["permission"] == {"user": "keyless", "allowed": False, "reason": refusal}


EXPLAIN_REFUSED = {
    "exchange=none": (404, "no exchange 'none' in vhost '/'"),
    "vhost=none": (404, "vhost none not found"),
    "user=nobody": (404, "no user 'nobody'"),
    "user=": (404, "no user ''"),
    "header=x": (400, "header 'x' is not NAME=VALUE"),
    "header==x": (400, "header '=x' is not NAME=VALUE"),
    "header=CC=x": (400, "invalid message: unacceptable type 'longstr' in header 'CC', expected an array"),
    "key=a&key=b": (400, "parameter 'key' is given 2 times"),
    "exchang=a": (
        400,
        "unknown parameter 'exchang'; known are vhost, exchange, key, header, user, protocol, address",
    ),
    "protocol=none&address=a": (400, "protocol 'none' has no addresses of its own; words has"),
    "address=a": (400, "protocol '' has no addresses of its own; words has"),
    "protocol=words&address=a&key=b": (400, "an address stands for exchange and key: name it, or these"),
    "protocol=words&address=a": (400, "the address: 'a' is not two words"),
    "key&" * 1001: (400, "there are more than 1000 parameters"),
}


@pytest.mark.parametrize("query", EXPLAIN_REFUSED, ids=lambda query: query[:20])
def test_what_cannot_be_explained_is_refused_in_words(desk: Desk, query: str) -> None:
    desk.broker.addresses = {"words": words}
    assert desk.ask(f"/api/leveret/explain?{query}").refusal == EXPLAIN_REFUSED[query]


def words(address: str) -> tuple[str, str]:
    """Two words are an exchange and a key in a protocol that there is not."""
    exchange, _, key = address.partition(" ")
    if not key:
        raise ValueError(f"'{address}' is not two words")
    return exchange, key


def test_an_explanation_takes_the_address_of_a_protocol(desk: Desk) -> None:
    desk.broker.addresses = {"words": words}
    told = desk.ask("/api/leveret/explain?protocol=words&address=amq.topic%20a.b").content
    assert (told["steps"][0]["exchange"], told["keys"]) == ("amq.topic", ["a.b"])


# The connection.


def test_pipelined_requests_each_bring_their_credentials(desk: Desk) -> None:
    connection = desk.connect()
    head = b"GET /api/leveret/status HTTP/1.1\r\nHost: localhost\r\n"
    authorization = f"Authorization: {basic('administrator:sesame')}\r\n".encode()
    connection.receive(head + authorization + b"\r\n" + head + b"\r\n", 0.0)
    sent = b"".join(connection.outbox.take())
    assert re.findall(rb"HTTP/1.1 (\d+)", sent) == [b"200", b"401"]


def test_a_peer_that_reads_nothing_is_let_go(desk: Desk) -> None:
    connection = desk.connect()
    connection.outbox.limit = 1000
    connection.receive(b"GET /api/leveret/health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100, 0.0)
    assert connection.closed
    assert connection.outbox.size < 5000


def test_an_idle_connection_ends(desk: Desk) -> None:
    connection = desk.connect()
    connection.receive(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1.0)
    assert connection.deadline() == 61.0
    connection.on_deadline(61.0)
    assert connection.closed


def test_at_shutdown_it_ends_without_a_word(desk: Desk) -> None:
    connection = desk.connect()
    connection.shut_down("shutdown")
    assert connection.closed
    assert connection.outbox.size == 0
    connection.lost()


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", 200),
        ("", 200),
        ("text/html, application/json;q=0.5", 200),
        ("Application/*", 200),
        ("text/html", 406),
        ("application/xml, text/plain", 406),
    ],
)
def test_rabbitmqs_api_has_json_only(desk: Desk, accept: str, status: int) -> None:
    response = desk.ask("/api/whoami", Accept=accept)
    assert response.status == status
    assert status == 200 or response.content["error"] == "not_acceptable"
