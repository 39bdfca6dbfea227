"""Measure messages through one queue over AMQP 1.0: one process sends, another receives and accepts.

The client is peer10.c on the C engine of Qpid Proton, compiled for the occasion. Where its headers are missing (Debian:
apt-get install gcc libqpid-proton11-dev), peer10.py does the same on the engine's Python classes, so slowly that the
figure is mostly its own.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.brokers import Running, family_processor_s
from benchmarks.flood import Wire
from leveret.protocols.amqp091.codec import methods as m

HERE = Path(__file__).parent
QUEUE = "flood10"
ADDRESSES = {
    "Leveret": f"/queues/{QUEUE}",
    "RabbitMQ": f"/amq/queue/{QUEUE}",
}  # RabbitMQ 3 knows version 1 only
CREDIT = 200  # of the receiver; the sender has as much as the broker gives
TIMEOUT_S = 300


@contextmanager
def client() -> Iterator[list[str]]:
    """Yield the command that runs one end of a link."""
    flags = _flags()
    if flags is None:
        yield [sys.executable, str(HERE / "peer10.py")]
        return
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/peer10"
        subprocess.run(["cc", "-O2", "-o", program, str(HERE / "peer10.c"), *flags], check=True)
        yield [program]


def _flags() -> list[str] | None:
    """Return the compiler's flags for the engine, or None if it cannot be compiled here."""
    if not shutil.which("cc") or not shutil.which("pkg-config"):
        return None
    asked = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libqpid-proton"], capture_output=True, text=True, check=False
    )
    return shlex.split(asked.stdout) if asked.returncode == 0 else None


def flood(
    command: list[str], broker: Running, messages: int, size: int, role: str = "send"
) -> tuple[float, float]:
    """Return the broker's processor time for a message in microseconds, and messages per second from the first credit
    to the last outcome, at whichever end that was. `role`: of the end that sends."""
    owner = Wire(broker.port)
    owner.call(m.QueueDelete(QUEUE), m.QueueDeleteOk)
    owner.call(m.QueueDeclare(QUEUE), m.QueueDeclareOk)
    address = ADDRESSES[broker.name]
    before = family_processor_s(broker.process)
    receiver = _start(command, "receive", broker.port, address, messages, CREDIT)
    sender = _start(command, role, broker.port, address, messages, size)
    try:
        started, sent = _times(sender)
        _, received = _times(receiver)
    finally:
        for process in (receiver, sender):
            process.kill()
            process.wait()
    spent = family_processor_s(broker.process) - before
    owner.call(m.QueueDelete(QUEUE), m.QueueDeleteOk)
    owner.socket.close()
    return 1e6 * spent / messages, messages / (max(sent, received) - started)


def _start(command: list[str], role: str, *arguments: object) -> subprocess.Popen[str]:
    process = subprocess.Popen([*command, role, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise SystemExit(f"an end of the benchmark could not attach its link: {role}")
    return process


def _times(process: subprocess.Popen[str]) -> tuple[float, float]:
    printed, _ = process.communicate(timeout=TIMEOUT_S)
    first, last = map(float, printed.split())
    return first, last
