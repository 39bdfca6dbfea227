"""The beginning of an AMQP 1.0 connection: two protocol headers and, between them, the login (part 5, section 5.3).

The peer sends the header for SASL, reads our mechanisms, chooses one (init), answers challenges until the outcome, and
then sends the header for AMQP. Many peers send all of that at once and read afterwards; none of it is handled while a
password is checked. A peer that begins with the header for AMQP is anonymous, where that is allowed. There is no error
frame at this stage: a peer that sends anything else gets the header that we expect, where that helps, and the
connection ends.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import Composite
from leveret.protocols.amqp10.codec.wire import (
    FRAME_SASL,
    FRAME_START,
    HEADER_AMQP,
    HEADER_SASL,
    HEADER_SIZE,
    OFFSET_MIN,
    frame,
)
from leveret.protocols.amqp10.machine.contract import Handler, Tuning
from leveret.protocols.shared.machine.contract import Wait, Writer


class Stage(Enum):
    """The stages of the greeting; the value is the stage's name in texts."""

    SASL_HEADER = "awaiting the protocol header"
    INIT = "awaiting the choice of a mechanism"
    RESPONSE = "awaiting the response to a challenge"
    CHECKING = "checking the password"
    AMQP_HEADER = "awaiting the second protocol header"
    DONE = "logged in"
    LEFT = "left"


RESTING: Final = (Stage.CHECKING, Stage.DONE, Stage.LEFT)  # no input is handled there
HEADERS: Final = {Stage.SASL_HEADER: HEADER_SASL, Stage.AMQP_HEADER: HEADER_AMQP}
OUTCOMES: Final = {  # conditions of failed logins that are not the peer's fault
    p.INTERNAL_ERROR: p.SASL_CODE_SYS,
    p.NOT_IMPLEMENTED: p.SASL_CODE_SYS_PERM,
    p.RESOURCE_LIMIT_EXCEEDED: p.SASL_CODE_SYS_TEMP,
}
ANONYMOUS: Final = "ANONYMOUS"
SPOKEN: Final = {
    HEADER_AMQP: "AMQP 1.0 without SASL",
    HEADER_SASL: "AMQP 1.0",
    b"AMQP\x02\x01\x00\x00": "AMQP 1.0 with TLS",
    b"AMQP\x00\x00\x09\x01": "AMQP 0-9-1",
    b"AMQP\x01\x01\x00\x0a": "AMQP 0-10, which is served where protocols.amqp010.enabled is true",
}


