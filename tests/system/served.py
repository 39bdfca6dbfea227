"""`leveret serve` as a process, as tests talk about it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]

Serve = Callable[..., "subprocess.Popen[str]"]


def screen(node: subprocess.Popen[str]) -> str:
    """What the node prints at its start, to the last line."""
    assert node.stdout is not None
    lines: list[str] = []
    for line in node.stdout:
        lines.append(line)
        if "Ctrl-C" in line:
            return "".join(lines)
    raise AssertionError(f"the node has ended: {''.join(lines)}{node.communicate()[1]}")


def port(text: str) -> int:
    found = re.search(r"127\.0\.0\.1:(\d+) +AMQP", text)
    assert found is not None
    return int(found[1])
