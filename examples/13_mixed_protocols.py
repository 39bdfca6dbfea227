"""Use one queue with two protocols: pika sends requests over AMQP 0-9-1, and Qpid Proton replies over AMQP 1.0.

Start a node with `leveret serve`, then run `python examples/13_mixed_protocols.py`. AMQP_URL names another broker. The
clients are `pip install pika python-qpid-proton`.
"""

import os
from urllib.parse import unquote, urlsplit

import pika
from proton import Message
from proton.utils import BlockingConnection

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
place = urlsplit(URL)

asker = pika.BlockingConnection(pika.URLParameters(URL))
channel = asker.channel()
channel.queue_declare("questions", auto_delete=True)
answers = channel.queue_declare("", exclusive=True).method.queue
asked = pika.BasicProperties(reply_to=answers, correlation_id="hare-1", headers={"loudly": True}, priority=5)
channel.basic_publish("", "questions", b"how long are your ears?", asked)

helper = BlockingConnection(
    f"amqp://{place.hostname}:{place.port}",
    user=place.username,
    password=place.password,
    virtual_host="vhost:" + unquote(place.path[1:]),
)
receiver = helper.create_receiver("/queues/questions")
question = receiver.receive()
print("asked over 0-9-1:", bytes(question.body).decode())
print("seen over 1.0:", dict(question.properties), "priority", question.priority)
answer = Message(
    address=question.reply_to,  # /queues/amq.gen-...: the queue's name over 1.0
    correlation_id=question.correlation_id,
    body=b"Twelve centimetres.",
    inferred=True,  # plain bytes
)
helper.create_sender(None).send(answer)  # the address is in each message
receiver.accept()
helper.close()

_, properties, body = channel.basic_get(answers, auto_ack=True)
print(f"answer to {properties.correlation_id}: {body.decode()}")
asker.close()
