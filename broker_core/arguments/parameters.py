"""The table of components whose parameters can be set or imported, by name as in RabbitMQ's definitions."""

from __future__ import annotations

from typing import Final

from broker_core.arguments.row import Effect, Row, by_name

NO_FEDERATION: Final = "nothing comes from other brokers by itself; a shovel can bring it"

PARAMETERS: Final = by_name(
    Row(name="vhost-limits", about="The limits of a virtual host."),
    Row(name="operator_policy", about="Operator policies."),
    Row(name="shovel", about="[Shovels](shovels.md) move messages, within a node or between brokers."),
    Row(
        name="federation-upstream",
        about="Brokers that messages come from.",
        effect=Effect.NO_EFFECT,
        instead=NO_FEDERATION,
    ),
    Row(
        name="federation-upstream-set",
        about="Sets of brokers that messages come from.",
        effect=Effect.NO_EFFECT,
        instead=NO_FEDERATION,
    ),
    Row(
        name="federation",
        about="Settings of federation.",
        effect=Effect.NO_EFFECT,
        instead=NO_FEDERATION,
    ),
    Row(
        name="mqtt",
        about="Settings of MQTT.",
        effect=Effect.NO_EFFECT,
        instead="MQTT is not spoken here",
    ),
)
