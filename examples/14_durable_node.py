"""Run a node with a data folder: it is killed and started again, and has everything that it confirmed.

Run `python examples/14_durable_node.py`; nothing else has to run.
"""

import os
import re
import subprocess
import sys
import tempfile

import pika

SERVE = [sys.executable, "-m", "leveret", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
QUIET = {**os.environ, "LEVERET_LOG__LEVEL": "error"}
PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


def start(folder: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*SERVE, "--data", folder], env=QUIET, stdout=subprocess.PIPE, text=True)


def url_of(node: subprocess.Popen[str]) -> str:
    """Return the node's AMQP URL, from the address that it prints once it listens."""
    for line in node.stdout:
        if found := re.search(r"(127\.0\.0\.1:\d+) +AMQP", line):
            return f"amqp://guest:guest@{found[1]}/%2F"
    raise SystemExit("the node did not start")


def publish(url: str) -> None:
    """Publish with confirms: each call returns when its message is on disk."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        for number in range(3):
            channel.basic_publish("", "orders", f"order {number}".encode(), PERSISTENT, mandatory=True)
        print("3 orders confirmed")


def consume(url: str) -> None:
    """Get the messages; the queue is still declared."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for method, _, body in iter(lambda: channel.basic_get("orders"), (None, None, None)):
            print(body.decode() + (" - perhaps not for the first time" if method.redelivered else ""))
            channel.basic_ack(method.delivery_tag)


with tempfile.TemporaryDirectory() as folder:
    with start(folder) as node:
        publish(url_of(node))
        node.kill()  # as in a crash
    with start(folder) as node:
        consume(url_of(node))
        node.terminate()  # a proper shutdown; it makes no difference to the messages
