"""What a load of the page asks the node for: how many files, how often, and how many one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, Route, expect

from leveret.protocols.http import web_page
from leveret.protocols.http.web_page import File, Shipped, shipped

from .conftest import PageNode, Visit
from .walking import go, headed

pytestmark = pytest.mark.system

# Addresses of the page and its files, and how many bytes came over the wire: none for what the browser has kept.
LOADED = """
() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .map(({ name, transferSize }) => [new URL(name).pathname, transferSize])
    .filter(([path]) => path === "/" || path.startsWith("/ui/"))
"""
PICTURE = "() => document.images.length && [...document.images].every((each) => each.naturalWidth)"


@pytest.fixture
def fresh(browser: Browser) -> Iterator[BrowserContext]:
    """Return a browser that has kept nothing."""
    context = browser.new_context()
    yield context
    context.close()


def load(page: Page, node: PageNode) -> dict[str, int]:
    """Load the page up to its login; return the bytes that came of it and of each of its files."""
    page.goto(node.page_url)
    expect(page.get_by_role("button", name="Log in", exact=True)).to_be_visible()
    page.wait_for_function(PICTURE)
    loaded = page.evaluate(LOADED)
    assert len(dict(loaded)) == len(loaded), "something is loaded twice"
    return dict(loaded)


def addresses() -> set[str]:
    version = shipped().version
    return {f"/ui/{version}/{path}" for path in shipped().files if path != "index.html"}


def test_a_second_load_asks_for_the_page_alone(fresh: BrowserContext, node: PageNode) -> None:
    first = load(fresh.new_page(), node)
    assert set(first) == {"/", *addresses()}
    assert all(first.values())
    second = load(fresh.new_page(), node)
    assert set(second) == set(first)
    assert [path for path, came in second.items() if came] == ["/"]
    assert second["/"] < first["/"]  # it has not changed


def test_no_module_waits_for_another_to_be_read(fresh: BrowserContext, node: PageNode) -> None:
    page = fresh.new_page()
    session = fresh.new_cdp_session(page)
    found_by: dict[str, str] = {}  # of each address, what made the browser ask for it
    session.on("Network.requestWillBeSent", lambda event: note(found_by, event))
    session.send("Network.enable")
    load(page, node)
    catch_up(session)
    modules = {path: found_by[path] for path in addresses() if path.endswith(".js")}
    assert len(modules) > 50
    assert set(modules.values()) == {"parser"}


def note(found_by: dict[str, str], event: dict[str, Any]) -> None:
    path = "/" + event["request"]["url"].split("/", 3)[3]
    found_by.setdefault(path, event["initiator"]["type"])


def catch_up(session: CDPSession) -> None:
    """Wait until the browser has told everything that came before."""
    session.send("Runtime.evaluate", {"expression": "0"})


def test_an_upgraded_node_shows_its_new_page_at_the_next_load(
    fresh: BrowserContext, node: PageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load(fresh.new_page(), node)
    login = shipped().files["app/views/login.js"].content.replace(b'"Leveret"', b'"Another"')
    upgraded = Shipped.of({**shipped().files, "app/views/login.js": File.of(login, "js")})
    monkeypatch.setattr(web_page, "shipped", lambda: upgraded)
    page = fresh.new_page()
    after = load(page, node)
    expect(page.get_by_role("heading", name="Another")).to_be_visible()
    assert set(before) & set(after) == {"/"}


def test_a_login_waits_for_no_module_of_another_view(fresh: BrowserContext, node: PageNode) -> None:
    page = fresh.new_page()
    held: list[Route] = []
    page.route("**/app/views/overview.js", lambda route: held.append(route))
    with page.expect_request("**/app/views/overview.js"):
        page.goto(node.page_url)
    expect(page.get_by_role("button", name="Log in", exact=True)).to_be_visible()


def test_a_view_that_the_node_did_not_send_is_asked_for_again(visit: Visit) -> None:
    visit.page.route("**/app/views/queues.js", lambda route: route.abort())
    page = visit.enter()
    go(page, "queues")
    expect(page.get_by_text("the node has not sent this view").first).to_be_visible()
    page.unroute("**/app/views/queues.js")
    go(page, "queues", query="?sort=messages")  # nobody waits for the next refresh
    expect(headed(page, "Queues")).to_be_visible()
    visit.expect_errors("net::ERR_FAILED")
