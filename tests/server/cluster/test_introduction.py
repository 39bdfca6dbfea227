"""The header by which a node introduces a client to the owner: made by nodes only, and used once."""

from __future__ import annotations

import hmac
from typing import Final

import pytest

from leveret.config.types import Address
from leveret.server.cluster.introduction import (
    CODE_SIZE,
    NAME_SIZE,
    SERIALS,
    WINDOW,
    Announcement,
    SeenSerials,
    Serials,
    Succession,
    introduction,
    listener_of,
    notice,
)
from leveret.server.node.proxy_protocol import BadHeader, ProxiedRoute, header_in

KEY: Final = b"k" * 32
NAME: Final = b"n" * NAME_SIZE
ROUTES: Final = (
    ProxiedRoute("192.0.2.1", 4000, "192.0.2.2", 5672),
    ProxiedRoute("2001:db8::1", 1, "::1", 2),
    None,
)


@pytest.mark.parametrize("route", ROUTES)
def test_a_header_names_client_and_listener_and_is_taken_once(route: ProxiedRoute | None) -> None:
    seen, serials = SeenSerials(), Serials(NAME)
    header = introduction(route, "amqp", KEY, serials.next())
    found = header_in(header)
    assert found is not None
    assert (found.size, found.route) == (len(header), route)
    assert listener_of(header, KEY, seen) == "amqp"
    with pytest.raises(BadHeader, match="used before"):
        listener_of(header, KEY, seen)
    assert listener_of(introduction(route, "amqp", KEY, serials.next()), KEY, seen) == "amqp"


def test_a_header_of_somebody_else_uses_up_no_number() -> None:
    seen, serial = SeenSerials(), Serials(NAME).next()
    with pytest.raises(BadHeader, match="no node of the cluster"):
        listener_of(introduction(None, "amqp", b"other" * 6, serial), KEY, seen)
    assert listener_of(introduction(None, "amqp", KEY, serial), KEY, seen) == "amqp"


def test_a_header_without_a_number_is_refused() -> None:
    header = introduction(None, "amqp", KEY, b"")
    with pytest.raises(BadHeader, match="serial"):
        listener_of(header, KEY, SeenSerials())
    assert header[-CODE_SIZE:] == hmac.digest(KEY, header[:-CODE_SIZE], "sha256")


def test_numbers_may_come_in_any_order_within_a_window_and_relays_do_not_disturb_each_other() -> None:
    seen, other = SeenSerials(), b"o" * NAME_SIZE
    for number in (5, 3, 4, 1_000, 7, 6, WINDOW + 4):
        seen.take(SERIALS.pack(NAME, number))
        seen.take(SERIALS.pack(other, number))
    for number in (5, 4, 1_000, WINDOW + 4, 0):  # the last is too old to be known
        with pytest.raises(BadHeader):
            seen.take(SERIALS.pack(NAME, number))
    seen.take(SERIALS.pack(NAME, 8))
    seen.take(SERIALS.pack(NAME, 10 * WINDOW))
    with pytest.raises(BadHeader):
        seen.take(SERIALS.pack(NAME, WINDOW + 3))


def test_news_of_a_takeover_are_for_the_one_that_has_the_key_and_hide_the_new_one() -> None:
    seen, serials, heard = SeenSerials(), Serials(NAME), list[Succession]()
    news = Succession(
        "b", 7, Announcement(Address("10.0.0.2", 5680), b"secret of the next owner...32.."[:32].ljust(32))
    )
    header = notice(news, KEY, serials.next())
    assert news.announcement.key not in header
    assert news.announcement.key.hex().encode() not in header
    found = header_in(header)
    assert found is not None
    assert found.size == len(header)
    with pytest.raises(BadHeader, match="no node of the cluster"):
        listener_of(header, b"other" * 6, seen, heard.append)
    assert heard == []
    for _ in range(2):
        with pytest.raises(BadHeader, match=r"node b|used before"):
            listener_of(header, KEY, seen, heard.append)
    assert heard == [news]
    again = notice(news, KEY, serials.next())
    assert again[-100:] != header[-100:], "the same key is hidden in another way"
