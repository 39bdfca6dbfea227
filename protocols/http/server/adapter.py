"""Connect the control endpoint to the broker: log users in, check their tags, and give the route's answer as JSON.

    node ──bytes──> Connection (h11) ──request──> ControlAdapter ──> routes ──> broker_core

A request passes four checks before its route answers: the Host it is meant for and the Origin it comes from (a web page
in the operator's browser must not reach the node, neither by a name of its own that resolves to this machine nor by a
form), a path that exists, a user with the right password, and the user's tags. There are no cookies: every request
carries its credentials (RFC 7617).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, ParamSpec, TypeVar
from urllib.parse import parse_qs

import h11

from leveret.arguments.names import shown
from leveret.broker import TURN_S, Broker
from leveret.config.config import Config
from leveret.errors import Failure, LimitReached, PreconditionFailed
from leveret.front_end import FrontEnd, Peer
from leveret.observability.audit import Audit
from leveret.outbox import Outbox
from leveret.protocols.http.connection import (
    Allowance,
    Connection,
    Handler,
    HeaderList,
    HttpRequest,
    Later,
    Pause,
    Response,
    Writer,
)
from leveret.protocols.http.request_head import target_parts
from leveret.protocols.http.server.memory_budget import bodies_of, taken_now
from leveret.protocols.http.server.replies import (
    is_rabbitmqs,
    json_response,
    login_refused,
    mistake,
    refused_level,
    refused_response,
)
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.protocols.http.server.routes import find
from leveret.security.login import SHOWN_MAX, facts_of, word_of
from leveret.security.sasl import AuthenticationFailed, Pending, Plain, Success
from leveret.security.users import User
from leveret.security.web_origin import host_name, is_local, is_own_origin
from leveret.values import Value

log: Final = logging.getLogger("leveret.http")

P = ParamSpec("P")
T = TypeVar("T")

ONLY_READ: Final = frozenset(("GET", "HEAD", "OPTIONS"))
PARAMETERS_MAX: Final = 1000
PATH_LOGGED_MAX: Final = 300  # characters
BODY_MAX: Final = 1 << 20  # bytes of any user's body; some routes take more
STRANGERS_UNREAD_MAX: Final = 4096  # bytes of unsent answers, after which a stranger's connection is closed
AROUND_OCTETS: Final = 1 << 20  # bytes of a body that carries messages, besides the largest message
COMMON: Final = (
    ("Server", "Leveret"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),  # the web page sends its own
)


class OutboxWriter(Writer):
    """The connection's outbox as the `Writer` of the HTTP machine."""

    def __init__(self, outbox: Outbox, front: FrontEnd) -> None:
        self._outbox = outbox
        self._front = front

    def write(self, data: bytes) -> None:
        self._outbox.write(data)
        self._outbox.waiting = True  # `drained` tells when it has been sent

    def full(self) -> bool:
        limit = STRANGERS_UNREAD_MAX if self._front.is_stranger else self._outbox.limit
        return self._outbox.size >= limit

    def gone(self) -> int:
        return self._outbox.gone


class BeingChecked(Exception):  # noqa: N818 - it is no error
    """Raised while the password of a request is still being checked."""

    def __init__(self, pending: Pending) -> None:
        super().__init__("a password is being checked")
        self.pending = pending


