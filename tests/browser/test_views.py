"""Each view shows what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import BrowserContext, Page, expect

from leveret.operations import Clustering
from leveret.policy import Policy
from leveret.values import Json

from .conftest import PHONE, PageNode, Visit, publish
from .walking import arrived, go, headed, opened, refresh, row, submit

pytestmark = pytest.mark.system

VIEWS: Final = {
    "overview": "Overview",
    "queues": "Queues",
    "exchanges": "Exchanges",
    "topology": "Topology",
    "streams": "Streams",
    "leases": "Leases",
    "transactions": "Transactions",
    "connections": "Connections",
    "channels": "Channels",
    "consumers": "Consumers",
    "policies": "Policies",
    "shovels": "Shovels",
    "federation": "Federation",
    "users": "Users",
    "vhosts": "Virtual hosts",
    "definitions": "Definitions",
    "alarms": "Alarms",
}


@pytest.fixture
def channel(node: PageNode) -> Iterator[BlockingChannel]:
    """A client that has declared a shop, and reads a queue of it."""
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    channel.exchange_declare("orders", "topic", durable=True, arguments={"alternate-exchange": "lost"})
    channel.exchange_declare("lost", "fanout", durable=True)
    channel.exchange_declare("eu", "fanout", durable=True)
    channel.queue_declare("bills", durable=True, arguments={"x-dead-letter-exchange": "lost"})
    channel.queue_declare("unrouted", durable=True)
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange_bind("eu", "orders", "eu.#")
    channel.queue_bind("bills", "eu", "")
    channel.queue_bind("unrouted", "lost", "")
    yield channel
    if connection.is_open:
        connection.close()


def test_what_has_no_effect_is_told_where_it_is_shown(
    page: Page, channel: BlockingChannel, node: PageNode
) -> None:
    channel.queue_declare("old", arguments={"x-queue-mode": "lazy", "x-max-lenght": 5})
    channel.exchange_declare("odd", "fanout", arguments={"alternate-exchang": "lost"})
    node.call(lambda: node.node.broker.policies.set(Policy("mirrors", "/", "^m", {"ha-mode": "all"})))
    go(page, "queues", "/", "old")
    expect(page.locator(".warned")).to_have_count(2)
    expect(page.locator(".warned").first).to_contain_text("x-queue-mode has no effect here")
    expect(page.locator(".warned").last).to_contain_text("did you mean x-max-length?")
    go(page, "exchanges", "/", "odd")
    expect(headed(page, "Exchange odd")).to_be_visible()
    expect(page.locator(".warned")).to_contain_text("did you mean alternate-exchange?")
    go(page, "policies")
    expect(row(page, "mirrors").locator(".warned")).to_contain_text("ha-mode has no effect here")
    go(page, "queues", "/", "bills")
    expect(headed(page, "Queue bills")).to_be_visible()
    expect(page.locator(".warned")).to_have_count(0)


def test_every_view_is_a_link_away(page: Page) -> None:
    for name, title in VIEWS.items():
        page.locator(f"nav a[href='#/{name}']").click()
        expect(headed(page, title)).to_be_visible()
        expect(page.locator("#navigation a[aria-current]")).to_have_attribute("href", f"#/{name}")
        expect(page.get_by_text("Not up to date")).to_have_count(0)


class TwoNodes(Clustering):
    """A cluster whose owner is "a"."""

    def status(self) -> Mapping[str, Json]:
        return {
            "name": "prod",
            "node": "a",
            "state": "serving",
            "owner": "a",
            "address": "10.0.0.1:5680",
            "epoch": 7,
            "lease_ttl_s": 5.0,
            "lease_age_s": 0.25,
            "standby": [{"name": "b", "host": "10.0.0.2", "since": 1_795_000_000.0}],
            "replication": [{"name": "pg-b", "state": "streaming", "sync_state": "sync", "behind": 2048}],
            "takeovers": [
                {"epoch": 7, "node": "a", "why": "silent for 5.1 s", "at": 1_795_000_000.0, "took_s": 0.357}
            ],
        }

    def metrics(self) -> Mapping[str, float]:
        return {}

    def fail_over(self, heir: str) -> None: ...


def test_the_overview_shows_the_nodes_of_a_cluster(page: Page, node: PageNode) -> None:
    expect(page.get_by_role("heading", name="Cluster")).to_have_count(0)
    operations = node.node.broker.operations
    assert operations is not None
    operations.cluster = TwoNodes()
    try:
        refresh(page)
        expect(page.get_by_role("heading", name="Cluster prod")).to_be_visible()
        for name, shown in (("a", "10.0.0.1:5680"), ("b", "standby"), ("pg-b", "2.0 KiB"), ("7", "0.36 s")):
            expect(row(page, name).filter(has_text=shown).first).to_be_visible()
    finally:
        operations.cluster = None


def test_the_overview_counts_what_there_is(page: Page, node: PageNode, channel: BlockingChannel) -> None:
    publish(channel, "bills", b"1", b"2", b"3")
    refresh(page)
    tiles = page.locator(".tile")
    for tile, shown in {
        "Ready, with streams": "3",
        "Connections": "1",
        "Channels": "1",
        "Queues": "3",
    }.items():
        expect(tiles.filter(has_text=tile).locator("b")).to_have_text(shown)
    expect(row(page, "http").first).to_be_visible()
    expect(
        page.get_by_role("heading", name=f"Node {node.call(lambda: node.node.config.node.name)}")
    ).to_be_visible()


def test_a_queue_tells_its_messages_consumers_and_bindings(page: Page, channel: BlockingChannel) -> None:
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("bills", lambda *_: None, consumer_tag="cashier")
    publish(channel, "bills", b"1", b"2", b"3")
    go(page, "queues")
    expect(row(page, "bills").locator("td[data-label=Total]")).to_have_text("3")
    page.get_by_role("link", name="bills").click()
    expect(headed(page, "Queue bills")).to_be_visible()
    for name, value in {"Ready": "2", "Unacknowledged": "1"}.items():
        fact = page.locator("dl div").filter(has=page.locator("dt", has_text=name)).first
        expect(fact.locator("dd")).to_have_text(value)
    expect(row(page, "cashier")).to_be_visible()
    expect(page.get_by_role("link", name="eu", exact=True)).to_be_visible()
    expect(page.get_by_text("x-dead-letter-exchange = lost")).to_be_visible()


def test_who_is_connected_is_told_with_channels_and_consumers(page: Page, channel: BlockingChannel) -> None:
    channel.basic_consume("bills", lambda *_: None, consumer_tag="cashier")
    go(page, "consumers")
    expect(row(page, "cashier").get_by_role("link", name="bills")).to_be_visible()
    go(page, "connections")
    expect(row(page, "guest")).to_have_count(1)
    row(page, "guest").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Connection 127.0.0.1")
    expect(page.get_by_text("Pika Python Client Library").first).to_be_visible()
    page.locator("td[data-label=Channel] a").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Channel 127.0.0.1")
    expect(row(page, "cashier")).to_be_visible()


def test_a_streams_readers_are_shown_with_their_lag(page: Page, channel: BlockingChannel) -> None:
    publish(channel, "log", b"1", b"2", b"3")
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("log", lambda *_: None, consumer_tag="slow", arguments={"x-stream-offset": "first"})
    go(page, "streams")
    expect(row(page, "slow").locator("td[data-label=Lag]")).to_have_text("2")
    expect(row(page, "log").first.locator("td[data-label=Messages]")).to_have_text("3")


def test_the_drawing_shows_where_messages_go(page: Page, channel: BlockingChannel) -> None:
    go(page, "topology")
    drawing = page.locator(".drawn")
    for name in ("e:orders", "e:eu", "e:lost", "q:bills", "q:unrouted"):
        expect(drawing.locator(f"a[data-id='{name}']")).to_be_visible()
    expect(drawing.locator("path.edge")).to_have_count(5)
    expect(drawing.locator("path.edge.alternate")).to_have_count(1)
    expect(drawing.locator("path.edge.dead-letters")).to_have_count(1)
    left = drawing.locator("[data-id='e:orders'] rect").bounding_box()
    right = drawing.locator("[data-id='q:bills'] rect").bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] < right["x"]


def test_the_drawing_is_zoomed_and_stays_so(page: Page, channel: BlockingChannel) -> None:
    go(page, "topology", query="?vhost=/")
    drawing = page.locator(".drawn svg")
    expect(drawing).to_be_visible()
    whole = drawing.evaluate("svg => svg.clientWidth")
    page.get_by_role("button", name="Larger").click()
    refresh(page)
    assert drawing.evaluate("svg => svg.clientWidth") > whole
    page.get_by_role("button", name="Smaller").click()
    assert drawing.evaluate("svg => svg.clientWidth") == whole


SMALL: Final = """svg => [...svg.querySelectorAll("text")].filter(text =>
    parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a < 12).length"""


@pytest.mark.parametrize("width", [1400, 390])
def test_the_drawing_can_be_read_and_leaves_no_bands(
    page: Page, channel: BlockingChannel, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    go(page, "topology", query="?vhost=/")
    drawing = page.locator(".drawn svg")
    expect(drawing).to_be_visible()
    assert drawing.evaluate(SMALL) == 0
    boxes = drawing.locator(".node rect")
    places = [box for each in boxes.all() if (box := each.bounding_box()) is not None]
    whole = page.locator(".drawn").bounding_box()
    assert whole is not None
    assert min(box["y"] for box in places) - whole["y"] < 20
    assert whole["y"] + whole["height"] - max(box["y"] + box["height"] for box in places) < 40
    names = page.locator(".drawn text.name")
    for each in range(names.count()):  # no name is wider than its node
        assert names.nth(each).evaluate("text => text.getBBox().width") <= places[each]["width"]


def test_the_drawing_is_searched_and_shows_the_neighbours_of_one(
    page: Page, channel: BlockingChannel
) -> None:
    go(page, "topology", query="?vhost=/")
    page.get_by_label("Find in the drawing of /").fill("UNROU")
    expect(page.locator(".node.found")).to_have_attribute("data-id", "q:unrouted")
    page.get_by_label("Find in the drawing of /").fill("eu")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator(".node.focus")).to_be_visible()
    ids = page.locator(".drawn .node").evaluate_all("all => all.map(each => each.dataset.id)")
    assert set(ids) == {"e:eu", "e:orders", "q:bills"}
    page.locator("[data-id='e:eu'].focus").click()
    expect(headed(page, "Exchange eu")).to_be_visible()
    page.go_back()
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("[data-id='q:unrouted']")).to_be_visible()


def test_the_drawing_tells_how_much_goes_where(page: Page, channel: BlockingChannel) -> None:
    exchange = {"name": "eu", "type": "fanout", "message_stats": {"publish_in_details": {"rate": 12.4}}}
    page.route(
        "**/api/exchanges/%2F?**", lambda route: route.fulfill(json={"items": [exchange], "page_count": 1})
    )
    go(page, "topology", query="?vhost=/")
    expect(page.locator(".link.flows text.rate")).to_have_text("12/s")
    expect(page.locator("[data-id='e:eu'] .below")).to_have_text("fanout · 12/s")


def test_a_drawing_of_each_virtual_host_is_there(
    page: Page, node: PageNode, channel: BlockingChannel
) -> None:
    shop = node.node.broker.virtual_hosts["shop"]
    node.call(lambda: shop.declare_exchange("herbs", "fanout", durable=True))
    go(page, "topology")
    expect(page.get_by_role("heading", name="Virtual host shop")).to_be_visible()
    expect(page.locator("[data-id='e:herbs']")).to_be_visible()
    expect(page.locator("[data-id='e:orders']")).to_be_visible()


def test_names_are_completed_where_a_route_is_explained(page: Page, channel: BlockingChannel) -> None:
    go(page, "topology", query="?vhost=/")
    page.get_by_label("Exchange", exact=True).fill("ord")
    expect(page.locator("datalist option[value=orders]")).to_have_count(1)
    page.get_by_label("Exchange", exact=True).fill("orders")
    page.get_by_label("Routing key").focus()
    expect(page.locator("datalist option[value='eu.#']")).to_have_count(1)


def test_pointing_at_a_chart_tells_the_figures_of_that_moment(page: Page) -> None:
    chart = page.locator("figure", has_text="Queued messages")
    shown = chart.locator(".times span").last
    expect(chart.locator("svg")).to_be_visible()
    latest = shown.text_content()
    chart.locator("svg").hover(position={"x": 5, "y": 20})
    expect(shown).not_to_have_text(str(latest))
    page.mouse.move(0, 0)
    expect(chart.locator("svg.pointed")).to_have_count(0)


def test_a_route_is_explained_in_the_drawing_and_in_words(page: Page, channel: BlockingChannel) -> None:
    go(page, "topology")
    page.get_by_label("Exchange", exact=True).fill("orders")
    page.get_by_label("Routing key").fill("eu.berlin")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_text("It reaches queue “bills”.")).to_be_visible()
    expect(page.get_by_text("by binding “eu.#”")).to_be_visible()
    expect(page.locator("[data-id='q:bills'].lit")).to_be_visible()
    expect(page.locator("[data-id='q:unrouted'].lit")).to_have_count(0)
    expect(page.locator(".link.lit .edge")).to_have_count(2)
    page.get_by_label("Routing key").fill("us")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_text("It reaches queue “unrouted”.")).to_be_visible()
    expect(page.locator(".link.lit path.alternate")).to_have_count(1)


def test_a_route_of_nowhere_is_refused_in_words(visit: Visit, page: Page) -> None:
    go(page, "topology")
    page.get_by_label("Exchange", exact=True).fill("nowhere")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_text("nowhere").first).to_be_visible()
    visit.expect_errors("404")


@pytest.fixture
def aged(context: BrowserContext) -> Iterator[tuple[PageNode, Page]]:
    """A node that has been up for two minutes, which have not been waited for, and a page of it."""
    node = PageNode()
    with node:
        node.clock.advance(120)
        visit = Visit(context, node.page_url)
        yield node, visit.enter()
        visit.page.close()
        assert visit.unexpected == []


def test_a_row_has_a_curve_of_the_last_ten_minutes(aged: tuple[PageNode, Page]) -> None:
    node, page = aged
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("bills", durable=True)
        publish(channel, "bills", b"1", b"2", b"3")
        go(page, "queues")
        curve = row(page, "bills").locator("svg.spark")
        expect(curve).to_have_attribute("aria-label", "Last ten minutes: Messages 0 to 3")
        go(page, "connections")
        expect(row(page, "guest").locator("svg.spark")).to_have_attribute(
            "aria-label", re.compile("In .*/s; Out ")
        )


def test_what_is_told_beside_a_chart_is_what_the_tiles_tell(page: Page, channel: BlockingChannel) -> None:
    publish(channel, "bills", b"1", b"2", b"3")
    refresh(page)
    expect(page.locator(".tile", has_text="Ready").locator("b")).to_have_text("3")
    legend = page.locator("figure", has_text="Queued messages").locator(".legend li")
    expect(legend.filter(has_text="Ready").locator("b")).to_have_text("3")


def bound(node: PageNode, many: int) -> None:
    host = node.node.broker.virtual_hosts["/"]
    for number in range(many):
        queue = host.declare_queue(f"q{number:03}", durable=True)
        host.bind(host.exchanges["amq.fanout"], queue, "", {})


def test_many_bindings_are_asked_for_in_part_and_seldom(page: Page, node: PageNode) -> None:
    node.call(lambda: bound(node, 500))
    page.clock.install()
    go(page, "topology")
    expect(page.get_by_text("300 bindings more are left out")).to_be_visible()
    expect(page.locator(".drawn [data-id='e:amq.fanout']")).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(11_000)
    node.raise_alarm("low on disk")
    page.clock.run_for(11_000)
    expect(page.get_by_role("alert").get_by_text("low on disk")).to_be_visible()
    node.clear_alarm("low on disk")
    assert any("/queues/" in url for url in asked)  # for their rates
    assert not any("/bindings/" in url for url in asked)
    with page.expect_response(lambda response: "%2F/amq.fanout/bindings/source" in response.url) as answer:
        page.clock.run_for(30_000)
    assert len(answer.value.json()["items"]) == 200
    go(page, "exchanges", "/", "amq.fanout")
    bindings = page.locator("section", has_text="Bindings from here")
    expect(bindings.get_by_text("50 of 500 bindings.")).to_be_visible()
    bindings.get_by_role("link", name="Last page").click()
    expect(bindings.get_by_role("link", name="q499")).to_be_visible()


def test_an_alarm_is_told_everywhere(page: Page, node: PageNode) -> None:
    health = page.get_by_role("banner").locator(".health")
    expect(health).to_have_text("Running")
    node.raise_alarm("low on disk")
    go(page, "queues")
    expect(page.get_by_role("alert").get_by_text("low on disk")).to_be_visible()
    expect(health).to_have_text("Alarm")
    go(page, "alarms")
    expect(page.get_by_text("Alarm: low on disk. Connections that publish")).to_be_visible()
    expect(page.get_by_text("low on disk")).to_have_count(1)
    node.clear_alarm("low on disk")
    refresh(page)
    expect(page.get_by_text("No alarm is on.")).to_be_visible()


def test_what_is_gone_is_told_in_words(visit: Visit, page: Page) -> None:
    go(page, "queues", "/", "nobody")
    expect(headed(page, "Queue nobody")).to_be_visible()
    expect(page.locator("main .empty")).to_be_visible()
    visit.expect_errors("404")
    go(page, "no", "such", "view")
    expect(page.get_by_text("This link leads nowhere.")).to_be_visible()


def test_long_names_are_no_wider_than_a_phone(page: Page, channel: BlockingChannel) -> None:
    channel.basic_consume("bills", lambda *_: None, consumer_tag="c" * 100)
    channel.queue_declare("a-rather-long-name." * 10, durable=True)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    for names in (("queues",), ("queues", "/", "bills"), ("topology",), ("consumers",), ("channels",)):
        go(page, *names)
        arrived(page, *names)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], names


def test_what_a_stream_holds_is_no_wider_than_a_phone(page: Page, channel: BlockingChannel) -> None:
    publish(channel, "log", bytes(range(256)), b"x" * 500)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    go(page, "queues", "/", "log")
    panel = opened(page, "Look at messages")
    submit(panel)
    expect(panel.locator("pre")).to_have_count(2)
    for message in panel.locator(".message").all():
        box = message.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= PHONE["width"]


def test_the_menu_of_a_phone_opens_and_leads_on(page: Page) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    expect(page.locator("#navigation")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    refresh(page)
    page.locator("nav a[href='#/queues']").click()
    expect(headed(page, "Queues")).to_be_visible()
    expect(page.locator("#navigation")).to_be_hidden()


def test_charts_tell_the_same_numbers_as_the_tiles_above(page: Page) -> None:
    samples = [{"sample": 3, "timestamp": 1_700_000_000_000 - ago} for ago in (0, 5000, 10_000)]
    answer = {
        "queue_totals": {"messages_ready": 7, "messages_ready_details": {"rate": 0.8, "samples": samples}},
        "message_stats": {"publish": 3, "publish_details": {"rate": 2.5, "samples": samples}},
        "object_totals": {},
        "churn_rates": {},
    }
    page.route("**/api/overview?**", lambda route: route.fulfill(json=answer))
    refresh(page)
    expect(page.locator("a.tile", has_text="Ready").locator("b")).to_have_text("7")
    expect(page.locator("figure", has_text="Queued messages").locator("li b").first).to_have_text("7")
    expect(page.locator("a.tile", has_text="Published").locator("b")).to_have_text("2.5/s")
    expect(page.locator("figure", has_text="Message rates").locator("li b").first).to_have_text("2.5/s")
