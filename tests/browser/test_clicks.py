"""Clicks of everyday tasks are as many as docs/web-ui.md says, by the pages and with the box that leads anywhere.

A click is a press of the pointer on a link, a button, a field, a box or a choice, and so is the answer to a question.
Typing is none, and neither are Tab to the next field, Enter in the field that was typed into, and `/`, which leads into
the box.
Each task begins on the overview, and ends when the broker has done it, or the page shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import pika
import pytest
from pika.exceptions import AMQPError
from playwright.sync_api import Locator, Page, expect

from leveret.policy import Policy
from tests.harness.seldom import clicks
from tests.interop.conftest import wait_until
from tests.sources import ROOT

from .conftest import PageNode
from .walking import row, told

pytestmark = pytest.mark.system

WALK: Final = "By the pages"
FIND: Final = "With `/`"


class Walker:
    """Somebody that presses and types, and counts the presses."""

    def __init__(self, page: Page, node: PageNode) -> None:
        self.page, self.node, self.clicks = page, node, 0

    def press(self, what: str | Locator, role: str = "link") -> None:
        found = self.page.get_by_role(role, name=what, exact=True) if isinstance(what, str) else what  # type: ignore[arg-type]
        found.click()
        self.clicks += 1

    def button(self, name: str) -> None:
        self.press(name, "button")

    def view(self, name: str) -> None:
        self.press(self.page.locator("#navigation").get_by_role("link", name=name, exact=True))

    def panel(self, title: str) -> None:
        """Open a form; the cursor is in one of its fields then."""
        self.press(self.page.locator("summary").filter(has_text=re.compile(f"^{re.escape(title)}$")))
        self.ready(title)

    def ready(self, title: str) -> None:
        panel = self.page.locator("details").filter(has=self.page.locator("summary", has_text=title))
        # The press gives the summary the cursor, before the panel opens and passes it on: Enter would close it again.
        expect(panel.locator(":focus:not(summary)")).to_be_attached()

    def answer(self, verb: str) -> None:
        self.press(self.page.get_by_role("dialog").get_by_role("button", name=verb, exact=True))

    def find(self, typed: str, offered: str) -> None:
        self.page.keyboard.press("/")
        self.keys(typed)
        expect(self.page.get_by_role("listbox", name="Found").get_by_role("option").first).to_have_text(
            offered
        )
        self.keys("\n")

    def keys(self, text: str) -> None:
        """Type; a tabulator and the end of a line are the keys Tab and Enter."""
        for part in re.split(r"([\t\n])", text):
            if part in ("\t", "\n"):
                self.page.keyboard.press("Tab" if part == "\t" else "Enter")
            elif part:
                self.page.keyboard.type(part)


class Task(NamedTuple):
    """A row of the table: how it is begun by the pages and with the box, what is done then, and what is so after it."""

    walk: Callable[[Walker], None]
    find: Callable[[Walker], None]
    act: Callable[[Walker], None]
    done: Callable[[Walker], object]


def to(view: str, name: str) -> Callable[[Walker], None]:
    def go(walker: Walker) -> None:
        walker.view(view)
        walker.press(walker.page.get_by_role("table").get_by_role("link", name=name, exact=True))
        expect(walker.page.get_by_role("heading", level=1)).to_contain_text(name)

    return go


def of(name: str, offered: str) -> Callable[[Walker], None]:
    def go(walker: Walker) -> None:
        walker.find(name, offered)
        expect(walker.page.get_by_role("heading", level=1)).to_contain_text(name)

    return go


def form(view: str, title: str) -> tuple[Callable[[Walker], None], Callable[[Walker], None]]:
    def walk(walker: Walker) -> None:
        walker.view(view)
        walker.panel(title)

    def find(walker: Walker) -> None:
        walker.find(title.lower(), f"{title}form")
        walker.ready(title)

    return walk, find


def list_of(view: str) -> tuple[Callable[[Walker], None], Callable[[Walker], None]]:
    return (
        lambda walker: walker.view(view),
        lambda walker: walker.find(view.lower(), f"{view}view"),
    )


def then(*steps: Callable[[Walker], None]) -> Callable[[Walker], None]:
    def act(walker: Walker) -> None:
        for step in steps:
            step(walker)

    return act


def panel(title: str, typed: str) -> Callable[[Walker], None]:
    return then(lambda walker: walker.panel(title), lambda walker: walker.keys(typed))


def asked(button: str, verb: str) -> Callable[[Walker], None]:
    return then(lambda walker: walker.button(button), lambda walker: walker.answer(verb))


def typed(text: str) -> Callable[[Walker], None]:
    return lambda walker: walker.keys(text)


def users(walker: Walker) -> list[str]:
    return [user.name for user in walker.node.node.broker.access.users()]


def ready(name: str, wanted: int) -> Callable[[Walker], object]:
    """There are so many messages in the queue; -1 if there is no such queue."""
    return lambda walker: walker.node.ready(name) == wanted


def shown(text: str) -> Callable[[Walker], object]:
    return lambda walker: expect(walker.page.locator("#main").get_by_text(text).first).to_be_visible()


def said(text: str) -> Callable[[Walker], object]:
    return lambda walker: told(walker.page, text)


QUEUE: Final = (to("Queues", "orders"), of("orders", "ordersqueue in /"))
KEEPER: Final = (to("Users", "keeper"), of("keeper", "keeperuser"))

TASKS: Final = {
    "Declare a queue": Task(
        *form("Queues", "Declare a queue"),
        typed("parcels\n"),
        ready("parcels", 0),
    ),
    "Declare a queue with a longest length": Task(
        *form("Queues", "Declare a queue"),
        then(
            typed("parcels"),
            lambda walker: walker.button("x-max-length"),
            typed("5"),
            lambda walker: walker.button("Declare"),
        ),
        ready("parcels", 0),
    ),
    "Purge a queue": Task(*QUEUE, asked("Purge", "Purge"), ready("orders", 0)),
    "Delete a queue": Task(*QUEUE, asked("Delete queue", "Delete"), ready("orders", -1)),
    "Look at the messages of a queue": Task(*QUEUE, panel("Look at messages", "\n"), shown("first parcel")),
    "Publish a message to a queue": Task(
        *QUEUE,
        then(panel("Publish to this queue", "carrot"), lambda walker: walker.button("Publish")),
        ready("orders", 3),
    ),
    "Move the messages of a queue to another": Task(
        *QUEUE,
        then(panel("Move messages", "spare\n"), lambda walker: walker.answer("Move")),
        ready("spare", 2),
    ),
    "Bind a queue to an exchange": Task(
        *QUEUE, panel("Bind to an exchange", "amq.topic\teu.#\n"), said("“orders” is bound to “amq.topic”")
    ),
    "Remove a binding": Task(*QUEUE, asked("Remove", "Remove"), said("The binding is removed")),
    "Pause the deliveries of a queue": Task(*QUEUE, asked("Pause", "Pause"), said("Queue “orders” is paused")),
    "Find which client reads a queue": Task(
        to("Queues", "mail"),
        of("mail", "mailqueue in /"),
        lambda walker: None,
        shown("cashier 7"),
    ),
    "Close a connection": Task(
        then(list_of("Connections")[0], lambda walker: walker.press("cashier 7")),
        then(*list_of("Connections")[1:], lambda walker: walker.press("cashier 7")),
        panel("Close this connection", "\n"),
        said("The connection is closed"),
    ),
    "Set a policy": Task(
        *form("Policies", "Add a policy"),
        then(
            typed("short"),
            lambda walker: walker.press(walker.page.get_by_label("Most messages in a queue").first),
            typed("100\n"),
        ),
        said("short applies now"),
    ),
    "Delete a policy": Task(
        *list_of("Policies"),
        then(
            lambda walker: walker.press(row(walker.page, "old").get_by_role("button", name="Delete")),
            lambda walker: walker.answer("Delete"),
        ),
        said("The policy is deleted"),
    ),
    "Add a user": Task(
        *form("Users", "Add a user"), typed("clerk\tsesame\tmanagement\n"), lambda walker: "clerk" in users(walker)
    ),
    "Give a user permissions": Task(
        *KEEPER, panel("Set permissions", "\n"), said("Permissions of “keeper” in “/” are set")
    ),
    "Change a password": Task(
        *KEEPER, panel("Change password or tags", "carrots\n"), said("User “keeper” is changed")
    ),
    "Delete a user": Task(
        *KEEPER, asked("Delete user", "Delete"), lambda walker: "keeper" not in users(walker)
    ),
    "Add a virtual host": Task(
        *form("Virtual hosts", "Add a virtual host"),
        typed("depot\n"),
        lambda walker: "depot" in walker.node.node.broker.virtual_hosts,
    ),
    "Find the longest queue": Task(
        *list_of("Queues"),
        lambda walker: walker.press(walker.page.get_by_role("columnheader").get_by_role("link", name="Total")),
        lambda walker: expect(walker.page.locator("tbody tr").first).to_contain_text("orders"),
    ),
}  # fmt: skip


def table() -> dict[str, dict[str, str]]:
    """Return the rows of the page's table by their tasks, each by its headings."""
    lines = (ROOT / "docs" / "web-ui.md").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("| Task |"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[begin:]]
    end = next(number for number, each in enumerate(cells) if each == [""])
    return {each[0]: dict(zip(cells[0], each, strict=True)) for each in cells[2:end]}


