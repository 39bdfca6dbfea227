"""Check what was changed, and what is near it: `make check`, in about a minute.

    git's changes ──> ruff, mypy ──> the tests of the same names, those that import it, and those of its folder

What is changed is compared with the branch that this one follows. Tests that take long run only if they were changed
themselves, or are called as a file that was.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.conftest import EXPENSIVE, SOURCE  # noqa: E402
from tests.sources import FOLDERS, module_of, sources  # noqa: E402

FILES_MAX = 40  # of tests: what takes a minute on two cores
PACKING = ("setup.py", "pyproject.toml", "Makefile", "MANIFEST.in", "constraints.txt", "scripts/")
ROUND_ABOUT = ("tests/test_architecture.py", "tests/test_docstrings.py")  # of each change to a package


def near(changed: Iterable[str], tests: Mapping[str, str]) -> list[str]:
    """Return the files of tests that are near changed files, the nearest first; `tests` are their texts by name."""
    nearest: dict[str, None] = {}
    around: dict[str, None] = {}
    farther: dict[str, None] = {}
    for name in changed:
        if name in tests:
            nearest[name] = None
        elif name.endswith(".py") and name.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
            nearest |= dict.fromkeys(_called_as(name, tests))
            around |= dict.fromkeys(ROUND_ABOUT)
            farther |= dict.fromkeys(_importing(module_of(name), tests))
        elif name.startswith("tests/") and name.endswith(".py"):
            farther |= dict.fromkeys(each for each in tests if each.startswith(f"{Path(name).parent}/"))
        if name.startswith(PACKING):
            nearest |= dict.fromkeys(("tests/test_install.py", "tests/test_project.py"))
        elif name.startswith("docs/") or name.endswith(".md"):
            nearest |= dict.fromkeys(("tests/test_project.py", "tests/test_site.py"))
    cheap = (each for each in farther if not _takes_long(each))
    return list(dict.fromkeys((*nearest, *around, *cheap)))


def _called_as(name: str, tests: Mapping[str, str]) -> list[str]:
    """Return the tests that are called as a module, in the folder that mirrors its own."""
    folder, stem = Path(name).parent, Path(name).stem
    words = {part for part in folder.parts if part not in ("broker_core", "protocols", "broker", "machine")}
    return [
        each
        for each in tests
        if Path(each).name == f"test_{stem}.py" and words <= set(Path(each).parent.parts)
    ]


def _importing(module: str, tests: Mapping[str, str]) -> list[str]:
    """Return the tests that import a module, or a name from it."""
    package, _, name = module.rpartition(".")
    imported = re.compile(
        rf"\b{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{re.escape(name)}\b"
    )
    return [each for each, text in tests.items() if imported.search(text)]


def _takes_long(name: str) -> bool:
    inside = name.removeprefix("tests/")
    return inside in SOURCE or any(inside == each or inside.startswith(f"{each}/") for each in EXPENSIVE)


def changes() -> list[str]:
    """Return the files that differ from the branch that this one follows, and those that git does not know yet."""
    upstream = _git("merge-base", "HEAD", "@{upstream}") or ["HEAD"]
    return [
        *_git("diff", "--name-only", "--diff-filter=d", upstream[0]),
        *_git("ls-files", "--others", "--exclude-standard"),
    ]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def main(arguments: list[str]) -> int:
    changed = changes()
    paths = (path.relative_to(ROOT).as_posix() for path in sources() if path.name.startswith("test_"))
    tests = {name: (ROOT / name).read_text() for name in paths if name.endswith(".py")}
    found = near(changed, tests)[:FILES_MAX]
    python = [name for name in changed if name.endswith(".py")]
    print(f"check: {len(changed)} changed files, {len(found)} files of tests near them", flush=True)
    tools = str(Path(sys.executable).parent)
    steps = [
        [f"{tools}/ruff", "check", *python],
        [f"{tools}/ruff", "format", "--check", *python],
        [sys.executable, "setup.py", "-q", "link"],
        [f"{tools}/mypy"],
        [f"{tools}/pytest", "-q", "--numprocesses", "auto", "--dist", "worksteal", *found, *arguments],
    ]
    if not found:
        del steps[-1]
    if not python:
        del steps[:4]
    results = [subprocess.run(step, cwd=ROOT, check=False).returncode for step in steps]
    return max(results, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
