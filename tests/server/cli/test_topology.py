"""`leveret plan`, `apply`, `lint` on a broker: what was applied needs no change, and nothing else was touched."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.config.amqp_uri import hidden
from leveret.features.parameters.components import parameters_of
from leveret.limits import QueueType
from leveret.server import cli
from leveret.server.topology_file import releases
from leveret.server.topology_file.lint import MESSAGE_SIZE, RULES
from tests.server.cli.node import Node, Typed

Captured = pytest.CaptureFixture[str]

SHOP = """
[users.shop]
tags = ["management"]
[virtual_hosts."/"]
manage = "^shop"
[virtual_hosts."/".permissions.shop]
write = "^shop"
[virtual_hosts."/".exchanges.shop]
type = "topic"
arguments = { alternate-exchange = "shop-rest" }
[virtual_hosts."/".exchanges.shop-rest]
type = "fanout"
[virtual_hosts."/".queues.shop-orders]
arguments = { x-max-length = 1000 }
bindings = [{ exchange = "shop", key = "eu.#" }, { exchange = "shop", key = "us.#" }]
[virtual_hosts."/".queues.shop-lost]
bindings = [{ exchange = "shop-rest" }]
[virtual_hosts."/".policies.shop-lost]
pattern = "^shop-lost"
apply_to = "queues"
definition = { max-length = 10 }
[virtual_hosts."/".operator_policies.shop]
pattern = "^shop"
apply_to = "queues"
definition = { max-length = 100 }
[virtual_hosts.elsewhere.queues.q]
"""


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "shop.toml").write_text(SHOP)
    return tmp_path / "shop.toml"


def test_what_was_applied_needs_no_change(node: Node, file: Path, capsys: Captured):
    assert node.run("plan", str(file)) == cli.PENDING
    assert "+ create binding 'shop' -> queue 'shop-orders' key 'eu.#' in vhost '/'" in capsys.readouterr().out
    assert node.run("apply", str(file), "--yes") == cli.DONE
    out = capsys.readouterr().out
    assert out.endswith("13 of 13 changes are made\n")
    assert "done: create queue 'shop-orders' in vhost '/'" in out
    assert node.run("plan", str(file), "--prune") == cli.DONE
    assert capsys.readouterr().out == "nothing to change\n"
    assert node.run("apply", str(file), "--yes") == cli.DONE
    assert capsys.readouterr().out == "nothing to change\n"
    assert said(node, capsys, "lint", str(file)) == "nothing found\n"


def test_nobody_is_asked_where_nobody_is(
    node: Node, file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert node.run("apply", str(file)) == cli.REFUSED
    assert "--yes" in capsys.readouterr().err
    assert "shop-orders" not in node.host.queues


def test_a_change_that_loses_messages_is_named_and_refused_before_anything_is_done(
    node: Node, file: Path, capsys: Captured
):
    node.run("apply", str(file), "--yes")
    node.host.bind(node.host.exchange("amq.topic"), node.host.queue("shop-orders"), "by hand", {})
    text = file.read_text().replace("1000", "500").replace("max-length = 10 ", "max-length = 20 ")
    file.write_text(text)
    assert node.run("apply", str(file), "--yes") == cli.REFUSED
    captured = capsys.readouterr()
    assert 'arguments: {"x-max-length": 1000} -> {"x-max-length": 500}' in captured.out
    assert "--replace does it\n  queue 'shop-orders' in vhost '/'" in captured.err
    assert node.host.queue("shop-orders").arguments["x-max-length"] == 1000
    assert "max-length=10" in said(node, capsys, "list", "policies")
    assert node.run("apply", str(file), "--yes", "--replace") == cli.DONE
    assert node.host.queue("shop-orders").arguments["x-max-length"] == 500
    bound = json.loads(said(node, capsys, "list", "bindings", "--filter", "shop-orders", "--json"))
    assert sorted(row["routing_key"] for row in bound) == ["by hand", "eu.#", "shop-orders", "us.#"]


def said(node: Node, capsys: Captured, *arguments: str) -> str:
    capsys.readouterr()
    assert node.run(*arguments) == cli.DONE, capsys.readouterr().err
    return capsys.readouterr().out


def test_only_what_the_file_manages_is_pruned(node: Node, file: Path, capsys: Captured):
    node.run("apply", str(file), "--yes")
    for name in ("shop-old", "other", "shop-session"):
        node.host.declare_queue(name, auto_delete=name == "shop-session")
    said(node, capsys, "apply", str(file), "--yes", "--prune")
    assert set(node.host.queues) == {"shop-orders", "shop-lost", "other", "shop-session"}


def test_pruning_needs_a_scope(node: Node, tmp_path: Path, capsys: Captured):
    (tmp_path / "d.json").write_text('{"vhosts": [{"name": "/"}]}')
    node.host.declare_queue("old")
    assert node.run("plan", str(tmp_path / "d.json"), "--prune") == cli.REFUSED
    assert "--manage PATTERN" in capsys.readouterr().err
    assert node.run("plan", str(tmp_path / "d.json"), "--prune", "--manage", "old") == cli.PENDING
    assert "- delete queue 'old'" in capsys.readouterr().out


def test_it_stops_at_the_first_failure_and_tells_what_was_done(node: Node, tmp_path: Path, capsys: Captured):
    file = tmp_path / "bad.toml"
    file.write_text(
        "[virtual_hosts.'/'.queues.a]\n[virtual_hosts.'/'.queues.b]\ntype = 'no such'\n[virtual_hosts.'/'.queues.c]\n"
    )
    assert node.run("apply", str(file), "--yes") == cli.REFUSED
    captured = capsys.readouterr()
    assert "1 of 3 changes are made" in captured.out
    assert "stopped at: create queue 'b' in vhost '/'" in captured.err
    assert set(node.host.queues) == {"a"}


def test_a_node_that_goes_away_leaves_word_of_what_was_done(node: Node, tmp_path: Path, capsys: Captured):
    file = tmp_path / "q.toml"
    file.write_text("[virtual_hosts.'/'.queues.a]\n[virtual_hosts.'/'.queues.b]")
    node.requests_left = 2  # what is there, and the first queue
    assert node.run("apply", str(file), "--yes") == cli.UNREACHABLE
    captured = capsys.readouterr()
    assert "1 of 2 changes are made" in captured.out
    assert "stopped at: create queue 'b' in vhost '/': no node answers" in captured.err


@pytest.mark.parametrize(("typed", "code"), [("y", cli.DONE), ("", cli.REFUSED), ("no", cli.REFUSED)])
def test_whoever_is_there_is_asked(
    typed: str, code: int, node: Node, file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", Typed(typed))
    assert node.run("apply", str(file)) == code
    assert "Make 13 changes? [y/N] " in capsys.readouterr().err
    assert ("shop-orders" in node.host.queues) is (code == cli.DONE)


def test_programs_get_a_plan_and_what_was_done(node: Node, tmp_path: Path, capsys: Captured):
    file = tmp_path / "q.toml"
    file.write_text("[virtual_hosts.'/'.queues.q]")
    assert node.run("plan", str(file), "--json") == cli.PENDING
    plan = json.loads(capsys.readouterr().out)
    assert (plan["create"], plan["delete"]) == (1, 0)
    assert plan["changes"] == [
        {
            "action": "create",
            "kind": "queue",
            "key": ["/", "q"],
            "settings": {"durable": True, "auto_delete": False, "arguments": {}},
            "before": None,
        }
    ]
    assert node.run("apply", str(file), "--yes", "--json") == cli.DONE
    assert json.loads(capsys.readouterr().out) == {"done": plan["changes"], "planned": 1}


def test_a_users_password_outlives_a_change_of_his_tags(node: Node, tmp_path: Path, capsys: Captured):
    node.broker.access.add_user("shop", "sesame", ("monitoring",))
    file = tmp_path / "u.toml"
    file.write_text("[users.shop]\ntags = ['management']\n[users.new]\n")
    said(node, capsys, "apply", str(file), "--yes")
    assert set(node.broker.access.authenticate("shop", "sesame").tags) == {"management"}
    assert node.run("plan", str(file)) == cli.DONE


def test_the_definitions_of_a_node_are_a_file_that_changes_nothing(
    node: Node, file: Path, tmp_path: Path, capsys: Captured
):
    node.run("apply", str(file), "--yes")
    said(node, capsys, "export", "--file", str(tmp_path / "all.json"))
    assert node.run("plan", str(tmp_path / "all.json"), "--prune", "--manage", "") == cli.DONE


ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/topology-as-code.md").read_text()


def test_the_example_has_no_mistake_and_can_be_applied(node: Node, capsys: Captured):
    example = str(ROOT / "examples/23_topology.toml")
    assert said(node, capsys, "lint", example) == "nothing found\n"
    said(node, capsys, "apply", example, "--yes")
    assert node.run("plan", example, "--prune") == cli.DONE


def test_the_file_on_the_page_is_one(node: Node, tmp_path: Path, capsys: Captured):
    (tmp_path / "page.toml").write_text(PAGE.partition("```toml\n")[2].partition("```")[0])
    node.run("lint", str(tmp_path / "page.toml"))
    assert "missing-alternate-exchange" in capsys.readouterr().out


def test_what_a_release_of_rabbitmq_refuses_is_told_if_asked(node: Node, tmp_path: Path, capsys: Captured):
    file = tmp_path / "old.toml"
    file.write_text(
        "[virtual_hosts.'/'.queues.q]\ndurable = false\nbindings = [{ exchange = 'amq.fanout' }]\n"
    )
    assert node.run("lint", str(file), "--for", "rabbitmq-4.2") == cli.DONE
    assert node.run("lint", str(file), "--for", "rabbitmq-4.3") == cli.PENDING
    assert "rabbitmq-4.3 refuses queues that are neither durable nor exclusive" in capsys.readouterr().out


def test_the_page_lists_every_rule():
    assert set(re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)) == {*RULES, releases.CODE, MESSAGE_SIZE}


def test_a_running_node_is_linted_by_the_same_rules(node: Node, capsys: Captured):
    node.host.declare_queue("alone", durable=True, arguments={"x-dead-letter-exchange": "gone"})
    said(node, capsys, "declare", "exchange", "quiet")
    assert node.run("lint", "--live", "--json") == cli.PENDING
    first, second = json.loads(capsys.readouterr().out)
    where = ("error", "missing-dead-letter-exchange", "queue 'alone' in vhost '/'")
    assert (first["severity"], first["code"], first["place"]) == where
    assert (second["severity"], second["code"]) == ("note", "exchange-drops")
    assert node.run("lint", "--live") == cli.PENDING
    assert re.fullmatch(
        r"error: missing-dead-letter-exchange\n  queue 'alone' in vhost '/': .+\n      .+\n"
        r"note: exchange-drops\n  exchange 'quiet' in vhost '/': .+\n      .+\n1 error, 1 note\n",
        capsys.readouterr().out,
    )
    assert node.run("lint") == cli.REFUSED
    assert node.run("lint", "x.toml", "--live") == cli.REFUSED


NAMES = st.sampled_from(["a", "b", "c d", "ö/%", "e.f"])
ARGUMENTS = st.dictionaries(st.sampled_from(["x-max-length", "x-message-ttl"]), st.integers(0, 9), max_size=2)
QUEUES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["classic", "quorum"]),
        "durable": st.just(True),
        "arguments": ARGUMENTS,
    },
)
EXCHANGES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["direct", "topic", "fanout", "headers"]),
        "durable": st.booleans(),
        "internal": st.booleans(),
        "arguments": st.builds(lambda name: {"alternate-exchange": name}, NAMES),
    },
)
POLICIES = st.fixed_dictionaries(
    {"pattern": st.sampled_from(["", "^a", "b$"]), "definition": st.just({"max-length": 5})},
    optional={"priority": st.integers(-2, 2), "apply_to": st.sampled_from(["all", "queues"])},
)
BINDING = st.fixed_dictionaries(
    {"exchange": st.sampled_from(["amq.topic", "amq.headers"])},
    optional={
        "key": st.sampled_from(["", "k", "a.#"]),
        "arguments": st.dictionaries(NAMES, st.integers(1 - (1 << 63), (1 << 63) - 1), max_size=1),
    },
)
HOSTS = st.fixed_dictionaries(
    {"manage": st.just("")},
    optional={
        "queues": st.dictionaries(
            NAMES, st.tuples(QUEUES, st.lists(BINDING, max_size=2)).map(lambda q: {**q[0], "bindings": q[1]})
        ),
        "exchanges": st.dictionaries(NAMES, EXCHANGES),
        "policies": st.dictionaries(NAMES, POLICIES),
    },
)
TOPOLOGIES = st.fixed_dictionaries(
    {"virtual_hosts": st.dictionaries(st.sampled_from(["/", "prod/1"]), HOSTS, min_size=1)}
)


def toml(value: object) -> str:
    """JSON's values as TOML writes them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


