"""Lists of what protocols keep: the page shows each as the node tells it, and knows no protocol."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.harness.kept import Lamps
from tests.harness.paho import Paho

from .conftest import SETTINGS, PageNode, Visit
from .walking import arrived, confirm, go, headed, row, told

pytestmark = pytest.mark.system

MQTT = """
[[listeners]]
address = "127.0.0.1:0"
protocols = ["mqtt"]
"""


@pytest.fixture
def lamps(node: PageNode) -> Iterator[Lamps]:
    lamps = Lamps({"/": {f"lamp-{number:02}": number for number in range(60)}, "shop": {"a/b": 5}})
    before, node.node.broker.listings = node.node.broker.listings, {"amqp091": lamps.listings}
    yield lamps
    node.node.broker.listings = before


def test_a_list_has_a_view_with_the_columns_that_it_names(lamps: Lamps, page: Page) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Lamps").click()
    expect(headed(page, "Lamps")).to_be_visible()
    expect(page.get_by_text("61 Lamps")).to_be_visible()
    expect(page.locator("thead th")).to_have_text(["Name", "Virtual host", "Power", "Left", "On"])
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(row(page, "a/b").locator("td")).to_have_text(["a/b", "shop", "5", "–", "yes"])
    page.get_by_role("link", name="Power").click()
    expect(page.locator("tbody tr").first.locator("td").first).to_have_text("lamp-59")
    page.get_by_label("Search Lamps").fill("lamp-0")
    expect(page.locator("tbody tr")).to_have_count(10)


def test_one_is_looked_at_and_deleted(lamps: Lamps, page: Page) -> None:
    go(page, "kept", "amqp091", "lamps", "shop", "a/b")
    expect(headed(page, "Lamps: a/b")).to_be_visible()
    expect(page.get_by_label("Body")).to_have_text("shine")
    expect(page.get_by_role("heading", name="Parts")).to_be_visible()
    expect(row(page, "bulb").locator("td")).to_have_text(["bulb", "yes"])
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    told(page, "“a/b” is deleted")
    arrived(page, "kept", "amqp091", "lamps")
    assert lamps.of_host["shop"] == {}


def test_users_see_and_do_what_their_tags_allow(lamps: Lamps, visit: Visit) -> None:
    visit.expect_errors("401", "403")
    page = visit.enter("watcher", "sesame")
    go(page, "kept", "amqp091", "lamps", "shop", "a/b")
    expect(row(page, "bulb")).to_be_visible()
    expect(page.get_by_label("Body")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)


def test_users_that_may_not_see_lists_are_not_shown_any(lamps: Lamps, visit: Visit) -> None:
    page = visit.enter("keeper", "sesame")
    expect(page.get_by_role("link", name="Queues", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Lamps")).to_have_count(0)


@pytest.fixture(scope="module")
def serving() -> Iterator[PageNode]:
    node = PageNode(SETTINGS + MQTT)
    node.start()
    yield node
    node.stop()


def test_sessions_and_retained_messages_of_mqtt(serving: PageNode, browser: Browser) -> None:
    context = browser.new_context()
    client = Paho(SimpleNamespace(host="127.0.0.1", port=serving.port), "lamp-7", "5").start(
        clean=False, expiry=600
    )
    try:
        client.subscribe("room/#", 1)
        client.publish("room/1", b"on & off", 1, retain=True)
        visit = Visit(context, serving.page_url)
        page = visit.enter()
        page.get_by_role("link", name="MQTT sessions").click()
        expect(row(page, "lamp-7")).to_contain_text("mqtt-subscription-lamp-7qos1")
        page.get_by_role("link", name="lamp-7", exact=True).click()
        expect(row(page, "room/#")).to_be_visible()
        page.get_by_role("link", name="MQTT retained messages").click()
        page.get_by_role("link", name="room/1").click()
        expect(page.get_by_label("Body")).to_have_text("on & off")
        assert visit.unexpected == []
    finally:
        client.stop()
        context.close()
