"""Export and import definitions files over HTTP: everything, or one virtual host, a portion a turn.

    export   sections ──items, a turn's worth at a time──> JSON
    import   JSON ──read item by item──> records ──applied one after the other──> an empty answer, or the problems

An item that cannot be read or applied does not keep the others out; the answer names each. What was taken in and has no
effect is named in `warnings`, in an answer with 200; without, the answer is empty (204). With `strict=true` the file is
tried first, and nothing changes if a single item is refused. The path that only Leveret has answers with a report, and
with `dry_run=true` it tries only.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from http import HTTPStatus
from typing import Final, TypeVar

import attrs

from leveret.broker import Broker
from leveret.clock import Turn
from leveret.config.compat import INTRODUCTIONS, Product
from leveret.config.config import ConfigError
from leveret.config.types import Problem
from leveret.observability.strict_json import strict
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.request_body import bad
from leveret.protocols.http.management.requester import DONE, to_the_end
from leveret.protocols.http.server.long_answers import LongAnswer
from leveret.protocols.http.server.portioned_answers import PortionedAnswer, turn_of
from leveret.protocols.http.server.replies import API, json_response
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.security.passwords import PasswordHash
from leveret.server.definitions import exporter, importer, incremental_reader
from leveret.server.definitions.exporter import Sections
from leveret.server.definitions.import_report import PRODUCT, ImportReport, text_of
from leveret.server.definitions.incremental_reader import Steps
from leveret.server.definitions.reader import OF_VIRTUAL_HOST, Definitions, UserDefinition
from leveret.server.definitions.rehearsal import stand_in, without_passwords
from leveret.values import Json
from leveret.version import VERSION

PATH: Final = "/api/definitions"
ONE: Final = PATH + "/{vhost}"
OWN: Final = "/api/leveret/definitions"
OWN_ONE: Final = OWN + "/{vhost}"
RABBITMQ_VERSION: Final = INTRODUCTIONS[Product.RABBITMQ_3][1]  # whose shapes these are
ORIGIN: Final = "product_name"
LOOK_S: Final = 0.01  # between two looks at the work of a thread

T = TypeVar("T")


# Export.


def export(request: Request) -> Later:
    return written(request, exporter.everything(request.broker, request.flag("secrets")))


def export_virtual_host(request: Request) -> Later:
    host = request.broker.virtual_host(request.arguments["vhost"])
    return written(request, exporter.of_virtual_host(request.broker, host, request.flag("secrets")))


def written(request: Request, sections: Sections) -> Later:
    return PortionedAnswer(request.broker, writing(request, sections), API).begin()


def writing(request: Request, sections: Sections) -> Generator[float, None, Response]:
    turn = turn_of(request.broker)
    head: dict[str, Json] = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": PRODUCT,
        "product_version": VERSION,
    }
    with LongAnswer(request.broker) as made:
        made.add(json.dumps(head, separators=(",", ":")).removesuffix("}").encode())
        for name, items in sections:
            made.add(f",{json.dumps(name)}:[".encode())
            comma = ""
            for item in items:
                made.add((comma + strict(json.dumps(item))).encode())
                comma = ","
                if turn.is_over():
                    yield turn.pause_s
            made.add(b"]")
        made.add(b"}")
        return made.response(attachment(request))


def attachment(request: Request) -> tuple[tuple[str, str], ...]:
    """Return a header that makes browsers save the answer under the name in the parameter `download`."""
    name = request.one("download", "")
    safe = "".join(each for each in name if each.isascii() and (each.isalnum() or each in "._-"))
    return (("Content-Disposition", f"attachment; filename={safe}"),) if safe else ()


# Import.


def take_in(request: Request) -> Later:
    return to_the_end(request, taking_in(request, None))


def take_in_virtual_host(request: Request) -> Later:
    """Import queues and the like into one virtual host, whichever they were exported from."""
    return to_the_end(
        request, taking_in(request, request.broker.virtual_host(request.arguments["vhost"]).name)
    )


def report(request: Request) -> Later:
    """Import, or try to, and answer with a report."""
    return to_the_end(request, reporting(request, None))


def report_virtual_host(request: Request) -> Later:
    return to_the_end(
        request, reporting(request, request.broker.virtual_host(request.arguments["vhost"]).name)
    )


def taking_in(request: Request, host: str | None) -> Generator[float, None, Response]:
    """Import as RabbitMQ does. The answer is empty if there is nothing to tell. Raises Refused."""
    done = yield from imported(request, host)
    if done.problems:
        raise refused(done)
    return json_response({"warnings": [*done.warnings()], **done.told()}) if done.warnings() else DONE


def reporting(request: Request, host: str | None) -> Generator[float, None, Response]:
    is_trial = request.flag("dry_run")
    done = yield from imported(request, host, is_trial)
    return json_response({"dry_run": is_trial, **done.told()})


def imported(
    request: Request, host: str | None, is_trial: bool = False
) -> Generator[float, None, ImportReport]:
    """Import, or only try to, and return what became of it. Raises Refused if nothing of it is to be imported."""
    broker, turn, done = request.broker, turn_of(request.broker), ImportReport()
    definitions = yield from read(uploaded(request), host, turn, done.problems)
    is_strict = request.flag("strict")
    if is_strict:
        done.problems += importer.md5_problems(definitions)
    if is_strict or is_trial:
        scratch = yield from taking_turns(stand_in(broker, definitions), turn)
        tried = yield from applied(
            without_passwords(definitions), scratch, turn, request.user.name, is_trial=True
        )
        if is_trial or done.problems or tried:
            done.count(definitions, tried)
            yield from taking_turns(done.look(definitions, scratch), turn)
            if is_trial:
                return done
            done.imported = {}
            raise refused(done, "nothing was imported: ")
    definitions = yield from hashed(request, definitions)
    done.count(definitions, (yield from applied(definitions, broker, turn, request.user.name)))
    yield from taking_turns(done.look(definitions, broker), turn)
    return done


def applied(
    definitions: Definitions, broker: Broker, turn: Turn, user: str, is_trial: bool = False
) -> Generator[float, None, list[Problem]]:
    """Put definitions into a broker, and return the problems."""
    problems: list[Problem] = []
    for problem in importer.steps(definitions, broker, user=user, is_trial=is_trial):
        if problem is not None:
            problems.append(problem)
        if turn.is_over():
            yield turn.pause_s
    return problems


def uploaded(request: Request) -> bytes:
    """Return the definitions in a request: its body or, where a form uploads them, its part `file`. Raises Refused."""
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        return request.body
    from email.parser import BytesParser  # 20 ms, which no start needs
    from email.policy import HTTP as FORM

    head = f"Content-Type: {kind}\r\n\r\n".encode("latin-1")
    form = BytesParser(policy=FORM).parsebytes(head + request.body)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_param("name", header="content-disposition") == "file":
            content = part.get_payload(decode=True)
            if isinstance(content, bytes):
                return content
    raise bad("the form has no part `file`")


def read(
    body: bytes, host: str | None, turn: Turn, problems: list[Problem]
) -> Generator[float, None, Definitions]:
    """Parse the body's records, without those that have problems. Raises Refused if it is no JSON.

    This is not done in a thread, which would hold Python's lock for long.
    """
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        content = yield from taking_turns(incremental_reader.parsed(text), turn)
    except (ValueError, RecursionError):
        raise refused(ImportReport(problems=[Problem("", "not_json")])) from None
    if not isinstance(content, dict):
        raise refused(ImportReport(problems=[Problem("", "failed_to_parse_json")]))
    if host is not None:
        content = yield from taking_turns(placed(content, host), turn)
    try:
        return (yield from taking_turns(incremental_reader.records(content, problems), turn))
    except ConfigError as error:  # the file of one virtual host
        raise refused(ImportReport(problems=list(error.problems))) from None


def taking_turns(steps: Generator[object, None, T], turn: Turn) -> Generator[float, None, T]:
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
    found: dict[str, object] = {ORIGIN: content[ORIGIN]} if ORIGIN in content else {}
    for section in OF_VIRTUAL_HOST:
        items = content.get(section, [])
        if isinstance(items, list):
            for index, each in enumerate(items):
                if isinstance(each, dict):
                    items[index] = {**each, "vhost": host}
                yield
        found[section] = items
    return found


def hashed(request: Request, definitions: Definitions) -> Generator[float, None, Definitions]:
    """Replace plain passwords by hashes, each made in a thread. Raises Refused if there is no memory for one."""
    users: list[UserDefinition] = []
    for user in definitions.users:
        if not user.password:
            users.append(user)
            continue
        done: list[PasswordHash | None] = []
        request.broker.access.hash_soon(user.password, done.append)
        while not done:
            yield LOOK_S
        if (kept := done[0]) is None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "there is no memory to hash a password now")
        users.append(
            attrs.evolve(user, password=None, password_hash=kept.text, hashing_algorithm=kept.algorithm)
        )
    return attrs.evolve(definitions, users=tuple(users))


def refused(done: ImportReport, before: str = "") -> Refused:
    """Return a refusal with the first problem as the reason, and a list of up to a hundred."""
    refusal = bad(before + text_of(done.problems[0]))
    warnings = done.warnings()
    refusal.more = {**refusal.more, **done.told(), **({"warnings": [*warnings]} if warnings else {})}
    return refusal


ROUTES: Final = (
    Route("GET", PATH, Level.ADMINISTRATOR, export),
    Route("POST", PATH, Level.ADMINISTRATOR, take_in, large=True),
    Route("GET", ONE, Level.ADMINISTRATOR, export_virtual_host),
    Route("POST", ONE, Level.ADMINISTRATOR, take_in_virtual_host, large=True),
    Route("POST", OWN, Level.ADMINISTRATOR, report, large=True),
    Route("POST", OWN_ONE, Level.ADMINISTRATOR, report_virtual_host, large=True),
)
