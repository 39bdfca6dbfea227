"""The rows for the routes of RabbitMQ's HTTP API; http_routes.py tells what a row says."""

from __future__ import annotations

from typing import Final

from .rows import CONFIGURE, READ, WRITE, Row

FLAG: Final = "/api/feature-flags/quorum_queue/enable"
EVERYTHING: Final = {"configure": ".*", "write": ".*", "read": ".*"}
TOPICS: Final = {"exchange": "amq.topic", "write": ".*", "read": ".*"}
POLICY: Final = {"pattern": "^x", "definition": {"max-length": 1}}
BOBS: Final = "/api/permissions/blue/bob"
BOBS_TOPICS: Final = "/api/topic-permissions/blue/bob"

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
    "GET /api/topic-permissions/{vhost}/{user}": Row("administrator", target=BOBS_TOPICS),
    "PUT /api/topic-permissions/{vhost}/{user}": Row("administrator", body=TOPICS),
    "DELETE /api/topic-permissions/{vhost}/{user}": Row("administrator", target=BOBS_TOPICS),
    "DELETE /api/topic-permissions/{vhost}/{user}/{exchange}": Row(
        "administrator", target=BOBS_TOPICS + "/amq.topic"
    ),
}
RULES: Final[dict[str, Row]] = {
    "GET /api/policies": Row("management"),
    "GET /api/policies/{vhost}": Row("management", "monitoring"),
    "GET /api/policies/{vhost}/{name}": Row("policymaker", "administrator", name="p"),
    "PUT /api/policies/{vhost}/{name}": Row("policymaker", "administrator", body=POLICY, name="new"),
    "DELETE /api/policies/{vhost}/{name}": Row("policymaker", "administrator", name="p"),
    "GET /api/operator-policies": Row("management"),
    "GET /api/operator-policies/{vhost}": Row("management", "monitoring"),
    "GET /api/operator-policies/{vhost}/{name}": Row("policymaker", "administrator", name="op"),
    "PUT /api/operator-policies/{vhost}/{name}": Row("administrator", body=POLICY, name="new"),
    "DELETE /api/operator-policies/{vhost}/{name}": Row("administrator", name="op"),
    "GET /api/parameters": Row("policymaker"),
    "GET /api/parameters/{component}": Row("policymaker"),
    "GET /api/parameters/{component}/{vhost}": Row("policymaker", "administrator"),
    "GET /api/parameters/{component}/{vhost}/{name}": Row("policymaker", "administrator", name="limits"),
    "PUT /api/parameters/{component}/{vhost}/{name}": Row(
        "administrator", body={"value": {"max-queues": 9}}, name="limits"
    ),
    "DELETE /api/parameters/{component}/{vhost}/{name}": Row("administrator", name="limits"),
    "GET /api/shovels": Row("monitoring"),
    "GET /api/shovels/{vhost}": Row("monitoring"),
    "GET /api/shovels/{vhost}/{name}": Row("monitoring", name="moves"),
    "DELETE /api/shovels/vhost/{vhost}/{name}": Row("administrator", name="moves"),
    "DELETE /api/shovels/vhost/{vhost}/{name}/restart": Row("administrator", name="moves"),
    "GET /api/federation-links": Row("monitoring"),
    "GET /api/federation-links/state/down": Row("monitoring"),
    "GET /api/federation-links/{vhost}": Row("monitoring"),
    "GET /api/federation-links/{vhost}/state/down": Row("monitoring"),
    "DELETE /api/federation-links/vhost/{vhost}/{id}/{node}/restart": Row("administrator", otherwise=404),
    "GET /api/global-parameters": Row("policymaker"),
    "GET /api/global-parameters/{name}": Row("policymaker", name="mine"),
    "PUT /api/global-parameters/{name}": Row("policymaker", body={"value": 1}, name="new"),
    "DELETE /api/global-parameters/{name}": Row("policymaker", name="mine"),
    "GET /api/vhost-limits": Row("management"),
    "GET /api/vhost-limits/{vhost}": Row("management", "monitoring"),
    "PUT /api/vhost-limits/{vhost}/{name}": Row("administrator", body={"value": 5}, name="max-queues"),
    "DELETE /api/vhost-limits/{vhost}/{name}": Row("administrator", name="max-connections"),
    "GET /api/user-limits": Row("management"),
    "GET /api/user-limits/{user}": Row("monitoring"),
    "PUT /api/user-limits/{user}/{name}": Row("administrator", body={"value": 5}, name="max-channels"),
    "DELETE /api/user-limits/{user}/{name}": Row("administrator", name="max-connections"),
}
METRICS: Final[dict[str, Row]] = {
    "GET /metrics": Row("monitoring"),
    "GET /metrics/per-object": Row("monitoring"),
    "GET /metrics/detailed": Row("monitoring", query="family=queue_coarse_metrics"),
}
FETCH: Final = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
LETTER: Final = {"properties": {}, "routing_key": "k", "payload": "p", "payload_encoding": "string"}
QUEUE: Final = "/api/queues/{vhost}/{name}"
ON_QUEUE: Final = tuple((permission, "q") for permission in (CONFIGURE, WRITE, READ))
ALIVE: Final = ((READ, "aliveness-test"), (WRITE, "amq.default"), (CONFIGURE, "aliveness-test"))
DEFINED: Final = {"queues": [{"name": "defined", "durable": True, "auto_delete": False, "arguments": {}}]}
CHECKS: Final = "/api/health/checks"

