"""Run a node for each virtual host, so that each has a core of its own; clients only see different URLs.

Run `python examples/24_more_cores.py`; nothing else has to run.
"""

import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pika

SERVE = [sys.executable, "-m", "leveret", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
HOSTS = ["shop", "warehouse"]
EVERYTHING = '{ configure = ".*", write = ".*", read = ".*" }'


def start(host: str, folder: Path) -> subprocess.Popen[str]:
    """Start a process with its own port, data folder and virtual host."""
    user = f'{{ name = "guest", password = "guest", permissions = {{ {host} = {EVERYTHING} }} }}'
    environ = {
        **os.environ,
        "LEVERET_LOG__LEVEL": "error",
        "LEVERET_VIRTUAL_HOSTS": f'[{{ name = "{host}" }}]',
        "LEVERET_USERS": f"[{user}]",
    }
    command = [*SERVE, "--data", str(folder / host)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def url_of(host: str, node: subprocess.Popen[str]) -> str:
    """Return the URL for clients of that virtual host."""
    for line in node.stdout:
        if found := re.search(r"(127\.0\.0\.1:\d+) +AMQP", line):
            return f"amqp://guest:guest@{found[1]}/{host}"
    raise SystemExit("the node did not start")


def greet(url: str) -> str:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("greetings", durable=True)
        channel.basic_publish("", "greetings", b"Hello from the " + url.rpartition("/")[2].encode())
        return channel.basic_get("greetings", auto_ack=True)[2].decode()


with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
    nodes = {}
    for host in HOSTS:
        nodes[host] = running.enter_context(start(host, Path(folder)))
        running.callback(nodes[host].terminate)
    for host, node in nodes.items():
        print(greet(url_of(host, node)))
