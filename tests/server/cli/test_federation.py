"""`leveret federation`: upstreams and sets that are set and deleted, links that are shown and begin anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leveret.features.federation.federation import federation_of
from tests.server.cli.node import Node

Printed = pytest.CaptureFixture[str]


def test_upstreams_and_sets_are_set_and_deleted(tmp_path: Path, capsys: Printed) -> None:
    node = Node()
    file = tmp_path / "u.json"
    file.write_text(json.dumps({"uri": "amqp://u:canary@h"}))
    assert node.run("federation", "set-upstream", "east", "--file", str(file), "--set", "max-hops=2") == 0
    assert "upstream 'east' is set" in capsys.readouterr().out
    assert node.run("federation", "set-upstream-set", "regions", "east", "west") == 0
    federation = federation_of(node.broker)
    assert [each.shown for each in federation.upstreams.parameters("/")] == [
        {"uri": "amqp://u:***@h", "max-hops": 2}
    ]
    assert [each.value for each in federation.sets.parameters("/")] == [
        [{"upstream": "east"}, {"upstream": "west"}]
    ]
    assert node.run("federation", "delete-upstream", "east", "--yes") == 0
    assert node.run("federation", "delete-upstream-set", "regions", "--yes") == 0
    assert node.run("federation", "delete-upstream", "east", "--yes") == 1
    assert node.run("federation", "set-upstream", "east") == 1
    assert "an upstream needs keys" in capsys.readouterr().err


def test_links_are_shown_and_an_unknown_one_is_not_restarted(capsys: Printed) -> None:
    node = Node()
    assert node.run("federation", "status") == 0
    assert "no federation-links" in capsys.readouterr().out
    assert node.run("federation", "restart-link", "ffff") == 1
    assert "there is no link 'ffff' in vhost '/'" in capsys.readouterr().err
