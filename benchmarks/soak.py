"""Run a node for hours with everything in use, draw what it takes over the time, and fail where a bound is broken.

    make soak HOURS=8                                # compiled; a report and its drawing in build/soak/
    python -m benchmarks.soak --hours 0.25           # plain

In use are AMQP 0-9-1, 1.0 and 0-10, streams, transactions, delayed messages, dead letters, selectors, plug-ins,
definitions, metrics, the page, clients that come and go, and batches that go to a client without a prefetch and come
back (`soak_loads.py`). A client beside them publishes durable messages at a fixed rate; its confirms are the latencies.

Bounds: memory never above the watermark by a fifth, and never above it for longer than ten seconds; no growth from the
second quarter to the last; descriptors, threads and tasks as at the beginning when the clients have gone; no load that
fails or stands still; no queue left; half of the windows' p99 within `--p99-ms`, or twice what it is alone.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from benchmarks.brokers import ROOT, Running, free_port, leveret, resident_kib
from benchmarks.latency import confirm_latency
from benchmarks.proofs import ask, descriptors, threads
from benchmarks.scale import Bounds, conditions

WATERMARK_MIB: Final = 512
OVER_MAX: Final = 1.2  # times the watermark
ABOVE_S_MAX: Final = 10.0  # that memory is above the watermark
GROWN_MAX: Final = 1.15  # the last quarter against the second
MORE_MAX: Final = 4  # descriptors, threads and tasks than at the beginning
SETTLED_S: Final = 12.0  # after the clients have gone
QUIET_S: Final = 10.0  # of latencies before they come
TIMES_MAX: Final = 2.0  # what these are then, on a machine where they are long without clients
RATE: Final = 100  # durable messages a second, of the client beside them
WINDOW_S: Final = 10.0
STILL_S_MAX: Final = 300.0  # without a turn of a load
CONFIG: Final = """
[memory]
watermark = "{watermark}MiB"
[protocols.amqp010]
enabled = true
[log]
level = "warning"
"""
COLUMNS: Final = ("seconds", "resident_mib", "descriptors", "threads", "tasks", "alarm")


@attrs.frozen
class Sample:
    """What a node takes at a time."""

    seconds: float
    resident_mib: float
    descriptors: int
    threads: int
    tasks: int
    alarm: bool

    def told(self) -> str:
        parts = f"{self.descriptors} descriptors, {self.threads} threads, {self.tasks} tasks"
        return (
            f"{self.seconds:7.0f} s: {self.resident_mib:5.0f} MiB, {parts}{', alarm' if self.alarm else ''}"
        )


class Soak:
    """One node, its clients, and what was seen of them."""

    def __init__(self, node: Running, web: int) -> None:
        self.node = node
        self.web = web
        self.began = time.monotonic()
        self.samples: list[Sample] = []
        self.windows: list[tuple[float, float, float]] = []  # seconds, p50 and p99 in milliseconds
        self.turns: Counter[str] = Counter()
        self.last_turn: dict[str, float] = {}
        self.failures: list[str] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def sample(self) -> Sample:
        status = json.loads(ask(self.web, "/api/leveret/status"))
        process = self.node.process
        memory = resident_kib(process) / 1024
        numbers = descriptors(process), threads(process), status["tasks"]
        return Sample(self.seconds, memory, *numbers, status["alarm"] is not None)

    def window(self, seconds: float) -> float:
        """Measure latencies for some seconds. Returns the p99 in milliseconds."""
        found = confirm_latency(self.node.port, rate=RATE, seconds=seconds, durable=True)
        self.windows.append((self.seconds, found.p50, found.p99))
        return found.p99

    def run(self, hours: float) -> None:
        """Have the clients at work for so long, and take samples each second."""
        until = self.seconds + hours * 3600
        watcher = threading.Thread(target=self._watch, args=(until,))
        with self._clients():
            watcher.start()
            told = 0.0
            while self.seconds < until and not self.failures:
                self.samples.append(self.sample())
                if self.seconds - told > 60:
                    told = self.seconds
                    print(self.samples[-1].told(), flush=True)
                time.sleep(1.0)
                self.failures += [
                    f"{load} has taken no turn in {STILL_S_MAX:.0f} s"
                    for load, at in self.last_turn.items()
                    if self.seconds - at > STILL_S_MAX
                ]
            watcher.join()
        time.sleep(SETTLED_S)

    def _watch(self, until: float) -> None:
        while self.seconds < until and not self.failures:
            self.window(WINDOW_S)

    @contextlib.contextmanager
    def _clients(self) -> Iterator[None]:
        command = [sys.executable, "-m", "benchmarks.soak_loads", str(self.node.port), str(self.web)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        listener = threading.Thread(target=self._listen, args=(process,))
        listener.start()
        try:
            yield
            assert process.stdin is not None
            process.stdin.close()
            process.wait(STILL_S_MAX)
        finally:
            process.kill()
            process.wait()
            listener.join()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            if (load := said.get("load")) is None:
                continue
            if said["failure"]:
                self.failures.append(f"{load}: {said['failure']}")
            self.turns[load] += 1
            self.last_turn[load] = self.seconds


def longest_above(samples: list[Sample], limit_mib: float) -> float:
    """Return the longest time in seconds that memory was above a limit without a break."""
    longest, since = 0.0, None
    for sample in samples:
        since = None if sample.resident_mib <= limit_mib else sample.seconds if since is None else since
        longest = max(longest, 0.0 if since is None else sample.seconds - since)
    return longest


def judged(soak: Soak, before: Sample, quiet_ms: float, p99_ms: float, watermark_mib: int) -> Bounds:
    """Compare what was seen with the bounds, and print it."""
    bounds, samples = Bounds(), soak.samples
    quarter = max(1, len(samples) // 4)
    second, last = (
        statistics.median(each.resident_mib for each in part)
        for part in (samples[quarter : 2 * quarter] or samples, samples[-quarter:])
    )
    after = soak.sample()
    bounds.figure(
        "memory at most", max(each.resident_mib for each in samples), "MiB", OVER_MAX * watermark_mib
    )
    bounds.figure("above the watermark at a stretch", longest_above(samples, watermark_mib), "s", ABOVE_S_MAX)
    bounds.figure("memory, the median of the second quarter", second, "MiB")
    bounds.figure("memory, the median of the last quarter", last, "MiB", GROWN_MAX * second + 16)
    bounds.figure("memory when the clients had gone", after.resident_mib, "MiB", watermark_mib)
    for what in ("descriptors", "threads", "tasks"):
        now, was = getattr(after, what), getattr(before, what)
        bounds.figure(f"{what} more than before", now - was, "", MORE_MAX)
    bounds.figure("confirms alone, p99", quiet_ms, "ms")
    p99s = [p99 for _, _, p99 in soak.windows[1:]]
    bounds.figure(
        "confirms among the loads, median of p99",
        statistics.median(p99s),
        "ms",
        max(p99_ms, TIMES_MAX * quiet_ms),
    )
    bounds.figure("confirms among the loads, highest p99", max(p99s), "ms")
    queues = json.loads(ask(soak.web, "/api/queues"))
    bounds.figure(
        "messages left", sum(each["messages"] for each in queues if each["type"] != "stream"), "", 0
    )
    for load, turns in sorted(soak.turns.items()):
        bounds.figure(f"turns of {load.replace('_', ' ')}", turns, "")
    bounds.broken += soak.failures
    return bounds


def drawn(soak: Soak, path: Path, watermark_mib: int) -> None:
    """Draw the samples over time. Needs the extra `charts`."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "leveret"
    figure = Figure(figsize=(9, 8), layout="constrained")
    memory, counts, latency = figure.subplots(3, sharex=True)
    minutes = [sample.seconds / 60 for sample in soak.samples]
    memory.plot(minutes, [sample.resident_mib for sample in soak.samples], color="#2a78b8", linewidth=0.9)
    memory.axhline(watermark_mib, color="#d97b29", linewidth=0.9, linestyle="--", label="watermark")
    memory.axhline(OVER_MAX * watermark_mib, color="#b03030", linewidth=0.9, linestyle=":", label="bound")
    memory.set_ylabel("memory, MiB")
    for what, colour in (("descriptors", "#2a78b8"), ("tasks", "#5f9e5f"), ("threads", "#8a6bb0")):
        values = [getattr(sample, what) for sample in soak.samples]
        counts.plot(minutes, values, color=colour, linewidth=0.9, label=what)
    counts.set_ylabel("number")
    at = [seconds / 60 for seconds, _, _ in soak.windows]
    latency.plot(
        at, [p99 for _, _, p99 in soak.windows], color="#d97b29", marker=".", linewidth=0.7, label="p99"
    )
    latency.plot(
        at, [p50 for _, p50, _ in soak.windows], color="#2a78b8", marker=".", linewidth=0.7, label="p50"
    )
    latency.set_yscale("log")
    latency.set_ylabel("confirm of a durable message, ms")
    latency.set_xlabel("minutes")
    for axes in (memory, counts, latency):
        axes.set_ylim(bottom=None if axes is latency else 0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper right", ncols=3)
    figure.savefig(path, metadata={"Date": None})


def written(soak: Soak, folder: Path) -> None:
    with (folder / "samples.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        rows.writerows(attrs.astuple(sample) for sample in soak.samples)
    with (folder / "latencies.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("seconds", "p50_ms", "p99_ms"))
        rows.writerows(soak.windows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "soak", metavar="FOLDER")
    parser.add_argument(
        "--watermark", type=int, default=WATERMARK_MIB, metavar="MIB", help="of the memory alarm"
    )
    parser.add_argument("--p99-ms", type=float, default=250.0, help="of confirms, in half of the windows")
    given = parser.parse_args()
    given.report.mkdir(parents=True, exist_ok=True)
    begun = conditions()
    print(begun, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        config, web = Path(folder, "leveret.toml"), free_port()
        config.write_text(CONFIG.format(watermark=given.watermark))
        flags = ("--config", str(config), "--data", f"{folder}/data", "--http", f"127.0.0.1:{web}")
        with leveret(*flags) as node:
            soak = Soak(node, web)
            quiet_ms = soak.window(QUIET_S)
            before = soak.sample()
            try:
                soak.run(given.hours)
            finally:
                written(soak, given.report)
            bounds = judged(soak, before, quiet_ms, given.p99_ms, given.watermark)
    print(f"{begun}; now load {os.getloadavg()[0]:.1f}")
    try:
        drawn(soak, given.report / "soak.svg", given.watermark)
        print(f"drawn in {given.report / 'soak.svg'}")
    except ImportError:
        print("not drawn: that needs leveret[charts]; the samples are in " + str(given.report))
    return bounds.conclude()


if __name__ == "__main__":
    sys.exit(main())
