"""Who gets in, and what he sees then."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, expect

from tests.security.issuer import token

from .conftest import LEEWAY_S, PageNode, Visit
from .walking import go, headed

pytestmark = pytest.mark.system


def test_a_wrong_password_is_told_and_lets_nobody_in(visit: Visit) -> None:
    page = visit.log_in("guest", "wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("User name")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    visit.expect_errors("401")


def test_a_user_without_tags_cannot_enter(visit: Visit) -> None:
    page = visit.log_in("worker", "sesame")
    expect(page.get_by_role("alert")).to_contain_text("no tag that allows a login, such as management")
    expect(page.locator("nav")).to_have_count(0)
    assert page.evaluate("sessionStorage.length") == 0
    visit.expect_errors("401", "403")


def test_a_reload_does_not_ask_again_and_another_tab_does(visit: Visit, page: Page) -> None:
    page.reload()
    expect(headed(page, "Overview")).to_be_visible()
    other = page.context.new_page()
    other.goto(visit.url)
    expect(other.get_by_role("button", name="Log in", exact=True)).to_be_visible()


def test_who_logs_out_leaves_nothing_behind(page: Page) -> None:
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in", exact=True)).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('leveret.login')") is None
    page.reload()
    expect(page.get_by_role("button", name="Log in", exact=True)).to_be_visible()


def test_credentials_are_in_no_address_and_no_element(page: Page) -> None:
    for view in ("queues", "users", "definitions"):
        go(page, view)
        expect(page.locator(f"nav a[aria-current][href='#/{view}']")).to_be_visible()
        assert "Z3Vlc3Q6Z3Vlc3Q" not in page.content() + page.url  # base64 of guest:guest


def test_a_link_that_was_kept_leads_there_after_the_login(visit: Visit, node: PageNode) -> None:
    node.declare("orders", durable=True)
    visit.url += "#/queues/%2F/orders"
    page = visit.log_in()
    expect(headed(page, "Queue orders")).to_be_visible()


def test_a_user_for_management_sees_only_his_own(visit: Visit, node: PageNode) -> None:
    node.declare("secret", durable=True)
    node.call(lambda: node.node.broker.virtual_hosts["shop"].declare_queue("carrots", durable=True))
    page = visit.log_in("keeper", "sesame")
    expect(headed(page, "Overview")).to_be_visible()
    expect(page.get_by_role("link", name="Users")).to_have_count(0)
    expect(page.get_by_label("Virtual host", exact=True).locator("option")).to_have_text(
        ["All virtual hosts", "shop"]
    )
    go(page, "queues")
    expect(page.get_by_role("link", name="carrots")).to_be_visible()
    expect(page.get_by_text("secret")).to_have_count(0)
    for view in ("topology", "streams"):
        go(page, view)
        expect(page.locator("h1")).to_contain_text(view.capitalize())


def test_a_password_that_is_taken_back_ends_the_visit(visit: Visit, page: Page, node: PageNode) -> None:
    node.call(lambda: node.node.broker.access.delete_user("guest"))
    go(page, "queues")
    expect(page.get_by_role("button", name="Log in", exact=True)).to_be_visible()
    visit.expect_errors("401")


# With a token.


def token_until(end: float, tag: str = "administrator") -> str:
    return token(exp=int(end), iat=int(end) - 600, sub="shop", scope=f"leveret.tag:{tag} leveret.read:*/*")


def test_a_token_lets_its_bearer_in_and_stands_in_no_address(visit: Visit) -> None:
    given = token_until(time.time() + 600)
    page = visit.log_in_with(given)
    expect(headed(page, "Overview")).to_be_visible()
    expect(page.locator(".session .user")).to_have_text("shop")
    page.reload()
    go(page, "queues")
    expect(headed(page, "Queues")).to_be_visible()
    assert given not in page.content() + page.url
    assert page.evaluate("document.cookie") == ""


@pytest.mark.parametrize("given", ["no token", "e30.e30.e30", "ÿ"])
def test_what_is_no_good_token_lets_nobody_in(visit: Visit, given: str) -> None:
    page = visit.log_in_with(given)
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    visit.expect_errors("401")


def test_a_token_that_has_run_out_is_asked_for_again(
    visit: Visit, node: PageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.log_in_with(token_until(time.time() - LEEWAY_S / 3))
    expect(headed(page, "Overview")).to_be_visible()
    monkeypatch.setattr(node.node.broker.access, "tokens", None)
    go(page, "queues")
    expect(page.get_by_role("alert")).to_contain_text("Your token has run out")
    expect(page.get_by_label("Token")).to_be_focused()
    expect(page.get_by_label("User name")).to_be_hidden()
    monkeypatch.undo()
    page.get_by_label("Token").fill(token_until(time.time() + 600))
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(headed(page, "Queues")).to_be_visible()
    visit.expect_errors("401")


def test_a_token_that_is_refused_before_its_end_is_told_so(
    visit: Visit, node: PageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.log_in_with(token_until(time.time() + 600))
    expect(headed(page, "Overview")).to_be_visible()
    monkeypatch.setattr(node.node.broker.access, "tokens", None)
    go(page, "queues")
    expect(page.get_by_role("alert")).to_contain_text("does not take your token any more")
    page.get_by_role("button", name="Log in with a password").click()
    expect(page.get_by_label("User name")).to_be_focused()
    visit.expect_errors("401")
