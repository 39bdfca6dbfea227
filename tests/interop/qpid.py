"""The clients of Apache Qpid against a node that speaks AMQP 0-10: what they still send must work.

    python -m tests.interop.qpid --suite DIR     a checkout of qpid-python; its broker tests need Python 2.7
    python -m tests.interop.qpid --tools DIR     a build of qpid-cpp: where qpid-send, qpid-perftest, ... are

No registry has these clients any more, so they are no part of `make test`: what they send is replayed there
(tests/amqp010/transcripts.py). This is for whoever has them. What we know not to pass is in `NOT_SERVED`, with the
reason; everything else that fails, and everything there that passes, is told, and ends with 1.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from tests.interop.conftest import RunningNode

SETTINGS: Final = "[protocols.amqp010]\nenabled = true\nsession_timeout_max_s = 600\n"
SUITE: Final = "qpid_tests.broker_0_10."
SUITE_TIMEOUT_S: Final = 600
TOOL_TIMEOUT_S: Final = 120
QMF: Final = "asks the broker by QMF, its management over messages"
NOT_SERVED: Final = {  # tests, and why we do not pass them
    "management.*": QMF,
    "qmf_events.*": QMF,
    "stats.*": QMF,
    "threshold.*": QMF,
    "message.MessageTests.test_ack": QMF,
    "msg_groups.*.test_default_group_id": QMF,
    "msg_groups.*.test_move_*": QMF,
    "msg_groups.*.test_purge_*": QMF,
    "msg_groups.*.test_query": QMF,
    "msg_groups.*.test_reroute": QMF,
    "new_api.GeneralTests.test_ambiguous_*": QMF,
    "new_api.GeneralTests.test_node_disambiguation_*": QMF,
}
RESULT: Final = re.compile(r"^(qpid_tests\S+)(?: \\\n +(\S+))? \.+ (pass|fail|skip|ignore)", re.MULTILINE)

TOOLS: Final[tuple[tuple[str, ...], ...]] = (  # commands, `PORT` in them to be filled in; each has to end with 0
    ("qpid-send", "-b", "localhost:PORT", "-a", "work; {create: always}", "--messages", "1000"),
    ("qpid-receive", "-b", "localhost:PORT", "-a", "work", "--messages", "1000", "--timeout", "5"),
    ("qpid-send", "-b", "localhost:PORT", "-a", "tx; {create: always}", "--messages", "100", "--tx", "10"),
    ("qpid-receive", "-b", "localhost:PORT", "-a", "tx", "--messages", "100", "--tx", "7", "--timeout", "5"),
    ("qpid-send", "-b", "localhost:PORT", "-a", "amq.topic/a.b", "--messages", "10", "--ttl", "1000"),
    ("qpid-perftest", "-b", "localhost", "-p", "PORT", "--count", "20000", "--size", "256", "--summary"),
    ("qpid-perftest", "-b", "localhost", "-p", "PORT", "--count", "2000", "--mode", "fanout", "--nsubs", "3"),
    ("qpid-perftest", "-b", "localhost", "-p", "PORT", "--count", "2000", "--mode", "topic", "--nsubs", "2"),
    ("qpid-perftest", "-b", "localhost", "-p", "PORT", "--count", "2000", "--tx", "100"),
    ("qpid-txtest", "-p", "PORT", "--tx-count", "20", "--total-messages", "100", "--messages-per-tx", "3"),
    ("qpid-txtest", "-p", "PORT", "--tx-count", "20", "--total-messages", "100", "--dtx", "yes"),
    ("qpid-latency-test", "-p", "PORT", "--count", "500", "--csv"),
    ("qpid-ping", "-b", "localhost:PORT"),
    ("msg_group_test", "-b", "localhost:PORT", "-a", "groups; {create: always, node: {x-declare: {arguments: "
     "{'qpid.group_header_key': 'GROUP', 'qpid.shared_msg_group': 1}}}}", "--group-key", "GROUP", "--messages",
     "500", "--senders", "1", "--receivers", "3", "--interleave", "3", "--randomize-group-size"),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.interop.qpid", description=__doc__, formatter_class=_Plain)
    parser.add_argument("--suite", type=Path, metavar="DIR", help="a checkout of qpid-python")
    parser.add_argument(
        "--qmf", type=Path, metavar="DIR", help="management/python/lib of a checkout of qpid-cpp"
    )
    parser.add_argument("--python", default="python2.7", help="what runs the suite (default: %(default)s)")
    parser.add_argument("--tools", type=Path, metavar="DIR", help="where qpid-send and the others are")
    asked = parser.parse_args(arguments)
    if asked.suite is None and asked.tools is None:
        parser.error("nothing to do: give --suite, --tools, or both")
    with RunningNode(SETTINGS) as node:
        complaints = [
            *(run_suite(node, asked.suite, asked.qmf, asked.python) if asked.suite is not None else ()),
            *(run_tools(node, asked.tools) if asked.tools is not None else ()),
        ]
    print(*complaints, sep="\n")
    return 1 if complaints else 0


class _Plain(argparse.RawDescriptionHelpFormatter):
    """The description as it stands."""


def run_suite(node: RunningNode, suite: Path, qmf: Path | None, python: str) -> Iterator[str]:
    """qpid-python's broker tests: what is not as `NOT_SERVED` says."""
    command = [python, "qpid-python-test", "-m", f"{SUITE[:-1]}", "-b", f"localhost:{node.port}"]
    path = os.pathsep.join(str(each.resolve()) for each in (suite, qmf) if each is not None)
    ended = subprocess.run(
        command,
        cwd=suite,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=SUITE_TIMEOUT_S,
        check=False,
    )
    results = {
        f"{first}{second}".removeprefix(SUITE): outcome
        for first, second, outcome in RESULT.findall(ended.stdout)
    }
    if not results:
        yield f"the suite did not run: {ended.stdout[-2000:]}"
    print(f"{sum(each == 'pass' for each in results.values())} of {len(results)} tests of qpid-python pass")
    for name, outcome in results.items():
        reason = next((why for pattern, why in NOT_SERVED.items() if fnmatch(name, pattern)), None)
        if outcome != "pass" and reason is None:
            yield f"{name}: {outcome}"
        elif outcome == "pass" and reason is not None:
            yield f"{name} passes, though it {reason}"


def run_tools(node: RunningNode, tools: Path) -> Iterator[str]:
    """qpid-cpp's programs, one after the other: those that fail."""
    for program, *rest in TOOLS:
        command = [str(tools / program), *(each.replace("PORT", str(node.port)) for each in rest)]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=TOOL_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            yield f"{program}: {error}"
            continue
        print(f"{program}: ended with {ended.returncode}")
        if ended.returncode:
            yield f"{' '.join(command)}: {ended.returncode}: {(ended.stdout + ended.stderr)[-1000:]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
