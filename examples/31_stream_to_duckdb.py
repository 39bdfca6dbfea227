"""Ask a stream questions from DuckDB and Polars, as if it were a table: no Spark, and no copy of it.

    pika ──> exchange "orders" ──> stream "orders" ──Arrow over HTTP──> DuckDB, Polars

Run `python examples/31_stream_to_duckdb.py`; nothing else has to run. It needs `pip install 'leveret[arrow]'`, pika,
duckdb and polars.
"""

import duckdb
import pika
import polars

from leveret import ThreadedNode, embedded
from leveret.pipeline.stream_scan import read_stream, scan_stream


def publish(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("orders", "fanout")
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind("orders", "orders")
        for number in range(90):
            channel.basic_publish("orders", ("eu", "us", "eu")[number % 3], f"order {number}".encode())


with ThreadedNode(embedded({"http": {"enabled": True, "address": "127.0.0.1:0"}})) as node:
    publish(node.url)
    broker = f"http://{node.node.addresses[-1]}"

    orders = read_stream("orders", endpoint=broker, columns=["routing_key", "body"])
    counts = duckdb.sql("SELECT routing_key, count(*) FROM orders GROUP BY ALL ORDER BY ALL").fetchall()

    frame = scan_stream("orders", endpoint=broker)
    longest = frame.select(polars.col("body").bin.size().max()).collect().item()

for region, count in counts:
    print(f"{count} orders from {region}")
print(f"the longest has {longest} bytes")