TABLE: Final = table()


@pytest.fixture
def walker(page: Page, node: PageNode) -> Iterator[Walker]:
    """Before a shop's broker: a queue with two messages and a binding, one with a client, and a policy."""
    for name in ("orders", "mail", "spare"):
        node.declare(name, durable=True)
    node.publish("orders", b"first parcel", b"second parcel")
    node.call(lambda: node.node.broker.policies.set(Policy("old", "/", "gone$", {"max-length": 5})))
    parameters = pika.URLParameters(node.url)
    parameters.client_properties = {"connection_name": "cashier 7"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_bind("orders", "amq.topic", "us.#")
    channel.basic_consume("mail", lambda *_: None)
    yield Walker(page, node)
    with suppress(AMQPError):  # a task closes it
        connection.close()


def test_the_table_has_each_task_and_twenty_of_them() -> None:
    assert list(TABLE) == list(TASKS)
    assert len(TASKS) == 20


# What no other test here has a browser do.
ALONE: Final = (
    "Declare a queue with a longest length",
    "Bind a queue to an exchange",
    "Remove a binding",
    "Find which client reads a queue",
    "Find the longest queue",
)


@pytest.mark.parametrize("way", [pytest.param(WALK, marks=clicks), FIND])
@pytest.mark.parametrize(
    "name", [each if each in ALONE else pytest.param(each, marks=clicks) for each in TASKS]
)
def test_a_task_takes_as_many_clicks_as_the_table_says(name: str, way: str, walker: Walker) -> None:
    task = TASKS[name]
    (task.walk if way == WALK else task.find)(walker)
    task.act(walker)
    wait_until(lambda: task.done(walker) is not False, name)
    assert walker.clicks == int(TABLE[name][way])


@pytest.mark.parametrize("name", TASKS)
def test_no_page_of_another_broker_needs_fewer_clicks(name: str) -> None:
    others = [int(TABLE[name][each]) for each in ("RabbitMQ", "LavinMQ") if TABLE[name][each] != "–"]
    assert int(TABLE[name][WALK]) <= min(others)
    assert int(TABLE[name][FIND]) < min(others)
