"""A node with its web page, and a headless Chromium that looks at it.

`page` is a page of the browser where somebody has logged in; `visit` opens others. A test fails if the page reported
an error or a violation of its policy, or opened a dialog of the browser's, unless the test says that it made it so
with `expect_errors`. Browser and node serve all tests, so that files are loaded once; each test has a tab of its own,
and finds the node as its configuration has it. They end with the last test here: Playwright keeps a loop of asyncio
running in this thread, where tests elsewhere want one of their own.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from leveret.server.node.assembly import populate
from leveret.virtual_host import VirtualHost
from tests.harness.chromium import REMEDY, chromium
from tests.interop.conftest import RunningNode, missing
from tests.security.issuer import settings, write_keys

TIMEOUT_MS: Final = 60_000  # for anything that should happen soon, on a busy machine
SHARED: Final = ("--process-per-site", "--renderer-process-limit=1")  # no process for each page
LEEWAY_S: Final = 30  # that a token is good for after its end
PHONE: Final = {"width": 360, "height": 740}
DESK: Final = {"width": 1280, "height": 900}
SETTINGS: Final = """
http.enabled = true
http.address = "127.0.0.1:0"

[[virtual_hosts]]
name = "/"
[[virtual_hosts]]
name = "shop"

[[users]]
name = "guest"
password = "guest"
tags = ["administrator"]
permissions."/" = { configure = ".*", write = ".*", read = ".*" }
permissions."shop" = { configure = ".*", write = ".*", read = ".*" }

[[users]]
name = "keeper"
password = "sesame"
tags = ["management"]
permissions."shop" = { configure = ".*", write = ".*", read = ".*" }

[[users]]
name = "maker"
password = "sesame"
tags = ["policymaker"]
permissions."/" = { configure = ".*", write = ".*", read = ".*" }

[[users]]
name = "watcher"
password = "sesame"
tags = ["monitoring"]

[[users]]
name = "worker"
password = "sesame"
permissions."/" = { configure = ".*", write = ".*", read = ".*" }
"""
# What is wrong in the page's own eyes, also where the browser's console would not say.
WATCH: Final = """
addEventListener("securitypolicyviolation", ({violatedDirective, blockedURI}) => {
    console.error(`policy: ${violatedDirective} ${blockedURI}`);
});
"""

# Once: who logs out then is out.
ENTERED: Final = """
if (!sessionStorage.getItem("tests.entered")) {
    sessionStorage.setItem("tests.entered", "yes");
    sessionStorage.setItem("leveret.login", "%s");
}
"""

expect.set_options(timeout=TIMEOUT_MS)


class Visit:
    """Somebody at the browser."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.errors: list[str] = []
        self._expected: list[str] = []
        self.page = context.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.add_init_script(WATCH)
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "dialog", lambda dialog: (self.errors.append(f"dialog: {dialog.message}"), dialog.dismiss())
        )

    def enter(self, name: str = "guest", password: str = "guest") -> Page:
        """As who has logged in before, in this tab."""
        login = base64.b64encode(f"{name}:{password}".encode()).decode()
        self.page.add_init_script(ENTERED % f"Basic {login}")
        self.page.goto(self.url)
        expect(self.page.get_by_role("heading", name="Overview")).to_be_visible()
        return self.page

    def log_in(self, name: str = "guest", password: str = "guest") -> Page:
        self.page.goto(self.url)
        self.page.get_by_label("User name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in", exact=True).click()
        return self.page

    def log_in_with(self, token: str) -> Page:
        self.page.goto(self.url)
        self.page.get_by_role("button", name="Log in with a token").click()
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Log in", exact=True).click()
        return self.page

    def expect_errors(self, *parts: str) -> None:
        """What the test made the page report, sooner or later: refusals are errors to the browser's console."""
        self._expected += parts

    @property
    def unexpected(self) -> list[str]:
        return [error for error in self.errors if not any(part in error for part in self._expected)]


class PageNode(RunningNode):
    """A node with its page."""

    def __init__(self, toml: str = SETTINGS, port: int = 0) -> None:
        super().__init__(toml, port)

    @property
    def host(self) -> VirtualHost:
        return self.node.broker.virtual_hosts["/"]

    def publish(self, queue: str, *bodies: bytes) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            publish(connection.channel(), queue, *bodies)

    def restore(self) -> None:
        """As it was when it began."""

        def restored() -> None:
            broker = self.node.broker
            for name in list(broker.virtual_hosts):
                broker.delete_virtual_host(name)
            for user in broker.access.users():
                broker.access.delete_user(user.name)
            populate(broker, self.node.config)

        self.call(restored)

    @property
    def page_url(self) -> str:
        listening = self.call(self.node.admin.listeners)
        port = next(each.port for each in listening if "http" in each.protocols)
        return f"http://127.0.0.1:{port}/"


def publish(channel: BlockingChannel, queue: str, *bodies: bytes) -> None:
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(headers={"origin": "shop"}))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = chromium() or missing("Chromium", REMEDY)
    with sync_playwright() as playwright:
        # it may run as root
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *SHARED])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def context(browser: Browser, standing: PageNode) -> Iterator[BrowserContext]:
    """Return where pages are opened. One stays open: the process that shows it shows the others, too."""
    context = browser.new_context(viewport=DESK, accept_downloads=True)
    context.new_page().goto(f"{standing.page_url}leveret.svg")
    yield context
    context.close()


@pytest.fixture(scope="package")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageNode]:
    keys = write_keys(tmp_path_factory.mktemp("issuer"))
    node = PageNode(SETTINGS + settings(keys, f"leeway_s = {LEEWAY_S}"))
    node.start()
    yield node
    node.stop()


@pytest.fixture
def node(standing: PageNode) -> Iterator[PageNode]:
    yield standing
    standing.restore()


@pytest.fixture
def visit(context: BrowserContext, node: PageNode) -> Iterator[Visit]:
    visit = Visit(context, node.page_url)
    yield visit
    for page in context.pages[1:]:
        page.close()
    assert visit.unexpected == []


@pytest.fixture
def page(visit: Visit) -> Page:
    return visit.enter()
