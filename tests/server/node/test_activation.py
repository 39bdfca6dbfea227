"""Sockets from a service manager, and the words for it, without one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from leveret.config.listener import ListenerEntry
from leveret.config.types import Address
from leveret.server.node.listener import listeners
from leveret.server.node.systemd import Handed, handed_over, notifier

ME = 4711


@pytest.fixture
def two() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        yield first, second


def test_a_listener_opens_its_own_socket_only_where_none_was_handed(two):
    first, second = two
    handed = Handed([("a", first), ("b", second)])
    entry = ListenerEntry(address=Address(*second.getsockname()))
    assert list(listeners(entry, handed)) == [second]
    with pytest.raises(OSError, match=r"cannot listen on .*in use"):
        list(listeners(entry, handed))  # it is taken once


def test_all_sockets_of_one_name_are_taken_together(two):
    handed = Handed([("web", two[0]), ("web", two[1])])
    assert handed.named("amqp") == []
    assert handed.named("web") == [*two]
    handed.refuse_the_rest()


def test_a_socket_that_nobody_took_is_refused_by_address_and_name(two):
    with pytest.raises(OSError, match=r"127\.0\.0\.1:\d+, called 'stray'"):
        Handed([("stray", two[0])]).refuse_the_rest()


def given(count: str, names: str = "", process: int = ME) -> dict[str, str]:
    return {"LISTEN_PID": str(process), "LISTEN_FDS": count, "LISTEN_FDNAMES": names, "HOME": "/"}


def taken_over(listener: socket.socket, environ: dict[str, str]) -> Handed:
    return handed_over(environ, ME, os.dup(listener.fileno()))


def test_handed_sockets_are_neither_blocking_nor_inherited_nor_told_of_to_children(two):
    environ = given("1", "web")
    (taken,) = taken_over(two[0], environ).named("web")
    with taken:
        assert (taken.getblocking(), taken.get_inheritable()) == (False, False)
        assert taken.getsockname() == two[0].getsockname()
    assert environ == {"HOME": "/"}


def test_a_socket_without_a_name_is_called_unknown_as_systemd_does(two):
    environ = given("1")
    del environ["LISTEN_FDNAMES"]
    handed = taken_over(two[0], environ)
    (taken,) = handed.named("unknown")
    with taken:
        assert taken.getsockname() == two[0].getsockname()


@pytest.mark.parametrize("count", ["", "-1", "two", "1025", "²"])
def test_a_count_that_is_none_is_refused(count: str):
    with pytest.raises(OSError, match="LISTEN_FDS is"):
        handed_over(given(count), ME)


def test_what_is_for_another_process_is_forgotten():
    environ = given("70", process=ME + 1)
    handed_over(environ, ME).refuse_the_rest()
    assert environ == {"HOME": "/"}


def test_a_descriptor_that_is_not_open_is_told():
    with pytest.raises(OSError, match=r"was handed descriptor \d+: "):
        handed_over(given("1"), ME, first=1_000_000)


def test_a_service_manager_is_heard_of_by_a_name_without_a_file():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0leveret-test-" + str(os.getpid()))
        name = "@" + manager.getsockname()[1:].decode()
        tells = notifier({"NOTIFY_SOCKET": name}, ME)
        tells.stopping("bye")
        tells.close()
        assert manager.recv(100) == b"STOPPING=1\nSTATUS=bye"


@pytest.mark.parametrize("address", ["", "@", "relative", "vsock:2:1234"])
def test_nobody_is_told_without_an_address_that_is_understood(address: str):
    tells = notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}, ME)
    tells.ready("here")
    assert tells.feed_every_s is None


def test_a_service_manager_that_has_gone_is_no_harm():
    tells = notifier({"NOTIFY_SOCKET": "/nowhere/at/all"}, ME)
    tells.ready("here")
    tells.close()


@pytest.mark.parametrize(
    ("variables", "every_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(ME)}, 15),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_fed_twice_in_its_time_if_it_watches_this_process(
    variables: dict[str, str], every_s: float | None
):
    environ = {"NOTIFY_SOCKET": "/nowhere", **variables}
    tells = notifier(environ, ME)
    tells.close()
    assert tells.feed_every_s == every_s
    assert environ == {}
