"""SASL mechanisms whose response is a token: OAUTHBEARER (RFC 7628) and XOAUTH2, its elder form by Google.

    n,a=shop,^Aauth=Bearer TOKEN^A^A     user=shop^Aauth=Bearer TOKEN^A^A     (^A is the byte 1)

A refused token is answered with a challenge that says in JSON what a client can do about it; the client answers with
nothing of interest, and then the login fails (RFC 7628, section 3.2.3).
"""

from __future__ import annotations

import json
from abc import abstractmethod
from functools import partial
from typing import Final

from leveret.security.access import Access
from leveret.security.password_checks import Waiting
from leveret.security.sasl import (
    Answer,
    AuthenticationFailed,
    Challenge,
    MalformedResponse,
    Mechanism,
    Pending,
    text,
)
from leveret.security.users import User

PART_END: Final = b"\x01"
SCHEME: Final = b"bearer "
RESPONSE_MAX: Final = 16 << 10  # bytes
ESCAPES: Final = (("=2C", ","), ("=3D", "="))  # of a name (RFC 5801, section 4)


class Bearer(Mechanism):
    """A mechanism whose response has a name and a token."""

    def __init__(self, access: Access, peer_is_loopback: bool) -> None:
        super().__init__(access, peer_is_loopback)
        self._was_asked = False

    @classmethod
    def available(cls, access: Access) -> bool:
        return access.tokens is not None

    def start(self, response: bytes) -> Answer:
        if not response and not self._was_asked:
            self._was_asked = True
            return Challenge(b"")  # RFC 4422, section 5.1: an empty challenge asks for the initial response
        if len(response) > RESPONSE_MAX:
            raise MalformedResponse(f"a response of {self.name} has at most {RESPONSE_MAX} bytes")
        head, *pairs = response.split(PART_END)
        if pairs[-2:] != [b"", b""]:
            raise MalformedResponse(f"a response of {self.name} ends with two bytes of value 1")
        name, values = self.parsed(head, dict(map(pair, pairs[:-2])))
        return self._with_token(name, token_in(values.get(b"auth", b""), self.name))

    def step(self, response: bytes) -> Answer:
        if self.refusal is not None:
            raise self.refusal
        return self.start(response)

    @abstractmethod
    def parsed(self, head: bytes, pairs: dict[bytes, bytes]) -> tuple[str, dict[bytes, bytes]]:
        """Return the name of the user to act as, and the fields. Raises MalformedResponse."""

    @abstractmethod
    def error(self) -> dict[str, str]:
        """Return what a client is told whose token is refused."""

    def _with_token(self, name: str, token: bytes) -> Answer:
        self.claimed = name
        found = self.access.authenticate_token(name, token, self._place(name))
        if isinstance(found, Waiting):
            return Pending(found, partial(self._decided, name))
        return self._decided(name, found)

    def _decided(self, name: str, user: User | None) -> Answer:
        """Log the user in, or keep the refusal for the client's next response."""
        try:
            if user is None:
                raise AuthenticationFailed(self.name, f"user '{name}': invalid credentials")
            self.require_himself(user.name, name)
            return self.admit(user)
        except AuthenticationFailed as failure:
            self.claimed = name
            self.refusal = failure
            return Challenge(json.dumps(self.error()).encode())


class OAuthBearer(Bearer):
    """OAUTHBEARER (RFC 7628): a header of GSS-API with the user to act as, then pairs of names and values."""

    name = "OAUTHBEARER"

    def parsed(self, head: bytes, pairs: dict[bytes, bytes]) -> tuple[str, dict[bytes, bytes]]:
        binding, comma, rest = head.partition(b",")
        if binding not in (b"n", b"y") or not comma or not rest.endswith(b","):
            raise MalformedResponse("a response of OAUTHBEARER begins with 'n,' and another comma")
        acting_as = rest[:-1]
        if acting_as and not acting_as.startswith(b"a="):
            raise MalformedResponse("a response of OAUTHBEARER names its user with 'a='")
        name = text(acting_as[2:])
        for escaped, letter in ESCAPES:
            name = name.replace(escaped, letter)
        return name, pairs

    def error(self) -> dict[str, str]:
        found = self.access.tokens and self.access.tokens.discovery_url
        return {"status": "invalid_token", **({"openid-configuration": found} if found else {})}


class XOAuth2(Bearer):
    """XOAUTH2: the user, and the token."""

    name = "XOAUTH2"

    def parsed(self, head: bytes, pairs: dict[bytes, bytes]) -> tuple[str, dict[bytes, bytes]]:
        if not head.startswith(b"user="):
            raise MalformedResponse("a response of XOAUTH2 begins with 'user='")
        return text(head.removeprefix(b"user=")), pairs

    def error(self) -> dict[str, str]:
        return {"status": "401", "schemes": "bearer"}


def pair(part: bytes) -> tuple[bytes, bytes]:
    """Return the name and the value of a pair. Raises MalformedResponse."""
    name, equals, value = part.partition(b"=")
    if not name or not equals:
        raise MalformedResponse("a pair is a name, '=' and a value")
    return name, value


def token_in(authorization: bytes, mechanism: str) -> bytes:
    """Return the token of an `auth` value; an empty one asks what to do, and is refused. Raises MalformedResponse."""
    if not authorization:
        return b""
    if authorization[: len(SCHEME)].lower() != SCHEME:
        raise MalformedResponse(f"a response of {mechanism} has a token of the scheme Bearer")
    return authorization[len(SCHEME) :].strip()
