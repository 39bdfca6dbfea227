"""What operators do all day: many queues at once, policies and limits, the log, shovels; and what passes by itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pika
import pytest
from playwright.sync_api import Page, Route, expect

from leveret.features.federation.federation import federation_of
from leveret.features.shovels.shovels import shovels_of
from leveret.policy import Policy
from leveret.server.node.logs import LogTargets
from tests.harness.seldom import clicks

from .conftest import PageNode, Visit
from .walking import confirm, fill, go, headed, opened, refresh, refresh_until, row, submit, told

pytestmark = [pytest.mark.system, clicks]


def picked(page: Page, *names: str) -> None:
    for name in names:
        page.get_by_label(f"Select {name}", exact=True).check()


# Many queues.


def test_picked_queues_are_purged_and_deleted_with_counts(page: Page, node: PageNode) -> None:
    for name, messages in {"a": 2, "b": 1, "c": 4}.items():
        node.declare(name, durable=True)
        node.publish(name, *(b"%d" % number for number in range(messages)))
    go(page, "queues")
    picked(page, "a", "b")
    bar = page.get_by_role("group", name="Selected queues")
    expect(bar).to_contain_text("2 queues, 3 messages")
    refresh(page)
    expect(page.get_by_label("Select a", exact=True)).to_be_checked()
    bar.get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog")).to_contain_text("Throw away 3 ready messages of 2 queues?")
    confirm(page, "Purge")
    told(page, "2 queues purged")
    expect(bar).to_have_count(0)
    assert [node.ready(name) for name in "abc"] == [0, 0, 4]
    page.get_by_label("Select all of this page").check()
    bar.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("4 messages in them are lost. “a”, “b”, “c”.")
    confirm(page, "Delete")
    told(page, "3 queues deleted")
    expect(page.get_by_text("There are no queues.")).to_be_visible()
    assert node.queue_names() == []


def test_what_is_refused_of_many_is_told_and_the_rest_is_done(visit: Visit, node: PageNode) -> None:
    access = node.node.broker.access
    node.call(lambda: access.set_permissions("maker", "/", configure="^a", write=".*", read=".*"))
    for name in "ab":
        node.declare(name, durable=True)
    page = visit.enter("maker", "sesame")
    go(page, "queues")
    expect(row(page, "b").first).to_be_visible()
    picked(page, "a", "b")
    page.get_by_role("group", name="Selected queues").get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    told(page, "1 queue deleted")
    told(page, "1 of 2 refused")
    assert node.queue_names() == ["b"]
    visit.expect_errors("401", "403")


def test_a_virtual_host_is_a_column_where_several_are_listed(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True)
    node.call(
        lambda: node.node.broker.virtual_hosts["shop"].declare_queue(
            "log", True, arguments={"x-queue-type": "stream"}
        )
    )
    go(page, "queues")
    expect(row(page, "log").locator("td[data-label='Virtual host']")).to_have_text("shop")
    go(page, "streams")
    expect(row(page, "log").locator("td[data-label='Virtual host']")).to_have_text("shop")
    page.get_by_role("banner").get_by_label("Virtual host").select_option("/")
    expect(page.get_by_text("There are no streams here.")).to_be_visible()
    go(page, "queues")
    expect(row(page, "orders")).to_be_visible()
    expect(page.locator("td[data-label='Virtual host']")).to_have_count(0)


# Policies and limits.


def test_a_policy_is_changed_where_it_is(page: Page, node: PageNode) -> None:
    policies = node.node.broker.policies
    node.call(lambda: policies.set(Policy("short", "/", "^a", {"max-length": 3, "queue-mode": "lazy"}, 7)))
    go(page, "policies")
    row(page, "short").get_by_role("link", name="Edit").click()
    form = page.locator("section").filter(has_text="Change policy short").locator("form")
    expect(form.locator("[name=key-max-length]")).to_have_value("3")
    expect(form.locator("[name=definition]")).to_have_value("queue-mode = lazy")
    fill(form, **{"key-max-length": "", "key-overflow": "reject-publish", "key-message-ttl": "500"})
    submit(form)
    told(page, "short applies now")
    expect(form).to_have_count(0)
    [changed] = node.call(lambda: list(policies.list("/")))
    assert changed.priority == 7
    assert dict(changed.definition) == {
        "overflow": "reject-publish",
        "message-ttl": 500,
        "queue-mode": "lazy",
    }


def test_limits_are_set_and_cleared_in_one_form(page: Page, node: PageNode) -> None:
    shop = node.node.broker.virtual_hosts["shop"]
    go(page, "vhosts", "shop")
    form = page.locator("section").filter(has_text="Limits").locator("form")
    fill(form, **{"max-queues": "9", "max-connections": "4"})
    submit(form)
    told(page, "max-queues is 9 now")  # after both are set
    expect(form.locator("[name=max-queues]")).to_have_value("9")
    assert (shop.limits.max_queues, shop.limits.max_connections) == (9, 4)
    fill(form, **{"max-queues": ""})
    submit(form)
    told(page, "max-queues is no limit now")
    assert (shop.limits.max_queues, shop.limits.max_connections) == (None, 4)


def test_a_form_takes_nothing_until_the_page_shows_what_it_changed(page: Page) -> None:
    go(page, "vhosts", "shop")
    field = page.locator("section").filter(has_text="Limits").locator("form [name=max-queues]")
    field.fill("9")
    held: list[Route] = []
    is_slow = True
    page.route(
        "**/api/vhost-limits/shop",
        lambda route: held.append(route) if is_slow and route.request.method == "GET" else route.continue_(),
    )
    with page.expect_request(lambda sent: sent.method == "GET" and "vhost-limits" in sent.url):
        field.press("Enter")
        told(page, "max-queues is 9 now")
    expect(field).to_be_disabled()
    expect(field).to_have_value("9")
    is_slow = False
    for route in held:
        route.continue_()
    expect(field).to_be_enabled()
    expect(field).to_have_value("9")
    field.fill("")
    field.press("Enter")
    told(page, "max-queues is no limit now")


# The log, shovels, charts, colours.


@pytest.fixture
def logged(node: PageNode) -> Iterator[logging.Logger]:
    node.node.log_targets = LogTargets(node.node.config.log)
    yield logging.getLogger("leveret.node")
    node.node.log_targets.close()
    node.node.log_targets = None


def test_the_log_is_followed_and_searched(page: Page, logged: logging.Logger) -> None:
    logged.warning("the <b>disk</b> is slow", extra={"user": "ann"})
    logged.info("something else")
    go(page, "log")
    lines = page.locator(".log li")
    expect(lines.filter(has_text="the <b>disk</b> is slow").get_by_text("user ann")).to_be_visible()
    expect(lines.filter(has_text="something else")).to_be_visible()
    page.get_by_label("Least level").select_option("warning")
    expect(lines.filter(has_text="something else")).to_have_count(0)
    page.get_by_label("Search the log").fill("no such line")
    expect(page.get_by_text("No line suits.")).to_be_visible()
    page.get_by_label("Search the log").fill("DISK")
    expect(lines).to_have_count(1)


def test_the_log_is_for_administrators(visit: Visit) -> None:
    page = visit.enter("watcher", "sesame")
    expect(page.locator("nav a[href='#/log']")).to_have_count(0)
    go(page, "log")
    expect(page.locator("main .empty")).to_contain_text("administrator")
    visit.expect_errors("401", "403")


def test_a_shovel_is_shown_with_its_state_and_deleted(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True)
    value = {"src-uri": "amqp://", "src-queue": "orders", "dest-uri": "amqp:///shop", "dest-queue": "kept"}
    node.call(lambda: shovels_of(node.node.broker).set("/", "to-shop", value, "guest"))
    go(page, "shovels")
    expect(row(page, "to-shop")).to_contain_text("queue orders")
    refresh_until(page, row(page, "to-shop").locator(".badge.good"), "running")
    row(page, "to-shop").get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    expect(page.get_by_text("There are no shovels.")).to_be_visible()


def test_a_shovel_is_set_on_the_page(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True)
    go(page, "shovels")
    form = opened(page, "Add or replace a shovel")
    values = {
        "src-name": "orders",
        "dest-uri": "amqp:///shop",
        "dest-kind": "exchange",
        "dest-name": "amq.topic",
    }
    fill(form, name="to-shop", **values, **{"dest-key": "new"})
    submit(form)
    told(page, "Shovel “to-shop” is set")
    expect(row(page, "to-shop")).to_contain_text("exchange amq.topic with key new")
    refresh_until(page, row(page, "to-shop").locator(".badge.good"), "running")


def test_a_shovel_over_1_0_is_set_on_the_page(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True)
    node.declare("kept", durable=True)
    go(page, "shovels")
    form = opened(page, "Add or replace a shovel")
    values = {"src-name": "orders", "dest-uri": node.url, "dest-kind": "address", "dest-name": "/queues/kept"}
    fill(form, name="to-itself", **values)
    submit(form)
    told(page, "Shovel “to-itself” is set")
    expect(row(page, "to-itself")).to_contain_text("address /queues/kept")
    refresh_until(page, row(page, "to-itself").locator(".badge.good"), "running")


def test_an_upstream_is_set_and_deleted_on_the_page(page: Page, node: PageNode) -> None:
    go(page, "federation")
    form = opened(page, "Add or replace an upstream")
    fill(form, name="to-shop", uri="amqp:///shop", **{"max-hops": "2"})
    submit(form)
    told(page, "Upstream “to-shop” is set")
    expect(row(page, "to-shop")).to_contain_text("max-hops = 2")
    assert federation_of(node.node.broker).upstreams.find("/", "to-shop") is not None
    row(page, "to-shop").get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    expect(page.get_by_text("There are no upstreams.")).to_be_visible()


def test_a_federation_link_is_shown_with_its_state_and_begins_anew(page: Page, node: PageNode) -> None:
    node.declare("fed", durable=True)
    broker = node.node.broker
    node.call(lambda: federation_of(broker).upstreams.set("/", "to-shop", {"uri": "amqp:///shop"}, "guest"))
    policy = Policy("federated", "/", "^fed$", {"federation-upstream": "to-shop"})
    node.call(lambda: broker.policies.set(policy))
    node.call(broker.virtual_host("/").apply_policies)
    go(page, "federation")
    expect(row(page, "queue fed")).to_contain_text("to-shop")
    refresh_until(page, row(page, "queue fed").locator(".badge.good"), "running")
    row(page, "queue fed").get_by_role("button", name="Restart").click()
    expect(page.get_by_text("starts again")).to_be_visible()


def test_charts_go_back_for_as_long_as_was_chosen_and_not_before_the_node(page: Page) -> None:
    with page.expect_response(lambda response: "lengths_age=86400" in response.url):
        page.get_by_role("link", name="Day").click()
    expect(page.get_by_role("link", name="Day")).to_have_attribute("aria-current", "true")
    expect(page.locator("figure", has_text="Memory")).to_contain_text("No samples yet")


def test_colours_are_those_that_the_reader_has_chosen(page: Page) -> None:
    def paper() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.emulate_media(color_scheme="light")
    light = paper()
    page.get_by_label("Colours: as the system").click()
    page.get_by_label("Colours: light").click()
    expect(page.get_by_label("Colours: dark")).to_be_visible()
    assert paper() != light
    page.reload()
    expect(headed(page, "Overview")).to_be_visible()
    assert paper() != light
    page.evaluate("localStorage.clear()")


# Messages.


def test_bytes_and_deaths_are_readable(page: Page, node: PageNode) -> None:
    node.declare(
        "orders", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "lost"}
    )
    node.declare("lost", durable=True)
    properties = pika.BasicProperties(headers={"trace": b"\x00\x07\xff"})
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.basic_publish("amq.direct", "orders", b"1", properties)
        channel.queue_bind("orders", "amq.direct", "orders")
        channel.basic_publish("amq.direct", "orders", b"1", properties)
        method, _, _ = channel.basic_get("orders")
        channel.basic_reject(method.delivery_tag, requeue=False)
    go(page, "queues", "/", "lost")
    panel = opened(page, "Look at messages")
    submit(panel)
    expect(panel.get_by_text(r"\x00\x07\xff")).to_be_visible()
    death = row(panel.page, "rejected")
    for label, text in {"From queue": "orders", "Times": "1", "Published to": "amq.direct"}.items():
        expect(death.locator(f"td[data-label='{label}']")).to_have_text(text)


def test_chosen_dead_letters_are_sent_back(page: Page, node: PageNode) -> None:
    node.declare(
        "orders", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "lost"}
    )
    node.declare("lost", durable=True)
    node.publish("orders", b"1", b"2", b"3")
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        for _ in range(3):
            method, _, _ = channel.basic_get("orders")
            channel.basic_reject(method.delivery_tag, requeue=False)
    go(page, "queues", "/", "lost")
    panel = opened(page, "Look at messages")
    submit(panel)
    boxes = panel.get_by_label("From queue “orders”")
    expect(boxes).to_have_count(3)
    boxes.nth(1).check()
    boxes.nth(2).check()
    refresh(page)
    panel.get_by_role("button", name="Send 2 messages back").click()
    confirm(page, "Send back")
    told(page, "2 messages went back")
    expect(boxes).to_have_count(1)
    assert (node.ready("lost"), node.ready("orders")) == (1, 2)


# What passes by itself.


def test_notices_go_by_themselves_and_with_their_page(visit: Visit, page: Page, node: PageNode) -> None:
    page.clock.install()
    go(page, "queues")
    form = opened(page, "Declare a queue")
    fill(form, name="orders", arguments="no sign")
    submit(form)
    refusal = page.locator("#notices .failed")
    expect(refusal).to_be_visible()
    page.clock.run_for(25_000)
    expect(refusal).to_have_count(0)
    submit(form)
    expect(refusal).to_be_visible()
    refusal.get_by_role("button", name="Dismiss").click()
    expect(refusal).to_have_count(0)
    submit(form)
    expect(refusal).to_be_visible()
    go(page, "exchanges")
    expect(headed(page, "Exchanges")).to_be_visible()
    expect(refusal).to_have_count(0)


def test_a_question_ends_with_its_page(page: Page, node: PageNode) -> None:
    for name in ("a", "b"):
        node.declare(name, durable=True)
    go(page, "queues", "/", "a")
    expect(headed(page, "Queue a")).to_be_visible()
    go(page, "queues", "/", "b")
    expect(headed(page, "Queue b")).to_be_visible()
    page.get_by_role("button", name="Delete queue").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(headed(page, "Queue a")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert node.queue_names() == ["a", "b"]
