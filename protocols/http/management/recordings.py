"""Begin, show and end recordings of virtual hosts, and play one into a new virtual host. For administrators only."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import attrs

from leveret.features.recording.recordings import ROTATE, SIZE_LEAST, STOP, Plan, Recordings
from leveret.features.recording.redaction import Redaction
from leveret.features.recording.replays import Replays
from leveret.protocols.http.connection import Response
from leveret.protocols.http.management.request_body import bad, body_of
from leveret.protocols.http.server.replies import octets
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

RECORDINGS: Final = "/api/leveret/recordings"
REPLAYS: Final = "/api/leveret/replays/{vhost}"
KEYS: Final = ("max_bytes", "when_full", "redact_bodies", "redact_headers", "redact_properties")


def recordings_of(request: Request) -> tuple[Recordings, Plan]:
    """Return the recordings of the node, and how the settings have new ones made."""
    found, plan = request.operations.recorder()
    assert isinstance(found, Recordings)
    assert isinstance(plan, Plan)
    return found, plan


def recordings(request: Request) -> Json:
    """Return the recordings that are under way: file, size, records, gaps."""
    found = request.broker.guests.find(Recordings)
    return [] if found is None else found.all()


def begin(request: Request) -> Response:
    """Record a virtual host from now on.

    The body may ask for less than the settings allow (`max_bytes`), for another `when_full`, and for more to be
    redacted. Raises NotFound, Refused, PreconditionFailed.
    """
    host = request.broker.virtual_host(request.arguments["vhost"])
    found, plan = recordings_of(request)
    return Response(HTTPStatus.CREATED, octets(found.begin(host, asked_for(plan, body_of(request)))))


def asked_for(plan: Plan, fields: Mapping[str, object]) -> Plan:
    """Return the plan of the settings with what a request asks for. Raises Refused."""
    for name in fields:
        if name not in KEYS:
            raise bad(f"unknown key '{name[:40]}'; known are {', '.join(KEYS)}")
    size, when = fields.get("max_bytes", plan.max_bytes), fields.get("when_full", plan.when_full)
    if isinstance(size, bool) or not isinstance(size, int) or not SIZE_LEAST <= size <= plan.max_bytes:
        raise bad(f"max_bytes: a whole number from {SIZE_LEAST} to {plan.max_bytes} (record.max_bytes)")
    if when not in (ROTATE, STOP):
        raise bad(f"when_full: {ROTATE} or {STOP}")
    bodies = fields.get("redact_bodies", False)
    if not isinstance(bodies, bool):
        raise bad("redact_bodies: true or false")
    before = plan.redaction
    redaction = Redaction(
        before.bodies or bodies,
        (*before.headers, *_patterns(fields, "redact_headers")),
        (*before.properties, *_patterns(fields, "redact_properties")),
    )
    return attrs.evolve(plan, max_bytes=size, when_full=str(when), redaction=redaction)


def _patterns(fields: Mapping[str, object], name: str) -> list[str]:
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise bad(f"{name}: a list of patterns")
    patterns = [each for each in value if isinstance(each, str)]
    if len(patterns) < len(value):
        raise bad(f"{name}: a list of patterns")
    return patterns


def end(request: Request) -> Json:
    """End the recording of a virtual host; the file is complete a moment later. Raises NotFound."""
    found, _ = recordings_of(request)
    return found.end(request.arguments["vhost"])


def begin_replay(request: Request) -> Response:
    """Make a virtual host that a recording is played into. Raises PreconditionFailed if there is one."""
    broker, name = request.broker, request.arguments["vhost"]
    broker.guest(Replays).begin(broker, name)
    if request.user.scopes is None:  # a token's name may be that of another user
        broker.access.set_permissions(request.user.name, name, ".*", ".*", ".*")
    return Response(HTTPStatus.CREATED, octets({"vhost": name}))


def play(request: Request) -> Json:
    """Play a part of a recording: the body has the format of a file. Raises NotFound, PreconditionFailed."""
    broker = request.broker
    return {"records": broker.guest(Replays).play(broker, request.arguments["vhost"], request.body)}


def end_replay(request: Request) -> Json:
    """End a replay, and return what is not as the recording says. Raises NotFound."""
    broker = request.broker
    return broker.guest(Replays).end(broker, request.arguments["vhost"]).to_json()


ROUTES: Final = (
    Route("GET", RECORDINGS, Level.ADMINISTRATOR, recordings),
    Route("PUT", RECORDINGS + "/{vhost}", Level.ADMINISTRATOR, begin),
    Route("DELETE", RECORDINGS + "/{vhost}", Level.ADMINISTRATOR, end),
    Route("PUT", REPLAYS, Level.ADMINISTRATOR, begin_replay),
    Route("POST", REPLAYS, Level.ADMINISTRATOR, play, large=True),
    Route("DELETE", REPLAYS, Level.ADMINISTRATOR, end_replay),
)
