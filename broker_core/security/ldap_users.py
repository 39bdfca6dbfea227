"""Users about whom an LDAP directory decides: who they are, and what their groups grant.

    login ─> in a thread: bind, search for groups ─> tags and permissions of these groups ─> User

What groups grant is looked up at the login, and holds for that connection. A connection opens with what the directory
said `cache_s` ago at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from leveret.config.ldap_auth import LdapAuthSettings, LdapGroup
from leveret.security.http_requests import NoResponse
from leveret.security.ldap_directory import (
    Directory,
    DirectoryError,
    DirectoryUser,
    comparable,
    in_virtual_host,
)
from leveret.security.remote_logins import NoAnswer, RemoteLogins, admitted
from leveret.security.scopes import Grants
from leveret.security.users import Permission, Permissions, User, compiled

if TYPE_CHECKING:
    from leveret.clock import Clock
    from leveret.security.users import Accounts

RUNNING_MAX: Final = 8  # logins in threads at once

Then = Callable[["DirectoryUser | NoResponse | None"], None]


@attrs.frozen(eq=False)
class GroupGrants(Grants):
    """The permissions of the groups that a user is in. A user has what one of them grants."""

    groups: Sequence[LdapGroup]  # with permissions
    member_of: frozenset[object]  # the names of the user's groups

    def _in(self, virtual_host: str) -> list[Permissions]:
        return [
            Permissions(group.configure or "", group.write or "", group.read or "")
            for group in self.groups
            if (group.virtual_hosts is None or virtual_host in group.virtual_hosts)
            and comparable(in_virtual_host(group.dn, virtual_host)) in self.member_of
        ]

    def enter(self, virtual_host: str, address: str = "") -> bool:
        return bool(self._in(virtual_host))

    def allow(self, permission: str, virtual_host: str, name: str, kind: str = "queue") -> bool:
        wanted = Permission(permission)
        return any(
            compiled(each.expression(wanted)).search(name) is not None for each in self._in(virtual_host)
        )

    def allow_key(self, permission: str, virtual_host: str, exchange: str, key: str) -> bool:
        return True

    def guard_keys(self, virtual_host: str, exchange: str) -> bool:
        return False


class LdapUsers(RemoteLogins["DirectoryUser | NoResponse | None"]):
    """The users of one directory."""

    def __init__(self, settings: LdapAuthSettings, clock: Clock, access: Accounts, key: bytes) -> None:
        super().__init__(clock, key, settings.cache_s, settings.cache_refusals)
        self.settings = settings
        self._directory = Directory(settings)
        self._access = access
        self._line: deque[tuple[str, str, Then]] = deque()  # bounded, as questions are
        self._running = 0

    def ask(self, name: str, secret: bytes, then: Then) -> None:
        try:
            password = secret.decode()
            name.encode()
        except UnicodeError:
            then(None)
            return
        self._line.append((name, password, then))
        self._serve()

    def _serve(self) -> None:
        """Begin what waits, in threads, a few at once: a directory that is slow holds up no other work."""
        while self._line and self._running < RUNNING_MAX:
            name, password, then = self._line.popleft()
            self._running += 1
            self._access.off_thread(partial(self._looked_up, name, password), partial(self._ended, then))

    def _looked_up(self, name: str, password: str) -> DirectoryUser | NoResponse | None:
        """Ask the directory, in a thread."""
        try:
            return self._directory.user(name, password)
        except DirectoryError as error:
            return NoResponse(str(error))

    def _ended(self, then: Then, found: DirectoryUser | NoResponse | None) -> None:
        self._running -= 1
        then(found)
        self._serve()

    def decided(self, name: str, answer: DirectoryUser | NoResponse | None) -> User | None:
        if isinstance(answer, NoResponse):
            raise NoAnswer(answer.reason)
        if answer is None:
            return None
        settings = self.settings
        member_of = frozenset(map(comparable, answer.groups)) - {None}
        tags = [tag for group in settings.groups if comparable(group.dn) in member_of for tag in group.tags]
        grants = None
        if settings.grants_permissions:
            grants = GroupGrants([group for group in settings.groups if group.lets_in], member_of)
        return admitted(self._access, name, tags, grants)
