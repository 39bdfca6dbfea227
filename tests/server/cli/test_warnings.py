"""What is accepted and has no effect is told in each way: HTTP, command line, an import, lint, check."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from leveret.arguments.parameters import PARAMETERS
from leveret.arguments.policy_keys import POLICY_KEYS, PolicyKey
from leveret.arguments.queue_arguments import QUEUE_ARGUMENTS, QueueArgument
from leveret.arguments.row import Effect, Row
from leveret.limits import QueueType
from leveret.server import cli

from .node import Memory, Node

Printed = pytest.CaptureFixture[str]

ARGUMENTS: Final = [row for row in QUEUE_ARGUMENTS.values() if row.effect is Effect.NO_EFFECT]
KEYS: Final = [row for row in POLICY_KEYS.values() if row.effect is Effect.NO_EFFECT]
COMPONENTS: Final = [row for row in PARAMETERS.values() if row.effect is Effect.NO_EFFECT]
EXAMPLES: Final = {row.key: row.example for row in QUEUE_ARGUMENTS.values() if row.key}
ANY: Final = {"max-segment-size": 5}


def ids(row: Row) -> str:
    return row.name


def kind_of(row: QueueArgument) -> str:
    return next(kind for kind in QueueType if kind in row.types).value


def value_of(row: PolicyKey) -> object:
    return EXAMPLES.get(row.name, ANY.get(row.name, "all"))


def got(node: Node, path: str) -> Any:
    """Return what a GET answers."""
    return Memory(node).ask("GET", path).content


def check(file: Path) -> int:
    options = cli.parser(os.environ).parse_args(["check", str(file)])
    return int(options.command(options, {}))


def lint(file: Path) -> int:
    return Node().run("lint", str(file))


@pytest.mark.parametrize("row", ARGUMENTS, ids=ids)
def test_an_argument_without_effect_is_told_in_each_way(
    row: QueueArgument, tmp_path: Path, capsys: Printed
) -> None:
    node, kind = Node(), kind_of(row)
    argument = f"{row.name}={json.dumps(row.example)}"
    assert node.run("declare", "queue", "q", "--type", kind, "--argument", argument) == 0
    out, err = capsys.readouterr()
    assert out == "queue 'q' is made in vhost '/'\n"
    assert err.startswith(f"leveret: warning: {row.name} has no effect here")
    (warning,) = got(node, "/api/queues/%2F/q")["warnings"]
    assert err == f"leveret: warning: {warning}\n"
    assert got(node, "/api/queues/%2F")[0]["warnings"] == [warning]

    queue = {"name": "q", "vhost": "/", "arguments": {"x-queue-type": kind, row.name: row.example}}
    must_be_told_of_definitions({"queues": [queue]}, warning, tmp_path, capsys)


@pytest.mark.parametrize("row", KEYS, ids=ids)
def test_a_policy_key_without_effect_is_told_in_each_way(
    row: PolicyKey, tmp_path: Path, capsys: Printed
) -> None:
    node, value = Node(), value_of(row)
    assert node.run("policy", "set", "p", "^q", "--set", f"{row.name}={json.dumps(value)}") == 0
    err = capsys.readouterr().err
    (warning,) = got(node, "/api/policies/%2F/p")["warnings"]
    assert err == f"leveret: warning: {warning}\n"
    assert warning.startswith(f"{row.name} has no effect here")
    policy = {"name": "p", "vhost": "/", "pattern": "^q", "definition": {row.name: value}}
    must_be_told_of_definitions({"policies": [policy]}, warning, tmp_path, capsys)
    table = f'[[policies]]\nname = "p"\npattern = "^q"\ndefinition = {{ {row.name} = {json.dumps(value)} }}\n'
    (tmp_path / "leveret.toml").write_text(table)
    assert check(tmp_path / "leveret.toml") == 0
    assert f"leveret: warning: policy 'p' in vhost '/': {warning}\n" in capsys.readouterr().err


@pytest.mark.parametrize("row", COMPONENTS, ids=ids)
def test_parameters_without_effect_are_told_on_import_and_refused_alone(
    row: Row, tmp_path: Path, capsys: Printed
) -> None:
    parameter = {"component": row.name, "vhost": "/", "name": "p", "value": {"a": 1}}
    must_be_told_of_definitions(
        {"parameters": [parameter]}, f"{row.name} has no effect here", tmp_path, capsys
    )
    path, body = f"/api/parameters/{quote(row.name)}/%2F/p", b'{"value": {"a": 1}}'
    answer = Memory(Node()).ask("PUT", path, None, body, {})
    assert answer.status == 400
    assert answer.reason.strip().endswith(row.instead)


def must_be_told_of_definitions(content: object, warning: str, folder: Path, capsys: Printed) -> None:
    """Check that an import, a check of a file that loads it, and lint tell a warning."""
    file = folder / "definitions.json"
    file.write_text(json.dumps(content))
    assert Node().run("import", str(file)) == 0
    out = capsys.readouterr().out
    assert out.startswith("imported: ")
    assert warning in out.partition("\nignored, because it has no effect here:\n")[2]
    assert Node().run("import", str(file), "--json") == 0
    assert warning in json.loads(capsys.readouterr().out)["ignored"][0]
    (folder / "loading.toml").write_text('[definitions]\nload = ["definitions.json"]\n')
    assert check(folder / "loading.toml") == 0
    assert warning in capsys.readouterr().err
    assert lint(file) == 4
    assert warning in capsys.readouterr().out


def test_a_misspelt_argument_is_told_when_an_exchange_or_a_binding_is_declared(capsys: Printed) -> None:
    node = Node()
    assert node.run("declare", "exchange", "x", "--argument", "alternate-exchang=y", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["warnings"] == [
        "alternate-exchang is not known here and has no effect; did you mean alternate-exchange?"
    ]
    assert got(node, "/api/exchanges/%2F/x")["warnings"] == told["warnings"]
    assert node.run("declare", "queue", "q", "--argument", "x-max-lenght=5") == 0
    assert "did you mean x-max-length?" in capsys.readouterr().err
    assert node.run("bind", "x", "q", "--key", "k", "--argument", "x-mach=all") == 0
    assert capsys.readouterr().err == "leveret: warning: x-mach is not known here and has no effect\n"
    (bound,) = got(node, "/api/bindings/%2F/e/x/q/q")
    assert bound["warnings"] == ["x-mach is not known here and has no effect"]


def test_a_plan_tells_what_it_asks_for_in_vain(tmp_path: Path, capsys: Printed) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        '[virtual_hosts."/".queues.q]\narguments = { x-max-lenght = 5 }\n'
        '[virtual_hosts."/".policies.p]\npattern = "q"\ndefinition = { max-lenght = 5 }\n'
    )
    assert Node().run("plan", str(file)) == 4
    assert capsys.readouterr().err.splitlines() == [
        "leveret: warning: policy 'p' in vhost '/': max-lenght is refused; did you mean max-length?",
        "leveret: warning: queue 'q' in vhost '/': x-max-lenght is not known here and has no effect; "
        "did you mean x-max-length?",
    ]


def test_what_has_an_effect_is_told_without_a_warning(capsys: Printed) -> None:
    node = Node()
    assert node.run("declare", "queue", "q", "--argument", "x-max-length=5") == 0
    assert node.run("policy", "set", "p", "q", "--set", "max-length=5") == 0
    assert capsys.readouterr().err == ""


def test_a_column_to_sort_by_that_no_row_has_is_told(capsys: Printed) -> None:
    node = Node()
    node.host.declare_queue("q")
    for what in ("queues", "exchanges", "bindings"):
        assert node.run("list", what, "--sort", "nmae", "--json") == 0
        assert "nothing in this list has 'nmae'" in capsys.readouterr().err
    assert node.run("list", "queues", "--sort", "mesages") == 0
    assert "nothing in this list has 'mesages'; did you mean messages?" in capsys.readouterr().err
    assert node.run("list", "queues", "--sort", "messages") == 0
    assert capsys.readouterr().err == ""


def test_a_tag_that_gives_no_rights_and_looks_like_one_that_does_is_told(
    tmp_path: Path, capsys: Printed
) -> None:
    node = Node()
    assert node.run("user", "add", "u", "--no-password", "--tags", "admin,mine") == 0
    warning = "the tag admin gives no rights; did you mean administrator?"
    assert capsys.readouterr().err == f"leveret: warning: {warning}\n"
    assert node.run("user", "tags", "u", "monitor", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["warnings"] == ["the tag monitor gives no rights; did you mean monitoring?"]
    users = {"users": [{"name": "u", "password_hash": "", "tags": ["admin", "mine"]}]}
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(users))
    assert Node().run("import", str(file)) == 0
    assert warning in capsys.readouterr().out
    (tmp_path / "leveret.toml").write_text('[[users]]\nname = "u"\npassword = "p"\ntags = ["admin"]\n')
    assert check(tmp_path / "leveret.toml") == 0
    assert capsys.readouterr().err == f"leveret: warning: user 'u': {warning}\n"


def test_a_table_of_a_protocol_that_is_not_there_is_told(tmp_path: Path, capsys: Printed) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text("[protocols.stomp]\nport = 61613\n[protocols.amqp91]\nenabled = true\n[protocols.http]\n")
    assert check(file) == 0
    assert capsys.readouterr().err.splitlines() == [
        "leveret: warning: protocols.stomp has no effect: there is no protocol of this name",
        "leveret: warning: protocols.amqp91 has no effect: there is no protocol of this name; did you mean amqp091?",
    ]


def test_a_table_of_a_protocol_that_no_listener_names_is_told(tmp_path: Path, capsys: Printed) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text("[protocols.mqtt]\nenabled = true\n")
    assert check(file) == 0
    told = "leveret: warning: protocols.mqtt has no effect: no listener names it in its protocols"
    assert capsys.readouterr().err.splitlines() == [told]
    for more in ("enabled = false", '[[listeners]]\naddress = "127.0.0.1:0"\nprotocols = ["mqtt"]'):
        file.write_text(f"[protocols.mqtt]\n{more}\n")
        assert check(file) == 0
        assert capsys.readouterr().err == ""


def test_a_variable_with_one_underscore_too_few_is_told(tmp_path: Path, capsys: Printed) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text("")
    environ = {
        "LEVERET_NODE_NAME": "a",
        "LEVERET_PORT": "tcp://10.0.0.1",
        "LEVERET_HTTP__ADDRESS": "127.0.0.1:0",
    }
    options = cli.parser(environ).parse_args(["check", str(file)])
    assert options.command(options, environ) == 0
    assert capsys.readouterr().err == (
        "leveret: warning: the environment variable LEVERET_NODE_NAME is not read; "
        "did you mean LEVERET_NODE__NAME?\n"
    )
