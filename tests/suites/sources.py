"""The sources of a suite, with what they need: from PyPI, from a repository, or from a folder that is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import venv
from pathlib import Path
from typing import Final

from tests.suites.catalogue import Suite

FOLDER: Final = Path(__file__).parents[2] / "build" / "suites"
NAMED: Final = "SUITES_DIR"


class NotFetchedError(Exception):
    """The tests of a library cannot be had here; the text says what was tried."""


def python_of(suite: Suite) -> Path:
    return FOLDER / suite.name / "venv" / "bin" / "python"


def fetched(suite: Suite) -> Path:
    """Return the folder of a suite's sources, ready to run. Raises NotFetchedError."""
    sources = FOLDER / suite.name / suite.version
    ready = FOLDER / suite.name / f"{suite.version}.ready"
    if not ready.exists():
        shutil.rmtree(FOLDER / suite.name, ignore_errors=True)
        (FOLDER / suite.name).mkdir(parents=True)
        try:
            obtain(suite, sources)
            prepare(suite, sources)
        except (subprocess.CalledProcessError, OSError) as error:
            raise NotFetchedError(f"{error}; {NAMED} can name a folder that has {suite.name}/") from error
        ready.touch()
    return sources


def obtain(suite: Suite, sources: Path) -> None:
    named = os.environ.get(NAMED)
    if named and Path(named, suite.name).is_dir():
        shutil.copytree(
            Path(named, suite.name), sources, ignore=shutil.ignore_patterns("node_modules", ".git")
        )
    elif suite.repository:
        clone(suite, sources)
    else:
        unpack(suite, sources)


def clone(suite: Suite, sources: Path) -> None:
    """Fetch one tag of a repository; some projects write a `v` before their versions."""
    command = ["git", "clone", "--quiet", "--depth=1"]
    for tag in (suite.version, f"v{suite.version}"):
        try:
            subprocess.run(
                [*command, f"--branch={tag}", suite.repository, str(sources)],
                check=True,
                stderr=subprocess.DEVNULL,
                timeout=300,
            )
        except subprocess.CalledProcessError:
            if tag.startswith("v"):
                raise
        else:
            return


def unpack(suite: Suite, sources: Path) -> None:
    """Fetch a release's sources by way of pip, and unpack them."""
    archives = FOLDER / suite.name / "archive"
    venv.create(FOLDER / suite.name / "venv", with_pip=True)
    options = ("--no-deps", "--no-binary", suite.name, "--dest", str(archives))
    pip(suite, "download", *options, f"{suite.name}=={suite.version}")
    (archive,) = archives.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(archives, filter="data")
    (unpacked,) = (each for each in archives.iterdir() if each.is_dir())
    unpacked.rename(sources)


def prepare(suite: Suite, sources: Path) -> None:
    if suite.npm:
        subprocess.run(
            ["npm", "install", "--ignore-scripts", "--silent", "--no-audit"], cwd=sources, check=True
        )
    else:
        if not python_of(suite).exists():
            venv.create(FOLDER / suite.name / "venv", with_pip=True)
        pip(suite, "install", *suite.requirements)
        pip(suite, "install", str(sources))
    if suite.prepare:
        subprocess.run(suite.prepare, cwd=sources, check=True, stdout=subprocess.DEVNULL)


def pip(suite: Suite, *arguments: str) -> None:
    """Run the suite's own pip; what it says is shown if it fails."""
    command = [python_of(suite), "-I", "-m", "pip", "--quiet", *arguments]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stderr)
        done.check_returncode()
