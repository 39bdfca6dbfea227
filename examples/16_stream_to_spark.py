"""Read a stream of orders with Spark: first as a table, then with a query that continues where it stopped.

    pika ──> stream "orders" ──blocks over HTTP──> Spark ──> Parquet

Run `python examples/16_stream_to_spark.py`; nothing else has to run. It needs `pip install 'leveret[spark]'`, pika and
Java.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pika

from leveret.pipeline.listener import LagListener
from leveret.pipeline.session import session

SERVE = [sys.executable, "-m", "leveret", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
STREAM = {"x-queue-type": "stream"}
ARTICLES = ("carrot", "turnip", "clover")


def start(folder: Path) -> tuple[subprocess.Popen[str], str, str]:
    """Start a node, and return it with its URLs for AMQP and HTTP."""
    command = [*SERVE, "--data", str(folder)]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found = []
    for line in node.stdout:
        found += re.findall(r"(127\.0\.0\.1:\d+) +(?:AMQP|HTTP)", line)
        if "Ctrl-C" in line:
            return node, f"amqp://guest:guest@{found[0]}/%2F", f"http://{found[1]}"
    raise SystemExit("the node did not start")


def order(amqp: str, begin: int, end: int) -> None:
    """Publish orders, and wait until they are on disk."""
    with pika.BlockingConnection(pika.URLParameters(amqp)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        for number in range(begin, end):
            body = {"number": number, "article": ARTICLES[number % 3], "pieces": number % 5 + 1}
            channel.basic_publish("", "orders", json.dumps(body).encode())


def show_what_is_there(spark, http: str) -> None:
    """Read a batch: from the first message to the last at this moment."""
    rows = spark.read.format("amqp").option("endpoints", http).option("subscribe", "orders").load()
    orders = rows.selectExpr("from_json(cast(body as string), 'article string, pieces int') as order")
    for article, pieces in orders.groupBy("order.article").sum("order.pieces").orderBy("article").collect():
        print(f"{article}: {pieces}")


def archive(spark, http: str, folder: Path) -> None:
    """Run a streaming query until it has read what is there. The checkpoint records how far that was."""
    rows = (
        spark.readStream.format("amqp")
        .schema("body binary, offset bigint")  # what is not named is not decoded
        .option("endpoints", http)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "orders"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    table = spark.read.parquet(str(folder / "orders"))
    rows, newest = table.selectExpr("count(distinct offset)", "max(offset)").first()
    print(f"{rows} rows, the newest has offset {newest}")


def report(spark, http: str) -> None:
    """Have the broker, and its web page, know how far each query is."""
    spark.streams.addListener(LagListener({"endpoints": http}))


with tempfile.TemporaryDirectory() as made:
    folder = Path(made)
    node, amqp, http = start(folder / "node")
    with node:
        spark = session("orders")
        report(spark, http)
        order(amqp, 0, 30)
        show_what_is_there(spark, http)
        archive(spark, http, folder)
        order(amqp, 30, 40)
        archive(spark, http, folder)
        node.terminate()
