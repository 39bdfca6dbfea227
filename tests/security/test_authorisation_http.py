"""Every route of the HTTP endpoint, for every tag, with and without each permission: what is not listed is refused.

The table is in http_routes.py; a route without a row fails here. What is refused has not happened.
"""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from leveret.protocols.http.server.routes import ROUTES
from tests.http.press import rows

from .counter import SECRET, Counter, asked, let_in, octets_of
from .http_routes import ROWS
from .listing_routes import OTHERS
from .rows import PERMISSIONS, SUFFICES, TAGS, Need, Row

REFUSALS: Final = (401, 403)
ALL: Final = dict.fromkeys(PERMISSIONS, ".*")
ROUTED: Final = ROWS
GUARDED: Final = {name: row for name, row in ROUTED.items() if row.least != "anybody"}


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    assert {f"{route.method} {route.path}" for route in ROUTES} == set(ROWS)


# Where everything has been refused so far, and its state, by what the user may do: it is as it was made.
unchanged: Final[dict[tuple[str, ...], tuple[Counter, object]]] = {}


def refused_with(
    tag: str, given: dict[str, str], name: str, row: Row, credentials: str | None = f"u:{SECRET}"
) -> int:
    """Return the status of the answer, and 0 where a request was not refused, or has changed something."""
    kind = (tag, *itertools.chain(*sorted(given.items())))
    if kind not in unchanged:
        counter = Counter(tag, **given)
        unchanged[kind] = counter, counter.state()
    counter, before = unchanged.pop(kind)
    status = asked(counter, name, row, credentials).status
    if status not in (*REFUSALS, row.refused) or counter.state() != before:
        return 0
    unchanged[kind] = counter, before
    return status


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(("name", "row"), ROUTED.items(), ids=ROUTED)
def test_a_route_is_for_those_with_a_tag_that_suffices(name: str, row: Row, tag: str) -> None:
    if tag in SUFFICES[row.least]:
        status = asked(Counter(tag, **ALL), name, row).status
        assert let_in(status, row), status
    else:
        assert refused_with(tag, ALL, name, row)


@pytest.mark.parametrize("credentials", [None, "u:wrong", f"stranger:{SECRET}", "u:"])
@pytest.mark.parametrize(("name", "row"), GUARDED.items(), ids=GUARDED)
def test_nobody_gets_in_without_a_name_and_its_password(name: str, row: Row, credentials: str | None) -> None:
    assert refused_with("administrator", ALL, name, row, credentials) == 401


IN_A_HOST: Final = {name: row for name, row in GUARDED.items() if row.host}


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(("name", "row"), IN_A_HOST.items(), ids=IN_A_HOST)
def test_a_virtual_host_is_for_those_who_have_a_permission_in_it(name: str, row: Row, tag: str) -> None:
    if row.host == "nobody" or tag not in SUFFICES[row.host] or row.needs:
        assert refused_with(tag, {}, name, row)
    else:
        assert let_in(asked(Counter(tag), name, row).status, row)


NEEDS: Final = [
    pytest.param(name, row, need, id=f"{name}: {' '.join(need)}")
    for name, row in GUARDED.items()
    if not row.any_will_do
    for need in row.needs
]
WITH_NEEDS: Final = {name: row for name, row in GUARDED.items() if row.host}


@pytest.mark.parametrize(("name", "row", "need"), NEEDS)
def test_each_need_is_a_need(name: str, row: Row, need: Need) -> None:
    """Even of administrators."""
    permission, thing = need
    given = {each: f"^(?!{thing}$)" if each == permission else ".*" for each in PERMISSIONS}
    assert refused_with("administrator", given, name, row)


@pytest.mark.parametrize(("name", "row"), WITH_NEEDS.items(), ids=WITH_NEEDS)
def test_there_are_no_other_needs(name: str, row: Row) -> None:
    tag = TAGS[0] if row.least == "user" else row.least
    for needs in [[need] for need in row.needs] if row.any_will_do else [row.needs]:
        given = {
            each: f"^({'|'.join(thing for permission, thing in needs if permission == each) or 'nothing'})$"
            for each in PERMISSIONS
        }
        status = asked(Counter(tag, **given), name, row).status
        assert let_in(status, row), status


