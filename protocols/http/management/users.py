"""Show, create, change and delete users with their tags and password hashes, for administrators.

A change of a user that is in the configuration file lasts until the node restarts: the answer says so in a header.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from http import HTTPStatus
from typing import Final

from leveret.catalogue import USER
from leveret.config.types import NAME_OCTETS_MAX
from leveret.limits import UserLimits
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.request_body import (
    JsonObject,
    bad,
    body_of,
    storable,
    text_in,
    words_in,
)
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
LOOK_S: Final = 0.01  # between two looks whether a hash is ready


def users(request: Request) -> Later:
    return table(request, [user_json(user) for user in request.broker.access.users()], "name")


def without_permissions(request: Request) -> Later:
    """List the users that can enter no virtual host."""
    let_in = {user for user, _, _ in request.broker.access.permissions()}
    rows = [user_json(user) for user in request.broker.access.users() if user.name not in let_in]
    return table(request, rows, "name")


def user(request: Request) -> Json:
    found = user_of(request)
    warnings = request.broker.file_objects.warnings(USER, found.name)
    return {**user_json(found), "warnings": [*warnings]} if warnings else user_json(found)


def user_of(request: Request) -> User:
    """Return the user in the path. Raises NotFound."""
    found = request.broker.access.user(request.arguments["user"])
    if found is None:
        raise not_there()
    return found


def put_user(request: Request) -> Later | Response:
    """Create or replace a user, who keeps the limits. Without a password, logins by password are refused."""
    name = request.arguments["user"]
    if not 0 < len(storable(name).encode()) <= NAME_OCTETS_MAX:
        raise bad("the name has 1 to 255 bytes")
    body = body_of(request)
    if "tags" not in body and "administrator" not in body:
        raise bad("tags_not_present")
    tags = words_in(body, "tags")
    if password := password_in(body):
        return PortionedAnswer(request.broker, hashed(request, name, tags, password), PATH).begin()
    return put(request, name, tags, hash_in(body))


def hashed(
    request: Request, name: str, tags: Sequence[str], password: str
) -> Generator[float, None, Response]:
    """Hash the password in a thread, and put the user. Raises Refused if there is no memory for it."""
    done: list[PasswordHash | None] = []
    request.broker.access.hash_soon(password, done.append)
    while not done:
        yield LOOK_S
    if done[0] is None:
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "there is no memory to hash a password now")
    return put(request, name, tags, done[0])


def put(request: Request, name: str, tags: Sequence[str], password: PasswordHash | None) -> Response:
    before = request.broker.access.user(name)
    limits = UserLimits() if before is None else before.limits
    request.broker.access.put_user(User(name, tags, password, limits))
    return changed(request, before is None, USER, name)


def password_in(body: JsonObject) -> str | None:
    """Return the password in a body, if there is one. Raises Refused, without repeating the password."""
    password = body.get("password")
    if password is not None and "password_hash" in body:
        raise bad("both_password_and_password_hash_are_provided")
    if password is not None and not isinstance(password, str):
        raise bad("password_not_string")
    return password


def hash_in(body: JsonObject) -> PasswordHash | None:
    """Return the password hash in a body, if there is one. Raises Refused if it is malformed."""
    text = text_in(body, "password_hash", "")
    if not text:
        return None
    try:
        return PasswordHash.parse(text, text_in(body, "hashing_algorithm", SHA256))
    except ValueError as error:
        raise bad(str(error)) from None


def delete_user(request: Request) -> Response:
    name = user_of(request).name
    request.broker.access.delete_user(name)
    return changed(request, False, USER, name)


def bulk_delete(request: Request) -> Response:
    """Delete some users; none of them, if one does not exist."""
    names = words_in(body_of(request, "users"), "users")
    for name in names:
        if request.broker.access.user(name) is None:
            raise bad(["no_such_user", name])
    answer = changed(request, False)
    for name in names:
        request.broker.access.delete_user(name)
        answer = max(answer, changed(request, False, USER, name), key=lambda each: len(each.headers))
    return answer


def permissions(request: Request) -> Json:
    name = user_of(request).name
    return [permission_json(*each) for each in request.broker.access.permissions() if each[0] == name]


def topic_permissions(request: Request) -> Json:
    name = user_of(request).name
    return [
        topic_permission_json(*each) for each in request.broker.access.topic_permissions() if each[0] == name
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
