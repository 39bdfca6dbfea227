"""Tell about the cluster that a node belongs to, and let another node serve."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from leveret.errors import PreconditionFailed
from leveret.protocols.http.connection import Response
from leveret.protocols.http.management.request_body import body_of, text_in
from leveret.protocols.http.server.replies import octets
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

PATH: Final = "/api/cluster"


def cluster(request: Request) -> Json:
    """Return the nodes, the owner, its lease and the last takeovers; a node without a cluster says so.

    Times are seconds since 1970; ages, and what a takeover took, are seconds.
    """
    found = request.operations.cluster
    return {"state": "single", "owner": request.operations.name} if found is None else dict(found.status())


def fail_over(request: Request) -> Response:
    """Hand over to the node that `to` names, or to any that stands by. Raises PreconditionFailed if there is none."""
    found = request.operations.cluster
    if found is None:
        raise PreconditionFailed("this node is not one of a cluster")
    heir = text_in(body_of(request), "to", "") if request.body else ""
    found.fail_over(heir)
    request.broker.events.happened(
        "cluster.failover.asked", "", {"name": request.operations.name, "heir": heir}
    )
    return Response(HTTPStatus.ACCEPTED, octets({"from": request.operations.name, "to": heir}))


ROUTES: Final = (
    Route("GET", PATH, Level.MONITORING, cluster),
    Route("POST", PATH + "/failover", Level.ADMINISTRATOR, fail_over),
)
