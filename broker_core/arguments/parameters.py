"""The table of components whose parameters can be set or imported, by name as in RabbitMQ's definitions."""

from __future__ import annotations

from typing import Final

from leveret.arguments.row import Effect, Row, by_name

PARAMETERS: Final = by_name(
    Row(name="vhost-limits", about="The limits of a virtual host."),
    Row(name="operator_policy", about="Operator policies."),
    Row(name="shovel", about="[Shovels](shovels.md) move messages, within a node or between brokers."),
    Row(name="federation-upstream", about="[Upstreams](federation.md) are brokers that messages come from."),
    Row(name="federation-upstream-set", about="Sets of [upstreams](federation.md)."),
    Row(
        name="federation",
        about="Settings of federation in RabbitMQ before 3.0.",
        effect=Effect.NO_EFFECT,
        instead="upstreams and policies say all that there is to say",
    ),
    Row(
        name="mqtt",
        about="Settings of MQTT in RabbitMQ.",
        effect=Effect.NO_EFFECT,
        instead="the configuration file has the settings of protocols",
    ),
)
