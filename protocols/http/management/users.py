"""Show, create, change and delete users with their tags and password hashes, for administrators.

A change of a user that is in the configuration file lasts until the node restarts: the answer says so in a header.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from http import HTTPStatus
from typing import Final

from leveret.catalogue import USER
from leveret.limits import UserLimits
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.request_body import Said, bad, body_of, text_in, words_in
from leveret.protocols.http.management.requester import changed, not_there
from leveret.protocols.http.management.short_lists import table
from leveret.protocols.http.server.portioned_answers import PortionedAnswer
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.security.passwords import SHA256, PasswordHash
from leveret.security.users import User
from leveret.server.definitions.exporter import permission_json, topic_permission_json, user_json
from leveret.values import Json

PATH: Final = "/api/users"
ONE: Final = PATH + "/{user}"
NAME_OCTETS_MAX: Final = 255
LOOK_S: Final = 0.01  # between two looks whether a hash is ready


def users(asked: Request) -> Later:
    return table(asked, [user_json(user) for user in asked.broker.access.users()], "name")


def without_permissions(asked: Request) -> Later:
    """List the users that can enter no virtual host."""
    let_in = {user for user, _, _ in asked.broker.access.permissions()}
    rows = [user_json(user) for user in asked.broker.access.users() if user.name not in let_in]
    return table(asked, rows, "name")


def user(asked: Request) -> Json:
    found = user_of(asked)
    warnings = asked.broker.file_objects.warnings(USER, found.name)
    return {**user_json(found), "warnings": [*warnings]} if warnings else user_json(found)


def user_of(asked: Request) -> User:
    """Return the user in the path. Raises NotFound."""
    found = asked.broker.access.user(asked.arguments["user"])
    if found is None:
        raise not_there()
    return found


def put_user(asked: Request) -> Later | Response:
    """Create or replace a user, who keeps the limits. Without a password, logins by password are refused."""
    name = asked.arguments["user"]
    if not 0 < len(name.encode()) <= NAME_OCTETS_MAX:
        raise bad("the name has 1 to 255 bytes")
    said = body_of(asked)
    if "tags" not in said and "administrator" not in said:
        raise bad("tags_not_present")
    tags = words_in(said, "tags")
    if password := password_in(said):
        return PortionedAnswer(asked.broker, hashed(asked, name, tags, password), PATH).begin()
    return put(asked, name, tags, hash_in(said))


def hashed(asked: Request, name: str, tags: Sequence[str], password: str) -> Generator[float, None, Response]:
    """Hash the password in a thread, and put the user. Raises Refused if there is no memory for it."""
    done: list[PasswordHash | None] = []
    asked.broker.access.hash_soon(password, done.append)
    while not done:
        yield LOOK_S
    if done[0] is None:
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "there is no memory to hash a password now")
    return put(asked, name, tags, done[0])


def put(asked: Request, name: str, tags: Sequence[str], password: PasswordHash | None) -> Response:
    before = asked.broker.access.user(name)
    limits = UserLimits() if before is None else before.limits
    asked.broker.access.put_user(User(name, tags, password, limits))
    return changed(asked, before is None, USER, name)


def password_in(said: Said) -> str | None:
    """Return the password in a body, if there is one. Raises Refused, without repeating the password."""
    password = said.get("password")
    if password is not None and "password_hash" in said:
        raise bad("both_password_and_password_hash_are_provided")
    if password is not None and not isinstance(password, str):
        raise bad("password_not_string")
    return password


def hash_in(said: Said) -> PasswordHash | None:
    """Return the password hash in a body, if there is one. Raises Refused if it is malformed."""
    text = text_in(said, "password_hash", "")
    if not text:
        return None
    try:
        return PasswordHash.parse(text, text_in(said, "hashing_algorithm", SHA256))
    except ValueError as error:
        raise bad(str(error)) from None


def delete_user(asked: Request) -> Response:
    name = user_of(asked).name
    asked.broker.access.delete_user(name)
    return changed(asked, False, USER, name)


def bulk_delete(asked: Request) -> Response:
    """Delete some users; none of them, if one does not exist."""
    names = words_in(body_of(asked, "users"), "users")
    for name in names:
        if asked.broker.access.user(name) is None:
            raise bad(["no_such_user", name])
    answer = changed(asked, False)
    for name in names:
        asked.broker.access.delete_user(name)
        answer = max(answer, changed(asked, False, USER, name), key=lambda each: len(each.headers))
    return answer


def permissions(asked: Request) -> Json:
    name = user_of(asked).name
    return [permission_json(*each) for each in asked.broker.access.permissions() if each[0] == name]


def topic_permissions(asked: Request) -> Json:
    name = user_of(asked).name
    return [
        topic_permission_json(*each) for each in asked.broker.access.topic_permissions() if each[0] == name
    ]


ROUTES: Final = (
    Route("GET", PATH, Level.ADMINISTRATOR, users),
    Route("GET", PATH + "/", Level.ADMINISTRATOR, users),
    Route("GET", PATH + "/without-permissions", Level.ADMINISTRATOR, without_permissions),
    Route("POST", PATH + "/bulk-delete", Level.ADMINISTRATOR, bulk_delete),
    Route("GET", ONE, Level.ADMINISTRATOR, user),
    Route("PUT", ONE, Level.ADMINISTRATOR, put_user),
    Route("DELETE", ONE, Level.ADMINISTRATOR, delete_user),
    Route("GET", ONE + "/permissions", Level.ADMINISTRATOR, permissions),
    Route("GET", ONE + "/topic-permissions", Level.ADMINISTRATOR, topic_permissions),
)
