"""From the configuration to a broker: a rehearsal of the start, and what a reload changes and leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
import pytest

from leveret.broker import Broker
from leveret.config.config import Config, ConfigError, parse
from leveret.front_end import Protocol
from leveret.policy import Policy
from leveret.protocols.http.registration import PROTOCOL
from leveret.security.users import Permission
from leveret.server.node.assembly import in_force, populate, protocols_of, reload, web_pages
from leveret.server.node.start_check import rehearse

if TYPE_CHECKING:
    from leveret.server.node.node import Node

PLUGIN = """
from leveret.exchanges.exchange_type import ExchangeType
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


USERS = {"users": [{"name": "ann", "password": "carrots", "tags": "administrator"}]}


@pytest.mark.parametrize(
    ("content", "config", "names"),
    [
        (USERS, {}, ["ann"]),
        ({"queues": []}, {}, ["guest"]),
        (USERS, {"users": [{"name": "bob", "password": "turnips"}]}, ["ann", "bob"]),
    ],
)
def test_the_user_guest_is_not_made_beside_users_of_definitions(
    content: object, config: dict[str, object], names: list[str], tmp_path: Path
):
    (tmp_path / "definitions.json").write_text(json.dumps(content))
    broker = running(parse({**config, "definitions": {"load": ["definitions.json"]}}, folder=tmp_path))
    assert sorted(user.name for user in broker.access.users()) == names


@attrs.frozen
class Listening:
    """As much of a listener as the first screen asks for."""

    address: str
    protocols: tuple[Protocol, ...]
    is_secured: bool = False

    @property
    def entrance(self) -> Listening:
        return self


HTTP, AMQP = Protocol("http", (), PROTOCOL.factory), Protocol("amqp", (), PROTOCOL.factory)


@attrs.frozen
class Listeners:
    listening: tuple[Listening, ...]


def test_the_web_page_is_told_by_an_address_that_a_browser_opens():
    node = Listeners(
        (
            Listening("127.0.0.1:5672", (AMQP,)),
            Listening("127.0.0.1:15672", (HTTP,)),
            Listening("0.0.0.0:15671", (HTTP,), is_secured=True),
            Listening("[::]:80", (AMQP, HTTP)),
            Listening("unix:/run/leveret", (HTTP,)),
        )
    )
    assert web_pages(cast("Node", node)) == [
        "http://127.0.0.1:15672/", "https://localhost:15671/", "http://localhost:80/",
    ]  # fmt: skip


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
    assert "definitions.json: queue 'q' in vhost 'absent' (queues[0]): vhost absent not found" in told
    assert 'listeners[0].protocols: found "smtp", accepted: one of amqp010, amqp091, amqp10, http' in told
    assert len(caught.value.problems) == 3


def test_a_listener_that_would_serve_nothing_is_refused():
    config = parse({"protocols": {"amqp091": {"enabled": False}}})
    with pytest.raises(ConfigError, match=r"listeners\[0\].protocols: found nothing"):
        protocols_of(config, config.listeners[0], "listeners[0]", {})


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
    new = parse({"log": {"level": "debug"}, "node": {"name": "x"}, "compat": {"profile": "rabbitmq-4"}})
    broker = running(old)
    first = reload(broker, old, new)
    assert (first.changed, first.needs_restart) == (("log.level",), ("node.name", "compat.profile"))
    held = in_force(old, new)
    assert (held.log.level, held.node.name, held.compat.profile) == ("debug", "leveret", "default")
    second = reload(broker, held, new)
    assert (second.changed, second.needs_restart) == ((), ("node.name", "compat.profile"))


def with_user(name: str = "u", **said: object) -> Config:
    hosts = [{"name": "/"}, {"name": "/two"}]
    return parse({"virtual_hosts": hosts, "users": [{"name": name, "password": "secret", **said}]})


ALL = {"configure": ".*", "write": ".*", "read": ".*"}


def test_a_reload_takes_from_a_user_what_the_file_gives_no_longer():
    topics = {"/": {"amq.topic": {"write": "^a$"}}}
    old = with_user(permissions={"/": ALL}, topic_permissions=topics, tags=["administrator"])
    new = with_user(permissions={"/two": ALL})
    broker = running(old)
    user = broker.access.user("u")
    assert user is not None
    assert broker.access.guards_topics(user, "/", "amq.topic")
    reload(broker, old, new)
    user = broker.access.user("u")
    assert user is not None
    assert user.tags == ()
    assert [broker.access.may_enter(user, host) for host in ("/", "/two")] == [False, True]
    assert not broker.access.guards_topics(user, "/", "amq.topic")


def test_a_reload_brings_users_and_takes_them():
    broker = running(with_user("before", permissions={"/": ALL}))
    reload(broker, with_user("before", permissions={"/": ALL}), with_user("after", permissions={"/": ALL}))
    assert broker.access.user("before") is None
    user = broker.access.user("after")
    assert user is not None
    assert broker.access.allowed(user, "/", Permission.WRITE, "x")


def test_a_reload_leaves_what_others_have_added_or_changed_since():
    config = with_user(permissions={"/": ALL})
    broker = running(config)
    broker.access.set_permissions("u", "/", "^$", "^$", "^$")
    broker.access.add_user("other", "secret")
    broker.policies.set(Policy("other", "/", ".*", {"max-length": 5}))
    reload(broker, config, attrs.evolve(config, log=parse({"log": {"level": "error"}}).log))
    user = broker.access.user("u")
    assert user is not None
    assert not broker.access.allowed(user, "/", Permission.WRITE, "x")
    assert broker.access.user("other") is not None
    assert [policy.name for policy in broker.policies.list()] == ["other"]


def with_policy(limit: int, operator: bool) -> Config:
    policy = {"name": "p", "pattern": "^q$", "operator": operator, "definition": {"max-length": limit}}
    return parse({"policies": [policy]})


@pytest.mark.parametrize("operator", [False, True])
def test_a_reload_brings_policies_changes_and_takes_them(operator: bool):
    none, two, one = parse({}), with_policy(2, operator), with_policy(1, operator)
    broker = running(none)
    queue = broker.virtual_host("/").declare_queue("q")
    for old, new, limit in ((none, two, 2), (two, one, 1), (one, none, None)):
        reload(broker, old, new)
        assert queue.limits.max_length == limit


def test_a_reload_changes_limits_at_once():
    old, new = (
        parse({}),
        parse({"limits": {"exchanges_max": 7, "consumer_timeout_ms": 5000, "queues_max": 9}}),
    )
    broker = running(old)
    queue = broker.virtual_host("/").declare_queue("q")
    reload(broker, old, new)
    assert broker.node_limits.max_exchanges == 7
    assert queue.limits.consumer_timeout_ms == 5000
    assert broker.virtual_host("/").limits.max_queues == 9
