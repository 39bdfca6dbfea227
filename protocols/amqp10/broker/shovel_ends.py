"""The ends of shovels on other brokers, which are spoken to over AMQP 1.0.

    open ─> dial ─> login, open, begin, attach to the address ─> opened

A message of another protocol is converted as for a consumer of this node. What only a broker says of a message, such as
x-exchange, is not passed on. On confirm a message that the destination does not accept is refused: it stays at the
source, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.errors import PreconditionFailed
from leveret.features.transfers.definition import AckMode
from leveret.features.transfers.ends import DestinationEnd, SourceEnd, settles
from leveret.message import Message
from leveret.protocols.amqp10.broker.encoding import ENCODING, expiry_of
from leveret.protocols.amqp10.broker.envelope import annotation
from leveret.protocols.amqp10.broker.projection import Projection
from leveret.protocols.amqp10.broker.republication import republished
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.wire import MASK, distance
from leveret.protocols.amqp10.machine.client import HANDLE, Client10, Login, Owner, said
from leveret.protocols.shared.broker.machine_ends import OutboxWriter
from leveret.protocols.shared.broker.remote_end import Link, RemoteEnd

if TYPE_CHECKING:
    from leveret.config.amqp_uri import Uri
    from leveret.features.transfers.definition import EndSettings
    from leveret.features.transfers.ends import EndListener, Journey
    from leveret.outbox import Outbox

UNSETTLED, SETTLED = 0, 1  # snd-settle-mode


class RemoteEnd10(RemoteEnd[Client10], Owner):
    """The base of both ends: the login, and the address."""

    def _attach(self) -> p.Attach:
        """Return the attach of the link."""
        raise NotImplementedError

    @property
    def _container(self) -> str:
        raise NotImplementedError

    def _client_on(self, outbox: Outbox, now: float, body_size_max: int) -> Link[Client10]:
        uri = self._uri
        login = Login(
            uri.mechanism,
            uri.user,
            uri.password,
            uri.hostname,
            self._container,
            uri.heartbeat_s,
            uri.timeout_s,
            body_size_max,
        )
        attach = self._attach()
        attach.max_message_size = body_size_max if attach.role else None
        client = Client10(self, login, attach, OutboxWriter(outbox), now)
        return Link(client, outbox, f"to {uri.hostname}")

    def on_message(self, delivery_id: int, message_format: int, payload: bytes) -> None:
        """Do nothing: a destination gets none."""

    def on_outcome(self, first: int, last: int, state: p.DeliveryState | None) -> None:
        """Do nothing: a source tells the outcomes."""

    def on_room(self) -> None:
        """Do nothing: a source sends nothing."""


def address_of(end: EndSettings) -> str:
    assert end.address is not None, "the definition has one"
    return end.address


class Source10(RemoteEnd10, SourceEnd):
    """An address of another broker, to receive from.

    It gives credit for the messages that may be on their way, anew when half of it is used, and accepts in batches:
    once for what a step of the shovel has confirmed.
    """

    def __init__(self, journey: Journey, uri: Uri, listener: EndListener) -> None:
        super().__init__(journey, uri, listener)
        self._number = 0  # of the last message that has come
        self._ids: dict[int, int] = {}  # the messages that are not accepted yet, with their ids
        self._accepted: list[int] = []  # the ids of those that the broker has to be told of

    @property
    def _container(self) -> str:
        return f"{self._journey.title} (source)"

    def _attach(self) -> p.Attach:
        return p.Attach(
            name=self._journey.title,
            handle=HANDLE,
            role=True,
            snd_settle_mode=SETTLED if settles(self._journey) else UNSETTLED,
            source=p.Source(address=address_of(self._journey.definition.source)),
            target=p.Target(),
        )

    def on_open(self) -> None:
        self._renew_credit()
        self._listener.opened(0)  # how many wait is not told; the definition does not ask for it

    def _renew_credit(self) -> None:
        if self._link is None:
            return
        client, most = self._link.client, self._journey.definition.prefetch
        wanted = most - len(self._ids)
        if wanted > client.credit and (not client.credit or 2 * (wanted - client.credit) >= most):
            client.want(wanted)

    def on_message(self, delivery_id: int, message_format: int, payload: bytes) -> None:
        if self._is_closed:
            return
        try:
            if message_format:
                raise PreconditionFailed(f"it has the message-format {message_format}, which is not known")
            message = self._message(payload)
        except (AmqpError, PreconditionFailed) as failure:
            text = failure.description if isinstance(failure, AmqpError) else str(failure)
            self._failed(f"a message cannot be published here: {text}")
            return
        self._number += 1
        if not settles(self._journey):
            self._ids[self._number] = delivery_id
        self._renew_credit()
        self._listener.arrived(message)

    def _message(self, payload: bytes) -> Message:
        """Return a message as it came from there: with the exchange and key that it had, if it tells them."""
        known = Projection(payload)
        entries = known.facts.envelope.entries
        exchange, key = (_text(entries.get(name)) for name in ("x-exchange", "x-routing-key"))
        facts = known.facts
        if known.expires and (expiry_ms := expiry_of(known.properties)) is not None:
            facts = facts.expiring(max(0, expiry_ms - int(self._journey.broker.clock.wall() * 1000)))
        return Message(
            ENCODING, exchange, key or known.subject or "", known.properties, payload[known.body_at :], facts
        )

    def accept(self, number: int, multiple: bool) -> None:
        if not multiple:
            self._accept(number)
            return
        while self._ids and (first := next(iter(self._ids))) <= number:
            self._accept(first)

    def _accept(self, number: int) -> None:
        if (delivery_id := self._ids.pop(number, None)) is not None:
            self._accepted.append(delivery_id)

    def _tell_accepted(self) -> None:
        if self._accepted and self._link is not None:
            accepted, self._accepted = self._accepted, []
            self._link.client.accept(accepted)
            self._renew_credit()

    def pause(self) -> None:
        self._tell_accepted()
        super().pause()

    def resume(self) -> None:
        self._tell_accepted()
        super().resume()

    def close(self) -> None:
        self._tell_accepted()
        super().close()


def _text(entry: bytes | None) -> str:
    value = None if entry is None else annotation(entry)
    return value if isinstance(value, str) else ""


class Destination10(RemoteEnd10, DestinationEnd):
    """An address of another broker, to send to."""

    def __init__(self, journey: Journey, uri: Uri, listener: EndListener) -> None:
        super().__init__(journey, uri, listener)
        self._number = 0  # of the last message
        self._sent: dict[int, int] = {}  # the ids of what is not confirmed yet, with its numbers

    @property
    def _container(self) -> str:
        return f"{self._journey.title} (destination)"

    @property
    def _confirms(self) -> bool:
        return self._journey.definition.ack_mode is AckMode.ON_CONFIRM

    def _attach(self) -> p.Attach:
        return p.Attach(
            name=self._journey.title,
            handle=HANDLE,
            role=False,
            snd_settle_mode=UNSETTLED if self._confirms else SETTLED,
            source=p.Source(),
            target=p.Target(address=address_of(self._journey.definition.destination)),
            initial_delivery_count=0,
        )

    def on_open(self) -> None:
        if self._link is not None:
            self._link.drain = self._listener.go_on
        self._listener.opened(None)

    def on_room(self) -> None:
        self._listener.go_on()

    def has_room(self) -> bool:
        return self._link is not None and self._link.client.has_room()

    def publish(self, message: Message) -> None:
        if self._link is None:
            return
        self._number += 1
        client = self._link.client
        try:
            begin, body = republished(message, self._journey.definition.overwrites)
        except Exception as failure:  # the fault of another protocol's encoding
            text = failure.description if isinstance(failure, AmqpError) else str(failure)
            raise PreconditionFailed(f"a message cannot be sent over AMQP 1.0: {text}") from None
        size = len(begin) + len(body)
        if client.message_max is not None and size > client.message_max:
            reason = f"the destination takes messages of up to {client.message_max} bytes, and not of {size}"
            self._listener.refused(self._number, reason)
            return
        delivery_id = client.send(begin + body, settled=not self._confirms)
        if self._confirms:
            self._sent[delivery_id] = self._number

    def on_outcome(self, first: int, last: int, state: p.DeliveryState | None) -> None:
        if self._is_closed:
            return
        oldest, size = next(iter(self._sent), None), distance(last, first)
        if oldest is not None and distance(first, oldest) <= 0 and type(state) is p.Accepted:
            self._confirm_until(last)
        elif 0 <= size < 2 * len(self._sent):
            self._conclude([first + at & MASK for at in range(size + 1)], state)
        else:
            self._conclude([each for each in self._sent if 0 <= distance(each, first) <= size], state)

    def _confirm_until(self, last: int) -> None:
        number = 0
        while self._sent and distance(next(iter(self._sent)), last) <= 0:
            number = self._sent.pop(next(iter(self._sent)))
        if number:
            self._listener.confirmed(number, True)

    def _conclude(self, ids: list[int], state: p.DeliveryState | None) -> None:
        for number in [self._sent.pop(each) for each in ids if each in self._sent]:
            if isinstance(state, p.Accepted):
                self._listener.confirmed(number, False)
            else:
                self._listener.refused(number, refusal_of(state))


def refusal_of(state: p.DeliveryState | None) -> str:
    """Return why a message has not been accepted, for people."""
    if isinstance(state, p.Rejected):
        return said(state.error, "the destination rejects messages")
    if isinstance(state, p.Released | p.Modified):
        return "the destination releases messages: it has no place for them now"
    return "the destination settles messages without saying what became of them"
