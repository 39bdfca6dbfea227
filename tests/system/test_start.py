"""What a start does without: a tenth of a second that nobody waits for."""

from __future__ import annotations

import gc
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.server.cli import REFUSED, main

pytestmark = pytest.mark.system

STARTED = """
import sys
import trio
from leveret.config.config import parse
from leveret.server.node.node import Node

NOT_YET = {
    "h11", "tomllib", "sqlite3", "importlib.metadata", "email", "http", "asyncio",
    "leveret.server.definitions.reader", "leveret.server.node.persistence",
    "leveret.durable.store.sqlite", "leveret.security.tokens", "leveret.protocols.amqp091.broker.adapter",
    "leveret.protocols.amqp010.broker.adapter", "leveret.protocols.amqp10.broker.adapter",
    "leveret.protocols.http.server.adapter", "leveret.protocols.http.server.routes",
    "leveret.server.node.unix_socket", "leveret.server.node.websocket", "wsproto",
}

async def main():
    async with Node(parse({"listeners": [{"address": "127.0.0.1:0"}], "http": {"address": "127.0.0.1:0"}})) as node:
        assert len(node.addresses) == 2
        print(sorted(NOT_YET & set(sys.modules)))
        for listener in node.listening:
            assert listener.entrance.protocols

trio.run(main)
"""

ONLY_091 = """
[[listeners]]
address = "127.0.0.1:0"
protocols = ["amqp091"]
[http]
enabled = false
"""

SERVED = """
import json, os, signal, sys
from leveret.server.cli import main
from leveret.server.node import process

def listening():
    print("\\n", json.dumps(list(sys.modules)))
    os.kill(os.getpid(), signal.SIGTERM)

process.spare_the_collector = listening
sys.exit(main(["serve", "--config", sys.argv[1]], {}))
"""

# What a node imports that serves AMQP 0-9-1 only, before its first client. Each row costs memory for good, and time.
PACKAGES = {
    "arguments", "config", "durable", "durable.store", "exchanges", "features", "features.deduplication",
    "features.parameters", "features.unsettled_maps", "interceptors", "observability", "plugins", "protocols",
    "protocols.amqp010", "protocols.amqp010.broker", "protocols.amqp091", "protocols.amqp091.broker",
    "protocols.amqp091.machine", "protocols.amqp10", "protocols.amqp10.broker", "protocols.http", "protocols.mqtt",
    "protocols.mqtt.broker", "protocols.shared", "publishing",
    "queues", "security", "selectors", "server", "server.cli", "server.node",
}  # fmt: skip
MODULES_MAX = 225  # of ours
LARGE = {
    "asyncio", "concurrent.futures", "cryptography", "csv", "datetime", "decimal", "difflib", "email", "h11", "html",
    "http", "importlib.metadata", "importlib.resources", "multiprocessing", "OpenSSL", "pickle", "psycopg", "pyarrow",
    "sqlite3", "tomllib", "unittest", "urllib.request", "uuid", "wsproto", "xml", "zipfile",
}  # fmt: skip
# Values of messages may be of these types, and a file was read.
LARGE_ONES_USED = {"datetime", "decimal", "tomllib", "uuid"}

SPARED = """
import gc
import leveret.server.node.node
from leveret.memory_tuning import spare_the_collector
gc.disable()
spare_the_collector()
print(gc.isenabled(), gc.get_freeze_count() > 10_000, gc.get_threshold())
"""

ONCE = """
import gc
from leveret.memory_tuning import one_collection

with one_collection():
    before = [each["collections"] for each in gc.get_stats()]
    for _ in range(40_000):
        ring = []
        ring.append(ring)
    after = [each["collections"] for each in gc.get_stats()]
print(3 <= after[0] - before[0] <= 5, after[1:] == before[1:])
"""

BATCHES = """
import resource
from leveret.memory_tuning import keep_what_is_freed
keep_what_is_freed()
faults = []
for _ in range(20):
    batch = [bytes(3 << 20) for _ in range(4)]
    del batch
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[1] < 100)
"""


def printed(script: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_what_nobody_has_asked_for_is_not_imported() -> None:
    """Each protocol is imported with the first client that speaks it, the store's way by a node that has one."""
    assert printed(STARTED) == "[]"


def test_a_node_imports_what_it_is_set_up_for(tmp_path: Path) -> None:
    settings = tmp_path / "leveret.toml"
    settings.write_text(ONLY_091)
    command = [sys.executable, "-c", SERVED, str(settings)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    modules = set(json.loads(next(line for line in told.splitlines() if line.startswith(" ["))))
    ours = {each.removeprefix("leveret.") for each in modules if each.startswith("leveret.")}
    assert {each.rpartition(".")[0] for each in ours if "." in each} == PACKAGES
    assert len([each for each in ours if not each.endswith("__mypyc")]) <= MODULES_MAX
    assert modules & LARGE == LARGE_ONES_USED


def test_a_started_node_leaves_alone_what_is_there() -> None:
    assert printed(SPARED) == "True True (10000, 0, 7000)"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_what_a_batch_has_taken_is_kept_for_the_next_one() -> None:
    """With the thresholds of glibc the system gives out a hundred pages, or large ones, anew for each of these."""
    assert printed(BATCHES) == "True"


def test_the_collector_is_as_before_when_serving_ends(tmp_path: Path) -> None:
    before = gc.get_threshold()
    assert main(["serve", "--config", str(tmp_path / "leveret.toml")], {}) == REFUSED
    assert gc.isenabled()
    assert gc.get_threshold() == before


def test_each_object_is_looked_at_once_while_modules_are_imported() -> None:
    """Garbage of the first generation goes, and the others are left alone."""
    assert printed(ONCE) == "True True"
