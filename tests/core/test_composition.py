"""From the configuration to a broker: a rehearsal of the start, and what a reload changes and leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_core.broker import Broker
from broker_core.composition import in_force, populate, protocols_of, rehearse, reload
from broker_core.config import Config, ConfigError, parse

PLUGIN = """
from broker_core.exchange import ExchangeType
class Mine(ExchangeType):
    name = "x-mine"
    def route(self, message):
        return []
"""


def running(config: Config) -> Broker:
    broker = Broker()
    populate(broker, config)
    return broker


def test_a_rehearsal_takes_what_would_start(tmp_path: Path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    exchange = {"name": "x", "vhost": "/", "type": "x-mine"}
    (tmp_path / "definitions.json").write_text(json.dumps({"exchanges": [exchange]}))
    rehearse(
        parse({"plugins": {"folders": ["."]}, "definitions": {"load": ["definitions.json"]}}, folder=tmp_path)
    )


def test_a_rehearsal_tells_at_once_what_plugins_listeners_and_definitions_would_stop(tmp_path: Path):
    (tmp_path / "bad.py").write_text("1 / 0")
    (tmp_path / "definitions.json").write_text('{"queues": [{"name": "q", "vhost": "absent"}]}')
    config = {
        "plugins": {"folders": ["."]},
        "listeners": [
            {"address": "a:1", "protocols": ["smtp"]},
            {"address": "a:2", "protocols": ["amqp091"]},
        ],
        "definitions": {"load": ["definitions.json"]},
    }
    with pytest.raises(ConfigError) as caught:
        rehearse(parse(config, folder=tmp_path))
    told = "\n".join(map(str, caught.value.problems))
    assert "bad.py: ZeroDivisionError: division by zero" in told
    assert "definitions.json: queues[0]: vhost absent not found" in told
    assert 'listeners[a:1].protocols: found "smtp", accepted: one of amqp091, http' in told
    assert len(caught.value.problems) == 3


def test_a_listener_that_would_serve_nothing_is_refused():
    config = parse({"protocols": {"amqp091": {"enabled": False}}})
    with pytest.raises(ConfigError, match=r"listeners\[127.0.0.1:5672\].protocols: found nothing"):
        protocols_of(config, config.listeners[0], {})


def test_a_virtual_host_that_the_file_names_no_longer_stays_until_a_restart_and_is_told_each_time():
    old = parse({"virtual_hosts": [{"name": "/"}, {"name": "/two"}]})
    new = parse({"virtual_hosts": [{"name": "/"}]})
    broker = running(old)
    for _ in range(2):
        report = reload(broker, old, new)
        assert (report.changed, report.needs_restart) == ((), ('virtual_hosts["/two"]',))
        assert set(broker.virtual_hosts) == {"/", "/two"}
        old = in_force(old, new)


def test_a_key_that_needs_a_restart_is_told_at_each_reload():
    old = parse({})
    new = parse({"log": {"level": "debug", "format": "json"}, "compat": {"profile": "rabbitmq-4"}})
    broker = running(old)
    first = reload(broker, old, new)
    assert (first.changed, first.needs_restart) == (("log.level",), ("log.format", "compat.profile"))
    held = in_force(old, new)
    assert (held.log.level, held.log.format, held.compat.profile) == ("debug", "text", "default")
    second = reload(broker, held, new)
    assert (second.changed, second.needs_restart) == ((), ("log.format", "compat.profile"))
