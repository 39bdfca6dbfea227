"""Each action does what it says: done on the page, checked at the broker."""

from __future__ import annotations

import json
from pathlib import Path

import pika
import pytest
from playwright.sync_api import Page, expect

from tests.harness.seldom import clicks
from tests.interop.conftest import wait_until

from .conftest import PageNode, Visit
from .walking import arrived, confirm, fill, go, headed, opened, row, submit, told

pytestmark = [pytest.mark.system, clicks]


def queue_page(page: Page, node: PageNode, *bodies: bytes) -> None:
    """The page of a queue `orders` that holds these."""
    node.declare("orders", durable=True)
    node.publish("orders", *bodies)
    go(page, "queues", "/", "orders")
    expect(headed(page, "Queue orders")).to_be_visible()


def test_a_queue_is_declared_with_type_and_arguments(page: Page, node: PageNode) -> None:
    go(page, "queues")
    form = opened(page, "Declare a queue")
    form.get_by_role("button", name="x-max-length", exact=True).click()
    fill(form, name="orders", arguments="x-max-length = 5\nx-overflow = reject-publish")
    submit(form)
    expect(headed(page, "Queue orders")).to_be_visible()
    queue = node.find("orders")
    assert queue is not None
    assert (queue.durable, queue.arguments) == (True, {"x-max-length": 5, "x-overflow": "reject-publish"})


def test_a_name_of_blanks_is_not_sent(page: Page, node: PageNode) -> None:
    go(page, "queues")
    form = opened(page, "Declare a queue")
    fill(form, name="   ")
    submit(form)
    assert form.locator("[name=name]").evaluate("field => field.validity.patternMismatch")
    fill(form, name=" a b ")
    submit(form)
    expect(page.get_by_role("heading", level=1)).to_contain_text("a b")
    assert node.queue_names() == [" a b "]


def test_what_a_form_names_and_is_not_there_is_told_by_name(page: Page, node: PageNode, visit: Visit) -> None:
    queue_page(page, node)
    form = opened(page, "Bind to an exchange")
    fill(form, source="nowhere", key="k")
    submit(form)
    told(page, "there is no exchange “nowhere” or no “orders” in virtual host “/”")
    go(page, "queues", "prod", "orders")
    expect(page.get_by_text("there is no queue “orders”, or no virtual host “prod”")).to_be_visible()
    visit.expect_errors("404")


def test_a_user_who_is_there_is_not_made_anew(page: Page, node: PageNode) -> None:
    go(page, "users")
    form = opened(page, "Add a user")
    fill(form, name="keeper", password="other", tags="administrator")
    submit(form)
    told(page, "There is a user “keeper” already")
    keeper = next(user for user in node.node.broker.access.users() if user.name == "keeper")
    assert keeper.tags == ("management",)


def test_what_the_node_refuses_is_told_in_its_words(page: Page, node: PageNode) -> None:
    go(page, "queues")
    form = opened(page, "Declare a queue")
    fill(form, name="orders", arguments="no sign")
    submit(form)
    told(page, "“no sign” is not name = value")
    assert node.queue_names() == []


def test_looking_at_messages_leaves_them_as_they_are(page: Page, node: PageNode) -> None:
    queue_page(page, node, b"first", b"second")
    panel = opened(page, "Look at messages")
    submit(panel)
    expect(panel.locator("pre")).to_have_text(["first", "second"])
    expect(panel.get_by_text("origin").first).to_be_visible()
    assert (node.ready("orders"), node.unsettled("orders")) == (2, 0)
    assert not any(node.call(lambda: [each.redelivered for each in node.host.queues["orders"].waiting()]))


def test_messages_are_put_back_or_taken_out_as_was_chosen(page: Page, node: PageNode) -> None:
    queue_page(page, node, b"first", b"second")
    panel = opened(page, "Get messages")
    submit(panel)
    expect(panel.locator("pre")).to_have_text(["first"])
    assert node.ready("orders") == 2
    fill(panel, ackmode="ack_requeue_false", count="2")
    submit(panel)
    confirm(page, "Take out")
    expect(panel.locator("pre")).to_have_count(2)
    assert node.ready("orders") == 0


def test_a_message_is_published_with_headers(page: Page, node: PageNode) -> None:
    queue_page(page, node)
    panel = opened(page, "Publish to this queue")
    fill(panel, payload="hello", headers="tries = 3\nfrom = shop", properties="content_type = text/plain")
    submit(panel)
    told(page, "Published; it reached a queue")

    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        _, properties, body = connection.channel().basic_get("orders", auto_ack=True)
    assert (properties.headers, properties.content_type, body) == (
        {"tries": 3, "from": "shop"},
        "text/plain",
        b"hello",
    )


