"""The mechanism AMQPLAIN of the oldest clients: user and password as a field table without its size."""

from __future__ import annotations

from leveret.protocols.amqp091.codec.fields import MalformedError, decode_table, encode_longstr
from leveret.security.sasl import Answer, MalformedResponse, Mechanism


class AmqPlain(Mechanism):
    name = "AMQPLAIN"

    def start(self, response: bytes) -> Answer:
        try:
            table = decode_table(encode_longstr(response))
        except MalformedError:
            raise MalformedResponse("an AMQPLAIN response is a table with LOGIN and PASSWORD") from None
        login, password = table.get("LOGIN"), table.get("PASSWORD")
        if not isinstance(login, str) or not isinstance(password, str | bytes):
            raise MalformedResponse("an AMQPLAIN response is a table with LOGIN and PASSWORD")
        return self.login(login, password)
