"""Ten lines of pika: declare a queue, publish a message to it, and get the message.

Start a node with `leveret serve`, then run `python examples/01_hello.py`. AMQP_URL names another broker.
"""

import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")

connection = pika.BlockingConnection(pika.URLParameters(URL))
channel = connection.channel()
channel.confirm_delivery()
channel.queue_declare("greetings", durable=True)
channel.basic_publish("", "greetings", b"Hello, hare!")
method, properties, body = channel.basic_get("greetings", auto_ack=True)
print(body.decode())
connection.close()