def test_messages_are_moved_to_another_queue(page: Page, node: PageNode) -> None:
    node.declare("other", durable=True)
    queue_page(page, node, b"1", b"2", b"3")
    panel = opened(page, "Move messages")
    fill(panel, to="other")
    submit(panel)
    confirm(page, "Move")
    told(page, "3 messages moved to “other”")
    assert (node.ready("orders"), node.ready("other")) == (0, 3)


def test_messages_for_later_are_shown_delivered_and_cancelled(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True, arguments={"x-delayed-message": True})
    properties = pika.BasicProperties(headers={"x-delay": 3_600_000})
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        for number in range(3):
            connection.channel().basic_publish("", "orders", b"%d" % number, properties)
    wait_until(lambda: node.find("orders").delayed == 3, "the messages")
    go(page, "queues", "/", "orders")
    later = page.locator("section").filter(has_text="Messages for later")
    expect(later.get_by_role("row")).to_have_count(4)
    later.get_by_role("button", name="Deliver now").first.click()
    told(page, "The message is delivered")
    expect(later.get_by_role("row")).to_have_count(3)
    later.get_by_role("button", name="Cancel", exact=True).first.click()
    confirm(page, "Drop")
    told(page, "The message is dropped")
    expect(later.get_by_role("row")).to_have_count(2)
    later.get_by_role("button", name="Cancel all").click()
    confirm(page, "Drop")
    wait_until(lambda: node.find("orders").delayed == 0, "the end of the last one")
    assert node.ready("orders") == 1


def test_a_queue_is_paused_and_resumed(page: Page, node: PageNode) -> None:
    queue_page(page, node, b"1")
    page.get_by_role("button", name="Pause").click()
    confirm(page, "Pause")
    told(page, "Queue “orders” is paused")
    assert node.find("orders").paused
    page.get_by_role("button", name="Resume").click()
    told(page, "Queue “orders” delivers again")
    assert not node.find("orders").paused
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_nothing_is_purged_or_deleted_before_it_is_confirmed(page: Page, node: PageNode) -> None:
    queue_page(page, node, b"1", b"2")
    page.get_by_role("button", name="Purge").click()
    confirm(page, "Cancel")
    page.get_by_role("button", name="Delete queue").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert node.ready("orders") == 2
    page.get_by_role("button", name="Purge").click()
    confirm(page, "Purge")
    told(page, "Queue “orders” is purged")
    assert node.ready("orders") == 0
    page.get_by_role("button", name="Delete queue").click()
    confirm(page, "Delete")
    expect(headed(page, "Queues")).to_be_visible()
    assert node.find("orders") is None


def test_an_exchange_is_declared_bound_used_and_deleted(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True)
    go(page, "exchanges")
    form = opened(page, "Declare an exchange")
    fill(form, name="shop", type="topic", arguments="alternate-exchange = amq.fanout")
    submit(form)
    expect(headed(page, "Exchange shop")).to_be_visible()
    binding = opened(page, "Bind something to this exchange")
    fill(binding, destination="orders", key="eu.#")
    submit(binding)
    expect(row(page, "eu.#")).to_be_visible()
    publishing = opened(page, "Publish a message")
    fill(publishing, key="eu.berlin", payload="hello")
    submit(publishing)
    told(page, "it reached a queue")
    assert node.ready("orders") == 1
    row(page, "eu.#").get_by_role("button", name="Remove").click()
    confirm(page, "Remove")
    expect(row(page, "eu.#")).to_have_count(0)
    fill(publishing, key="eu.berlin", payload="hello")
    submit(publishing)
    told(page, "no queue took it")
    page.get_by_role("button", name="Delete exchange").click()
    confirm(page, "Delete")
    expect(headed(page, "Exchanges")).to_be_visible()
    assert "shop" not in node.call(lambda: list(node.host.exchanges))


def test_a_connection_is_closed_with_a_reason(page: Page, node: PageNode) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    go(page, "connections")
    row(page, "guest").get_by_role("link").first.click()
    panel = opened(page, "Close this connection")
    fill(panel, reason="Schluß")
    submit(panel)
    told(page, "letters, digits and signs of ASCII only")
    fill(panel, reason="closing time")
    submit(panel)
    expect(headed(page, "Connections")).to_be_visible()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="closing time"):
        connection.process_data_events(time_limit=20)


def test_a_policy_is_added_and_deleted(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True)
    go(page, "policies")
    form = opened(page, "Add a policy")
    fill(form, name="short", pattern="^orders$", apply="queues", definition="max-length = 3")
    submit(form)
    expect(row(page, "short")).to_be_visible()
    go(page, "queues", "/", "orders")
    arrived(page, "queues", "/", "orders")
    expect(page.get_by_text("short").first).to_be_visible()
    go(page, "policies")
    arrived(page, "policies")  # what is still shown of it from before would be asked, and then left
    row(page, "short").get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    expect(row(page, "short")).to_have_count(0)


