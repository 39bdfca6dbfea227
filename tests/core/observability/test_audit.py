"""The audit log: who did what, a line each, in a file for nobody else, without secrets, and bounded."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest

from leveret.broker import Broker
from leveret.client import Client
from leveret.clock import ManualClock
from leveret.config.config import ConfigError, parse
from leveret.errors import AccessRefused
from leveret.observability.audit import PATH_MAX, Audit
from leveret.security.access import Access
from leveret.server.node import assembly
from leveret.server.node.assembly import observe, populate
from tests.http.desk import CONFIG, Desk

Line = dict[str, object]


class Watched:
    """A broker with an audit log in a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.log"
        self.broker = Broker(ManualClock(), access=Access())
        self.broker.add_virtual_host("/")
        assembly.audit(self.broker, str(self.path))

    def client(self, read: str = ".*") -> Client:
        access = self.broker.access
        user = access.add_user("shop", "canary")
        access.set_permissions("shop", "/", ".*", ".*", read)
        client = Client(self.broker, user, "a -> b")
        client.enter("/")
        return client

    @property
    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def actions(self) -> list[tuple[object, object, object, object]]:
        return [(line["actor"], line["action"], line["object"], line["outcome"]) for line in self.lines]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_changes_are_told_with_who_made_them(watched: Watched) -> None:
    client = watched.client()
    client.declare_queue("q", arguments={"x-max-length": 5})
    client.bind("amq.topic", "q", False, "k", {})
    client.delete_queue("q")
    assert watched.actions()[2:] == [
        ("shop", "queue.created", "q", "ok"),
        ("shop", "binding.created", "amq.topic -> q", "ok"),
        ("shop", "queue.deleted", "q", "ok"),
        ("shop", "binding.deleted", "amq.topic -> q", "ok"),
    ]
    line = watched.lines[2]
    assert (line["vhost"], line["time"]) == ("/", "2001-09-09T01:46:40.000Z")
    details = line["details"]
    assert isinstance(details, dict)
    assert details["arguments"] == {"x-max-length": 5}
    assert "canary" not in watched.path.read_text()


def test_what_is_no_change_is_not_told(watched: Watched) -> None:
    client = watched.client()
    before = len(watched.lines)
    client.open_channel()
    client.declare_queue("q")
    client.declare_queue("q")
    client.close_channel()
    client.leave()
    assert [line["action"] for line in watched.lines[before:]] == ["queue.created"]


def test_a_refused_permission_is_told_with_what_it_was_for(watched: Watched) -> None:
    client = watched.client(read="^$")
    client.declare_queue("q")
    with pytest.raises(AccessRefused):
        client.readable_queue("q")
    line = watched.lines[-1]
    assert (line["actor"], line["action"], line["object"]) == ("shop", "permission.refused", "queue 'q'")
    assert (line["outcome"], line["vhost"]) == ("refused", "/")
    assert line["details"] == {"user": "shop", "permission": "read", "object": "queue 'q'"}


def test_logins_are_told_with_the_peer_and_the_protocol(watched: Watched) -> None:
    facts = {"name": "shop", "connection_name": "a -> b", "protocol": "AMQP 1.0", "auth_mechanism": "PLAIN"}
    watched.broker.events.happened("user.authentication.success", "", facts)
    watched.broker.events.happened("user.authentication.failure", "", {**facts, "error": "wrong password"})
    good, bad = watched.lines[-2:]
    assert (good["actor"], good["peer"], good["protocol"], good["outcome"]) == (
        "shop",
        "a -> b",
        "AMQP 1.0",
        "ok",
    )
    assert (bad["outcome"], bad["reason"]) == ("refused", "wrong password")


def test_refusals_cannot_fill_the_disk_and_are_counted(watched: Watched) -> None:
    client = watched.client(read="^$")
    client.declare_queue("q")
    before = len(watched.lines)
    for _ in range(1000):
        with pytest.raises(AccessRefused):
            client.readable_queue("q")
    written = len(watched.lines) - before
    assert written == 100
    clock = watched.broker.clock
    assert isinstance(clock, ManualClock)
    clock.advance(1.0)
    watched.broker.tick()
    client.declare_queue("changes are told all the same")
    with pytest.raises(AccessRefused):
        client.readable_queue("q")
    change, suppressed, refused = watched.lines[-3:]
    assert change["action"] == "queue.created"
    assert (suppressed["action"], suppressed["count"]) == ("audit.suppressed", 900)
    assert refused["action"] == "permission.refused"


def test_the_file_is_for_nobody_else_and_is_added_to(watched: Watched, tmp_path: Path) -> None:
    assert stat.S_IMODE(watched.path.stat().st_mode) == 0o600
    watched.broker.add_virtual_host("a")
    again = Watched(tmp_path)
    again.broker.add_virtual_host("b")
    assert [line["object"] for line in again.lines] == ["a", "b"]


