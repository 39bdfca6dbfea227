"""Make the handbook's pages for a browser: docs/**.md and what they link to become build/site/html, with a search.

    python scripts/site.py

Pages link to files of the repository, which a site has not. So they are copied to build/site/pages first: a file that
a page links to becomes a page that shows it, a folder one that lists it, and README, CHANGELOG and CONTRIBUTING are
pages, too. Then Zensical builds what `zensical.toml` names, and ends with a failure if a link leads nowhere.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = ROOT / "build/site"
PAGES: Final = BUILD / "pages"
DONE: Final = BUILD / "done"  # there after a build without a warning
LINK: Final = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
PROJECT: Final = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
MAP: Final = "architecture.md"  # the page about the folders with the source
LANGUAGES: Final = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json", ".tpl": "yaml"}
LISTED: Final = {"examples", "deploy", "deploy/helm/leveret", "docs/decisions"}


def staged() -> dict[Path, Path]:
    """Return where the pages of the repository go, by where they are; both relative to their tops."""
    pages = {path.relative_to(ROOT): path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/**/*.md")}
    return pages | {Path(name): Path("project", page) for name, page in PROJECT.items()}


class Stage:
    """Copies pages with their links changed, and what they link to; `wanted` is what has still to be copied."""

    def __init__(self) -> None:
        self.pages = staged()
        self.wanted: set[Path] = set()

    def copy(self) -> None:
        shutil.rmtree(BUILD, ignore_errors=True)
        for source, page in self.pages.items():
            text = (ROOT / source).read_text()
            write(page, "".join(self._parts(text, source.parent, page.parent)))
        while self.wanted:
            path = self.wanted.pop()
            self._copy_file(path) if (ROOT / path).is_file() else self._list_folder(path)

    def _parts(self, text: str, folder: Path, page_folder: Path) -> Iterator[str]:
        """Yield the text with links changed outside of code, which may have brackets, too."""

        def relinked(found: re.Match[str]) -> str:
            head, target, anchor, tail = found.groups(default="")
            if target.startswith(("http:", "https:")):
                return found[0]
            path = Path(os.path.normpath(folder / target))
            return f"{head}{os.path.relpath(self.page_of(path), page_folder)}{anchor}{tail}"

        at = 0
        for fence in FENCE.finditer(text):
            yield LINK.sub(relinked, text[at : fence.start()])
            yield fence[0]
            at = fence.end()
        yield LINK.sub(relinked, text[at:])

    def page_of(self, path: Path) -> Path:
        """Return the page, or file of the site, for a file or folder of the repository, and have it copied."""
        if path in self.pages:
            return self.pages[path]
        if (ROOT / path).is_dir():
            if str(path) not in LISTED:
                return Path(MAP)
            page = folder_page(path)
        elif path.parts[0] == "docs":
            page = path.relative_to("docs")
        else:
            page = Path("files", f"{path}.md")
        if not (PAGES / page).exists():
            self.wanted.add(path)
        return page

    def _copy_file(self, path: Path) -> None:
        page = self.page_of(path)
        if page.suffix != ".md":
            (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, PAGES / page)
            return
        language = LANGUAGES.get(path.suffix, "text")
        write(page, f"# {path}\n\n````{language}\n{(ROOT / path).read_text().rstrip()}\n````\n")

    def _list_folder(self, path: Path) -> None:
        page = folder_page(path)
        rows = [f"# {path.name.capitalize()}\n"]
        write(page, "")
        files = (each for each in (ROOT / path).iterdir() if each.is_file() and not each.name.startswith("."))
        for file in sorted(files):
            target = os.path.relpath(self.page_of(file.relative_to(ROOT)), page.parent)
            name = file.name if file.suffix != ".md" else file.read_text().partition("\n")[0].strip("# ")
            rows.append(f"* [{name}]({target}){said_of(file)}")
        write(page, "\n".join(rows) + "\n")


def folder_page(path: Path) -> Path:
    return (
        path.relative_to("docs") / "index.md" if path.parts[0] == "docs" else Path("files", path, "index.md")
    )


def said_of(file: Path) -> str:
    """Return the first sentence of a program, as the end of a line that names it."""
    if file.suffix != ".py":
        return ""
    return f": {(ast.get_docstring(ast.parse(file.read_text())) or '').partition(chr(10))[0]}"


def write(page: Path, text: str) -> None:
    (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / page).write_text(text)


def main() -> int:
    Stage().copy()
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--clean",
        "--strict",
        "-f",
        str(ROOT / "zensical.toml"),
    ]
    done = subprocess.run(command, cwd=ROOT, check=False)
    shutil.rmtree(ROOT / ".cache", ignore_errors=True)
    if done.returncode == 0:
        DONE.touch()
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
