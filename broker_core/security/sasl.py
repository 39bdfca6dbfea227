"""SASL: from the bytes of an authentication exchange to a user, or a refusal.

A mechanism is a small state machine, one instance for each attempt: `start` takes the client's first response and
`step` each further one; both return a `Challenge` to send, a `Success`, or `Pending` if a thread has to check a
password first. They raise `MalformedResponse` for bytes that break the mechanism's syntax (the sender's mistake), and
`AuthenticationFailed` for everything else. The text of that failure never says more than that the login was refused;
`reason` says why and is for the log only. Neither holds a secret.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final, TypeAlias

import attrs

from leveret.errors import AccessRefused, Failure, Unsupported
from leveret.security.access import Access
from leveret.security.guards import network
from leveret.security.password_checks import CheckOrigin, Waiting
from leveret.security.scram import SERVER_NONCE_SIZE, ClientFirst, ScramExchange, Verifier, in_base64
from leveret.security.users import User


class AuthenticationFailed(AccessRefused):
    """Raised if the login is refused (S007). `reason` is for the log, `word` for events, neither for the peer."""

    def __init__(self, mechanism: str, reason: str, word: str = "invalid_credentials") -> None:
        super().__init__(
            f"Login was refused using authentication mechanism {mechanism}. "
            "For details see the broker logfile."
        )
        self.reason = reason
        self.word = word


class MalformedResponse(Failure):
    """Raised if a response does not have the form that the mechanism prescribes (X003)."""


class UnknownMechanism(Unsupported):
    """Raised if the client chooses a mechanism that was not offered (S006)."""


@attrs.frozen
class Challenge:
    """The exchange goes on: `octets` go to the client, and its answer to `step`."""

    octets: bytes


@attrs.frozen
class Success:
    """The exchange has succeeded. `octets` are the mechanism's final data, which have to reach the client, too."""

    user: User
    octets: bytes = b""


class Pending:
    """A thread is checking a password: call `answer` after `waiting` has told that it has ended."""

    def __init__(self, waiting: Waiting, finish: Callable[[User | None], Answer]) -> None:
        self.waiting = waiting
        self._finish = finish

    def answer(self) -> Answer:
        """Return the outcome, and raise, as `start` does."""
        assert self.waiting.is_there, "`tell` says when"
        return self._finish(self.waiting.user)


Answer: TypeAlias = "Challenge | Success | Pending"


class Mechanism(ABC):
    """A way to log in. Subclass it, set `name`, and write `start`, and `step` if it takes more than one response.

    Both are called in the broker's only thread and must not block. `login` and `admit` are the ways to succeed; a
    mechanism must not create a `Success` by itself. It has to return what `login` returns, whatever that is.
    """

    name: ClassVar[str]
    claimed = ""  # the user name that the client has claimed
    needs_certificate: ClassVar[bool] = False  # offered only to clients with a verified certificate
    certified: str | None = None  # the name in that certificate
    host: str = ""  # the client's address
    refusal: AuthenticationFailed | None = None  # raised at the next step, after a challenge that tells of it

    def __init__(self, access: Access, peer_is_loopback: bool) -> None:
        self.access = access
        self.peer_is_loopback = peer_is_loopback

    @classmethod
    def available(cls, access: Access) -> bool:
        """Return whether the mechanism is worth offering. Called for each connection."""
        return True

    @abstractmethod
    def start(self, response: bytes) -> Answer:
        """Called once, first, with the client's initial response (empty if it sent none)."""

    def step(self, response: bytes) -> Answer:
        """Called after each `Challenge`, with the client's answer."""
        raise MalformedResponse(f"{self.name} takes one response only")

    def login(self, name: str, password: str | bytes) -> Success | Pending:
        """Succeed if the password is right. Raises AuthenticationFailed if it is not, or not to be checked now."""
        self.claimed = name
        is_token = self.access.is_token(password, name)
        if not is_token:
            self.require_try(name)
        found = self.access.authenticate(name, password, self._place(name))
        if isinstance(found, Waiting):
            return Pending(found, partial(self._told if is_token else partial(self._waited, found), name))
        return self._told(name, found) if is_token else self._checked(name, found)

    def _place(self, name: str) -> CheckOrigin:
        """Return the client's network, or the name for clients on this machine, which may all have one address."""
        return CheckOrigin(
            f"localhost {name}" if self.peer_is_loopback else network(self.host), partial(self._may_try, name)
        )

    def _may_try(self, name: str) -> bool:
        access = self.access
        return not access.logins.refused_s(name, self.host, self.peer_is_loopback, access.now())

    def _waited(self, waiting: Waiting, name: str, user: User | None) -> Success:
        if not waiting.was_tried:
            raise AuthenticationFailed(self.name, f"user '{name}': too many failures", "too_many_failures")
        if user is None and not waiting.has_answer:  # nobody has said that the password is wrong
            raise AuthenticationFailed(self.name, f"user '{name}': no answer from the server", "no_answer")
        return self._checked(name, user)

    def _checked(self, name: str, user: User | None) -> Success:
        self.tried(name, user is not None)
        return self._told(name, user)

    def _told(self, name: str, user: User | None) -> Success:
        """Succeed or refuse without counting: tokens cannot be guessed, so a bad one locks out no user."""
        if user is None:
            raise AuthenticationFailed(self.name, f"user '{name}': invalid credentials")
        return self.admit(user)

    def require_himself(self, name: str, acting_as: str) -> None:
        """Check that the client acts as itself, not as another user. Raises AuthenticationFailed."""
        self.claimed = name
        if acting_as not in ("", name):
            raise AuthenticationFailed(self.name, f"user '{name}' may not act as another", "other_identity")

    def require_try(self, name: str) -> None:
        """Check that a login by this name may be tried now. Raises AuthenticationFailed after too many failures."""
        access = self.access
        wait_s = access.logins.refused_s(name, self.host, self.peer_is_loopback, access.now())
        if wait_s:
            reason = f"user '{name}': too many failures, no further try for {wait_s:.0f} s"
            raise AuthenticationFailed(self.name, reason, "too_many_failures")

    def tried(self, name: str, well: bool) -> None:
        """Count the outcome of a try."""
        access = self.access
        if well:
            access.logins.succeeded(name, self.host)
        else:
            access.logins.failed(name, self.host, self.peer_is_loopback, access.now())

    def admit(self, user: User) -> Success:
        """Succeed for an authenticated user. Raises AuthenticationFailed if it may not connect from there (S008)."""
        self.claimed = user.name
        if not self.access.may_connect(user, self.peer_is_loopback):
            reason = f"user '{user.name}' can only connect via localhost"
            raise AuthenticationFailed(self.name, reason, "not_loopback")
        return Success(user)


