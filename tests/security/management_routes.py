"""The rows for the routes of RabbitMQ's HTTP API; http_routes.py tells what a row says."""

from __future__ import annotations

from typing import Final

from .rows import Row

LIMITS: Final = "/api/parameters/vhost-limits/%2F/limits"
FLAG: Final = "/api/feature-flags/quorum_queue/enable"
EVERYTHING: Final = {"configure": ".*", "write": ".*", "read": ".*"}
TOPICS: Final = {"exchange": "amq.topic", "write": ".*", "read": ".*"}
POLICY: Final = {"pattern": "^x", "definition": {"max-length": 1}}
BOBS: Final = "/api/permissions/blue/bob"

NODE: Final[dict[str, Row]] = {
    "GET /api/whoami": Row("management"),
    "GET /api/auth": Row("anybody"),
    "GET /api/extensions": Row("management"),
    "GET /api/cluster-name": Row("management"),
    "PUT /api/cluster-name": Row("administrator", body={"name": "leveret"}),
    "GET /api/feature-flags": Row("administrator"),
    "PUT /api/feature-flags/{name}/enable": Row("administrator", target=FLAG),
    "GET /api/deprecated-features": Row("administrator"),
    "GET /api/deprecated-features/used": Row("administrator"),
    "POST /api/rebalance/queues": Row("administrator"),
}
ACCESS: Final[dict[str, Row]] = {
    "GET /api/vhosts": Row("management"),
    "GET /api/vhosts/{vhost}": Row("management", "monitoring"),
    "PUT /api/vhosts/{vhost}": Row("administrator", target="/api/vhosts/green"),
    "DELETE /api/vhosts/{vhost}": Row("administrator", target="/api/vhosts/blue"),
    "POST /api/vhosts/{vhost}/start/{node}": Row("administrator"),
    "GET /api/vhosts/{vhost}/permissions": Row("administrator"),
    "GET /api/vhosts/{vhost}/topic-permissions": Row("administrator"),
    "GET /api/users": Row("administrator"),
    "GET /api/users/": Row("administrator"),
    "GET /api/users/without-permissions": Row("administrator"),
    "POST /api/users/bulk-delete": Row("administrator", body={"users": ["bob"]}),
    "GET /api/users/{user}": Row("administrator"),
    "PUT /api/users/{user}": Row("administrator", body={"password": "new", "tags": "administrator"}),
    "DELETE /api/users/{user}": Row("administrator"),
    "GET /api/users/{user}/permissions": Row("administrator"),
    "GET /api/users/{user}/topic-permissions": Row("administrator"),
    "GET /api/permissions": Row("administrator"),
    "GET /api/permissions/{vhost}/{user}": Row("administrator", target=BOBS),
    "PUT /api/permissions/{vhost}/{user}": Row("administrator", body=EVERYTHING),
    "DELETE /api/permissions/{vhost}/{user}": Row("administrator", target=BOBS),
    "GET /api/topic-permissions": Row("administrator"),
    "GET /api/topic-permissions/{vhost}/{user}": Row(
        "administrator", target="/api/topic-permissions/blue/bob"
    ),
    "PUT /api/topic-permissions/{vhost}/{user}": Row("administrator", body=TOPICS),
    "DELETE /api/topic-permissions/{vhost}/{user}": Row(
        "administrator", target="/api/topic-permissions/blue/bob"
    ),
}
RULES: Final[dict[str, Row]] = {
    "GET /api/policies": Row("management"),
    "GET /api/policies/{vhost}": Row("management", "monitoring"),
    "GET /api/policies/{vhost}/{name}": Row("policymaker", "administrator", target="/api/policies/%2F/p"),
    "PUT /api/policies/{vhost}/{name}": Row(
        "policymaker", "administrator", body=POLICY, target="/api/policies/%2F/new"
    ),
    "DELETE /api/policies/{vhost}/{name}": Row("policymaker", "administrator", target="/api/policies/%2F/p"),
    "GET /api/operator-policies": Row("management"),
    "GET /api/operator-policies/{vhost}": Row("management", "monitoring"),
    "GET /api/operator-policies/{vhost}/{name}": Row(
        "policymaker", "administrator", target="/api/operator-policies/%2F/op"
    ),
    "PUT /api/operator-policies/{vhost}/{name}": Row(
        "administrator", body=POLICY, target="/api/operator-policies/%2F/new"
    ),
    "DELETE /api/operator-policies/{vhost}/{name}": Row(
        "administrator", target="/api/operator-policies/%2F/op"
    ),
    "GET /api/parameters": Row("policymaker"),
    "GET /api/parameters/{component}": Row("policymaker", target="/api/parameters/vhost-limits"),
    "GET /api/parameters/{component}/{vhost}": Row(
        "policymaker", "administrator", target="/api/parameters/vhost-limits/%2F"
    ),
    "GET /api/parameters/{component}/{vhost}/{name}": Row("policymaker", "administrator", target=LIMITS),
    "PUT /api/parameters/{component}/{vhost}/{name}": Row(
        "administrator", body={"value": {"max-queues": 9}}, target=LIMITS
    ),
    "DELETE /api/parameters/{component}/{vhost}/{name}": Row("administrator", target=LIMITS),
    "GET /api/global-parameters": Row("policymaker"),
    "GET /api/global-parameters/{name}": Row("policymaker", target="/api/global-parameters/mine"),
    "PUT /api/global-parameters/{name}": Row(
        "administrator", body={"value": 1}, target="/api/global-parameters/new"
    ),
    "DELETE /api/global-parameters/{name}": Row("administrator", target="/api/global-parameters/mine"),
    "GET /api/vhost-limits": Row("management"),
    "GET /api/vhost-limits/{vhost}": Row("management", "monitoring"),
    "PUT /api/vhost-limits/{vhost}/{name}": Row(
        "administrator", body={"value": 5}, target="/api/vhost-limits/%2F/max-queues"
    ),
    "DELETE /api/vhost-limits/{vhost}/{name}": Row(
        "administrator", target="/api/vhost-limits/%2F/max-connections"
    ),
    "GET /api/user-limits": Row("management"),
    "GET /api/user-limits/{user}": Row("management"),
    "PUT /api/user-limits/{user}/{name}": Row(
        "administrator", body={"value": 5}, target="/api/user-limits/bob/max-channels"
    ),
    "DELETE /api/user-limits/{user}/{name}": Row(
        "administrator", target="/api/user-limits/bob/max-connections"
    ),
}
METRICS: Final[dict[str, Row]] = {
    "GET /metrics": Row("monitoring"),
    "GET /metrics/per-object": Row("monitoring"),
    "GET /metrics/detailed": Row("monitoring", query="family=queue_coarse_metrics"),
}
MANAGEMENT: Final = {**NODE, **ACCESS, **RULES, **METRICS}
