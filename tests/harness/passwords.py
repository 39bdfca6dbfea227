"""The check of a password at once, in the thread of the test."""

from __future__ import annotations

from leveret.security.access import Access
from leveret.security.passwords import NOBODYS
from leveret.security.users import User


def authenticate_password(access: Access, name: str, password: str | bytes) -> User | None:
    """Return the user of a password, or of a token in its place; None if it is refused."""
    if access.tokens is not None and access.is_token(password):
        found = access.tokens.authenticate(name, password)
        return found if isinstance(found, User) else None
    user = access._users.get(name)
    kept = None if user is None else user.password
    matches = (kept or NOBODYS).matches(password)
    return user if matches and kept is not None and password else None
