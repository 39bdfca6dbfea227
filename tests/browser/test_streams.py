"""Streams, leases and transactions on the page: looked through, put back, decided about."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from leveret.config.sections import PipelineEntry
from leveret.features.leases.lease import opened as lease_opened
from leveret.features.pipelines.supervised_pipelines import SupervisedPipelines
from leveret.features.xa.branch import Verb
from tests.features.xa.branching import Crew
from tests.harness.seldom import clicks

from .conftest import PageNode
from .walking import confirm, fill, go, headed, opened, row, submit, told

pytestmark = [pytest.mark.system, clicks]

MANY = 25


@pytest.fixture
def browsed(page: Page, node: PageNode) -> Locator:
    """The panel that goes through the stream `log`."""
    node.declare("log", durable=True, arguments={"x-queue-type": "stream"})
    node.publish("log", *[b"%d" % number for number in range(MANY)])
    go(page, "queues", "/", "log")
    return opened(page, "Look at messages")


def shown(panel: Locator, first: int, last: int) -> None:
    expect(panel.locator("pre")).to_have_text([str(number) for number in range(first, last + 1)])
    expect(panel.get_by_text(f"Offsets {first} to {last}; the stream has 0 to {MANY - 1}.")).to_be_visible()


def test_a_stream_is_gone_through_without_being_consumed(browsed: Locator, node: PageNode) -> None:
    submit(browsed)
    shown(browsed, 0, 9)
    expect(browsed.get_by_role("button", name="Earlier messages")).to_be_disabled()
    browsed.get_by_role("button", name="Later messages").click()
    shown(browsed, 10, 19)
    browsed.get_by_role("button", name="Latest messages").click()
    shown(browsed, 15, 24)
    expect(browsed.get_by_role("button", name="Later messages")).to_be_disabled()
    browsed.get_by_role("button", name="Earlier messages").click()
    shown(browsed, 5, 14)
    fill(browsed, offset="7", amount="25")
    submit(browsed)
    shown(browsed, 7, 24)
    expect(browsed.get_by_text("origin").first).to_be_visible()
    assert (node.ready("log"), node.unsettled("log")) == (MANY, 0)


def test_a_stream_is_looked_at_from_a_time_on(browsed: Locator) -> None:
    fill(browsed, since="2020-01-01T12:00")
    submit(browsed)
    shown(browsed, 0, 9)
    fill(browsed, since="2120-01-01T12:00")
    submit(browsed)
    expect(browsed.get_by_text(f"There is nothing from offset {MANY} on")).to_be_visible()


def test_bodies_are_shown_as_what_they_are(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True)
    node.publish("orders", b'{"id":12345678901234567890,"to":["x"]}', b"\x00\xffAB<b>", b"x" * 60_000)
    go(page, "queues", "/", "orders")
    panel = opened(page, "Look at messages")
    submit(panel)
    bodies = panel.locator("pre")
    expect(bodies).to_have_count(3)
    assert bodies.nth(0).text_content() == '{\n  "id": 12345678901234567890,\n  "to": [\n    "x"\n  ]\n}'
    expect(bodies.nth(1)).to_contain_text("00 ff 41 42 3c 62 3e")
    assert len(bodies.nth(2).text_content() or "") == 20_000
    expect(panel.get_by_text("30,000 more characters are not shown.")).to_be_visible()
    expect(panel.get_by_text("9.8 KiB more were not asked for.")).to_be_visible()


# Leases.


def test_a_lease_is_released_when_that_is_confirmed(page: Page, node: PageNode) -> None:
    node.declare("orders", durable=True)
    node.publish("orders", b"1", b"2", b"3")
    queue = node.find("orders")
    assert queue is not None
    node.call(lambda: lease_opened(queue, "billing").reserve(0, 2, 1 << 20, 0, lambda why: None))
    go(page, "leases")
    lease = row(page, "billing")
    expect(lease.locator("td[data-label=Reserved]")).to_have_text("2")
    lease.get_by_role("button", name="Release").click()
    confirm(page, "Cancel")
    assert node.ready("orders") == 1
    lease.get_by_role("button", name="Release").click()
    confirm(page, "Release")
    told(page, "2 messages are back in “orders”")
    expect(page.get_by_text("Nothing is reserved here")).to_be_visible()
    assert node.ready("orders") == 3


# Transactions.


def prepare(node: PageNode) -> None:
    """A branch that publishes one message to `orders`, and waits for a decision."""
    host = node.host
    user = node.node.broker.access.user("guest")
    assert user is not None
    crew = Crew(host, user)
    crew.work("a", sends=[("orders", b"1")])
    crew.ask("a", Verb.PREPARE)


@pytest.mark.parametrize(
    ("verb", "outcome", "ready"), [("Commit", "committed", 1), ("Roll back", "rolled back", 0)]
)
def test_a_branch_is_decided_about_and_then_forgotten(
    page: Page, node: PageNode, verb: str, outcome: str, ready: int
) -> None:
    node.declare("orders", durable=True)
    node.call(lambda: prepare(node))
    go(page, "transactions")
    branch = row(page, "guest")
    expect(branch.locator("td[data-label=State]")).to_have_text("prepared")
    expect(branch.locator("td[data-label=Outcome]")).to_have_text("–")
    expect(branch.get_by_role("button", name="Forget")).to_have_count(0)
    branch.get_by_role("button", name=verb).click()
    confirm(page, verb)
    expect(branch.locator("td[data-label=State]")).to_have_text("heuristic")
    expect(branch.locator("td[data-label=Outcome]")).to_have_text(f"{outcome} by an operator")
    assert node.ready("orders") == ready
    branch.get_by_role("button", name="Forget").click()
    confirm(page, "Forget")
    told(page, "The branch is forgotten")
    expect(page.get_by_text("There are none that you may decide about.")).to_be_visible()
    expect(headed(page, "Transactions")).to_be_visible()


# Pipelines.


def test_a_pipeline_that_the_node_runs_shows_its_state_and_what_ended_it(page: Page, node: PageNode) -> None:
    entry = PipelineEntry(sources=("orders",), target="/lake/orders", endpoint="http://127.0.0.1:1")

    def ended() -> None:
        pipelines = node.node.broker.guest(SupervisedPipelines)
        pipelines.set([entry])
        next(iter(pipelines.of("/"))).on_end("No space left on device")

    node.call(ended)
    try:
        go(page, "streams")
        pipeline = row(page, "to /lake/orders")
        expect(pipeline.locator("td[data-label=State]")).to_contain_text("No space left on device")
        expect(pipeline.locator("td[data-label=Reads]")).to_have_text("orders")
        expect(pipeline.locator("td[data-label=Behind]")).to_have_text("–")  # it has not reported yet
    finally:
        node.call(lambda: node.node.broker.guest(SupervisedPipelines).set([]))