class Plain(Mechanism):
    """PLAIN (RFC 4616): the user to act as (empty, or the user), NUL, the user, NUL, the password."""

    name = "PLAIN"

    def start(self, response: bytes) -> Answer:
        parts = response.split(b"\0")
        if len(parts) != 3:
            raise MalformedResponse("a PLAIN response is three strings with NUL between them")
        acting_as, name = text(parts[0]), text(parts[1])
        self.require_himself(name, acting_as)
        return self.login(name, parts[2])


class Anonymous(Mechanism):
    """ANONYMOUS (RFC 4505): whatever the response says, the client is the configured anonymous user."""

    name = "ANONYMOUS"

    @classmethod
    def available(cls, access: Access) -> bool:
        return access.anonymous_user is not None and access.user(access.anonymous_user) is not None

    def start(self, response: bytes) -> Answer:
        name = self.access.anonymous_user
        user = None if name is None else self.access.user(name)
        if user is None:
            raise AuthenticationFailed(self.name, "there is no anonymous user", "no_such_user")
        return self.admit(user)


class External(Mechanism):
    """EXTERNAL (RFC 4422, appendix A): the user of the client's certificate; the response is that name, or empty."""

    name = "EXTERNAL"
    needs_certificate = True

    def start(self, response: bytes) -> Answer:
        acting_as, name = text(response), self.certified
        user = None if name is None else self.access.user(name)
        if user is None:
            self.claimed = name or ""
            reason = f"the certificate names '{name}', which is not a user"
            raise AuthenticationFailed(self.name, reason, "no_such_user")
        self.require_himself(user.name, acting_as)
        return self.admit(user)


