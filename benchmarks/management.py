"""Measure the HTTP API with ten thousand queues and a thousand connections: its latency, and that of others meanwhile.

    python -m benchmarks.management                    # half a minute
    python -m benchmarks.management --queues 2000      # with less of everything

Every answer is requested a few times; meanwhile another client sends one small request after the other, and its longest
wait is how long the API has held up the node, together with the other load of the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.proofs import ask, crowd, declare, longest_wait, node

PAGE = "page=1&page_size=100&pagination=true"
LAST = "page=100&page_size=100&pagination=true"
ANSWERS = (
    ("a page of queues", f"/api/queues?{PAGE}"),
    ("the last page", f"/api/queues?{LAST}"),
    ("by name", f"/api/queues?{PAGE}&name=99"),
    ("by expression", f"/api/queues?{PAGE}&name=99.*1&use_regex=true"),
    ("sorted by messages", f"/api/queues?{PAGE}&sort=messages&sort_reverse=true"),
    ("sorted by a rate", f"/api/queues?{PAGE}&sort=message_stats.publish_details.rate&sort_reverse=true"),
    ("sorted by policy", f"/api/queues?{PAGE}&sort=policy"),
    ("with curves", f"/api/queues?{PAGE}&msg_rates_age=600&msg_rates_incr=5&lengths_age=600&lengths_incr=5"),
    ("a page of connections", f"/api/connections?{PAGE}"),
    ("sorted by octets", f"/api/connections?{PAGE}&sort=recv_oct_details.rate&sort_reverse=true"),
    ("a page of channels", f"/api/channels?{PAGE}&sort=message_stats.publish"),
    ("a page of exchanges", f"/api/exchanges?{PAGE}"),
    ("the overview", "/api/overview?msg_rates_age=600&msg_rates_incr=5&lengths_age=600&lengths_incr=5"),
    ("the node", "/api/nodes"),
    ("all queues, two columns", "/api/queues?columns=name,messages"),
    ("all queues", "/api/queues"),
    ("all bindings", "/api/bindings"),
)


def measure(queues: int, connections: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, node(Path(folder)) as (running, web):
        declare(running.port, queues)
        with crowd("rest", running.port, connections) as held:
            held()
            calm = longest_wait(running.port, lambda: time.sleep(1))
            print(f"\n## The API, with {queues} queues and {connections} connections\n")
            print(f"While nobody asks, another client waits {calm:.1f} ms at most.\n")
            print("| ms | median | longest | others' longest wait |\n|---|---:|---:|---:|")
            for name, path in ANSWERS:
                took, longest = asked(running.port, web, path, rounds)
                print(f"| {name} | {median(took):.0f} | {max(took):.0f} | {longest:.1f} |")


def asked(port: int, web: int, path: str, rounds: int) -> tuple[list[float], float]:
    """Return milliseconds: of each answer, and the longest that another client waited."""
    took: list[float] = []

    def ask_all() -> None:
        for _ in range(rounds):
            started = time.perf_counter()
            ask(web, path)
            took.append((time.perf_counter() - started) * 1000)

    longest = longest_wait(port, ask_all)
    return took, longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    measure(given.queues, given.connections, given.rounds)


if __name__ == "__main__":
    main()
