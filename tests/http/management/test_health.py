"""Health checks and the other small questions: what is well, what is not, and why."""

from __future__ import annotations

import attrs
import pytest

from leveret.config.config import parse
from leveret.limits import NodeLimits
from leveret.operations import Listening
from leveret.values import Json
from tests.http.management.office import CONFIG, Office, told

CHECKS = "/api/health/checks"
DAY_S = 86_400
OK = {"status": "ok"}


def listening(office: Office, *listeners: Listening) -> None:
    office.node.listeners = lambda: list(listeners)  # type: ignore[method-assign]


def check(office: Office, path: str) -> tuple[int, dict[str, Json]]:
    response = office.ask("GET", f"{CHECKS}/{path}", user="clerk")
    return response.status, response.json


@pytest.mark.parametrize("path", ["alarms", "local-alarms", "ready-to-serve-clients"])
def test_an_alarm_is_not_healthy(office: Office, path: str) -> None:
    assert check(office, path)[0] == 200
    office.broker.alarms.set("low on disk")
    status, content = check(office, path)
    assert (status, content["status"]) == (503, "failed")
    assert content["alarms"] == [{"node": "leveret", "resource": "low on disk"}]


def test_a_port_is_listened_on_or_not(office: Office) -> None:
    assert check(office, "port-listener/5672") == (200, {"status": "ok", "port": 5672})
    assert check(office, "port-listener/1") == (
        503,
        {"status": "failed", "reason": "No active listener", "missing": 1, "ports": [5672]},
    )
    for port in ("x", "-1", "65536", "9" * 30):
        assert check(office, f"port-listener/{port}")[0] == 400


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("amqp", "amqp"),
        ("amqp091", "amqp"),
        ("amqp0-9-1", "amqp"),
        ("AMQP", "amqp"),
        ("amqp1.0", "amqp10"),
        ("https", "https"),
        ("amqps", None),
        ("amqp0-10", None),
        ("http", None),
        ("mqtt", None),
    ],
)
def test_a_protocol_is_listened_for_or_not(office: Office, name: str, found: str | None) -> None:
    listening(
        office, Listening("::", 5672, ("amqp091", "amqp10"), False), Listening("::", 15671, ("http",), True)
    )
    status, content = check(office, f"protocol-listener/{name}")
    if found is None:
        expected = {"status": "failed", "reason": "No active listener", "missing": name}
        assert (status, content) == (503, {**expected, "protocols": ["amqp", "amqp10", "https"]})
    else:
        assert (status, content) == (200, {"status": "ok", "protocol": found})


def test_amqp_over_tls_is_another_protocol(office: Office) -> None:
    listening(office, Listening("::", 5671, ("amqp091",), True))
    assert check(office, "protocol-listener/amqps") == (200, {"status": "ok", "protocol": "amqp/ssl"})
    assert check(office, "protocol-listener/amqp")[0] == 503


def test_amqp_with_or_without_tls_is_both(office: Office) -> None:
    listening(office, Listening("::", 5672, ("amqp091",), True, tls_optional=True))
    for asked, found in (("amqp", "amqp"), ("amqps", "amqp/ssl")):
        assert check(office, f"protocol-listener/{asked}") == (200, {"status": "ok", "protocol": found})


def test_certificates_end_within_a_time(office: Office) -> None:
    now = office.broker.clock.wall()
    listening(
        office,
        Listening("::", 5671, ("amqp091",), True, now + 20 * DAY_S),
        Listening("::", 5672, ("amqp091",), False),
    )
    assert check(office, "certificate-expiration/2/weeks") == (200, OK)
    status, content = check(office, "certificate-expiration/1/months")
    assert (status, content["reason"]) == (503, "Certificates expiring")
    assert content["expired"] == [{"node": "leveret", "interface": "::", "port": 5671}]
    assert check(office, "certificate-expiration/1/moons")[0] == 400
    assert check(office, "certificate-expiration/x/days")[0] == 400


def test_a_node_that_takes_no_more_connections_says_so(office: Office) -> None:
    path = "below-node-connection-limit"
    assert check(office, path) == (200, {"status": "ok", "connections": 0, "limit": None})
    office.broker.node_limits = NodeLimits(max_connections=0)
    assert check(office, path)[0] == check(office, "ready-to-serve-clients")[0] == 503


@pytest.mark.parametrize("path", ["virtual-hosts", "is-in-service"])
def test_what_is_always_well_here(office: Office, path: str) -> None:
    assert check(office, path) == (200, OK)


@pytest.mark.parametrize("path", ["node-is-mirror-sync-critical", "node-is-quorum-critical"])
def test_no_other_node_needs_this_one(office: Office, path: str) -> None:
    assert check(office, path) == (200, {"status": "ok", "reason": "single node cluster"})


