"""Pipelines that a node runs: the process of each, its state, and when it is started again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from leveret.config.config import Config, ConfigError, parse
from leveret.features.pipelines.supervised_pipeline import SupervisedPipeline, endpoint_at
from leveret.features.pipelines.supervised_pipelines import SupervisedPipelines
from leveret.operations import Listening, Program
from leveret.server.node.assembly import put_pipelines
from tests.harness.bench import ClientBench
from tests.harness.http import FakeNode
from tests.server.cli.node import Node

HTTP = Listening("127.0.0.1", 15672, ("http",), False)
ORDERS = {"sources": ["orders"], "target": "/lake/orders"}


class Launcher(FakeNode):
    """A node that starts no processes, and knows of each what it would have executed."""

    def __init__(self) -> None:
        super().__init__()
        self.programs: list[Program] = []
        self.ended: list[Program] = []
        self.there = [HTTP]

    def listeners(self) -> list[Listening]:
        return self.there

    def launch(self, program: Program) -> Callable[[], None]:
        self.programs.append(program)
        return lambda: self.ended.append(program)


class Works:
    """A broker whose configuration has pipelines; time passes when told."""

    def __init__(self) -> None:
        self.bench = ClientBench()
        self.broker = self.bench.broker
        self.node = Launcher()
        self.broker.operations = self.node

    def run(self, *entries: Mapping[str, object]) -> None:
        put_pipelines(self.broker, config_of(*entries))
        self.bench.advance(0.1)

    @property
    def pipelines(self) -> list[SupervisedPipeline]:
        return [*self.broker.guest(SupervisedPipelines).of("/")]

    @property
    def words(self) -> list[str]:
        """The arguments of the process that was started last."""
        return [*self.node.programs[-1].arguments]


def config_of(*entries: Mapping[str, object]) -> Config:
    return parse({"pipelines": [dict(each) for each in entries]}, {}, {}, Path("/etc"))


@pytest.fixture
def works() -> Works:
    return Works()


def test_three_lines_of_settings_start_a_process(works: Works) -> None:
    works.run(ORDERS)
    assert works.words[1:7] == ["-m", "leveret", "pipeline", "archive", "--continuous", "--with-input"]
    assert {"--endpoint=http://127.0.0.1:15672", "--user=guest", "--name=orders", "--every=10000ms"} < {
        *works.words
    }
    assert works.words[-3:] == ["--", "orders", "/lake/orders"]
    (pipeline,) = works.pipelines
    assert (pipeline.state, pipeline.starts) == ("starting", 1)
    pipeline.on_line("archive: 7 messages, about 70 bytes, and what comes: with pyarrow in this process")
    assert (pipeline.state, pipeline.reason) == ("running", "")


def test_all_settings_reach_the_process_and_no_password_does(works: Works) -> None:
    settings = {
        "name": "lake",
        "user": "etl",
        "password_file": "secret",
        "every": "500 ms",
        "batch": 1000,
        "partition_by": ["day", "stream"],
        "starting": "latest",
        "reader": "lake",
        "checkpoint": "/c",
        "endpoint": "https://broker",
        "tls": {"ca": "/ca.pem", "certificate": "own.pem", "key": "own.key", "minimum_version": "1.3"},
        "options": {"maxBytesPerTrigger": 1 << 20},
    }
    works.run({**ORDERS, "sources": ["orders", "-x"], **settings})
    assert {
        *("--name=lake", "--user=etl", "--password-file=/etc/secret", "--every=500ms", "--batch=1000"),
        *("--partition-by=day,stream", "--starting=latest", "--reader=lake", "--checkpoint=/c"),
        *("--endpoint=https://broker", "--ca-file=/ca.pem", "--option=maxBytesPerTrigger=1048576"),
        *("--option=tls.certFile=/etc/own.pem", "--option=tls.keyFile=/etc/own.key"),
        "--option=tls.minimumVersion=1.3",
    } < {*works.words}
    assert works.words[-4:] == ["--", "orders", "-x", "/lake/orders"]


def test_settings_of_decoding_reach_the_process(works: Works) -> None:
    settings = {
        "decode": "protobuf",
        "schema": "order.desc",
        "message": "shop.Order",
        "decode_prefix": "order_",
        "without_body": True,
        "undecoded": "/lake/other",
    }
    works.run({**ORDERS, **settings})
    assert {
        *("--decode=protobuf", "--schema=/etc/order.desc", "--message=shop.Order"),
        *("--decode-prefix=order_", "--without-body", "--undecoded=/lake/other"),
    } < {*works.words}
    registry = {
        "decode": "avro",
        "registry": "https://registry:8081",
        "registry_user": "lake",
        "registry_password_file": "secret",
        "registry_ca_file": "/ca.pem",
    }
    works = Works()
    works.run({**ORDERS, **registry})
    assert {
        *("--decode=avro", "--registry=https://registry:8081", "--registry-user=lake"),
        *("--registry-password-file=/etc/secret", "--registry-ca-file=/ca.pem"),
    } < {*works.words}
    works = Works()
    works.run({**ORDERS, "decode": "avro", "registry": "https://r", "registry_token_file": "token"})
    assert {"--registry-token-file=/etc/token"} < {*works.words}


def test_settings_of_decoding_that_make_no_sense_are_refused(works: Works) -> None:
    for settings, why in (
        ({"decode": "json"}, "either `schema` or `registry`"),
        ({"decode": "json", "schema": "/s", "registry": "https://r"}, "either `schema` or `registry`"),
        ({"schema": "/s"}, "a format, with `schema` or `registry`"),
        ({"decode": "avro", "registry": "https://u:sesame@r"}, "a URL without one"),
        ({"decode": "xml", "schema": "/s"}, "json"),
    ):
        with pytest.raises(ConfigError) as caught:
            works.run({**ORDERS, **settings})
        assert why in str(caught.value)
        assert "sesame" not in str(caught.value)


def test_the_process_understands_its_arguments(works: Works) -> None:
    import argparse

    from leveret.pipeline.cli import COMMAND

    works.run({**ORDERS, "partition_by": [], "password_file": "/p", "options": {"failOnDataLoss": False}})
    parser = argparse.ArgumentParser()
    COMMAND.add_to(parser, {})
    found = parser.parse_args(works.words[4:])
    assert (found.continuous, found.with_input, found.every, found.partition_by) == (
        *(True, True),
        *("10000 milliseconds", ()),
    )
    assert (found.sources, found.target, found.option) == (
        ["orders"],
        "/lake/orders",
        [("failOnDataLoss", "false")],
    )


def test_a_process_that_ends_is_started_again_later_each_time(
    works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    works.run(ORDERS)
    (pipeline,) = works.pipelines
    pipeline.on_line("leveret: /lake/orders cannot be written: No space left on device")
    with caplog.at_level(logging.WARNING, "leveret.pipeline"):
        pipeline.on_end("its process has ended with exit code 1")
    assert caplog.messages == [
        "pipeline 'orders' in vhost '/' has ended, and begins again in 1 s:"
        " /lake/orders cannot be written: No space left on device"
    ]
    assert (pipeline.state, pipeline.reason) == (
        "terminated",
        "/lake/orders cannot be written: No space left on device",
    )
    works.bench.advance(0.9)
    assert pipeline.starts == 1
    works.bench.advance(0.2)
    assert (pipeline.state, pipeline.starts) == ("starting", 2)
    pipeline.on_end("its process was ended by signal 9 (Killed)")
    assert pipeline.reason == "its process was ended by signal 9 (Killed)"
    works.bench.advance(1.1)
    assert pipeline.starts == 2
    works.bench.advance(1)
    assert pipeline.starts == 3
    for _ in range(10):
        pipeline.on_end("again")
        works.bench.advance(61)
    assert pipeline.starts == 13  # at least once a minute
    works.bench.advance(60)
    pipeline.on_end("after it has run for long")
    works.bench.advance(1.1)
    assert pipeline.starts == 14


def test_a_reload_ends_what_is_gone_and_leaves_what_has_not_changed(works: Works) -> None:
    refunds = {"sources": ["refunds"], "target": "/lake/refunds"}
    works.run(ORDERS, refunds)
    first, second = works.node.programs
    works.run(ORDERS, {**refunds, "batch": 10})
    assert works.node.ended == [second]
    assert works.pipelines[0] is first
    works.run(ORDERS, {**refunds, "batch": 10})  # again, as nothing has changed
    assert len(works.node.programs) == 2  # the old one still has the checkpoint
    second.on_end("its process has ended with exit code 0")
    works.bench.advance(61)
    assert len(works.node.programs) == 3
    works.run()
    assert works.pipelines == []
    assert len(works.node.ended) == 3


def test_of_pipelines_that_change_quickly_only_the_last_begins(works: Works) -> None:
    works.run(ORDERS)
    works.run({**ORDERS, "batch": 10})
    works.run({**ORDERS, "batch": 20, "name": "renamed"})
    (first,) = works.node.programs
    first.on_end("its process has ended with exit code 0")
    works.bench.advance(61)
    assert [each.entry.title for each in works.pipelines] == ["renamed"]
    assert "--batch=20" in works.words
    assert len(works.node.programs) == 2


def test_the_end_of_a_node_ends_processes_and_starts_none(works: Works) -> None:
    works.run(ORDERS)
    for guest in works.broker.guests:
        guest.stop()
    (program,) = works.node.ended
    program.on_end("its process has ended with exit code 0")
    works.bench.advance(61)
    assert len(works.node.programs) == 1


@pytest.mark.parametrize(
    ("listening", "url"),
    [
        ([HTTP], "http://127.0.0.1:15672"),
        ([Listening("0.0.0.0", 80, ("amqp091", "http"), False)], "http://127.0.0.1:80"),
        ([Listening("::", 80, ("http",), False)], "http://[::1]:80"),
        ([Listening("localhost", 443, ("http",), True), HTTP], "http://127.0.0.1:15672"),
        ([Listening("localhost", 443, ("http",), True)], "https://localhost:443"),
        ([Listening("localhost", 443, ("http",), True, tls_optional=True)], "http://localhost:443"),
        (
            [Listening("unix:/run/http", 0, ("http",), False), Listening("::1", 5672, ("amqp10",), False)],
            None,
        ),
    ],
)
def test_the_node_is_reached_where_it_listens(listening: list[Listening], url: str | None) -> None:
    assert endpoint_at(listening) == url


def test_a_node_without_http_says_that_it_is_needed(works: Works) -> None:
    works.node.there = []
    works.run(ORDERS)
    (pipeline,) = works.pipelines
    assert (pipeline.state, pipeline.starts) == ("terminated", 0)
    assert "no listener for http over TCP" in pipeline.reason
    works.node.there = [HTTP]
    works.bench.advance(2)
    assert pipeline.starts == 1


@pytest.mark.parametrize(
    ("entries", "where"),
    [
        ([{"sources": [], "target": "/lake"}], "pipelines[0].sources"),
        ([{"sources": ["a"], "target": "lake"}], "pipelines[0].target"),
        ([ORDERS, {**ORDERS, "target": "/lake/2"}], "pipelines[1].name"),
        ([ORDERS, {**ORDERS, "name": "again"}], "pipelines[1].target"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(entries: list[dict[str, object]], where: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of(*entries)
    assert [problem.where for problem in raised.value.problems] == [where]


def test_metrics_tell_whether_pipelines_run_and_how_often_they_were_started(works: Works) -> None:
    works.run(ORDERS)
    (pipeline,) = works.pipelines
    found = {each.name: each for each in works.broker.guest(SupervisedPipelines).metrics()}
    labels = {"vhost": "/", "pipeline": "orders"}
    assert [*found["leveret_pipeline_running"].samples] == [(labels, 0)]
    assert [*found["leveret_pipeline_starts_total"].samples] == [(labels, 1)]
    pipeline.on_line("archive: 7 messages")
    found = {each.name: each for each in works.broker.guest(SupervisedPipelines).metrics()}
    assert [*found["leveret_pipeline_running"].samples] == [(labels, 1)]


def test_the_command_lists_pipelines_with_their_states(capsys: pytest.CaptureFixture[str]) -> None:
    node = Node()
    put_pipelines(node.broker, config_of(ORDERS))
    next(iter(node.broker.guest(SupervisedPipelines).of("/"))).on_end("it cannot be started: no")
    for words in (("list", "pipelines"), ("list", "pipelines", "--vhost", "/")):
        assert node.run(*words) == 0
        head, row = capsys.readouterr().out.splitlines()
        assert head.split() == ["vhost", "name", "state", "rows", "behind", "reason"]
        assert row.split(maxsplit=5) == ["/", "orders", "terminated", "0", "0", "it cannot be started: no"]
