"""Federation over HTTP: upstreams and sets as parameters, links as RabbitMQ tells them, and a link that begins anew."""

from __future__ import annotations

import json

import pytest

from tests.features.federation.region import Region
from tests.harness.http import Line

UPSTREAM = {"uri": "amqp:///up", "max-hops": 2}
LINKS = "/api/federation-links"


@pytest.fixture
def region() -> Region:
    region = Region()
    region.host.declare_exchange("f", "fanout", durable=True)
    return region


def ask(region: Region, method: str, path: str, content: object = None):  # type: ignore[no-untyped-def]
    body = None if content is None else json.dumps(content).encode()
    line = Line(region.broker, region.bench.config, advance=lambda: region.run(0.01))
    return line.send(method, path, body, login="guest:guest").response


def test_upstreams_and_sets_are_parameters_and_links_are_listed(region: Region) -> None:
    parameter = "/api/parameters/federation-upstream/%2F/u"
    assert ask(region, "GET", LINKS).json == []
    assert ask(region, "PUT", parameter, {"value": UPSTREAM}).status == 201
    assert ask(region, "PUT", parameter, {"value": UPSTREAM}).status == 204
    members = {"value": [{"upstream": "u"}]}
    assert ask(region, "PUT", "/api/parameters/federation-upstream-set/%2F/s", members).status == 201
    assert ask(region, "GET", parameter).json["value"] == UPSTREAM
    wrong = ask(region, "PUT", parameter, {"value": {"uri": "amqp:///up", "max_hops": 2}})
    assert wrong.status == 400
    assert "did you mean 'max-hops'?" in str(wrong.json)
    policy = {"pattern": "^f", "definition": {"federation-upstream-set": "s"}}
    assert ask(region, "PUT", "/api/policies/%2F/p", policy).status == 201
    region.run()
    (link,) = ask(region, "GET", LINKS).json
    assert {name: link[name] for name in ("type", "exchange", "upstream_exchange", "upstream", "status")} == {
        "type": "exchange",
        "exchange": "f",
        "upstream_exchange": "f",
        "upstream": "u",
        "status": "running",
    }
    assert ask(region, "GET", f"{LINKS}/%2F").json == [link]
    assert ask(region, "GET", f"{LINKS}/up").json == []
    assert ask(region, "GET", f"{LINKS}/state/down").json == []
    assert ask(region, "DELETE", f"{LINKS}/vhost/%2F/{link['id']}/{link['node']}/restart").status == 204
    assert ask(region, "DELETE", f"{LINKS}/vhost/%2F/ffff/{link['node']}/restart").status == 404
    region.run()
    assert region.link.state == "running"
    assert ask(region, "DELETE", parameter).status == 204
    region.run()
    assert ask(region, "GET", LINKS).json == []


def test_a_link_that_is_down_says_why(region: Region) -> None:
    region.uri = "amqp://guest:secret@nowhere"
    region.upstream("u")
    region.federate(federation_upstream="u")
    (link,) = ask(region, "GET", f"{LINKS}/%2F/state/down").json
    assert (link["status"], link["uri"]) == ("error", "amqp://guest:***@nowhere")
    assert "this node connects to no other broker with the protocol amqp091" in link["error"]


def test_definitions_take_upstreams_along(region: Region) -> None:
    region.upstream("u", max_hops=2)
    definitions = ask(region, "GET", "/api/definitions").json
    other = Region()
    assert ask(other, "POST", "/api/definitions", definitions).status == 204
    assert other.federation.upstreams.names("/") == ["u"]
