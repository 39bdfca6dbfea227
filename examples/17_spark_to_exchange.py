"""Price and route orders of a stream with Spark, to a topic exchange and the queues behind it: each exactly once.

    pika ──> stream "orders" ──> Spark ──staged, then committed──> exchange "dispatch" ──> queues "parcels", "pallets"

Run `python examples/17_spark_to_exchange.py`; nothing else has to run. It needs `pip install 'leveret[spark]'`, pika
and Java.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pika

from leveret.pipeline.session import session

SERVE = [sys.executable, "-m", "leveret", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
STREAM = {"x-queue-type": "stream"}
PRICES = {"carrot": 0.2, "turnip": 0.8, "clover": 0.05}
QUEUES = {"parcels": "order.small.*", "pallets": "order.large.*"}


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


def declare(channel) -> None:
    channel.queue_declare("orders", durable=True, arguments=STREAM)
    channel.exchange_declare("dispatch", "topic", durable=True)
    for queue, key in QUEUES.items():
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "dispatch", key)


def order(channel, chance: random.Random, begin: int, end: int) -> None:
    """Publish orders: most are small, some are not."""
    for number in range(begin, end):
        body = {
            "number": number,
            "article": chance.choice(list(PRICES)),
            "pieces": round(chance.lognormvariate(3, 1.2)) + 1,
        }
        channel.basic_publish("", "orders", json.dumps(body).encode())


def dispatch(spark, http: str, folder: Path) -> None:
    """Run a streaming query until it has written what is there. The checkpoint records how far that was."""
    rows = (
        spark.readStream.format("amqp")
        .schema("body binary")
        .option("endpoints", http)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    prices = ", ".join(f"'{article}', {price}" for article, price in PRICES.items())
    priced = (
        rows.selectExpr("from_json(cast(body as string), 'number int, article string, pieces int') as order")
        .select("order.*")
        .selectExpr("*", f"round(pieces * map({prices})[article], 2) as total")
        .selectExpr("*", "if(pieces > 50, 'large', 'small') as size")
    )
    messages = priced.selectExpr(
        "to_json(struct(number, article, pieces, total)) as body",
        "concat('order.', size, '.', article) as routing_key",
        "named_struct('content_type', 'application/json', 'message_id', cast(number as string)) as properties",
    )
    query = (
        messages.writeStream.format("amqp")
        .option("endpoints", http)
        .option("exchange", "dispatch")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def taken(channel, queue: str) -> list[dict]:
    """Return all messages of a queue."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(json.loads(got[2]))
    return found


def show(channel) -> None:
    for queue in QUEUES:
        orders = taken(channel, queue)
        numbers = {each["number"] for each in orders}
        total = sum(each["total"] for each in orders)
        print(f"{queue}: {len(orders)} orders, {len(numbers)} different ones, {total:.2f} in all")


with tempfile.TemporaryDirectory() as made:
    folder = Path(made)
    node, amqp, http = start(folder / "node")
    with node, pika.BlockingConnection(pika.URLParameters(amqp)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel)
        chance = random.Random(17)
        spark = session("orders")
        order(channel, chance, 0, 200)
        dispatch(spark, http, folder)
        show(channel)
        order(channel, chance, 200, 250)
        dispatch(spark, http, folder)
        show(channel)
        connection.close()
        node.terminate()
