"""What counts as the project's own: the same with git and without."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sources import ROOT, sources

MADE = (
    "tests/interop/.fetched/script",
    "a/node_modules/x.py",
    "build/x.py",
    "a/__pycache__/x.pyc",
    "b.egg-info/x",
)
OURS = (".ci/run", ".gitignore", "a/x.py", "tests/interop/test_x.py")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (*MADE, *OURS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.copy(ROOT / ".gitignore", tmp_path)
    return tmp_path


def named(tree: Path) -> list[str]:
    return [path.relative_to(tree).as_posix() for path in sources(tree)]


def git(tree: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, check=True)


def test_what_runs_have_made_is_left_out_without_git(tree: Path) -> None:
    assert named(tree) == sorted(OURS)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_what_git_does_not_track_is_left_out(tree: Path) -> None:
    git(tree, "init")
    git(tree, "add", ".")
    (tree / "notes.txt").touch()
    assert named(tree) == sorted(OURS)
    (tree / "a/x.py").unlink()
    assert named(tree) == sorted({*OURS} - {"a/x.py"})


def test_where_git_cannot_look_all_but_what_runs_have_made_is_found(tree: Path) -> None:
    (tree / ".git").write_text("gitdir: nowhere")
    assert named(tree) == sorted(OURS)


def test_the_tests_are_among_the_projects_own() -> None:
    assert Path(__file__) in sources()
