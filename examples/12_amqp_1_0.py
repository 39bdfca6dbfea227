"""Use AMQP 1.0 with Qpid Proton: a temporary queue, the outcomes of messages, and a filter on them.

Start a node with `leveret serve`, then run `python examples/12_amqp_1_0.py`. AMQP_URL names another broker. The client
is `pip install python-qpid-proton`.
"""

import os
from urllib.parse import unquote, urlsplit

from proton import Message, Receiver, symbol
from proton.reactor import ReceiverOption, Selector
from proton.utils import BlockingConnection, SendException

URL = urlsplit(os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F"))


def connect() -> BlockingConnection:
    """Connect. In AMQP 1.0 the host name selects the virtual host; any unknown name means the default one."""
    return BlockingConnection(
        f"amqp://{URL.hostname}:{URL.port}",
        user=URL.username,
        password=URL.password,
        virtual_host="vhost:" + unquote(URL.path[1:]),
    )


class TemporaryQueue(ReceiverOption):
    """Asks for a queue that the broker makes for this receiver and deletes with it."""

    def apply(self, receiver: Receiver) -> None:
        receiver.source.dynamic = True
        receiver.source.capabilities.put_object(symbol("temporary-queue"))


connection = connect()
everything = connection.create_receiver(None, options=TemporaryQueue())
address = everything.link.remote_source.address  # /queues/amq.dyn-...

sender = connection.create_sender(address)
for colour, what in (("brown", "hare"), ("white", "turnip"), ("brown", "burrow")):
    # returns once it is accepted
    sender.send(Message(body=f"a {colour} {what}", properties={"colour": colour}))

white = connection.create_receiver(address, options=Selector("colour = 'white'"))
print("chosen:", white.receive().body)
white.accept()

print("first:", everything.receive().body)
everything.release(delivered=False)  # it goes back to where it was ...
message = everything.receive()
print("again:", message.body, "- not for the first time" if not message.first_acquirer else "")
everything.reject()  # ... and now it is dropped, or dead-lettered

try:
    connection.create_sender("/exchanges/amq.direct/nobody").send(Message(body="is anybody there?"))
except SendException:
    print("nobody wants it")
connection.close()