class Scram(Mechanism):
    """SCRAM (RFC 5802) with SHA-256 (RFC 7677): no password is sent, and each side proves that it knows it.

    An unknown user, or one without a verifier, gets a salt as well, the same one each time, and no proof is right.
    """

    name = "SCRAM-SHA-256"

    def __init__(self, access: Access, peer_is_loopback: bool) -> None:
        super().__init__(access, peer_is_loopback)
        self._exchange: ScramExchange | None = None
        self._verifier: Verifier | None = None
        self._asked = False

    @classmethod
    def available(cls, access: Access) -> bool:
        return access.hashing.scram_iterations is not None

    def start(self, response: bytes) -> Answer:
        if not response and not self._asked:
            self._asked = True
            return Challenge(b"")  # RFC 4422, section 5.1: an empty challenge asks for the initial response
        try:
            first = ClientFirst.parse(response)
        except ValueError as error:
            raise MalformedResponse(str(error)) from None
        self.require_himself(first.user, first.acting_as)
        self.require_try(first.user)
        nonce = in_base64(self.access.random_octets(SERVER_NONCE_SIZE))
        self._exchange = ScramExchange(first, nonce)
        self._verifier = self._verifier_of(first.user)
        return Challenge(self._exchange.challenge(self._verifier or self._nobodys(first.user)))

    def step(self, response: bytes) -> Answer:
        if self._exchange is None:
            return self.start(response)
        try:
            octets = self._exchange.answer(response)
        except ValueError as error:
            raise MalformedResponse(str(error)) from None
        user, name = self.access.user(self.claimed), self.claimed
        self.tried(name, octets is not None)
        if user is None or self._verifier is None or self._verifier != self._verifier_of(name):
            raise AuthenticationFailed(self.name, f"user '{name}' is not known, or has no verifier yet")
        if octets is None:
            raise AuthenticationFailed(self.name, f"user '{name}': invalid credentials")
        return attrs.evolve(self.admit(user), octets=octets)

    def _verifier_of(self, name: str) -> Verifier | None:
        user = self.access.user(name)
        return None if user is None or user.password is None else user.password.scram

    def _nobodys(self, name: str) -> Verifier:
        iterations = self.access.hashing.scram_iterations
        assert iterations is not None, "only then it is offered"
        return self.access.decoys.verifier(name, iterations)


class Demonstration(Mechanism):
    """RABBIT-CR-DEMO (X004), for examples and tests: first the user, then the password in a sentence."""

    name = "RABBIT-CR-DEMO"
    ANSWER: Final = b"My password is "

    def __init__(self, access: Access, peer_is_loopback: bool) -> None:
        super().__init__(access, peer_is_loopback)
        self._user: str | None = None

    def start(self, response: bytes) -> Answer:
        self._user = text(response)
        return Challenge(b"Please tell me your password")

    def step(self, response: bytes) -> Answer:
        if self._user is None or not response.startswith(self.ANSWER):
            raise MalformedResponse("the answer begins with 'My password is '")
        name, self._user = self._user, None
        return self.login(name, response.removeprefix(self.ANSWER))


def text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise MalformedResponse("a user's name is not UTF-8") from None


STANDARD: Final[tuple[type[Mechanism], ...]] = (Plain, Anonymous, External, Scram, Demonstration)
# `bearer.py`, which is imported where one is configured
BEARERS: Final = frozenset(("OAUTHBEARER", "XOAUTH2"))
GSSAPI: Final = "GSSAPI"  # `kerberos.py`, likewise
DEFAULT_PREFERENCE: Final = ("PLAIN", "AMQPLAIN", "ANONYMOUS", "EXTERNAL")


class Mechanisms:
    """The mechanisms that a connection is offered, in the configured order.

    `more` are mechanisms of a protocol or plug-in; they replace standard ones of the same name. `certified` is the name
    that the client's certificate gives (`Peer.certified`); without it, mechanisms that need one are not offered. `host`
    is the client's address.
    """

    def __init__(
        self,
        access: Access,
        preference: Sequence[str] = DEFAULT_PREFERENCE,
        more: Sequence[type[Mechanism]] = (),
        certified: str | None = None,
        host: str = "",
    ) -> None:
        if not BEARERS.isdisjoint(preference):
            from leveret.security.bearer import OAuthBearer, XOAuth2

            more = (OAuthBearer, XOAuth2, *more)
        if GSSAPI in preference and access.kerberos is not None:
            from leveret.security.kerberos import Kerberos

            more = (Kerberos, *more)
        known = {
            each.name: each
            for each in (*STANDARD, *more)
            if certified is not None or not each.needs_certificate
        }
        self._access = access
        self._certified = certified
        self._host = host
        self._mechanisms = {name: known[name] for name in preference if name in known}

    @property
    def offered(self) -> tuple[str, ...]:
        """The names, most preferred first."""
        return tuple(name for name, each in self._mechanisms.items() if each.available(self._access))

    def begin(self, name: str, peer_is_loopback: bool) -> Mechanism:
        """Return a fresh attempt with the mechanism that the client chose. Raises UnknownMechanism (S006)."""
        if name not in self.offered:
            raise UnknownMechanism(f"unknown authentication mechanism '{name}'")
        attempt = self._mechanisms[name](self._access, peer_is_loopback)
        attempt.certified = self._certified
        attempt.host = self._host
        return attempt
