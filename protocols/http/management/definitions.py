"""Export and import definitions files over HTTP: everything, or one virtual host, a portion a turn.

    export   sections ──items, a turn's worth at a time──> JSON
    import   JSON ──read item by item──> records ──applied one after the other──> an empty answer, or the problems

An item that cannot be applied does not keep the others out; the answer names each. What was taken in and has no effect
is named in `warnings`, in an answer with 200; without, the answer is empty (204). To import all or nothing, try the
file on another node first.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from http import HTTPStatus
from typing import Final, TypeVar

import attrs

from broker_core.clock import Turn
from broker_core.config.compat import INTRODUCTIONS, Product
from broker_core.config.load import ConfigError
from broker_core.config.types import Problem
from broker_core.definitions import exporter, importer, incremental_reader
from broker_core.definitions.exporter import Sections
from broker_core.definitions.incremental_reader import Steps
from broker_core.definitions.reader import Definitions, UserDefinition
from broker_core.definitions.warnings import Warnings
from broker_core.definitions.warnings import steps as warning_steps
from broker_core.security.passwords import PasswordHash
from broker_core.values import Json
from broker_core.version import VERSION
from protocols.http.connection import Later, Response
from protocols.http.management.request_body import bad
from protocols.http.management.requester import DONE, to_the_end
from protocols.http.server.long_answers import Making
from protocols.http.server.replies import API, json_response
from protocols.http.server.request import Asked, Level, Refused, Route
from protocols.http.server.turns import InPortions, turn_of

PATH: Final = "/api/definitions"
ONE: Final = PATH + "/{vhost}"
RABBITMQ_VERSION: Final = INTRODUCTIONS[Product.RABBITMQ_3][1]  # whose shapes these are
OF_VIRTUAL_HOST: Final = ("parameters", "policies", "queues", "exchanges", "bindings")
LOOK_S: Final = 0.01  # between two looks at the work of a thread
PROBLEMS_MAX: Final = 100  # that are listed

T = TypeVar("T")


# Export.


def export(asked: Asked) -> Later:
    return written(asked, exporter.everything(asked.broker, asked.flag("secrets")))


def export_virtual_host(asked: Asked) -> Later:
    host = asked.broker.virtual_host(asked.arguments["vhost"])
    return written(asked, exporter.of_virtual_host(asked.broker, host, asked.flag("secrets")))


def written(asked: Asked, sections: Sections) -> Later:
    return InPortions(asked.broker, writing(asked, sections), API).begin()


def writing(asked: Asked, sections: Sections) -> Generator[float, None, Response]:
    turn = turn_of(asked.broker)
    head: dict[str, Json] = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "Leveret",
        "product_version": VERSION,
    }
    with Making(asked.broker) as made:
        made.add(json.dumps(head, separators=(",", ":")).removesuffix("}").encode())
        for name, items in sections:
            made.add(f",{json.dumps(name)}:[".encode())
            comma = ""
            for item in items:
                made.add((comma + json.dumps(item)).encode())
                comma = ","
                if turn.is_over():
                    yield turn.pause_s
            made.add(b"]")
        made.add(b"}")
        return made.response(attachment(asked))


def attachment(asked: Asked) -> tuple[tuple[str, str], ...]:
    """Return a header that makes browsers save the answer under the name in the parameter `download`."""
    name = asked.one("download", "")
    safe = "".join(each for each in name if each.isascii() and (each.isalnum() or each in "._-"))
    return (("Content-Disposition", f"attachment; filename={safe}"),) if safe else ()


# Import.


def take_in(asked: Asked) -> Later:
    return to_the_end(asked, taking_in(asked, None))


def take_in_virtual_host(asked: Asked) -> Later:
    """Import queues and the like into one virtual host, whichever they were exported from."""
    host = asked.broker.virtual_host(asked.arguments["vhost"])
    return to_the_end(asked, taking_in(asked, host.name))


def taking_in(asked: Asked, host: str | None) -> Generator[float, None, Response]:
    turn = turn_of(asked.broker)
    said = yield from hashed(asked, (yield from read(asked.body, host, turn)))
    problems: list[Problem] = []
    for problem in importer.steps(said, asked.broker, user=asked.user.name):
        if problem is not None:
            problems.append(problem)
        if turn.is_over():
            yield turn.pause_s
    found = Warnings()
    for _ in warning_steps(said, asked.broker, found):
        if turn.is_over():
            yield turn.pause_s
    warnings: Json = [*found.sentences()]
    if problems:
        raise refused(problems, warnings)
    return json_response({"warnings": warnings}) if warnings else DONE


def read(body: bytes, host: str | None, turn: Turn) -> Generator[float, None, Definitions]:
    """Parse the body's records. Not in a thread, which would hold Python's lock for long. Raises Refused."""
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        content = yield from taking_turns(incremental_reader.parsed(text), turn)
    except (ValueError, RecursionError):
        raise refused([Problem("", "not_json")]) from None
    if not isinstance(content, dict):
        raise refused([Problem("", "failed_to_parse_json")])
    if host is not None:
        content = yield from taking_turns(placed(content, host), turn)
    try:
        return (yield from taking_turns(incremental_reader.records(content), turn))
    except ConfigError as error:
        raise refused(list(error.problems)) from None


def taking_turns(steps: Steps[T], turn: Turn) -> Generator[float, None, T]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        if turn.is_over():
            yield turn.pause_s


def placed(content: Mapping[str, object], host: str) -> Steps[Mapping[str, object]]:
    """Return the content of a virtual host's file with every item placed in this virtual host."""
    found: dict[str, object] = {}
    for section in OF_VIRTUAL_HOST:
        items = content.get(section, [])
        if isinstance(items, list):
            for index, each in enumerate(items):
                if isinstance(each, dict):
                    items[index] = {**each, "vhost": host}
                yield
        found[section] = items
    return found


def hashed(asked: Asked, said: Definitions) -> Generator[float, None, Definitions]:
    """Replace plain passwords by hashes, each made in a thread. Raises Refused if there is no memory for one."""
    users: list[UserDefinition] = []
    for user in said.users:
        if not user.password:
            users.append(user)
            continue
        done: list[PasswordHash | None] = []
        asked.broker.access.hash_soon(user.password, done.append)
        while not done:
            yield LOOK_S
        if (kept := done[0]) is None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "there is no memory to hash a password now")
        users.append(
            attrs.evolve(user, password=None, password_hash=kept.text, hashing_algorithm=kept.algorithm)
        )
    return attrs.evolve(said, users=tuple(users))


def refused(problems: list[Problem], warnings: Json = None) -> Refused:
    """Return a refusal with the first problem as the reason, and a list of up to a hundred."""
    named: list[Json] = [text_of(problem) for problem in problems[:PROBLEMS_MAX]]
    refusal = bad(named[0])
    refusal.more = {**refusal.more, "problems": named, "problem_count": len(problems)}
    if warnings:
        refusal.more = {**refusal.more, "warnings": warnings}
    return refusal


def text_of(problem: Problem) -> str:
    return str(problem) if problem.where else problem.found


ROUTES: Final = (
    Route("GET", PATH, Level.ADMINISTRATOR, export),
    Route("POST", PATH, Level.ADMINISTRATOR, take_in, large=True),
    Route("GET", ONE, Level.ADMINISTRATOR, export_virtual_host),
    Route("POST", ONE, Level.ADMINISTRATOR, take_in_virtual_host, large=True),
)
