"""The page's files over HTTP: who gets which, with which headers. What the page does is told in tests/browser."""

from __future__ import annotations

import gzip
import posixpath
import re

import pytest

from leveret.protocols.http.web_page import File, Shipped, compressed, shipped, takes_gzip
from tests.harness.http import answered, request
from tests.http.desk import Desk

BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"
FILES = shipped().files
AT = f"/ui/{shipped().version}"  # where this version's files are
ASKED_ABOUT = "no-cache"
KEPT = "max-age=31536000, immutable"
NOW = ('^(?:import|export) .*? from "(.+?)";',)
LATER = (r'\(await import\("(.+?)"\)\)',)
GZIP = "gzip, deflate, br, zstd"  # as browsers send it


def test_browsers_get_the_page_and_programs_the_routes(desk: Desk) -> None:
    assert desk.ask("/", user=None, Accept=BROWSER).headers["Content-Type"] == "text/html; charset=utf-8"
    assert desk.ask("/", user=None, Accept="*/*").headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("path", sorted(FILES))
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


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_file_at_the_address_of_its_version_is_kept_without_asking(desk: Desk, path: str) -> None:
    plain, kept = desk.ask(f"/ui/{path}", user=None), desk.ask(f"{AT}/{path}", user=None)
    assert (kept.status, kept.body, kept.headers["Cache-Control"]) == (200, FILES[path].content, KEPT)
    changed = {name for name, _ in set(plain.headers.items()) ^ set(kept.headers.items())}
    assert changed == {"Cache-Control"}
    again = desk.ask(f"{AT}/{path}", user=None, If_None_Match=kept.headers["ETag"])
    assert (again.status, again.headers["Cache-Control"]) == (304, KEPT)


@pytest.mark.parametrize("version", ["0", shipped().version[:-1], shipped().version.upper()])
@pytest.mark.parametrize("path", ["style.css", "app/main.js", "app/views/log.js"])
def test_a_file_at_the_address_of_another_version_is_asked_about_each_time(
    desk: Desk, path: str, version: str
) -> None:
    response = desk.ask(f"/ui/{version}/{path}", user=None)
    assert (response.status, response.headers["Cache-Control"]) == (200, ASKED_ABOUT)
    assert response.body == FILES[path].content


def test_other_files_have_another_version_and_the_page_names_it() -> None:
    for path in ("index.html", "style.css", "leveret.svg", "app/main.js", "app/views/log.js"):
        kind = path.rpartition(".")[2]
        changed = Shipped.of({**FILES, path: File.of(FILES[path].content + b" ", kind)})
        assert changed.version != shipped().version
        assert changed.page.tag != shipped().page.tag
        named = re.findall('"ui/([^/]+)/', changed.page.content.decode())
        assert set(named) == {changed.version}
    without = Shipped.of({path: each for path, each in FILES.items() if path != "app/theme.js"})
    assert without.version != shipped().version
    assert Shipped.of(dict(reversed(FILES.items()))) == Shipped.of(FILES) == shipped()


def test_the_page_is_asked_about_each_time(desk: Desk) -> None:
    first = desk.ask("/", user=None, Accept=BROWSER)
    assert first.headers["Cache-Control"] == ASKED_ABOUT
    assert first.headers["Vary"] == "Accept, Accept-Encoding"
    again = desk.ask("/", user=None, Accept=BROWSER, If_None_Match=first.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    assert again.headers["Content-Security-Policy"] == first.headers["Content-Security-Policy"]
    assert desk.ask("/", user=None, Accept=BROWSER, If_None_Match='"that of an earlier node"').status == 200


def test_the_page_announces_each_module_that_is_imported_and_no_other() -> None:
    announced = announced_by(shipped())
    assert (
        set(announced)
        == needed("app/main.js", NOW + LATER)
        == {path for path in FILES if path.endswith(".js")}
    )
    assert len(announced) == len(set(announced))


def test_modules_are_announced_in_the_order_in_which_they_are_needed() -> None:
    announced = announced_by(shipped())
    login = needed("app/main.js", NOW)
    overview = login | needed("app/views/overview.js", NOW)
    assert "app/views/login.js" in login
    assert set(announced[: len(login)]) == login
    assert set(announced[: len(overview)]) == overview
    assert len(overview) < len(announced) / 2


def test_a_module_that_imports_what_is_not_there_is_announced_nevertheless() -> None:
    main = File.of(b'import { a } from "./a.js";\nimport("./b.js");\nimport "./c.js";\n', "js")
    files = {"index.html": FILES["index.html"], "app/main.js": main, "app/c.js": File.of(b"", "js")}
    assert announced_by(Shipped.of(files)) == ["app/main.js", "app/c.js"]


def announced_by(there: Shipped) -> list[str]:
    return re.findall('<link rel="modulepreload" href="ui/[^/]+/(.+?)">', there.page.content.decode())


def needed(path: str, patterns: tuple[str, ...]) -> set[str]:
    """Return a module with all that it imports, and what these import."""
    known, following = set[str](), {path}
    while following:
        known |= following
        following = {each for path in following for each in imported(path, patterns)} - known
    return known


def imported(path: str, patterns: tuple[str, ...]) -> list[str]:
    text = FILES[path].content.decode()
    names = [name for pattern in patterns for name in re.findall(pattern, text, re.M | re.S)]
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) for name in names]


