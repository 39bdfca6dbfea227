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
from leveret.protocols.http.management.request_body import Said, bad, body_of, require_keys, shown, value_in
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


def all_parameters(asked: Request) -> Later:
    rows = [each for host in visible_hosts(asked) for each in parameters(asked.broker, host)]
    return table(asked, rows, "vhost", "component", "name")


def of_component(asked: Request) -> Later:
    rows = [each for host in visible_hosts(asked) for each in of(asked, host)]
    return table(asked, rows, "vhost", "name")


def in_virtual_host(asked: Request) -> Later:
    return table(asked, of(asked, host_of(asked)), "name")


def of(asked: Request, host: VirtualHost) -> list[Item]:
    component = asked.arguments["component"]
    return [each for each in parameters(asked.broker, host) if each["component"] == component]


def parameter(asked: Request) -> Json:
    return found(asked, own_host_of(asked))


def found(asked: Request, host: VirtualHost) -> Item:
    """Return the parameter in the path. Raises NotFound."""
    for each in of(asked, host):
        if each["name"] == asked.arguments["name"]:
            return each
    raise not_there()


def put_parameter(asked: Request) -> Later | Response:
    host, value = own_host_of(asked), body_of(asked, "value")["value"]
    component, name = asked.arguments["component"], asked.arguments["name"]
    require_component(component)
    if not isinstance(value, dict) and component not in COMPONENTS:
        raise bad(["not_map", shown(value)])
    created = all(each["name"] != name for each in of(asked, host))
    if component in COMPONENTS:
        said = as_json(value_in(value))
        said_as_validation(lambda: connecting(asked).set(host.name, name, said, asked.user.name))
        return changed(asked, created, component, host.name, name)
    assert isinstance(value, dict)
    if component == VIRTUAL_HOST_LIMITS:
        if name != LIMITS:
            raise invalid(f"the limits of a vhost are called '{LIMITS}', not '{shown(name)}'")
        host.set_limits(limits_in(value))
        return changed(asked, created, VIRTUAL_HOST, host.name)
    require_keys(value, "pattern", "definition")
    policy = policies.policy_in(value, host, name)
    said_as_validation(lambda: asked.broker.policies.set_operator(policy))
    return policies.obeyed(asked, host, changed(asked, created, KIND_OPERATOR_POLICY, host.name, name))


def connecting(asked: Request) -> Component:
    """Return the component in the path, of shovels or of federation."""
    from leveret.features.parameters import components  # not needed in a node without any

    return components.component_of(asked.broker, asked.arguments["component"])


def require_component(component: str) -> None:
    """Check that a component may be set here. Raises Refused."""
    if component == "policy":
        raise bad("policies may not be set using this method")
    if component not in (VIRTUAL_HOST_LIMITS, OPERATOR_POLICY, *COMPONENTS):
        row = PARAMETERS.get(component)
        raise invalid(f"component {shown(component)} not found{f': {row.instead}' if row else ''}")


def limits_in(value: Said) -> VirtualHostLimits:
    """Read the limits of a virtual host. Raises Refused for unknown or wrong ones."""
    unknown = [name for name in value if name not in OF_HOSTS]
    if unknown:
        raise invalid(f'Unrecognised terms [{{<<"{unknown[0]}">>,{shown(value[unknown[0]])}}}] in limits')
    said = {OF_HOSTS[name]: count(name, each) for name, each in value.items()}
    return VirtualHostLimits(said.get("max_connections"), said.get("max_queues"))


def delete_parameter(asked: Request) -> Later | Response:
    host = own_host_of(asked)
    found(asked, host)
    if asked.arguments["component"] == VIRTUAL_HOST_LIMITS:
        host.set_limits(VirtualHostLimits())
        return changed(asked, False, VIRTUAL_HOST, host.name)
    name = asked.arguments["name"]
    component = asked.arguments["component"]
    if component in COMPONENTS:
        connecting(asked).delete(host.name, name)
        return changed(asked, False, component, host.name, name)
    asked.broker.policies.clear_operator(host.name, name)
    return policies.obeyed(asked, host, changed(asked, False, KIND_OPERATOR_POLICY, host.name, name))


# Global parameters.


def global_parameters(asked: Request) -> Later:
    return table(asked, [global_parameter_json(*each) for each in asked.broker.parameters.all()], "name")


def global_parameter(asked: Request) -> Json:
    name = asked.arguments["name"]
    if not asked.broker.parameters.has(name):
        raise not_there()
    return global_parameter_json(name, asked.broker.parameters.get(name))


def put_global_parameter(asked: Request) -> Response:
    name, value = asked.arguments["name"], body_of(asked, "value")["value"]
    created = not asked.broker.parameters.has(name)
    asked.broker.parameters.set(name, as_json(value_in(value)))
    return changed(asked, created, PARAMETER, name)


def delete_global_parameter(asked: Request) -> Response:
    if not asked.broker.parameters.clear(asked.arguments["name"]):
        raise not_there()
    return changed(asked, False, PARAMETER, asked.arguments["name"])


ROUTES: Final = (
    Route("GET", PATH, Level.POLICYMAKER, all_parameters),
    Route("GET", PATH + "/{component}", Level.POLICYMAKER, of_component),
    Route("GET", PATH + "/{component}/{vhost}", Level.POLICYMAKER, in_virtual_host),
    Route("GET", ONE, Level.POLICYMAKER, parameter),
    Route("PUT", ONE, Level.ADMINISTRATOR, put_parameter),
    Route("DELETE", ONE, Level.ADMINISTRATOR, delete_parameter),
    Route("GET", GLOBAL, Level.POLICYMAKER, global_parameters),
    Route("GET", GLOBAL + "/{name}", Level.POLICYMAKER, global_parameter),
    Route("PUT", GLOBAL + "/{name}", Level.ADMINISTRATOR, put_global_parameter),
    Route("DELETE", GLOBAL + "/{name}", Level.ADMINISTRATOR, delete_global_parameter),
)
