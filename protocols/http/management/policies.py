"""Show and set policies and operator policies over HTTP.

Policymakers set policies in the virtual hosts that they may enter; administrators set operator policies.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

from leveret.arguments.checks import text
from leveret.catalogue import OPERATOR_POLICY, POLICY
from leveret.errors import Failure
from leveret.policy import ApplyTo, Policy, may_take_long
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.request_body import (
    JsonObject,
    bad,
    body_of,
    shown,
    table_in,
    text_in,
    whole_in,
)
from leveret.protocols.http.management.requester import (
    changed,
    host_of,
    not_there,
    own_host_of,
    to_the_end,
    visible_hosts,
)
from leveret.protocols.http.management.short_lists import table
from leveret.protocols.http.server.portioned_answers import turn_of
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.server.definitions.exporter import Item, policy_json
from leveret.values import Json
from leveret.virtual_host import VirtualHost

PATH: Final = "/api/policies"
OPERATORS: Final = "/api/operator-policies"
IN_HOST: Final = "/{vhost}"
ONE: Final = "/{vhost}/{name}"


def policies(request: Request) -> Later:
    return of_all_hosts(request, operator=False)


def policies_in(request: Request) -> Later:
    return of_host(request, operator=False)


def policy(request: Request) -> Json:
    return told(found(request, own_host_of(request), False))


def put_policy(request: Request) -> Later:
    return put(request, own_host_of(request), request.broker.policies.set, False)


def delete_policy(request: Request) -> Later:
    return delete(request, own_host_of(request), request.broker.policies.clear, False)


def operator_policies(request: Request) -> Later:
    return of_all_hosts(request, operator=True)


def operator_policies_in(request: Request) -> Later:
    return of_host(request, operator=True)


def operator_policy(request: Request) -> Json:
    return told(found(request, own_host_of(request), True))


def put_operator_policy(request: Request) -> Later:
    return put(request, own_host_of(request), request.broker.policies.set_operator, True)


def delete_operator_policy(request: Request) -> Later:
    return delete(request, own_host_of(request), request.broker.policies.clear_operator, True)


# Shared by both kinds.


def of_all_hosts(request: Request, operator: bool) -> Later:
    rows = [told(each) for host in visible_hosts(request) for each in listed(request, host, operator)]
    return table(request, rows, "vhost", "name")


def of_host(request: Request, operator: bool) -> Later:
    return table(request, [told(each) for each in listed(request, host_of(request), operator)], "name")


def told(policy: Policy) -> Item:
    """Return a policy as it is defined, with sentences about its keys that have no effect."""
    return {**policy_json(policy), "warnings": [*policy.warnings()]}


def listed(request: Request, host: VirtualHost, operator: bool) -> Sequence[Policy]:
    policies = request.broker.policies
    return policies.list_operator(host.name) if operator else policies.list(host.name)


def found(request: Request, host: VirtualHost, operator: bool) -> Policy:
    """Return the policy in the path. Raises NotFound."""
    for each in listed(request, host, operator):
        if each.name == request.arguments["name"]:
            return each
    raise not_there()


def put(request: Request, host: VirtualHost, set_policy: Callable[[Policy], None], operator: bool) -> Later:
    policy = policy_in(body_of(request, "pattern", "definition"), host, request.arguments["name"])
    if not Level.ADMINISTRATOR.admits(request.user) and may_take_long(policy.pattern):
        raise invalid(
            f"only administrators may have patterns that can take long, such as '{shown(policy.pattern)}'"
        )
    _check_dead_lettering(request, policy)
    created = all(each.name != policy.name for each in listed(request, host, operator))
    said_as_validation(lambda: set_policy(policy))
    kind = OPERATOR_POLICY if operator else POLICY
    return obeyed(request, host, changed(request, created, kind, host.name, policy.name))


def _check_dead_lettering(request: Request, policy: Policy) -> None:
    """Check that the user may have the policy's dead-letter exchange, if that is checked. Raises AccessRefused."""
    exchange, access = policy.definition.get("dead-letter-exchange"), request.broker.access
    if access.checks_policies and exchange is not None and not Level.ADMINISTRATOR.admits(request.user):
        assert request.user is not None, "policies are not open to strangers"
        access.check_dead_lettering(request.user, policy.virtual_host, text(exchange) or "")


def obeyed(request: Request, host: VirtualHost, response: Response) -> Later:
    """Answer when all queues and exchanges of the virtual host obey the policies set (10 000 queues: 0.2 s)."""

    def steps() -> Generator[float, None, Response]:
        turn = turn_of(request.broker)
        for _ in host.policy_steps():
            if turn.is_over():
                yield turn.pause_s
        return response

    return to_the_end(request, steps())


def policy_in(body: JsonObject, host: VirtualHost, name: str) -> Policy:
    """Read a policy from a body. Raises Refused if a value is wrong."""
    apply_to, known = text_in(body, "apply-to", "all"), [each.value for each in ApplyTo]
    if apply_to not in known:
        words = ", ".join(f"'{each}'" for each in known[:-1])
        raise invalid(f"apply-to '{apply_to}' unrecognised; should be {words} or '{known[-1]}'")
    definition, priority = table_in(body, "definition"), whole_in(body, "priority", 0)
    return Policy(name, host.name, text_in(body, "pattern"), definition, priority, ApplyTo(apply_to))


def said_as_validation(step: Callable[[], object]) -> None:
    """Take a step and turn its failure into Refused, in RabbitMQ's words."""
    try:
        step()
    except Failure as failure:
        raise invalid(str(failure)) from None


def invalid(reason: str) -> Refused:
    return bad(f"Validation failed\n\n{reason}\n")


def delete(request: Request, host: VirtualHost, clear: Callable[[str, str], bool], operator: bool) -> Later:
    if not clear(host.name, request.arguments["name"]):
        raise not_there()
    kind = OPERATOR_POLICY if operator else POLICY
    return obeyed(request, host, changed(request, False, kind, host.name, request.arguments["name"]))


ROUTES: Final = (
    Route("GET", PATH, Level.MANAGEMENT, policies),
    Route("GET", PATH + IN_HOST, Level.MANAGEMENT, policies_in),
    Route("GET", PATH + ONE, Level.POLICYMAKER, policy),
    Route("PUT", PATH + ONE, Level.POLICYMAKER, put_policy),
    Route("DELETE", PATH + ONE, Level.POLICYMAKER, delete_policy),
    Route("GET", OPERATORS, Level.MANAGEMENT, operator_policies),
    Route("GET", OPERATORS + IN_HOST, Level.MANAGEMENT, operator_policies_in),
    Route("GET", OPERATORS + ONE, Level.POLICYMAKER, operator_policy),
    Route("PUT", OPERATORS + ONE, Level.ADMINISTRATOR, put_operator_policy),
    Route("DELETE", OPERATORS + ONE, Level.ADMINISTRATOR, delete_operator_policy),
)
