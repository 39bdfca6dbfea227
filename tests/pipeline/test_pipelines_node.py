"""Pipelines in the configuration of a node: a real node, its processes, and a table, over kills of both."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.interop.conftest import need_module, wait_until
from tests.pipeline.conftest import LocalNode
from tests.pipeline.processes import command_of, descendants, kill

pika = need_module("pika")
polars = need_module("polars")
need_module("deltalake")

TIMEOUT_S = 60
LOGIN = "Basic Z3Vlc3Q6Z3Vlc3Q="  # guest:guest

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


class Works:
    """A node with a pipeline, which a test publishes to."""

    def __init__(self, folder: Path) -> None:
        self.lake = folder / "lake"
        settings = f'[[pipelines]]\nsources = ["orders"]\ntarget = "{self.lake}"\nevery = "100 ms"\n'
        self.node = LocalNode(folder / "data", settings)
        self.published = 0

    def publish(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.node.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
            channel.confirm_delivery()
            for _ in range(10):
                channel.basic_publish("", "orders", b"%d" % self.published)
                self.published += 1

    def state(self) -> dict[str, object]:
        request = Request(f"{self.node.url}/api/leveret/pipelines", headers={"Authorization": LOGIN})
        with urlopen(request) as answer:
            (found,) = json.load(answer)
        assert isinstance(found, dict)
        return found

    def is_archived(self) -> bool:
        """Whether the node knows that everything published is in the table."""
        found = self.state()
        positions = [each["position"] for each in found["partitions"]]  # type: ignore[attr-defined]
        return found["state"] == "running" and positions == [self.published]

    def child(self) -> int:
        (found,) = (each for each in descendants(self.node.pid) if "archive" in command_of(each))
        return found


def test_three_lines_of_settings_take_a_stream_to_a_table_whatever_is_killed(tmp_path: Path) -> None:
    works = Works(tmp_path)
    try:
        works.node.start()
        works.publish()
        wait_until(works.is_archived, "all is in the table", TIMEOUT_S)
        first = works.child()
        kill(first)
        works.publish()
        wait_until(works.is_archived, "all is in the table", TIMEOUT_S)
        second = works.child()
        assert second != first
        assert works.state()["starts"] == 2
        works.node.kill()
        gone = Path(f"/proc/{second}")
        wait_until(lambda: not gone.exists(), "the process has ended with its node", TIMEOUT_S)
        works.node.start()
        works.publish()
        wait_until(works.is_archived, "all is in the table", TIMEOUT_S)
    finally:
        works.node.kill()
    bodies = polars.read_delta(str(works.lake))["body"].cast(polars.String).cast(polars.Int64).to_list()
    assert sorted(bodies) == [*range(30)]


def test_a_node_that_ends_has_its_pipelines_end(tmp_path: Path) -> None:
    works = Works(tmp_path)
    try:
        works.node.start()
        works.publish()
        wait_until(works.is_archived, "all is in the table", TIMEOUT_S)
        child = works.child()
        works.node.end()
        assert not Path(f"/proc/{child}").exists()
    finally:
        works.node.kill()


def test_no_password_is_among_the_arguments_that_others_see(tmp_path: Path) -> None:
    works = Works(tmp_path)
    (tmp_path / "secret").write_text("guest\n")
    works.node.settings += f'password_file = "{tmp_path / "secret"}"\n'
    try:
        works.node.start()
        works.publish()
        wait_until(works.is_archived, "all is in the table", TIMEOUT_S)
        words = command_of(works.child())
        assert str(tmp_path / "secret") in words
        assert "LEVERET_PASSWORD" not in words
        environment = Path(f"/proc/{works.child()}/environ").read_bytes()
        assert b"LEVERET_PASSWORD" not in environment or "LEVERET_PASSWORD" in os.environ
    finally:
        works.node.kill()
