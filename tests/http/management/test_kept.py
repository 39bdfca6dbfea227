"""What a protocol keeps besides queues, over HTTP: listed as queues are, shown, deleted, by the tags that suffice."""

from __future__ import annotations

import pytest

from tests.harness.kept import Lamps

from .office import Office

LISTS = "/api/leveret/kept"
LAMPS = f"{LISTS}/amqp091/lamps"


@pytest.fixture
def lamps(office: Office) -> Lamps:
    lamps = Lamps({"/": {"a": 3, "b": 1, "c/d": 2}, "closed": {"a": 4}})
    office.broker.listings = {"amqp091": lamps.listings, "line": lamps.listings}
    return lamps


def test_the_lists_of_what_listeners_serve_say_what_their_pages_show(office: Office, lamps: Lamps) -> None:
    (found,) = office.get(LISTS)
    assert {name: found[name] for name in ("protocol", "list", "title", "deletable", "messages")} == {
        "protocol": "amqp091",
        "list": "lamps",
        "title": "Lamps",
        "deletable": True,
        "messages": True,
    }
    assert found["columns"] == [
        {"field": "power", "title": "Power", "shape": "count"},
        {"field": "left", "title": "Left", "shape": "seconds"},
        {"field": "on", "title": "On", "shape": "text"},
    ]
    office.broker.operations = None
    assert [each["protocol"] for each in office.get(LISTS)] == ["amqp091", "line"]


def test_a_list_is_sorted_paged_and_cut_to_columns(office: Office, lamps: Lamps) -> None:
    rows = office.get(f"{LAMPS}/%2F")
    assert [row["name"] for row in rows] == ["a", "b", "c/d"]
    assert rows[0] == {
        "name": "a",
        "vhost": "/",
        "power": 3,
        "left": None,
        "on": True,
        "parts": [{"part": "bulb", "is_new": True}],
    }
    found = office.get(f"{LAMPS}/%2F?page=1&page_size=2&sort=power&sort_reverse=true&columns=name,power")
    assert found["items"] == [{"name": "a", "power": 3}, {"name": "c/d", "power": 2}]
    assert (found["total_count"], found["page_count"]) == (3, 2)
    assert [row["name"] for row in office.get(f"{LAMPS}/%2F?page=1&name=d")["items"]] == ["c/d"]


def test_a_list_of_all_virtual_hosts_says_of_which_each_is(office: Office, lamps: Lamps) -> None:
    found = [(row["name"], row["vhost"]) for row in office.get(f"{LAMPS}?columns=name,vhost", user="watcher")]
    assert found == [("a", "/"), ("a", "closed"), ("b", "/"), ("c/d", "/")]
    lamps.of_host.clear()
    assert office.get(f"{LAMPS}?page=1&sort=power")["items"] == []


def test_what_goes_while_a_list_is_made_is_told_by_its_name(office: Office, lamps: Lamps) -> None:
    lamps.of_host["/"]["b"] = -1
    assert office.get(f"{LAMPS}/%2F?columns=name,vhost,power") == [
        {"name": "a", "vhost": "/", "power": 3},
        {"name": "b", "vhost": "/", "power": None},
        {"name": "c/d", "vhost": "/", "power": 2},
    ]


def test_one_is_shown_and_the_message_that_it_is(office: Office, lamps: Lamps) -> None:
    assert office.get(f"{LAMPS}/%2F/c%2Fd", user="watcher")["power"] == 2
    found = office.get(f"{LAMPS}/%2F/c%2Fd/message?truncate=3")
    assert (found["payload"], found["payload_bytes"], found["routing_key"]) == ("shi", 5, "lamp.c/d")
    assert office.ask("GET", f"{LAMPS}/%2F/c%2Fd/message", user="watcher").status in (401, 403)
    for path in ("e", "e/message"):
        assert office.ask("GET", f"{LAMPS}/%2F/{path}").status == 404
    assert office.ask("GET", f"{LAMPS}/nowhere/a").status == 404


def test_one_is_deleted(office: Office, lamps: Lamps) -> None:
    assert office.ask("DELETE", f"{LAMPS}/%2F/a", user="watcher").status in (401, 403)
    assert office.ask("DELETE", f"{LAMPS}/%2F/a").status == 204
    assert office.ask("DELETE", f"{LAMPS}/%2F/a").status == 404
    assert list(lamps.of_host["/"]) == ["b", "c/d"]


@pytest.mark.parametrize("path", [f"{LISTS}/line/none", f"{LISTS}/none/lamps", f"{LISTS}/none/lamps/%2F"])
def test_a_list_that_there_is_not_is_not_found(office: Office, lamps: Lamps, path: str) -> None:
    assert office.ask("GET", path).status == 404
