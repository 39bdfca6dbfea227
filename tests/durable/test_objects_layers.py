"""Who owns what: the configuration file, the store, and what is there where neither says anything."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from leveret.config.config import Config, ConfigError, parse
from leveret.limits import VirtualHostLimits
from leveret.policy import Policy
from leveret.security.passwords import PasswordHash
from leveret.security.users import User
from leveret.server.node.assembly import in_force, reload
from tests.durable.site import Site
from tests.harness.passwords import authenticate_password

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
DEFAULTS = parse({})


def with_user(name: str = "u", password: str = "of the file", **said: object) -> Config:
    return parse({"users": [{"name": name, "password": password, "permissions": {"/": ALL}, **said}]})


def with_policy(limit: int, operator: bool = False) -> Config:
    policy = {"name": "p", "pattern": "", "operator": operator, "definition": {"max-length": limit}}
    return parse({"policies": [policy]})


def knows(site: Site, name: str, password: str) -> bool:
    return authenticate_password(site.broker.access, name, password) is not None


def reloaded(site: Site, config: Config) -> Site:
    """The same node with another configuration."""
    reload(site.broker, site.config, config)
    site.config = in_force(site.config, config)
    site.settle()
    return site


def either_way(site: Site, config: Config) -> list[Site]:
    """A restart with another configuration, and a restart after a reload of it."""
    return [site.again(config), reloaded(site.again(), config), site.again(config).again()]


# The configuration file.


def test_what_the_configuration_names_is_not_kept() -> None:
    hosts = [{"name": "/"}, {"name": "two", "queues_max": 5}]
    topics = {"two": {"amq.topic": {"write": "w"}}}
    users = [{"name": "u", "password": "x", "permissions": {"two": ALL}, "topic_permissions": topics}]
    policies = [{"name": "p", "virtual_host": "two", "pattern": "", "definition": {"max-length": 1}}]
    config = parse({"virtual_hosts": hosts, "users": users, "policies": policies})
    assert Site(config=config).again().objects == {}
    assert reloaded(Site(), config).again().objects == {}


def test_what_the_configuration_names_no_longer_is_gone_after_a_restart_as_after_a_reload() -> None:
    for after in either_way(Site(config=with_user("before")), with_user("after")):
        assert (after.users(), after.permissions()) == (["after"], ["after@/"])
    for after in either_way(Site(config=with_policy(5)), DEFAULTS):
        assert after.policies() == []


def test_a_user_of_the_configuration_is_as_it_says_at_each_start() -> None:
    """What others change of it is good until then."""
    site = Site(config=with_user())
    site.broker.access.add_user("u", "of a client")
    site.broker.access.clear_permissions("u", "/")
    assert knows(site, "u", "of a client")
    after = site.again()
    assert knows(after, "u", "of the file")
    assert after.permissions() == ["u@/"]
    after.broker.access.delete_user("u")
    assert after.again().users() == ["u"]
    assert site.again().objects == after.objects == {}


def test_the_configuration_takes_over_a_user_that_a_client_has_made(site: Site) -> None:
    """From then on it is the file's: also when that names it no longer."""
    site.broker.access.add_user("u", "of a client")
    site.broker.access.set_permissions("u", "/", "mine", "", "")
    for after in either_way(site, with_user()):
        assert knows(after, "u", "of the file")
        assert (after.broker.access.permissions()[0][2].configure, after.kinds()) == (".*", [])
        assert after.again(DEFAULTS).users() == ["guest"]


def test_permissions_that_a_client_gives_to_a_user_of_the_configuration_are_kept() -> None:
    site = Site(config=with_user())
    site.broker.add_virtual_host("two")
    site.broker.access.set_permissions("u", "two", "", "", "")
    site.broker.access.set_topic_permissions("u", "two", "", "", "")
    after = site.again()
    assert after.permissions() == ["u@/", "u@two"]
    assert after.broker.access.topic_permissions() == site.broker.access.topic_permissions()


def test_permissions_go_with_a_user_whom_the_configuration_names_no_longer() -> None:
    """Or somebody who is called so one day would have them."""
    site = Site(config=with_user())
    site.broker.add_virtual_host("two")
    site.broker.access.set_permissions("u", "two", "", "", "")
    site.broker.access.set_topic_permissions("u", "two", "", "", "")
    for after in either_way(site, DEFAULTS):
        assert (after.permissions(), after.kinds()) == (["guest@/"], ["vhost"])
        after.broker.access.add_user("u")
        last = after.again()
        assert (last.permissions(), last.broker.access.topic_permissions()) == (["guest@/"], [])


