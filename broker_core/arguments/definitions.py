"""The table of what a file of definitions in RabbitMQ's format can hold besides what is created: one row for a key.

A key of a record is named `SECTION.KEY`. Files come from many versions of RabbitMQ, so keys that no row has are passed
over with a warning, too.
"""

from __future__ import annotations

from typing import Final

from leveret.arguments.row import Effect, Row, by_name

DEFINITIONS: Final = by_name(
    *(
        Row(name=name, about="It says where the file comes from, and nothing else.")
        for name in (
            "rabbit_version",
            "rabbitmq_version",
            "rabbitmq_definition_format",
            "product_name",
            "product_version",
            "original_vhost_name",
            "original_cluster_name",
            "explanation",
        )
    ),
    Row(
        name="vhosts.protected_from_deletion",
        about="The virtual host cannot be deleted.",
        effect=Effect.NO_EFFECT,
        instead="every administrator may delete a virtual host",
        inert=(False,),
    ),
    Row(
        name="vhosts.limits",
        about="The limits of a virtual host.",
        effect=Effect.NO_EFFECT,
        instead="the parameters of the component `vhost-limits` are what counts",
        inert=([], {}),
    ),
    Row(
        name="vhosts.cluster_state",
        about="On which nodes of a cluster the virtual host runs.",
        effect=Effect.NO_EFFECT,
        instead="there is one node",
    ),
)