def test_the_older_check_of_a_node_answers_200_in_either_case(office: Office) -> None:
    for path in ("/api/healthchecks/node", "/api/healthchecks/node/leveret"):
        assert office.get(path) == OK
    assert office.ask("GET", "/api/healthchecks/node/other").status == 404
    office.broker.alarms.reason = "low on memory"
    assert office.get("/api/healthchecks/node") == {
        "status": "failed",
        "reason": "alarms in effect: low on memory",
    }


def test_a_message_goes_through_a_queue(office: Office) -> None:
    for _ in range(2):
        assert office.get("/api/aliveness-test/%2F") == OK
    assert office.host.queue("aliveness-test").ready == 0
    assert office.ask("GET", "/api/aliveness-test/%2F", user="clerk").status == 401
    assert office.ask("GET", "/api/aliveness-test/closed").status == 401


def test_who_asks(office: Office) -> None:
    assert office.get("/api/whoami", "maker") == {"name": "maker", "tags": ["policymaker"]}
    assert told(office.ask("GET", "/api/whoami", user="plain")) == (401, "Not management user")
    wrong = office.ask("GET", "/api/whoami", user="nobody")
    assert (told(wrong), wrong.content["error"]) == ((401, "Login failed"), "not_authorized")
    assert "Basic" in wrong.headers["WWW-Authenticate"]


def test_small_questions_of_tools(office: Office) -> None:
    assert office.get("/api/extensions") == []
    assert office.post("/api/rebalance/queues").status == 204


def with_profile(profile: str) -> Office:
    rows = parse(f'compat.profile = "{profile}"\n').compat
    return Office(config=attrs.evolve(CONFIG, compat=rows))


def flags(office: Office) -> dict[str, str]:
    found = office.get("/api/feature-flags")
    assert all(flag["state"] == "enabled" for flag in found)
    return {flag["name"]: flag["stability"] for flag in found}


@pytest.mark.parametrize(
    ("profile", "newest", "missing"),
    [
        ("default", "rabbitmq_4.4.0", None),
        ("rabbitmq-3.13", "message_containers", "rabbitmq_4.0.0"),
        ("rabbitmq-4.0", "rabbitmq_4.0.0", "rabbitmq_4.1.0"),
        ("rabbitmq-4.3", "rabbitmq_4.3.0", "rabbitmq_4.4.0"),
    ],
)
def test_feature_flags_are_those_of_the_release(profile: str, newest: str, missing: str | None) -> None:
    office = with_profile(profile)
    found = flags(office)
    assert (found[newest], found["quorum_queue"]) == ("stable", "required")
    assert missing not in found
    for name in (newest, "all"):
        assert office.put(f"/api/feature-flags/{name}/enable").status == 204
    assert office.put(f"/api/feature-flags/{missing or 'none'}/enable").status == 404


def deprecated(office: Office, path: str = "") -> dict[str, tuple[str, str]]:
    found = office.get(f"/api/deprecated-features{path}")
    return {each["name"]: (each["deprecation_phase"], each["state"]) for each in found}


def test_deprecated_features_have_the_phase_of_the_release() -> None:
    before, after = deprecated(with_profile("rabbitmq-4.2")), deprecated(with_profile("rabbitmq-4.3"))
    for name in ("amqp_address_v1", "global_qos", "transient_nonexcl_queues"):
        assert before[name] == ("permitted_by_default", "permitted")
        assert after[name] == ("denied_by_default", "denied")
    assert (before["ram_node_type"][0], after["ram_node_type"][0]) == ("permitted_by_default", "removed")
    assert before["classic_queue_mirroring"] == ("removed", "denied")
    assert "amqp_address_v1" not in deprecated(with_profile("rabbitmq-3.13"))


def test_a_row_permits_what_is_denied_by_default_and_its_use_is_found() -> None:
    office = Office()
    assert deprecated(office)["transient_nonexcl_queues"] == ("denied_by_default", "permitted")
    assert deprecated(office, "/used") == {}
    office.host.declare_queue("mine", exclusive=True)
    office.host.declare_queue("kept", durable=True)
    assert deprecated(office, "/used") == {}
    office.host.declare_queue("fleeting")
    assert list(deprecated(office, "/used")) == ["transient_nonexcl_queues"]


def test_what_is_not_there_is_said_in_rabbitmqs_words(office: Office) -> None:
    response = office.ask("GET", "/api/none")
    assert (response.status, response.content) == (404, {"error": "Object Not Found", "reason": "Not Found"})
    wrong = office.ask("PATCH", "/api/vhosts/%2F")
    assert (wrong.status, wrong.content["error"]) == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "DELETE, GET, HEAD, OPTIONS, PUT"
