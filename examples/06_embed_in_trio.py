"""Run a broker inside a trio program: it lives as long as its block.

Run `python examples/06_embed_in_trio.py`; nothing else has to run.
"""

import pika
import trio

from leveret import Node, embedded


def greet(url: str) -> str:
    """Publish and get a message with pika. It blocks, so it runs in a thread; any client would do."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("greetings")
        channel.basic_publish("", "greetings", b"Hello from inside!")
        return channel.basic_get("greetings", auto_ack=True)[2].decode()


async def main() -> None:
    async with Node(embedded()) as node:
        print(await trio.to_thread.run_sync(greet, node.url))
        # the broker's own objects, in the broker's own thread
        print(sorted(node.broker.virtual_host("/").queues))


trio.run(main)
