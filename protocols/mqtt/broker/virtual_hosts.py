"""The virtual host of a client, which a CONNECT has no field for.

The first that says one: the user name (`vhost:user`), the client's certificate, the listener or its port, the settings.
RabbitMQ's global parameters for certificates and ports are read besides the settings of the same meaning, so that
definitions of RabbitMQ need no changes. Where they come from, the certificate and the port win over a user name if
there is a certificate; here the client's own word always does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.config.config import Config
    from leveret.config.global_parameters import Parameters
    from leveret.front_end import Peer
    from leveret.protocols.mqtt.broker.settings import MqttSettings

# Global parameters: virtual hosts by the name in a certificate, and by the number of the listener's port.
OF_CERTIFICATES: Final = "mqtt_default_vhosts"
OF_PORTS: Final = "mqtt_port_to_vhost_mapping"


def divided(user_name: str) -> tuple[str, str]:
    """Return virtual host and user of a user name such as `vhost:user`; the host is empty if there is none."""
    host, colon, user = user_name.rpartition(":")
    return (host, user) if colon else ("", user_name)


def virtual_host_of(
    user_name: str | None, peer: Peer, settings: MqttSettings, config: Config, parameters: Parameters
) -> str:
    """Return the name of the virtual host that a client means, which may not exist."""
    return (
        ("" if user_name is None else divided(user_name)[0])
        or _of_certificate(peer.certified, settings, parameters)
        or peer.virtual_host
        or _named(parameters, OF_PORTS, str(peer.local_port))
        or settings.virtual_host
        or config.virtual_hosts[0].name
    )


def _of_certificate(name: str | None, settings: MqttSettings, parameters: Parameters) -> str:
    if name is None:
        return ""
    return settings.certificate_virtual_hosts.get(name) or _named(parameters, OF_CERTIFICATES, name)


def _named(parameters: Parameters, parameter: str, key: str) -> str:
    """Return what a global parameter has for a key; nothing if it is of another kind, as they are not checked."""
    given = parameters.get(parameter)
    found = given.get(key) if isinstance(given, Mapping) else None
    return found if isinstance(found, str) else ""
