"""The page's files over HTTP: who gets which, with which headers. What the page does is told in tests/browser."""

from __future__ import annotations

import pytest

from leveret.protocols.http.web_page import shipped
from tests.http.desk import Desk

BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


def test_browsers_get_the_page_and_programs_the_routes(desk: Desk) -> None:
    assert desk.ask("/", user=None, Accept=BROWSER).headers["Content-Type"] == "text/html; charset=utf-8"
    assert desk.ask("/", user=None, Accept="*/*").headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("path", sorted(shipped()))
def test_every_file_is_served_with_the_policy_and_once_only(desk: Desk, path: str) -> None:
    first = desk.ask(f"/ui/{path}", user=None)
    assert first.status == 200
    policy = first.headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'none'"} <= set(
        policy
    )
    assert "unsafe" not in first.headers["Content-Security-Policy"]
    assert (first.headers["X-Frame-Options"], first.headers["Referrer-Policy"]) == ("DENY", "no-referrer")
    assert first.headers["Cache-Control"] == "no-cache"
    again = desk.ask(f"/ui/{path}", user=None, If_None_Match=first.headers["ETag"])
    assert (again.status, again.headers["ETag"]) == (304, first.headers["ETag"])
    assert desk.ask(f"/ui/{path}", user=None, If_None_Match='"another"').status == 200


@pytest.mark.parametrize(
    "path", ["web_page.py", "..%2Ffiles.py", "%2e%2e", "app", "app/..%2Findex.html", "app/no.js"]
)
def test_nothing_but_the_page_is_served(desk: Desk, path: str) -> None:
    assert desk.ask(f"/ui/{path}", user=None).status == 404


def test_the_page_has_no_script_or_style_of_its_own_and_loads_nothing_from_elsewhere() -> None:
    html = shipped()["index.html"].content.decode()
    assert "<style" not in html
    assert "style=" not in html
    assert html.count("<script") == html.count('<script type="module" src="ui/')
    for path, file in shipped().items():
        text = file.content.decode().replace("http://www.w3.org/", "")
        assert "http:" not in text, path
        assert "https:" not in text, path


@pytest.mark.parametrize("path", [each for each in sorted(shipped()) if each.endswith(".js")])
def test_no_module_writes_markup_or_runs_text(path: str) -> None:
    text = shipped()[path].content.decode()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "javascript:",
    ):
        assert word not in text
