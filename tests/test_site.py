"""The handbook as pages for a browser: built without a warning, whole, with a search, and read offline."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import pytest
from playwright.sync_api import sync_playwright

from leveret.server import cli
from leveret.server.cli import docs
from tests.harness.chromium import REMEDY, chromium
from tests.harness.seldom import handbook
from tests.sources import ROOT, sources

pytestmark = [pytest.mark.system, handbook]

SITE = ROOT / "build/site/html"
CHROMIUM = chromium()


class Page(HTMLParser):
    """What a page refers to, what it loads, and what can be referred to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        self.anchors.add(given.get("name", "") if tag == "a" else "")
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag in ("script", "img", "iframe") and "src" in given:
            self.loads.add(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.add(given["href"])


@cache
def page(path: Path) -> Page:
    return Page(path.read_text())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` builds it, unless there is one of these pages; by one worker of several."""
    with open(tmp_path_factory.getbasetemp().parent / "site.lock", "w") as lock:
        flock(lock, LOCK_EX)
        if not is_fresh():
            done = subprocess.run(
                [sys.executable, ROOT / "scripts/site.py"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "No issues found" in done.stdout + done.stderr
    return SITE


def is_fresh() -> bool:
    """Return whether the last build had no warning, and nothing that pages are made of is newer."""
    made = SITE.parent / "done"
    folders = ("docs", "deploy", "examples", "scripts")
    of_pages = (
        path for path in sources() if path.parent == ROOT or path.relative_to(ROOT).parts[0] in folders
    )
    return made.exists() and all(path.stat().st_mtime < made.stat().st_mtime for path in of_pages)


def heeds_ctrl_c() -> None:
    """Have a process heed SIGINT also where the tests themselves run in the background, and do not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """Run `leveret docs`; yield the address that it prints."""
    command = [sys.executable, "-m", "leveret", "docs", "--no-browser", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=heeds_ctrl_c
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_every_link_of_the_site_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(list(ROOT.glob("docs/**/*.md")))
    wrong = []
    for path in pages:
        for link in page(path).links | page(path).loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                wrong += [f"{path}: loads {link}"] * (link in page(path).loads)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if path.name == "404.html":  # it is shown at any address
                continue
            if not target.is_file():
                wrong.append(f"{path.relative_to(site)}: {link}")
            elif (
                parts.fragment
                and target.suffix == ".html"
                and unquote(parts.fragment) not in page(target).anchors
            ):
                wrong.append(f"{path.relative_to(site)}: no anchor {link}")
    assert wrong == []


def test_files_of_the_repository_that_pages_link_to_are_pages(site: Path):
    assert "StateDirectory=leveret" in (site / "files/deploy/leveret.service.html").read_text()
    assert "07_pytest_fixture" in (site / "files/examples/index.html").read_text()
    assert "../files/deploy/leveret.service.html" in (site / "operations/systemd.html").read_text()


def test_the_handbook_is_served_offline_and_ends_with_ctrl_c(site: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["docs", "--print-path"], {}) == 0
    assert capsys.readouterr().out.strip() == str(docs.pages())
    with served("security") as url:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/security\.html", url)
        with urlopen(url, timeout=60) as answer:
            assert b"<title>Security" in answer.read()


@pytest.mark.skipif(CHROMIUM is None, reason=f"needs a browser: {REMEDY}")
def test_the_search_finds_a_page_without_a_network(site: Path):
    with served() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(url)
        tab.keyboard.press("/")
        tab.keyboard.type("watermark")
        tab.get_by_role("link", name="Sizing").first.wait_for(timeout=60_000)
        browser.close()
    assert [each for each in asked if not each.startswith((url.rpartition("/")[0], "data:", "blob:"))] == []


def test_an_installation_without_pages_tells_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    package = tmp_path / "lib/python/site-packages/leveret"
    monkeypatch.setattr(docs, "pages", lambda find=docs.pages: find(package))
    assert cli.main(["docs"], {}) == 1
    assert "`make site`" in capsys.readouterr().err
    (package / "handbook").mkdir(parents=True)
    (package / "handbook/index.html").touch()
    assert cli.main(["docs", "--print-path"], {}) == 0
    assert capsys.readouterr().out.strip() == str(package / "handbook")
    assert cli.main(["docs", "no-such-page"], {}) == 1
    assert "there is no page 'no-such-page'" in capsys.readouterr().err
