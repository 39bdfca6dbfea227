"""The login of a connection, for every front-end: from the SASL mechanism that the client chose to a user.

    begin, answer ──> Challenge | Success | Pending ─ its `waiting` tells ─> go_on ──> Challenge | Success

Refused logins are logged, reported to `broker.events`, and raised, so that the front-end can translate them. In a
protocol that cannot send a mechanism's final data (`Success.octets`) with the end of the exchange, the data go out as a
challenge, which the client answers with an empty response.
"""

from __future__ import annotations

from logging import Logger
from typing import TYPE_CHECKING, Final

from leveret.errors import Failure, LimitReached, NotAllowed
from leveret.security.password_checks import Waiting
from leveret.security.sasl import (
    Answer,
    AuthenticationFailed,
    Challenge,
    MalformedResponse,
    Mechanism,
    Mechanisms,
    Pending,
    Success,
    UnknownMechanism,
)
from leveret.values import Value

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.front_end import Peer
    from leveret.security.users import User

SHOWN_MAX: Final = 255  # characters shown of a claimed name
WORDS: Final[dict[type[Failure], str]] = {
    MalformedResponse: "malformed_response",
    UnknownMechanism: "unknown_mechanism",
    LimitReached: "too_many_checks",
}


class Login:
    """The login attempts of one connection, one after the other."""

    def __init__(
        self,
        broker: Broker,
        mechanisms: Mechanisms,
        peer: Peer,
        protocol: str,
        log: Logger,
        ends_with_data: bool = False,
    ) -> None:
        self._broker = broker
        self._mechanisms = mechanisms
        self._peer = peer
        self._protocol = protocol
        self._log = log
        self._ends_with_data = ends_with_data  # the protocol can send data with the end of an exchange
        self._mechanism = ""
        self.attempt: Mechanism | None = None  # the last one
        self._pending: Pending | None = None
        self._reported: Failure | None = None  # the last refusal
        self._success: Success | None = None  # takes effect once the client has answered the final data

    def begin(self, mechanism: str, response: bytes) -> Answer:
        """Start the mechanism that the client has chosen. Raises the core's failures if it is refused."""
        self._mechanism = mechanism
        try:
            self.attempt = self._mechanisms.begin(mechanism, self._peer.loopback)
            return self._next(self.attempt.start(response))
        except Failure as failure:
            self._refused(failure)
            raise

    def answer(self, response: bytes) -> Answer:
        """Take the client's answer to a challenge. Raises the core's failures if it is refused."""
        assert self.attempt is not None, "a challenge comes before its answer"
        try:
            if (success := self._success) is not None:
                if response:
                    raise MalformedResponse("there is nothing to add to the end of the exchange")
                return self._succeeded(success)
            return self._next(self.attempt.step(response))
        except Failure as failure:
            self._refused(failure)
            raise

    def go_on(self) -> Answer:
        """Continue after a pending check, or return it if it has not ended. Raises the core's failures."""
        pending = self._pending
        assert pending is not None, "only what is pending goes on"
        if not pending.waiting.is_there:
            return pending
        self._pending = None
        try:
            return self._next(pending.answer())
        except Failure as failure:
            self._refused(failure)
            raise

    def drop(self) -> None:
        """Give up a pending check; called when the connection has ended."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.waiting.drop()

    def _next(self, answer: Answer) -> Answer:
        if isinstance(answer, Pending):
            self._pending = answer
        elif isinstance(answer, Success):
            if answer.octets and not self._ends_with_data:
                self._success = answer
                return Challenge(answer.octets)
            return self._succeeded(answer)
        elif self.attempt is not None and self.attempt.refusal is not None:
            self._refused(self.attempt.refusal)
        return answer

    def _succeeded(self, success: Success) -> Success:
        self._success = None
        self._broker.events.happened("user.authentication.success", "", self._facts(success.user.name))
        return success

    def _refused(self, failure: Failure) -> None:
        """Log and report a refused login, with names shortened, because any client may send any name.

        A mechanism may tell its client first, in a challenge: the refusal is raised later, and reported once.
        """
        if failure is self._reported:
            return
        self._reported = failure
        name = "" if self.attempt is None else self.attempt.claimed
        why = failure.reason if isinstance(failure, AuthenticationFailed) else str(failure)
        self._log.warning("%s: login refused: %s", self._peer.name, why.replace(name, name[:SHOWN_MAX]))
        facts = {**self._facts(name[:SHOWN_MAX]), "error": word_of(failure)}
        self._broker.events.happened("user.authentication.failure", "", facts)

    def _facts(self, name: str) -> dict[str, Value]:
        return facts_of(self._peer, self._protocol, self._mechanism[:SHOWN_MAX], name)


class Renewal:
    """The fresh secrets of a user who has logged in, checked one after the other."""

    __slots__ = ("_broker", "_log", "_peer", "waiting")

    def __init__(self, broker: Broker, peer: Peer, log: Logger) -> None:
        self._broker = broker
        self._peer = peer
        self._log = log
        self.waiting: Waiting | None = None  # the check that is under way

    def begin(self, name: str, secret: bytes, is_token: bool = False) -> User | Waiting | None:
        """Check a new secret: return the user, or None if the secret is wrong. `is_token`: the user came with a token.

        Returns `Waiting` if the check takes a thread; `checked` returns it once it has ended. Raises the core's
        failures, and NotAllowed if the check itself fails.
        """
        if self.waiting is not None:
            raise NotAllowed("another new secret is being checked")
        try:
            access = self._broker.access
            opaque = is_token and access.tokens is not None and access.tokens.is_opaque(secret)
            found = access.authenticate_token(name, secret) if opaque else access.authenticate(name, secret)
        except Failure:
            raise
        except Exception:
            self._log.exception("%s: the new secret of user '%s' could not be checked", self._peer.name, name)
            raise NotAllowed("Secret update failed") from None
        if isinstance(found, Waiting):
            self.waiting = found
        return found

    def checked(self) -> Waiting | None:
        """Return the check that has ended since the last call, or None."""
        waiting = self.waiting
        if waiting is None or not waiting.is_there:
            return None
        self.waiting = None
        return waiting

    def drop(self) -> None:
        """Give up a check under way; called when the connection has ended."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.drop()


def facts_of(peer: Peer, protocol: str, mechanism: str, name: str) -> dict[str, Value]:
    """Return the facts of a login event."""
    return {
        "name": name,
        "connection_type": "network",
        "connection_name": peer.name,
        "peer_host": peer.host,
        "peer_port": peer.port,
        "host": peer.local_host,
        "port": peer.local_port,
        "ssl": peer.tls is not None,
        "protocol": protocol,
        "auth_mechanism": mechanism,
    }


def word_of(failure: Failure) -> str:
    """Return the cause of a refusal as one word, for events."""
    if isinstance(failure, AuthenticationFailed):
        return failure.word
    return next((word for kind, word in WORDS.items() if isinstance(failure, kind)), "refused")