class Greeting:
    """The beginning of a connection, until it is `done` or `left`."""

    __slots__ = ("_handler", "_outbox", "_tuning", "left_because", "needed", "peer_spoke", "stage")

    def __init__(self, handler: Handler, tuning: Tuning, outbox: Writer) -> None:
        self._handler = handler
        self._tuning = tuning
        self._outbox = outbox
        self.stage = Stage.SASL_HEADER
        self.needed = HEADER_SIZE  # bytes that are needed from where `take` stopped
        self.peer_spoke = ""
        self.left_because = ""

    @property
    def done(self) -> bool:
        return self.stage is Stage.DONE

    @property
    def checking(self) -> bool:
        """True while a password is being checked: input waits for `check`."""
        return self.stage is Stage.CHECKING

    @property
    def left(self) -> bool:
        """True once nothing more is sent or read."""
        return self.stage is Stage.LEFT

    def take(self, data: bytes, at: int) -> int:
        """Handle all whole input from `at` on, until done, left or checking; return the offset of the rest."""
        while self.stage not in RESTING:
            self.needed = HEADER_SIZE
            if len(data) - at < self.needed:
                break
            if self.stage in HEADERS:
                self._take_header(data[at : at + HEADER_SIZE])
                at += HEADER_SIZE
                continue
            size, offset, kind, _ = FRAME_START.unpack_from(data, at)
            body = 4 * offset
            if (
                kind != FRAME_SASL
                or offset < OFFSET_MIN
                or not body <= size <= self._tuning.initial_frame_size_max
            ):
                self.leave(f"a frame of type {kind} with {size} octets ({self.stage.value})")
                break
            self.needed = size
            if len(data) - at < size:
                break
            self._take_frame(data, at + body, at + size)
            at += size
        return at

    def _take_header(self, header: bytes) -> None:
        ours = HEADERS[self.stage]
        self.peer_spoke = self.peer_spoke or SPOKEN.get(header, "an unknown protocol")
        if self.stage is Stage.SASL_HEADER and header == HEADER_AMQP and self._tuning.takes_anonymous:
            self._let_in()
            return
        self._outbox.write(ours)
        if header != ours:
            self.leave(f"the peer speaks {SPOKEN.get(header, 'an unknown protocol')} ({self.stage.value})")
        elif self.stage is Stage.AMQP_HEADER:
            self.stage = Stage.DONE
        else:
            self.stage = Stage.INIT
            self._say(p.SaslMechanisms(sasl_server_mechanisms=self._tuning.mechanisms))

    def _let_in(self) -> None:
        """Log a peer in that has begun without SASL, as with the mechanism ANONYMOUS; the peer is told to use SASL if
        that is refused (part 5, section 5.3.1: SASL comes first only if a peer wants it)."""
        try:
            self._handler.on_sasl_init(ANONYMOUS, b"")
        except AmqpError as error:
            self._outbox.write(HEADER_SASL)
            self.leave(error.description)
            return
        if not self.left:
            self._outbox.write(HEADER_AMQP)
            self.stage = Stage.DONE

    def _take_frame(self, data: bytes, at: int, end: int) -> None:
        try:
            performative, after = p.decode(data, at, end)
            step = STEPS.get((self.stage, type(performative)))
            if step is None or after != end:
                self.leave(f"an unexpected frame, {type(performative).__name__} ({self.stage.value})")
            else:
                step(self, performative)
        except AmqpError as error:
            self._refuse(error)

    def _init(self, init: object) -> None:
        assert isinstance(init, p.SaslInit)
        self._proceed(self._handler.on_sasl_init(init.mechanism, init.initial_response or b""))

    def _response(self, response: object) -> None:
        assert isinstance(response, p.SaslResponse)
        self._proceed(self._handler.on_sasl_response(response.response))

    def check(self) -> None:
        """Continue, if the handler has finished the check of the password."""
        try:
            self._proceed(self._handler.on_sasl_checked())
        except AmqpError as error:
            self._refuse(error)

    def _proceed(self, challenge: bytes | Wait | None) -> None:
        if self.left:
            return
        if isinstance(challenge, Wait):
            self.stage = Stage.CHECKING
            return
        if challenge is not None:
            self.stage = Stage.RESPONSE
            self._say(p.SaslChallenge(challenge=challenge))
            return
        self.stage = Stage.AMQP_HEADER
        self._say(p.SaslOutcome(code=p.SASL_CODE_OK, additional_data=self._handler.last_words()))

    def _refuse(self, error: AmqpError) -> None:
        """Send the outcome of a failed login or an invalid frame, and end the greeting (S164)."""
        if not self.left:
            self._say(p.SaslOutcome(code=OUTCOMES.get(error.condition, p.SASL_CODE_AUTH)))
            self.leave(error.description)

    def leave(self, because: str) -> None:
        """End the greeting; nothing more is read from the peer."""
        self.stage = Stage.LEFT
        self.left_because = self.left_because or because

    def _say(self, performative: Composite) -> None:
        self._outbox.write(frame(0, performative.encode(), FRAME_SASL))


STEPS: Final[dict[tuple[Stage, type], Callable[[Greeting, object], None]]] = {
    (Stage.INIT, p.SaslInit): Greeting._init,
    (Stage.RESPONSE, p.SaslResponse): Greeting._response,
}
