"""Who may ask for what: each route of the API refuses those without its tags, before anything else is looked at."""

from __future__ import annotations

import pytest

from leveret.protocols.http.management import ROUTES
from leveret.protocols.http.server.replies import LEVELS, is_rabbitmqs
from leveret.protocols.http.server.request import Level, Route
from tests.http.management.office import Office

TAGS = {
    "boss": "administrator",
    "maker": "policymaker",
    "watcher": "monitoring",
    "clerk": "management",
    "plain": "",
}
OTHERS = {Level.ANYBODY, Level.USER}
CHANGES = ("PUT", "POST", "DELETE")
BY_PERMISSION = (  # their permissions in the virtual host decide, as over AMQP
    "/api/queues/",
    "/api/exchanges/",
    "/api/bindings/",
    "/api/connections/",
    "/api/leveret/queues/",
    "/api/leveret/channels/",
    "/api/leveret/{what}/",
)
MADE_BY_POLICYMAKERS = ("/api/policies/", "/api/global-parameters/")


@pytest.fixture(scope="module")
def office() -> Office:
    return Office()


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.level not in OTHERS],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_a_route_refuses_those_without_its_tags(office: Office, route: Route) -> None:
    for user, tag in TAGS.items():
        if tag not in route.level.value:
            response = office.ask(route.method, route.path, user=user)
            if is_rabbitmqs(route.path):
                expected = 401, "not_authorised", LEVELS[route.level]
                assert (response.status, response.content["error"], response.reason) == expected
            else:
                assert response.status == 403


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.method in CHANGES],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_what_has_no_permissions_of_its_own_is_changed_by_administrators(route: Route) -> None:
    if route.path.startswith(MADE_BY_POLICYMAKERS):
        assert route.level is Level.POLICYMAKER
    elif not (route.path + "/").startswith(BY_PERMISSION):
        assert route.level is Level.ADMINISTRATOR
    else:
        assert route.level is Level.MANAGEMENT


def test_only_the_question_how_to_log_in_is_for_anybody() -> None:
    assert [route.path for route in ROUTES if route.level in OTHERS] == [
        "/api/auth",
        "/api/health/checks/is-owner",
    ]