class ControlAdapter(Handler, FrontEnd):
    """The front-end of one connection to the control endpoint."""

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        self.broker = broker
        self.outbox = outbox
        self.peer = peer
        self._config = config
        self._own_name = config.http.address.host
        self._pause: Pause | None = None  # until a password has been checked
        self._checked: Pending | None = None  # that password
        self._woken = False  # what it waited for is there
        self._told_of = ""  # the user that was last reported as logged in
        self._asking = ""  # the user whose request is being handled
        self._is_logged = True  # whether this request gets a line in the log, if it is none that only reads
        self.is_stranger = True
        self.wire = Connection(self, OutboxWriter(outbox, self), now)

    # The node's side.

    def receive(self, data: bytes, now: float) -> None:
        if self._woken:
            self._woken = False
            if self._pause is not None:
                self._pause.resume(now)
        self.wire.receive(data, now)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self.wire.closed

    @property
    def halted(self) -> bool:  # type: ignore[override]
        return (self._woken or self.wire.halted) and not self.waits

    def deadline(self) -> float | None:
        if self.wire.closed:  # a late answer may have closed it, and nothing else tells the node
            return self.broker.now
        return self.wire.deadline()

    def on_deadline(self, now: float) -> None:
        self.wire.on_deadline(now)

    def shut_down(self, reason: str) -> None:
        """Close at once: between two requests HTTP has no message for that."""
        self.wire.closed = True

    def drained(self) -> None:
        if self.wire.drained(self.broker.now):  # it is being sent: write in the next turn
            self.broker.timers.at(self.broker.now, self.wire.go_on)

    def lost(self) -> None:
        self.wire.end()

    # A request.

    def common_headers(self) -> HeaderList:
        return (("Date", formatdate(self.broker.clock.wall(), usegmt=True)), *COMMON)

    def on_request(self, request: HttpRequest) -> Response | Later | Pause:
        return self._guarded(request.path, self._answered, request)

    def on_answered(self, head: h11.Request, status: int) -> None:
        asking, self._asking = self._asking, ""
        is_logged, self._is_logged = self._is_logged, True
        method = head.method.decode("latin-1")
        if method in ONLY_READ:
            return
        path, _ = target_parts(head.target.decode("latin-1"))
        if is_logged:
            what = f"{method} {path[:PATH_LOGGED_MAX]}"
            log.info("%s: user '%s': %s: %d", self.peer.name, shown(asking), what, status)
        if (audit := self.broker.guests.find(Audit)) is not None:
            audit.requested(asking, self.peer.name, method, path, status)

    def is_turn_over(self) -> bool:
        return self.broker.is_turn_over()

    def go_on_soon(self) -> None:
        self.broker.timers.at(self.broker.now + TURN_S, self.wire.go_on)

    def allow(self, head: HttpRequest, size: int | None) -> Allowance | Response | Pause | None:
        return self._guarded(head.path, self._allowed, head, size)

    def _guarded(
        self, path: str, step: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T | Response | Pause:
        """Run a step of a request and turn its exceptions into the response, worded as the routes at `path` word it."""
        try:
            return step(*arguments, **named)
        except BeingChecked as checked:
            return self._wait_for(checked.pending)
        except AuthenticationFailed as failure:
            return login_refused(str(failure), path)
        except (Refused, Failure) as refused:
            return refused_response(refused, path)
        except Exception:
            log.exception("%s: closed because of a mistake of ours", self.peer.name)
            return mistake()

    def _answered(self, request: HttpRequest) -> Response | Later:
        self._require_own_host(request)
        require_own_origin(request)
        if request.method == "OPTIONS":
            return options(request)
        route, arguments = find(request.method, request.path)
        user = None if route.level is Level.ANYBODY else self._admitted(request, route)
        self._is_logged = route.level is not Level.USER  # programs ask all the time
        if is_rabbitmqs(route.path) and route.method == "GET":
            require_json_wanted(request)
        query, size_max = parameters(request.query), self._config.message_size_max
        self.broker.events.actor = "" if user is None else user.name
        answer = route.answer(
            Request(self.broker, arguments, query, user, request.body, size_max, request.headers)
        )
        return answer if isinstance(answer, Later | Response) else json_response(answer)

    def _allowed(self, head: HttpRequest, size: int | None) -> Allowance | None:
        """Return how large a body may be: more for users that have logged in, most for the routes of large bodies.

        Raises AuthenticationFailed, or Refused if the user may not use the route, or there is no memory for the body.
        """
        self._require_own_host(head)
        require_own_origin(head)
        route, _ = find(head.method, head.path)
        if route.level is Level.ANYBODY:
            return None
        was_stranger = self.is_stranger
        if was_stranger or route.large:
            self._admitted(head, route)
        if not route.large or (was_stranger and (size or 0) <= BODY_MAX):
            return Allowance(BODY_MAX, final=not route.large)
        most = self._config.message_size_max + AROUND_OCTETS
        if route.octets_max is not None:
            most = min(most, route.octets_max)
        if size is not None and size > most:
            return Allowance(most)
        share = taken_now(bodies_of(self.broker), self.broker, size or most)
        if share is None:
            reason = "other requests take up the memory for their bodies; ask again later"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=(("Retry-After", "1"),))
        return Allowance(most, share.end)

    def _require_own_host(self, request: HttpRequest) -> None:
        """Refuse a request from this machine whose Host is not a name of this machine (DNS rebinding by a web page).

        From elsewhere any name will do: the names that this machine has in the network are not known here. Raises
        Refused.
        """
        host = request.headers.get("host", "")
        if host and self.peer.loopback and not is_local(host_name(host), self._own_name):
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST, "the Host is not a name of this machine; ask localhost"
            )

    def _admitted(self, request: HttpRequest, route: Route) -> User:
        """Return the user of a request if the route admits them. Raises AuthenticationFailed or Refused."""
        user = self._authenticated(request)
        self._asking = user.name
        self.is_stranger = False
        if not route.level.admits(user) and is_rabbitmqs(route.path):
            raise refused_level(route.level)
        if not route.level.admits(user):
            tags = ", ".join(sorted(route.level.value))
            raise Refused(HTTPStatus.FORBIDDEN, f"user '{user.name}' has none of the tags {tags}")
        return user

    def _authenticated(self, request: HttpRequest) -> User:
        given = request.headers.get("authorization")
        if given is None:
            raise Refused(HTTPStatus.UNAUTHORIZED, "a user name and password are needed")
        plain = Plain(self.broker.access, self.peer.loopback)
        plain.host = self.peer.host
        try:
            success = self._logged_in(plain, given)
        except Failure as failure:
            self._tell_refused(plain.claimed, failure)
            if isinstance(failure, LimitReached):
                raise Refused(
                    HTTPStatus.SERVICE_UNAVAILABLE, str(failure), headers=(("Retry-After", "1"),)
                ) from None
            raise
        self._tell_admitted(success.user)
        return success.user

    def _logged_in(self, plain: Plain, authorization: str) -> Success:
        """Log in with the header's credentials. Raises BeingChecked unless called again, when the check is done."""
        if self._checked is not None:
            pending, self._checked = self._checked, None
            answer = pending.answer()
        else:
            answer = plain.login(*credentials(authorization))
        if isinstance(answer, Success):
            return answer
        assert isinstance(answer, Pending), "a password has no challenge"
        raise BeingChecked(answer)

    def _wait_for(self, pending: Pending) -> Pause:
        """Return a pause that ends, in `receive`, when the password has been checked."""
        self._checked = pending
        pause = self._pause = Pause()
        pause.dropped = self._stop_waiting
        self.waits = True
        pending.waiting.tell(self.wake)
        return pause

    def wake(self) -> None:
        self._woken = True
        super().wake()

    def _stop_waiting(self) -> None:
        checked, self._checked, self._pause = self._checked, None, None
        if checked is not None:
            checked.waiting.drop()

    def _tell_admitted(self, user: User) -> None:
        """Report a login once for each change of user: programs send credentials with every request."""
        if self._told_of != user.name:
            self._told_of = user.name
            self.broker.events.happened("user.authentication.success", "", self._facts(user.name))

    def _tell_refused(self, name: str, failure: Failure) -> None:
        why = failure.reason if isinstance(failure, AuthenticationFailed) else str(failure)
        log.warning("%s: login refused: %s", self.peer.name, shortened(why, name))
        facts = {**self._facts(name[:SHOWN_MAX]), "error": word_of(failure)}
        self.broker.events.happened("user.authentication.failure", "", facts)

    def _facts(self, name: str) -> dict[str, Value]:
        return facts_of(self.peer, "HTTP", Plain.name, name)


