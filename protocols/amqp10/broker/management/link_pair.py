"""Management over a pair of links: requests come in on one, and are answered on the other.

    peer's sender   ──> target /management ──> Requests ──> Administration.answer ─┐
    peer's receiver <── source /management <── Responses <─────────────────────────┘

Both links have the same name, the property `paired`, and the same address of the peer's. Requests are sent settled, and
each is answered before the next one is read. An error in a request is the status of its answer; an error in the pair,
or a missing permission, ends the session, as RabbitMQ's clients expect, which have one for each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from leveret.errors import Failure
from leveret.protocols.amqp10.broker.errors import refusal
from leveret.protocols.amqp10.broker.management.administration import Administration
from leveret.protocols.amqp10.broker.management.syntax import Response
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.sections import MalformedError, code_of
from leveret.protocols.amqp10.codec.types import Described, ULong, Value, encode, value_at
from leveret.protocols.amqp10.machine.contract import IncomingOwner, OutgoingOwner
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
from leveret.protocols.amqp10.machine.link import Link, size_exceeded
from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink

if TYPE_CHECKING:
    from leveret.protocols.amqp10.broker.session import ServedSession

MessageId: TypeAlias = int | str | bytes | UUID | None
CREDIT: Final = 8  # requests that may be on their way
ADDRESS_MAX: Final = 1024  # characters of an address that is kept with a pair
REQUEST_SIZE_MAX: Final = 131_072  # bytes; a decoded request takes many times as much
PAIRED: Final[dict[str, Value]] = {"paired": True}
ME: Final = "$me"  # the other link of the pair
HTTP: Final[dict[str, Value]] = {"http:response": "1.1"}  # X076
VERSION: Final = encode(Described(ULong(p.APPLICATION_PROPERTIES), HTTP))


class Pair:
    """Two links of the same name, or one that waits for the other."""

    __slots__ = ("address", "name", "requests", "responses", "session")

    def __init__(self, session: ServedSession, name: str, address: str | None) -> None:
        self.session = session
        self.name = name
        self.address = address  # the peer's
        self.requests: IncomingLink | None = None
        self.responses: OutgoingLink | None = None

    def require_responses(self) -> OutgoingLink:
        """Return the link for an answer (X088). Raises AmqpError."""
        link = self.responses
        if link is None:
            raise _broken("received transfer on half open management link pair")
        if link.credit < 1:
            raise _broken(f"insufficient credit ({link.credit}) for management link from RabbitMQ to client")
        return link

    def forget_if_gone(self) -> None:
        if self.requests is None and self.responses is None:
            del self.session.pairs[self.name]


def attach_requests(session: ServedSession, link: IncomingLink, attach: p.Attach) -> Requests:
    """Serve the link for requests. Raises AmqpError."""
    _require_paired(attach)
    if link.snd_settle_mode != p.SENDER_SETTLE_MODE_SETTLED:
        raise AmqpError(p.INVALID_FIELD, "the requests of a management link pair must be sent settled")
    source = attach.source
    pair = _pair(session, link.name, source.address if isinstance(source, p.Source) else None)
    if pair.requests is not None:
        raise _mismatch(link.name)
    link.want(CREDIT)
    _attach(pair, link, attach)
    pair.requests = link
    return Requests(pair)


def attach_responses(session: ServedSession, link: OutgoingLink, attach: p.Attach) -> Responses:
    """Serve the link for answers. Raises AmqpError."""
    _require_paired(attach)
    target = attach.target
    pair = _pair(session, link.name, target.address if isinstance(target, p.Target) else None)
    if pair.responses is not None:
        raise _mismatch(link.name)
    # Responses are always settled, whatever mode the peer asked for.
    link.snd_settle_mode = p.SENDER_SETTLE_MODE_SETTLED
    link.settled = True
    _attach(pair, link, attach)
    pair.responses = link
    return Responses(pair)


def _attach(pair: Pair, link: Link, attach: p.Attach) -> None:
    """Answer an attach. Raises AmqpError if the answer is longer than the peer's frames."""
    try:
        link.attach(attach.source, attach.target, PAIRED)
    except AmqpError:
        pair.forget_if_gone()
        raise


def _require_paired(attach: p.Attach) -> None:
    """Require the link property `paired` (X074). Raises AmqpError."""
    if (attach.properties or {}).get("paired") is not True:
        raise AmqpError(p.INVALID_FIELD, "Link property 'paired' is not set to boolean value 'true'")


