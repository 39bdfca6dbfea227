"""GSSAPI (RFC 4752): logging in by a ticket of Kerberos, without a security layer.

    client  token                         a ticket for the node's principal
    server  token                         that the node has the key of that principal (mutual authentication)
    client  (empty)
    server  wrapped: 1, 0 0 0             the only security layer is none
    client  wrapped: 1, 0 0 0, name       chosen, with the user to act as

The client's principal names the user, which has an account here. MIT's library checks the ticket with the node's key,
and nobody is asked. A token that is shown once more is a replay, and fails at the next step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import gssapi
from gssapi.raw import GSSError

from leveret.config.config import ConfigError
from leveret.config.kerberos import KerberosSettings
from leveret.config.types import Problem, printed
from leveret.security.access import Access
from leveret.security.sasl import (
    Answer,
    AuthenticationFailed,
    Challenge,
    MalformedResponse,
    Mechanism,
    text,
)

NO_LAYER: Final = 1  # the bit of a security layer that is none
OFFER: Final = bytes((NO_LAYER, 0, 0, 0))
TOKEN_MAX: Final = 64 << 10  # bytes; tickets with the groups of Active Directory have up to 48 KiB
STEPS_MAX: Final = 5
SHOWN_MAX: Final = 200  # characters of an error in the log


class Acceptor:
    """The node's side of Kerberos: its keys, and the realm of its users."""

    def __init__(self, settings: KerberosSettings) -> None:
        """Read the keytab. Raises ConfigError if it has no key that can be used."""
        assert settings.keytab is not None, "only then it is made"
        self.settings = settings
        self._keytab: Path = settings.keytab
        try:
            self.credentials()
        except (GSSError, OSError) as error:
            accepted = (
                f"a file with keys of {settings.principal or 'a principal'} that can be read ({said(error)})"
            )
            raise ConfigError([Problem("kerberos.keytab", printed(self._keytab), accepted)]) from None

    def credentials(self) -> gssapi.Credentials:
        """Return the node's credentials, from the keytab as it is now."""
        if not self._keytab.is_file():
            raise FileNotFoundError("it is not there")
        name, principal = None, self.settings.principal
        if principal is not None:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        return gssapi.Credentials(name=name, usage="accept", store={"keytab": str(self._keytab)})

    def user_of(self, principal: str) -> str | None:
        """Return the name of a principal's user here; None if it is of another realm."""
        name, at, realm = principal.rpartition("@")
        return name if at and realm == self.settings.realm else None


class Kerberos(Mechanism):
    """GSSAPI with Kerberos."""

    name = "GSSAPI"

    def __init__(self, access: Access, peer_is_loopback: bool) -> None:
        super().__init__(access, peer_is_loopback)
        self._context: gssapi.SecurityContext | None = None
        self._was_asked = self._has_offered = False
        self._steps = 0

    @classmethod
    def available(cls, access: Access) -> bool:
        return access.kerberos is not None

    def start(self, response: bytes) -> Answer:
        if not response and not self._was_asked:
            self._was_asked = True
            return Challenge(b"")  # RFC 4422, section 5.1: an empty challenge asks for the initial response
        acceptor = self.access.kerberos
        if acceptor is None:
            raise AuthenticationFailed(self.name, "tickets are not accepted any more")
        try:
            self._context = gssapi.SecurityContext(creds=acceptor.credentials(), usage="accept")
        except (GSSError, OSError) as error:
            raise AuthenticationFailed(self.name, f"the keytab cannot be used: {said(error)}") from None
        return self._taken(self._context, response)

    def step(self, response: bytes) -> Answer:
        context = self._context
        if context is None:
            return self.start(response)
        try:
            if self._has_offered:
                return self._chosen(context, response)
            if context.complete:
                if response:
                    raise MalformedResponse("the context is there already")
                return self._offer(context)
            return self._taken(context, response)
        except GSSError as error:
            raise AuthenticationFailed(self.name, f"a message is refused: {said(error)}") from None

    def _taken(self, context: gssapi.SecurityContext, token: bytes) -> Answer:
        """Take a token of the client."""
        self._steps += 1
        if len(token) > TOKEN_MAX or self._steps > STEPS_MAX:
            raise MalformedResponse("a token is too large, or there are too many")
        try:
            answer = context.step(token)
        except GSSError as error:
            raise AuthenticationFailed(self.name, f"a ticket is refused: {said(error)}") from None
        if answer:
            return Challenge(answer)
        return self._offer(context) if context.complete else Challenge(b"")

    def _offer(self, context: gssapi.SecurityContext) -> Answer:
        self._has_offered = True
        return Challenge(context.wrap(OFFER, False).message)

    def _chosen(self, context: gssapi.SecurityContext, response: bytes) -> Answer:
        """Take the client's choice, and log its user in."""
        choice = context.unwrap(response).message
        if len(choice) < len(OFFER) or choice[0] != NO_LAYER:
            raise MalformedResponse("the client chooses a security layer that was not offered")
        principal, acceptor = str(context.initiator_name), self.access.kerberos
        name = None if acceptor is None else acceptor.user_of(principal)
        user = None if name is None else self.access.user(name)
        if user is None:
            self.claimed = name or principal
            reason = f"the ticket is of '{self.claimed}', which is no user here"
            raise AuthenticationFailed(self.name, reason, "no_such_user")
        acting_as = text(choice[len(OFFER) :])
        self.require_himself(user.name, "" if acting_as == principal else acting_as)
        return self.admit(user)


def said(error: Exception) -> str:
    """Return what an error says, in one line, for the log."""
    return " ".join(str(error).split())[:SHOWN_MAX]