def test_a_reload_opens_a_file_again_that_was_moved_away(watched: Watched) -> None:
    watched.broker.add_virtual_host("a")
    watched.path.rename(watched.path.with_name("old"))
    assembly.audit(watched.broker, str(watched.path))
    watched.broker.add_virtual_host("b")
    assert [line["object"] for line in watched.lines] == ["b"]
    assert stat.S_IMODE(watched.path.stat().st_mode) == 0o600


def test_a_reload_ends_it_or_takes_another_file(watched: Watched) -> None:
    other = watched.path.with_name("other")
    assembly.audit(watched.broker, str(other))
    watched.broker.add_virtual_host("a")
    assembly.audit(watched.broker, "")
    watched.broker.add_virtual_host("b")
    assert watched.lines == []
    assert len(other.read_text().splitlines()) == 1
    assert (watched.broker.guests.find(Audit), watched.broker.events.listeners) == (None, [])


def test_a_file_that_cannot_be_opened_changes_nothing(watched: Watched) -> None:
    with pytest.raises(OSError, match="No such file"):
        assembly.audit(watched.broker, str(watched.path.with_name("no") / "file"))
    watched.broker.add_virtual_host("a")
    assert len(watched.lines) == 1


def test_a_node_does_not_start_without_its_audit_log(tmp_path: Path) -> None:
    broker = Broker(ManualClock())
    with pytest.raises(ConfigError, match=r"log\.audit"):
        observe(broker, parse({"log": {"audit": str(tmp_path / "no" / "log")}}))


def test_a_full_disk_is_said_once(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    assembly.audit(watched.broker, "/dev/full")
    with caplog.at_level(logging.ERROR, "leveret.audit"):
        watched.broker.add_virtual_host("a")
        watched.broker.add_virtual_host("b")
    assert caplog.messages == ["cannot write to /dev/full: No space left on device"]


def test_it_may_be_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(ManualClock())
    broker.events.listeners.append(Audit(broker, "log"))
    with caplog.at_level(logging.INFO, "leveret.audit"):
        broker.add_virtual_host("a")
    assert json.loads(caplog.messages[0])["action"] == "vhost.created"


def test_names_stay_one_line(watched: Watched) -> None:
    watched.broker.add_virtual_host('a\n{"actor": "forged"}\u2028')
    assert len(watched.path.read_text().split("\n")) == 2
    assert watched.lines[0]["object"] == 'a\n{"actor": "forged"}\u2028'


def test_arguments_that_are_long_are_left_out(watched: Watched) -> None:
    watched.client().declare_queue("q", arguments={"x-mine": "a" * 5000})
    assert "details" not in watched.lines[-1]


def test_values_of_parameters_are_not_told(watched: Watched) -> None:
    facts = {"name": "up", "component": "federation-upstream", "value": {"uri": "amqp://u:canary@h"}}
    watched.broker.events.happened("parameter.set", "/", facts)
    assert "canary" not in watched.path.read_text()


def test_a_stranger_s_line_is_no_longer_than_others(tmp_path: Path) -> None:
    desk = Desk()
    path = tmp_path / "audit.log"
    assembly.audit(desk.broker, str(path))
    desk.ask("/" + "x" * 5000, "D" * 400, user=None)
    [line] = path.read_text().splitlines()
    assert len(line) < PATH_MAX + 300
    assert json.loads(line)["object"] == "/" + "x" * (PATH_MAX - 1) + "..."


def test_requests_over_http_that_change_something_are_told_with_their_outcome(tmp_path: Path) -> None:
    desk = Desk()
    populate(desk.broker, CONFIG)
    path = tmp_path / "audit.log"
    assembly.audit(desk.broker, str(path))
    desk.ask("/api/leveret/status")
    desk.ask("/api/leveret/reload", "POST")
    desk.ask("/api/leveret/reload?token=canary", "POST", user="management:sesame")
    desk.ask("/api/leveret/reload", "POST", user=None)
    desk.ask("/nothing", "DELETE")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [
        (each["actor"], each["action"], each["object"], each["status"], each["outcome"])
        for each in lines
        if each["action"].startswith("http.")
    ]
    assert told == [
        ("administrator", "http.post", "/api/leveret/reload", 200, "ok"),
        ("management", "http.post", "/api/leveret/reload", 403, "refused"),
        ("", "http.post", "/api/leveret/reload", 401, "refused"),
        ("", "http.delete", "/nothing", 404, "refused"),
    ]
    assert lines[0]["peer"] == "127.0.0.1:40000 -> 127.0.0.1:15672"
    assert "canary" not in path.read_text()
    assert "sesame" not in path.read_text()
