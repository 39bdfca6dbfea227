"""`leveret shovel`: what is set, shown, begun anew and deleted; and passwords that are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leveret.features.shovels.shovels import shovels_of
from tests.server.cli.node import Node

Printed = pytest.CaptureFixture[str]


def test_a_shovel_is_set_listed_restarted_and_deleted(tmp_path: Path, capsys: Printed) -> None:
    node = Node()
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://u:canary@h"}))
    assert node.run("shovel", "set", "s", "--file", str(file), "--set", "dest-queue=b") == 0
    assert "shovel 's' is set" in capsys.readouterr().out
    assert node.run("shovel", "list", "--json") == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["name"], told["dest_uri"], told["dest_queue"]) == ("s", "amqp://u:***@h", "b")
    assert node.run("list", "shovels") == 0
    assert "amqp://u:***@h" in capsys.readouterr().out
    for flags, password in (((), "***"), (("--secrets",), "canary")):
        assert node.run("export", *flags) == 0
        (parameter,) = json.loads(capsys.readouterr().out)["parameters"]
        assert parameter["value"]["dest-uri"] == f"amqp://u:{password}@h"
    assert node.run("shovel", "restart", "s") == 0
    assert node.run("shovel", "delete", "s", "--yes") == 0
    capsys.readouterr()
    assert node.run("shovel", "delete", "s", "--yes") == 1
    assert "there is no shovel 's' in vhost '/'" in capsys.readouterr().err


def test_what_is_exported_with_secrets_is_imported(tmp_path: Path, capsys: Printed) -> None:
    node, other = Node(), Node()
    keys = ("src-uri=amqp://", "src-queue=a", "dest-uri=amqp://u:canary@h", "dest-queue=b")
    assert node.run("shovel", "set", "s", *(part for key in keys for part in ("--set", key))) == 0
    file = tmp_path / "all.json"
    assert node.run("export", "--secrets", "--file", str(file)) == 0
    assert other.run("import", str(file)) == 0
    assert shovels_of(other.broker).find("/", "s").value["dest-uri"] == "amqp://u:canary@h"
    assert node.run("export", "--file", str(file)) == 0
    assert Node().run("import", str(file)) == 1
    assert "the password of the URI 'amqp://u:***@h' is missing" in capsys.readouterr().err


def test_a_shovel_without_keys_is_refused(capsys: Printed) -> None:
    assert Node().run("shovel", "set", "s") == 1
    assert "a shovel needs keys" in capsys.readouterr().err
