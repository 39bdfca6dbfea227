"""SASL: the bytes of an authentication exchange to a user, or to a refusal.

A mechanism is a small machine, one instance for each attempt: `start` takes the client's first response and `step`
each further one; both answer with a `Challenge` to send or a `Success`. They raise `MalformedResponse` for bytes
that the mechanism does not know (the sender's mistake), and `AuthenticationFailed` for everything else. The text of
that failure never says more than that the login was refused; `reason` says why and is for the log only. Neither
holds a secret.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, TypeAlias

import attrs

from broker_core.access import Access, User
from broker_core.errors import AccessRefused, Failure, Unsupported


class AuthenticationFailed(AccessRefused):
    """The login was refused (S007). `reason` is for the log, never for the peer."""

    def __init__(self, mechanism: str, reason: str) -> None:
        super().__init__(
            f"Login was refused using authentication mechanism {mechanism}. "
            "For details see the broker logfile."
        )
        self.reason = reason


class MalformedResponse(Failure):
    """The response is not what the mechanism prescribes (X003)."""


class UnknownMechanism(Unsupported):
    """The client chose a mechanism that was not offered (S006)."""


@attrs.frozen
class Challenge:
    """The exchange goes on: send this, and hand the answer to `step`."""

    octets: bytes


@attrs.frozen
class Success:
    """The exchange has ended well."""

    user: User


Answer: TypeAlias = Challenge | Success


class Mechanism(ABC):
    """One way to log in. Subclass it, name it, write `start`, and `step` if it takes more than one response.

    Both are called from the broker's one thread and must not wait. `login` and `admit` are the ways to succeed;
    a mechanism must not make a `Success` without them.
    """

    name: ClassVar[str]
    needs_certificate: ClassVar[bool] = False  # offered only where the client has shown one that was verified
    certified: str | None = None  # the name in that certificate

    def __init__(self, access: Access, peer_is_loopback: bool) -> None:
        self.access = access
        self.peer_is_loopback = peer_is_loopback

    @classmethod
    def available(cls, access: Access) -> bool:
        """Whether there is any use in offering it. Called for each connection."""
        return True

    @abstractmethod
    def start(self, response: bytes) -> Answer:
        """Called once, first, with the client's initial response (empty if it sent none)."""

    def step(self, response: bytes) -> Answer:
        """Called after each `Challenge`, with the client's answer."""
        raise MalformedResponse(f"{self.name} takes one response only")

    def login(self, name: str, password: str | bytes) -> Success:
        """Succeed if the password is right. Raises AuthenticationFailed."""
        user = self.access.authenticate_password(name, password)
        if user is None:
            raise AuthenticationFailed(self.name, f"user '{name}': invalid credentials")
        return self.admit(user)

    def admit(self, user: User) -> Success:
        """Succeed for somebody already recognised, if he may come from there (S008)."""
        if not self.access.may_connect(user, self.peer_is_loopback):
            raise AuthenticationFailed(self.name, f"user '{user.name}' can only connect via localhost")
        return Success(user)


class Plain(Mechanism):
    """RFC 4616: who to act as (empty, or the user), NUL, the user, NUL, the password."""

    name = "PLAIN"

    def start(self, response: bytes) -> Answer:
        parts = response.split(b"\0")
        if len(parts) != 3:
            raise MalformedResponse("a PLAIN response is three strings with NUL between them")
        acting_as, name = text(parts[0]), text(parts[1])
        if acting_as not in ("", name):
            raise AuthenticationFailed(self.name, f"user '{name}' may not act as another")
        return self.login(name, parts[2])


class Anonymous(Mechanism):
    """RFC 4505: whatever the response says, the client is the configured anonymous user."""

    name = "ANONYMOUS"

    @classmethod
    def available(cls, access: Access) -> bool:
        return access.anonymous_user is not None and access.user(access.anonymous_user) is not None

    def start(self, response: bytes) -> Answer:
        name = self.access.anonymous_user
        user = None if name is None else self.access.user(name)
        if user is None:
            raise AuthenticationFailed(self.name, "there is no anonymous user")
        return self.admit(user)


class External(Mechanism):
    """RFC 4422, appendix A: the user is who TLS has shown him to be; the response says so too, or nothing."""

    name = "EXTERNAL"
    needs_certificate = True

    def start(self, response: bytes) -> Answer:
        acting_as, name = text(response), self.certified
        user = None if name is None else self.access.user(name)
        if user is None:
            raise AuthenticationFailed(self.name, f"the certificate names '{name}', who is no user")
        if acting_as not in ("", name):
            raise AuthenticationFailed(self.name, f"user '{name}' may not act as another")
        return self.admit(user)


class Demonstration(Mechanism):
    """Two steps, as an example and for tests (X004): first the user, then the password in a sentence."""

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


STANDARD: Final[tuple[type[Mechanism], ...]] = (Plain, Anonymous, External, Demonstration)
DEFAULT_PREFERENCE: Final = ("PLAIN", "AMQPLAIN", "ANONYMOUS", "EXTERNAL")


class Mechanisms:
    """What a connection is offered: known mechanisms, in the configured order.

    `more` are mechanisms of a protocol or plug-in; they replace standard ones of the same name. `certified` is the name
    that the client's certificate gives (`Peer.certified`); without it, those that need one are not offered.
    """

    def __init__(
        self,
        access: Access,
        preference: Sequence[str] = DEFAULT_PREFERENCE,
        more: Sequence[type[Mechanism]] = (),
        certified: str | None = None,
    ) -> None:
        known = {
            each.name: each
            for each in (*STANDARD, *more)
            if certified is not None or not each.needs_certificate
        }
        self._access = access
        self._certified = certified
        self._mechanisms = {name: known[name] for name in preference if name in known}

    @property
    def offered(self) -> tuple[str, ...]:
        """The names, most preferred first."""
        return tuple(name for name, each in self._mechanisms.items() if each.available(self._access))

    def begin(self, name: str, peer_is_loopback: bool) -> Mechanism:
        """A fresh attempt with the mechanism the client chose. Raises UnknownMechanism (S006)."""
        if name not in self.offered:
            raise UnknownMechanism(f"unknown authentication mechanism '{name}'")
        attempt = self._mechanisms[name](self._access, peer_is_loopback)
        attempt.certified = self._certified
        return attempt
