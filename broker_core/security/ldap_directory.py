"""An LDAP directory, asked over python-ldap: a name and a password to a distinguished name and its groups.

    (search for the name ─) bind as the user ─> search for groups ─> DirectoryUser, or None: wrong

Every call here blocks, each for `timeout_s` at most, and belongs into a thread. No error that is raised names a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Any, Final

import attrs
import ldap
from ldap.dn import escape_dn_chars, str2dn
from ldap.filter import escape_filter_chars

from leveret.config.ldap_auth import DN, USERNAME, LdapAuthSettings

NO_ATTRIBUTES: Final = ["1.1"]  # RFC 4511, section 4.5.1.8
GROUPS_MAX: Final = 1000
VERSIONS: Final = {"1.2": 0x303, "1.3": 0x304}  # of TLS, as libldap counts them
NAME_MAX: Final = 255
DECOY_SIZE: Final = 16  # bytes of a name that is nobody's
REFUSALS: Final = (
    ldap.INVALID_CREDENTIALS,
    ldap.INAPPROPRIATE_AUTH,
    ldap.NO_SUCH_OBJECT,
    ldap.INVALID_DN_SYNTAX,
)


class DirectoryError(Exception):
    """Raised if the directory has given no answer; the text says why, for the log."""


@attrs.frozen
class DirectoryUser:
    """A user whose password was right, and the distinguished names of their groups."""

    dn: str
    groups: tuple[str, ...]


class Directory:
    """The servers of one directory."""

    def __init__(self, settings: LdapAuthSettings) -> None:
        self._settings = settings
        self._decoy = token_hex(DECOY_SIZE)

    def user(self, name: str, password: str) -> DirectoryUser | None:
        """Return the user if the password is right, else None. Raises DirectoryError.

        An empty password is wrong: a directory would take it for an anonymous bind (RFC 4513, section 5.1.2).
        """
        if not password or "\0" in password or not 0 < len(name) <= NAME_MAX:
            return None
        why = "there is no server"
        for url in self._settings.servers:
            try:
                return self._ask(url, name, password)
            except (ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.TIMEOUT, ldap.UNAVAILABLE, ldap.BUSY) as error:
                why = f"{url}: {reason(error)}"
            except ldap.LDAPError as error:
                raise DirectoryError(f"{url}: {reason(error)}") from None
        raise DirectoryError(why)

    def _ask(self, url: str, name: str, password: str) -> DirectoryUser | None:
        settings = self._settings
        searching = settings.bind_dn is not None
        dn = (
            self._found_by_account(url, name)
            if searching and settings.lookup_base is not None
            else self._dn(name)
        )
        with self._connection(url) as line:
            if dn is None:
                self._refuse_as_slowly(line, password)
                return None
            try:
                line.simple_bind_s(dn, password)
            except REFUSALS:
                return None
            if settings.lookup_base is not None and not searching:
                found = self._found(line, name)
                if found is None:
                    return None
                dn = found
            if searching and settings.group_base is not None:
                self._bind_account(line)
            return DirectoryUser(dn, self._groups(line, dn, name))

    def _refuse_as_slowly(self, line: Any, password: str) -> None:
        """Bind by a name that does not exist: a refusal takes as long as for a user with another password."""
        with suppress(*REFUSALS, ldap.UNWILLING_TO_PERFORM):
            line.simple_bind_s(f"cn={self._decoy},{self._settings.lookup_base}", password)

    @contextmanager
    def _connection(self, url: str) -> Iterator[Any]:  # python-ldap has no types
        """Connect to a server, and disconnect at the end."""
        line = self._connected(url)
        try:
            yield line
        finally:
            with suppress(ldap.LDAPError):
                line.unbind_s()

    def _connected(self, url: str) -> Any:
        settings = self._settings
        line = ldap.initialize(url)
        line.set_option(ldap.OPT_PROTOCOL_VERSION, 3)
        line.set_option(ldap.OPT_REFERRALS, 0)
        line.set_option(ldap.OPT_NETWORK_TIMEOUT, float(settings.timeout_s))
        line.set_option(ldap.OPT_TIMEOUT, float(settings.timeout_s))
        line.timeout = settings.timeout_s
        tls = settings.tls
        if tls.ca is not None:
            line.set_option(ldap.OPT_X_TLS_CACERTFILE, str(tls.ca))
        if tls.certificate is not None:
            line.set_option(ldap.OPT_X_TLS_CERTFILE, str(tls.certificate))
            line.set_option(ldap.OPT_X_TLS_KEYFILE, str(tls.private_key))
        line.set_option(ldap.OPT_X_TLS_REQUIRE_CERT, ldap.OPT_X_TLS_DEMAND)
        line.set_option(ldap.OPT_X_TLS_PROTOCOL_MIN, VERSIONS[tls.minimum_version])
        line.set_option(ldap.OPT_X_TLS_NEWCTX, 0)
        if settings.start_tls and url.startswith("ldap:"):
            line.start_tls_s()
        return line

    def _dn(self, name: str) -> str | None:
        pattern = self._settings.user_dn
        return None if pattern is None else pattern.replace(USERNAME, escape_dn_chars(name))

    def _found_by_account(self, url: str, name: str) -> str | None:
        """Return the distinguished name of a user, searched for by the account for that."""
        with self._connection(url) as line:
            self._bind_account(line)
            return self._found(line, name)

    def _bind_account(self, line: Any) -> None:
        try:
            line.simple_bind_s(self._settings.bind_dn, self._settings.bind_password)
        except REFUSALS as error:
            raise DirectoryError(f"the account that searches is refused: {reason(error)}") from None

    def _found(self, line: Any, name: str) -> str | None:
        """Return the distinguished name of the only user whom the filter finds; None if there is none, or several."""
        settings = self._settings
        wanted = settings.lookup_filter.replace(USERNAME, escape_filter_chars(name))
        try:
            found = entries(
                line.search_ext_s(
                    settings.lookup_base,
                    ldap.SCOPE_SUBTREE,
                    wanted,
                    NO_ATTRIBUTES,
                    sizelimit=2,
                    timeout=settings.timeout_s,
                )
            )
        except (ldap.NO_SUCH_OBJECT, ldap.SIZELIMIT_EXCEEDED):
            return None
        return found[0] if len(found) == 1 else None

    def _groups(self, line: Any, dn: str, name: str) -> tuple[str, ...]:
        settings = self._settings
        if settings.group_base is None:
            return ()
        wanted = settings.group_filter.replace(DN, escape_filter_chars(dn))
        wanted = wanted.replace(USERNAME, escape_filter_chars(name))
        found = line.search_ext_s(
            settings.group_base,
            ldap.SCOPE_SUBTREE,
            wanted,
            NO_ATTRIBUTES,
            sizelimit=GROUPS_MAX,
            timeout=settings.timeout_s,
        )
        return tuple(entries(found))


def entries(found: Sequence[tuple[str | None, object]]) -> list[str]:
    """Return the distinguished names of what a search has found; referrals have none."""
    return [dn for dn, _ in found if dn is not None]


def reason(error: ldap.LDAPError) -> str:
    """Return what an error of python-ldap says, without what the server adds."""
    value = error.args[0] if error.args else {}
    return str(value.get("desc", type(error).__name__)) if isinstance(value, dict) else type(error).__name__


def comparable(dn: str) -> tuple[tuple[tuple[str, str], ...], ...] | None:
    """Return a distinguished name in a form that is equal for equal names (RFC 4514); None if it is none."""
    try:
        return tuple(
            tuple(sorted((kind.lower(), value.lower()) for kind, value, _ in part)) for part in str2dn(dn)
        )
    except ldap.LDAPError:
        return None


def in_virtual_host(pattern: str, name: str) -> str:
    """Return the distinguished name of the group for a virtual host."""
    return pattern.replace("{vhost}", escape_dn_chars(name))