# Connections are their users'.

SEEING: Final = (
    f"/api/connections/{OTHERS}",
    f"/api/connections/{OTHERS}/channels",
    f"/api/channels/{OTHERS}%20%281%29",
    "/api/connections/username/bob",
)


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("target", SEEING)
def test_others_connections_are_for_those_who_monitor(target: str, tag: str) -> None:
    response = Counter(tag, **ALL).ask("GET", target)
    shown = b'"bob"' in response.body
    assert shown == (tag in SUFFICES["monitoring"]), response.body


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("path", ["/api/connections", "/api/channels", "/api/vhosts/%2F/connections"])
def test_a_list_has_what_its_reader_may_see_and_nothing_else(path: str, tag: str) -> None:
    body = Counter(tag, **ALL).ask("GET", path).body
    assert (b'"u"' in body, b'"bob"' in body) == (
        tag in SUFFICES["management"],
        tag in SUFFICES["monitoring"],
    )


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("target", SEEING[::3])
def test_others_connections_are_ended_by_administrators(target: str, tag: str) -> None:
    counter = Counter(tag, **ALL)
    counter.ask("DELETE", target)
    assert counter.node.told == (["end the connection of bob"] if tag == "administrator" else [])


ABROAD: Final = ("/api/queues", "/api/exchanges", "/api/bindings", "/api/vhosts", "/api/policies")


@pytest.mark.parametrize("tag", TAGS[1:])
@pytest.mark.parametrize("path", ABROAD)
def test_lists_leave_out_virtual_hosts_that_one_may_not_enter(path: str, tag: str) -> None:
    counter = Counter(tag, **ALL)
    blue = counter.broker.virtual_host("blue")
    blue.bind(blue.exchange("amq.direct"), blue.declare_queue("azure"), "k", {})
    body = counter.ask("GET", path).body
    assert (b'"blue"' in body) == (tag in SUFFICES["monitoring"] and path != "/api/policies")


# Topics.

TO_T: Final = "/api/bindings/%2F/e/t"
LETTER: Final = {"properties": {}, "routing_key": "no", "payload": "p", "payload_encoding": "string"}
TOPICS: Final = {
    "publish": ("POST", "/api/exchanges/%2F/t/publish", LETTER),
    "publish a batch": ("POST", "/api/leveret/publish/%2F", None),
    "stage a batch": ("POST", "/api/leveret/staging/%2F/job/1/0/0?piece=0", None),
    "bind a queue": ("POST", f"{TO_T}/q/q", {"routing_key": "no"}),
    "bind an exchange": ("POST", f"{TO_T}/e/y", {"routing_key": "no"}),
    "unbind a queue": ("DELETE", f"{TO_T}/q/q/no", None),
    "unbind an exchange": ("DELETE", f"{TO_T}/e/y/no", None),
}


@pytest.mark.parametrize("is_guarded", [True, False])
@pytest.mark.parametrize(("method", "target", "body"), TOPICS.values(), ids=TOPICS)
def test_s088_a_topic_that_is_not_allowed_over_http(
    method: str, target: str, body: object, is_guarded: bool
) -> None:
    """Even for administrators."""
    counter = Counter("administrator", **ALL)
    host = counter.host
    source = host.declare_exchange("t", "topic")
    for destination in (host.queues["q"], host.exchange("y")):
        host.bind(source, destination, "no", {})
    if is_guarded:
        counter.broker.access.set_topic_permissions("u", "/", "t", "^yes$", "^yes$")
    before = counter.state()
    octets = rows("no", b"m", exchange="t") if body is None and method == "POST" else octets_of(body)
    status = counter.ask(method, target, octets).status
    if is_guarded:
        assert status in (*REFUSALS, 400)
        assert counter.state() == before
    else:
        assert status < 300
