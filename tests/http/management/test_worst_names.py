"""Names that are no UTF-8, or have line breaks: refused where clients give them, and harmless where they are kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.http.management import (
    bindings,
    channels,
    connections,
    consumers,
    deduplication,
    definitions,
    delayed,
    exchanges,
    federation,
    health,
    limits,
    nodes,
    overview,
    parameters,
    permissions,
    policies,
    queues,
    recordings,
    shovels,
    users,
    vhosts,
    whoami,
)
from tests.amqp091.peer import Peer, opened
from tests.harness.bench import ClientBench
from tests.harness.peer import LOOPBACK

from .lobby import Lobby
from .office import Office

KEPT = '[compat]\nnames = "any"\n'
BAD = b"\xff\xfe\n".decode("utf-8", "surrogateescape")
MODULES = (
    *(
        bindings,
        channels,
        connections,
        consumers,
        deduplication,
        definitions,
        delayed,
        exchanges,
        federation,
        health,
    ),
    *(
        limits,
        nodes,
        overview,
        parameters,
        permissions,
        policies,
        queues,
        recordings,
        shovels,
        users,
        vhosts,
        whoami,
    ),
)
LISTS = sorted(
    {
        route.path.replace("{vhost}", "%2F")
        for module in MODULES
        for route in module.ROUTES
        if route.method == "GET" and "{" not in route.path.replace("{vhost}", "")
    }
)


def test_s042_names_that_are_no_text_are_refused() -> None:
    for name in ("\udcff\udcfe", "a\udc80"):
        for kind, method in (("exchange", m.ExchangeDeclare(name)), ("queue", m.QueueDeclare(name))):
            text = opened().refused(method)
            assert text.startswith(f"406 PRECONDITION_FAILED - the name of {kind} ")
            assert text.endswith(" is not UTF-8 without line breaks")


def test_a_name_with_line_breaks_is_refused_over_http(office: Office) -> None:
    for kind, content in (("queues", {}), ("exchanges", {"type": "fanout"})):
        answer = office.put(f"/api/{kind}/%2F/a%0Ab", content)
        assert answer.status == 400
        assert "is not UTF-8 without line breaks" in answer.json["reason"]
    answer = office.post("/api/definitions", {"queues": [{"name": "a\nb", "vhost": "/"}]})
    assert "is not UTF-8 without line breaks" in answer.json["reason"]


@pytest.mark.parametrize("profile", ["rabbitmq-3.13", "rabbitmq-4.0", "rabbitmq-4.3", "rabbitmq-4"])
def test_the_profiles_of_rabbitmq_keep_them(profile: str) -> None:
    bench = ClientBench(f'[compat]\nprofile = "{profile}"\n')
    channel = Peer(bench, LOOPBACK).open().channel()
    assert channel.declare("\udcff\udcfe", durable=True).queue == "\udcff\udcfe"


@pytest.fixture
def lobby() -> Lobby:
    """A broker that keeps such names, with one in every field that a client chooses."""
    lobby = Lobby(KEPT)
    peer = Peer(lobby, LOOPBACK).open(properties={"connection_name": BAD, "product": BAD, BAD: {BAD: [BAD]}})
    channel = peer.channel()
    name = BAD.removesuffix("\n")
    channel.declare(name, durable=True, arguments={BAD: BAD, "x-dead-letter-exchange": name})
    channel.does(
        m.ExchangeDeclare(name, "headers", durable=True, arguments={"alternate-exchange": name, BAD: [BAD]})
    )
    channel.does(m.QueueBind(name, name, BAD, arguments={BAD: BAD}))
    channel.does(m.QueueBind(name, "amq.topic", BAD))
    channel.does(m.BasicConsume(name, BAD, arguments={BAD: BAD}))
    channel.publish("", name, b"x", BasicProperties(message_id=BAD, headers={BAD: BAD}, reply_to=BAD))
    lobby.broker.parameters.set(BAD, {BAD: BAD})
    lobby.broker.access.add_user(BAD, "secret", [BAD])
    lobby.broker.access.set_permissions(BAD, "/", ".*", ".*", ".*")
    lobby.settle()
    return lobby


def strictly(content: bytes) -> Any:
    """Return JSON as a parser reads it that takes no lone surrogates."""
    found = json.loads(content.decode())
    json.dumps(found, ensure_ascii=False).encode()
    return found


@pytest.mark.parametrize("path", LISTS)
def test_no_such_name_takes_a_list_away(lobby: Lobby, path: str) -> None:
    response = lobby.ask("GET", path)
    assert response.status != 500
    if response.body and response.status == 200:
        strictly(response.body)


def test_the_names_are_there_with_the_replacement_character(lobby: Lobby) -> None:
    assert [each["name"] for each in strictly(lobby.ask("GET", "/api/queues").body)] == ["\ufffd\ufffd"]
    assert b"\xff" not in lobby.ask("GET", "/metrics").body
    assert lobby.ask("GET", "/api/queues/%2F/%FF%FE").status == 200
    assert lobby.ask("DELETE", "/api/queues/%2F/%FF%FE").status == 204
    assert lobby.ask("DELETE", "/api/exchanges/%2F/%FF%FE").status == 204
