"""Archive, and build on the archive what is made of it, only if that is up to date: what a scheduler's tasks do.

    archive --once ──> lag --max-behind 0 ──> a model in SQL, as dbt has it

Run `python examples/33_when_up_to_date.py`; nothing else has to run. It needs `pip install 'leveret[decode]'`,
DuckDB and pika.
"""

import subprocess
import sys
import tempfile

import duckdb
import pika
from deltalake import DeltaTable

from leveret import ThreadedNode, embedded

SETTINGS = {"listeners": [{"address": "127.0.0.1:0"}], "http": {"enabled": True, "address": "127.0.0.1:0"}}
MODEL = "SELECT shop, sum(price) AS sold FROM orders GROUP BY ALL ORDER BY ALL"


def archive_orders(lake: str, schema: str, endpoint: str) -> None:
    """Move what there is; raise CalledProcessError if that fails, which a scheduler tries again."""
    command = [sys.executable, "-m", "leveret", "pipeline", "archive", "orders", lake]
    command += ["--decode", "json", "--schema", schema, "--endpoint", endpoint]
    subprocess.run(command, check=True, stderr=subprocess.PIPE)


def is_up_to_date(lake: str, endpoint: str) -> bool:
    """Return whether all messages are in the table, as a sensor asks until they are."""
    command = [
        sys.executable,
        "-m",
        "leveret",
        "pipeline",
        "lag",
        f"{lake}.checkpoint",
        "--endpoint",
        endpoint,
    ]
    done = subprocess.run([*command, "--max-behind", "0"], check=False, stdout=subprocess.DEVNULL)
    return done.returncode == 0


def sold(lake: str) -> list[tuple[str, float]]:
    """Return what each shop has sold."""
    orders = DeltaTable(lake).to_pyarrow_dataset()
    return duckdb.sql(MODEL).fetchall() if orders.count_rows() else []


def publish(url: str, *bodies: bytes) -> None:
    """Add orders to the stream."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", "orders", body)


with tempfile.TemporaryDirectory() as folder, ThreadedNode(embedded(SETTINGS)) as node:
    lake, schema, endpoint = f"{folder}/lake", f"{folder}/order.ddl", f"http://{node.node.addresses[-1]}"
    with open(schema, "w") as file:
        file.write("shop string, price double")
    publish(node.url, b'{"shop": "till", "price": 2.5}', b'{"shop": "web", "price": 4}')
    archive_orders(lake, schema, endpoint)
    print("up to date:", is_up_to_date(lake, endpoint), sold(lake))
    publish(node.url, b'{"shop": "web", "price": 1.5}')
    print("up to date:", is_up_to_date(lake, endpoint))
    archive_orders(lake, schema, endpoint)
    print("up to date:", is_up_to_date(lake, endpoint), sold(lake))
