"""Add an exchange type: a class in examples/plugins/json_field.py, in a folder that the configuration names.

Run `python examples/08_own_exchange_type.py`; nothing else has to run. A node takes the folder from its file, as
10_leveret.toml does, and a changed class with `leveret plugins reload`.
"""

from pathlib import Path

import pika

from leveret import ThreadedNode, embedded

FOLDER = Path(__file__).parent / "plugins"

with ThreadedNode(embedded({"plugins": {"folders": [str(FOLDER)]}})) as node:
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    channel.exchange_declare("letters", "x-json-field")
    for queue, key in (("Berlin", "country=DE"), ("Paris", "country=FR"), ("air mail", "by=air")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "letters", key)
    channel.basic_publish("letters", "", b'{"country": "DE", "by": "air"}')
    channel.basic_publish("letters", "", b'{"country": "FR"}')
    for queue in ("Berlin", "Paris", "air mail"):
        print(queue, channel.queue_declare(queue, passive=True).method.message_count)
    connection.close()
