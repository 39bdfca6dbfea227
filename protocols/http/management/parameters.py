"""Show and set parameters of virtual hosts, by component, and global ones.

The components are: the limits of virtual hosts, operator policies, which have routes of their own as well, and shovels
and upstreams of a federation with their sets, whose URIs are shown without passwords.
Other components are refused, as RabbitMQ refuses those of plug-ins that it has not loaded, and so are policies, which
are set by their own routes. Global parameters may have any value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.arguments.parameters import PARAMETERS
from leveret.catalogue import COMPONENTS, PARAMETER, VIRTUAL_HOST
from leveret.catalogue import OPERATOR_POLICY as KIND_OPERATOR_POLICY
from leveret.limits import VirtualHostLimits
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management import policies
from leveret.protocols.http.management.limits import OF_HOSTS, count
from leveret.protocols.http.management.policies import invalid, said_as_validation
from leveret.protocols.http.management.request_body import (
    JsonObject,
    bad,
    body_of,
    require_keys,
    shown,
    value_in,
)
from leveret.protocols.http.management.requester import (
    changed,
    host_of,
    not_there,
    own_host_of,
    visible_hosts,
)
from leveret.protocols.http.management.short_lists import table
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.server.definitions.exporter import (
    OPERATOR_POLICY,
    VIRTUAL_HOST_LIMITS,
    Item,
    global_parameter_json,
    parameters,
)
from leveret.values import Json, as_json
from leveret.virtual_host import VirtualHost

if TYPE_CHECKING:
    from leveret.features.parameters.components import Component

PATH: Final = "/api/parameters"
ONE: Final = PATH + "/{component}/{vhost}/{name}"
GLOBAL: Final = "/api/global-parameters"
LIMITS: Final = "limits"  # the only name that limits of a virtual host have


def all_parameters(request: Request) -> Later:
    rows = [each for host in visible_hosts(request) for each in parameters(request.broker, host)]
    return table(request, rows, "vhost", "component", "name")


def of_component(request: Request) -> Later:
    rows = [each for host in visible_hosts(request) for each in of(request, host)]
    return table(request, rows, "vhost", "name")


def in_virtual_host(request: Request) -> Later:
    return table(request, of(request, host_of(request)), "name")


def of(request: Request, host: VirtualHost) -> list[Item]:
    component = request.arguments["component"]
    return [each for each in parameters(request.broker, host) if each["component"] == component]


def parameter(request: Request) -> Json:
    return found(request, own_host_of(request))


def found(request: Request, host: VirtualHost) -> Item:
    """Return the parameter in the path. Raises NotFound."""
    for each in of(request, host):
        if each["name"] == request.arguments["name"]:
            return each
    raise not_there()


def put_parameter(request: Request) -> Later | Response:
    host, value = own_host_of(request), body_of(request, "value")["value"]
    component, name = request.arguments["component"], request.arguments["name"]
    require_component(component)
    if not isinstance(value, dict) and component not in COMPONENTS:
        raise bad(["not_map", shown(value)])
    created = all(each["name"] != name for each in of(request, host))
    if component in COMPONENTS:
        text = as_json(value_in(value))
        said_as_validation(lambda: connecting(request).set(host.name, name, text, request.user.name))
        return changed(request, created, component, host.name, name)
    assert isinstance(value, dict)
    if component == VIRTUAL_HOST_LIMITS:
        if name != LIMITS:
            raise invalid(f"the limits of a vhost are called '{LIMITS}', not '{shown(name)}'")
        host.set_limits(limits_in(value))
        return changed(request, created, VIRTUAL_HOST, host.name)
    require_keys(value, "pattern", "definition")
    policy = policies.policy_in(value, host, name)
    said_as_validation(lambda: request.broker.policies.set_operator(policy))
    return policies.obeyed(request, host, changed(request, created, KIND_OPERATOR_POLICY, host.name, name))


def connecting(request: Request) -> Component:
    """Return the component in the path, of shovels or of federation."""
    from leveret.features.parameters import components  # not needed in a node without any

    return components.component_of(request.broker, request.arguments["component"])


def require_component(component: str) -> None:
    """Check that a component may be set here. Raises Refused."""
    if component == "policy":
        raise bad("policies may not be set using this method")
    if component not in (VIRTUAL_HOST_LIMITS, OPERATOR_POLICY, *COMPONENTS):
        row = PARAMETERS.get(component)
        raise invalid(f"component {shown(component)} not found{f': {row.instead}' if row else ''}")


def limits_in(value: JsonObject) -> VirtualHostLimits:
    """Read the limits of a virtual host. Raises Refused for unknown or wrong ones."""
    unknown = [name for name in value if name not in OF_HOSTS]
    if unknown:
        raise invalid(f'Unrecognised terms [{{<<"{unknown[0]}">>,{shown(value[unknown[0]])}}}] in limits')
    text = {OF_HOSTS[name]: count(name, each) for name, each in value.items()}
    return VirtualHostLimits(text.get("max_connections"), text.get("max_queues"))


def delete_parameter(request: Request) -> Later | Response:
    host = own_host_of(request)
    found(request, host)
    if request.arguments["component"] == VIRTUAL_HOST_LIMITS:
        host.set_limits(VirtualHostLimits())
        return changed(request, False, VIRTUAL_HOST, host.name)
    name = request.arguments["name"]
    component = request.arguments["component"]
    if component in COMPONENTS:
        connecting(request).delete(host.name, name)
        return changed(request, False, component, host.name, name)
    request.broker.policies.clear_operator(host.name, name)
    return policies.obeyed(request, host, changed(request, False, KIND_OPERATOR_POLICY, host.name, name))


# Global parameters.


def global_parameters(request: Request) -> Later:
    return table(request, [global_parameter_json(*each) for each in request.broker.parameters.all()], "name")


def global_parameter(request: Request) -> Json:
    name = request.arguments["name"]
    if not request.broker.parameters.has(name):
        raise not_there()
    return global_parameter_json(name, request.broker.parameters.get(name))


def put_global_parameter(request: Request) -> Response:
    name, value = request.arguments["name"], body_of(request, "value")["value"]
    created = not request.broker.parameters.has(name)
    request.broker.parameters.set(name, as_json(value_in(value)))
    return changed(request, created, PARAMETER, name)


def delete_global_parameter(request: Request) -> Response:
    if not request.broker.parameters.clear(request.arguments["name"]):
        raise not_there()
    return changed(request, False, PARAMETER, request.arguments["name"])


ROUTES: Final = (
    Route("GET", PATH, Level.POLICYMAKER, all_parameters),
    Route("GET", PATH + "/{component}", Level.POLICYMAKER, of_component),
    Route("GET", PATH + "/{component}/{vhost}", Level.POLICYMAKER, in_virtual_host),
    Route("GET", ONE, Level.POLICYMAKER, parameter),
    Route("PUT", ONE, Level.ADMINISTRATOR, put_parameter),
    Route("DELETE", ONE, Level.ADMINISTRATOR, delete_parameter),
    Route("GET", GLOBAL, Level.POLICYMAKER, global_parameters),
    Route("GET", GLOBAL + "/{name}", Level.POLICYMAKER, global_parameter),
    Route("PUT", GLOBAL + "/{name}", Level.POLICYMAKER, put_global_parameter),
    Route("DELETE", GLOBAL + "/{name}", Level.POLICYMAKER, delete_global_parameter),
)
