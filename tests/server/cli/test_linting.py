"""What `leveret lint` finds: each rule finds what it is for, and keeps quiet about what is meant so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leveret.server.cli import main
from leveret.server.cli.topology import RELEASES
from leveret.server.topology_file.effective import topic_matches
from leveret.server.topology_file.lint import RULES, lint
from leveret.server.topology_file.model import Topology
from leveret.server.topology_file.reader import from_definitions, from_toml
from leveret.server.topology_file.releases import CODE, TARGETS

GOOD = """
[virtual_hosts."/".exchanges.shop]
type = "topic"
arguments = { alternate-exchange = "unrouted" }
[virtual_hosts."/".exchanges.unrouted]
type = "fanout"
[virtual_hosts."/".queues.orders]
type = "quorum"
arguments = { x-dead-letter-exchange = "", x-dead-letter-routing-key = "dead" }
bindings = [{ exchange = "shop", key = "#" }]
[virtual_hosts."/".queues.dead]
[virtual_hosts."/".queues.lost]
bindings = [{ exchange = "unrouted" }]
[virtual_hosts."/".policies.bounded]
pattern = "^lost"
apply_to = "queues"
definition = { max-length = 1000 }
"""


def in_host(text: str) -> Topology:
    """Sections of the virtual host `/`."""
    return from_toml(text.replace("[@", '[virtual_hosts."/".').encode())


def found(text: str) -> list[tuple[str, str]]:
    return [(each.code, each.place.removeprefix('virtual_hosts."/".')) for each in lint(in_host(text))]


def test_nothing_is_found_in_a_good_topology():
    assert found(GOOD) == []


BOUND = "bindings = [{ exchange = 'amq.topic' }]\n"

# What the file has, and what is found there.
SAMPLES = [
    (
        f"[@queues.q]\n{BOUND[:-2]}, {{ exchange = 'nope' }}]",
        [("binding-to-missing", "queues.q.bindings[1]")],
    ),
    ("[@queues.q]", []),  # reached through the default exchange
    *(
        (
            f"[@queues.q]\nbindings = [{{ exchange = 'amq.{kind}', key = '{key}' }}]",
            [("topic-key", place)][:count],
        )
        for place in ("queues.q.bindings[0]",)
        for kind, key, count in (
            ("topic", "devices/+/out", 1),
            ("topic", "devices/#", 1),
            ("topic", "+/out", 1),
            ("topic", "order*.new", 1),
            ("topic", "orders.##", 1),
            ("topic", "devices.*.out", 0),
            ("topic", "#", 0),
            ("topic", "*.#", 0),
            ("topic", "", 0),
            ("topic", "a/b.*", 0),  # of a level with a dot
            ("topic", "a+b.c", 0),
            ("direct", "devices/+/out", 0),
        )
    ),
    ("[@exchanges.x]", [("exchange-drops", "exchanges.x")]),
    ("[@exchanges.x]\narguments = { alternate-exchange = 'amq.fanout' }", []),
    (
        "[@exchanges.x]\narguments = { alternate-exchange = 'gone' }",
        [("missing-alternate-exchange", "exchanges.x")],
    ),
    (
        "[@exchanges.a]\narguments = { alternate-exchange = 'b' }\n"
        "[@exchanges.b]\narguments = { alternate-exchange = 'a' }\n"
        "[@exchanges.c]\narguments = { alternate-exchange = 'a' }",
        [("alternate-exchange-cycle", "exchanges.a")],
    ),
    (
        "[@exchanges.a]\n[@policies.p]\npattern = 'a'\napply_to = 'exchanges'\n"
        "definition = { alternate-exchange = 'a' }",
        [("alternate-exchange-cycle", "exchanges.a")],
    ),
    (
        f"[@queues.q]\n{BOUND}arguments = {{ x-dead-letter-exchange = 'gone' }}",
        [("missing-dead-letter-exchange", "queues.q")],
    ),
    (
        f"[@queues.q]\n{BOUND}[@policies.p]\npattern = 'q'\ndefinition = {{ dead-letter-exchange = 'gone' }}",
        [("missing-dead-letter-exchange", "queues.q")],
    ),
    (
        f"[@queues.q]\n{BOUND}arguments = {{ x-dead-letter-exchange = '', x-dead-letter-routing-key = 'q' }}",
        [("dead-letter-cycle", "queues.q")],
    ),
    (
        f"[@queues.q]\n{BOUND}[@policies.p]\npattern = '^x'\ndefinition = {{ max-length = 1 }}",
        [("policy-matches-nothing", "policies.p")],
    ),
    (
        f"[@queues.q]\n{BOUND}[@policies.p]\npattern = 'q'\napply_to = 'streams'\ndefinition = {{ max-length = 1 }}",
        [("policy-matches-nothing", "policies.p")],
    ),
    (
        f"[@queues.q]\n{BOUND}[@operator_policies.p]\npattern = 'q('\ndefinition = {{ max-length = 1 }}",
        [("bad-pattern", "operator_policies.p")],
    ),
    ("[@permissions.u]\nread = '('", [("bad-pattern", "permissions.u")]),
    (f"[@queues.q]\n{BOUND}arguments = {{ x-max-lenght = 5 }}", [("without-effect", "queues.q")]),
    (f"[@queues.q]\n{BOUND}arguments = {{ x-max-length = '5' }}", [("refused", "queues.q")]),
    (f"[@queues.q]\n{BOUND}type = 'quorm'", [("refused", "queues.q")]),
    (
        "[@exchanges.x]\ntype = 'topc'\n[@queues.q]\nbindings = [{ exchange = 'x' }]",
        [("refused", "exchanges.x")],
    ),
    ("[@exchanges.x]\ntype = 'x-mine'\n[@queues.q]\nbindings = [{ exchange = 'x' }]", []),
    (
        f"[@queues.q]\n{BOUND}[@policies.p]\npattern = 'q'\napply_to = 'queus'\ndefinition = {{ max-length = '1' }}",
        [("refused", "policies.p"), ("refused", "policies.p"), ("policy-matches-nothing", "policies.p")],
    ),
    (
        "[@queues.q]\nbindings = [{ exchange = 'amq.headers', arguments = { x-mach = 'any', kind = 'a' } }]",
        [("without-effect", "queues.q.bindings[0]")],
    ),
    (f"[@queues.q]\n{BOUND}arguments = {{ x-queue-mode = 'lazy' }}", [("without-effect", "queues.q")]),
    (f"[@queues.q]\n{BOUND}arguments = {{ x-queue-mode = 'default' }}", []),
    (
        f"[@queues.q]\n{BOUND}[@policies.p]\npattern = 'q'\ndefinition = {{ max-lenght = 5, ha-mode = 'all' }}",
        [("without-effect", "policies.p"), ("without-effect", "policies.p")],
    ),
    (
        f"[@queues.q]\n{BOUND}[@operator_policies.p]\npattern = 'q'\ndefinition = {{ overflow = 'reject-publish' }}",
        [("without-effect", "operator_policies.p")],
    ),
    (
        "[@queues.q]\nbindings = [{ exchange = 'amq.topic', arguments = { x-filter = 'a', b = 1 } }]",
        [("without-effect", "queues.q.bindings[0]")],
    ),
    ("[@queues.q]\nbindings = [{ exchange = 'amq.headers', arguments = { x-match = 'any', b = 1 } }]", []),
    (
        "[@exchanges.x]\narguments = { alternate-exchange = 'amq.fanout', alternate-exchang = 'y' }",
        [("without-effect", "exchanges.x")],
    ),
    ("[@exchanges.x]\ntype = 'x-own'\narguments = { alternate-exchange = 'amq.fanout', own = 'y' }", []),
]


@pytest.mark.parametrize(("text", "expected"), SAMPLES)
def test_a_rule_finds_its_mistake_where_it_stands(text: str, expected: list[tuple[str, str]]):
    assert found(text) == expected


CONTRADICTIONS = [
    ("type = 'quorum'\ndurable = false", "always durable"),
    ("type = 'stream'\nauto_delete = true", "cannot go with its last consumer"),
    ("type = 'quorum'\narguments = { x-max-priority = 5 }", "x-max-priority means nothing to a quorum queue"),
    ("type = 'stream'\narguments = { x-message-ttl = 5 }", "x-message-ttl means nothing to a stream queue"),
    ("arguments = { x-max-age = '1D' }", "x-max-age means nothing to a classic queue"),
    ("type = 'quorum'\narguments = { x-max-length = 1, x-overflow = 'reject-publish-dlx' }", "does not have"),
    ("arguments = { x-overflow = 'reject-publish' }", "without a bound"),
    ("arguments = { x-dead-letter-routing-key = 'k' }", "without a dead-letter exchange"),
    (
        "arguments = { x-dead-letter-strategy = 'at-least-once', x-dead-letter-exchange = 'amq.fanout' }",
        "has no effect with this overflow",
    ),
    (
        "arguments = { x-dead-letter-strategy = 'at-least-once', x-overflow = 'reject-publish' }",
        "at-least-once without a dead-letter exchange",
    ),
]


@pytest.mark.parametrize(("text", "words"), CONTRADICTIONS)
def test_arguments_that_contradict_the_queue_are_found(text: str, words: str):
    (finding,) = lint(in_host(f"[@queues.q]\n{BOUND}{text}"))
    assert finding.code == "contradicting-arguments"
    assert words in finding.what
    assert finding.advice


def test_what_definitions_hold_and_no_node_has_is_found():
    content = {
        "vhosts": [
            {"name": "/", "protected_from_deletion": True},
            {"name": "b", "protected_from_deletion": False},
        ],
        "parameters": [
            {"component": "federation", "vhost": "/", "name": "s", "value": {}},
            {"component": "federation-upstreams", "vhost": "/", "name": "s", "value": {}},
        ],
    }
    findings = lint(from_definitions(content))
    assert [(each.code, each.place) for each in findings] == [
        ("without-effect", "vhosts[0]"),
        ("without-effect", "parameters[0]"),
        ("without-effect", "parameters[1]"),
    ]
    assert "did you mean federation-upstream?" in findings[2].what


def test_dead_letters_at_least_once_need_no_bound():
    said = "x-dead-letter-strategy = 'at-least-once', x-dead-letter-exchange = 'amq.fanout'"
    assert found(f"[@queues.q]\n{BOUND}arguments = {{ {said}, x-overflow = 'reject-publish' }}\n") == []


def test_every_rule_has_a_sample():
    told = {code for _, expected in SAMPLES for code, _ in expected}
    assert told | {"contradicting-arguments"} == set(RULES)


def test_a_bound_by_a_policy_makes_overflow_meaningful():
    text = f"[@queues.q]\n{BOUND}arguments = {{ x-overflow = 'reject-publish' }}\n"
    assert found(text + "[@policies.p]\npattern = 'q'\ndefinition = { max-length-bytes = 10 }") == []


def test_a_queue_that_is_another_ones_dead_letter_queue_is_reachable():
    text = f"[@queues.q]\n{BOUND}[@queues.dead]\n[@policies.p]\npattern = '^q$'\n"
    assert found(text + "definition = { dead-letter-exchange = '', dead-letter-routing-key = 'dead' }") == []


RETRY = """
[@queues.work]
bindings = [{{ exchange = 'amq.direct', key = 'work' }}]
arguments = {{ x-dead-letter-exchange = 'amq.direct', x-dead-letter-routing-key = 'wait'{first} }}
[@queues.wait]
bindings = [{{ exchange = 'amq.direct', key = 'wait' }}]
arguments = {{ x-dead-letter-exchange = 'amq.direct', x-dead-letter-routing-key = 'work'{second} }}
"""
TTL = ", x-message-ttl = 1000"


def test_a_queue_that_waits_and_sends_back_is_a_retry_and_no_mistake():
    assert found(RETRY.format(first="", second=TTL)) == []


def test_dead_letters_that_go_round_without_a_wait_or_all_by_themselves_are_found():
    (at_once,) = lint(in_host(RETRY.format(first="", second="")))
    (by_itself,) = lint(in_host(RETRY.format(first=TTL, second=TTL)))
    assert "wait -> work -> wait; nothing waits" in at_once.what
    assert "wait -> work -> wait; every queue" in by_itself.what


def test_a_policy_of_a_higher_priority_holds_and_an_argument_before_both():
    policies = "".join(
        f"[@policies.{name}]\npattern = 'q'\npriority = {priority}\ndefinition = {{ dead-letter-exchange = '{to}' }}\n"
        for name, priority, to in (("low", 1, "gone"), ("high", 2, "amq.fanout"))
    )
    assert found(f"[@queues.q]\n{BOUND}{policies}") == []
    swapped = policies.replace("priority = 1", "priority = 3")
    assert [code for code, _ in found(f"[@queues.q]\n{BOUND}{swapped}")] == ["missing-dead-letter-exchange"]
    own = "arguments = { x-dead-letter-exchange = 'amq.fanout' }\n"
    assert found(f"[@queues.q]\n{BOUND}{own}{swapped}") == []


TOPICS = [
    ("#", "", True),
    ("#", "a.b", True),
    ("a.#", "a", True),
    ("a.#.c", "a.b.b.c", True),
    ("a.*", "a", False),
    ("a.*", "a.b", True),
    ("a.*", "a.b.c", False),
    ("*", "", False),
    ("a.b", "a.c", False),
]


@pytest.mark.parametrize(("bound", "key", "matches"), TOPICS)
def test_binding_keys_of_topics_match_as_brokers_do(bound: str, key: str, matches: bool):
    assert topic_matches(bound, key) is matches


def test_many_queues_in_a_long_chain_are_looked_at_in_a_moment():
    chain = "".join(
        f"[@queues.q{i}]\narguments = {{ x-dead-letter-exchange = '', x-dead-letter-routing-key = 'q{i + 1}' }}\n"
        for i in range(2000)
    )
    assert found(f"{chain}[@queues.q2000]\n") == []


DATED = """
[@queues.fleeting]
durable = false
bindings = [{ exchange = "amq.topic", key = "#.a.#.b.#" }]
[@queues.old]
arguments = { x-queue-mode = "lazy", x-queue-version = 1, x-consumer-timeout = 5 }
bindings = [{ exchange = "amq.topic", key = "#" }]
[@policies.mirrored]
pattern = "^old"
definition = { ha-mode = "all" }
"""


def refused(release: str) -> list[str]:
    return [
        each.place.split('virtual_hosts."/".')[1]
        for each in lint(in_host(DATED), release)
        if each.code == CODE
    ]


def test_what_a_release_refuses_is_found_if_one_asks():
    assert refused("rabbitmq-3.13") == []
    assert refused("rabbitmq-4.0") == ["policies.mirrored"]
    assert refused("rabbitmq-4.3") == [
        "queues.fleeting",
        *["queues.old"] * 3,
        "queues.fleeting.bindings[0]",
        "policies.mirrored",
    ]
    assert not [each for each in lint(in_host(DATED)) if each.code == CODE]


def test_definitions_that_a_node_refuses_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What the rules find as an error is told once."""
    file = tmp_path / "definitions.json"
    item = {"user": "u", "vhost": "v", "exchange": "t", "write": "(?R)", "read": ""}
    policy = {"name": "p", "vhost": "v", "pattern": "[[:x:]]", "definition": {"max-length": 1}}
    queue = {"name": "q", "vhost": "v", "durable": "yes"}
    file.write_text(json.dumps({"topic_permissions": [item], "policies": [policy], "queues": [queue]}))
    assert main(["lint", str(file)], {}) == 4
    said = capsys.readouterr().out
    assert "topic_permissions[0].write" in said
    assert "the option 'R' is not supported" in said
    assert "queues[0].durable" in said
    assert "there is no POSIX class [:x:]" in said
    assert said.endswith("3 errors\n")


@pytest.mark.parametrize(
    ("name", "text"), [("deep.toml", "a = " + "[" * 50_000), ("deep.json", "[" * 100_000)]
)
def test_a_file_that_is_nested_too_deep_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
):
    (tmp_path / name).write_text(text)
    assert main(["lint", str(tmp_path / name)], {}) == 1
    assert f"{name}: the file: found a mistake: maximum recursion depth" in capsys.readouterr().err


def test_a_byte_order_mark_before_a_topology_is_passed_over(tmp_path: Path):
    file = tmp_path / "topology.toml"
    file.write_bytes(b"\xef\xbb\xbf[virtual_hosts.'/'.queues.a]\r\n")
    assert main(["lint", str(file)], {}) == 0


@pytest.mark.parametrize(("version", "code"), [("3.12.4", 4), ("4.0.1", 0)])
def test_definitions_of_rabbitmq_3_are_told_of_the_size_of_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, code: int
):
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"rabbitmq_version": version, "vhosts": [{"name": "/"}]}))
    assert main(["lint", str(file)], {}) == code
    assert ("set limits.message_size_max" in capsys.readouterr().out) is bool(code)


def test_the_command_knows_every_release():
    assert sorted(RELEASES) == sorted(TARGETS)
