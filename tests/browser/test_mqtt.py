"""MQTT.js in a page: a browser that subscribes and publishes over a WebSocket, as the page of another site."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from playwright.sync_api import Browser, Error, expect

from tests.interop.conftest import Start, missing, running_nodes

pytestmark = pytest.mark.system

SCRIPT: Final = Path(__file__).parents[1] / "interop" / "node_modules" / "mqtt" / "dist" / "mqtt.min.js"
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "30_mqtt_in_a_page.html"
PLACE: Final = "https://unpkg.com/mqtt@5/dist/mqtt.min.js"  # of the script, as the example has it
SETTINGS: Final = """
[[listeners]]
address = "127.0.0.1:0"
protocols = ["mqtt"]
websocket = true
websocket_origins = ["%s"]
"""
TALK: Final = """
async ([url, version]) => {
    const options = {username: "guest", password: "guest", protocolVersion: version, reconnectPeriod: 0};
    const client = mqtt.connect(url, options);
    await new Promise((resolve, reject) => {
        client.once("connect", resolve);
        client.once("close", () => reject(new Error("not let in")));
    });
    const heard = [];
    const all = new Promise((resolve) => client.on("message", (topic, payload, {qos, retain}) => {
        heard.push([topic, payload.toString(), qos, retain]);
        if (heard.length === 4) resolve();
    }));
    await client.publishAsync("room/state", "on", {qos: 1, retain: true});
    await client.subscribeAsync("room/#", {qos: 2});
    for (const qos of [0, 1, 2]) await client.publishAsync("room/light", `${qos}`, {qos});
    await all;
    await client.endAsync();
    return heard;
}
"""


class Site(BaseHTTPRequestHandler):
    """A site with a page that has the script, and the page of the example."""

    def do_GET(self) -> None:
        is_script = self.path.endswith(".js")
        body = SCRIPT.read_bytes() if is_script else b'<!doctype html><script src="/mqtt.js"></script>'
        if self.path.startswith(f"/{EXAMPLE.name}"):
            body = EXAMPLE.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if is_script else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *said: object) -> None: ...


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of a site that is not the node's."""
    if not SCRIPT.is_file():
        missing("mqtt", "run `make test`, or npm ci --prefix tests/interop")
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def node_with() -> Iterator[Start]:
    """A function from settings (TOML) to a node that runs until the test ends."""
    with running_nodes() as start:
        yield start


def talk(browser: Browser, site: str, port: int, version: int) -> list[list[object]]:
    page = browser.new_page()
    try:
        page.goto(f"{site}/")
        found: list[list[object]] = page.evaluate(TALK, [f"ws://127.0.0.1:{port}/mqtt", version])
        return found
    finally:
        page.close()


@pytest.mark.parametrize("version", [4, 5])
def test_a_page_subscribes_and_publishes(browser: Browser, site: str, node_with: Start, version: int) -> None:
    heard = talk(browser, site, node_with(SETTINGS % site).port, version)
    assert sorted(heard, key=str) == [
        ["room/light", "0", 0, False],
        ["room/light", "1", 1, False],
        ["room/light", "2", 2, False],
        ["room/state", "on", 1, True],
    ]


def test_the_page_of_the_example_shows_what_is_published(
    browser: Browser, site: str, node_with: Start
) -> None:
    port = node_with(SETTINGS % site).port
    page = browser.new_page()
    try:
        page.route(PLACE, lambda route: route.fulfill(path=SCRIPT))
        page.goto(f"{site}/{EXAMPLE.name}?broker=ws://127.0.0.1:{port}")
        expect(page.get_by_role("status")).to_have_text("connected")
        page.get_by_label("Say").fill("<b>hello</b>")
        page.get_by_role("button").click()
        expect(page.get_by_role("listitem")).to_have_text(["<b>hello</b>"])
    finally:
        page.close()


def test_the_page_of_a_site_that_is_not_named_is_refused(
    browser: Browser, site: str, node_with: Start
) -> None:
    with pytest.raises(Error, match="not let in"):
        talk(browser, site, node_with(SETTINGS % "http://other.example").port, 5)