@contextlib.contextmanager
def written(content: dict[str, object]) -> Iterator[str]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "t.toml")
        path.write_text("\n".join(f"{name} = {toml(value)}" for name, value in content.items()))
        yield str(path)


def quietly(node: Node, *arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = node.run(*arguments)
    return code, out.getvalue()


TYPED = """
[virtual_hosts.shop]
default_queue_type = "quorum"
[virtual_hosts.shop.queues.q]
[virtual_hosts.shop.queues.old]
type = "classic"
[virtual_hosts.shop.queues.fleeting]
durable = false
"""


def test_a_default_type_of_queues_is_set_and_counts(node: Node, tmp_path: Path, capsys: Captured):
    file = tmp_path / "typed.toml"
    file.write_text(TYPED)
    assert node.run("apply", str(file), "--yes") == cli.DONE
    shop = node.broker.virtual_hosts["shop"]
    assert shop.default_queue_type is QueueType.QUORUM
    assert {name: queue.type.value for name, queue in shop.queues.items()} == {
        "q": "quorum",
        "old": "classic",
        "fleeting": "classic",
    }
    for text in (TYPED, TYPED.replace('default_queue_type = "quorum"', "")):  # the node's is the same
        file.write_text(text)
        capsys.readouterr()
        assert node.run("plan", str(file)) == cli.DONE
        assert capsys.readouterr().out == "nothing to change\n"
    file.write_text(TYPED.replace('default_queue_type = "quorum"', 'default_queue_type = "stream"'))
    assert node.run("plan", str(file)) != cli.DONE
    assert 'default_queue_type: "quorum" -> "stream"' in capsys.readouterr().out


@given(TOPOLOGIES, TOPOLOGIES)
def test_after_apply_there_is_nothing_to_plan_whatever_was_there_before(
    before: dict[str, object], wanted: dict[str, object]
):
    node = Node()
    for content in (before, wanted):
        with written(content) as file:
            code, told = quietly(node, "apply", file, "--yes", "--replace", "--prune")
            assert code == cli.DONE, told
            code, told = quietly(node, "plan", file, "--prune")
            assert (code, told) == (cli.DONE, "nothing to change\n")


# Shovels and federation, which only definitions can name.

MOVED = "amqp://ann:secret@far"
PARAMETERS = {
    "vhosts": [{"name": "/"}],
    "parameters": [
        {"component": component, "vhost": "/", "name": name, "value": value}
        for component, name, value in (
            (
                "shovel",
                "shop-move",
                {"src-uri": MOVED, "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"},
            ),
            ("federation-upstream-set", "shop-all", [{"upstream": "shop-far"}]),
            ("federation-upstream", "shop-far", {"uri": MOVED, "expires": 1000}),
        )
    ],
}


def definitions(folder: Path, **changes: object) -> Path:
    """A definitions file with these parameters, of which some settings are changed."""
    content = json.loads(json.dumps(PARAMETERS))
    for row in content["parameters"]:
        if isinstance(row["value"], dict):
            row["value"].update({name: value for name, value in changes.items() if name in row["value"]})
    file = folder / "definitions.json"
    file.write_text(json.dumps(content))
    return file


def parameters(node: Node) -> dict[str, object]:
    found = parameters_of(node.broker, "/")
    return {each.name: each.value for _, each in found}


def test_shovels_and_federation_are_created_changed_and_deleted(
    node: Node, tmp_path: Path, capsys: Captured
) -> None:
    file = definitions(tmp_path)
    assert node.run("plan", str(file)) == cli.PENDING
    assert capsys.readouterr().out.splitlines()[:3] == [
        "+ create federation-upstream 'shop-far' in vhost '/'",
        "+ create federation-upstream-set 'shop-all' in vhost '/'",
        "+ create shovel 'shop-move' in vhost '/'",
    ]
    assert node.run("apply", str(file), "--yes") == cli.DONE
    assert parameters(node)["shop-far"] == {"uri": MOVED, "expires": 1000}
    assert node.run("plan", str(file), "--prune", "--manage", "^shop") == cli.DONE
    capsys.readouterr()
    file = definitions(tmp_path, expires=2000, uri="amqp://ann:other@far")
    assert node.run("apply", str(file), "--yes") == cli.DONE
    out = capsys.readouterr().out
    assert "~ change federation-upstream 'shop-far' in vhost '/'\n    uri: " in out
    assert "    expires: 1000 -> 2000\n" in out
    assert "secret" not in out
    assert "other" not in out
    assert parameters(node)["shop-far"] == {"uri": "amqp://ann:other@far", "expires": 2000}
    file.write_text('{"vhosts": [{"name": "/"}], "parameters": []}')
    assert node.run("apply", str(file), "--yes", "--prune", "--manage", "^shop") == cli.DONE
    assert "- delete shovel 'shop-move' in vhost '/'" in capsys.readouterr().out
    assert parameters(node) == {}


def test_a_file_that_cannot_name_shovels_deletes_none(node: Node, file: Path, tmp_path: Path) -> None:
    assert node.run("apply", str(definitions(tmp_path)), "--yes") == cli.DONE
    assert node.run("apply", str(file), "--yes", "--prune") == cli.DONE
    assert len(parameters(node)) == 3


def test_a_file_without_passwords_keeps_those_that_are_there(
    node: Node, tmp_path: Path, capsys: Captured
) -> None:
    assert node.run("apply", str(definitions(tmp_path)), "--yes") == cli.DONE
    capsys.readouterr()
    marked = definitions(tmp_path, **{"src-uri": hidden(MOVED), "uri": hidden(MOVED)})
    assert node.run("plan", str(marked)) == cli.DONE
    changed = definitions(tmp_path, **{"src-uri": hidden(MOVED), "uri": hidden(MOVED), "src-queue": "c"})
    assert node.run("apply", str(changed), "--yes") == cli.DONE
    assert parameters(node)["shop-move"]["src-uri"] == MOVED
    json_ = node.run("plan", str(definitions(tmp_path, **{"src-queue": "d"})), "--json")
    assert json_ == cli.PENDING
    assert "secret" not in capsys.readouterr().out