@pytest.mark.parametrize("operator", [False, True])
def test_a_policy_of_the_configuration_is_as_it_says_and_holds_for_what_comes_back(operator: bool) -> None:
    site = Site()
    put = site.broker.policies.set_operator if operator else site.broker.policies.set
    put(Policy("p", "/", "", {"max-length": 3}))
    site.queue()
    for after in either_way(site, with_policy(7, operator)):
        assert after.host.queue("q").limits.max_length == 7
        put = after.broker.policies.set_operator if operator else after.broker.policies.set
        put(Policy("p", "/", "", {"max-length": 3}))
        assert after.again().host.queue("q").limits.max_length == 7
        assert after.again(DEFAULTS).host.queue("q").limits.max_length is None


def test_a_virtual_host_that_the_configuration_names_no_longer_stays_if_there_is_something_in_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "leveret.node")
    names = ["/", "queue", "exchange", "policy", "permission", "nothing"]
    site = Site(config=parse({"virtual_hosts": [{"name": name} for name in names]}))
    host = site.broker.virtual_host
    host("queue").declare_queue("q", durable=True)
    host("exchange").declare_exchange("x", "fanout", durable=True)
    host("nothing").declare_queue("transient")
    site.broker.policies.set(Policy("p", "policy", "", {"max-length": 5}))
    site.broker.access.set_permissions("guest", "permission", "", "", "")
    site.again()
    assert caplog.messages == []
    after = site.again(DEFAULTS)
    assert sorted(after.broker.virtual_hosts) == sorted(names[:-1])
    assert len(after.broker.virtual_host("queue").queues) == 1
    assert sorted(caplog.messages) == sorted(
        f"the configuration does not name vhost '{name}': it stays, with what it has in the store"
        for name in names[1:-1]
    )


def test_limits_of_the_configurations_virtual_hosts_are_as_it_says() -> None:
    config = parse({"virtual_hosts": [{"name": "/", "queues_max": 5}, {"name": "two"}]})
    site = Site()
    site.host.set_limits(VirtualHostLimits(1, 1))
    site.broker.add_virtual_host("two", VirtualHostLimits(2, 2))
    for after in either_way(site, config):
        assert after.host.limits == VirtualHostLimits(None, 5)
        assert after.broker.virtual_host("two").limits == VirtualHostLimits()
        after.host.set_limits(VirtualHostLimits(1, 1))
        assert after.again().host.limits == VirtualHostLimits(None, 5)
        assert after.kinds() == []


# What is there by default.


def test_the_built_in_user_is_there_until_somebody_deletes_him(site: Site) -> None:
    assert knows(site.again(), "guest", "guest")
    site.broker.access.delete_user("guest")
    after = site.again().again()
    assert (after.users(), after.permissions()) == ([], [])
    after.broker.access.add_user("guest", "new")
    last = after.again()
    assert (last.users(), last.permissions()) == (["guest"], [])
    assert not knows(last, "guest", "guest")


def test_a_password_that_was_changed_stays_changed(site: Site) -> None:
    site.broker.access.add_user("guest", "secret")
    after = site.again()
    assert knows(after, "guest", "secret")
    assert after.permissions() == ["guest@/"]
    after.broker.access.delete_user("guest")
    assert after.again().users() == []


def test_permissions_of_the_built_in_user_that_were_changed_or_cleared_stay_so(site: Site) -> None:
    site.broker.access.set_permissions("guest", "/", "mine", "", "")
    after = site.again()
    assert after.broker.access.permissions()[0][2].configure == "mine"
    after.broker.access.clear_permissions("guest", "/")
    assert after.again().again().permissions() == []


def test_who_needs_no_password_is_the_built_in_user_as_long_as_everybody_knows_his(site: Site) -> None:
    assert site.broker.access.anonymous_user == "guest"
    site.broker.access.put_user(User("guest"))
    assert site.again().broker.access.anonymous_user is None
    site.broker.access.add_user("guest", "secret")
    assert site.again().broker.access.anonymous_user is None
    said = parse({"security": {"anonymous_user": "guest"}})
    assert site.again(said).broker.access.anonymous_user == "guest"
    assert reloaded(site.again(said), DEFAULTS).broker.access.anonymous_user is None


def test_the_built_in_user_gives_way_to_those_of_the_configuration() -> None:
    for after in either_way(Site(), with_user()):
        assert (after.users(), after.again(DEFAULTS).users()) == (["u"], ["guest"])
        assert reloaded(after, DEFAULTS).again().users() == ["guest"]


def test_a_user_called_guest_that_a_client_has_made_does_not_give_way(site: Site) -> None:
    site.broker.access.add_user("guest", "secret")
    for after in either_way(site, with_user()):
        assert after.users() == ["guest", "u"]
        assert knows(after, "guest", "secret")


def test_the_built_in_virtual_host_is_there_until_somebody_deletes_it(site: Site) -> None:
    site.queue()
    site.broker.delete_virtual_host("/")
    after = site.again()
    assert list(after.broker.virtual_hosts) == []
    assert after.permissions() == []
    after.broker.add_virtual_host("/", VirtualHostLimits(1, 2))
    assert after.again().host.limits == VirtualHostLimits(1, 2)
    assert (
        after.again(parse({"virtual_hosts": [{"name": "/"}, {"name": "two"}]})).host.limits.max_queues is None
    )


