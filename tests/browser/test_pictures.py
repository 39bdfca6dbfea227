"""Every page, at the width of a desk and of a phone, in light and in dark: accessible by axe-core, no wider than the
screen.

With `LEVERET_PICTURES=FOLDER` there are pictures in that folder, for people to look at: PAGE-WIDTH-SCHEME.png.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final
from urllib.parse import quote

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import BrowserContext, Page, expect

from leveret.features.shovels.shovels import shovels_of
from leveret.policy import Policy
from leveret.server.node.logs import LogTargets
from tests.harness.paho import Paho
from tests.harness.seldom import elsewhere, looks
from tests.interop.conftest import missing
from tests.sources import ROOT

from .conftest import SETTINGS, PageNode, Visit
from .walking import arrived, go, headed, opened, submit

pytestmark = pytest.mark.system

PICTURES: Final = os.environ.get("LEVERET_PICTURES")
AXE: Final = ROOT / "tests" / "interop" / "node_modules" / "axe-core" / "axe.min.js"
ALL: Final[dict[str, object]] = {"resultTypes": ["violations"]}
COLOURS: Final[dict[str, object]] = {**ALL, "runOnly": ["color-contrast", "link-in-text-block"]}
HEIGHTS: Final = {1400: 900, 390: 844}
# Every rule at either width, once: the two schemes differ in nothing but colours.
LOOKS: Final = ((1400, "light", ALL), (1400, "dark", COLOURS), (390, "dark", ALL), (390, "light", COLOURS))
LINES: Final = (
    (logging.INFO, "configuration reloaded: limits.memory"),
    (logging.WARNING, "hung up on 10.0.0.7:40000: 300 connections have not logged in yet"),
    (logging.ERROR, "plugin refused, what was there before stays: spread"),
)
FINDINGS: Final = """async (rules) => {
    const {violations} = await axe.run(rules);
    return violations.map(({id, nodes}) => `${id}: ${nodes.map(({html}) => html.slice(0, 160)).join(" | ")}`);
}"""
# On a phone numbers share a line two by two; one that is alone has the line for itself.
HALVED: Final = """() => {
    const isNumber = (cell) => Boolean(cell?.matches(".number"));
    const isAlone = (cell) => !isNumber(cell.previousElementSibling) && !isNumber(cell.nextElementSibling);
    const isHalf = (cell) => cell.offsetParent && cell.offsetWidth < 0.6 * cell.parentElement.offsetWidth;
    const cells = [...document.querySelectorAll("td.number")];
    return cells.filter((cell) => isAlone(cell) && isHalf(cell)).map((cell) => cell.dataset.label);
}"""
PAGES: Final = {
    "overview": (),
    "queues": ("queues",),
    "queue": ("queues", "/", "bills"),
    "stream": ("queues", "shop", "log"),
    "exchanges": ("exchanges",),
    "exchange": ("exchanges", "/", "orders"),
    "topology": ("topology",),
    "streams": ("streams",),
    "leases": ("leases",),
    "transactions": ("transactions",),
    "connections": ("connections",),
    "channels": ("channels",),
    "consumers": ("consumers",),
    "policies": ("policies",),
    "shovels": ("shovels",),
    "federation": ("federation",),
    "users": ("users",),
    "user": ("users", "keeper"),
    "vhosts": ("vhosts",),
    "vhost": ("vhosts", "shop"),
    "definitions": ("definitions",),
    "alarms": ("alarms",),
    "log": ("log",),
    "nothing": ("no", "such"),
}
LONG: Final = "de.example.very-long-company-name.billing.invoices.outgoing.retry-after-five-minutes.v2"
LENGTHY: Final = {
    "queues": ("queues",),
    "queue": ("queues", "/", LONG),
    "exchange": ("exchanges", "/", LONG),
    "topology": ("topology",),
    "consumers": ("consumers",),
    "policies": ("policies",),
    "sessions": ("kept", "mqtt", "sessions"),
    "session": ("kept", "mqtt", "sessions", "/", LONG),
}
EMPTY: Final = ("overview", "queues", "topology", "streams", "connections", "policies", "shovels")


@pytest.fixture
def axe() -> str:
    return (AXE if AXE.exists() else Path(missing("axe-core", "scripts/setup.sh npm"))).read_text()


def look(page: Page, name: str, axe: str) -> list[str]:
    """Return what is wrong with what the page shows, in each look, and take pictures if they are asked for."""
    found = []
    for width, scheme, rules in LOOKS:
        page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        page.evaluate("scrollTo(0, 0); document.dispatchEvent(new Event('leveret:redraw'))")
        if not page.evaluate("typeof axe === 'object'"):
            page.evaluate(f"() => {{{axe}}}")
        title = f"{name} at {width} in {scheme}"
        found += [f"{title}: {each}" for each in page.evaluate(FINDINGS, rules)]
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            found.append(f"{title}: is {wide} wide")
        if width < 400:
            found += [f"{title}: {each} has half a line" for each in page.evaluate(HALVED)]
        if PICTURES:  # half of the processor time of these tests
            page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{scheme}.png", full_page=True)
    return found


@pytest.fixture
def shop(node: PageNode) -> Iterator[BlockingChannel]:
    """A client with a name, in a shop that has something of everything."""
    parameters = pika.URLParameters(node.url)
    parameters.client_properties = {"connection_name": "cashier 7"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    fill(channel)
    channel.basic_qos(prefetch_count=20)
    channel.basic_consume("bills", lambda *_: None, consumer_tag="cashier")
    node.call(lambda: add_others(node))
    node.node.log_targets = LogTargets(node.node.config.log)
    for level, said in LINES:
        logging.getLogger("leveret.node").log(level, said)
    yield channel
    node.node.log_targets.close()
    node.node.log_targets = None
    connection.close()


def fill(channel: BlockingChannel) -> None:
    channel.exchange_declare("orders", "topic", durable=True, arguments={"alternate-exchange": "lost"})
    for name in ("lost", "eu", "us"):
        channel.exchange_declare(name, "fanout", durable=True)
    dead = {"x-dead-letter-exchange": "lost", "x-max-length": 50}
    channel.queue_declare("bills", durable=True, arguments=dead)
    channel.queue_declare(
        "shipments.of-everything-that-is-heavy", durable=True, arguments={"x-max-priority": 5}
    )
    for name in ("unrouted", "mail", "audit"):
        channel.queue_declare(name, durable=True)
    for name, key in (("eu", "eu.#"), ("us", "us.#"), ("us", "ca.*.express")):
        channel.exchange_bind(name, "orders", key)
    for exchange, queue in (("eu", "bills"), ("eu", "mail"), ("us", "mail"), ("lost", "unrouted")):
        channel.queue_bind(queue, exchange)
    channel.queue_bind("audit", "orders", "#")
    channel.queue_bind("shipments.of-everything-that-is-heavy", "orders", "*.heavy")
    properties = pika.BasicProperties(
        content_type="application/json", headers={"trace": b"\xff\x00\x12\x9a", "origin": "shop", "tries": 3}
    )
    for number in range(80):
        channel.basic_publish(
            "orders", "eu.berlin", b'{"order": %d, "items": ["tea", "cups"]}' % number, properties
        )


def add_others(node: PageNode) -> None:
    broker = node.node.broker
    shop = broker.virtual_hosts["shop"]
    stream = shop.declare_queue("log", durable=True, arguments={"x-queue-type": "stream"})
    shop.bind(shop.exchanges["amq.topic"], stream, "order.#", {})
    value = {"src-uri": "amqp://", "src-queue": "audit", "dest-uri": "amqp:///shop", "dest-queue": "kept"}
    shovels_of(broker).set("/", "to-shop", value, "guest")
    broken = {**value, "dest-uri": "amqp://user:secret@127.0.0.1:1", "reconnect-delay": 60}
    shovels_of(broker).set("/", "to-nowhere", broken, "guest")
    broker.policies.set(Policy("short", "/", "^mail", {"max-length": 1000, "overflow": "reject-publish"}))
    broker.policies.set_operator(Policy("bound", "/", ".*", {"max-length-bytes": 1 << 30}))


@looks
def test_every_page_is_accessible_and_fits_the_screen(
    visit: Visit, page: Page, shop: BlockingChannel, axe: str
) -> None:
    visit.expect_errors("404")
    found = []
    for name, names in PAGES.items():
        go(page, *names)
        arrived(page, *(("missing",) if name == "nothing" else names))
        expect(page.locator("#main h1")).to_be_visible()
        found += look(page, name, axe)
    for kind in ("connections", "channels"):
        go(page, kind)
        page.locator("td[data-label=Client] a").first.click()
        expect(page.get_by_role("heading", name="Details")).to_be_visible()
        found += look(page, kind[:-1], axe)
    assert "\n".join(found) == ""


@elsewhere
def test_what_opens_is_accessible_too(visit: Visit, page: Page, shop: BlockingChannel, axe: str) -> None:
    go(page, "queues", "/", "unrouted")
    expect(headed(page, "Queue unrouted")).to_be_visible()
    submit(opened(page, "Look at messages"))
    expect(page.locator(".message").first).to_be_visible()
    found = look(page, "messages", axe)
    page.get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    found += look(page, "question", axe)
    page.keyboard.press("Escape")
    go(page, "queues")
    page.get_by_label("Select unrouted").check()
    expect(page.get_by_role("group", name="Selected queues")).to_be_visible()
    found += look(page, "picked", axe)
    go(page, "topology", query="?vhost=/&exchange=orders&key=eu.berlin&explain=yes")
    expect(page.locator(".explanation")).to_be_visible()
    found += look(page, "explained", axe)
    go(page, "policies", query="?edit=" + quote('["policies","/","short"]'))
    form = page.locator("section", has_text="Change policy short").locator("form")
    form.locator("[name=definition]").fill("no sign")
    submit(form)
    expect(page.locator("#notices .failed")).to_be_visible()
    found += look(page, "refused", axe)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("User name")).to_be_visible()
    found += look(page, "login", axe)
    assert "\n".join(found) == ""


@pytest.fixture
def lengthy(context: BrowserContext) -> Iterator[Visit]:
    """A visit of a node with one queue, one policy and one client, whose names are the longest that programs give."""
    node = PageNode(
        f'listeners = [{{ address = "127.0.0.1:0", protocols = ["amqp091", "mqtt"] }}]\n{SETTINGS}'
    )
    node.start()
    node.declare(LONG, durable=True, arguments={"x-queue-type": "quorum", "x-dead-letter-exchange": "lost"})
    node.call(lambda: name_at_length(node))
    client = Paho(SimpleNamespace(host="127.0.0.1", port=node.port), LONG, "5").start()
    client.subscribe(f"{LONG}/#", qos=1)
    client.publish(f"{LONG}/state", b'{"celsius": 4.2}', qos=1, retain=True)
    visit = Visit(context, node.page_url)
    yield visit
    visit.page.close()
    client.stop()
    node.stop()
    assert visit.unexpected == []


@elsewhere
def test_long_names_and_the_lists_of_protocols_fit_the_screen(lengthy: Visit, axe: str) -> None:
    page = lengthy.enter()
    found = []
    for name, names in LENGTHY.items():
        go(page, *names)
        arrived(page, *names)
        expect(page.locator("#main")).to_contain_text(LONG)
        found += look(page, f"long-{name}", axe)
    assert "\n".join(found) == ""


def name_at_length(node: PageNode) -> None:
    node.host.declare_exchange(LONG, "headers", durable=True)
    queue = node.host.queues[LONG]
    node.host.bind(node.host.exchanges[LONG], queue, LONG, {"x-match": "all", "country": "de", "weight": 3})
    node.node.broker.policies.set(
        Policy(LONG, "/", f"^{LONG}$", {"max-length": 1000, "message-ttl": 86_400_000})
    )


@elsewhere
def test_an_empty_node_is_accessible_and_fits_the_screen(visit: Visit, page: Page, axe: str) -> None:
    found = []
    for name in EMPTY:
        go(page, name)
        arrived(page, name)
        found += look(page, f"empty-{name}", axe)
    assert "\n".join(found) == ""