MESSAGES: Final[dict[str, Row]] = {
    "POST /api/exchanges/{vhost}/{name}/publish": Row(
        "management", "nobody", ((WRITE, "x"),), LETTER, name="x", refused=400
    ),
    f"POST {QUEUE}/get": Row("management", "nobody", ((READ, "q"),), FETCH, name="q"),
    f"DELETE {QUEUE}/contents": Row("management", "nobody", ((READ, "q"),), name="q"),
    f"POST {QUEUE}/actions": Row(
        "management", "nobody", ON_QUEUE, {"action": "sync"}, name="q", any_will_do=True
    ),
    "PUT /api/queues/{vhost}/{name}/pause": Row("management", "administrator", ((CONFIGURE, "q"),), name="q"),
    "PUT /api/queues/{vhost}/{name}/resume": Row(
        "management", "administrator", ((CONFIGURE, "q"),), name="q"
    ),
    "PUT /api/queues/{vhost}/{name}/reread": Row(
        "management", "administrator", ((CONFIGURE, "q"),), name="q"
    ),
    "GET /api/leveret/queues/{vhost}/{name}/peek": Row("management", "nobody", ((READ, "q"),), name="q"),
    "GET /api/leveret/{what}/{vhost}/{name}/deduplication": Row(
        "management", "monitoring", target="/api/leveret/exchanges/%2F/x/deduplication", otherwise=404
    ),
    "DELETE /api/leveret/{what}/{vhost}/{name}/deduplication": Row(
        "management",
        "nobody",
        ((CONFIGURE, "x"),),
        target="/api/leveret/exchanges/%2F/x/deduplication",
        otherwise=404,
    ),
    "GET /api/leveret/queues/{vhost}/{name}/delayed": Row("management", "nobody", ((READ, "q"),), name="q"),
    "DELETE /api/leveret/queues/{vhost}/{name}/delayed": Row(
        "management", "nobody", ((READ, "q"),), name="q"
    ),
    "DELETE /api/leveret/queues/{vhost}/{name}/delayed/{position}": Row(
        "management", "nobody", ((READ, "q"),), target="/api/leveret/queues/%2F/q/delayed/7", otherwise=404
    ),
    "POST /api/leveret/queues/{vhost}/{name}/delayed/deliver": Row(
        "management", "nobody", ((READ, "q"),), {}, name="q"
    ),
    "POST /api/leveret/queues/{vhost}/{name}/return": Row(
        "management", "nobody", ((READ, "q"),), {}, name="q"
    ),
    "POST /api/leveret/queues/{vhost}/{name}/move": Row(
        "management", "nobody", ((READ, "q"), (WRITE, "other")), {"to": "other"}, name="q"
    ),
}
DEFINITIONS: Final[dict[str, Row]] = {
    "GET /api/definitions": Row("administrator"),
    "POST /api/definitions": Row("administrator", body={"users": [], "vhosts": [{"name": "green"}]}),
    "GET /api/definitions/{vhost}": Row("administrator"),
    "POST /api/definitions/{vhost}": Row("administrator", body=DEFINED),
    "POST /api/leveret/definitions": Row("administrator", body={"users": [], "vhosts": [{"name": "green"}]}),
    "POST /api/leveret/definitions/{vhost}": Row("administrator", body=DEFINED),
    "GET /api/cluster": Row("monitoring"),
    "POST /api/cluster/failover": Row("administrator", otherwise=400),  # it is no node of a cluster
    "GET /api/health/checks/is-owner": Row("anybody"),
}
HEALTH: Final[dict[str, Row]] = {
    f"GET {CHECKS}/alarms": Row("management"),
    f"GET {CHECKS}/local-alarms": Row("management"),
    f"GET {CHECKS}/unreadable-messages": Row("monitoring"),  # it names queues of all virtual hosts
    f"GET {CHECKS}/certificate-expiration/{{within}}/{{unit}}": Row("management"),
    f"GET {CHECKS}/port-listener/{{port}}": Row("management"),
    f"GET {CHECKS}/protocol-listener/{{protocol}}": Row("management"),
    f"GET {CHECKS}/virtual-hosts": Row("management"),
    f"GET {CHECKS}/node-is-mirror-sync-critical": Row("management"),
    f"GET {CHECKS}/node-is-quorum-critical": Row("management"),
    f"GET {CHECKS}/is-in-service": Row("management"),
    f"GET {CHECKS}/below-node-connection-limit": Row("management"),
    f"GET {CHECKS}/ready-to-serve-clients": Row("management"),
    "GET /api/healthchecks/node": Row("management"),
    "GET /api/healthchecks/node/{name}": Row("management", name="leveret"),
    "GET /api/aliveness-test/{vhost}": Row("management", "nobody", ALIVE),
}
MANAGEMENT: Final = {**MESSAGES, **DEFINITIONS, **HEALTH, **NODE, **ACCESS, **RULES, **METRICS}