def test_a_default_may_go_to_the_configuration_and_back(site: Site) -> None:
    """What a client deleted meanwhile is the file's, so it is there again."""
    site.broker.access.delete_user("guest")
    for after in either_way(site, with_user("guest", "named")):
        assert knows(after, "guest", "named")
        assert knows(after.again(DEFAULTS), "guest", "guest")
        assert knows(reloaded(after, DEFAULTS), "guest", "guest")
        after.broker.access.delete_user("guest")
        assert after.again().users() == []


def test_what_the_configuration_gives_up_is_the_clients_from_then_on() -> None:
    hosts = [{"name": "/"}, {"name": "two"}]
    user = {"name": "guest", "password": "named", "permissions": {"two": ALL}}
    policy = {"name": "p", "pattern": "", "definition": {"max-length": 5}}
    site = Site(config=parse({"users": [user], "virtual_hosts": hosts, "policies": [policy]}))
    reloaded(site, parse({"virtual_hosts": hosts}))
    site.broker.access.add_user("guest", "of a client")
    site.broker.access.set_permissions("guest", "two", "mine", "", "")
    site.broker.policies.set(Policy("p", "/", "", {"max-length": 3}))
    after = site.again()
    assert knows(after, "guest", "of a client")
    assert (after.permissions(), after.policies()) == (["guest@/", "guest@two"], ["p@/"])
    reloaded(site, DEFAULTS)
    site.host.set_limits(VirtualHostLimits(1, 1))
    assert site.again(DEFAULTS).host.limits == VirtualHostLimits(1, 1)


# Definitions files.


def test_what_definitions_files_make_is_kept(tmp_path: Path) -> None:
    definitions = {
        "vhosts": [{"name": "two"}],
        "users": [{"name": "u", "password_hash": PasswordHash.of("x", b"salt").text, "tags": []}],
        "permissions": [{"user": "u", "vhost": "two", "configure": "", "write": "", "read": ""}],
        "parameters": [
            {"component": "vhost-limits", "name": "limits", "vhost": "two", "value": {"max-queues": 5}}
        ],
        "policies": [{"name": "p", "vhost": "two", "pattern": "", "definition": {"max-length": 5}}],
        "queues": [{"name": "amq.gen-x", "vhost": "two", "arguments": {"x-max-length": 5}}],
        "exchanges": [{"name": "x", "vhost": "two", "type": "fanout"}],
        "bindings": [{"source": "x", "vhost": "two", "destination": "amq.gen-x"}],
    }
    site = Site(config=loading(tmp_path, definitions))
    after = site.again(DEFAULTS)
    assert after.shape() == site.shape()
    assert after.broker.virtual_host("two").limits.max_queues == 5
    assert site.again().shape() == site.shape()


def loading(folder: Path, definitions: object) -> Config:
    (folder / "definitions.json").write_text(json.dumps(definitions))
    return parse({"definitions": {"load": ["definitions.json"]}}, folder=folder)


def test_what_a_definitions_file_declares_otherwise_than_last_time_stays_as_it_is_in_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may hold messages. To be told so is better than a node that does not start."""

    def declaring(limit: int, type_: str) -> Config:
        queue = {"name": "q", "vhost": "/", "arguments": {"x-max-length": limit}}
        exchange = {"name": "x", "vhost": "/", "type": type_}
        return loading(tmp_path, {"queues": [queue], "exchanges": [exchange]})

    site = Site(config=declaring(5, "fanout"))
    assert caplog.messages == []
    assert site.again(declaring(6, "topic")).shape() == site.shape()
    exchange, queue = caplog.messages
    assert "inequivalent arg 'type' for exchange 'x'" in exchange
    assert "inequivalent arg 'x-max-length' for queue 'q'" in queue
    assert queue.endswith("; it stays as it is in the store")


@pytest.mark.parametrize(
    "definitions",
    [
        {"exchanges": [{"name": "amq.direct", "vhost": "/", "type": "topic"}]},
        {"queues": [{"name": "n", "vhost": "/"}, {"name": "n", "vhost": "/", "durable": False}]},
    ],
)
def test_definitions_that_contradict_the_broker_or_themselves_are_refused(
    tmp_path: Path, definitions: object, site: Site
) -> None:
    site.queue()
    with pytest.raises(ConfigError, match="inequivalent"):
        site.again(loading(tmp_path, definitions))


# Secrets.


def test_no_log_line_shows_a_password_or_its_hash(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    site = Site()
    user = site.broker.access.add_user("u", "pass word")
    assert user.password is not None
    hashed = user.password.text
    site.settle()
    site.damage('["user","u"]', json.dumps({"tags": 5, "password_hash": hashed, "password": "pass word"}))
    assert site.again().users() == ["guest"]
    assert "user" in caplog.text
    assert "pass word" not in caplog.text
    assert hashed not in caplog.text
