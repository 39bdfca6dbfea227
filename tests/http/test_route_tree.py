"""Finding routes by segments: the same as looking at each, however many there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.protocols.http.server.route_tree import SEGMENTS_MAX, RouteTree
from leveret.protocols.http.server.routes import ROUTES, find


def nothing(asked: Request) -> None:
    return None


def route(path: str, method: str = "GET") -> Route:
    return Route(method, path, Level.ANYBODY, nothing)


def test_what_is_said_goes_before_what_may_be_anything() -> None:
    user, without = route("/users/{name}"), route("/users/without")
    tree = RouteTree([user, without])
    assert list(tree.of("/users/without")) == [(without, {}), (user, {"name": "without"})]
    assert list(tree.of("/users/x%2Fy%20z")) == [(user, {"name": "x/y z"})]


def test_a_way_that_does_not_lead_on_is_left() -> None:
    deep, other = route("/a/{x}/c"), route("/a/b/d")
    assert list(RouteTree([deep, other]).of("/a/b/c")) == [(deep, {"x": "b"})]


@pytest.mark.parametrize("path", ["", "/", "/a", "/a/", "//", "/a/b/c", "/A", "a", "/" * 100_000])
def test_there_is_nothing_elsewhere(path: str) -> None:
    assert list(RouteTree([route("/a/b"), route("/{x}/y")]).of(path)) == []


def test_nothing_at_the_end_is_no_name() -> None:
    queues, queue = route("/queues/{host}"), route("/queues/{host}/{name}", "PUT")
    tree = RouteTree([queues, queue])
    assert find("GET", "/queues/%2F/", tree) == (queues, {"host": "/"})
    with pytest.raises(Refused) as refused:
        find("PUT", "/queues/%2F/", tree)
    assert refused.value.status == 405


def test_no_route_is_longer_than_what_is_looked_at() -> None:
    assert max(each.path.count("/") for each in ROUTES) < SEGMENTS_MAX


SEGMENTS = st.sampled_from(["a", "b", "{x}", ""])
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


@given(st.lists(PATHS, max_size=12, unique=True), PATHS.filter(lambda path: "{" not in path))
def test_it_finds_what_looking_at_each_would(paths: list[str], asked: str) -> None:
    routes = [route(path) for path in paths]

    def fits(each: Route) -> bool:
        wanted, given = each.path.split("/"), asked.split("/")
        pairs = zip(wanted, given, strict=False)
        named = given[-1] or wanted[-1] != "{x}"
        return bool(named) and len(wanted) == len(given) and all(w in ("{x}", g) for w, g in pairs)

    found = [each.path for each, _ in RouteTree(routes).of(asked)]
    assert sorted(found) == sorted(each.path for each in routes if fits(each))
