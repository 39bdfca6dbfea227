"""Who logs in at the issuer is let in: authorization code with PKCE, no code or token where others see it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import attrs
import pytest
from playwright.sync_api import expect

from leveret.security.tokens import Tokens
from tests.harness.seldom import clicks, elsewhere

from .conftest import PageNode, Visit
from .openid_issuer import CLIENT, Issuer
from .walking import go, headed

pytestmark = [pytest.mark.system, clicks]


@pytest.fixture
def issuer(node: PageNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    """An issuer that the node trusts, with a client for the page."""
    with Issuer() as issuer:
        settings = attrs.evolve(
            node.node.config.oauth, issuer=issuer.url, client_id=CLIENT, client_scopes=("openid", "leveret")
        )
        tokens = node.call(lambda: Tokens(settings, node.node.broker.clock))
        monkeypatch.setattr(node.node.broker.access, "tokens", tokens)
        yield issuer


def begin(visit: Visit, issuer: Issuer, at: str = "") -> None:
    visit.page.goto(visit.url + at)
    visit.page.get_by_role("button", name=f"Log in with {issuer.url.removeprefix('http://')}").click()


@pytest.mark.parametrize("in_fragment", [True, False])
def test_who_logs_in_at_the_issuer_goes_on_where_the_link_led(
    visit: Visit, node: PageNode, issuer: Issuer, in_fragment: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "leveret")
    issuer.in_fragment = in_fragment
    begin(visit, issuer, "#/queues")
    expect(headed(visit.page, "Queues")).to_be_visible()
    expect(visit.page.locator(".session .user")).to_have_text("shop")
    assert issuer.asked["code_challenge_method"] == "S256"
    assert (issuer.asked["client_id"], issuer.asked["scope"]) == (CLIENT, "openid leveret")
    assert visit.page.url == f"{visit.url}#/queues"
    assert visit.page.evaluate("sessionStorage.getItem('leveret.openid')") is None
    assert visit.page.evaluate("localStorage.length + document.cookie.length") == 0
    given = visit.page.evaluate("sessionStorage.getItem('leveret.login')").removeprefix("Bearer ")
    assert given.count(".") == 2
    assert given not in visit.page.content() + visit.page.url + caplog.text
    assert issuer.asked["state"] not in caplog.text
    visit.page.get_by_role("button", name="Log out").click()
    expect(visit.page.get_by_role("button", name="Log in", exact=True)).to_be_visible()
    assert visit.page.evaluate("sessionStorage.length") <= 1  # the virtual host


def test_a_name_in_a_token_is_shown_as_text(visit: Visit, issuer: Issuer) -> None:
    issuer.user = """<img src=x onerror="document.title='hit'"><b>shop</b>"""
    begin(visit, issuer)
    expect(visit.page.locator(".session .user")).to_have_text(issuer.user)
    assert "hit" not in visit.page.title()


def test_a_token_is_renewed_before_it_expires(visit: Visit, issuer: Issuer) -> None:
    issuer.lasts_s = 25
    begin(visit, issuer)
    expect(headed(visit.page, "Overview")).to_be_visible()
    issuer.lasts_s = 600
    renewed = issuer.renewals
    go(visit.page, "queues")
    expect(headed(visit.page, "Queues")).to_be_visible()
    go(visit.page, "exchanges")
    expect(headed(visit.page, "Exchanges")).to_be_visible()
    assert renewed <= issuer.renewals <= renewed + 1
    assert issuer.renewals > 0


def test_a_token_that_comes_after_the_user_has_logged_out_lets_nobody_in(
    visit: Visit, issuer: Issuer
) -> None:
    issuer.lasts_s = 25
    begin(visit, issuer)
    expect(headed(visit.page, "Overview")).to_be_visible()
    issuer.renews.clear()
    with visit.page.expect_request(f"{issuer.url}/token"):
        go(visit.page, "queues")
    visit.page.get_by_role("button", name="Log out").click()
    expect(visit.page.get_by_role("button", name="Log in", exact=True)).to_be_visible()
    with visit.page.expect_event("requestfinished", lambda request: request.url == f"{issuer.url}/token"):
        issuer.renews.set()
    visit.page.evaluate("new Promise((then) => setTimeout(then))")  # what waited for the answer has gone on
    for kept in ("leveret.login", "leveret.renewal"):
        assert visit.page.evaluate(f"sessionStorage.getItem('{kept}')") is None, kept
    expect(visit.page.get_by_role("button", name="Log in", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("refuses", "access_denied"),
        ("forges", "does not belong to a login of this tab"),
        pytest.param("omits", "does not belong to a login of this tab", marks=elsewhere),
        pytest.param("pretends", "does not belong to a login of this tab", marks=elsewhere),
    ],
)
def test_what_the_issuer_refuses_or_another_has_made_lets_nobody_in(
    visit: Visit, issuer: Issuer, fault: str, told: str
) -> None:
    setattr(issuer, fault, True)
    begin(visit, issuer)
    expect(visit.page.get_by_role("alert")).to_contain_text(told)
    assert visit.page.url == visit.url
    assert visit.page.evaluate("sessionStorage.getItem('leveret.login')") is None


def test_the_page_may_talk_with_the_issuer_only_where_there_is_one(visit: Visit, issuer: Issuer) -> None:
    answer = visit.page.goto(visit.url)
    assert answer is not None
    assert answer.headers["content-security-policy"].endswith(f"connect-src 'self' {issuer.url}")
    expect(visit.page.get_by_role("button", name="Log in with 127")).to_be_visible()


def test_without_such_an_issuer_nothing_is_offered(visit: Visit) -> None:
    with visit.page.expect_response(lambda response: response.url.endswith("/api/auth")):
        answer = visit.page.goto(visit.url)
    assert answer is not None
    assert answer.headers["content-security-policy"].endswith("connect-src 'self'")
    expect(visit.page.get_by_role("button", name="Log in with")).to_have_count(1)  # with a token
