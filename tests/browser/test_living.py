"""The page while time passes: new figures come, what the reader does stays, and the node may go and come back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import SETTINGS, PageNode, Visit
from .walking import fill, go, headed, opened, refresh, refresh_in_vain, row

pytestmark = pytest.mark.system

MANY = 10_000


def test_new_figures_come_by_themselves(page: Page, node: PageNode) -> None:
    page.clock.install()
    go(page, "queues")
    expect(page.get_by_text("There are no queues.")).to_be_visible()
    node.declare("orders", durable=True)
    page.clock.run_for(5000)  # nobody does anything
    expect(row(page, "orders")).to_be_visible()


def test_a_refresh_leaves_the_reader_alone(page: Page, node: PageNode) -> None:
    for number in range(40):
        node.declare(f"q{number:02}", durable=True)
    go(page, "queues")
    expect(row(page, "q39")).to_be_visible()
    form = opened(page, "Declare a queue")
    fill(form, name="half-typ")
    page.evaluate("document.querySelector('tbody tr').seen = true")
    page.evaluate("scrollTo(0, 300)")
    before = page.evaluate("scrollY")
    node.declare("q00a", durable=True)
    refresh(page)
    expect(row(page, "q00a")).to_be_visible()
    # it is the same row, not a new one
    assert page.evaluate("document.querySelector('tbody tr').seen") is True
    assert page.evaluate("scrollY") == before
    expect(form.locator("[name=name]")).to_have_value("half-typ")
    expect(form.locator("[name=name]")).to_be_focused()


def test_a_chart_moves_without_being_made_anew(page: Page) -> None:
    page.evaluate("document.querySelector('figure').seen = true")
    refresh(page)
    assert page.evaluate("document.querySelector('figure').seen") is True


def test_the_page_survives_the_nodes_restart(browser: Browser) -> None:
    first = PageNode()
    first.start()
    url = first.page_url
    context = browser.new_context()
    visit = Visit(context, url)
    page = visit.log_in()
    go(page, "queues")
    expect(headed(page, "Queues")).to_be_visible()
    page.clock.install()
    first.stop()
    refresh_in_vain(page)
    expect(page.get_by_text("Not up to date: the node does not answer")).to_be_visible()
    expect(page.get_by_role("banner").get_by_text("Unreachable")).to_be_visible()
    expect(headed(page, "Queues")).to_be_visible()
    port = url.rsplit(":", 1)[1].strip("/")
    second = PageNode(SETTINGS.replace('http.address = "127.0.0.1:0"', f'http.address = "127.0.0.1:{port}"'))
    second.start()
    second.declare("after", durable=True)
    page.clock.run_for(5000)
    expect(row(page, "after")).to_be_visible()
    expect(page.get_by_text("Not up to date")).to_have_count(0)
    expect(page.get_by_role("banner").get_by_text("Running")).to_be_visible()
    context.close()
    second.stop()
    visit.expect_errors("ERR_")
    assert visit.unexpected == []


def test_a_node_that_stands_still_is_slow_and_then_gone(page: Page, visit: Visit, node: PageNode) -> None:
    """Its figures have an age, and a click shows something."""
    node.declare("orders", durable=True)
    go(page, "queues")
    expect(row(page, "orders")).to_be_visible()
    banner = page.get_by_role("banner")
    page.clock.install()
    page.route("**/api/**", lambda route: None)  # no answer ever comes
    refresh_in_vain(page)
    page.clock.run_for(3000)
    expect(banner.get_by_text("Slow")).to_be_visible()
    expect(page.get_by_text(re.compile(r"These figures are \d+ s old."))).to_be_visible()
    expect(row(page, "orders")).to_be_visible()
    page.clock.run_for(12_000)
    expect(banner.get_by_text("Unreachable")).to_be_visible()
    expect(page.get_by_text("the node has not answered for 15 s")).to_be_visible()
    page.get_by_role("link", name="Exchanges").click()
    page.clock.run_for(1000)
    expect(headed(page, "Exchanges")).to_be_visible()
    expect(page.get_by_text("Waiting for the node.")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")
    refresh(page)
    expect(banner.get_by_text("Running")).to_be_visible()
    expect(page.get_by_text("These figures are")).to_have_count(0)
    visit.expect_errors("ERR_")


def test_ten_thousand_queues_are_read_page_by_page(page: Page, node: PageNode) -> None:
    def declare() -> None:
        host = node.node.broker.virtual_hosts["/"]
        for number in range(MANY):
            host.declare_queue(f"queue-{number:05}", durable=False)

    node.call(declare)
    go(page, "queues")
    expect(page.get_by_text("10,000 queues")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Last page").click()
    expect(row(page, "queue-09999")).to_be_visible()
    expect(page.get_by_text("Page 200 of 200")).to_be_visible()
    page.get_by_label("Search queues").fill("queue-0777")
    expect(page.get_by_text("10 of 10,000 queues")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.get_by_label("Search queues")).to_be_focused()
    assert "name=queue-0777" in page.url


def test_a_list_is_sorted_by_the_node(page: Page, node: PageNode) -> None:
    for name in ("a", "b", "c"):
        node.declare(name, durable=True)
    go(page, "queues")
    heading = page.get_by_role("columnheader", name="Name")
    heading.get_by_role("link").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    heading.get_by_role("link").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    expect(page.locator("tbody tr td[data-label=Name] a")).to_have_text(["c", "b", "a"])


def test_the_page_is_used_without_a_mouse(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True)
    go(page, "queues")
    expect(row(page, "orders")).to_be_visible()
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.get_by_role("link", name="orders").focus()
    page.keyboard.press("Enter")
    expect(headed(page, "Queue orders")).to_be_visible()
    expect(page.locator("#main")).to_be_focused()
    delete = page.get_by_role("button", name="Delete queue")
    delete.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(delete).to_be_focused()
    assert node.find("orders") is not None