def shortened(reason: str, name: str) -> str:
    """Cut a long user name in a reason, so that refused logins cannot fill the log."""
    return reason.replace(name, name[:SHOWN_MAX]) if len(name) > SHOWN_MAX else reason


def require_own_origin(request: HttpRequest) -> None:
    """Refuse requests of other sites' pages (RFC 6454, Fetch Metadata). Raises Refused.

    Command-line clients send neither Origin nor Sec-Fetch-Site. A link on another site's page may lead here.
    """
    headers = request.headers
    origin = headers.get("origin")
    if origin is not None:
        is_own = is_own_origin(origin, headers.get("host", ""))
    else:
        is_link = request.method in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate"
        is_own = is_link or headers.get("sec-fetch-site", "none") in ("none", "same-origin")
    if not is_own:
        raise Refused(HTTPStatus.FORBIDDEN, "pages of other sites may not ask this node")


def require_json_wanted(request: HttpRequest) -> None:
    """Check that the client accepts JSON. Raises Refused (406) if it accepts nothing that the API has."""
    accepted = request.headers.get("accept") or "*/*"
    kinds = {each.partition(";")[0].strip().lower() for each in accepted.split(",")}
    if kinds.isdisjoint(("*/*", "application/*", "application/json")):
        raise Refused(HTTPStatus.NOT_ACCEPTABLE, "answers are application/json")


def options(request: HttpRequest) -> Response:
    """Answer OPTIONS with the methods of a path, but no Access-Control headers for pages of other sites."""
    try:
        find("OPTIONS", request.path)
    except Refused as refused:
        if not refused.allow and request.path != "*":
            raise
        return Response(
            HTTPStatus.NO_CONTENT, headers=(("Allow", refused.allow or "GET, HEAD, OPTIONS, POST"),)
        )
    raise AssertionError("no route is for OPTIONS")


def credentials(authorization: str) -> tuple[str, bytes]:
    """Return user name and password of Basic authentication (RFC 7617), or an empty name and a token (RFC 6750).

    Raises AuthenticationFailed if the header is of another scheme, or malformed.
    """
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return "", encoded.strip().encode()
    if scheme.lower() != "basic":
        raise AuthenticationFailed("Basic", "the client wants another mechanism than Basic")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        if colon:
            return name.decode(), password
    except ValueError:  # not base64, not even ASCII, or not UTF-8 inside
        pass
    raise AuthenticationFailed("Basic", "the credentials are not base64 of UTF-8 NAME:PASSWORD")


def parameters(query: str) -> Mapping[str, Sequence[str]]:
    """Return the names and values of a query string. Raises PreconditionFailed if there are too many."""
    try:
        return parse_qs(query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise PreconditionFailed(f"there are more than {PARAMETERS_MAX} parameters") from None
