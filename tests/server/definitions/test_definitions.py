"""RabbitMQ's definitions files: what is read, what is refused, and what a broker holds afterwards."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from leveret.broker import Broker
from leveret.config.config import ConfigError
from leveret.limits import QueueType
from leveret.security.passwords import Hashing
from leveret.server.definitions.importer import apply, load
from leveret.server.definitions.reader import read, read_files
from leveret.server.definitions.rehearsal import problems_of
from leveret.server.definitions.warnings import Warnings
from leveret.server.definitions.warnings import steps as warning_steps
from tests.harness.passwords import authenticate_password
from tests.harness.threads import CHEAP

# As `rabbitmqctl export_definitions` writes it, in short.
EXPORTED: dict[str, Any] = {
    "rabbit_version": "4.0.5",
    "rabbitmq_version": "4.0.5",
    "product_name": "RabbitMQ",
    "rabbitmq_definition_format": "cluster",
    "original_cluster_name": "rabbit@east",
    "explanation": "Definitions of cluster 'rabbit@east'",
    "users": [
        {
            "name": "shop",
            "password_hash": "9/1i+jKFRpbTRV1PtRnzFFYibT3cEpP92JeZ8YKGtflf4e/u",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator", "monitoring"],
            "limits": {"max-connections": 5, "max-channels": -1, "max-publish-rate": 7},
        },
        {"name": "old", "password": "secret", "tags": "management, policymaker", "limits": {}},
        {"name": "nobody", "password_hash": "", "tags": ""},
    ],
    "vhosts": [
        {"name": "/", "description": "Default virtual host", "tags": [], "metadata": {}},
        {"name": "/prod", "default_queue_type": "quorum"},
    ],
    "permissions": [{"user": "shop", "vhost": "/prod", "configure": "", "write": "^a", "read": ".*"}],
    "topic_permissions": [{"user": "shop", "vhost": "/prod", "exchange": "t", "write": "^x", "read": ".*"}],
    "parameters": [
        {
            "component": "vhost-limits",
            "name": "limits",
            "vhost": "/prod",
            "value": {"max-connections": -1, "max-queues": 9, "max-publish-rate": 70},
        },
        {
            "component": "operator_policy",
            "name": "cap",
            "vhost": "/prod",
            "value": {"pattern": "^a", "apply-to": "queues", "definition": {"max-length": 7}, "priority": 1},
        },
        {"component": "mqtt", "name": "up", "vhost": "/", "value": {"uri": "amqp://"}},
    ],
    "global_parameters": [{"name": "cluster_name", "value": "rabbit@east"}],
    "policies": [
        {
            "vhost": "/prod",
            "name": "ttl",
            "pattern": "^a",
            "apply-to": "queues",
            "definition": {"message-ttl": 1000},
            "priority": 0,
        }
    ],
    "queues": [
        {"name": "a", "vhost": "/prod", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 10}},
        {"name": "b", "vhost": "/prod", "type": "quorum", "durable": True, "auto_delete": False, "arguments": {}},
        {"name": "amq.gen-x", "vhost": "/prod", "durable": True, "auto_delete": False, "arguments": {}},
    ],
    "exchanges": [
        {
            "name": "t",
            "vhost": "/prod",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "spare"},
        },
        {"name": "spare", "vhost": "/prod", "type": "fanout", "durable": False, "internal": True, "arguments": {}},
    ],
    "bindings": [
        {
            "source": "t",
            "vhost": "/prod",
            "destination": "a",
            "destination_type": "queue",
            "routing_key": "x.#",
            "arguments": {},
        },
        {"source": "spare", "vhost": "/prod", "destination": "b", "arguments": {"n": None}},
        {"source": "t", "vhost": "/prod", "destination": "spare", "destination_type": "exchange", "routing_key": "y"},
    ],
}  # fmt: skip


def load_files(broker: Broker, paths: Sequence[Path]) -> None:
    """Read all files, then apply them in order, as a node does. Raises ConfigError with every problem."""
    load(broker, list(zip(paths, read_files(paths), strict=True)))


def changed(**sections: object) -> str:
    return json.dumps({**copy.deepcopy(EXPORTED), **sections})


def problems(source: str | bytes) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        read(source)
    return {place(problem.where): str(problem) for problem in caught.value.problems}


def place(where: str) -> str:
    """Return where a problem is in the file, without the name of what is there."""
    return where.rpartition(" (")[2].removesuffix(")")


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.access.hashing = Hashing(cost=CHEAP)
    broker.add_virtual_host("/")
    assert apply(read(json.dumps(EXPORTED)), broker) == []
    return broker


def test_users_come_with_password_tags_and_limits(broker: Broker):
    shop, old, nobody = (broker.access.user(name) for name in ("shop", "old", "nobody"))
    assert shop is not None
    assert shop.password is not None
    assert set(shop.tags) == {"administrator", "monitoring"}
    assert (shop.limits.max_connections, shop.limits.max_channels) == (5, -1)  # negative: no limit
    assert shop.limits.max_publish_rate == 7
    assert old is not None
    assert set(old.tags) == {"management", "policymaker"}
    assert authenticate_password(broker.access, "old", "secret") is old
    assert nobody is not None
    assert nobody.password is None


def test_permissions_come_by_user_and_virtual_host(broker: Broker):
    assert [(user, host) for user, host, _ in broker.access.permissions()] == [("shop", "/prod")]
    assert [exchange for _, _, exchange, _ in broker.access.topic_permissions()] == ["t"]


def test_limits_and_policies_hold_for_what_is_declared(broker: Broker):
    host = broker.virtual_host("/prod")
    assert (host.limits.max_connections, host.limits.max_queues) == (-1, 9)  # negative: no limit
    assert host.limits.max_publish_rate == 70
    host.limits.require_connection("/prod", "shop", 1000)
    limits = host.queue("a").limits
    assert (limits.message_ttl_ms, limits.max_length) == (1000, 7)


def test_queues_and_exchanges_keep_their_properties(broker: Broker):
    host = broker.virtual_host("/prod")
    assert host.queue("b").type is QueueType.QUORUM
    assert host.queue("amq.gen-x").durable
    assert host.exchange("spare").internal
    assert host.exchange("t").alternate == "spare"


def test_bindings_lead_to_queues_and_exchanges(broker: Broker):
    host = broker.virtual_host("/prod")
    found = {(b.source.name, b.key, b.destination.kind, b.destination.name) for b in host.bindings()}
    assert found == {
        ("t", "x.#", "queue", "a"), ("spare", "", "queue", "b"), ("t", "y", "exchange", "spare"),
    }  # fmt: skip


AS_FOUND: dict = {
    "vhosts": [{"name": "v", "metadata": {"description": "of a shop", "tags": ["live"]}}],
    "exchanges": [
        {"name": "", "vhost": "v", "type": "direct", "arguments": []},
        {"name": "amq.mqtt", "vhost": "v", "type": "topic", "arguments": []},
        {"name": "amq.direct", "vhost": "v", "type": "direct", "durable": True, "arguments": {"other": 1}},
    ],
    "queues": [{"name": "q", "vhost": "v", "arguments": []}],
    "bindings": [
        {"source": "", "vhost": "v", "destination": "q", "routing_key": "q", "arguments": []},
        {"source": "amq.mqtt", "vhost": "v", "destination": "q", "routing_key": "a.#", "arguments": []},
    ],
}


def test_files_as_other_tools_and_brokers_write_them_are_taken():
    broker = Broker()
    assert apply(read(json.dumps(AS_FOUND)), broker) == []
    host = broker.virtual_host("v")
    assert (host.description.text, host.description.tags) == ("of a shop", ("live",))
    assert host.exchange("amq.mqtt").durable
    assert [(each.source.name, each.key) for each in host.bindings()] == [("amq.mqtt", "a.#")]
    assert problems_of(AS_FOUND) == []


def test_the_file_of_one_virtual_host_is_told_once_to_be_that():
    file = {"queues": [{"name": "a"}, {"name": "b"}], "exchanges": [{"name": "x", "type": "fanout"}]}
    (problem,) = problems(json.dumps(file)).values()
    assert "leveret import FILE --vhost NAME" in problem
    assert [each.found in problem for each in problems_of(file)] == [True]


REFUSED_ITEMS: dict = {
    "vhosts": [{"name": "v"}],
    "topic_permissions": [{"user": "u", "vhost": "v", "exchange": "t", "write": "(?R)", "read": ""}],
    "queues": [{"name": "q", "vhost": "v", "durable": "yes"}],
    "exchanges": [{"name": "x", "vhost": "v", "type": "topic", "arguments": {"alternate-exchange": 7}}],
    "bindings": [{"source": "x", "vhost": "v", "destination": "gone", "routing_key": ""}],
}


def test_what_a_node_refuses_is_known_without_one():
    found = [place(each.where) for each in problems_of(REFUSED_ITEMS)]
    assert found == ["topic_permissions[0].write", "queues[0].durable", "exchanges[0]", "bindings[0]"]


def test_applying_twice_changes_nothing(broker: Broker):
    assert apply(read(json.dumps(EXPORTED)), broker) == []
    assert len(broker.virtual_host("/prod").queues) == 3


def warned(content: dict) -> list[str]:
    """Return the warnings of definitions that have been applied."""
    broker, found = Broker(), Warnings()
    broker.add_virtual_host("/")
    definitions = read(json.dumps(content))
    apply(definitions, broker)
    for _ in warning_steps(definitions, broker, found):
        pass
    return found.sentences()


def test_what_means_nothing_here_is_named():
    assert [each.partition(" has no effect")[0] for each in warned(EXPORTED)] == [
        "parameter 'up' in vhost '/': mqtt",
    ]


def test_equal_warnings_are_told_once_with_how_many_there_are():
    arguments = {"x-queue-mode": "lazy", "x-max-lenght": 5}
    names = [{"name": f"q{n}", "vhost": "/", "arguments": arguments} for n in range(9)]
    assert warned({"queues": names}) == [
        "queue 'q0' in vhost '/': x-queue-mode has no effect here: every queue pages waiting messages out when memory "
        "is needed (8 more like it)",
        "queue 'q0' in vhost '/': x-max-lenght is not known here and has no effect; did you mean x-max-length?"
        " (8 more like it)",
    ]


def test_different_warnings_are_bounded():
    arguments = {f"x-{n}": n for n in range(90)}
    names = [
        {"name": f"q{n}", "vhost": "/", "arguments": {f"{each}-{n}": 1 for each in arguments}}
        for n in range(3)
    ]
    told = warned({"queues": names})
    assert len(told) == 101
    assert told[-1] == "there are 170 more warnings"


def test_exchanges_bindings_and_operator_policies_are_looked_at_too():
    value = {"pattern": "q", "definition": {"max-in-memory-length": 5}}
    content = {
        "exchanges": [{"name": "x", "vhost": "/", "type": "direct", "arguments": {"alternate-exchang": "y"}}],
        "queues": [{"name": "q", "vhost": "/"}],
        "bindings": [
            {"source": "x", "vhost": "/", "destination": "q", "arguments": {"x-match": "all", "a": 1}}
        ],
        "policies": [{"name": "p", "vhost": "/", "pattern": "q", "definition": {"ha-mode": "all"}}],
        "parameters": [{"component": "operator_policy", "name": "o", "vhost": "/", "value": value}],
        "users": [{"name": "u", "shoe_size": 44}],
    }
    assert warned(content) == [
        "users[0]: users.shoe_size is not known here and has no effect",
        "parameter 'o' in vhost '/': max-in-memory-length has no effect here: every queue pages waiting messages out "
        "when memory is needed",
        "policy 'p' in vhost '/': ha-mode has no effect here: there is one node, and no mirrors",
        "exchange 'x' in vhost '/': alternate-exchang is not known here and has no effect; did you mean "
        "alternate-exchange?",
        "binding from exchange 'x' in vhost '/': x-match is not known here and has no effect",
    ]


@pytest.mark.parametrize(
    ("said", "type_"),
    [
        ({"default_queue_type": "quorum"}, QueueType.QUORUM),
        ({"metadata": {"default_queue_type": "stream"}, "default_queue_type": "undefined"}, QueueType.STREAM),
        ({"metadata": {"default_queue_type": "undefined"}}, None),
        ({}, None),
    ],
)
def test_the_default_type_of_queues_is_read_as_versions_of_rabbitmq_write_it(
    said: dict[str, object], type_: QueueType | None
):
    vhosts = read(json.dumps({"vhosts": [{"name": "a", **said}]})).vhosts
    assert [host.queue_type for host in vhosts] == [type_]


def test_a_default_type_that_is_none_is_a_problem():
    with pytest.raises(ConfigError, match=r"vhost 'a' \(vhosts\[0\].default_queue_type\): found"):
        read(json.dumps({"vhosts": [{"name": "a", "default_queue_type": "mirrored"}]}))


def test_an_operator_policy_may_be_written_as_rabbitmqctl_writes_it():
    value = {"apply-to": "all", "definition": [["max-length", 100]], "pattern": "^a", "priority": 0}
    policy = {"component": "operator_policy", "name": "op", "vhost": "/", "value": value}
    broker = Broker()
    broker.add_virtual_host("/")
    assert apply(read(json.dumps({"parameters": [policy]})), broker) == []
    assert broker.policies.list_operator("/")[0].definition == {"max-length": 100}
    value["definition"] = [["max-length"]]
    assert (
        "accepted: a table"
        in problems(json.dumps({"parameters": [policy]}))["parameters[0].value.definition"]
    )


def test_policies_for_federation_do_not_stand_in_the_way():
    policy = {"name": "fed", "vhost": "/", "pattern": "^f", "definition": {"federation-upstream-set": "all"}}
    assert read(json.dumps({"policies": [policy]})).policies[0].definition


def test_all_mistakes_of_a_file_are_told_at_once():
    found = problems(
        json.dumps(
            {
                "users": [{"password": 5}, {"name": "a", "password_hash": "AAAA"}, {"name": "b", "tags": 1}],
                "permissions": [{"user": "a", "vhost": "/", "configure": "(", "write": ""}],
                "parameters": [
                    {"component": "vhost-limits", "name": "limits", "vhost": "/", "value": {"max-queues": "x"}},
                    {"component": "operator_policy", "name": "p", "vhost": "/", "value": {"pattern": "a"}},
                    {
                        "component": "operator_policy",
                        "name": "q",
                        "vhost": "/",
                        "value": {"pattern": "a", "definition": {"dead-letter-exchange": "x"}},
                    },
                ],
                "policies": [{"name": "p", "vhost": "/", "pattern": "", "apply-to": "x", "definition": {"expires": 1}}],
                "queues": [{"name": "q", "vhost": "/", "durable": "yes"}],
                "bindings": 7,
            }
        )
    )  # fmt: skip
    assert set(found) == {
        "users[0].name",
        "users[0].password",
        "users[1].password_hash",
        "users[2].tags",
        "permissions[0].configure",
        "permissions[0].read",
        "parameters[0].value.max-queues",
        "parameters[1].value.definition",
        "parameters[2].value.definition",
        "policies[0].apply-to",
        "queues[0].durable",
        "bindings",
    }
    assert '"classic_queues"' in found["policies[0].apply-to"]


@pytest.mark.parametrize("source", [b"{", b"\xff", b"[]", b"null", b"1e999", b'"users"'])
def test_what_is_no_definitions_file_is_refused(source: bytes):
    assert problems(source)


def test_no_problem_repeats_a_password():
    source = '{"users": [{"name": "a", "password": ["hunter2"], "password_hash": "hunter2"}]}'
    assert "hunter2" not in str(problems(source))


def test_what_the_broker_refuses_is_returned_and_the_rest_is_in_place():
    broker = Broker()
    source = changed(
        permissions=[{"user": "absent", "vhost": "/", "configure": "", "write": "", "read": ""}],
        topic_permissions=[{"user": "shop", "vhost": "/absent", "exchange": "", "write": "", "read": ""}],
        exchanges=[*EXPORTED["exchanges"], {"name": "t", "vhost": "/prod", "type": "fanout"}],
        queues=[*EXPORTED["queues"], {"name": "c", "vhost": "/absent"}],
        bindings=[*EXPORTED["bindings"], {"source": "t", "vhost": "/prod", "destination": "absent"}],
    )
    refused = {problem.where: problem.found for problem in apply(read(source), broker)}
    assert set(refused) == {
        "permissions of user 'absent' in vhost '/' (permissions[0])",
        "topic permissions of user 'shop' in vhost '/absent' (topic_permissions[0])",
        "exchange 't' in vhost '/prod' (exchanges[2])",
        "queue 'c' in vhost '/absent' (queues[3])",
        "binding from exchange 't' to 'absent' in vhost '/prod' (bindings[3])",
    }
    assert refused["permissions of user 'absent' in vhost '/' (permissions[0])"] == "no user 'absent'"
    assert "inequivalent arg 'type'" in refused["exchange 't' in vhost '/prod' (exchanges[2])"]
    assert set(broker.virtual_host("/prod").queues) == {"a", "b", "amq.gen-x"}


def test_md5_is_named_with_the_user_and_what_to_do(tmp_path: Path):
    md5 = base64.b64encode(bytes(20)).decode()  # RabbitMQ 3.5 writes no algorithm
    for more in ({}, {"hashing_algorithm": "rabbit_password_hashing_md5"}):
        file = tmp_path / "definitions.json"
        file.write_text(json.dumps({"users": [{"name": "shop", "password_hash": md5, "tags": "", **more}]}))
        with pytest.raises(ConfigError) as caught:
            load_files(Broker(), [file])
        assert f"{file}: user 'shop' (users[0].password_hash): the password is hashed with MD5" in str(
            caught.value
        )
        assert "`leveret hash-password`" in str(caught.value)
        assert md5 not in str(caught.value)


def test_problems_name_the_file(tmp_path: Path):
    good, bad, worse = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "absent.json"
    good.write_text(json.dumps(EXPORTED))
    bad.write_text('{"queues": [{}]}')
    broker = Broker()
    load_files(broker, [good])
    assert "/prod" in broker.virtual_hosts
    with pytest.raises(ConfigError) as caught:
        load_files(broker, [good, bad, worse])
    assert {p.where for p in caught.value.problems} == {
        f"{bad}: queues[0].name", f"{bad}: queues[0].vhost", str(worse),
    }  # fmt: skip


def test_a_refusal_by_the_broker_names_the_file_too(tmp_path: Path):
    file = tmp_path / "definitions.json"
    file.write_text('{"queues": [{"name": "q", "vhost": "/absent"}]}')
    with pytest.raises(
        ConfigError, match=r"definitions.json: queue 'q' in vhost '/absent' \(queues\[0]\): vhost /absent not"
    ):
        load_files(Broker(), [file])
