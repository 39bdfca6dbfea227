"""Run the own tests of client libraries here and on RabbitMQ: `make suites`, or `python -m tests.suites [NAME ...]`.

The table says for each suite how many of its tests ran, how many pass on RabbitMQ and how many here, and then which
pass there and not here. Without a RabbitMQ on this machine, or with one that is too old for a suite, its tests are
measured against what they assert. The exit code is 1 if a test is missing here, or a suite could not be run.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.brokers import RABBITMQ, ROOT
from tests.suites.catalogue import SUITES, Suite
from tests.suites.outcomes import Outcome, missing, outcome_in
from tests.suites.sources import FOLDER, NotFetchedError, fetched

ALONE: Final = (
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--pid",
    "--mount-proc",
    "--fork",
    "--kill-child",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites and print a table. Returns 1 if a test is missing here, or a suite could not be run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.name for each in SUITES))
    parser.add_argument("--kept", action="store_true", help="do not run again what has a report of RabbitMQ")
    asked = parser.parse_args(arguments)
    version = rabbitmq_version()
    print("RabbitMQ", ".".join(map(str, version)) if version else "is not on this machine")
    print(f"{'suite':38}{'tests':>7}{'there':>7}{'here':>7}{'missing here':>14}")
    whole = True
    for suite in SUITES:
        if not asked.names or suite.name in asked.names:
            whole &= reported(suite, version, kept=asked.kept)
    return int(not whole)


def reported(suite: Suite, version: tuple[int, ...], *, kept: bool) -> bool:
    """Run a suite, print its line, and return whether nothing is missing here."""
    label = f"{suite.name} {suite.version} ({suite.profile})"
    try:
        fetched(suite)
    except NotFetchedError as error:
        print(f"{label:38}  not run: {error}")
        return False
    there = None
    if version and version >= suite.least_rabbitmq:
        there = run(suite, "rabbitmq", kept=kept)
    here = run(suite, "leveret")
    names = missing(here, there)
    passed_there = "" if there is None else len(there.passed)
    print(f"{label:38}{here.run:>7}{passed_there:>7}{len(here.passed):>7}{len(names):>14}", flush=True)
    for name in names:
        print(f"    {name}")
    return bool(here.passed) and not names


def run(suite: Suite, broker: str, *, kept: bool = False) -> Outcome:
    """Run a suite on a broker, in a network of its own where the system gives one."""
    report = FOLDER / suite.name / broker / "report.xml"
    if not (kept and report.exists()):
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.suites.inside", suite.name, broker]
        subprocess.run([*alone(), *command], cwd=ROOT, check=False)
    return outcome_in(report)


def alone() -> Sequence[str]:
    """Return the command that gives a program a network of its own, or nothing: the usual ports must be free then."""
    if shutil.which(ALONE[0]) is None or subprocess.run([*ALONE, "true"], check=False).returncode:
        return ()
    return ALONE


def rabbitmq_version() -> tuple[int, ...]:
    """Return the version of the system's RabbitMQ, or nothing if there is none."""
    if not RABBITMQ.exists():
        return ()
    found = (
        re.search(r"server-(\d+)\.(\d+)", str(each))
        for each in RABBITMQ.parents[1].glob("lib/rabbitmq_server-*")
    )
    return next((tuple(map(int, each.groups())) for each in found if each), ())


if __name__ == "__main__":
    sys.exit(main())