def _pair(session: ServedSession, name: str, address: str | None) -> Pair:
    """Return the pair of that name, or a new one. Raises AmqpError."""
    pair = session.pairs.get(name)
    if address is not None and len(address) > ADDRESS_MAX:
        raise AmqpError(p.INVALID_FIELD, f"an address has more than {ADDRESS_MAX} characters")
    if pair is None:
        pair = session.pairs[name] = Pair(session, name, address)
    if pair.address != address:
        raise _mismatch(name)
    return pair


class Requests(IncomingOwner):
    """The owner of the link for requests."""

    __slots__ = ("_administration", "_message_id", "_pair")

    def __init__(self, pair: Pair) -> None:
        connection = pair.session.connection
        self._pair = pair
        self._message_id: MessageId = None  # of the last request
        self._administration = Administration(pair.session.client, connection.config.node.name, self._renew)

    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        self._pair.require_responses()
        if len(payload) > REQUEST_SIZE_MAX:
            raise size_exceeded(len(payload), REQUEST_SIZE_MAX, Ends.SESSION)
        properties, body = _read(payload)
        method, target = properties.subject, properties.to
        if properties.reply_to != ME or method is None or target is None:  # X075
            why = f"a management request needs a subject, a to, and '{ME}' as reply-to"
            raise AmqpError(p.INVALID_FIELD, why, Ends.SESSION)
        self._message_id = properties.message_id
        try:
            response = self._administration.answer(method, target, body)
        except Failure as failure:
            raise refusal(failure, Ends.SESSION) from None
        if response is not None:
            self._answer(response, properties.message_id)

    def _renew(self, secret: bytes) -> bool:
        renewed = partial(self._answer_late, Response(204), self._message_id)
        return self._pair.session.connection.change_secret(secret, renewed)

    def _answer_late(self, response: Response, message_id: MessageId) -> None:
        """Answer after a delay, unless the link for answers has ended."""
        if self._pair.responses is None:
            return
        try:
            self._answer(response, message_id)
        except AmqpError as error:
            self._pair.session.wire.fail(error)

    def _answer(self, response: Response, message_id: MessageId) -> None:
        link = self._pair.require_responses()
        answer = _written(response, message_id)
        if 0 < link.message_size_max < len(answer):
            raise size_exceeded(len(answer), link.message_size_max, Ends.SESSION)
        link.send(None, [answer], len(answer), True)
        # One request at a time: a batch of them may ask for seconds of work, and for gigabytes of answers.
        self._pair.session.connection.wire.halted = True

    def on_detached(self, closed: bool) -> None:
        self._pair.requests = None
        self._pair.forget_if_gone()


class Responses(OutgoingOwner):
    """The owner of the link for answers: each is sent at once, so that nothing ever waits for credit."""

    __slots__ = ("_pair",)

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def on_credit(self, link: OutgoingLink) -> None:
        if link.drain:
            link.drained()

    def on_outcomes(
        self, ids: Sequence[int], tokens: list[object], state: p.DeliveryState | None, settled: bool
    ) -> None:
        """Do nothing: answers are sent settled and have no outcomes."""

    def on_detached(self, tokens: list[object], closed: bool) -> None:
        self._pair.responses = None
        self._pair.forget_if_gone()


def _read(payload: bytes) -> tuple[p.Properties, Value]:
    """Return a request's properties and the value in its body. Raises AmqpError.

    Other sections are ignored, and any order is accepted: a client in use sends an empty body first.
    """
    properties, body = p.Properties(), None
    at, end = 0, len(payload)
    try:
        while at < end:
            section, after = value_at(payload, at, end)
            code = code_of(section.descriptor) if isinstance(section, Described) else None
            if isinstance(section, Described) and code == p.AMQP_VALUE:
                body = section.value
            elif code == p.Properties.CODE:
                found, _ = p.decode(payload, at, end)
                assert isinstance(found, p.Properties)
                properties = found
            at = after
    except AmqpError as error:
        raise MalformedError(error.description) from None
    return properties, body


def _written(response: Response, message_id: MessageId) -> bytes:
    """Encode a response as a message (X075, X076)."""
    properties = p.Properties(subject=str(response.status), correlation_id=message_id)
    body = (
        response.body.encode(errors="replace").decode() if isinstance(response.body, str) else response.body
    )
    return properties.encode() + VERSION + encode(Described(ULong(p.AMQP_VALUE), body))


def _mismatch(name: str) -> AmqpError:
    return AmqpError(p.PRECONDITION_FAILED, f"received invalid attach for management link pair '{name}'")


def _broken(why: str) -> AmqpError:
    return AmqpError(p.PRECONDITION_FAILED, why, Ends.SESSION)