def test_every_file_that_the_page_names_is_there_to_be_kept(desk: Desk) -> None:
    named = re.findall('(?:href|src)="(.+?)"', shipped().page.content.decode())
    assert {f"/{path}" for path in named} == {f"{AT}/{path}" for path in FILES if path != "index.html"}
    for path in named:
        assert desk.ask(f"/{path}", user=None).headers["Cache-Control"] == KEPT


# Compressed.


@pytest.mark.parametrize("target", ["/", *(f"{AT}/{path}" for path in sorted(FILES))])
def test_clients_that_take_gzip_get_it_under_a_tag_of_its_own(desk: Desk, target: str) -> None:
    plain = desk.ask(target, user=None, Accept=BROWSER)
    packed = desk.ask(target, user=None, Accept=BROWSER, Accept_Encoding=GZIP)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) == int(packed.headers["Content-Length"]) < len(plain.body)
    assert "Content-Encoding" not in plain.headers
    assert "Accept-Encoding" in plain.headers["Vary"] == packed.headers["Vary"]
    tags = plain.headers["ETag"], packed.headers["ETag"]
    assert tags[0] != tags[1]
    for tag, other, accepted in ((*tags, "identity"), (*reversed(tags), GZIP)):
        asked = {"Accept": BROWSER, "Accept-Encoding": accepted}
        again = desk.ask(target, user=None, If_None_Match=tag, **asked)
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
        assert "Content-Encoding" not in again.headers
        assert desk.ask(target, user=None, If_None_Match=other, **asked).status == 200


@pytest.mark.parametrize(
    "accepted", ["gzip", "GZIP", "br, gzip;q=0.5", "gzip;q=1.0,identity", "br;q=0, gzip"]
)
def test_gzip_is_sent_to_those_that_take_it(accepted: str) -> None:
    assert takes_gzip(accepted)


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "gzip; q=0.000", "*;q=0", "gzipped"])
def test_gzip_is_not_sent_to_those_that_do_not(accepted: str) -> None:
    assert not takes_gzip(accepted)


def test_programs_get_the_routes_as_they_are(desk: Desk) -> None:
    response = desk.ask("/", user=None, Accept_Encoding=GZIP)
    assert response.content["product"] == "Leveret"
    assert response.headers["Cache-Control"] == "no-store"
    assert "Content-Encoding" not in response.headers


@pytest.mark.parametrize("accepted", ["identity", GZIP])
@pytest.mark.parametrize("target", ["/", f"{AT}/style.css", "/ui/app/main.js"])
def test_head_has_the_headers_of_get_and_no_body(desk: Desk, target: str, accepted: str) -> None:
    asked = {"Accept": BROWSER, "Accept-Encoding": accepted}
    got, head = desk.ask(target, user=None, **asked), desk.ask(target, "HEAD", user=None, **asked)
    assert (head.status, head.body, head.headers.items()) == (200, b"", got.headers.items())


def test_files_are_read_and_compressed_once(desk: Desk) -> None:
    for _ in range(2):
        before = shipped.cache_info().misses, compressed.cache_info().misses
        for path in FILES:
            assert desk.ask(f"{AT}/{path}", user=None, Accept_Encoding=GZIP).status == 200
    assert before == (shipped.cache_info().misses, compressed.cache_info().misses)


def test_a_connection_carries_the_whole_page(desk: Desk) -> None:
    connection = desk.connect()
    for path in re.findall('(?:href|src)="(.+?)"', shipped().page.content.decode()):
        connection.receive(request("GET", f"/{path}"), desk.broker.now)
        response = answered(connection, "GET")
        assert (response.status, response.headers["Connection"]) == (200, None)
    assert not connection.closed


@pytest.mark.parametrize(
    "path", ["web_page.py", "..%2Ffiles.py", "%2e%2e", "app", "app/..%2Findex.html", "app/no.js"]
)
def test_nothing_but_the_page_is_served(desk: Desk, path: str) -> None:
    assert desk.ask(f"/ui/{path}", user=None).status == 404


def test_the_page_has_no_script_or_style_of_its_own_and_loads_nothing_from_elsewhere() -> None:
    html = shipped().page.content.decode()
    assert "<style" not in html
    assert "style=" not in html
    assert html.count("<script") == html.count('<script type="module" src="ui/')
    for path, file in FILES.items():
        text = file.content.decode().replace("http://www.w3.org/", "")
        assert "http:" not in text, path
        assert "https:" not in text, path


@pytest.mark.parametrize("path", [each for each in sorted(FILES) if each.endswith(".js")])
def test_no_module_writes_markup_or_runs_text(path: str) -> None:
    text = FILES[path].content.decode()
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
