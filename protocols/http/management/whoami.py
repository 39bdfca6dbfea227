"""Answer the small questions that tools ask first: the user, and the name of the node."""

from __future__ import annotations

from typing import Final

from leveret.protocols.http.connection import Response
from leveret.protocols.http.management.request_body import bad, body_of, text_in
from leveret.protocols.http.management.requester import DONE, changed
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

CLUSTER_NAME: Final = "cluster_name"  # the global parameter


def whoami(request: Request) -> Json:
    return {"name": request.user.name, "tags": list(request.user.tags)}


def auth(request: Request) -> Json:
    """Answer whether and how users of a page log in at an issuer of tokens (OpenID Connect)."""
    tokens = request.broker.access.tokens
    login = None if tokens is None else tokens.page_login
    if login is None:
        return {"oauth_enabled": False, "enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}
    return {
        "oauth_enabled": True,
        "oauth_client_id": login.client_id,
        "oauth_provider_url": login.issuer,
        "oauth_metadata_url": login.metadata,
        "oauth_scopes": login.scopes,
        "oauth_disable_basic_auth": False,
    }


def extensions(request: Request) -> Json:
    return []


def cluster_name(request: Request) -> Json:
    return {"name": name_of_cluster(request)}


def name_of_cluster(request: Request) -> str:
    """Return the name that was set, or the node's."""
    value = request.broker.parameters.get(CLUSTER_NAME)
    return value if isinstance(value, str) else request.operations.name


def set_cluster_name(request: Request) -> Response:
    name = text_in(body_of(request, "name"), "name")
    if not name:
        raise bad("name_is_empty")
    request.broker.parameters.set(CLUSTER_NAME, name)
    return changed(request, created=False)


def rebalance(request: Request) -> Response:
    """Accept the request: every queue is on this node already."""
    return DONE


ROUTES: Final = (
    Route("GET", "/api/whoami", Level.MANAGEMENT, whoami),
    Route("GET", "/api/auth", Level.ANYBODY, auth),
    Route("GET", "/api/extensions", Level.MANAGEMENT, extensions),
    Route("GET", "/api/cluster-name", Level.MANAGEMENT, cluster_name),
    Route("PUT", "/api/cluster-name", Level.ADMINISTRATOR, set_cluster_name),
    Route("POST", "/api/rebalance/queues", Level.ADMINISTRATOR, rebalance),
)
