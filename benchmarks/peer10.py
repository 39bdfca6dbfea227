"""Run one end of an AMQP 1.0 link, on Qpid Proton's Python classes: peer10.c for machines without a compiler.

python benchmarks/peer10.py send|send-own|receive PORT ADDRESS MESSAGES SIZE|CREDIT
"""

from __future__ import annotations

import sys
import time

import proton
from proton import handlers, reactor

WINDOW = 1000  # unanswered messages


class Peer(handlers.MessagingHandler):
    """The counterpart of peer10.c, with the same output."""

    def __init__(self, role: str, port: str, address: str, messages: str, amount: str) -> None:
        self.own = role == "send-own"
        self.sending = self.own or role == "send"
        super().__init__(prefetch=0 if self.sending else int(amount))
        self.url, self.address, self.messages = f"amqp://127.0.0.1:{port}", address, int(messages)
        self.message = proton.Message(body=b"x" * int(amount) if self.sending else None, inferred=True)
        self.begun = self.ended = 0
        self.first = 0.0

    def on_start(self, event: proton.Event) -> None:
        connection = event.container.connect(
            self.url,
            virtual_host="vhost:/",
            reconnect=False,
            user="guest",
            password="guest",
            allowed_mechs="PLAIN",
        )
        create = event.container.create_sender if self.sending else event.container.create_receiver
        create(connection, self.address)

    def on_link_opened(self, event: proton.Event) -> None:
        print("ready", flush=True)

    def on_sendable(self, event: proton.Event) -> None:
        self.first = self.first or time.monotonic()
        while self.begun < self.messages and self.begun - self.ended < WINDOW and event.sender.credit:
            if self.own:
                self._number()
            event.sender.send(self.message)
            self.begun += 1

    def _number(self) -> None:
        """Give the message ids, a time and properties of its own."""
        number = f"{self.begun:016}"
        self.message.id, self.message.correlation_id = f"m-{number}", number
        self.message.creation_time = 1_700_000_000 + self.begun
        trace = f"00-4bf92f3577b34da6{number}-00f067aa0ba902b7-01"
        self.message.properties = {"traceparent": trace, "x-tenant": "t7", "attempt": 1}

    def on_message(self, event: proton.Event) -> None:
        self.first = self.first or time.monotonic()
        self._count(event)

    def on_accepted(self, event: proton.Event) -> None:
        self._count(event)
        self.on_sendable(event)

    def _count(self, event: proton.Event) -> None:
        self.ended += 1
        if self.ended == self.messages:
            print(self.first, time.monotonic(), flush=True)
            event.connection.close()


if __name__ == "__main__":
    reactor.Container(Peer(*sys.argv[1:])).run()
