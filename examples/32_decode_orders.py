"""Archive orders with the fields of their bodies as typed columns, and mend the schema when it turns out to be wrong.

    orders as JSON ──> stream ──archive --decode json──> Delta table, and one beside it with what cannot be decoded
                                                  decode again, with a better schema ──> Delta table

Run `python examples/32_decode_orders.py`; nothing else has to run. It needs `pip install 'leveret[decode]'`, pika and
polars.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pika
import polars

from leveret import ThreadedNode, embedded

SETTINGS = {"listeners": [{"address": "127.0.0.1:0"}], "http": {"enabled": True, "address": "127.0.0.1:0"}}
SCHEMA = """
id bigint not null,
price decimal(10,2),
at timestamp,
lines array<struct<article: string, count: int>>
"""
ORDERS = (
    {"id": 1, "price": "9.50", "at": "2026-11-29T08:30:00Z", "lines": [{"article": "carrot", "count": 3}]},
    {"id": 2, "price": 12, "lines": [{"article": "parsley", "count": 1}], "gift": True},
    {"number": 3, "price": 4.25},  # from a till that has an older program
)


def publish(url: str) -> None:
    """Have a stream with the orders."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        for order in ORDERS:
            channel.basic_publish("", "orders", json.dumps(order).encode())


def pipeline(folder: str, *words: str) -> None:
    """Run a command as a schedule would."""
    command = [sys.executable, "-m", "leveret", "pipeline", *words]
    print(subprocess.check_output(command, cwd=folder, stderr=subprocess.PIPE, text=True), end="")


with tempfile.TemporaryDirectory() as folder, ThreadedNode(embedded(SETTINGS)) as node:
    publish(node.url)
    schema, endpoint = Path(folder, "order.ddl"), f"http://{node.node.addresses[-1]}"
    schema.write_text(SCHEMA)
    decode = ("--decode", "json", "--schema", "order.ddl")
    pipeline(folder, "archive", "orders", "lake", "--endpoint", endpoint, *decode)
    for body, reason in polars.read_delta(f"{folder}/lake.undecoded").select("body", "reason").iter_rows():
        print(f"not decoded: {body.decode()}: {reason}")

    schema.write_text("id bigint, number bigint, price decimal(10,2)")
    pipeline(folder, "decode", "lake", *decode)
    print(
        polars.read_delta(f"{folder}/lake").sort("offset").select("id", "number", "price").write_csv(), end=""
    )
