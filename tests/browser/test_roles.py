"""What users with few tags see and can do; what they may not is not offered, or refused in words."""

from __future__ import annotations

import pika
import pytest
from playwright.sync_api import Page, expect

from leveret.policy import Policy

from .conftest import PageNode, Visit
from .walking import confirm, fill, go, headed, opened, row, submit, told

pytestmark = pytest.mark.system


def offered(page: Page, *names: str) -> None:
    """These links to views are there, and those for administrators are not."""
    for name in names:
        expect(page.locator(f"nav a[href='#/{name}']")).to_be_visible()
    for name in ("users", "definitions"):
        expect(page.locator(f"nav a[href='#/{name}']")).to_have_count(0)


def test_a_policymaker_adds_and_deletes_policies_but_not_the_operators(visit: Visit, node: PageNode) -> None:
    policies = node.node.broker.policies
    node.call(lambda: policies.set_operator(Policy("bound", "/", ".*", {"max-length": 9})))
    page = visit.enter("maker", "sesame")
    offered(page, "policies", "queues")
    go(page, "policies")
    expect(page.get_by_text("Add an operator policy")).to_have_count(0)
    expect(row(page, "bound")).to_be_visible()
    expect(row(page, "bound").get_by_role("button")).to_have_count(0)
    form = opened(page, "Add a policy")
    fill(form, name="short", definition="max-length = 3")
    submit(form)
    expect(row(page, "short")).to_be_visible()
    row(page, "short").get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    expect(row(page, "short")).to_have_count(0)


def test_a_policymaker_is_told_that_other_views_are_not_for_him(visit: Visit) -> None:
    page = visit.enter("maker", "sesame")
    for names, title in {("users",): "Users", ("vhosts", "/"): "Virtual host /"}.items():
        go(page, *names)
        expect(headed(page, title)).to_be_visible()
        expect(page.locator("main .empty")).to_contain_text("Not administrator user")
    go(page, "definitions")
    expect(page.get_by_text("These are for administrators.")).to_be_visible()
    expect(page.get_by_role("button", name="Download")).to_have_count(0)
    go(page, "vhosts")
    expect(row(page, "/")).to_be_visible()
    expect(page.get_by_text("Add a virtual host")).to_have_count(0)
    visit.expect_errors("401")


def test_who_monitors_sees_everything_and_changes_nothing(visit: Visit, node: PageNode) -> None:
    node.declare("orders", durable=True)
    node.call(lambda: node.node.broker.policies.set(Policy("short", "/", ".*", {"max-length": 3})))
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        connection.channel().basic_publish("", "orders", b"1")
        connection.process_data_events()
        page = visit.enter("watcher", "sesame")
        offered(page, "connections", "topology")
        expect(page.get_by_role("heading", name="Node leveret")).to_be_visible()
        go(page, "connections")
        row(page, "guest").get_by_role("link").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Connection 127.0.0.1")
        expect(page.get_by_text("Close this connection")).to_have_count(0)
    go(page, "policies")
    expect(row(page, "short")).to_be_visible()
    expect(page.locator("main button")).to_have_count(0)
    expect(page.locator("main details")).to_have_count(0)
    go(page, "queues", "/", "orders")
    expect(headed(page, "Queue orders")).to_be_visible()
    page.get_by_role("button", name="Purge").click()
    confirm(page, "Purge")
    told(page, "not authorised")
    submit(opened(page, "Look at messages"))
    expect(page.locator("#notices .failed").get_by_text("not authorised")).to_have_count(2)
    assert node.ready("orders") == 1
    visit.expect_errors("401", "403")


def test_who_closes_connections_is_offered_his_own_only(visit: Visit, node: PageNode) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.url.replace("guest:guest", "maker:sesame"))):
        page = visit.enter("maker", "sesame")
        go(page, "connections")
        row(page, "maker").get_by_role("link").first.click()
        expect(page.get_by_text("Close this connection")).to_be_visible()


def test_a_link_to_what_is_for_others_is_told_once_and_not_tried_on(visit: Visit) -> None:
    page = visit.enter("keeper", "sesame")
    go(page, "users")
    expect(page.get_by_text("Not administrator user")).to_have_count(1)
    expect(page.get_by_text("Not up to date")).to_have_count(0)
    visit.expect_errors("401", "403")
