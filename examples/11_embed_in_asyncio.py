"""A broker beside an asyncio program: the node has a thread of its own, aio-pika talks to it over a socket.

Run `python examples/11_embed_in_asyncio.py` (needs `pip install aio-pika`); nothing else has to run.
"""

import asyncio

import aio_pika

from leveret import ThreadedNode


async def greet(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("greetings")
        await channel.default_exchange.publish(aio_pika.Message(b"Hello, asyncio!"), queue.name)
        message = await queue.get()
        await message.ack()
        print(message.body.decode())


with ThreadedNode() as node:
    asyncio.run(greet(node.url))
    print(node.call(lambda: sorted(node.node.broker.virtual_host("/").queues)))
