"""Answer for feature flags and deprecated features as the release of RabbitMQ does whose profile the node has.

Tools and client libraries look at them before they use a feature, or to warn. Nothing can be switched here: what is a
feature flag in RabbitMQ is always on, and rows of `[compat]` decide about what is deprecated. The releases, phases and
names are those of RabbitMQ's documentation (feature flags, deprecated features) and release notes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from leveret.config.compat import Compat, GlobalQos, Product, TransientQueues
from leveret.errors import NotFound
from leveret.protocols.http.connection import Response
from leveret.protocols.http.management.requester import DONE
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

Release: TypeAlias = tuple[int, int]  # such as (4, 3)

NEWEST: Final = (4, 4)
RELEASES: Final[dict[Product, Release]] = {
    Product.LEVERET: NEWEST,
    Product.RABBITMQ_3: (3, 13),
    Product.RABBITMQ_4: NEWEST,
    Product.RABBITMQ_4_0: (4, 0),
    Product.RABBITMQ_4_1: (4, 1),
    Product.RABBITMQ_4_2: (4, 2),
    Product.RABBITMQ_4_3: (4, 3),
    Product.RABBITMQ_4_4: (4, 4),
}
# By release: the one up to which feature flags are required.
REQUIRED_TO: Final[dict[Release, Release]] = {
    (3, 13): (3, 11),
    (4, 0): (3, 12),
    (4, 1): (3, 12),
    (4, 2): (3, 12),
    (4, 3): (4, 2),
    (4, 4): (4, 2),
}
FLAGS: Final[dict[str, tuple[Release, str]]] = {
    "classic_mirrored_queue_version": ((3, 11), "The version of the storage of mirrored queues can be set"),
    "classic_queue_type_delivery_support": ((3, 10), "Queue types other than classic deliver messages"),
    "delete_ra_cluster_mqtt_node": ((3, 12), "Client ids of MQTT are tracked without consensus"),
    "detailed_queues_endpoint": ((3, 13), "Queues are listed with all details by a resource of their own"),
    "direct_exchange_routing_v2": ((3, 11), "Direct exchanges route by a table of their own"),
    "drop_unroutable_metric": ((3, 8), "Publishes that went to no queue are counted"),
    "empty_basic_get_metric": ((3, 8), "Gets from empty queues are counted"),
    "feature_flags_v2": ((3, 11), "The second version of feature flags"),
    "implicit_default_bindings": ((3, 8), "Bindings of the default exchange are not kept"),
    "khepri_db": ((4, 0), "Objects are kept by consensus"),
    "listener_records_in_ets": ((3, 11), "Listeners are listed in memory"),
    "maintenance_mode_status": ((3, 8), "Nodes tell that they are being maintained"),
    "message_containers": ((3, 13), "Messages keep the form of their protocol"),
    "message_containers_deaths_v2": ((3, 13), "Cycles of dead letters are found"),
    "mqtt_v5": ((3, 13), "Version 5 of MQTT"),
    "quorum_queue": ((3, 8), "Queues of type quorum"),
    "quorum_queue_non_voters": ((3, 13), "Members of quorum queues catch up before they vote"),
    "rabbit_exchange_type_local_random": ((4, 0), "Exchanges of type x-local-random"),
    "rabbit_mqtt_qos0_queue": ((3, 12), "Subscriptions of MQTT without acknowledgements have no queue"),
    "rabbitmq_4.0.0": ((4, 0), "What is new in 4.0"),
    "rabbitmq_4.1.0": ((4, 1), "What is new in 4.1"),
    "rabbitmq_4.2.0": ((4, 2), "What is new in 4.2"),
    "rabbitmq_4.3.0": ((4, 3), "What is new in 4.3"),
    "rabbitmq_4.4.0": ((4, 4), "What is new in 4.4"),
    "restart_streams": ((3, 12), "Streams can be restarted"),
    "stream_filtering": ((3, 13), "Streams filter what they deliver"),
    "stream_queue": ((3, 9), "Queues of type stream"),
    "stream_sac_coordinator_unblock_group": ((3, 12), "Groups of consumers of a super stream go on"),
    "stream_single_active_consumer": ((3, 11), "Streams have a single active consumer"),
    "stream_update_config_command": ((3, 13), "Policies change streams"),
    "topic_binding_projection_v5": ((4, 3), "Topic exchanges route by a tree"),
    "tracking_records_in_ets": ((3, 11), "Connections are listed in memory"),
    "user_limits": ((3, 8), "Limits of users"),
    "virtual_host_metadata": ((3, 8), "Descriptions, tags and default queue types of virtual hosts"),
}
PERMITTED, DENIED, REMOVED = "permitted_by_default", "denied_by_default", "removed"
# By name: the phases from some releases on, and what to use.
DEPRECATED: Final[dict[str, tuple[tuple[tuple[Release, str], ...], str]]] = {
    "amqp_address_v1": (
        (((4, 0), PERMITTED), ((4, 3), DENIED)),
        "Addresses of version 1 in AMQP 1.0; use those of version 2",
    ),
    "amqp_filter_set_bug": (
        (((4, 1), PERMITTED), ((4, 3), DENIED)),
        "Filters of AMQP 1.0 whose key is not their descriptor",
    ),
    "classic_queue_mirroring": (
        (((3, 12), PERMITTED), ((4, 0), REMOVED)),
        "Mirrored classic queues; use quorum queues or streams",
    ),
    "global_qos": (
        (((3, 12), PERMITTED), ((4, 3), DENIED)),
        "A prefetch for a whole channel; set one for each consumer",
    ),
    "management_metrics_collection": (
        (((3, 12), PERMITTED),),
        "Rates in the management API; use the metrics for Prometheus",
    ),
    "queue_master_locator": (
        (((4, 0), PERMITTED), ((4, 3), DENIED)),
        "x-queue-master-locator; use x-queue-leader-locator",
    ),
    "ram_node_type": ((((3, 12), PERMITTED), ((4, 3), REMOVED)), "Nodes that keep objects in memory only"),
    "transient_nonexcl_queues": (
        (((3, 12), PERMITTED), ((4, 3), DENIED)),
        "Queues that are neither durable nor exclusive; use durable or exclusive ones",
    ),
}


def release_of(compat: Compat) -> Release:
    return RELEASES[compat.product]


def flags_of(release: Release) -> dict[str, tuple[Release, str]]:
    return {name: flag for name, flag in FLAGS.items() if flag[0] <= release}


def feature_flags(request: Request) -> Json:
    release = release_of(request.broker.compat)
    return [
        {
            "name": name,
            "desc": text,
            "doc_url": "",
            "state": "enabled",
            "stability": "required" if since <= REQUIRED_TO[release] else "stable",
            "provided_by": "leveret",
        }
        for name, (since, text) in flags_of(release).items()
    ]


def enable_feature_flag(request: Request) -> Response:
    """Accept that a feature flag is enabled: all are. `all` is a name as well. Raises NotFound."""
    name = request.arguments["name"]
    if name != "all" and name not in flags_of(release_of(request.broker.compat)):
        raise NotFound(f"no feature flag '{name}'")
    return DONE


def deprecated_features(request: Request) -> Json:
    return _listed(request, list(DEPRECATED))


def used_features(request: Request) -> Json:
    """Answer with the deprecated features that are found in use: queues that are neither durable nor exclusive."""
    hosts = request.broker.hosts()
    is_used = any(not (queue.durable or queue.exclusive) for host in hosts for queue in host.queues.values())
    return _listed(request, ["transient_nonexcl_queues"] if is_used else [])


def _listed(request: Request, names: list[str]) -> list[Json]:
    compat, found = request.broker.compat, list[Json]()
    for name in names:
        phases, text = DEPRECATED[name]
        phase = next((each for since, each in reversed(phases) if since <= release_of(compat)), None)
        if phase is not None:
            found.append(
                {
                    "name": name,
                    "desc": text,
                    "deprecation_phase": phase,
                    "doc_url": "",
                    "provided_by": "leveret",
                    "state": permission(compat, name, phase),
                }
            )
    return found


def permission(compat: Compat, name: str, phase: str) -> str:
    """Return whether a deprecated feature may be used on this node, as its rows say."""
    rows = {
        "amqp_address_v1": compat.address_v1,
        "global_qos": compat.qos_global is GlobalQos.CHANNEL,
        "transient_nonexcl_queues": compat.transient_queues is TransientQueues.ALLOW,
    }
    return "permitted" if rows.get(name, phase == PERMITTED) else "denied"


ROUTES: Final = (
    Route("GET", "/api/feature-flags", Level.ADMINISTRATOR, feature_flags),
    Route("PUT", "/api/feature-flags/{name}/enable", Level.ADMINISTRATOR, enable_feature_flag),
    Route("GET", "/api/deprecated-features", Level.ADMINISTRATOR, deprecated_features),
    Route("GET", "/api/deprecated-features/used", Level.ADMINISTRATOR, used_features),
)
