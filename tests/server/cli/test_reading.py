"""Topology files to topologies: what may stand there, both formats, what is refused and where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leveret.config.config import ConfigError
from leveret.server.topology_file.model import BINDING, EXCHANGE, POLICY, QUEUE, Settings, canonical, meaning
from leveret.server.topology_file.reader import from_definitions, from_json, from_toml, read_file

TOML = """
[users.shop]
tags = ["management"]
[virtual_hosts."/"]
manage = "^shop"
[virtual_hosts."/".permissions.shop]
write = "^shop"
[virtual_hosts."/".exchanges.shop]
type = "topic"
[virtual_hosts."/".exchanges.audit]
bindings = [{ exchange = "shop", key = "#" }]
[virtual_hosts."/".queues.orders]
type = "quorum"
arguments = { x-delivery-limit = 5 }
bindings = [{ exchange = "shop", key = "eu.#" }, { exchange = "shop", key = "us.#", arguments = { a = 1 } }]
[virtual_hosts."/".policies.bounded]
pattern = "^orders"
apply_to = "queues"
definition = { max-length = 10 }
[virtual_hosts."/".operator_policies.bounded]
pattern = "^orders"
definition = { max-length = 100 }
"""

DEFINITIONS = {
    "rabbit_version": "3.10.8",
    "users": [{"name": "shop", "password_hash": "x", "tags": "management"}],
    "vhosts": [{"name": "/"}],
    "permissions": [{"user": "shop", "vhost": "/", "configure": "^$", "write": "^shop", "read": "^$"}],
    "parameters": [
        {
            "component": "operator_policy",
            "name": "bounded",
            "vhost": "/",
            "value": {
                "pattern": "^orders",
                "definition": [["max-length", 100]],
                "priority": 0,
                "apply-to": "all",
            },
        },
        {"component": "vhost-limits", "name": "limits", "vhost": "/", "value": {}},
    ],
    "policies": [
        {
            "vhost": "/",
            "name": "bounded",
            "pattern": "^orders",
            "apply-to": "queues",
            "priority": 0,
            "definition": {"max-length": 10.0},
        }
    ],
    "queues": [
        {
            "name": "orders",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 5},
        }
    ],
    "exchanges": [
        {
            "name": name,
            "vhost": "/",
            "type": kind,
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
        for name, kind in (("shop", "topic"), ("audit", "direct"))
    ],
    "bindings": [
        {
            "source": "shop",
            "vhost": "/",
            "destination": to,
            "destination_type": kind,
            "routing_key": key,
            "arguments": arguments,
        }
        for to, kind, key, arguments in (
            ("audit", "exchange", "#", {}),
            ("orders", "queue", "eu.#", {}),
            ("orders", "queue", "us.#", {"a": 1}),
        )
    ],
}


def test_both_formats_say_the_same():
    ours, rabbitmqs = from_toml(TOML.encode()), from_json(json.dumps(DEFINITIONS).encode())
    assert ours.things.keys() == rabbitmqs.things.keys()
    for key, thing in ours.things.items():
        assert canonical(thing.settings) == canonical(rabbitmqs.things[key].settings), key
    assert (ours.managed, rabbitmqs.managed) == ({"/": "^shop"}, {})


def test_everything_has_a_place_in_its_file():
    ours, rabbitmqs = from_toml(TOML.encode()), from_definitions(DEFINITIONS)
    assert ours.things[QUEUE, "/", "orders"].place == 'virtual_hosts."/".queues.orders'
    assert rabbitmqs.things[EXCHANGE, "/", "audit"].place == "exchanges[1]"
    assert [each.place for each in ours.of(BINDING)][1:] == [
        'virtual_hosts."/".queues.orders.bindings[0]',
        'virtual_hosts."/".queues.orders.bindings[1]',
    ]


@pytest.mark.parametrize("said", [{}, {"type": "classic"}, {"arguments": {"x-queue-type": "classic"}}])
def test_a_classic_queue_is_the_same_however_it_is_said(said: dict[str, object]):
    def meant(**more: object) -> list[Settings]:
        found = from_definitions({"queues": [{"name": "q", "vhost": "/", **more}]})
        return [meaning(each) for each in found.things.values()]

    assert meant(**said) == meant()


def test_things_without_a_virtual_host_are_in_the_one_that_was_asked_for():
    found = from_definitions({"policies": [{"name": "p", "pattern": "", "definition": {}}]}, "/prod")
    assert list(found.things) == [(POLICY, "/prod", "p")]


BAD = [
    ("x.toml", "[virtual_hosts", "a mistake"),
    ("x.toml", '[virtual_hosts."/".queues.q]\ntipe = "quorum"', "did you mean 'type'?"),
    ("x.toml", '[virtual_hosts."/"]\nmanage = "("', "manage"),
    ("x.toml", '[virtual_hosts."/".queues.q]\nbindings = [{ key = "a" }]', "bindings[0].exchange"),
    ("x.toml", '[users.u]\npassword = "471147"', "users.u.password"),
    ("x.json", "[]", "definitions as RabbitMQ writes them"),
    ("x.json", "{", "a mistake"),
    ("x.json", '{"queues": [{"vhost": "/"}]}', "queues[0].name"),
    ("x.json", '{"queues": [3]}', "queues[0]"),
    ("x.json", '{"queues": {}}', "queues"),
    ("x.json", '{"queues": [{"name": "q", "durable": "yes"}]}', "queues[0].durable"),
    ("x.json", '{"bindings": [{"source": "a", "arguments": 3}]}', "bindings[0].arguments"),
]


@pytest.mark.parametrize(("name", "text", "words"), BAD)
def test_a_mistake_is_told_with_file_and_place_and_without_values(
    name: str, text: str, words: str, tmp_path: Path
):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_file(tmp_path / name)
    assert words in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)
    assert "471147" not in str(caught.value)
