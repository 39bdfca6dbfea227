"""What tests do on the page, in the words of who sits before it."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from playwright.sync_api import Locator, Page, expect

from tests.interop.conftest import wait_until


def go(page: Page, *names: str, query: str = "") -> None:
    """Follow a link of the page's."""
    page.goto(page.url.partition("#")[0] + "#/" + "/".join(quote(name, safe="") for name in names) + query)


def arrived(page: Page, *names: str) -> None:
    """The page shows what the link of these names leads to."""
    key = json.dumps(names, ensure_ascii=False, separators=(",", ":"))
    expect(page.locator("#main")).to_have_attribute("data-key", key)


def headed(page: Page, title: str) -> Locator:
    return page.get_by_role("heading", level=1, name=title, exact=True)


def opened(page: Page, title: str) -> Locator:
    """A panel that is opened when it is wanted."""
    panel = page.locator("details").filter(
        has=page.locator("summary", has_text=re.compile(f"^{re.escape(title)}$"))
    )
    panel.locator("summary").click()
    return panel


def fill(form: Locator, **values: str | bool) -> None:
    """Fields by their names in the form."""
    for name, value in values.items():
        field = form.locator(f"[name={name}]")
        if isinstance(value, bool):
            field.set_checked(value)
        elif field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def submit(form: Locator) -> None:
    form.locator("button[type=submit]").click()


def told(page: Page, text: str) -> None:
    """The page says so in passing."""
    expect(page.locator("#notices").get_by_text(text).first).to_be_visible()


def confirm(page: Page, verb: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()


def refresh(page: Page) -> None:
    """As if the five seconds were over."""
    with page.expect_response(lambda response: "/api/leveret/status" in response.url):
        page.evaluate("document.dispatchEvent(new Event('leveret:host'))")


def refresh_until(page: Page, locator: Locator, text: str) -> None:
    """Refresh until something that comes by itself has this text: the five seconds are not waited for."""
    wait_until(lambda: locator.all_text_contents() == [text] or refresh(page), text)


def refresh_in_vain(page: Page) -> None:
    """The same, where no node answers."""
    page.evaluate("document.dispatchEvent(new Event('leveret:host'))")


def row(page: Page, text: str) -> Locator:
    return page.locator("tbody tr").filter(has_text=text)