def test_an_operator_policy_is_added(page: Page) -> None:
    go(page, "policies")
    form = opened(page, "Add an operator policy")
    fill(form, name="bound", definition="max-length = 9")
    submit(form)
    expect(page.locator("section").filter(has_text="Operator policies").locator("tbody tr")).to_have_count(1)


def test_a_user_is_added_given_rights_and_deleted(page: Page, node: PageNode) -> None:
    access = node.node.broker.access
    go(page, "users")
    form = opened(page, "Add a user")
    fill(form, name="alice", password="carrots-7", tags="management, monitoring")
    submit(form)
    expect(headed(page, "User alice")).to_be_visible()
    panel = opened(page, "Set permissions")
    fill(panel, vhost="/", configure="^a", write=".*", read="")
    submit(panel)
    told(page, "are set")
    expect(row(page, "^a")).to_be_visible()
    limits = page.locator("section").filter(has_text="Limits").locator("form")
    fill(limits, **{"max-connections": "4"})
    submit(limits)
    told(page, "max-connections is 4 now")
    expect(limits.locator("[name=max-connections]")).to_have_value("4")
    alice = node.call(lambda: access.user("alice"))
    assert alice is not None
    assert set(alice.tags) == {"management", "monitoring"}
    with pika.BlockingConnection(pika.URLParameters(node.url.replace("guest:guest", "alice:carrots-7"))):
        pass
    page.get_by_role("button", name="Delete user").click()
    confirm(page, "Delete")
    expect(headed(page, "Users")).to_be_visible()
    assert node.call(lambda: access.user("alice")) is None


def test_tags_change_and_the_password_stays(page: Page, node: PageNode) -> None:
    go(page, "users", "worker")
    panel = opened(page, "Change password or tags")
    fill(panel, tags="monitoring")
    submit(panel)
    told(page, "User “worker” is changed")
    worker = node.call(lambda: node.node.broker.access.user("worker"))
    assert worker is not None
    assert worker.tags == ("monitoring",)
    with pika.BlockingConnection(pika.URLParameters(node.url.replace("guest:guest", "worker:sesame"))):
        pass


def test_a_new_password_stays_when_tags_change_after_it(page: Page, node: PageNode) -> None:
    go(page, "users", "worker")
    panel = opened(page, "Change password or tags")
    fill(panel, password="carrots-7")
    submit(panel)
    told(page, "User “worker” is changed")
    expect(panel.locator("[name=password]")).to_have_value("")
    fill(panel, tags="monitoring")
    submit(panel)
    expect(page.locator("main > p .badge")).to_have_text("monitoring")
    with pika.BlockingConnection(pika.URLParameters(node.url.replace("guest:guest", "worker:carrots-7"))):
        pass


def test_a_virtual_host_is_added_traced_and_deleted(page: Page, node: PageNode) -> None:
    hosts = node.node.broker.virtual_hosts
    go(page, "vhosts")
    form = opened(page, "Add a virtual host")
    fill(form, name="garden", description="of carrots")
    submit(form)
    page.get_by_role("link", name="garden", exact=True).click()
    expect(headed(page, "Virtual host garden")).to_be_visible()
    page.get_by_role("button", name="Trace messages").click()
    expect(page.get_by_role("button", name="Stop tracing")).to_be_visible()
    page.get_by_role("button", name="Delete virtual host").click()
    confirm(page, "Delete")
    expect(headed(page, "Virtual hosts")).to_be_visible()
    wait_until(lambda: "garden" not in node.call(lambda: list(hosts)), "the virtual host is gone")


def test_definitions_are_exported_and_come_back(page: Page, node: PageNode, tmp_path: Path) -> None:
    node.declare("orders", durable=True)
    go(page, "definitions")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    file = tmp_path / "definitions.json"
    download.value.save_as(file)
    assert [queue["name"] for queue in json.loads(file.read_text())["queues"]] == ["orders"]
    node.delete("orders")
    content = json.loads(file.read_text())
    content["policies"].append({"name": "p", "vhost": "/", "pattern": "", "definition": {"ha-mode": "all"}})
    content["policies"].append({"name": "r", "vhost": "/", "pattern": "", "definition": {"max-lenght": 1}})
    file.write_text(json.dumps(content))
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Try").click()
    told(page, "nothing was changed")
    expect(page.get_by_role("heading", name="What an import of definitions.json would do")).to_be_visible()
    assert node.queue_names() == []
    page.get_by_role("button", name="Import").click()
    confirm(page, "Import")
    told(page, "Definitions imported")
    expect(page.get_by_role("heading", name="The import of definitions.json")).to_be_visible()
    expect(page.get_by_role("heading", name="Refused (1)")).to_be_visible()
    expect(page.locator("li", has_text="did you mean max-length?")).to_be_visible()
    expect(page.locator("li", has_text="policy 'p' in vhost '/': ha-mode has no effect")).to_be_visible()
    assert node.queue_names() == ["orders"]
