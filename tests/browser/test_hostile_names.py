"""Whatever names, headers, bodies and reasons say: it stays text in every view."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from playwright.sync_api import Page, expect

from leveret.features.leases.lease import opened as lease_opened
from tests.harness.seldom import clicks, elsewhere

from .conftest import PageNode, Visit
from .hostile import NAMES
from .walking import arrived, confirm, fill, go, headed, opened, refresh, submit

pytestmark = [pytest.mark.system, clicks]

OURS = (
    "queues",
    "exchanges",
    "topology",
    "streams",
    "leases",
    "transactions",
    "connections",
    "channels",
    "consumers",
    "policies",
    "vhosts",
)
FOREIGN = (
    "script:not([src^='ui/']), iframe, base, object, embed, meta[http-equiv], style, #hit, main img, [style]"
)


def populate(node: PageNode) -> None:
    broker = node.node.broker
    host = broker.virtual_hosts["/"]
    host_names = ("<img src=x onerror=window.hit=1>", "a/b?c#d")
    for name in host_names:
        broker.add_virtual_host(name)
    for name in NAMES:
        queue = host.declare_queue(name, durable=True, arguments={f"x-{name}"[:40]: name})
        host.bind(host.declare_exchange(name, "topic", durable=True), queue, name, {name: name})
        lease_opened(queue, name)
        broker.access.add_user(name, b"sesame", tags=(name,))
        for each in ("/", *host_names):
            broker.access.set_permissions(name, each, "", "", "")
    for name in host_names:
        broker.access.set_permissions("guest", name, ".*", ".*", ".*")


@pytest.fixture
def full(node: PageNode) -> Iterator[PageNode]:
    """A node where everything has such a name, and a client that has, too."""
    node.call(lambda: populate(node))
    properties = {name: name for name in NAMES}
    parameters = pika.URLParameters(node.url)
    parameters.client_properties = {**properties, "connection_name": NAMES[1], "product": NAMES[0]}
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        for name in NAMES:
            header = {name: name, "list": [name], "table": {name: name}}
            said = pika.BasicProperties(headers=header, message_id=name, content_type=name, type=name)
            channel.basic_publish("", NAMES[0], name.encode(), said)
            channel.basic_consume(NAMES[3], lambda *_: None, consumer_tag=name)
        connection.process_data_events()
        yield node


def require_text_only(page: Page) -> None:
    assert page.evaluate("window.hit") is None
    assert page.locator(FOREIGN).count() == 0


def test_every_list_shows_them_as_they_are(page: Page, full: PageNode) -> None:
    for view in ("queues", "exchanges", "leases", "consumers", "users"):
        go(page, view)
        for name in NAMES:
            shown = page.locator("tbody td").filter(has_text=name.strip("\ufeff\u200b\u2028"))
            expect(shown.first).to_be_attached()
        require_text_only(page)
    for view in OURS:
        go(page, view)
        expect(page.locator(f"nav a[aria-current][href='#/{view}']")).to_be_visible()
        refresh(page)
        require_text_only(page)


@pytest.mark.parametrize(
    "kind", ["queue", *(pytest.param(each, marks=elsewhere) for each in ("exchange", "user"))]
)
def test_each_has_a_page_of_its_own(page: Page, full: PageNode, kind: str) -> None:
    for name in NAMES:
        names = [f"{kind}s", *([] if kind == "user" else ["/"]), name]
        go(page, *names)
        arrived(page, *names)
        expect(page.locator("section").first).to_be_visible()
        heading = page.get_by_role("heading", level=1)
        assert heading.evaluate("heading => heading.textContent") == f"{kind.capitalize()} {name}"
        require_text_only(page)


def test_messages_are_text(page: Page, full: PageNode) -> None:
    go(page, "queues", "/", NAMES[0])
    expect(headed(page, f"Queue {NAMES[0]}")).to_be_visible()
    panel = opened(page, "Look at messages")
    fill(panel, count=str(len(NAMES)))
    submit(panel)
    expect(panel.locator("pre")).to_have_count(len(NAMES))
    assert panel.locator("pre").evaluate_all("all => all.map(each => each.textContent)") == list(NAMES)
    require_text_only(page)


def test_clients_are_text(page: Page, full: PageNode) -> None:
    go(page, "connections")
    expect(page.locator("tbody td[data-label=Client]").first).to_contain_text(NAMES[0])
    page.locator("tbody td[data-label=Client] a").first.click()
    expect(page.get_by_text(NAMES[2]).first).to_be_attached()
    require_text_only(page)


def test_the_drawing_is_text(page: Page, full: PageNode) -> None:
    go(page, "topology")
    names = page.locator(".drawn a")
    expect(names).to_have_count(2 * len(NAMES))
    titles = names.evaluate_all("all => all.map(each => each.querySelector('title').textContent)")
    assert sorted(titles) == sorted(
        [f"queue {name}" for name in NAMES] + [f"exchange {name}" for name in NAMES]
    )
    page.get_by_label("Exchange", exact=True).fill(NAMES[0])
    page.get_by_label("Routing key").fill(NAMES[1])
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".explanation")).to_contain_text(NAMES[0])
    require_text_only(page)


def test_notices_and_questions_are_text(visit: Visit, page: Page, full: PageNode) -> None:
    go(page, "queues", "/", NAMES[2])
    page.get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog")).to_contain_text(NAMES[2])
    require_text_only(page)
    confirm(page, "Purge")
    expect(page.locator("#notices")).to_contain_text(NAMES[2])
    require_text_only(page)
    full.raise_alarm(NAMES[1])
    refresh(page)
    expect(page.get_by_role("alert")).to_contain_text(NAMES[1])
    require_text_only(page)
    full.clear_alarm(NAMES[1])
    go(page, "queues", "/", "<b id=hit>gone</b>")
    expect(page.get_by_role("heading", level=1)).to_contain_text("<b id=hit>gone</b>")
    require_text_only(page)
    visit.expect_errors("404")


def test_a_virtual_host_with_such_a_name_can_be_looked_at(full: PageNode, page: Page) -> None:
    for name in ("<img src=x onerror=window.hit=1>", "a/b?c#d"):
        go(page, "vhosts", name)
        expect(headed(page, f"Virtual host {name}")).to_be_visible()
        page.get_by_label("Virtual host", exact=True).select_option(name)
        go(page, "queues")
        expect(page.get_by_text("There are no queues.")).to_be_visible()
        require_text_only(page)
