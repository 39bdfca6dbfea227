"""Spark Connect: a server that has Leveret in a zip, and a client that has nothing of it. `make connect` runs this."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from leveret.pipeline.bundle import bundle
from tests.interop.conftest import need_module
from tests.pipeline.cluster import BEGIN_TIMEOUT_S, RUN_TIMEOUT_S, bare_python
from tests.pipeline.conftest import ROOT, LocalNode
from tests.pipeline.installation import SETTINGS
from tests.pipeline.rounds import consumed

need_module("pyspark")

CLIENT = ROOT / ".cache/connect"  # what the client's Python needs besides PySpark
PROGRAM = Path(__file__).with_name("connected.py")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not CLIENT.exists(), reason="`make connect` installs the client"),
]


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a server whose Python has pyarrow and the zip."""
    import pyspark

    bundle(folder / "leveret.zip")
    home = Path(pyspark.__file__).parent  # with all jars
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = {
        **SETTINGS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    command = [str(home / "sbin/start-connect-server.sh"), "--wait", "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    variables = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOG_DIR": str(folder / "logs"),
        "SPARK_PID_DIR": str(folder / "logs"),
        "PYSPARK_PYTHON": str(bare_python(folder)),
        "PYTHONPATH": str(folder / "leveret.zip"),
    }
    log = folder / "server.log"
    with log.open("wb") as stream:
        server = subprocess.Popen(
            command, stdout=stream, stderr=stream, env=variables, cwd=folder, start_new_session=True
        )
    try:
        give_up = time.monotonic() + BEGIN_TIMEOUT_S
        while not re.search("Spark Connect server started", log.read_text(errors="replace")):
            assert server.poll() is None, log.read_text(errors="replace")[-8000:]
            assert time.monotonic() < give_up, log.read_text(errors="replace")[-8000:]
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_a_client_without_leveret_reads_and_writes_through_a_server_that_has_it(
    node: LocalNode, tmp_path: Path
):
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("copies", durable=True)
        for number in range(10):
            channel.basic_publish("", "orders", b"%d" % number)
    with serving(tmp_path) as server:
        command = [sys.executable, str(PROGRAM), server, node.url, str(tmp_path / "checkpoint")]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(CLIENT)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    rows, copies, error = done.stdout.splitlines()
    assert (rows, copies) == ("rows=7", "copies=3")
    assert ": leveret.pipeline.errors.Missing: there is no " in error, done.stdout
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        assert sorted(consumed(connection.channel(), "copies")) == [*range(10)]
