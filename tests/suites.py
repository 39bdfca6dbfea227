"""Run the own tests of client libraries against a node: `make suites`, or `python -m tests.suites [NAME ...]`.

They come from the package registry when this runs, in the libraries' released sources, and nothing of them is kept in
this repository. Only libraries whose releases have their tests are here. Each suite gets a node of its own, with the
profile whose answers it was written for; what a suite needs besides, such as certificates of its own, it does not get,
and those tests are left out by name, each for a reason.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import attrs

from broker_core.node.threaded import ThreadedNode, embedded

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "build" / "suites"
TOOLS: Final = (
    "pytest>=8,<9",
    "pytest-timeout",
    "pytest-rerunfailures",
    "setuptools>=70",
    "wheel",
    "requests",
)
TIME_LIMIT_S: Final = 1800


@attrs.frozen
class Suite:
    """The tests of one library."""

    package: str
    arguments: tuple[str, ...]  # of pytest, in the folder of its sources
    profile: str = "rabbitmq-3.13"
    left_out: Mapping[str, str] = attrs.field(factory=dict)  # parts of names, and why


TLS: Final = "needs a broker with certificates of the suite's own"
SUITES: Final = (
    Suite("amqp", ("t/integration",), left_out={"tls": TLS}),
    Suite("kombu", ("t/integration/test_py_amqp.py",)),
    Suite(
        "amqpstorm",
        ("amqpstorm/tests/functional",),
        left_out={"ssl": TLS},
    ),
)


@attrs.frozen
class Outcome:
    """How a suite went."""

    passed: int
    skipped: int
    failed: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites and print a table. Returns 1 if any test failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.package for each in SUITES))
    names = parser.parse_args(arguments).names
    python = prepared()
    failed = False
    for suite in SUITES:
        if names and suite.package not in names:
            continue
        sources = fetched(python, suite.package)
        outcome = run(python, suite, sources)
        failed = failed or bool(outcome.failed) or not outcome.passed
        print(
            f"{sources.name:24} {outcome.passed:5} passed {outcome.skipped:4} skipped {len(outcome.failed):4} failed"
        )
        for name in outcome.failed:
            print(f"    {name}")
    return int(failed)


def prepared() -> Path:
    """Return the Python of an environment that has what the suites need, apart from the one of this repository."""
    python = FOLDER / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER / "venv", with_pip=True)
        pip(python, "install", *TOOLS)
    return python


def pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", *arguments], check=True)


def fetched(python: Path, package: str) -> Path:
    """Return the folder of a library's newest released sources, whose dependencies are installed."""
    archives = FOLDER / "archives" / package
    if not list(archives.glob("*.tar.gz")):
        options = ("--no-deps", "--no-build-isolation", "--no-binary", package, "--dest", str(archives))
        pip(python, "download", *options, package)
        pip(python, "install", package)
    (archive,) = archives.glob("*.tar.gz")
    sources = FOLDER / archive.name.removesuffix(".tar.gz")
    if not sources.exists():
        with tarfile.open(archive) as opened:
            opened.extractall(FOLDER, filter="data")
    return sources


def run(python: Path, suite: Suite, sources: Path) -> Outcome:
    """Run a suite against a node of its own."""
    settings = {
        "compat": {"profile": suite.profile},
        "http": {"enabled": True, "address": "127.0.0.1:0"},
    }
    report = FOLDER / f"{suite.package}.xml"
    report.unlink(missing_ok=True)
    with ThreadedNode(embedded(settings)) as node:
        command = [python, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--timeout=120"]
        if suite.left_out:
            command += ["-k", " and ".join(f"not {name}" for name in suite.left_out)]
        with (FOLDER / f"{suite.package}.log").open("w") as log:
            subprocess.run(
                [*command, f"--junitxml={report}", *suite.arguments],
                cwd=sources,
                env={**os.environ, "PYTHONPATH": str(sources), **environment(node)},
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=TIME_LIMIT_S,
                check=False,
            )
    return outcome_in(report)


def environment(node: ThreadedNode) -> dict[str, str]:
    """Return the variables by which the suites find the node."""
    http = node.call(
        lambda: next(each.port for each in node.node.admin.listeners() if "http" in each.protocols)
    )
    return {
        "RABBITMQ_HOST": "127.0.0.1",
        "RABBITMQ_5672_TCP": str(node.port),
        "AMQP_HOST": "127.0.0.1",
        "AMQP_USERNAME": "guest",
        "AMQP_PASSWORD": "guest",
        "AMQP_URI": f"amqp://guest:guest@127.0.0.1:{node.port}/%2F",
        "AMQP_HTTP_URL": f"http://127.0.0.1:{http}",
    }


def outcome_in(report: Path) -> Outcome:
    """Return what a report in JUnit's format says; nothing passed if there is no report."""
    if not report.exists():
        return Outcome(0, 0, ("the suite did not end",))
    passed, skipped, failed = 0, 0, []
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return Outcome(passed, skipped, tuple(dict.fromkeys(failed)))


if __name__ == "__main__":
    sys.exit(main())
